"""Permitted accesses of a kernel to its operands, which the emulator checks: reads, writes, required writes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rows:
    """Rows in memory: ``count`` of ``columns`` elements, ``stride_bytes`` apart, from ``offset_bytes`` on; all of that
    ``matrices`` times, ``matrix_stride_bytes`` apart."""

    count: int
    columns: int
    element_bytes: int
    stride_bytes: int
    offset_bytes: int = 0
    matrices: int = 1
    matrix_stride_bytes: int = 0

    def element(self, byte: int) -> tuple[int, ...]:
        """Row and column of the element that holds a byte, counted from the start of the operand; where there are
        several matrices, the matrix before them."""
        rest, stride = byte - self.offset_bytes, max(self.stride_bytes, 1)
        if self.matrices == 1:
            row, rest = divmod(rest, stride)
            return row, rest // self.element_bytes
        outer, inner = sorted((stride, max(self.matrix_stride_bytes, 1)), reverse=True)
        first, rest = divmod(rest, outer)
        second, rest = divmod(rest, inner)
        matrix, row = (second, first) if outer == stride else (first, second)
        return matrix, row, rest // self.element_bytes


@dataclass(frozen=True)
class Access:
    """How a kernel may use one operand; the emulator checks it.

    Attributes:
        writes: the kernel may write it; the caller's array is then updated.
        complete: elements that must all have been written when the launch is over.
        holds: elements that have a value before the launch, where it is not all of them; the kernel may read another
            only after it has written it.
        lead_bytes: it begins so many bytes behind a multiple of 256, as an array inside an allocation may.
    """

    writes: bool = False
    complete: Rows | None = None
    holds: Rows | None = None
    lead_bytes: int = 0


NOTHING = Rows(0, 0, 1, 0)
"""No element."""
