"""The tables of the wgmma family: the ladder's gains, its types, its layouts, and problems that lie badly."""

from __future__ import annotations

import statistics

from warptile.bench.found import Found
from warptile.bench.markdown import Row, markdown, number, percent
from warptile.bench.measurements import TypeCell, UnalignedCell
from warptile.bench.menu import NOT_YET, speed_of
from warptile.bench.workloads import (
    BF16,
    F16_F32,
    LAYOUT_GROUPS,
    LAYOUT_SIZE,
    MENU_SIZE,
    MMA_SIZES,
    SECOND_MENU_SIZE,
    TYPE_GROUPS,
    UNALIGNED,
    Group,
    default_config,
    limit_tflops,
    menu_key,
    to_problem,
)
from warptile.rungs import RUNGS

FINAL = "wgmma-final"
ARCH = "sm_90a"
OF_NEIGHBOUR = 0.7
"""Share of the aligned neighbour's speed that problems that lie badly are held to."""


def ladder_table(found: Found) -> str:
    """TFLOP/s and share of cuBLASLt's best, sustained and cool, the gain over the rung before, and the prediction."""
    rows: list[Row] = []
    for group in (BF16, F16_F32):
        for name, rung in RUNGS.items():
            if rung.family != "wgmma":
                continue
            row = [f"`{name}`", group.name]
            for size in MMA_SIZES:
                cell, cool = found.cell(name, group, size), found.cell(name, group, size, cool=True)
                before = found.cell(rung.previous, group, size) if rung.previous else None
                gain = cell.tflops / before.tflops if cell and cell.tflops and before and before.tflops else None
                predicted = cell.predicted.tflops if cell and cell.predicted else None
                row += [speed_of(cell), number(gain, 2), speed_of(cool), number(predicted, 0)]
            rows.append(tuple(row))
    columns = [f"{size}, {what}" for size in MMA_SIZES for what in ("sustained", "gain", "cool", "predicted")]
    return markdown(("rung", "types", *columns), rows, right=2) + "\n" + (found.origins() or NOT_YET)


def types_table(found: Found) -> str:
    """TOP/s and share of cuBLASLt's best of the last rung in every type that it takes."""
    rows: list[Row] = []
    for group in TYPE_GROUPS:
        key = menu_key(group)
        if default_config(RUNGS[FINAL], to_problem(key), ARCH) is None:
            continue
        small = found.type_cell(FINAL, menu_key(group, size=SECOND_MENU_SIZE))
        large = found.type_cell(FINAL, key)
        cool = large.tflops("cool") if large else None
        limit = limit_tflops(FINAL, key)
        rows.append(
            (
                group.name, _timed(small, "sustained"), _timed(large, "sustained"), _timed(large, "cool"),
                number(limit, 0), percent(cool / limit if cool else None),
            )
        )  # fmt: skip
    sizes = (f"{SECOND_MENU_SIZE}, sustained", f"{MENU_SIZE}, sustained", f"{MENU_SIZE}, cool")
    return markdown(("type", *sizes, "limit", "cool of limit"), rows) + "\n" + (found.origins() or NOT_YET)


def _timed(cell: TypeCell | None, regime: str) -> str:
    if cell is None:
        return "–"
    speed = cell.tflops(regime)
    if speed is None:
        return cell.failed or "–"
    share = cell.of_baseline(regime)
    return number(speed) if share is None else f"{number(speed)} ({percent(share)})"


def layouts_table(found: Found) -> str:
    """TOP/s in the four combinations of majors, the share of cuBLASLt's, and what of the time copies before take."""
    rows = [
        (group.name, *(_in_majors(found, group, *majors) for majors in F16_F32.majors))
        for group in LAYOUT_GROUPS[FINAL]
    ]
    header = ("type", *(f"A {a}, B {b}" for a, b in F16_F32.majors))
    return markdown(header, rows) + "\n" + (found.origins() or NOT_YET)


def _in_majors(found: Found, group: Group, a_major: str, b_major: str) -> str:
    cell = found.layout_cell(FINAL, group.key(LAYOUT_SIZE, LAYOUT_SIZE, LAYOUT_SIZE, b_major, a_major))
    text = _timed(cell, "sustained")
    timed = cell.timed("sustained") if cell is not None else None
    if cell is None or cell.copies_ms is None or timed is None:
        return text
    return f"{text}, copies {percent(cell.copies_ms / statistics.median(timed.rounds_ms))}"


def unaligned_table(found: Found) -> str:
    """Problems that lie badly beside their aligned neighbours and cuBLASLt's best on the same problem."""
    rows = [_beside(found, shape, offset) for shape, offset, _ in UNALIGNED]
    header = (
        "M x N x K",
        "TFLOP/s",
        "of the aligned neighbour",
        "of cuBLAS",
        "copies",
        "at least 70 % of the neighbour",
    )
    return markdown(header, rows) + "\n" + (found.origins() or NOT_YET)


def _beside(found: Found, shape: tuple[int, int, int], offset: int) -> Row:
    key = BF16.key(*shape, b_major="col")
    label = key.shape if not offset else f"{key.shape}, {offset} element further on"
    cell = found.unaligned_cell(FINAL, key, offset)
    share = cell.of_neighbour if cell is not None else None
    if cell is None or share is None:
        return (label, (cell.failed if cell else None) or "–", "–", "–", "–", "–")
    met = "yes" if share >= OF_NEIGHBOUR else "no"
    return (label, number(cell.tflops), percent(share), percent(cell.of_baseline), _copies(cell), met)


def _copies(cell: UnalignedCell) -> str:
    if cell.copies_ms is None:
        return "none"
    return f"{percent(cell.copies_ms / statistics.median(cell.rounds_ms))} of the time"
