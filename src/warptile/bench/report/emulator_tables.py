"""The table of how fast the emulator is, from records of the suite ``emulator``."""

from __future__ import annotations

from warptile.bench.protocol.emulator_rates import COMPILED, INTERPRETED, EmulatorTimes
from warptile.bench.report.markdown import TableRow, markdown, number
from warptile.bench.report.record_lookup import RecordLookup

NO_TIMES = "*No record yet; `warptile bench --suite emulator --save FILE` writes one.*\n"


def table(lookup: RecordLookup) -> str:
    """Rates of every kernel, with all default checks and with none."""
    groups = lookup.emulator_times()
    if not groups:
        return NO_TIMES
    rounds = len(groups[0].times[0].rounds_s)
    header = ("kernel", "interpreted", "compiled", "ratio", "no checks: interpreted", "compiled", "ratio")
    return (
        f"{markdown(header, [_row(each) for each in groups], right=1)}\nMillions of thread instructions a processor "
        f"second, with all default checks and with none. Medians of {rounds} interleaved rounds.\n\n{lookup.origins()}"
    )


def _row(group: EmulatorTimes) -> TableRow:
    cells: list[str] = []
    for checks in (True, False):
        cells += [number(group.rate(way, checks=checks) / 1e6) for way in (INTERPRETED, COMPILED)]
        cells.append(number(group.speedup(checks=checks), 1))
    return (group.kernel, *cells)
