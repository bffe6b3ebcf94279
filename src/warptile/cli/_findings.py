"""What `warptile emulate` says of the findings of a run: as text, in its JSON document and as SARIF."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rich.console import Console
from rich.text import Text

from warptile.bench.profiling.source_files import PTX, SourceFiles
from warptile.cli._files import write_file
from warptile.cli._saving import encoded
from warptile.errors import SourceLocation

if TYPE_CHECKING:
    from warptile.emulator import EmulationFinding, EmulationReport

_STYLES = {"error": "bold red", "model": "bold yellow", "warning": "bold cyan"}


def show_findings(console: Console, findings: Sequence[EmulationFinding], files: SourceFiles, schedule: str) -> None:
    """Each finding with the lines of its accesses, what would have ordered them, and a fix; then how many there are.

    ``schedule`` is the one that was asked for: where another one shows a finding, that is said.
    """
    from warptile.bench.profiling.finding_text import counts_text, details, event_text

    for each in findings:
        at = _at(each.location, files)
        console.print(Text.assemble((each.severity, _STYLES[each.severity]), f" [{each.check}]{at and f' {at}'}"))
        said = [event_text(each), *details(each, files)]
        if each.schedule != schedule:
            said.append(f"replay: --schedule {each.schedule}")
        if each.stopped:
            said.append("The run ended here.")
        for line in (*(f"  {line}" for line in said), ""):
            _print(console, line)
    if findings:
        _print(console, counts_text(findings))


def documents(findings: Sequence[EmulationFinding], files: SourceFiles) -> list[dict[str, Any]]:
    """The findings in the JSON document."""
    return [
        {
            "check": each.check,
            "severity": each.severity,
            "error": each.kind,
            "message": each.message,
            "location": _place(each.location, files),
            "first": _place(each.first, files),
            "missing": each.missing,
            "fix": each.fix,
            "count": each.count,
            "stopped": each.stopped,
            "schedule": each.schedule,
        }
        for each in findings
    ]


def write_sarif(path: Path, report: EmulationReport, files: SourceFiles, kernel: Path) -> None:
    """Write a SARIF file.

    Raises:
        click.FileError: it cannot be written.
    """
    from warptile.emulator.sarif import sarif

    def place(where: SourceLocation) -> tuple[str, int, str]:
        name, line = files.place(where)
        if name == PTX:  # of a file of CUDA C++ whose compiler names no line for the instruction
            return uri(kernel), 0, ""
        return uri(files.path(name) or Path(name)), line, files.text(name, line)

    content = sarif(report.findings, place, finished=report.finished)
    write_file(path, encoded(content))


def uri(path: Path) -> str:
    """What SARIF calls a file: below the working directory, as in a repository, by its path from there."""
    absolute, here = path.resolve(), Path.cwd().resolve()
    if absolute.is_relative_to(here):
        return quote(absolute.relative_to(here).as_posix())
    return absolute.as_uri()


def _place(where: SourceLocation | None, files: SourceFiles) -> dict[str, Any] | None:
    if where is None:
        return None
    name, line = files.place(where)
    callers = [{"file": files.name(file), "line": number} for file, number in where.callers]
    return {
        "file": name, "line": line, "ptx_line": where.ptx_line, "text": files.text(name, line), "callers": callers,
    }  # fmt: skip


def _at(where: SourceLocation | None, files: SourceFiles) -> str:
    if where is None:
        return ""
    name, line = files.place(where)
    return f"{name}:{line}"


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
