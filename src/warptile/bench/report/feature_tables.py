"""Tables of the feature suites from their records: goals first, then every row, folded."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from warptile.bench.feature_suites.feature_suites import FEATURE_SUITES, FeatureSuite
from warptile.bench.protocol.feature_times import FeatureTimes
from warptile.bench.protocol.suites import WEIGHTS, ClassTarget
from warptile.bench.report.markdown import TableRow, markdown, number
from warptile.bench.report.record_lookup import RecordLookup

GOAL_HEADER = ("rows", "relative to", "measured", "geomean (goal)", "lowest (goal)", "met")

Measured = Mapping[str, FeatureTimes]
"""Rows by name."""


def figure(row: FeatureTimes, target: ClassTarget) -> float | None:
    """What a goal holds a row to: its speedup, or TB/s; None where it failed."""
    return row.tb_per_s if target.of == WEIGHTS else row.speedup_over(target.of)


def goal_cells(suite: FeatureSuite, measured: Measured) -> list[TableRow]:
    """A row of `GOAL_HEADER` for each goal."""
    return [_goal_cells(suite, name, target, measured) for name, target in suite.goals.items()]


def _goal_cells(suite: FeatureSuite, name: str, target: ClassTarget, measured: Measured) -> TableRow:
    mine = [row.name for row in suite.rows if name in row.classes]
    figures = {row: figure(measured[row], target) if row in measured else None for row in mine}
    known = {row: value for row, value in figures.items() if value is not None}
    geomean = math.exp(statistics.fmean(map(math.log, known.values()))) if known else None
    worst = min(known, key=lambda row: known[row]) if known else None
    lowest = _with_goal(None if worst is None else known[worst], target.each)
    return (
        target.title, "none: TB/s" if target.of == WEIGHTS else target.of, f"{len(known)} of {len(mine)}",
        _with_goal(geomean, target.geomean), lowest if worst is None else f"{lowest}: {worst}",
        _met(target, mine, measured, known),
    )  # fmt: skip


def _with_goal(value: float | None, wanted: float | None) -> str:
    return number(value, 3) if wanted is None else f"{number(value, 3)} ({wanted:.2f})"


def _met(target: ClassTarget, rows: Sequence[str], measured: Measured, known: Mapping[str, float]) -> str:
    """Whether a goal is met: a row that was measured without a figure misses it, and one that was not leaves it open
    unless another misses it."""
    if target.each is None and target.geomean is None:
        return "–"
    missed = any(row in measured and row not in known for row in rows)
    missed |= any(value < (target.each or 0) for value in known.values())
    if len(known) == len(rows):
        missed |= statistics.fmean(map(math.log, known.values())) < math.log(target.geomean or 1e-9)
    elif not missed:
        return "–"
    return "no" if missed else "yes"


def compared_with(suite: FeatureSuite) -> tuple[str, ...]:
    """The participants that rows of a suite are compared with."""
    return tuple(dict.fromkeys(target.of for target in suite.goals.values() if target.of != WEIGHTS))


def row_header(suite: FeatureSuite) -> TableRow:
    """The columns of the table of rows."""
    others = tuple(f"over {name}" for name in compared_with(suite))
    return ("GEMM", "us", *others, *(("weights, TB/s",) if _has_rates(suite) else ()))


def row_cells(suite: FeatureSuite, row: FeatureTimes) -> TableRow:
    """A row of `row_header`: speedups are medians of the rounds' ratios."""
    others = compared_with(suite)
    if row.ours is None:
        return (row.row, "failed", *["–"] * (len(row_header(suite)) - 2))
    failed = {each.name for each in row.times if each.failed}
    cells = ["failed" if name in failed else number(row.speedup_over(name), 3) for name in others]
    rate = (number(row.tb_per_s, 2),) if _has_rates(suite) else ()
    return (row.row, number(row.ours.median_us), *cells, *rate)


def failures(rows: Sequence[FeatureTimes]) -> list[str]:
    """What failed, with its reason: participants, and rows that have none."""
    found = [f"{row.row}: {row.failed}" for row in rows if row.failed and not any(each.failed for each in row.times)]
    return found + [f"{row.row}, {each.name}: {each.failed}" for row in rows for each in row.times if each.failed]


def _has_rates(suite: FeatureSuite) -> bool:
    return any(target.of == WEIGHTS for target in suite.goals.values())


def table(lookup: RecordLookup, *, suite: str) -> str:
    """The goals of a suite with what was measured, and every row."""
    chosen = FEATURE_SUITES[suite]
    found = lookup.feature_times(suite)
    rows = [found[row.name] for row in chosen.rows if row.name in found]
    if not rows:
        lookup.origins()
        return f"*No record yet; `warptile bench --suite {suite} --save FILE` on a GPU writes one.*\n"
    every = markdown(row_header(chosen), [row_cells(chosen, row) for row in rows])
    failed = "".join(f"- {each}\n" for each in failures(rows))
    every += f"\nFailed:\n\n{failed}" if failed else ""
    return (
        f"{markdown(GOAL_HEADER, goal_cells(chosen, found), right=2)}\n{protocol(chosen, rows)}\n\n"
        f"<details><summary>Every row</summary>\n\n{every}\n</details>\n\n{lookup.origins()}"
    )


def protocol(suite: FeatureSuite, rows: Sequence[FeatureTimes]) -> str:
    """The sentence below a table that says what was measured and how."""
    rounds = sorted({len(time.rounds_us) for row in rows for time in row.times if time.rounds_us})
    counts = " or ".join(map(str, rounds)) or "no"
    text = (
        f"{suite.operands[0].upper()}{suite.operands[1:]}. Speedups are medians of the ratios of {counts} interleaved "
        f"rounds of CUDA graphs; above 1 is faster."
    )
    return text + " TB/s counts the weights alone." * _has_rates(suite)


TABLES: dict[str, Callable[[RecordLookup], str]] = {
    f"feature-{name}": partial(table, suite=name) for name in FEATURE_SUITES
}
"""By the name in a document."""
