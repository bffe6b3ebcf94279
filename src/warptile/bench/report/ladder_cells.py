"""The recorded cells that a rung is shown by: in its usual types at one size, and in all sizes and types."""

from __future__ import annotations

from dataclasses import dataclass

from warptile.bench.protocol.measurements import LadderCell
from warptile.bench.protocol.workloads import BF16, E4M3, F16_F16, F16_F32, F32, SIZES, TypeGroup
from warptile.bench.report.record_lookup import RecordLookup
from warptile.rungs import rung

SHOWN_SIZE = 4096
"""Extent of the ladder's main table."""

SHOWN_GROUPS = (F32, F16_F32, F16_F16, BF16, E4M3)
"""Types of a rung's own page, in order."""


@dataclass(frozen=True)
class SizedCell:
    """A rung on one problem, and its speed over that of the rung before, where both were measured."""

    types: TypeGroup
    cell: LadderCell
    over_previous: float | None


def group_of_rung(name: str) -> TypeGroup:
    """The types in which the ladder's main table shows a rung."""
    family = rung(name).family
    if name == "wgmma-two-level":
        return E4M3
    if family != "simt":
        return BF16 if family == "wgmma" else F16_F32
    return F16_F16 if name == "simt-half2" else F32


def shown_cell(lookup: RecordLookup, name: str) -> LadderCell | None:
    """The cell that stands for a rung, or None."""
    return lookup.cell(name, group_of_rung(name), SHOWN_SIZE)


def speedup_over(lookup: RecordLookup, name: str, before: str | None) -> float | None:
    """Speed over that of another rung, where both are shown in the same types."""
    if before is None or group_of_rung(before) != group_of_rung(name):
        return None
    return _ratio(shown_cell(lookup, name), shown_cell(lookup, before))


def sized_cells(lookup: RecordLookup, name: str) -> list[SizedCell]:
    """Every recorded cell of a rung over types and sizes."""
    previous = rung(name).previous
    found = []
    for group in SHOWN_GROUPS:
        for size in SIZES:
            cell = lookup.cell(name, group, size)
            if cell is not None:
                before = lookup.cell(previous, group, size) if previous else None
                found.append(SizedCell(group, cell, _ratio(cell, before)))
    return found


def _ratio(cell: LadderCell | None, before: LadderCell | None) -> float | None:
    """TFLOP/s of a cell over those of another."""
    if cell is None or before is None or not cell.tflops or not before.tflops:
        return None
    return cell.tflops / before.tflops
