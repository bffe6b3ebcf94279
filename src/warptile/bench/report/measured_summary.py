"""The summary of recorded results that ships with the package (`warptile.measured`), from ladder records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from warptile import measured
from warptile.bench.protocol.measurements import LadderCell
from warptile.bench.protocol.records import AnyRecord, LadderRecord, latest
from warptile.bench.report.record_lookup import RecordLookup
from warptile.bench.report.rung_traffic import traffic
from warptile.measured import MeasuredProblem, MeasuredRung, MeasuredSource, MeasuredSummary, MeasuredTraffic
from warptile.roofline.published_gpus import LEVELS

PATH = Path("src") / "warptile" / "data" / measured.FILE.name
"""Of the file, in a checkout."""

REGIME = "sustained"
"""The regime whose results the ladder shows."""

DIGITS = 5
"""Significant digits of a figure: rounds of one measurement differ in the third."""


def summary_of(records: Sequence[AnyRecord]) -> MeasuredSummary:
    """Of each rung on each problem the newest result that has figures; the records are given oldest first."""
    ladders = [record for record in records if isinstance(record, LadderRecord) and record.regime == REGIME]
    newest = latest(ladders, lambda record: [cell for cell in record.cells if cell.rounds], lambda cell: (
        cell.rung, cell.problem,
    ))  # fmt: skip
    used = {record.id: record for record, _ in newest.values()}
    sources = {name: index for index, name in enumerate(sorted(used, key=lambda name: used[name].date))}
    lookup = RecordLookup(records)
    results = sorted(
        (_result(cell, sources[record.id], lookup) for record, cell in newest.values()),
        key=lambda each: (each.rung, each.problem.m, repr(each.problem)),
    )
    return MeasuredSummary(
        measured.SCHEMA,
        tuple(
            MeasuredSource(name, used[name].environment.gpu, used[name].date[:10], used[name].regime)
            for name in sources
        ),
        tuple(results),
    )


def _result(cell: LadderCell, source: int, lookup: RecordLookup) -> MeasuredRung:
    key, ratio = cell.problem, cell.ratio
    assert cell.time_ms is not None
    assert cell.tflops is not None
    assert cell.baseline_tflops is not None
    assert ratio is not None
    problem = MeasuredProblem(
        key.m, key.n, key.k, key.dtype, key.accumulator, key.out, key.a_major, key.b_major, key.sparse
    )
    return MeasuredRung(
        cell.rung,
        problem,
        time_ms=_figure(cell.time_ms),
        tflops=_figure(cell.tflops),
        of_cublas=_figure(ratio.median),
        of_cublas_low=_figure(ratio.low),
        of_cublas_high=_figure(ratio.high),
        cublas_tflops=_figure(cell.baseline_tflops),
        source=source,
        sm_clock_mhz=cell.samples.sm_clock_mhz.median if cell.samples else None,
        traffic=_rounded(traffic(cell, lookup)),
    )


def _rounded(moved: MeasuredTraffic | None) -> MeasuredTraffic | None:
    """Bytes in as many digits as figures have."""
    if moved is None:
        return None
    by_level = {level: _figure(value) for level in LEVELS if (value := moved.bytes_at(level)) is not None}
    return msgspec.structs.replace(moved, **by_level)


def _figure(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
