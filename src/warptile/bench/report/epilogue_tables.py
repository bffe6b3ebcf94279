"""Tables of what epilogues cost, from records of the suite ``epilogues``."""

from __future__ import annotations

from warptile.bench.protocol.epilogue_times import EpilogueTimes
from warptile.bench.report.markdown import TableRow, markdown, number
from warptile.bench.report.record_lookup import RecordLookup

NO_TIMES = "*No record yet; `warptile bench --suite epilogues --save FILE` on a GPU writes one.*\n"


def table(lookup: RecordLookup) -> str:
    """Every participant at every shape."""
    groups = lookup.epilogue_times()
    if not groups:
        return NO_TIMES
    rows = [row for group in groups for row in _rows(group)]
    rounds = len(groups[0].times[0].rounds_us)
    header = ("M, N, K", "computes", "by", "us", "of the GEMM alone")
    return (
        f"{markdown(header, rows, right=3)}\n{groups[0].dtype}, B stored as [N, K]. Medians of {rounds} interleaved "
        f"rounds of CUDA graphs, sustained; the last column is the median of the rounds' ratios to warptile's GEMM "
        f"without an epilogue.\n\n{lookup.origins()}"
    )


def _rows(group: EpilogueTimes) -> list[TableRow]:
    shape = f"{group.m}, {group.n}, {group.k}"
    ordered = sorted(group.times, key=lambda each: (len(each.computes), each.computes, each.median_us))
    return [
        (
            shape if index == 0 else "",
            f"`{each.computes or 'acc'}`",
            each.name,
            number(each.median_us),
            number(group.ratio(each), 3),
        )
        for index, each in enumerate(ordered)
    ]
