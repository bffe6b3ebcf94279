"""Where a byte of a tile lies in shared memory, so that rows, and columns of rows, fall into different banks.

The permutation is TMA's (PTX ISA, "Tensor: swizzling modes"): within rows of 32, 64 or 128 bytes the 16-byte chunks
change places, by one, two or three bits of the number of the 128-byte line. In CUDA: kernels/tile/swizzle.cuh.
"""

from __future__ import annotations

LINE_BYTES = 128
"""All banks once: what one wavefront moves."""

CHUNK_BYTES = 16
"""What stays together: a row of an ldmatrix, a 16-byte access."""

ROW_BYTES = (32, 64, 128)
"""Lengths of rows that there is a permutation for."""


def swizzled(offset: int, row_bytes: int) -> int:
    """Where the byte at ``offset`` of a tile goes, in bytes from the tile's start; the function is its own inverse.

    Args:
        offset: as if rows of the tile lay below each other.
        row_bytes: of one row of the tile; the tile starts at a multiple of ``8 * row_bytes`` (1024 for 128).

    Raises:
        ValueError: there is no swizzle for such rows.
    """
    if row_bytes not in ROW_BYTES:
        raise ValueError(f"rows of {row_bytes} bytes: only those of {', '.join(map(str, ROW_BYTES))} are swizzled")
    line = offset // LINE_BYTES
    return offset ^ line % (row_bytes // CHUNK_BYTES) * CHUNK_BYTES
