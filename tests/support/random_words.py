"""Random words that are the same everywhere: SplitMix64 in integer arithmetic, no library's generator."""

from __future__ import annotations

import zlib

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def stream(seed: int, *names: object, shape: tuple[int, ...] | int) -> np.ndarray:
    """uint64 words of the stream that ``seed`` and ``names`` (joined as text) choose."""
    text = "|".join(map(str, names)).encode()
    start = np.uint64((seed << 32 | zlib.crc32(text)) & (2**64 - 1))
    count = int(np.prod(shape))
    with np.errstate(over="ignore"):
        state = mix(np.full(1, start)) + _GOLDEN * (np.arange(count, dtype=np.uint64) + np.uint64(1))
        return mix(state).reshape(shape)


def mix(state: np.ndarray) -> np.ndarray:
    """The output of SplitMix64 for its states."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
