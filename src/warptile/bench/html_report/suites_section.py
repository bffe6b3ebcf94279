"""The suites of ``warptile bench`` against cuBLASLt, and what calls cost the host."""

from __future__ import annotations

import math
from collections.abc import Sequence

from warptile.bench.html_report.page_data import PageData
from warptile.bench.html_report.rendered_markdown import rendered
from warptile.bench.html_report.views import PageView, filled
from warptile.bench.protocol.records import CallsRecord, CountersRecord, SuitesRecord
from warptile.bench.protocol.row_result import LIBRARY, NEIGHBOUR, RowResult, Speedup
from warptile.bench.protocol.suites import CLASS_TARGETS, SUITES, row_name
from warptile.bench.protocol.suites import CUBLASLT as OF_LIBRARY
from warptile.bench.report import call_tables, limits, suite_tables
from warptile.bench.report.class_summary import (
    CLASS_HEADER,
    ROW_HEADER,
    ClassSummary,
    MeasuredRow,
    class_cells,
    class_summaries,
    interval,
    row_cells,
)
from warptile.bench.report.markdown import number
from warptile.figures.figure import DataTable, Figure
from warptile.figures.row_chart import ChartRow, Point, RowChart, Series

VERDICTS = ("faster", "equal within its interval", "slower")
_COLOR = {"faster": 0, "equal": 1, "slower": 2}

TITLES = {
    "squares": "Square GEMMs", "llm": "GEMMs of language models", "ragged": "Misaligned GEMMs",
    "small": "Small M, long K, a batch", "types": "Other types", "float32": "float32",
}  # fmt: skip


def views(data: PageData) -> tuple[PageView, ...]:
    """The suites, and the cost of calls, where there are records of them."""
    return (*_suites(data), *_calls(data))


def _suites(data: PageData) -> tuple[PageView, ...]:
    if not data.has(SuitesRecord):
        return ()
    measured = [
        MeasuredRow(row, data.lookup.row_result(suite, row), suite) for suite, rows in SUITES.items() for row in rows
    ]
    origins = rendered(data.lookup.origins(), "records")
    summaries = class_summaries([each for each in measured if each.result is not None])
    parts = []
    for suite in SUITES:
        results = [each.result for each in measured if each.suite == suite and each.result is not None]
        if results:
            charts = [_chart(suite, results, participant) for participant in (LIBRARY, NEIGHBOUR)]
            figures = [chart for chart in charts if chart is not None]
            parts.append((suite, TITLES.get(suite, suite), figures))
    misses = limits.misses_of(data.lookup) if data.has(CountersRecord) else {}
    data.lookup.origins()
    body = filled(
        "suites.html", summary=_class_chart(summaries), suites=parts,
        protocol=suite_tables.protocol([each.result for each in measured if each.result is not None]),
        limits=[
            (title := CLASS_TARGETS[name].title, rendered(limits.table(data.lookup, name), f"limits: {title}"))
            for name in misses
        ],
        origins=origins,
    )  # fmt: skip
    return (PageView("suites", "Suites against cuBLASLt", body, label="Suites"),)


def _class_chart(summaries: Sequence[ClassSummary]) -> Figure:
    """Geometric means of the classes of rows that are compared with cuBLASLt or another GEMM, with their targets."""
    series = (Series("lowest row", "diamond"), Series("geometric mean", "dot"), Series("target of the mean", "line"))
    relative = [each for each in summaries if each.geomean is not None and each.of in (OF_LIBRARY, NEIGHBOUR)]
    rows = tuple(
        ChartRow(
            each.title,
            tuple((Point(value),) if value else () for value in (each.worst, each.geomean, each.wanted_geomean)),
            number(each.geomean, 3), None, 0 if each.of == OF_LIBRARY else 1,
            f"geometric mean {number(each.geomean, 3)}, lowest {number(each.worst, 3)}",
        )
        for each in relative
    )  # fmt: skip
    table = DataTable(CLASS_HEADER, tuple(tuple(class_cells(each)) for each in summaries), left=2)
    return RowChart(
        "suite-classes", "Classes of rows: speedup over cuBLASLt, or speed relative to another GEMM of ours", "speedup",
        series, rows, table, ("over cuBLASLt", "relative to another GEMM of ours"), logarithmic=True,
        reference=(1.0, "equal"),
    ).figure()  # fmt: skip


def _chart(suite: str, results: Sequence[RowResult], participant: str) -> Figure | None:
    """Rows of a suite beside one participant: the median of the rounds with its 95 % interval; None where none is."""
    compared = [
        (each, share) for each in results if not each.failed and (share := each.speedup_over(participant)) is not None
    ]
    if not compared:
        return None
    rows = tuple(
        ChartRow(
            _name(each, participant), ((_point(share),),), number(share.median, 3), None, _COLOR[share.verdict],
            f"{share.verdict}: {share.median:.3f}, 95 % interval {interval(share)}",
        )
        for each, share in compared
    )  # fmt: skip
    tabled = results if participant == LIBRARY else [each for each, _ in compared]
    table = DataTable(ROW_HEADER, tuple(tuple(row_cells(each)) for each in tabled))
    of = (
        "speedup over cuBLASLt's fastest algorithm"
        if participant == LIBRARY
        else "speed relative to another GEMM of ours"
    )
    return RowChart(
        f"suite-{suite}-{'cublaslt' if participant == LIBRARY else 'neighbor'}", f"{TITLES.get(suite, suite)}: {of}",
        "speedup", (Series("median and 95 % interval", "dot"),), rows, table, VERDICTS, logarithmic=True,
        reference=(1.0, "equal"),
    ).figure()  # fmt: skip


def _point(share: Speedup) -> Point:
    return Point(share.median) if math.isinf(share.most) else Point(share.median, share.least, share.most)


def _name(result: RowResult, participant: str) -> str:
    name = row_name(result.problem, result.offset, result.max_sms)
    return f"{name} / {row_name(result.beside)}" if participant == NEIGHBOUR and result.beside is not None else name


def _calls(data: PageData) -> tuple[PageView, ...]:
    if not data.has(CallsRecord):
        return ()
    short = rendered(call_tables.short_table(data.lookup), "cost of calls")
    every = rendered(call_tables.long_table(data.lookup), "cost of calls: every participant")
    body = filled("calls.html", short=short, every=every)
    return (PageView("calls", "What a call costs the host", body, label="Host cost"),)
