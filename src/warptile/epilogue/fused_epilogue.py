"""An epilogue with its operands described: what a `warptile.problem.Problem` has of it, without any data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from warptile.dtypes import DType
from warptile.epilogue.epilogue_program import Program

OPERAND, OUTPUT = "epilogue operand", "epilogue output"
"""What operands of a launch are called: ``"epilogue operand bias"``, ``"epilogue output 1"``."""


@dataclass(frozen=True)
class Layout:
    """A matrix of the epilogue in memory, that goes with one matrix of D.

    Attributes:
        dtype: element type.
        row_stride: elements from what belongs to a row of D (or of its blocks) to what belongs to the next; 0: the same
            for all rows.
        column_stride: the same of columns.
        alignment_bytes: largest power of two, at most 16, that divides its address and its distances but the unit one.
        batch_stride: elements from one matrix of a batch to the next; 0: all share one, or there is one.
    """

    dtype: DType
    row_stride: int
    column_stride: int
    alignment_bytes: int
    batch_stride: int = 0

    @property
    def swapped(self) -> Layout:
        """The same with rows and columns exchanged."""
        return replace(self, row_stride=self.column_stride, column_stride=self.row_stride)


QUAD_BLOCK = 8
"""Neighbours in a row, or rows, of D that the lanes of a warp have of an accumulator fragment, two in a lane."""


@dataclass(frozen=True)
class Partials:
    """What a kernel leaves of a reduction: a number for each row, or column, of D and for each block of it.

    In memory the numbers of a block follow each other: (blocks, M) for a reduction over columns, else (blocks, N).

    Attributes:
        dtype: their type.
        operation: as of a `warptile.epilogue.epilogue_program.Reduction`.
        over_columns: there are numbers for the rows of D, else for its columns.
    """

    dtype: DType
    operation: str
    over_columns: bool

    @property
    def swapped(self) -> Partials:
        """The same with rows and columns exchanged."""
        return replace(self, over_columns=not self.over_columns)

    def shape(self, m: int, n: int, block: int) -> tuple[int, int]:
        """Blocks, and rows (columns), of an m x n matrix."""
        return (-(-n // block), m) if self.over_columns else (-(-m // block), n)


STAGED_BITS, STAGED_ALIGNMENT, MOST_STAGED = 16, 16, 2
"""Bits of an element, and alignment of rows in bytes, of matrices that take the way of D; and the most operands."""


class StoredD(NamedTuple):
    """How a kernel sees D in memory.

    Attributes:
        dtype: element type.
        major: ``"row"`` or ``"col"``.
        extents: rows and columns.
    """

    dtype: DType
    major: str
    extents: tuple[int, int]


def _is_like(layout: Layout, d: StoredD) -> bool:
    """Whether a matrix is laid out as D is. Its lines do not overlap: nobody promises that a tensor map may say so."""
    lines, line, elements = layout.row_stride, layout.column_stride, d.extents[1]
    if d.major == "col":
        lines, line, elements = line, lines, d.extents[0]
    return (
        line == 1
        and lines >= max(elements, 2)
        and layout.dtype.bits == d.dtype.bits == STAGED_BITS
        and layout.alignment_bytes == STAGED_ALIGNMENT
    )


@dataclass(frozen=True)
class Fused:
    """A traced epilogue and its operands.

    Attributes:
        program: what is computed.
        tensors: layout of each named operand that is a tensor.
        numbers: names of operands that are single numbers, given at the launch; seeds are among them.
        outputs: layouts of the outputs after the first, which is D; partials of those that are reductions.
        swapped: D is computed transposed: a row of the kernel's D is a column of the program's.
        in_quads: the kernel evaluates the epilogue for accumulator fragments, by whole warps; partials are of blocks of
            `QUAD_BLOCK` columns or rows. Otherwise a block is one element.
    """

    program: Program
    tensors: tuple[tuple[str, Layout], ...] = ()
    numbers: tuple[str, ...] = ()
    outputs: tuple[Layout | Partials, ...] = ()
    swapped: bool = False
    in_quads: bool = False

    @cached_property
    def transposed(self) -> Fused:
        """The same for operands that are swapped."""
        return replace(
            self,
            tensors=tuple((name, each.swapped) for name, each in self.tensors),
            outputs=tuple(each.swapped for each in self.outputs),
            swapped=not self.swapped,
        )

    @property
    def block(self) -> int:
        """Columns, or rows, of D for which there is one partial."""
        return QUAD_BLOCK if self.in_quads else 1

    @cached_property
    def single(self) -> Fused:
        """The same for one matrix of a batch."""
        return replace(
            self,
            tensors=tuple((name, replace(each, batch_stride=0)) for name, each in self.tensors),
            outputs=tuple(replace(each, batch_stride=0) if isinstance(each, Layout) else each for each in self.outputs),
        )

    def staged(self, d: StoredD) -> tuple[str, ...]:
        """Names of operands that take the way of D through shared memory, where a kernel stages them: laid out as D is,
        with elements of as many bits."""
        blocks = {name: (rows, columns) for name, rows, columns in self.program.tensors}
        alike = (name for name, each in self.tensors if blocks[name] == (1, 1) and _is_like(each, d))
        return tuple(alike)[:MOST_STAGED]

    def kept(self, d: StoredD) -> tuple[int, Layout] | None:
        """The further output that does so, its number from 1 on and its layout; None if there is none."""
        layouts = ((i, each) for i, each in enumerate(self.outputs, 1) if isinstance(each, Layout))
        return next(((i, each) for i, each in layouts if _is_like(each, d)), None)

    def __str__(self) -> str:
        count = len(self.program.operations)
        reads = ", ".join([name for name, _ in self.tensors] + list(self.numbers)) or "nothing else"
        made = f"; {len(self.outputs)} further output{'s' * (len(self.outputs) > 1)}" if self.outputs else ""
        return f"{count} operation{'s' * (count != 1)} on each element, reads {reads}{made}"

    @cached_property
    def layouts(self) -> dict[str, Layout]:
        """Layout of each tensor by its name."""
        return dict(self.tensors)

    @cached_property
    def dtypes(self) -> tuple[DType, ...]:
        """Element types of tensors and further outputs."""
        return tuple(dict.fromkeys([each.dtype for _, each in self.tensors] + [each.dtype for each in self.outputs]))
