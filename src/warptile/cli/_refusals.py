"""What the documents of `warptile emulate` say of a kernel that is not run: it does not compile, or the emulator lacks
something that it uses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warptile.cli._files import write_file
from warptile.cli._findings import uri
from warptile.cli._saving import encoded
from warptile.codegen.compiler_log import compiler_errors
from warptile.codegen.file_names import short_names
from warptile.errors import CompileError, EmulationError, PtxSyntaxError, UnsupportedError, WarptileError

if TYPE_CHECKING:
    from warptile.bench.profiling.file_profile import UserLaunch
    from warptile.emulator.sarif import Refusal

REFUSED = (CompileError, EmulationError, UnsupportedError)
"""Errors that are about the kernel and not about the command line."""


def refusal_document(error: WarptileError, file: Path, launch: UserLaunch | None) -> dict[str, Any]:
    """An error in the JSON document: every place that it is about."""
    places = [each for each in _places(error, file, launch) if each[1]]
    names = short_names(str(path) for _, path, *_ in places)
    return {
        "error": type(error).__name__,
        "message": str(error),
        "places": [
            {"file": names[str(path)], "line": line, "column": column, "message": message, "text": text}
            for message, path, line, column, text in places
        ],
    }


def write_refusal_sarif(path: Path, error: WarptileError, file: Path, launch: UserLaunch | None) -> None:
    """Write a SARIF file of an error.

    Raises:
        click.FileError: it cannot be written.
    """
    from warptile.emulator.sarif import Refusal, sarif

    refusals: Sequence[Refusal] = [
        Refusal(message, uri(at) if at else "", line, column, text, _is_of_source(error))
        for message, at, line, column, text in _places(error, file, launch)
    ]
    write_file(path, encoded(sarif((), lambda where: ("", 0, ""), finished=False, refusals=refusals)))


def _is_of_source(error: WarptileError) -> bool:
    """Whether a source is wrong, and not the compiler missing or the emulator lacking something."""
    return (isinstance(error, CompileError) and bool(error.log)) or isinstance(error, PtxSyntaxError)


_Where = tuple[str, Path | None, int, int, str]
"""What is wrong, the file, line, column and text of the line; 0 and nothing where they are not known."""


def _places(error: WarptileError, file: Path, launch: UserLaunch | None) -> list[_Where]:
    if isinstance(error, CompileError):
        found: list[_Where] = [
            (each.text, file.parent / each.file, each.line, each.column, each.source)
            for each in compiler_errors(error.log)
            if not each.of_name
        ]
        return found or [(str(error), file if error.log else None, 0, 0, "")]
    where = error.location if isinstance(error, EmulationError) else None
    if not isinstance(error, EmulationError) or where is None:
        return [(str(error), file, 0, 0, "")]
    if launch is None:
        return [(error.said, file, where.ptx_line if file.suffix == ".ptx" else 0, 0, "")]
    from warptile.bench.profiling.source_files import PTX, files_of

    files = files_of(launch.kernel)
    name, line = files.place(where)
    if name == PTX:
        return [(error.said, file, 0, 0, "")]
    return [(error.said, files.path(name) or file, line, 0, files.text(name, line))]
