"""A user's CUDA C++ file to PTX and cubin: any kernels, with their own headers, none of warptile's.

NVRTC knows no headers of the host. Those of the C and C++ standards that device code uses are given
(`warptile.codegen.host_headers`); any other header in angle brackets that is found nowhere is left empty. The integer
types of ``<stdint.h>`` are always declared (`HOST_TYPES`). Functions that name no execution space are compiled
as device functions; those of the file and of its own headers that do not compile so are host code, and are left out.
"""

from __future__ import annotations

import codecs
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from warptile.codegen import headers
from warptile.codegen.compiler_log import compiler_errors
from warptile.codegen.host_code import host_declarations, lines_with_scopes, without, without_host_marks
from warptile.codegen.host_headers import CUB, HOST_HEADERS, IMPLIED, cub_parts, headers_of_host_algorithms
from warptile.codegen.inputs import includes_in_any_case, includes_of
from warptile.codegen.kernel_names import declared_kernels, entries_of, exact_names, named_entry, plain_name
from warptile.codegen.nvrtc import (
    NAME_MAP,
    TO_CUBIN,
    ProgramOutcome,
    Resources,
    check_target,
    nvrtc_release,
    resources_of,
    run_program,
)
from warptile.codegen.own_headers import OwnHeader, in_memory, own_headers
from warptile.codegen.torch_headers import TORCH, TORCH_TYPES
from warptile.errors import ArgumentError, CompileError, UnsupportedError

OPTIONS = ("-lineinfo", "-default-device", "-device-int128", "-diag-suppress=47")
"""The third: nvcc knows ``__int128`` without being asked. The last: libcu++ defines macros that the host's headers
define too (`warptile.codegen.host_headers`)."""

STANDARD = "c++17"
"""Of C++, where none is asked for."""

HOST_HEADER = "warptile_host_types.h"
HOST_TYPES = b"""#pragma once
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef long long intptr_t;
typedef unsigned long long uintptr_t;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef long ssize_t;
typedef unsigned char u_int8_t;
typedef unsigned short u_int16_t;
typedef unsigned int u_int32_t;
typedef unsigned long u_int64_t;
#define __asm__ asm
#define __asm asm
#define __volatile volatile
#define __const const
#define __const__ const
#define __signed__ signed
#define __signed signed
#define __alignof alignof
#define __extension__
#define __typeof__(...) std::remove_reference_t<decltype(__VA_ARGS__)>
#define __typeof(...) std::remove_reference_t<decltype(__VA_ARGS__)>
#define typeof(...) std::remove_reference_t<decltype(__VA_ARGS__)>
#define register
#define __builtin_popcount(x) __popc(x)
#define __builtin_popcountl(x) __popcll(x)
#define __builtin_popcountll(x) __popcll(x)
#define __builtin_clz(x) __clz(int(x))
#define __builtin_clzl(x) __clzll((long long)(x))
#define __builtin_clzll(x) __clzll((long long)(x))
"""
"""Integer types of ``<stdint.h>`` and ``<sys/types.h>``. The first are as CUDA's headers declare them for NVRTC
(``cuda_pipeline_helpers.h``), which may be included beside them. Then GNU's words and functions that nvcc knows and
NVRTC does not, and ``register``, of which nvcc warns."""

MOST_TRIES = 64
"""How often a file is compiled at most: each time without another header or more host code."""

MOST_LOG_LINES = 40
"""Lines of NVRTC's log that a message has."""

CCCL = "python3 -m pip install 'cuda-toolkit[cccl]>=13.0,<14'"
CURAND = "python3 -m pip install 'cuda-toolkit[curand]>=13.0,<14'"
_CCCL_FOLDERS = ("cub", "cuda", "nv", "thrust")
PTXAS = "python3 -m pip install 'cuda-toolkit[nvcc]>=13.0,<14'"

_CUDA_HEADERS = ("cuda_runtime_api.h", "nv/target", "cub/cub.cuh", "thrust/device_ptr.h")
"""Names that only CUDA's and CCCL's include folders have."""

_ARCHITECTURE = re.compile(r"-{1,2}(?:arch|gpu-architecture|gencode)\b")
_STANDARD = re.compile(r"-{1,2}std\b")
_HOST_CODE = re.compile(
    r'namespace "std" has no member|identifier "cuda[A-Z]\w+" is undefined|device-side kernel launch'
)
_LOST = "expected a declaration"
_QUOTED = re.compile(r'"(\w+)"')
_FOR_HOST = "explicitly marked as a __host__ function"
_MISSING = re.compile(r'^(?P<includer>.*)\(\d+\): catastrophic error: cannot open source file "(?P<name>[^"]+)"', re.M)


@dataclass(frozen=True)
class MachineCode:
    """A kernel's machine code.

    Attributes:
        cubin: all kernels of the file.
        resources: that the kernel takes.
    """

    cubin: bytes
    resources: Resources


@dataclass(frozen=True)
class CompiledFile:
    """A compiled file.

    Attributes:
        entry: lowered name of the kernel that was asked for, or of the only one.
        arch: what it was compiled for.
        ptx: PTX text, whose line information names files by their absolute names.
        code: machine code for the GPU; None where it was not wanted.
        left_empty: headers that were found nowhere and left empty.
        left_out: first and last line of each declaration of host code that was left out.
        left_out_of_headers: name, first and last line of those of headers.
    """

    entry: str
    arch: str
    ptx: bytes
    code: MachineCode | None
    left_empty: tuple[str, ...]
    left_out: tuple[tuple[int, int], ...]
    left_out_of_headers: tuple[tuple[str, int, int], ...]


def compile_file(
    path: Path,
    arch: str,
    *,
    entry: str | None = None,
    include_folders: Sequence[Path] = (),
    options: Sequence[str] = (),
    machine_code: bool = False,
    text: bytes | None = None,
) -> CompiledFile:
    """Compile a file of CUDA C++ with line information.

    Args:
        path: the file; quoted includes are looked for beside it.
        arch: real target, such as ``"sm_90a"``.
        entry: a kernel: a C++ name such as ``"gemm"``, ``"mine::gemm<128, float>"`` or a lowered one. It may be left
            out where the file has one kernel that is no template.
        include_folders: where headers are looked for, before CUDA's.
        options: more of NVRTC's, such as ``"-DTILE=64"`` and ``"-std=c++20"``.
        machine_code: whether the cubin is wanted too, which takes about twice as long.
        text: what the file holds, where it is not to be read.

    Raises:
        ArgumentError: there is no such kernel, or several and none is named; the message lists them.
        CompileError: NVRTC refuses the file; the message ends in its log. Or NVRTC is not installed.
        UnsupportedError: NVRTC does not know ``arch``.
        OSError: the file cannot be read.
    """
    check_target(arch)
    cuda_folder = headers.cuda_include_folder(nvrtc_release()[0])
    target = arch if machine_code else arch.replace("sm_", "compute_")
    options = _joined(options)
    standard = () if any(_STANDARD.match(each) for each in options) else (f"-std={STANDARD}",)
    flags = [*OPTIONS, *standard, *options, *(TO_CUBIN if machine_code else ())]
    flags += [f"-arch={target}", f"--pre-include={HOST_HEADER}"]
    flags += [f"-I{folder.resolve()}" for folder in include_folders]
    flags += [f"-I{folder}" for folder in (cuda_folder, headers.cccl_folder(nvrtc_release()[0])) if folder is not None]
    content = path.read_bytes() if text is None else text
    program = _Program(path.resolve(), content, flags, ("PTX", "CUBIN") if machine_code else ("PTX",))
    expression = None if entry is None or entry.startswith("_Z") else entry
    done = program.run(expression)
    log = done.log.decode(errors="replace").replace("\0", "").strip()
    if not done.compiled and expression is not None and _only_the_name_is_wrong(log):
        done = program.run(None)  # a kernel in a namespace may be named without it, where the name is clear
        if done.compiled:
            why = _of_arguments(entry, log)
            if reason := program.reason_for(why):
                why += f", as it was left out for {reason}"
            return _compiled(program, done, arch, entry, why)
    if not done.compiled:
        raise _refusal(path, arch, log, program)
    return _compiled(program, done, arch, done.entry or entry)


def _joined(options: Sequence[str]) -> tuple[str, ...]:
    """Options of a compiler, each in one word: ``-I folder`` as ``-Ifolder``.

    Raises:
        ArgumentError: one that says the architecture.
    """
    made: list[str] = []
    for each in options:
        if _ARCHITECTURE.match(each):
            raise ArgumentError(
                f"options: got {each!r}; the architecture has an argument of its own, such as arch='sm_90a'"
            )
        if made and made[-1] in ("-D", "-I", "-U"):
            made[-1] += each
        else:
            made.append(each)
    return tuple(made)


class _Program:
    """A file that is compiled, if need be several times.

    Attributes:
        path: the file.
        text: of it, without what was left out.
        left_out: first and last line of each declaration of host code that was left out.
        left_out_of_headers: name, first and last line of those of headers.
        reasons: text of each of these declarations, and the error for which it was left out.
    """

    def __init__(self, path: Path, text: bytes, flags: Sequence[str], wanted: Sequence[str]) -> None:
        self.path, self.text = path, text.removeprefix(codecs.BOM_UTF8)
        self._flags, self._wanted = flags, wanted
        self._given = {HOST_HEADER: HOST_TYPES + IMPLIED}
        own = [path.parent, *(folder for folder in self.folders if not _is_cuda(folder))]
        self._given |= {
            name: text for name, text in HOST_HEADERS.items() if not any((folder / name).is_file() for folder in own)
        }
        self._given |= cub_parts(self.folders)
        self._of_algorithms = headers_of_host_algorithms(self.folders)
        self._given |= self._of_algorithms
        self._headers: dict[Path, OwnHeader] | None = None
        self._changed: dict[Path, OwnHeader] = {}
        self._looked_at_headers = False
        self.left_out: list[tuple[int, int]] = []
        self.left_out_of_headers: list[tuple[str, int, int]] = []
        self.reasons: list[tuple[str, str]] = []

    @property
    def folders(self) -> list[Path]:
        """Where headers are looked for, besides the folder of the file that includes one."""
        return [Path(flag[2:]) for flag in self._flags if flag.startswith("-I")]

    @property
    def headers(self) -> dict[Path, OwnHeader]:
        """The headers beside the file and in folders that are not CUDA's."""
        if self._headers is None:
            self._headers = own_headers(self.path, self.text, self.folders, _is_cuda)
        return self._headers

    @property
    def left_empty(self) -> tuple[str, ...]:
        """Headers that were found nowhere."""
        known = HOST_HEADER, CUB, *HOST_HEADERS, *self._of_algorithms
        return tuple(name for name in self._given if name not in known)

    @property
    def of_algorithms(self) -> tuple[str, ...]:
        """Headers of algorithms of the host that the file or its headers include."""
        texts = [self.text, *(header.text for header in self.headers.values())]
        included = {name for text in texts for _, name in includes_of(text)}
        return tuple(name for name in self._of_algorithms if name in included)

    def run(self, expression: str | None) -> ProgramOutcome:
        """Compile. Headers that are missing are left empty, one after the other, and declarations of the file and its
        headers that do not compile and are not for the device are left out."""
        for _ in range(MOST_TRIES):
            given = self._given | in_memory([*self._changed.values()], self.headers) if self._changed else self._given
            # What a header in memory includes from beside it is found through its folder.
            flags = [*self._flags, *(f"-I{folder}" for folder in dict.fromkeys(each.parent for each in self._changed))]
            done = run_program(self.text, str(self.path), flags, self._wanted, given, expression=expression)
            log = done.log.decode(errors="replace")
            if done.compiled or not (self._empty_header(log) or self._unmark(log) or self._leave_out(log)):
                break
        return done

    def _unmark(self, log: str) -> bool:
        """Give headers without the byte order marks that they begin with, which NVRTC refuses."""
        if "unrecognized token" not in log:
            return False
        marked = {path: each for path, each in self.headers.items() if each.text.startswith(codecs.BOM_UTF8)}
        for each in marked.values():
            each.text = each.text.removeprefix(codecs.BOM_UTF8)
        self._changed |= marked
        return bool(marked)

    def _empty_header(self, log: str) -> bool:
        """Leave a header empty that was not found, if that may be. NVRTC ends at the first one, and a pass over large
        headers before it takes long, so others that the same file lacks in any case are left empty with it."""
        missing = _MISSING.search(log)
        if missing is None or not self._may_be_empty(missing["includer"], missing["name"]):
            return False
        includer = Path(missing["includer"])
        others = () if _is_cuda(includer) else includes_in_any_case(self._text_of(includer))
        folders = (includer.parent, *self.folders)
        for name in (missing["name"], *(name for _, name in others)):
            found = name != missing["name"] and any((folder / name).is_file() for folder in folders)
            if not found and self._may_be_empty(str(includer), name):
                self._given[name] = TORCH_TYPES if name.startswith(TORCH) else b""
        if not self._looked_at_headers:
            self._looked_at_headers = True
            self._empty_what_headers_lack()
        return True

    def _empty_what_headers_lack(self) -> None:
        """Leave empty what the file's headers lack in any case, where that may be."""
        for header in self.headers.values():
            folders = (header.path.parent, *self.folders)
            for _, name in includes_in_any_case(header.text):
                missing = not any((folder / name).is_file() for folder in folders)
                if missing and self._may_be_empty(str(header.path), name):
                    self._given[name] = TORCH_TYPES if name.startswith(TORCH) else b""

    def _leave_out(self, log: str) -> bool:
        """Leave out host code in which there are errors, if there is some."""
        some = False
        scopes = {each.no_scope: each.text for each in compiler_errors(log) if each.no_scope}
        for path, errors in _errors_by_file(log, self.path.parent).items():
            header = self.headers.get(path)
            if path != self.path and header is None:
                continue
            text = (self.text if header is None else header.text).decode(errors="surrogateescape")
            marked = [line for line, error in errors.items() if _FOR_HOST in error]
            # The parser loses its way at each of them, so that else each took a pass.
            errors = lines_with_scopes(text, scopes) | errors
            found = host_declarations(text, errors)
            changed = without(without_host_marks(text, marked), found)
            if changed == text:
                continue
            some = True
            left = changed.encode(errors="surrogateescape")
            lines = [(each.first_line, each.last_line) for each in found]
            if header is None:
                self.text = left
                self.left_out += lines
            else:
                header.text = left
                self._changed[path] = header
                self.left_out_of_headers += [(path.name, *each) for each in lines]
            for each in found:
                line = min(line for line in errors if each.first_line <= line <= each.last_line)
                self.reasons.append((text[each.start : each.end], f"{path.name}({line}): {errors[line]}"))
        return some

    def reason_for(self, message: str) -> str:
        """The error for which a declaration was left out of whose name a message says that it is undefined."""
        names = _QUOTED.findall(message)
        declares = [re.compile(rf"\b{name}\b") for name in names[-1:]]
        return next((reason for text, reason in self.reasons if any(each.search(text) for each in declares)), "")

    def _may_be_empty(self, includer: str, name: str) -> bool:
        """Whether a header is the host's: torch's, or in angle brackets and no part of CUDA, as is ``<nv/target>``."""
        at = Path(includer)
        if name in self._given:
            return False
        if name.startswith(TORCH):
            return True
        if Path(name).suffix not in ("", ".h"):
            return False
        if _is_cuda(at):
            return "/" not in name
        return (False, name) in includes_of(self._text_of(at))

    def _text_of(self, file: Path) -> bytes:
        return self.text if file == self.path else file.read_bytes() if file.is_file() else b""

    def kernels(self) -> list[str]:
        """Kernels that the file and the headers beside it declare, templates too."""
        texts = [self.text, *(header.text for header in self.headers.values())]
        return list(dict.fromkeys(name for text in texts for name in declared_kernels(text.decode(errors="replace"))))


def _errors_by_file(log: str, folder: Path) -> dict[Path, dict[int, str]]:
    """The errors of NVRTC's log: of each file the first one of each line. Names are relative to ``folder``.

    Where the parser has lost its way after an error, those that follow say nothing of the code they are in.
    """
    found: dict[Path, dict[int, str]] = {}
    for error in compiler_errors(log):
        if found and error.text.startswith(_LOST):
            break
        if not error.of_name:
            found.setdefault((folder / error.file).resolve(), {}).setdefault(error.line, error.text)
    return found


def _is_cuda(path: Path) -> bool:
    """Whether a folder or file is one of CUDA's: of a toolkit or of CCCL, wherever it lies."""
    around = (path, *path.parents)
    return any(folder.path in around for folder in headers.candidates()) or any(map(_has_cuda_headers, around))


@lru_cache(maxsize=1024)
def _has_cuda_headers(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _CUDA_HEADERS)


def _of_arguments(entry: str | None, log: str) -> str:
    """What is wrong with the arguments of a template, as the first error of the log says."""
    found = compiler_errors(log) if "<" in (entry or "") else []
    return found[0].text if found else ""


def _compiled(program: _Program, done: ProgramOutcome, arch: str, entry: str | None, why: str = "") -> CompiledFile:
    ptx = done.outputs[0].rstrip(b"\0")
    entries = entries_of(ptx)
    unqualified = {plain_name(name).split("::")[-1] for name in entries}
    found = named_entry(
        entries, entry, [*exact_names(entries), *(name for name in program.kernels() if name not in unqualified)], why
    )
    code = None
    if len(done.outputs) > 1:
        code = MachineCode(done.outputs[1], resources_of(done.log.decode(errors="replace"), found))
    return CompiledFile(
        found, arch, ptx, code, program.left_empty, tuple(sorted(program.left_out)),
        tuple(sorted(program.left_out_of_headers)),
    )  # fmt: skip


def _only_the_name_is_wrong(log: str) -> bool:
    """Whether the file compiles and the name expression does not."""
    errors = compiler_errors(log)
    return bool(errors) and all(each.of_name for each in errors)


def _refusal(path: Path, arch: str, log: str, program: _Program) -> CompileError:
    """The error for a file that did not compile, with NVRTC's log."""
    errors = [each for each in compiler_errors(log) if not each.of_name]
    line = f"{Path(errors[0].file).name}({errors[0].line})" if errors else None
    first = f"{line}: {errors[0].text}" if errors else "NVRTC refuses it"
    said = [f"{path} for {arch}: {first}"]
    if (missing := _MISSING.search(log)) and _is_cuda(Path(missing["includer"])):
        said.append(f"{missing['name']} is CCCL's: {CCCL} adds it")
    elif missing:
        said.append(f"-I FOLDER says where {missing['name']} is")
    else:
        said += left_out_text(program.left_empty, program.left_out, program.left_out_of_headers)
        of_cccl = [name for name in program.left_empty if name.split("/")[0] in _CCCL_FOLDERS]
        said += [f"{', '.join(of_cccl)}: of CCCL, which {CCCL} adds"] if of_cccl else []
        of_curand = [name for name in program.left_empty if name.startswith("curand")]
        said += [f"{', '.join(of_curand)}: of cuRAND, which {CURAND} adds"] if of_curand else []
        if program.of_algorithms:
            names = ", ".join(f"<{name}>" for name in program.of_algorithms)
            said.append(f"algorithms that are called on the host are left out of {names}")
        said += [f"the first for {program.reasons[0][1]}"] if program.reasons else []
    if _HOST_CODE.search(log):
        said.append("NVRTC compiles device code alone: put #ifndef __CUDACC_RTC__ around code of the host")
    shown = [text for text in log.splitlines() if not text.startswith(NAME_MAP)]
    more = len(shown) - MOST_LOG_LINES
    shown = [*shown[:MOST_LOG_LINES], f"and {more} more lines"] if more > 0 else shown
    return CompileError("\n".join(["; ".join(said), *shown]), log, line)


def left_out_text(
    left_empty: Sequence[str],
    left_out: Sequence[tuple[int, int]],
    left_out_of_headers: Sequence[tuple[str, int, int]] = (),
) -> list[str]:
    """What a message says of headers that were left empty, and of host code that was left out."""
    said = []
    if left_empty:
        said.append(f"headers found nowhere and left empty: {', '.join(f'<{name}>' for name in left_empty)}")
    if left_out:
        said.append(f"host code left out: {_lines_text(left_out)}")
    for name in dict.fromkeys(each[0] for each in left_out_of_headers):
        lines = [(first, last) for each, first, last in left_out_of_headers if each == name]
        said.append(f"host code of {name} left out: {_lines_text(lines)}")
    return said


def _lines_text(ranges: Sequence[tuple[int, int]]) -> str:
    """``line 3``, or ``lines 3, 10-14``."""
    lines = [f"{first}-{last}" if last > first else f"{first}" for first, last in sorted(ranges)]
    return f"line{'s' if lines != [lines[0].split('-')[0]] else ''} {', '.join(lines)}"


def assemble_ptx(path: Path, arch: str, entry: str, ptx: bytes) -> MachineCode:
    """Machine code of the PTX of a file, by ptxas, and what its kernel ``entry`` takes.

    Raises:
        UnsupportedError: ptxas is not installed.
        CompileError: it refuses the file; the message has its log.
    """
    ptxas = headers.program("ptxas")
    if ptxas is None:
        raise UnsupportedError(
            f"{path}: machine code of a PTX file takes ptxas, which is not installed; {PTXAS} adds it, or give the "
            f"CUDA C++ file"
        )
    with tempfile.TemporaryDirectory(prefix="warptile-ptxas-") as folder:
        read, made = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        read.write_bytes(ptx)
        command = [str(ptxas), f"-arch={arch}", "-lineinfo", "-v", "-o", str(made), str(read)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        log = (done.stdout + done.stderr).strip()
        if done.returncode != 0:
            raise CompileError(f"{path} for {arch}: ptxas refuses it\n{log}", log)
        return MachineCode(made.read_bytes(), resources_of(log, entry))
