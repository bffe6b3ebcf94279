"""The format of a float32 matrix that is kept with its slices (`warptile.split`), in one piece of memory.

The lines of the matrix (rows of an A, columns of a B) stand one after the other, contiguous along K. Behind them stand
their high slices, then their low ones, of float16, and a 32-bit exponent for each line. What the slices are:
`warptile.rungs.operand_split`.
"""

from __future__ import annotations

from dataclasses import dataclass

from warptile.problem import LINE_BYTES, padded_stride

FLOAT_BYTES, SLICE_BYTES, EXPONENT_BYTES = 4, 2, 4
"""Of an element of the matrix and of a slice, and of a line's exponent."""


@dataclass(frozen=True)
class SlicedLines:
    """Lines of float32 with their slices.

    Attributes:
        lines: how many.
        k: elements of each.
    """

    lines: int
    k: int

    @property
    def source_stride(self) -> int:
        """Elements from one line to the next."""
        return padded_stride(self.k, FLOAT_BYTES)

    @property
    def slice_stride(self) -> int:
        """Elements from one line of a slice to the next."""
        return padded_stride(self.k, SLICE_BYTES)

    @property
    def slices_offset_bytes(self) -> int:
        """Where the high slices begin."""
        return -(-self.lines * self.source_stride * FLOAT_BYTES // LINE_BYTES) * LINE_BYTES

    @property
    def exponents_offset_bytes(self) -> int:
        """Where the exponents begin."""
        return self.slices_offset_bytes + 2 * self.lines * self.slice_stride * SLICE_BYTES

    @property
    def bytes(self) -> int:
        """All of it."""
        return self.exponents_offset_bytes + self.lines * EXPONENT_BYTES
