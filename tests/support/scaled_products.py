"""Products of scaled operands of 8 bits: data, references in float64 and error bounds."""

from __future__ import annotations

import ml_dtypes
import numpy as np

SCALE_K = 128
TYPES = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


def operands(rng, m, n, k, dtype="e4m3", *, batch=()):
    """A, row-major, and B, whose columns are contiguous."""
    a, b = rng.standard_normal((*batch, m, k)), rng.standard_normal((*batch, n, k))
    return a.astype(TYPES[dtype]), np.swapaxes(b.astype(TYPES[dtype]), -1, -2)


def whole_numbers(rng, m, n, k):
    """A and B of e4m3 with small whole numbers, whose sums a tensor core computes exactly."""
    a, b = rng.integers(-2, 3, (m, k)), rng.integers(-2, 3, (n, k))
    return a.astype(TYPES["e4m3"]), b.astype(TYPES["e4m3"]).T


def scales(rng, *shape):
    """Positive float32 numbers that differ by up to six powers of two."""
    return (2 ** rng.uniform(-3, 3, shape)).astype(np.float32)


def block_scales(rng, m, n, k, lines, batch=()):
    """Scales of blocks of ``lines[0]`` rows of A, and ``lines[1]`` columns of B; those of B with K contiguous."""
    blocks = -(-k // SCALE_K)
    of_b = scales(rng, *batch, -(-n // lines[1]), blocks)
    return scales(rng, *batch, -(-m // lines[0]), blocks), np.swapaxes(of_b, -1, -2)


def dequantized(a, b, scale_a, scale_b, lines):
    """A and B in float64, each element times the scale of its block; ``lines`` 0 for scales that broadcast."""
    wide_a, wide_b = np.asarray(scale_a, np.float64), np.asarray(scale_b, np.float64)
    if lines[0]:
        wide_a = wide_a.repeat(lines[0], -2).repeat(SCALE_K, -1)[..., : a.shape[-2], : a.shape[-1]]
    if lines[1]:
        wide_b = wide_b.repeat(SCALE_K, -2).repeat(lines[1], -1)[..., : b.shape[-2], : b.shape[-1]]
    return a.astype(np.float64) * wide_a, b.astype(np.float64) * wide_b


def error_ratio(d, a, b, *, output_bits):
    """The largest error of D by its bound, given dequantized operands.

    Within 128 elements of K a tensor core keeps 13 fraction bits of sums and drops the rest of 32 products and a sum at
    a time: four additions, each of at most 33 units of the last place of the largest term. The sums of these are
    float32, and the result is rounded to ``output_bits`` fraction bits.
    """
    exact, sizes = a @ b, np.abs(a) @ np.abs(b)
    intervals = -(-a.shape[-1] // SCALE_K)
    bound = (4 * 33 * 2.0**-13 + (intervals + 8) * 2.0**-24) * sizes + 2.0 ** -(output_bits + 1) * np.abs(exact)
    return float(np.max(np.abs(np.asarray(d, np.float64) - exact) / np.maximum(bound, 1e-30)))
