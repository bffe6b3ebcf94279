"""The tables of the wgmma family: speedups along the ladder, types, layouts, and misaligned problems."""

from __future__ import annotations

import statistics

from warptile.bench.protocol.measurements import TypeCell, UnalignedCell
from warptile.bench.protocol.workloads import (
    BF16,
    E4M3,
    F16_F32,
    LAYOUT_GROUPS,
    LAYOUT_SIZE,
    MMA_SIZES,
    SECOND_TYPE_TABLE_SIZE,
    TYPE_GROUPS,
    TYPE_TABLE_SIZE,
    UNALIGNED,
    TypeGroup,
    default_config,
    groups_of,
    limit_tflops,
    to_problem,
    type_table_key,
)
from warptile.bench.report.expected_cells import expected_of
from warptile.bench.report.markdown import TableRow, markdown, number, percent
from warptile.bench.report.mma_tables import NOT_YET, layout_name, speed_of
from warptile.bench.report.record_lookup import RecordLookup
from warptile.rungs import RUNGS

FINAL = "wgmma-final"
ARCH = "sm_90a"
OF_NEIGHBOUR = 0.7
"""Share of the aligned neighbour's speed that misaligned problems are held to."""


def ladder_table(lookup: RecordLookup) -> str:
    """One table for each size: TFLOP/s and share of cuBLASLt's best, sustained and cool, the speedup over the rung
    before, and the prediction."""
    columns = ("sustained (of cuBLASLt)", "speedup over previous", "cool (of cuBLASLt)", "predicted")
    tables = []
    for size in MMA_SIZES:
        rows = [
            _ladder_row(lookup, name, group, size)
            for group in (BF16, F16_F32, E4M3)
            for name, rung in RUNGS.items()
            if rung.family == "wgmma" and group in groups_of(rung, ARCH)
        ]
        header = ("rung", "types", *(f"{size}: {columns[0]}", *columns[1:]))
        tables.append(markdown(header, rows, right=2))
    return "\n".join(tables) + "\n" + (lookup.origins() or NOT_YET)


def _ladder_row(lookup: RecordLookup, name: str, group: TypeGroup, size: int) -> TableRow:
    previous = RUNGS[name].previous
    cell, cool = lookup.cell(name, group, size), lookup.cell(name, group, size, cool=True)
    before = lookup.cell(previous, group, size) if previous else None
    speedup = cell.tflops / before.tflops if cell and cell.tflops and before and before.tflops else None
    said = expected_of(cell) if cell else None
    predicted = said.tflops if said else None
    return (f"`{name}`", group.name, speed_of(cell), number(speedup, 2), speed_of(cool), number(predicted, 0))


def types_table(lookup: RecordLookup) -> str:
    """TOP/s and share of cuBLASLt's best of the last rung in every type that it takes."""
    rows: list[TableRow] = []
    for group in TYPE_GROUPS:
        key = type_table_key(group)
        if default_config(RUNGS[FINAL], to_problem(key), ARCH) is None:
            continue
        small = lookup.type_cell(FINAL, type_table_key(group, size=SECOND_TYPE_TABLE_SIZE))
        large = lookup.type_cell(FINAL, key)
        cool = large.tflops("cool") if large else None
        limit = limit_tflops(FINAL, key)
        rows.append(
            (
                group.name, _timed(small, "sustained"), _timed(large, "sustained"), _timed(large, "cool"),
                number(limit, 0), percent(cool / limit if cool else None),
            )
        )  # fmt: skip
    sizes = (f"{SECOND_TYPE_TABLE_SIZE}, sustained", f"{TYPE_TABLE_SIZE}, sustained", f"{TYPE_TABLE_SIZE}, cool")
    return (
        markdown(("type", *sizes, "peak issue rate", "cool, of the peak"), rows) + "\n" + (lookup.origins() or NOT_YET)
    )


def _timed(cell: TypeCell | None, regime: str) -> str:
    if cell is None:
        return "–"
    speed = cell.tflops(regime)
    if speed is None:
        return cell.failed or "–"
    share = cell.of_baseline(regime)
    return number(speed) if share is None else f"{number(speed)} ({percent(share)})"


def layouts_table(lookup: RecordLookup) -> str:
    """TOP/s in the four layouts, the share of cuBLASLt's, and the share of the time that repacking passes take."""
    rows = [
        (group.name, *(_in_majors(lookup, group, *majors) for majors in F16_F32.majors))
        for group in LAYOUT_GROUPS[FINAL]
    ]
    header = ("type", *(layout_name(*majors) for majors in F16_F32.majors))
    return markdown(header, rows) + "\n" + (lookup.origins() or NOT_YET)


def _in_majors(lookup: RecordLookup, group: TypeGroup, a_major: str, b_major: str) -> str:
    cell = lookup.layout_cell(FINAL, group.key(LAYOUT_SIZE, LAYOUT_SIZE, LAYOUT_SIZE, b_major, a_major))
    text = _timed(cell, "sustained")
    timed = cell.timed("sustained") if cell is not None else None
    if cell is None or cell.copies_ms is None or timed is None:
        return text
    return f"{text}, repacking {percent(cell.copies_ms / statistics.median(timed.rounds_ms))}"


def unaligned_table(lookup: RecordLookup) -> str:
    """Misaligned GEMMs relative to their aligned neighbours, and to cuBLASLt's fastest on the same problem."""
    rows = [_beside(lookup, shape, offset) for shape, offset, _ in UNALIGNED]
    header = (
        "M x N x K",
        "TFLOP/s",
        "of the aligned neighbour",
        "of cuBLASLt",
        "repacking",
        "at least 70 % of the neighbour",
    )
    return markdown(header, rows) + "\n" + (lookup.origins() or NOT_YET)


def _beside(lookup: RecordLookup, shape: tuple[int, int, int], offset: int) -> TableRow:
    key = BF16.key(*shape, b_major="col")
    label = key.shape if not offset else f"{key.shape}, pointers offset by {offset} element"
    cell = lookup.unaligned_cell(FINAL, key, offset)
    share = cell.of_neighbour if cell is not None else None
    if cell is None or share is None:
        return (label, (cell.failed if cell else None) or "–", "–", "–", "–", "–")
    met = "yes" if share >= OF_NEIGHBOUR else "no"
    return (label, number(cell.tflops), percent(share), percent(cell.of_baseline), _copies(cell), met)


def _copies(cell: UnalignedCell) -> str:
    if cell.copies_ms is None:
        return "none"
    return f"{percent(cell.copies_ms / statistics.median(cell.rounds_ms))} of the time"
