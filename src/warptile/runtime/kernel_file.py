"""A kernel of a user's file: CUDA C++, which is compiled, or PTX as it is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from warptile.codegen.cuda_file import MachineCode, assemble_ptx, compile_file
from warptile.codegen.file_names import files_of, renamed, short_names
from warptile.codegen.kernel_names import exact_names, named_entry, plain_name
from warptile.codegen.nvrtc import CompiledKernel, compiler_version
from warptile.ptx import parse
from warptile.ptx.instruction import PtxFunction, PtxModule


@dataclass(frozen=True)
class KernelFile:
    """A kernel and the file that it is of.

    Attributes:
        path: the file, as it was given.
        entry: lowered name of the kernel.
        ptx: PTX text, which names source files by the names of ``sources``.
        module: the same, parsed.
        sources: the files that line information names: short name to path.
        names: the short name of each, by the name that machine code has for it.
        code: machine code, None where it was not wanted.
        left_empty: headers that were found nowhere and left empty.
        left_out: first and last line of each declaration of host code that was left out.
        left_out_of_headers: name, first and last line of those of headers.
        text: what the file holds, where it was given instead of read.
    """

    path: Path
    entry: str
    ptx: str
    module: PtxModule
    sources: Mapping[str, Path]
    names: Mapping[str, str]
    code: MachineCode | None = None
    left_empty: tuple[str, ...] = ()
    left_out: tuple[tuple[int, int], ...] = ()
    left_out_of_headers: tuple[tuple[str, int, int], ...] = ()
    text: str | None = None

    @property
    def function(self) -> PtxFunction:
        """The kernel."""
        return self.module.functions[self.entry]

    @property
    def name(self) -> str:
        """The kernel's name without template arguments and types of parameters."""
        return plain_name(self.entry)


def read_kernel(
    path: Path,
    arch: str,
    *,
    entry: str | None = None,
    include_folders: Sequence[Path] = (),
    options: Sequence[str] = (),
    machine_code: bool = False,
    text: bytes | None = None,
) -> KernelFile:
    """Compile a file, or read its PTX if its name ends in ``.ptx``.

    Args:
        path: the file.
        arch: to compile for, such as ``"sm_90a"``.
        entry: the kernel, as in `warptile.codegen.cuda_file.compile_file`; of PTX one of
            `warptile.codegen.kernel_names.spellings`.
        include_folders: where headers are looked for.
        options: more of the compiler's.
        machine_code: whether the cubin is wanted too.
        text: what the file holds, where it is not to be read.

    Raises:
        ArgumentError: there is no such kernel, or none is named and there are several.
        CompileError: the file does not compile.
        PtxSyntaxError: the text is no PTX.
        UnsupportedError: ``arch`` is unknown, or PTX has to be assembled and there is no ptxas.
        OSError, UnicodeDecodeError: the file cannot be read.
    """
    compiled = None
    if path.suffix == ".ptx":
        ptx = (path.read_bytes() if text is None else text).decode("utf-8").encode()
    else:
        compiled = compile_file(
            path, arch, entry=entry, include_folders=include_folders, options=options, machine_code=machine_code,
            text=text,
        )  # fmt: skip
        entry, ptx = compiled.entry, compiled.ptx
    names = short_names(files_of(ptx))
    shown = renamed(ptx, names).decode()
    module = parse(shown)
    found = named_entry(module.entries, entry, exact_names(module.entries))
    sources = {name: path.parent / file for file, name in names.items()}
    given = None if text is None else text.decode("utf-8", errors="replace")
    if compiled is not None:
        return KernelFile(
            path, found, shown, module, sources, names, compiled.code, compiled.left_empty, compiled.left_out,
            compiled.left_out_of_headers, given,
        )  # fmt: skip
    code = assemble_ptx(path, arch, found, ptx) if machine_code else None
    return KernelFile(path, found, shown, module, sources, names, code, text=given)


def compiled_kernel(kernel: KernelFile, arch: str) -> CompiledKernel:
    """A kernel that has its machine code, for ``arch``, as `warptile.gpu.loader.load` takes it."""
    code = kernel.code
    assert code is not None, "a kernel without machine code"
    return CompiledKernel(
        kernel.entry, arch, kernel.ptx.encode(), code.cubin, code.resources, "", compiler_version(),
        hashlib.sha256(code.cubin).hexdigest(),
    )  # fmt: skip
