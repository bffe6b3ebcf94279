"""Speeds of rungs wherever they come from, as charts with their tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from warptile import measured
from warptile.bench.html_report.page_data import PageData
from warptile.bench.html_report.rendered_markdown import rung_view
from warptile.bench.protocol.measurements import LadderCell
from warptile.bench.protocol.workloads import GROUPS, MMA_GROUPS, WGMMA_GROUPS, square, to_problem
from warptile.bench.report.expected_cells import expected_of
from warptile.bench.report.ladder_cells import SHOWN_SIZE, group_of_rung, shown_cell, speedup_over
from warptile.bench.report.markdown import number, percent
from warptile.dtypes import DTYPES
from warptile.figures.figure import DataTable, Figure
from warptile.figures.row_chart import ChartRow, Point, RowChart, Series
from warptile.ladder import Ladder, RungResult
from warptile.rungs import RUNGS, families

SPEEDS = (Series("measured", "bar"), Series("predicted", "diamond"), Series("cuBLASLt, same types", "line"))
DASH = "–"
_GROUPS = tuple(dict.fromkeys((*GROUPS, *MMA_GROUPS, *WGMMA_GROUPS)))


@dataclass(frozen=True)
class RungSpeed:
    """One rung on one problem; what is not known is None.

    Attributes:
        rung: its name.
        types: element types, as tables spell them.
        shape: extents.
        tflops: measured.
        predicted: TFLOP/s.
        bound: what limits it, by the prediction.
        library: TFLOP/s of cuBLASLt's fastest algorithm in the same rounds.
        share: speed over cuBLASLt's, the median of the rounds' ratios.
        rounds: the least and the largest of these ratios.
        note: why there are no figures.
    """

    rung: str
    types: str
    shape: str
    tflops: float | None = None
    predicted: float | None = None
    bound: str = DASH
    library: float | None = None
    share: float | None = None
    rounds: tuple[float, float] | None = None
    note: str = ""

    @property
    def family(self) -> str:
        """The rung's."""
        return RUNGS[self.rung].family

    @property
    def points(self) -> tuple[tuple[Point, ...], ...]:
        """Of `SPEEDS`."""
        return tuple((Point(value),) if value else () for value in (self.tflops, self.predicted, self.library))

    @property
    def words(self) -> str:
        """The figures as a sentence without a subject."""
        known = ((self.tflops, "measured"), (self.predicted, "predicted"), (self.library, "by cuBLASLt"))
        said = [f"{value:.1f} TFLOP/s {how}" for value, how in known if value is not None]
        return ", ".join(said) or self.note or "not measured"


def of_cell(cell: LadderCell, types: str) -> RungSpeed:
    """A recorded cell."""
    said, ratio = expected_of(cell), cell.ratio
    return RungSpeed(
        cell.rung, types, cell.problem.shape, cell.tflops, said.tflops if said else None, said.bound if said else DASH,
        cell.baseline_tflops, ratio.median if ratio else None, (ratio.low, ratio.high) if ratio else None,
        cell.failed or cell.note or "",
    )  # fmt: skip


def of_result(result: RungResult, shape: str) -> RungSpeed:
    """A rung of a saved climb."""
    said = result.predicted
    return RungSpeed(
        result.name, types_name(result.dtype, result.accumulator, result.out_dtype), shape, result.tflops,
        said.tflops if said else None,
        said.bound if said else DASH,
        result.tflops / result.of_cublas if result.tflops and result.of_cublas else None, result.of_cublas,
        note=result.failure or "",
    )  # fmt: skip


def shipped(rungs: Sequence[str]) -> list[RungSpeed]:
    """The results that ship with the package, of each rung those of its usual types at the size of the main table."""
    found = []
    for name in rungs:
        group = group_of_rung(name)
        problem = measured.MeasuredProblem.of(to_problem(square(RUNGS[name], group, SHOWN_SIZE)), (SHOWN_SIZE,) * 3)
        for result in measured.summary().results:
            if (result.rung, result.problem) == (name, problem):
                found.append(_of_shipped(result, group.name))
    return found


def shipped_of(rung: str) -> list[RungSpeed]:
    """Every result of a rung that ships."""
    return [_of_shipped(result, _types(result)) for result in measured.summary().results if result.rung == rung]


def _of_shipped(result: measured.MeasuredRung, types: str) -> RungSpeed:
    key = result.problem
    shape = f"{key.m}^3" if key.m == key.n == key.k else f"{key.m}x{key.n}x{key.k}"
    return RungSpeed(
        result.rung, types, shape, result.tflops, library=result.cublas_tflops, share=result.of_cublas,
        rounds=(result.of_cublas_low, result.of_cublas_high),
    )  # fmt: skip


def _types(result: measured.MeasuredRung) -> str:
    return types_name(result.problem.dtype, result.problem.accumulator, result.problem.out)


@cache
def types_name(dtype: str, accumulator: str, out: str) -> str:
    """A combination of element types, as tables call it."""
    named = (
        group.name for group in _GROUPS if (group.dtype, group.accumulator, group.out) == (dtype, accumulator, out)
    )
    return next(named, f"{DTYPES[dtype].ptx}, {accumulator} accumulators, {DTYPES[out].ptx} results")


def recorded(data: PageData, rungs: Sequence[str]) -> list[RungSpeed]:
    """What the ladder's main table shows of each rung, from the records."""
    cells = ((name, shown_cell(data.lookup, name)) for name in rungs)
    return [of_cell(cell, group_of_rung(name).name) for name, cell in cells if cell is not None]


def ladder_chart(name: str, title: str, speeds: Sequence[RungSpeed], data: PageData) -> Figure:
    """Rungs from top to bottom: bars of what was measured, marks of what was predicted and of cuBLASLt."""
    colors = {family: place for place, family in enumerate(families())}
    rows = tuple(
        ChartRow(
            each.rung, each.points, number(each.tflops), f"#{rung_view(each.rung)}", colors[each.family], each.words
        )
        for each in speeds
    )
    header = (
        "rung", "idea", "types", "limited by, predicted", "bank conflicts (n-way)", "predicted TFLOP/s", "TFLOP/s",
        "speedup over previous", "of cuBLASLt", "rounds",
    )  # fmt: skip
    table = DataTable(header, tuple(_table_row(each, data) for each in speeds), left=4)
    return RowChart(name, title, "TFLOP/s", SPEEDS, rows, table, families()).figure()


def _table_row(each: RungSpeed, data: PageData) -> tuple[str, ...]:
    profile = data.lookup.profile(each.rung)
    conflicts = profile.counters.get("shared_load_conflict_ratio") if profile else None
    over = speedup_over(data.lookup, each.rung, RUNGS[each.rung].previous)
    return (
        each.rung, RUNGS[each.rung].idea, each.types, each.bound, number(conflicts, 2), number(each.predicted),
        number(each.tflops), number(over, 2), percent(each.share), spread(each),
    )  # fmt: skip


def spread(speed: RungSpeed) -> str:
    """The least and the largest share of cuBLASLt's speed in any round."""
    return DASH if speed.rounds is None else f"{100 * speed.rounds[0]:.1f}–{100 * speed.rounds[1]:.1f} %"


def conflict_chart(name: str, ladder: Ladder) -> Figure | None:
    """Bank conflicts of a climb's shared-memory loads, which the emulator counted; None where it counted none."""
    colors = {family: place for place, family in enumerate(families())}
    ratio, loads = "shared_load_conflict_ratio", "shared_load_wavefronts"
    counted = [each for each in ladder.rungs if each.counters.get(loads)]
    if not counted:
        return None
    rows = tuple(
        ChartRow(
            each.name, ((Point(each.counters[ratio]),),), number(each.counters[ratio], 2), f"#{rung_view(each.name)}",
            colors[each.family], f"{each.counters[ratio]:.2f} wavefronts for each ideal one",
        )
        for each in counted
    )  # fmt: skip
    table = DataTable(
        ("rung", "wavefronts of loads", "without conflicts", "n-way"),
        tuple(
            (each.name, f"{each.counters[loads]:,.0f}", f"{each.counters[f'{loads}_ideal']:,.0f}",
             number(each.counters[ratio], 2))
            for each in counted
        ),
    )  # fmt: skip
    title = "Bank conflicts of shared-memory loads: wavefronts over the ideal number, counted by the emulator"
    return RowChart(
        name, title, "n-way", (Series("n-way", "bar"),), rows, table, families(), reference=(1.0, "no conflicts")
    ).figure()
