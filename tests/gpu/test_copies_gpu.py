"""Copies of operands on a real GPU: bit for bit between guard bands, and near the bandwidth of memory."""

import pytest

from measure_copies import SHAPES, UNITS, copy, measured, wrong

pytestmark = pytest.mark.gpu

H200_BYTES_PER_S = 4.3e12
"""Reads and writes together, of copies (`warptile.arch.H200`)."""


@pytest.mark.parametrize("offset", [0, 1, 5, 16])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("unit_bytes", UNITS)
@pytest.mark.parametrize("transposed", [False, True])
def test_a_copy_is_the_same_bits_and_stays_in_its_target(transposed, unit_bytes, shape, offset):
    assert wrong(copy(*shape, unit_bytes, transposed, offset), offset) is None


@pytest.mark.parametrize(
    ("size", "unit_bytes", "transposed", "share"),
    [(4095, 2, False, 0.8), (4095, 4, False, 0.8), (4096, 1, True, 0.7), (4095, 1, True, 0.7)],
)
def test_a_copy_is_bound_by_memory(size, unit_bytes, transposed, share):
    from warptile.gpu import driver

    if "H200" not in driver.device_info().name:
        pytest.skip("the bandwidth of this GPU is not known here")
    found = measured(copy(size, size, size, unit_bytes, transposed))
    print(f"{size} x {size} of {unit_bytes} bytes, transposed={transposed}: {found['tb_per_s']:.2f} TB/s")
    assert not found["tb_per_s"] * 1e12 < share * H200_BYTES_PER_S
