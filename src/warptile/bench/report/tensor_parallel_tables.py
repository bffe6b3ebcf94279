"""Tables of the suite tp: tensor-parallel GEMMs beside what else a user could call, from the records of each size."""

from __future__ import annotations

from collections.abc import Sequence

from warptile.bench.feature_suites.tensor_parallel import ALONE, IN_GRAPH, ROWS, SUITE
from warptile.bench.protocol.feature_times import FeatureTimes
from warptile.bench.report.feature_tables import failures
from warptile.bench.report.markdown import TableRow, markdown, number
from warptile.bench.report.record_lookup import RecordLookup

SIZES = (2, 4, 8)
"""Of process groups."""


def participants(rows: Sequence[FeatureTimes]) -> list[str]:
    """What was timed, by name, calls from graphs left out."""
    names = dict.fromkeys(each.name for row in rows for each in row.times if not each.name.endswith(IN_GRAPH))
    return [ALONE, *(name for name in names if name != ALONE)]


def row_cells(row: FeatureTimes, names: Sequence[str], ending: str) -> TableRow:
    """The row's name, and the median of each participant in microseconds, whose name has the ending."""
    times = {each.name: each.median_us for each in row.times}
    return (row.row, *(number(times.get(name + ending), 1) for name in names))


def table(lookup: RecordLookup) -> str:
    """Microseconds of each row on each size of group: from CUDA graphs, and folded those of calls one by one."""
    parts = []
    for size in SIZES:
        found = lookup.feature_times(f"{SUITE}{size}")
        rows = [found[row.name] for row in ROWS if row.name in found]
        if not rows:
            continue
        names = participants(rows)
        header = (f"{size} GPUs, us", *names)
        from_graphs, one_by_one = (
            markdown(header, [row_cells(row, names, ending) for row in rows]) for ending in (IN_GRAPH, "")
        )
        rounds = max(len(each.rounds_us) for row in rows for each in row.times)
        failed = "".join(f"- {each}\n" for each in failures(rows))
        parts.append(
            f"{from_graphs}\nOf the slowest rank; medians of {rounds} interleaved rounds of eight calls from one CUDA "
            f"graph. bf16, B stored by columns.\n\n<details><summary>Called one by one, which includes what the host "
            f"takes</summary>\n\n{one_by_one}\n</details>\n\n" + (f"Not run:\n\n{failed}\n" if failed else "")
        )
    if not parts:
        return f"*No record yet; `warptile bench --suite {SUITE} --save FILE` under torchrun writes one.*\n"
    return "".join(parts) + lookup.origins()
