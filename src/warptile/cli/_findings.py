"""What `warptile emulate` says of the findings of a run: as text, in its JSON document and as SARIF."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from rich.console import Console
from rich.text import Text

from warptile.bench.profiling.source_files import PTX, SourceFiles
from warptile.emulator.sarif import sarif
from warptile.errors import SourceLocation

if TYPE_CHECKING:
    from warptile.emulator import EmulationFinding, EmulationReport

_STYLES = {"error": "bold red", "model": "bold yellow", "warning": "bold cyan"}
_COUNTED = {"error": "error", "model": "model finding", "warning": "warning"}


def show_findings(console: Console, findings: Sequence[EmulationFinding], files: SourceFiles, schedule: str) -> None:
    """Each finding with the lines of its accesses, what would have ordered them, and a fix; then how many there are.

    ``schedule`` is the one that was asked for: where another one shows a finding, that is said.
    """
    for each in findings:
        at = _at(each.location, files)
        console.print(Text.assemble((each.severity, _STYLES[each.severity]), f" [{each.check}]{at and f' {at}'}"))
        said = each.message.removesuffix(f": {each.missing}")
        _print(console, "  ", f"{each.kind}: {said}{f' ({each.count} times)' if each.count > 1 else ''}")
        for title, where in (("before", each.first), ("here", each.location)):
            _show_line(console, title, where, files)
        if each.missing:
            _print(console, "  why: ", each.missing)
        _print(console, "  fix: ", each.fix)
        if each.schedule != schedule:
            _print(console, "  replay: ", f"--schedule {each.schedule}")
        if each.stopped:
            _print(console, "  ", "The run ended here.")
        console.print()
    counts = Counter(_COUNTED[each.severity] for each in findings)
    if counts:
        _print(console, "", ", ".join(f"{n} {name}{'s' if n > 1 else ''}" for name, n in counts.items()))


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
    """Write a SARIF file. Files below the working directory, as in a repository, are named relative to it."""

    def place(where: SourceLocation) -> tuple[str, int, str]:
        name, line = files.place(where)
        if name == PTX:  # of a file of CUDA C++ whose compiler names no line for the instruction
            return _uri(kernel), 0, ""
        return _uri(files.path(name) or Path(name)), line, files.text(name, line)

    content = sarif(report.findings, place, finished=report.finished)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")


def _uri(path: Path) -> str:
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


def _show_line(console: Console, title: str, where: SourceLocation | None, files: SourceFiles) -> None:
    if where is None:
        return
    name, line = files.place(where)
    text = files.text(name, line)
    called = "".join(f", called at {files.name(file)}:{number}" for file, number in where.callers)
    _print(console, f"  {title}: ", f"{name}:{line}{called}{f' | {text}' if text else ''}")


def _print(console: Console, before: str, text: str) -> None:
    console.print(f"{before}{text}", markup=False, highlight=False, soft_wrap=True)
