"""Results do not depend on how the calling thread treats subnormal numbers."""

import ctypes
import platform

import ml_dtypes
import numpy as np
import pytest

import warptile as wt
from warptile.emulator.float_environment import default_float_environment

FLUSH = 0x8040
"""MXCSR's FTZ and DAZ bits (Intel SDM, volume 1, section 10.2.3)."""
MXCSR_OFFSET = 28
"""Of MXCSR in glibc's ``fenv_t`` of x86-64 (``bits/fenv.h``)."""


@pytest.fixture
def flushed():
    """Subnormal numbers are zero on this thread, as XLA's CPU client and torch.set_flush_denormal make them."""
    if platform.machine() != "x86_64":
        pytest.skip("MXCSR is x86-64's")
    library = ctypes.CDLL(None)
    before, changed = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
    library.fegetenv(before)
    library.fegetenv(changed)
    word = ctypes.c_uint32.from_buffer(changed, MXCSR_OFFSET)
    word.value |= FLUSH
    library.fesetenv(changed)
    yield
    library.fesetenv(before)


def tiny_product():
    """A number that is subnormal in float32."""
    return float((np.full(4, 1e-30, np.float32) * np.float32(1e-10))[0])


def test_the_default_environment_keeps_subnormal_numbers(flushed):
    assert tiny_product() == 0
    with default_float_environment():
        assert tiny_product() != 0
    assert tiny_product() == 0, "the thread has its own again"


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.float8_e4m3fn], ids=["float32", "float8"])
def test_the_emulator_computes_the_same(dtype, request):
    generator = np.random.default_rng(0)
    scale = 1e-21 if dtype is np.float32 else 1
    a, b = (
        (generator.standard_normal(shape) * scale).astype(np.float32).astype(dtype) for shape in ((19, 40), (40, 23))
    )
    expected = wt.matmul(a, b, backend="emulator")
    request.getfixturevalue("flushed")
    assert wt.matmul(a, b, backend="emulator").tobytes() == expected.tobytes()
