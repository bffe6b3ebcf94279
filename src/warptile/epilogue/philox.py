"""Philox4x32-10, the counter-based random numbers of dropout (Salmon et al., "Parallel random numbers: as easy as 1, 2,
3", SC 2011): the host's side of ``philox_uniform`` in kernels/epilogue/functions.cuh."""

from __future__ import annotations

from typing import Any

import numpy as np

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_WORD = np.uint64(0xFFFFFFFF)


def blocks(counters: np.ndarray[Any, Any], seed: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Four random words for each counter.

    Args:
        counters: (..., 4) words of 32 bits.
        seed: 64 bits: the key, its low word first.

    Returns:
        (..., 4) words of 32 bits.
    """
    x0, x1, x2, x3 = (counters[..., i].astype(np.uint64) for i in range(4))
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32 & 0xFFFFFFFF)]
    shift = np.uint64(32)
    for _ in range(ROUNDS):
        first, second = x0 * np.uint64(MULTIPLIERS[0]), x2 * np.uint64(MULTIPLIERS[1])
        x0, x1, x2, x3 = (second >> shift) ^ x1 ^ key[0], second & _WORD, (first >> shift) ^ x3 ^ key[1], first & _WORD
        key = [(each + np.uint64(step)) & _WORD for each, step in zip(key, KEY_STEPS, strict=True)]
    return np.stack([x0, x1, x2, x3], axis=-1).astype(np.uint32)


def uniform(seed: int, rows: int, columns: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A number in [0, 1) of 24 bits for each element of a matrix: word ``column % 4`` of the block with the counter
    (column // 4, row, 0, 0).

    Args:
        seed: 64 bits.
        rows, columns: extents of the matrix.

    Returns:
        (rows, columns).
    """
    quads = -(-columns // 4)
    counters = np.zeros((rows, quads, 4), np.uint32)
    counters[..., 0] = np.arange(quads)
    counters[..., 1] = np.arange(rows)[:, None]
    words = blocks(counters, seed).reshape(rows, 4 * quads)[:, :columns]
    return (words >> np.uint32(8)).astype(np.float64) * 2.0**-24
