"""The table of how long plans take, from records of the suite ``planning``."""

from __future__ import annotations

from warptile.bench.report.markdown import markdown
from warptile.bench.report.record_lookup import RecordLookup

NO_TIMES = "*No record yet; `warptile bench --suite planning --save FILE` writes one.*\n"


def table(lookup: RecordLookup) -> str:
    """Microseconds of plans by kind of problem."""
    groups = lookup.planning_times()
    if not groups:
        return NO_TIMES
    header = ("problems", "median, us", "a tenth below", "a tenth above", "first of its kind")
    rows = [
        (each.kind, *(f"{us:.0f}" for us in (each.median_us, each.quantile_us(1), each.quantile_us(9), each.first_us)))
        for each in groups
    ]
    count = len(groups[0].each_us)
    return (
        f"{markdown(header, rows, right=1)}\nHost time to plan {count} problems of each kind that were never planned "
        f"before, each once, after the first of its kind.\n\n{lookup.origins()}"
    )
