"""A kernel of a user's file: CUDA C++, which is compiled, or PTX as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from warptile.codegen.cuda_file import MachineCode, assemble_ptx, compile_file
from warptile.codegen.file_names import files_of, renamed, short_names
from warptile.codegen.kernel_names import exact_names, named_entry, plain_name
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
    if compiled is not None:
        return KernelFile(
            path, found, shown, module, sources, names, compiled.code, compiled.left_empty, compiled.left_out
        )  # fmt: skip
    code = assemble_ptx(path, arch, found, ptx) if machine_code else None
    return KernelFile(path, found, shown, module, sources, names, code)
