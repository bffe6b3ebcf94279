"""Fragments: which register of which lane holds each element of a matrix.

Every fragment of NVIDIA's warp-level matrix instructions is a linear layout: each bit of the lane number, of the
register number and of the position inside a register moves the element by a fixed number of rows and columns, its step,
and the steps of all set bits add up. A dozen pairs of numbers therefore define a fragment.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

LANE_BITS = 5

Step = tuple[int, int]
"""How far one bit moves the element: (rows, columns)."""

SAME: Step = (0, 0)
"""The step of a register bit whose two values hold the same elements: copies."""


@dataclass(frozen=True)
class FragmentLayout:
    """The elements of one matrix operand in the registers of a warp.

    Attributes:
        rows: of the matrix.
        columns: of the matrix.
        element_bits: of one element.
        register_bits: of one register, 32 or 64.
        lane: steps of the five bits of the lane number, lowest first.
        register: steps of the bits of the register number; `SAME` where both values hold copies.
        element: steps of the bits of the position in a register, position 0 being the lowest bits.
    """

    rows: int
    columns: int
    element_bits: int
    register_bits: int
    lane: tuple[Step, ...]
    register: tuple[Step, ...]
    element: tuple[Step, ...]

    def __post_init__(self) -> None:
        if self.register_bits not in (32, 64) or self.register_bits != self.element_bits << len(self.element):
            raise ValueError(
                f"{1 << len(self.element)} elements of {self.element_bits} bits do not fill {self.register_bits} bits"
            )
        if len(self.lane) != LANE_BITS:
            raise ValueError(f"a warp has {LANE_BITS} lane bits, not {len(self.lane)}")
        held = [step for step in (*self.lane, *self.register, *self.element) if step != SAME]
        rows = sorted(step[0] for step in held if step[0])
        columns = sorted(step[1] for step in held if step[1])
        straight = all((row == 0) != (column == 0) for row, column in held)
        # One step per power of two along each axis: exactly then each element is held once (copies aside).
        if not straight or rows != _powers(self.rows) or columns != _powers(self.columns):
            raise ValueError(f"the steps do not cover a {self.rows}x{self.columns} matrix exactly once")
        if SAME in self.lane or SAME in self.element:
            raise ValueError("only whole registers can be copies")

    @property
    def registers(self) -> int:
        """Registers of each lane, copies included."""
        return 1 << len(self.register)

    @property
    def elements(self) -> int:
        """Elements in a register."""
        return 1 << len(self.element)

    @property
    def bytes(self) -> int:
        """Bytes of a lane's registers, copies included: what the PTX ISA calls the size of the fragment."""
        return self.registers * self.register_bits // 8

    @property
    def distinct(self) -> tuple[int, ...]:
        """Registers that are not copies of a lower one."""
        copies = sum(1 << bit for bit, step in enumerate(self.register) if step == SAME)
        return tuple(register for register in range(self.registers) if not register & copies)

    def original(self, register: int) -> int:
        """The lowest register that holds the same elements as ``register``."""
        copies = sum(1 << bit for bit, step in enumerate(self.register) if step == SAME)
        return register & ~copies

    def place(self, lane: int, register: int, element: int) -> tuple[int, int]:
        """The (row, column) of one element."""
        row = column = 0
        for value, steps in ((lane, self.lane), (register, self.register), (element, self.element)):
            for bit, step in enumerate(steps):
                if value >> bit & 1:
                    row, column = row + step[0], column + step[1]
        return row, column

    def transposed(self) -> FragmentLayout:
        """The same registers as a fragment of the transposed matrix."""

        def flip(steps: tuple[Step, ...]) -> tuple[Step, ...]:
            return tuple((column, row) for row, column in steps)

        return FragmentLayout(
            self.columns, self.rows, self.element_bits, self.register_bits,
            flip(self.lane), flip(self.register), flip(self.element),
        )  # fmt: skip


def _powers(size: int) -> list[int]:
    """The powers of two whose sums are all numbers below ``size``; none if there is no such set."""
    return [1 << bit for bit in range(size.bit_length() - 1)] if size.bit_count() == 1 else [0]


@cache
def coordinates(layout: FragmentLayout) -> NDArray[np.int64]:
    """All places as an array of shape (32, registers, elements, 2): row and column."""
    places = np.zeros((1, 2), dtype=np.int64)
    for step in (*layout.element, *layout.register, *layout.lane):
        places = np.concatenate([places, places + np.array(step, dtype=np.int64)])
    shaped = places.reshape(1 << LANE_BITS, layout.registers, layout.elements, 2)
    shaped.setflags(write=False)
    return shaped


@cache
def gather_index(layout: FragmentLayout) -> NDArray[np.intp]:
    """For each element of the matrix in row-major order, its index in an array of (lane, register, position)."""
    distinct = list(layout.distinct)
    places = coordinates(layout)[:, distinct]
    flat = np.arange(1 << LANE_BITS + len(layout.register) + len(layout.element), dtype=np.intp)
    flat = flat.reshape(1 << LANE_BITS, layout.registers, layout.elements)[:, distinct]
    index = np.empty((layout.rows, layout.columns), dtype=np.intp)
    index[places[..., 0], places[..., 1]] = flat
    index.setflags(write=False)
    return index.ravel()


@cache
def scatter_index(layout: FragmentLayout) -> NDArray[np.intp]:
    """For each (lane, register, position), the row-major number of its element; copies included."""
    places = coordinates(layout)
    index: NDArray[np.intp] = (places[..., 0] * layout.columns + places[..., 1]).astype(np.intp).ravel()
    index.setflags(write=False)
    return index
