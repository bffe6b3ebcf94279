"""The source files that line information names: what tables call them, and the text of their lines."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from warptile.codegen.headers import KERNELS
from warptile.errors import SourceLocation
from warptile.runtime.kernel_file import KernelFile

PTX = "PTX"
"""What stands for the file of an instruction without a CUDA line."""


class SourceFiles:
    """The files of a kernel.

    Args:
        paths: each file by the name that tables have for it.
        names: tables' name of a file, by the name that machine code has for it, where the two differ.
        ptx: the text that PTX lines are of.
        ptx_name: what tables call it.
        texts: of files that are not to be read, by the name that tables have for them.
    """

    def __init__(
        self,
        paths: Mapping[str, Path],
        names: Mapping[str, str],
        ptx: str = "",
        ptx_name: str = PTX,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        self._paths, self._names = paths, names
        self._texts = {name: text.splitlines() for name, text in (texts or {}).items()}
        self._ptx, self.ptx_name = ptx.splitlines(), ptx_name

    def name(self, file: str) -> str:
        """What tables call a file that line information names."""
        return self._names.get(file, file)

    def path(self, name: str) -> Path | None:
        """Where a file lies by its table name, or None where that is not known."""
        return self._paths.get(name)

    def text(self, name: str, line: int) -> str:
        """A line of a file by its table name, without the blanks around it; nothing where it is not known."""
        if name == self.ptx_name:
            lines: tuple[str, ...] | list[str] = self._ptx
        elif name in self._texts:
            lines = self._texts[name]
        else:
            lines = _lines(str(self._paths[name])) if name in self._paths else ()
        return " ".join(lines[line - 1].split("\t")).strip() if 0 < line <= len(lines) else ""

    def place(self, where: SourceLocation) -> tuple[str, int]:
        """File and line of an instruction: those of its CUDA line, else its PTX line."""
        if where.file and where.line:
            return self.name(where.file), where.line
        return self.ptx_name, where.ptx_line


class _KernelFiles(SourceFiles):
    """warptile's own kernels, by their names within the package's kernels folder."""

    def __init__(self) -> None:
        super().__init__({}, {})

    def name(self, file: str) -> str:
        """A kernel file relative to the package's kernels folder, whatever folder a profiler has put before it."""
        parts = Path(file).parts
        after = [place + 1 for place, part in enumerate(parts) if part == KERNELS.name]
        starts = after if Path(file).is_absolute() else [0, *after]
        found = (Path(*parts[start:]) for start in starts if start < len(parts))
        return next((each.as_posix() for each in found if (KERNELS / each).is_file()), file)

    def text(self, name: str, line: int) -> str:
        """A line of one of our kernel files, or nothing for another file."""
        lines = () if Path(name).is_absolute() else _lines(str(KERNELS / name))
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""


@lru_cache(maxsize=64)
def _lines(path: str) -> tuple[str, ...]:
    try:
        return tuple(Path(path).read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return ()


KERNEL_FILES = _KernelFiles()
"""warptile's kernels."""


def files_of(kernel: KernelFile) -> SourceFiles:
    """The files of a user's kernel. Its PTX lines are those of its own file, if that is PTX."""
    name = kernel.path.name if kernel.path.suffix == ".ptx" else PTX
    texts = {} if kernel.text is None else {kernel.path.name: kernel.text}
    return SourceFiles(kernel.sources, kernel.names, kernel.ptx, name, texts)
