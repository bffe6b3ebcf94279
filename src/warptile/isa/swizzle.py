"""XOR swizzle of a tile in shared memory: rows, and columns of 16-byte chunks, fall into different banks.

The permutation is TMA's (PTX ISA, "Tensor: swizzling modes"): within rows of 32, 64 or 128 bytes, the
indices of 16-byte chunks are XORed with one, two or three bits of the number of the 128-byte line. In CUDA:
kernels/tile/swizzle.cuh.
"""

from __future__ import annotations

LINE_BYTES = 128
"""All banks once: what one wavefront moves."""

CHUNK_BYTES = 16
"""Unit of the permutation: a row of an ldmatrix matrix, or one 16-byte access."""

ROW_BYTES = (32, 64, 128)
"""Row lengths that have a swizzle mode."""


def swizzled(offset: int, row_bytes: int) -> int:
    """Swizzled offset of the byte at ``offset`` of a tile; applying the function twice gives ``offset`` again.

    Args:
        offset: from the start of the tile, whose rows are contiguous.
        row_bytes: bytes of a row of the tile, which starts at a multiple of ``8 * row_bytes`` (1024 for 128).

    Raises:
        ValueError: there is no swizzle for such rows.
    """
    if row_bytes not in ROW_BYTES:
        raise ValueError(f"rows of {row_bytes} bytes: only those of {', '.join(map(str, ROW_BYTES))} are swizzled")
    line = offset // LINE_BYTES
    return offset ^ line % (row_bytes // CHUNK_BYTES) * CHUNK_BYTES
