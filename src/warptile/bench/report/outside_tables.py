"""The table of kernels that others wrote, on the emulator, from the newest record of each suite."""

from __future__ import annotations

from warptile.bench.report.markdown import markdown, number
from warptile.bench.report.record_lookup import RecordLookup

NO_VERDICTS = "*No record yet; `python tests/outside/TABLE.py FOLDER --json records` writes one.*\n"


def table(lookup: RecordLookup) -> str:
    """Suites with the kernels that have bugs, those that have none, results, and time."""
    suites = lookup.outside_suites()
    if not suites:
        return NO_VERDICTS
    header = ("suite", "version", "bugs found", "no false alarm", "results right", "refused", "seconds")
    rows = [
        (
            each.name, f"`{each.revision[:12]}`", _share(each.caught, each.faulty), _share(each.quiet, each.correct),
            _share(each.right, each.compared), str(each.refused), number(each.seconds),
        )
        for each in suites
    ]  # fmt: skip
    return f"{markdown(header, rows, right=2)}\n{lookup.origins()}"


def _share(some: int, of_all: int) -> str:
    return f"{some} of {of_all}" if of_all else "–"
