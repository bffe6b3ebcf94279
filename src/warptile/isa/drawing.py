"""A fragment as a grid of cells, for a terminal: which lane and which of its registers hold what part of a matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from warptile.isa.fragments import LANE_BITS, FragmentLayout, Step
from warptile.isa.mma_sp import NIBBLES_PER_SEGMENT, SparseShape

CELL_WIDTH = 6
"""Characters of a cell: lane, register, and a space."""

MAX_WIDTH = 100
"""Characters of a line at most: wider matrices are drawn transposed."""


@dataclass(frozen=True)
class Cell:
    """The elements of one register (or one half of a metadata word): a lane, and what to call the register."""

    lane: int
    register: str


@dataclass(frozen=True)
class Drawing:
    """A matrix.

    Attributes:
        title: what it is.
        across: what runs from left to right, and how the columns are called.
        down: the same from top to bottom.
        cells: row by row.
        notes: what the grid does not show.
    """

    title: str
    across: tuple[str, tuple[str, ...]]
    down: tuple[str, tuple[str, ...]]
    cells: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


def _span(steps: tuple[Step, ...], axis: int) -> int:
    """Elements of a register along one axis."""
    return 1 << sum(1 for step in steps if step[axis])


def _labels(extent: int, span: int) -> tuple[str, ...]:
    return tuple(str(i) if span == 1 else f"{i}-{i + span - 1}" for i in range(0, extent, span))


def draw(title: str, letter: str, layout: FragmentLayout, axes: tuple[str, str]) -> Drawing:
    """The grid of a fragment, its registers called ``letter`` and a number.

    Args:
        title: what the matrix is.
        letter: a, b, c or d.
        layout: of the fragment.
        axes: what its rows and its columns are called, such as ``("m", "k")``.
    """
    columns_of = _span(layout.element, 1)
    if layout.columns // columns_of * CELL_WIDTH > MAX_WIDTH:
        layout, axes, title = layout.transposed(), (axes[1], axes[0]), f"{title}, drawn transposed"
    row_span, column_span = _span(layout.element, 0), _span(layout.element, 1)
    held: dict[tuple[int, int], Cell] = {}
    for lane in range(1 << LANE_BITS):
        for register in layout.distinct:
            row, column = layout.place(lane, register, 0)
            held[row // row_span, column // column_span] = Cell(lane, f"{letter}{register}")
    down, across = _labels(layout.rows, row_span), _labels(layout.columns, column_span)
    notes = []
    if layout.elements > 1:
        notes.append(f"a cell is one register: {layout.elements} elements, the first in its lowest bits")
    copies = [register for register in range(layout.registers) if layout.original(register) != register]
    if copies:
        notes.append(f"{letter}{copies[0]} to {letter}{copies[-1]} are copies of the registers shown")
    return Drawing(
        title,
        (axes[1], across),
        (axes[0], down),
        tuple(tuple(held[row, column] for column in range(len(across))) for row in range(len(down))),
        tuple(notes),
    )


def draw_metadata(shape: SparseShape) -> Drawing:
    """Which lane's metadata word, and which half of it, speaks of which part of A; for selector 0."""
    groups = NIBBLES_PER_SEGMENT * shape.group
    cells = []
    for row in range(shape.m):
        places = [shape.metadata_place(row, NIBBLES_PER_SEGMENT * segment) for segment in range(shape.segments)]
        cells.append(tuple(Cell(lane, "hi" if shift else "lo") for lane, shift in places))
    notes = [
        f"a cell is the low or high half of a word: {NIBBLES_PER_SEGMENT} nibbles, one for {shape.group} elements of k "
        "each, the first in the lowest bits",
        "legal nibbles and what they keep: "
        + ", ".join(f"{nibble:X} {'+'.join(map(str, kept))}" for nibble, kept in sorted(shape.positions.items())),
    ]
    if shape.selectors > 1:
        step = f"{shape.segments} lane{'s' if shape.segments > 1 else ''}"
        notes.append(f"selector 0; each of the selectors up to {shape.selectors - 1} moves on by {step}")
    return Drawing("metadata", ("k", _labels(shape.k, groups)), ("m", _labels(shape.m, 1)), tuple(cells), tuple(notes))


def places(layout: FragmentLayout) -> Mapping[str, object]:
    """A fragment as plain data: for each lane, register and element of it, (row, column)."""
    return {
        "rows": layout.rows,
        "columns": layout.columns,
        "element_bits": layout.element_bits,
        "register_bits": layout.register_bits,
        "registers": layout.registers,
        "lanes": [
            [
                [list(layout.place(lane, register, element)) for element in range(layout.elements)]
                for register in range(layout.registers)
            ]
            for lane in range(1 << LANE_BITS)
        ],
    }
