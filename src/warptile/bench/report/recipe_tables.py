"""The table of what README's recipes gain, from records of whole models, of epilogues and of scales."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from warptile.bench.feature_suites.scale_rows import ROW, TORCH
from warptile.bench.protocol.epilogue_times import EpilogueTimes
from warptile.bench.report.markdown import TableRow, markdown, number
from warptile.bench.report.model_tables import COMPARED
from warptile.bench.report.record_lookup import RecordLookup

BY = {"torch": "torch", "compile": "`torch.compile`"}
"""How the table names what warptile is compared with in whole models."""

GATED, COMPILED = "silu(acc) * gate", "torch.compile, max-autotune"
SCALED = f"{ROW}, fast"


def table(lookup: RecordLookup) -> str:
    """Each recipe beside torch; nothing without a record."""
    rows = [*_models(lookup), *_gated(lookup), *_scaled(lookup)]
    if not rows:
        return ""
    header = ("recipe", "what was timed", "beside", "torch, us", "warptile, us", "ratio")
    return (
        f"{markdown(header, rows, right=3)}\nMedians of interleaved rounds; the ratio is the median of the rounds' "
        f"ratios. Below 1 is faster.\n\n{lookup.origins()}"
    )


def _models(lookup: RecordLookup) -> Iterator[TableRow]:
    for group in lookup.model_times():
        for theirs, ours in COMPARED:
            found = group.backend(theirs), group.backend(ours)
            if "training" in group.model and found[0] is not None and found[1] is not None:
                what = f"{group.model}, batch {group.batch}"
                times = [number(1e3 * each.median_ms, 0) for each in found if each is not None]
                yield "linear layers and blocks", what, BY[theirs], *times, number(group.ratio(ours, theirs), 3)


def _gated(lookup: RecordLookup) -> Iterator[TableRow]:
    for group in lookup.epilogue_times()[:2]:
        theirs, ours = _rounds(group, COMPILED), _rounds(group, "warptile")
        if theirs and ours:
            what = f"`{GATED}`, {_shape(group.m, group.n, group.k)}"
            yield "SwiGLU block", what, "`torch.compile`, max-autotune", *_cells(theirs, ours)


def _rounds(group: EpilogueTimes, name: str) -> tuple[float, ...]:
    return next((each.rounds_us for each in group.times if each.computes == GATED and each.name == name), ())


def _scaled(lookup: RecordLookup) -> Iterator[TableRow]:
    for name, row in lookup.feature_times("scales").items():
        shape, _, kind = name.partition(" ")
        theirs = next((each.rounds_us for each in row.times if each.name == TORCH), ())
        if kind == SCALED and row.ours is not None and theirs and len(set(shape.split("x"))) == 1:
            cells = _cells(theirs, row.ours.rounds_us)
            what = f"{_shape(*shape.split('x'))}, fast accumulation"
            yield "float8 with scales of rows", what, f"`{TORCH}`", *cells


def _shape(*extents: int | str) -> str:
    return " x ".join(map(str, extents))


def _cells(theirs: Sequence[float], ours: Sequence[float]) -> tuple[str, str, str]:
    ratio = statistics.median(mine / its for mine, its in zip(ours, theirs, strict=True))
    return number(statistics.median(theirs), 0), number(statistics.median(ours), 0), number(ratio, 3)
