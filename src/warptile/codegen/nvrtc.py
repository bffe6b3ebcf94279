"""CUDA C++ to cubin and PTX, in process, with no GPU: the only module that touches NVRTC.

The target is always explicit and always a real one (``sm_90a``): one compilation then gives both the cubin, for the
GPU, and the PTX, for the emulator, and ptxas says what the kernel costs. warptile's headers are given in memory under
`VIRTUAL_FOLDER`, so line information names ``wmma/padded.cuh`` on every machine.
"""

from __future__ import annotations

import logging
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import EllipsisType, ModuleType
from typing import Any, BinaryIO

import msgspec

from warptile.codegen import headers
from warptile.codegen.cache import Cache, CacheEntry, key_of
from warptile.codegen.inputs import INPUTS
from warptile.codegen.translation_unit import Source
from warptile.decoding import converted
from warptile.errors import CompileError, SlowCodeError, UnsupportedError, WarptileError

VIRTUAL_FOLDER = "/warptile/kernels"
"""Where the compiler believes warptile's headers to be; removed again from PTX and logs."""

_BASE_OPTIONS = ("-std=c++17", "-lineinfo")
TO_CUBIN = ("--ptxas-options=-v", "--no-cache")
"""Options that give ptxas's log; a cubin from NVRTC's own cache has none."""

_DEBUG_OPTIONS = frozenset(("-G", "--device-debug"))
_MAIN = "kernel.cu"
_LIBRARY = "libnvrtc.so.13"
_TRIES = 100
_ERROR_LINE = re.compile(
    r"^(?P<line>[^\s(][^\n(]*\(\d+\)): (?:catastrophic |internal )?error[^:\n]*: (?P<text>.*)$", re.M
)
_PTXAS_ERROR = re.compile(r"^ptxas.*(?:error|fatal)\s*:\s*(?P<text>.*)$", re.M)
_ARCH = re.compile(r"sm_(\d+)([af]?)")
NAME_MAP = "__nv_name_map"
"""The file in which NVRTC's messages place errors of name expressions."""

_COSTLY = re.compile(r"^.*(?:Potential Performance Loss|setmaxnreg ignored|\(C75\d\d\)).*$", re.M | re.I)
_log = logging.getLogger("warptile.codegen.nvrtc")


@dataclass(frozen=True)
class Resources:
    """What ptxas reports for one kernel: registers and bytes of a thread, and shared bytes of a block."""

    registers: int
    static_shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int

    @property
    def spill_bytes(self) -> int:
        """Bytes of spill stores and spill loads together."""
        return self.spill_store_bytes + self.spill_load_bytes


@dataclass(frozen=True)
class CompiledPtx:
    """A kernel as the emulator takes it.

    Attributes:
        entry: lowered (mangled) symbol.
        arch: what it was compiled for, such as ``"sm_90a"``.
        ptx: PTX text for the emulator.
    """

    entry: str
    arch: str
    ptx: bytes


@dataclass(frozen=True)
class CompiledKernel(CompiledPtx):
    """A compiled kernel and all that a launch needs.

    Attributes:
        entry, arch, ptx: as of `CompiledPtx`.
        cubin: machine code for the GPU.
        resources: what it takes.
        log: the compiler's log.
        compiler: NVRTC's release, such as ``"NVRTC 13.0.88"``.
        key: the cache's key.
    """

    cubin: bytes
    resources: Resources
    log: str
    compiler: str
    key: str


class _Metadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the cache keeps of a `CompiledKernel` beside its bytes."""

    entry: str
    arch: str
    compiler: str
    name_expression: str
    resources: Resources
    log: str


def _nvrtc() -> ModuleType:
    """cuda-bindings' NVRTC module.

    Raises:
        CompileError: the bindings or the library are not installed.
    """
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    # The bindings' loader raises RuntimeErrors of its own types, which changed from release to release.
    except (ImportError, RuntimeError, OSError) as error:
        raise CompileError(f"NVRTC cannot be loaded ({error}); install it with: {headers.INSTALL}") from error
    return nvrtc  # type: ignore[no-any-return]


def _check(nvrtc: ModuleType, answer: tuple[Any, ...]) -> Any:
    """The value of an NVRTC call.

    Raises:
        CompileError: the call failed.
    """
    status, *values = answer
    if int(status) != 0:
        _, text = nvrtc.nvrtcGetErrorString(status)
        raise CompileError(f"NVRTC: {text.decode() if isinstance(text, bytes) else text} ({status.name})")
    return values[0] if values else None


def _output(nvrtc: ModuleType, program: Any, what: str) -> bytes:
    """One of a program's outputs: ``ProgramLog``, ``PTX`` or ``CUBIN``."""
    size: int = _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program))
    # NVRTC writes into this object, and an empty log is one NUL. b" " * 1 would be the interpreter's shared b" ", which
    # that NUL would change for the whole process: hence a byte more.
    buffer = b" " * (size + 1)
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer[:size]


def nvrtc_release() -> tuple[int, int]:
    """NVRTC's release, as ``(major, minor)``."""
    nvrtc = _nvrtc()
    status, major, minor = nvrtc.nvrtcVersion()
    _check(nvrtc, (status,))
    return int(major), int(minor)


@lru_cache(maxsize=1)
def compiler_version() -> str:
    """NVRTC's full release with its build number, such as ``"NVRTC 13.0.88"``: PTX of an empty program states it."""
    nvrtc = _nvrtc()
    major, minor = nvrtc_release()
    program = _check(nvrtc, nvrtc.nvrtcCreateProgram(b"", b"empty.cu", 0, None, None))
    try:
        oldest = min(_supported(nvrtc))
        _check(nvrtc, nvrtc.nvrtcCompileProgram(program, 1, [f"-arch=compute_{oldest}".encode()]))
        found = re.search(rb"\bV(\d+\.\d+\.\d+)", _output(nvrtc, program, "PTX"))
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return f"NVRTC {found[1].decode()}" if found else f"NVRTC {major}.{minor}"


def _supported(nvrtc: ModuleType) -> list[int]:
    return [int(capability) for capability in _check(nvrtc, nvrtc.nvrtcGetSupportedArchs())]


def supported_arches() -> tuple[str, ...]:
    """Real targets that this NVRTC compiles for, such as ``"sm_90"``; an ``a`` after 90 and above is legal too."""
    return tuple(f"sm_{capability}" for capability in _supported(_nvrtc()))


def _usual_compiler() -> tuple[str, tuple[str, ...]]:
    """Version and targets of the compiler that a compilation would most likely load: that of the wheel, of which both
    are remembered, so that what is cached is found without loading it. Without a wheel, those of the one loaded."""
    for folder in headers.wheel_folders():
        known = INPUTS.compiler(str(folder / "lib" / _LIBRARY), lambda: (compiler_version(), supported_arches()))
        if known is not None:
            return known.version, known.arches
    return compiler_version(), supported_arches()


def _check_arch(arch: str, version: str, known: tuple[str, ...]) -> None:
    """Raise UnsupportedError unless ``arch`` is one of the targets that NVRTC of this version knows."""
    match = _ARCH.fullmatch(arch) if isinstance(arch, str) else None
    if match is None or f"sm_{match[1]}" not in known or (match[2] and int(match[1]) < 90):
        raise UnsupportedError(
            f"arch: got {arch!r}; {version} compiles for {', '.join(known)} "
            f"(and their 'a' forms from sm_90 on), such as arch='sm_90a'"
        )


def check_target(arch: str) -> None:
    """Raise UnsupportedError unless the NVRTC that is loaded compiles for ``arch``."""
    _check_arch(arch, compiler_version(), supported_arches())


def _portable(text: str, cuda_folder: Path) -> str:
    """``text`` with file names relative to warptile's kernels folder or to CUDA's include folder."""
    return text.replace(f"{VIRTUAL_FOLDER}/", "").replace(f"{cuda_folder}/", "")


def _portable_ptx(ptx: bytes, cuda_folder: Path) -> bytes:
    """PTX with portable names in its ``.file`` directives, without the trailing NUL."""
    prefixes = b"|".join(re.escape(f"{prefix}/".encode()) for prefix in (VIRTUAL_FOLDER, cuda_folder))
    return re.sub(rb'^(\s*\.file\s+\d+\s+")(?:' + prefixes + rb")", rb"\1", ptx.rstrip(b"\0"), flags=re.M)


def _portable_log(log: bytes, cuda_folder: Path) -> str:
    """The compiler's log without machine paths and without times, which would differ from run to run."""
    lines = _portable(log.decode(errors="replace").replace("\0", "").rstrip(), cuda_folder).splitlines()
    return "\n".join(line for line in lines if "Compile time" not in line)


def _refusal(source: Source, arch: str, log: str) -> CompileError:
    """The error for a source that did not compile."""
    found = [match for match in _ERROR_LINE.finditer(log) if not match["line"].startswith(NAME_MAP)]
    line = found[0]["line"] if found else None
    if found:
        reason = f"{line}: {found[0]['text'].strip()}"
    elif NAME_MAP in log:
        reason = f"the source declares no such name: {_ERROR_LINE.search(log)['text']}"  # type: ignore[index]
    elif ptxas := _PTXAS_ERROR.search(log):
        reason = f"ptxas: {ptxas['text'].strip()}"
    else:
        reason = log.strip().splitlines()[0] if log.strip() else "no reason given"
    return CompileError(
        f"{source.name_expression} for {arch}: {reason}; the compiler's whole log is this error's .log", log, line
    )


def resources_of(log: str, entry: str) -> Resources:
    """What ptxas says about ``entry`` in a log of ``--ptxas-options=-v``; spills of functions it calls count too.

    Raises:
        CompileError: the log does not speak of the kernel.
    """
    start = re.search(rf"Compiling entry function '{re.escape(entry)}'", log)
    body = log[start.end() :] if start else ""
    body = body.split("Compiling entry function", 1)[0]
    used = re.search(r"Used (\d+) registers", body)
    own = re.search(rf"Function properties for {re.escape(entry)}\b[^\n]*\n[^\n]*?(\d+) bytes stack frame", body)
    if used is None or own is None:
        raise CompileError(f"{entry}: ptxas reported no registers or stack for it; the log is this error's .log", log)
    shared = re.search(r"Used [^\n]*?(\d+) bytes smem", body)
    stack = re.search(r"(\d+) bytes cumulative stack size", body)
    return Resources(
        registers=int(used[1]),
        static_shared_bytes=int(shared[1]) if shared else 0,
        stack_bytes=max(int(own[1]), int(stack[1]) if stack else 0),
        spill_store_bytes=sum(map(int, re.findall(r"(\d+) bytes spill stores", body))),
        spill_load_bytes=sum(map(int, re.findall(r"(\d+) bytes spill loads", body))),
    )


def _refuse_costly(source: Source, arch: str, log: str, resources: Resources) -> None:
    """Raise SlowCodeError where the compiler gave up something that the rung is built on."""
    warnings = () if source.may_serialise else _COSTLY.finditer(log)
    defects = list(dict.fromkeys(match[0].strip() for match in warnings))
    if resources.spill_bytes and not source.may_spill:
        defects.append(
            f"registers spill to local memory ({resources.spill_store_bytes} bytes stored, "
            f"{resources.spill_load_bytes} loaded, {resources.registers} registers used); take a smaller tile, "
            f"or Source(..., may_spill=True) where spilling is the point"
        )
    if defects:
        raise SlowCodeError(f"{source.name_expression} for {arch}: it compiled, but {'; '.join(defects)}", log)


def _run_apart(
    source: Source, arch: str, flags: tuple[str, ...], found: headers.Headers, wanted: tuple[str, ...]
) -> tuple[str, str, list[bytes]]:
    """`_run` in a process of its own.

    Once NVRTC 13.0.88 has compiled with ``-G``, it optimizes less for the rest of its process: kernels compiled later
    get other code, whose registers may spill, under the same key of the cache.
    """
    program = "import sys; from warptile.codegen.nvrtc import _serve; _serve(sys.stdin.buffer, sys.stdout.buffer)"
    given = pickle.dumps((source, arch, flags, found, wanted))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", program], input=given, env=environment, capture_output=True, check=False
    )
    if done.returncode != 0:
        raise CompileError(
            f"{source.name_expression}: NVRTC ended with status {done.returncode}: {done.stderr.decode()}"
        )
    outcome: tuple[str, str, list[bytes]] | WarptileError = pickle.loads(done.stdout)
    if isinstance(outcome, WarptileError):
        raise outcome
    return outcome


def _serve(given: BinaryIO, answer: BinaryIO) -> None:
    """What the process of `_run_apart` does."""
    outcome: tuple[str, str, list[bytes]] | WarptileError
    try:
        outcome = _run(*pickle.load(given))
    except WarptileError as error:
        outcome = error
    pickle.dump(outcome, answer)


def _run(
    source: Source, arch: str, flags: tuple[str, ...], found: headers.Headers, wanted: tuple[str, ...]
) -> tuple[str, str, list[bytes]]:
    """Compile a source of warptile's: the kernel's lowered name, the log, and the outputs that are wanted."""
    cuda_folder = headers.cuda_include_folder(nvrtc_release()[0])
    # A #line with an absolute name: NVRTC would otherwise put the current folder before the names of these headers.
    given = {name: f'#line 1 "{VIRTUAL_FOLDER}/{name}"\n'.encode() + content for name, content in found.own.items()}
    flags = (*flags, f"-arch={arch}", f"-I{cuda_folder}")
    done = run_program(
        source.text.encode(), f"{VIRTUAL_FOLDER}/{_MAIN}", flags, wanted, given, expression=source.name_expression
    )
    log = _portable_log(done.log, cuda_folder)
    if not done.compiled:
        raise _refusal(source, arch, log)
    ptx, *others = done.outputs
    return done.entry, log, [_portable_ptx(ptx, cuda_folder), *others]


@dataclass(frozen=True)
class ProgramOutcome:
    """What NVRTC made of one program.

    Attributes:
        compiled: whether it did; the log says why not.
        log: as NVRTC wrote it.
        entry: lowered name of the name expression; empty without one.
        outputs: what was wanted, in order.
    """

    compiled: bool
    log: bytes
    entry: str = ""
    outputs: tuple[bytes, ...] = ()


def run_program(
    text: bytes,
    name: str,
    flags: Sequence[str],
    wanted: Sequence[str],
    given_headers: Mapping[str, bytes] | None = None,
    *,
    expression: str | None = None,
) -> ProgramOutcome:
    """Run NVRTC once.

    Args:
        text: CUDA C++.
        name: its file, as line information and messages name it.
        flags: NVRTC's options.
        wanted: outputs, of ``PTX`` and ``CUBIN``.
        given_headers: headers that are given in memory, by the name in their ``#include``.
        expression: C++ name of a kernel that has to be instantiated, or None.

    Raises:
        CompileError: NVRTC cannot be loaded, or a call of it failed for another reason than the text.
    """
    nvrtc = _nvrtc()
    names = [each.encode() for each in given_headers or {}]
    contents = list((given_headers or {}).values())
    program = _check(nvrtc, nvrtc.nvrtcCreateProgram(text, name.encode(), len(names), contents, names))
    try:
        if expression is not None:
            _check(nvrtc, nvrtc.nvrtcAddNameExpression(program, expression.encode()))
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
        log = _output(nvrtc, program, "ProgramLog")
        if int(status) != 0:
            return ProgramOutcome(False, log)
        entry = ""
        if expression is not None:
            entry = _check(nvrtc, nvrtc.nvrtcGetLoweredName(program, expression.encode())).decode()
        return ProgramOutcome(True, log, entry, tuple(_output(nvrtc, program, what) for what in wanted))
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _compile(source: Source, arch: str, options: tuple[str, ...], found: headers.Headers, key: str) -> CompiledKernel:
    """Both outputs, and ptxas's verdict."""
    flags = (*_BASE_OPTIONS, *TO_CUBIN, *options)
    run = _run_apart if _DEBUG_OPTIONS.intersection(flags) else _run
    entry, log, (ptx, cubin) = run(source, arch, flags, found, ("PTX", "CUBIN"))
    resources = resources_of(log, entry)
    _refuse_costly(source, arch, log, resources)
    return CompiledKernel(entry, arch, ptx, cubin, resources, log, compiler_version(), key)


def ptx_alone(source: Source, arch: str, *, options: tuple[str, ...] = ()) -> tuple[str, bytes]:
    """Entry and PTX of one instantiation, which is what the emulator takes, in half of the time: ptxas does not run, so
    that nothing is known of spills, and there is no cubin. Nothing is cached.

    Raises:
        CompileError: NVRTC refuses the source, or it or CUDA's headers are not installed.
        UnsupportedError: NVRTC does not know ``arch``.
    """
    check_target(arch)
    found = _headers_of(source)
    run = _run_apart if _DEBUG_OPTIONS.intersection(options) else _run
    entry, _, (ptx,) = run(source, arch.replace("sm_", "compute_"), (*_BASE_OPTIONS, *options), found, ("PTX",))
    return entry, ptx


def _from_entry(entry: CacheEntry) -> CompiledKernel | None:
    """The kernel that a cache entry holds, or None where it holds something else."""
    try:
        kept = converted(entry.metadata, _Metadata)
        ptx, cubin = entry.blobs["ptx"], entry.blobs["cubin"]
    except (msgspec.ValidationError, KeyError):
        return None
    return CompiledKernel(kept.entry, kept.arch, ptx, cubin, kept.resources, kept.log, kept.compiler, entry.key)


def disassemble(cubin: bytes) -> str:
    """SASS of a cubin, as nvdisasm prints it with line information.

    Raises:
        UnsupportedError: nvdisasm is not installed, or does not take the cubin.
    """
    nvdisasm = headers.program("nvdisasm")
    if nvdisasm is None:
        raise UnsupportedError("nvdisasm is not installed; python3 -m pip install 'warptile[sass]' adds it")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(nvdisasm), "--print-code", "--print-line-info", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UnsupportedError(f"nvdisasm: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


def _dump(source: Source, kernel: CompiledKernel) -> None:
    """Write what WARPTILE_DUMP lists (of ``cu,ptx,cubin,sass``) into the folder ``warptile-dump`` here."""
    wanted = [word for word in map(str.strip, os.environ.get("WARPTILE_DUMP", "").split(",")) if word]
    unknown = sorted(set(wanted) - {"cu", "ptx", "cubin", "sass"})
    if unknown:
        raise UnsupportedError(f"WARPTILE_DUMP: got {','.join(unknown)}; it takes some of cu,ptx,cubin,sass")
    if not wanted:
        return
    name = re.sub(r"\W+", "-", source.name_expression.removeprefix("warptile::")).strip("-")[:80]
    folder = Path("warptile-dump")
    folder.mkdir(exist_ok=True)
    for word in wanted:
        if word == "sass":
            content = disassemble(kernel.cubin).encode()
        else:
            content = {"cu": source.text.encode(), "ptx": kernel.ptx, "cubin": kernel.cubin}[word]
        (folder / f"{name}-{kernel.arch}-{kernel.key[:8]}.{word}").write_bytes(content)


def compile_source(
    source: Source, arch: str, *, options: tuple[str, ...] = (), cache: Cache | EllipsisType | None = ...
) -> CompiledKernel:
    """Compile one instantiation for one architecture, or take it from the cache.

    With WARPTILE_DUMP, a list of ``cu,ptx,cubin,sass``, these are also written into the folder ``warptile-dump``.

    Args:
        source: translation unit and the name expression of its kernel.
        arch: real target, such as ``"sm_80"`` or ``"sm_90a"``.
        options: further NVRTC options, such as ``("-maxrregcount=128",)``.
        cache: where compiled kernels are kept; by default `Cache()`, None for none.

    Raises:
        CompileError: NVRTC or ptxas refuse the source, wgmma was serialised, a register budget was ignored, or
            registers spill, in a source that does not allow it, or NVRTC or CUDA's headers are not installed.
        UnsupportedError: NVRTC does not know ``arch``, or WARPTILE_DUMP asks for something unknown.
    """
    kept = Cache() if isinstance(cache, EllipsisType) else cache
    entry = _cached(kept, source, arch, options) or _cached_for_loaded(kept, source, arch, options)
    kernel = _from_entry(entry) if entry is not None else None
    if kernel is None:
        found, key = _keyed(source, arch, options)
        kernel = _compile(source, arch, options, found, key)
        if kept is not None:
            metadata = _Metadata(
                kernel.entry, arch, kernel.compiler, source.name_expression, kernel.resources, kernel.log
            )
            kept.put(key, msgspec.to_builtins(metadata), {"cubin": kernel.cubin, "ptx": kernel.ptx})
            INPUTS.save(kept)
        _log.info("compiled %s for %s: %s", source.name_expression, arch, kernel.resources)
    _dump(source, kernel)
    return kernel


def compile_ptx(source: Source, arch: str) -> CompiledPtx:
    """PTX of one instantiation for one architecture, or what the cache has of it: half the time of `compile_source`,
    as ptxas does not run. Whether registers spill is then not known.

    With WARPTILE_DUMP this is `compile_source`, which has all that may be written.

    Raises:
        CompileError: NVRTC refuses the source, or it or CUDA's headers are not installed.
        UnsupportedError: NVRTC does not know ``arch``.
    """
    if os.environ.get("WARPTILE_DUMP"):
        return compile_source(source, arch)
    kept = Cache()
    cached = _cached(kept, source, arch, (), "ptx") or _cached_for_loaded(kept, source, arch, (), "ptx")
    if cached is not None and "ptx" in cached.blobs and isinstance(cached.metadata.get("entry"), str):
        return CompiledPtx(str(cached.metadata["entry"]), arch, cached.blobs["ptx"])
    found, key = _keyed(source, arch, (), "ptx")
    virtual = arch.replace("sm_", "compute_")
    entry, _, (ptx,) = _run(source, virtual, _BASE_OPTIONS, found, ("PTX",))
    metadata = {
        "entry": entry, "arch": arch, "compiler": compiler_version(), "name_expression": source.name_expression,
    }  # fmt: skip
    kept.put(key, metadata, {"ptx": ptx})
    INPUTS.save(kept)
    _log.info("compiled %s for %s, PTX alone", source.name_expression, arch)
    return CompiledPtx(entry, arch, ptx)


def cached_kernel(source: Source, arch: str) -> CompiledKernel | None:
    """What the cache has of a kernel; None where `compile_source` has to load NVRTC, at least.

    Raises:
        CompileError, UnsupportedError: as `compile_source`, without a look at what NVRTC says of the source.
    """
    entry = _cached(Cache(), source, arch, ())
    kernel = _from_entry(entry) if entry is not None else None
    if kernel is not None:
        _dump(source, kernel)
    return kernel


def _cached(
    cache: Cache | None, source: Source, arch: str, options: tuple[str, ...], artefact: str = "kernel"
) -> CacheEntry | None:
    """What the cache has of what the usual compiler makes of a source, found without loading NVRTC where possible."""
    if cache is None:
        return None
    INPUTS.load(cache)
    version, arches = _usual_compiler()
    _check_arch(arch, version, arches)
    folder = _include_folder(_major(version))
    found = cache.get(_key(source, arch, options, artefact, headers.reachable(source.text, folder), version))
    if found is not None:
        INPUTS.save(cache)
    return found


def _cached_for_loaded(
    cache: Cache | None, source: Source, arch: str, options: tuple[str, ...], artefact: str = "kernel"
) -> CacheEntry | None:
    """As `_cached`, where the compiler that is loaded is not the usual one."""
    if cache is None or _usual_compiler()[0] == compiler_version():
        return None
    return cache.get(_keyed(source, arch, options, artefact)[1])


def _keyed(
    source: Source, arch: str, options: tuple[str, ...], artefact: str = "kernel"
) -> tuple[headers.Headers, str]:
    """The headers that a source reaches, with their contents, and the key of what is made of it by this compiler."""
    version = compiler_version()
    _check_arch(arch, version, supported_arches())
    found = _headers_of(source)
    return found, _key(source, arch, options, artefact, found, version)


def _headers_of(source: Source) -> headers.Headers:
    """The headers that a source reaches, with their contents."""
    folder = headers.cuda_include_folder(nvrtc_release()[0])
    for _ in range(_TRIES):
        found = headers.reachable(source.text, folder)
        try:
            assert found.own is not None
            return found
        except headers.HeaderChanged:
            continue
    raise CompileError(f"{source.name_expression}: its headers change again and again; compile when they are written")


def _include_folder(nvrtc_major: int) -> Path:
    """As `headers.cuda_include_folder`, looked for once a process."""
    return _found_folder(nvrtc_major, os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"))


@lru_cache(maxsize=8)
def _found_folder(nvrtc_major: int, _cuda_home: str | None, _cuda_path: str | None) -> Path:
    return headers.cuda_include_folder(nvrtc_major)


def _major(version: str) -> int:
    """CUDA's major release, of ``"NVRTC 13.0.88"``."""
    return int(version.split()[1].split(".")[0])


def _key(
    source: Source, arch: str, options: tuple[str, ...], artefact: str, found: headers.Headers, version: str
) -> str:
    """The key in the cache of what is made of a source."""
    return key_of(
        {
            "artefact": artefact,
            "text": source.text,
            "name_expression": source.name_expression,
            "may_spill": int(source.may_spill),
            "may_serialise": int(source.may_serialise),
            "headers": found.digest,
            "options": (*_BASE_OPTIONS, *TO_CUBIN, *options),
            "compiler": version,
            "arch": arch,
        }
    )
