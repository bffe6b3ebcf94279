"""What torch is asked to compute, with NumPy in torch's place: our operands at their addresses, and nothing else."""

import ctypes
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from warptile.bench.baselines.torch_matmul import torch_launch
from warptile.bench.protocol.measurements import ProblemKey
from warptile.bench.protocol.workloads import BF16, E4M3, E4M3_FAST, F16_F16, S4, S8, TF32
from warptile.errors import UnsupportedError


class Tensor:
    """As much of a torch tensor as a launch uses."""

    def __init__(self, array):
        self.array = array

    def view(self, *shape):
        return Tensor(self.array.view(shape[0]) if isinstance(shape[0], np.dtype) else self.array.reshape(shape))

    def transpose(self, first, second):
        return Tensor(self.array.swapaxes(first, second))


class NumPyTorch:
    """torch's products by NumPy; ``asked`` names each call and the switches that were on."""

    __version__ = "2.9"
    float16, float32, bfloat16 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float16)
    int8, int32, float8_e4m3fn = np.dtype(np.int8), np.dtype(np.int32), np.dtype(np.int8)

    def __init__(self):
        self.asked = []
        settings = SimpleNamespace(allow_tf32=False, allow_fp16_accumulation=False)
        self.backends = SimpleNamespace(cuda=SimpleNamespace(matmul=settings))
        self.cuda = SimpleNamespace(stream=nullcontext, ExternalStream=lambda stream: stream)

    def as_tensor(self, memory, device):
        assert device == "cuda"
        asked = memory.__cuda_array_interface__
        assert (asked["typestr"], asked["data"][1]) == ("|u1", False)
        return Tensor(np.ctypeslib.as_array((ctypes.c_uint8 * asked["shape"][0]).from_address(asked["data"][0])))

    def ones(self, shape, device):
        return 1.0

    def _multiply(self, name, a, b, d=None, **how):
        on = [switch for switch, value in vars(self.backends.cuda.matmul).items() if value]
        self.asked.append((name, *on, *how.values()))
        product = a.array.astype(np.float64) @ b.array.astype(np.float64)
        if d is not None:
            d.array[...] = product
        return product

    def matmul(self, a, b, out):
        self._multiply("matmul", a, b, out)

    def bmm(self, a, b, out):
        assert a.array.ndim == 3
        self._multiply("bmm", a, b, out)

    def _int_mm(self, a, b, out):
        self._multiply("_int_mm", a, b, out)

    def _scaled_mm(self, a, b, scale_a, scale_b, out_dtype, use_fast_accum):
        assert (scale_a, scale_b) == (1.0, 1.0)
        return self._multiply("_scaled_mm", a, b, fast=use_fast_accum)


@pytest.fixture
def torch(monkeypatch):
    made = NumPyTorch()
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


def launched(key, element, out):
    """The product in memory after a launch, and the product that it should be."""
    generator = np.random.default_rng(0)
    a = generator.integers(-4, 5, (key.batch, key.m, key.k)).astype(element)
    b = generator.integers(-4, 5, (key.batch, key.k, key.n)).astype(element)
    d = np.zeros((key.batch, key.m, key.n), out)
    stored_a = np.ascontiguousarray(a if key.a_major == "row" else a.swapaxes(1, 2))
    stored_b = np.ascontiguousarray(b if key.b_major == "row" else b.swapaxes(1, 2))
    launch = torch_launch(key, [{"A": stored_a.ctypes.data, "B": stored_b.ctypes.data, "D": d.ctypes.data}])
    assert launch.sets == 1
    launch(0, 7)
    return launch.name, d, a.astype(np.float64) @ b.astype(np.float64)


@pytest.mark.parametrize(("a_major", "b_major"), BF16.majors)
def test_torch_multiplies_our_operands_where_they_lie(torch, a_major, b_major):
    name, d, product = launched(BF16.key(5, 7, 3, b_major, a_major), np.float16, np.float16)
    np.testing.assert_array_equal(d, product)
    assert (name, torch.asked) == ("torch.matmul", [("matmul",)])


def test_a_batch_is_one_call(torch):
    key = msgspec.structs.replace(BF16.key(5, 7, 3, "col"), batch=4)
    name, d, product = launched(key, np.float16, np.float16)
    np.testing.assert_array_equal(d, product)
    assert (name, torch.asked) == ("torch.bmm", [("bmm",)])


def test_integers_have_a_product_of_their_own(torch):
    name, d, product = launched(S8.key(5, 7, 3), np.int8, np.int32)
    np.testing.assert_array_equal(d, product)
    assert name == "torch._int_mm"


@pytest.mark.parametrize(
    ("group", "element", "switch"),
    [(TF32, np.float32, "allow_tf32"), (F16_F16, np.float16, "allow_fp16_accumulation")],
)
def test_switches_are_on_for_a_launch_alone(torch, group, element, switch):
    name, _, _ = launched(group.key(5, 7, 3, "col"), element, element)
    assert torch.asked == [("matmul", switch)]
    assert switch in name
    assert not getattr(torch.backends.cuda.matmul, switch)


@pytest.mark.parametrize(("group", "fast"), [(E4M3, False), (E4M3_FAST, True)])
def test_short_sums_of_8_bit_floats_are_asked_for_where_ours_are_short(torch, group, fast):
    launched(group.key(5, 7, 3, "col"), np.int8, np.float16)
    assert torch.asked == [("_scaled_mm", fast)]


def test_types_that_torch_does_not_multiply_are_refused(torch):
    with pytest.raises(UnsupportedError, match="torch has no product of int4"):
        torch_launch(S4.key(8, 8, 8, "col"), [])
    with pytest.raises(UnsupportedError, match="torch has no product of float64 with float64 accumulators"):
        torch_launch(ProblemKey(8, 8, 8, "float64", "float64", "float64"), [])
