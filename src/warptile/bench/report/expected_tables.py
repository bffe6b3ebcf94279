"""Tables of docs/predictions.md: expected times beside measured ones, and the constants that they come from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from warptile.bench.protocol.measurements import LadderCell
from warptile.bench.protocol.workloads import SIZES, to_problem
from warptile.bench.report.expected_cells import expected_of
from warptile.bench.report.ladder_cells import SHOWN_GROUPS
from warptile.bench.report.markdown import TableRow, markdown, number, percent
from warptile.bench.report.record_lookup import NO_RECORD, RecordLookup
from warptile.expected.expected_time import ExpectedTime
from warptile.expected.time_constants import Residuals, TimeConstants, shipped
from warptile.planning.cost_bounds import predict
from warptile.rungs import RUNGS

FAR_OFF = 0.15
"""The goal for every residual."""

FURTHEST = 10
"""Launches that are listed as those furthest off."""

LIMITED_W, LIMITED_MHZ = 680.0, 1900.0
"""Sampled power and clock of cells at the power limit."""


@dataclass(frozen=True)
class Compared:
    """A recorded cell beside its expected time; ``off`` is measured over expected time, less one."""

    cell: LadderCell
    said: ExpectedTime
    sustained: bool

    @property
    def off(self) -> float:
        """Measured over predicted time, less one: positive where the kernel is slower than predicted."""
        assert self.cell.time_ms is not None
        return self.cell.time_ms / self.said.time_ms - 1


def compared(lookup: RecordLookup) -> list[Compared]:
    """Every recorded cell that has an expected time, in the order of the ladder."""
    found = []
    for cell, sustained in lookup.ladder_cells():
        said = expected_of(cell, sustained=sustained) if cell.time_ms is not None and not cell.failed else None
        if said is not None:
            found.append(Compared(cell, said, sustained))
    places = {name: place for place, name in enumerate(RUNGS)}
    return sorted(found, key=lambda each: (places[each.cell.rung], each.cell.problem.m, types_of(each.cell)))


def types_of(cell: LadderCell) -> str:
    """The name of a cell's types."""
    types = cell.problem.dtype, cell.problem.accumulator
    named = (each.name for each in SHOWN_GROUPS if (each.dtype, each.accumulator) == types)
    return next(named, ", ".join(types))


def _size(all_of: Iterable[Compared]) -> list[float]:
    return [abs(math.log(1 + each.off)) for each in all_of]


def _share(value: float) -> str:
    return f"{100 * value:+.0f} %"


def summary_table(lookup: RecordLookup) -> str:
    """How far predictions are off, by family; and of sizes and rungs that the constants were not fitted to."""
    every = compared(lookup)
    if not every:
        return NO_RECORD + "\n"
    rows: list[TableRow] = []
    for family in dict.fromkeys(rung.family for rung in RUNGS.values()):
        mine = [each for each in every if RUNGS[each.cell.rung].family == family]
        rows.append((f"`{family}`", *_figures(_size(mine))))
    rows.append(("all", *_figures(_size(every))))
    rows.append(("all, by cost bounds", *_figures([abs(math.log(_over_bound(each))) for each in every])))
    model = shipped()
    rows.append(("each size left out", *_of_residuals(model.sizes_left_out)))
    rows.append(("each rung left out", *_of_residuals(model.rungs_left_out)))
    header = ("launches of", "count", "median", "nine in ten within", "worst", "within 15 %")
    return markdown(header, rows) + "\n" + lookup.origins()


def _over_bound(each: Compared) -> float:
    """Measured time over the planner's cost bound."""
    cell = each.cell
    assert cell.time_ms is not None
    return cell.time_ms / predict(RUNGS[cell.rung], to_problem(cell.problem), cell.config).time_ms


def _figures(sizes: list[float]) -> TableRow:
    median, tenth, worst = (float(each) for each in (np.median(sizes), np.quantile(sizes, 0.9), max(sizes)))
    within = sum(size <= FAR_OFF for size in sizes) / len(sizes)
    return str(len(sizes)), percent(median), percent(tenth), percent(worst), percent(within)


def _of_residuals(found: Residuals) -> TableRow:
    return str(found.launches), percent(found.median), percent(found.tenth), percent(found.worst), "–"


def sizes_table(lookup: RecordLookup) -> str:
    """Each rung and type over sizes: TFLOP/s predicted and measured, and how much slower it is than predicted."""
    every = [each for each in compared(lookup) if each.sustained]
    if not every:
        return NO_RECORD + "\n"
    cells: dict[tuple[str, str], dict[int, Compared]] = {}
    for each in every:
        cells.setdefault((each.cell.rung, types_of(each.cell)), {})[each.cell.problem.m] = each
    rows = [
        (f"`{name}`", types, *(_sized(of_size.get(size)) for size in SIZES)) for (name, types), of_size in cells.items()
    ]
    return markdown(("rung", "types", *(f"{size}^3" for size in SIZES)), rows, right=2) + "\n" + lookup.origins()


def _sized(found: Compared | None) -> str:
    if found is None:
        return "–"
    return f"{number(found.said.tflops)}, {number(found.cell.tflops)} ({_share(found.off)})"


def cool_table(lookup: RecordLookup) -> str:
    """The same in short bursts on a cool chip, at the boost clock."""
    every = [each for each in compared(lookup) if not each.sustained]
    rows = [
        (f"`{each.cell.rung}`", types_of(each.cell), each.cell.problem.shape, number(each.said.tflops),
         number(each.cell.tflops), _share(each.off))
        for each in every
    ]  # fmt: skip
    header = ("rung", "types", "size", "predicted TFLOP/s", "measured TFLOP/s", "time over prediction")
    return markdown(header, rows, right=2) + "\n" + lookup.origins() if rows else NO_RECORD + "\n"


def clocks_table(lookup: RecordLookup) -> str:
    """SM clocks at the power limit, predicted and sampled."""
    rows = []
    for each in compared(lookup):
        samples, clock = each.cell.samples, each.said.clock_mhz
        if not each.sustained or samples is None or clock is None or clock >= LIMITED_MHZ:
            continue
        if samples.power_w.median > LIMITED_W and samples.sm_clock_mhz.median < LIMITED_MHZ:
            sampled = samples.sm_clock_mhz.median
            rows.append(
                (f"`{each.cell.rung}`", types_of(each.cell), each.cell.problem.shape, number(clock, 0),
                 number(sampled, 0), _share(sampled / clock - 1))
            )  # fmt: skip
    header = ("rung", "types", "size", "predicted MHz", "sampled MHz", "sampled over predicted")
    return markdown(header, rows, right=2) + "\n" + lookup.origins() if rows else NO_RECORD + "\n"


def worst_table(lookup: RecordLookup) -> str:
    """The `FURTHEST` launches that are furthest off."""
    far = sorted(compared(lookup), key=lambda each: -abs(math.log(1 + each.off)))[:FURTHEST]
    rows = [
        (f"`{each.cell.rung}`", types_of(each.cell), each.cell.problem.shape,
         "sustained" if each.sustained else "cool", each.said.bound, _share(each.off))
        for each in sorted(far, key=lambda each: each.off)
    ]  # fmt: skip
    header = ("rung", "types", "size", "regime", "limited by", "time over prediction")
    return markdown(header, rows, right=5) + "\n" + lookup.origins() if rows else NO_RECORD + "\n"


def constants_table(_: RecordLookup) -> str:
    """Every constant with its source."""
    model = shipped()
    rows = [
        (f"`{name}`", f"{getattr(model.constants, name):.4g}", model.sources[name])
        for name in TimeConstants.__struct_fields__
    ]
    return markdown(("constant", "value", "source"), rows)


PREFIX = "predictions-"
TABLES: dict[str, Callable[[RecordLookup], str]] = {
    f"{PREFIX}summary": summary_table,
    f"{PREFIX}sizes": sizes_table,
    f"{PREFIX}cool": cool_table,
    f"{PREFIX}clocks": clocks_table,
    f"{PREFIX}worst": worst_table,
    f"{PREFIX}constants": constants_table,
}
"""By name."""
