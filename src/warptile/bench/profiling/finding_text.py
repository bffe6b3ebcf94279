"""What is said of a finding of the emulator: what happened, the lines of its accesses, the reason and the fix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from warptile.bench.profiling.source_files import SourceFiles
from warptile.emulator import EmulationFinding
from warptile.errors import SourceLocation

_COUNTED = {"error": "error", "model": "model finding", "warning": "warning"}


def event_text(found: EmulationFinding) -> str:
    """What happened the first time, and how often it did. What would have ordered two accesses is left to `details`."""
    said = f"{found.kind}: {found.message.removesuffix(f': {found.missing}')}"
    return f"{said} ({found.count} times)" if found.count > 1 else said


def details(found: EmulationFinding, files: SourceFiles) -> list[str]:
    """The lines of its accesses with their text, what would have ordered them, and what to do."""
    said = [
        f"{title}: {_line(where, files)}"
        for title, where in (("before", found.first), ("here", found.location))
        if where is not None
    ]
    if found.missing:
        said.append(f"why: {found.missing}")
    return [*said, f"fix: {found.fix}"]


def _line(where: SourceLocation, files: SourceFiles) -> str:
    name, line = files.place(where)
    text = files.text(name, line)
    called = "".join(f", called at {files.name(file)}:{number}" for file, number in where.callers)
    return f"{name}:{line}{called}{f' | {text}' if text else ''}"


def counts_text(findings: Iterable[EmulationFinding]) -> str:
    """How many there are, such as ``1 error, 2 warnings``; nothing for none."""
    counts = Counter(_COUNTED[each.severity] for each in findings)
    return ", ".join(f"{n} {name}{'s' if n > 1 else ''}" for name, n in counts.items())
