"""Runs an executable with the stand-in library loaded before its own, and answers its calls until it ends."""

from __future__ import annotations

import os
import re
import secrets
import selectors
import shutil
import socket
import struct
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from warptile.arch import ARCHES, REFERENCE_ARCH
from warptile.errors import CompileError, UnsupportedError
from warptile.programs import (
    device_calls,
    driver_calls,
    driver_functions,
    driver_memory_calls,
    driver_modules,
    graph_calls,
    graph_node_calls,
    launch_calls,
    memory_calls,
    pool_calls,
    stream_calls,
    texture_calls,
    volume_calls,
)
from warptile.programs.elf_file import ElfFile
from warptile.programs.emulated_gpu import EmulatedGpu, ProgramOptions
from warptile.programs.fat_binary import chosen, ptx_of
from warptile.programs.library_calls import CALLS, NOT_SUPPORTED, Call
from warptile.programs.process_memory import ProcessMemory
from warptile.programs.stand_in_library import StandInLibrary
from warptile.programs.trampolines import CALL, FAILED, FRAME, REPLY, RETURN, SYSTEM_CALL, machine_code

HANDLERS = (
    device_calls, driver_calls, driver_functions, driver_memory_calls, driver_modules, graph_calls, graph_node_calls,
    launch_calls, memory_calls, pool_calls, stream_calls, texture_calls, volume_calls,
)  # fmt: skip
"""Modules whose functions answer calls."""

RUNTIME = "libcudart.so"
RUNTIMES = ("libcudart.so.13", "libcudart.so.12")
"""What libraries of a program, and programs that load the CUDA runtime themselves, may ask for."""

DRIVER = "libcuda.so.1"
_FUNCTION = re.compile(r"_*(?:cuda|cu[A-Z])")

SUFFIXES = ("_ptsz", "_ptds")
"""Of functions whose default stream is one of each thread, which does not matter here."""

BUILD = "nvcc -cudart shared -lineinfo -gencode arch=compute_90a,code=compute_90a"
"""How a program is built so that it can be emulated."""


@dataclass(frozen=True)
class ProgramFile:
    """An executable.

    Attributes:
        path: where it is.
        runtimes: names of the CUDA runtime libraries that it finds, such as ``"libcudart.so.13"``; their symbols have
            that version.
        functions: that it takes from them, as far as the executable itself says it.
        arch: architecture that its PTX is emulated for unless another is asked for.
    """

    path: Path
    runtimes: tuple[str, ...]
    functions: tuple[str, ...]
    arch: str

    @property
    def runtime(self) -> int:
        """Version of the CUDA runtime that it was built for."""
        found = re.search(r"\d+", self.runtimes[0])
        return int(found[0]) if found else 13


def built_program(source: Path, folder: Path, arch: str | None, options: Sequence[str]) -> Path:
    """Compile a .cu file so that it can be emulated; the program is put into ``folder``.

    Raises:
        UnsupportedError: there is no nvcc.
        CompileError: nvcc refuses the file.
    """
    compiler = shutil.which("nvcc")
    if compiler is None:
        raise UnsupportedError(f"{source}: there is no nvcc to compile it; where there is one: {BUILD}")
    target = (arch or REFERENCE_ARCH).replace("sm_", "compute_")
    command = [compiler, "-cudart", "shared", "-lineinfo", "-gencode", f"arch={target},code={target}", *options]
    made = folder / source.stem
    done = subprocess.run([*command, str(source), "-o", str(made)], capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise CompileError(f"{source}: nvcc ended with {done.returncode}\n{done.stderr or done.stdout}".rstrip())
    return made


def read_program(path: Path) -> ProgramFile:
    """What an executable needs.

    Raises:
        ArgumentError: it is no executable.
        UnsupportedError: it has no PTX, or is not linked with the shared CUDA runtime.
    """
    elf = ElfFile(path.read_bytes(), str(path))
    needed = [name for name in elf.needed if name.startswith(RUNTIME)]
    content = elf.section(".nv_fatbin")
    if content and not needed:
        raise UnsupportedError(f"{path} is linked with the static CUDA runtime; build it with the shared one: {BUILD}")
    if elf.section("__nv_relfatbin"):
        raise UnsupportedError(
            f"{path} has device code of several files that is linked (nvcc -rdc=true), and none of it as PTX; build it "
            f"without: {BUILD}"
        )
    found = ptx_of(content)
    if content and not found:
        raise UnsupportedError(f"{path} has no PTX, only machine code; add PTX: {BUILD}")
    reference = ARCHES[REFERENCE_ARCH].capability
    targets = [each.target for each in found]
    arch = REFERENCE_ARCH
    if found and chosen(found, reference) is None:
        arch = next((name for name in ARCHES if name in targets), REFERENCE_ARCH)
    functions = tuple(name for name in elf.undefined if _FUNCTION.match(name))
    return ProgramFile(path, tuple(dict.fromkeys((*needed, *RUNTIMES))), functions, arch)


def run_program(
    program: ProgramFile, arguments: Sequence[str], options: ProgramOptions, say: Callable[[str], None]
) -> tuple[int, EmulatedGpu]:
    """Run a program to its end.

    Args:
        program: the executable.
        arguments: of its command line.
        options: how its kernels are emulated.
        say: what is said meanwhile, such as findings, goes here.

    Returns:
        Its exit code (negative: the signal that ended it), and the GPU as it has left it.

    Raises:
        UnsupportedError: this is no x86-64 Linux.
    """
    gpu = EmulatedGpu(options, say, program.runtime)
    with tempfile.TemporaryDirectory(prefix="warptile-run-") as folder, socket.socket(socket.AF_UNIX) as listener:
        name = f"warptile-{secrets.token_hex(8)}"
        listener.bind(f"\0{name}")
        listener.listen(64)
        libraries = _Libraries.write(Path(folder), program, name)
        preload = [*(str(each) for each in libraries.paths), *filter(None, [os.environ.get("LD_PRELOAD")])]
        process = subprocess.Popen(
            [str(program.path.absolute()), *arguments], env=os.environ | {"LD_PRELOAD": ":".join(preload)}
        )
        try:
            _serve(listener, process, _Answers(gpu, libraries))
        except BaseException:
            process.kill()
            process.wait()
            raise
        return process.wait(), gpu


@dataclass(frozen=True)
class _Libraries:
    """The stand-in libraries of a run.

    Attributes:
        paths: of the driver's, and of the runtime by each of its names.
        made: what they are.
        functions: names of all functions, by their numbers.
    """

    paths: tuple[Path, ...]
    made: tuple[StandInLibrary, ...]
    functions: tuple[str, ...]

    @classmethod
    def write(cls, folder: Path, program: ProgramFile, socket_name: str) -> _Libraries:
        """Write them to a folder."""
        names = {*CALLS, *program.functions}
        of_runtime = {name for name in names if name.lstrip("_").startswith("cuda")}
        driver = sorted(names - of_runtime)
        runtime = sorted({*of_runtime, *(f"{name}{suffix}" for name in of_runtime for suffix in SUFFIXES)})
        last = len(driver)
        code = machine_code(range(last, last + len(runtime)), socket_name)
        made = (
            StandInLibrary(DRIVER, driver, machine_code(range(last), socket_name), None),
            *(StandInLibrary(name, runtime, code, name) for name in program.runtimes),
        )
        paths = (folder / DRIVER, *(folder / name for name in program.runtimes))
        for path, each in zip(paths, made, strict=True):
            path.write_bytes(each.content)
        return cls(paths, made, (*driver, *runtime))


def _serve(listener: socket.socket, process: subprocess.Popen[bytes], answers: _Answers) -> None:
    """Answer calls until the program has ended."""
    with selectors.DefaultSelector() as selector:
        ended = os.pidfd_open(process.pid)
        try:
            selector.register(listener, selectors.EVENT_READ)
            selector.register(ended, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select()]
                if listener in ready:
                    connection, _ = listener.accept()
                    with connection:
                        answers.answer(connection)
                elif ended in ready:
                    return
        finally:
            os.close(ended)
            answers.close()


class _Answers:
    """Answers the calls of all processes of a run."""

    def __init__(self, gpu: EmulatedGpu, libraries: _Libraries) -> None:
        self._gpu, self._libraries = gpu, libraries
        self._memories: dict[int, ProcessMemory] = {}
        self._bases: dict[int, list[int]] = {}

    def answer(self, connection: socket.socket) -> None:
        """Answer one call, whose caller has connected."""
        frame = _received(connection)
        if frame is None:
            return
        number, *registers, frame_pointer, _ = frame
        pid = struct.unpack("<3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]

        def ask(what: int, *operands: int) -> int:
            connection.sendall(REPLY.pack(*(each & (1 << 64) - 1 for each in (what, *operands, *[0] * 7)[:8])))
            result = _received(connection)
            if result is None:
                raise OSError("the program has ended")
            return int(result[0])

        try:
            status = self._status(number, tuple(registers), frame_pointer + 16, pid, ask)
            connection.sendall(REPLY.pack(RETURN, status & (1 << 64) - 1, *[0] * 6))
        except OSError as error:
            self._gpu.note(self._libraries.functions[number], str(error))

    def _status(self, number: int, registers: tuple[int, ...], stack: int, pid: int, ask: Callable[..., int]) -> int:
        name = self._libraries.functions[number]
        for suffix in SUFFIXES:
            name = name.removesuffix(suffix) if name not in CALLS else name
        if name not in CALLS:
            if name not in self._gpu.unknown:
                self._gpu.note(name, "this function is not emulated; it returns cudaErrorNotSupported")
            self._gpu.unknown[name] = self._gpu.unknown.get(name, 0) + 1
            return self._gpu.returned(NOT_SUPPORTED, name)
        memory = self._memory(pid)
        call = Call(
            self._gpu, memory, name, registers, stack, self._bases[pid][0] + self._libraries.made[0].room_offset,
            lambda wanted: self._address(pid, wanted), lambda *operands: ask(SYSTEM_CALL, *operands),
            lambda *operands: ask(CALL, *operands),
        )  # fmt: skip
        try:
            return call.answer()
        except (OSError, UnsupportedError) as error:
            self._gpu.refuse(name)
            self._gpu.note(name, f"{error}")
            return self._gpu.returned(1, name)
        except Exception:
            self._gpu.refuse(name)
            self._gpu.note(name, traceback.format_exc())
            return FAILED

    def _memory(self, pid: int) -> ProcessMemory:
        if pid not in self._memories:
            memory = ProcessMemory(pid)
            self._memories[pid] = memory
            self._bases[pid] = [memory.base_of(path) for path in self._libraries.paths]
        return self._memories[pid]

    def _address(self, pid: int, name: str) -> int | None:
        """Where a function of the libraries is in a process."""
        for base, made in zip(self._bases[pid], self._libraries.made, strict=True):
            if name in made.offsets:
                return base + made.offsets[name]
        return None

    def close(self) -> None:
        """Close what is open."""
        for memory in self._memories.values():
            memory.close()


def _received(connection: socket.socket) -> tuple[int, ...] | None:
    """A frame; None where the caller has gone."""
    found = b""
    while len(found) < FRAME.size:
        more = connection.recv(FRAME.size - len(found))
        if not more:
            return None
        found += more
    return FRAME.unpack(found)
