"""f16 accumulators that become infinite: reported when finite operands did it, and only then."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from emulation import run_cuda
from warptile.emulator import DEFAULT_CHECKS
from warptile.emulator.checks.f16_overflow import finite
from warptile.errors import AccumulatorOverflow

ONE_PRODUCT = """
#include "ptx/mma.cuh"
// Two halves of neighbouring columns (or of B, rows) in a register.
__device__ unsigned pair(const unsigned short* first, int apart) { return first[0] | first[apart] << 16; }

__global__ void product(unsigned short* d, const unsigned short* a, const unsigned short* b, const unsigned short* c) {
    const int g = threadIdx.x / 4, t = threadIdx.x % 4 * 2;
    const unsigned a_fragment[2] = {pair(a + g * 8 + t, 1), pair(a + (g + 8) * 8 + t, 1)};
    const unsigned b_fragment[1] = {pair(b + t * 8 + g, 8)};
    unsigned sum[2] = {pair(c + g * 8 + t, 1), pair(c + (g + 8) * 8 + t, 1)};
    warptile::Mma<__half, __half, 16, 8, 8>::mma_sync(sum, a_fragment, b_fragment);
    for (int i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + t + i % 2] = sum[i / 2] >> i % 2 * 16;
}
"""


def product(a: np.ndarray, b: np.ndarray, c: np.ndarray, checks: frozenset[str] = DEFAULT_CHECKS) -> np.ndarray:
    """A (16 x 8) B (8 x 8) + C in one instruction, all of f16."""
    d = np.zeros((16, 8), np.uint16)
    operands = [matrix.astype(np.float16).view(np.uint16) for matrix in (a, b, c)]
    run_cuda(ONE_PRODUCT, "product", [d, *operands], checks=checks)
    return d.view(np.float16)


def matrices() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.ones((16, 8)), np.ones((8, 8)), np.zeros((16, 8))


def test_a_sum_beyond_the_range_is_reported_with_its_place() -> None:
    a, b, c = matrices()
    a[11], b[:, 6] = 5000, 2  # 8 * 5000 * 2 in row 11, column 6: lane 4 * 3 + 3
    with pytest.raises(AccumulatorOverflow, match=r"row 11, column 6 of .* in thread \(15, 0, 0\) .*f16 ends at 65504"):
        product(a, b, c)
    assert np.isinf(product(a, b, c, DEFAULT_CHECKS - {"overflow"})[11, 6])


def test_the_largest_finite_sum_is_none() -> None:
    a, b, c = matrices()
    a[2, 0], c[2] = 32, 65464
    assert (product(a, b, c)[2] == 65504).all()  # 32 + 7 + 65464 is 65503, which rounds to 65504
    c[:] = 65504
    with pytest.raises(AccumulatorOverflow, match="row 2, column 0"):
        product(a, b, c)


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_what_is_not_finite_already_is_no_overflow(which: int, value: float) -> None:
    given = matrices()
    given[which][3, 2] = value
    assert not np.isfinite(product(*given)).all()


@pytest.mark.parametrize(
    ("element", "dtype"),
    [
        ("f16", np.float16),
        ("bf16", ml_dtypes.bfloat16),
        ("e4m3", ml_dtypes.float8_e4m3fn),
        ("e5m2", ml_dtypes.float8_e5m2),
    ],
)
def test_finite_values_are_told_by_their_bits(element: str, dtype: type) -> None:
    size = np.dtype(dtype).itemsize
    raw = np.arange(1 << 8 * size).astype(f"u{size}")
    with np.errstate(invalid="ignore"):
        values = raw.view(dtype).astype(np.float64)
    np.testing.assert_array_equal(finite(raw, element), np.isfinite(values))


@pytest.mark.parametrize("element", ["f32", "tf32"])
def test_finite_words(element: str) -> None:
    values = np.array([0, 1, -3e38, np.inf, -np.inf, np.nan], np.float32)
    assert finite(values.view(np.uint32), element).tolist() == [True, True, True, False, False, False]
