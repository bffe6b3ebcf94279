"""Tables and pictures of the suites from records: every row, and every class of rows with its target."""

from __future__ import annotations

from warptile.bench.protocol.row_result import RowResult
from warptile.bench.protocol.suites import SUITES
from warptile.bench.report import chart
from warptile.bench.report.class_summary import (
    CLASS_HEADER,
    ROW_HEADER,
    MeasuredRow,
    class_cells,
    class_summaries,
    row_cells,
)
from warptile.bench.report.markdown import markdown
from warptile.bench.report.record_lookup import NO_RECORD, RecordLookup

PICTURES = "suites"
"""Folder of the pictures, next to the document that shows them."""


def targets_table(lookup: RecordLookup) -> str:
    """The table of all classes of rows: geometric mean and least figure, each with its target."""
    measured = [MeasuredRow(row, lookup.row_result(suite, row)) for suite, rows in SUITES.items() for row in rows]
    results = [each.result for each in measured if each.result is not None]
    if not results:
        return NO_RECORD + "\n"
    text = markdown(CLASS_HEADER, [class_cells(each) for each in class_summaries(measured)], right=2)
    return f"{text}\n{protocol(results)}\n\n{lookup.origins()}"


def suite_table(lookup: RecordLookup, suite: str) -> str:
    """Every row of a suite that was measured, with a picture."""
    results = _results(lookup, suite)
    if not results:
        return NO_RECORD + "\n"
    text = markdown(ROW_HEADER, [row_cells(each) for each in results])
    picture = f"![{suite}]({PICTURES}/{suite}.svg)"
    return f"{text}\n{picture}\n\n{protocol(results)}\n\n{lookup.origins()}"


def pictures(lookup: RecordLookup) -> dict[str, str]:
    """SVG text of each suite that was measured, by its path beside the document."""
    made = {suite: _results(lookup, suite) for suite in SUITES}
    lookup.origins()  # a picture does not say where its figures come from: the table beside it does
    return {
        f"{PICTURES}/{suite}.svg": chart.svg(f"{suite}: speedup over cuBLASLt, or over another GEMM of ours", results)
        for suite, results in made.items()
        if results
    }


def _results(lookup: RecordLookup, suite: str) -> list[RowResult]:
    return [result for row in SUITES[suite] if (result := lookup.row_result(suite, row)) is not None]


def protocol(results: list[RowResult]) -> str:
    """The sentence below a table that says how many rounds of what length were run."""
    rounds = sorted({len(turns.rounds_ms) for result in results for turns in result.turns})
    turns = sorted({result.turn_ms for result in results if result.turns})
    if not turns:
        return "Nothing was timed."
    counts, lengths = " or ".join(map(str, rounds)), " or ".join(f"{turn:.0f}" for turn in turns)
    regimes = " or ".join(sorted({result.regime for result in results}))
    return f"{counts} rounds of {lengths} ms for each participant (torch: a quarter of that), {regimes}."
