"""Empty and tiny GEMMs on the emulator: what has no element launches nothing, and without products D = beta * C."""

from contextlib import nullcontext
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import warptile as wt
from covering import covering, of_each
from empty_operands import BETAS, EMPTY, LAYOUTS, TYPES, Case, run, tiny_cases
from warptile.calls import call_options
from warptile.device import REFERENCE
from warptile.gpu import driver, workspaces
from warptile.gpu.loader import PackedArguments
from warptile.planning.addend import Addend, Nothing
from warptile.runtime import execute

EMULATOR = {"backend": "emulator"}


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize(
    ("dtype", "extents", "a_layout", "b_layout", "beta", "batch", "framework"),
    covering(TYPES, EMPTY, LAYOUTS[:3], LAYOUTS[:3], BETAS[::2], ((), (2, 3), (0,)), ("numpy", "torch")),
)
def test_every_combination_of_zeros(dtype, extents, a_layout, b_layout, beta, batch, framework, request):
    case = Case(*extents, dtype, a_layout, b_layout, beta, batch)
    torch = request.getfixturevalue("torch") if framework == "torch" else None
    run(case, "emulator", torch, planned=False)
    plan = run(case, "emulator", torch)
    empty = 0 in (*batch, *extents[:2])
    assert isinstance(plan.plan, Nothing if empty else Addend)
    assert ("nothing is launched" in plan.explain()) == empty


@pytest.mark.parametrize("case", of_each(tiny_cases(), lambda case: vars(case).items()))
def test_tiny_extents(case, request):
    torch = request.getfixturevalue("torch") if case.n % 5 == 0 else None
    run(case, "emulator", torch, planned=case.m % 2 == 0)


def test_empty_results_touch_neither_planner_nor_compiler(monkeypatch):
    monkeypatch.setattr(execute, "_planned", None)
    monkeypatch.setattr(execute, "KERNELS", None)
    a, b = np.zeros((3, 8), np.int8), np.broadcast_to(np.int8(1), (0, 8, 15))
    assert wt.matmul(a, b, **EMULATOR).shape == (0, 3, 15)
    assert wt.plan(a, b, **EMULATOR)(a, b).shape == (0, 3, 15)


def test_a_named_rung_and_max_sms_do_not_hinder_empty_operands():
    a, b, c = np.ones((65, 0), np.float16), np.ones((0, 33), np.float16), np.ones((65, 33), np.float16)
    d = wt.matmul(a, b, c, rung="wgmma-final", max_sms=2, **EMULATOR)
    assert np.array_equal(d, c)
    plan = wt.plan(a, b, c, max_sms=2, **EMULATOR)
    assert plan.plan.launch("addend", beta=1).grid == (2, 1, 1)
    with pytest.raises(wt.UnsupportedError, match="wgmma-final"):
        wt.matmul(a, b, rung="wgmma-finale", **EMULATOR)


def test_a_sparse_a_without_columns():
    for m, n, k in ((5, 3, 0), (0, 3, 8), (5, 0, 8)):
        w, x = wt.sparsify(np.ones((m, k), np.float16)), np.ones((k, n), np.float16)
        assert np.array_equal(wt.matmul(w, x, **EMULATOR), np.ones((m, k)) @ np.ones((k, n)))
        assert np.array_equal(wt.plan(w, x, **EMULATOR)(w, x), np.ones((m, k)) @ np.ones((k, n)))


def test_out_with_gaps_is_written_where_there_is_no_product():
    frame = np.full((9, 12), 7.0, np.float32)
    out = frame[1:5, 2:9]
    a, b, c = np.ones((4, 0), np.float32), np.ones((0, 7), np.float32), np.arange(28, dtype=np.float32).reshape(4, 7)
    assert wt.matmul(a, b, c, beta=2, out=out, **EMULATOR) is out
    assert np.array_equal(out, 2 * c)
    assert wt.matmul(a, b, out, beta=0.5, out=out, **EMULATOR) is out
    assert np.array_equal(out, c)
    out[...] = 7.0
    assert np.array_equal(frame, np.full_like(frame, 7.0))


def test_without_products_beta_times_c_is_rounded_once():
    c = np.array([[1.0, 1.0078125, -3.0]], ml_dtypes.bfloat16)
    a, b = np.ones((1, 0), c.dtype), np.ones((0, 3), c.dtype)
    d = wt.matmul(a, b, c, beta=1 / 3, **EMULATOR)
    assert np.array_equal(d, (np.float32(1 / 3) * c.astype(np.float32)).astype(c.dtype))


def test_integers_without_products_wrap_or_saturate():
    c = np.array([[2**31 - 1, -(2**31), 5]], np.int32)
    a, b = np.ones((1, 0), np.int8), np.ones((0, 3), np.int8)
    assert wt.matmul(a, b, c, beta=2, **EMULATOR).tolist() == [[-2, 0, 10]]
    d = wt.matmul(a, b, c, beta=2, accumulate="int32_saturating", **EMULATOR)
    assert d.tolist() == [[2**31 - 1, -(2**31), 10]]


# --- on a GPU, pretended ---------------------------------------------------------------------------------------------


class DeviceArray:
    """Memory on a GPU, never touched; null where there is no element, as in torch."""

    dtype = np.dtype(np.float16)

    def __init__(self, *shape, address=0x7000):
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": "<f2", "data": (address if all(shape) else 0, False), "strides": None,
            "stream": 5, "version": 3,
        }  # fmt: skip


@pytest.fixture
def launched(monkeypatch):
    """A GPU backend whose launches are recorded as (grid, pointers that the kernel gets, stream)."""
    seen = []

    class Kernel:
        def bind(self, spec, names, pointers):
            return None

        def launch(self, spec, pointers, stream):
            PackedArguments(spec, pointers)
            seen.append((spec.grid, {name: pointers[name] for name in spec.operands}, stream))

    backend = execute.GpuBackend.__new__(execute.GpuBackend)
    backend.info, backend.device, backend.gpu = SimpleNamespace(ordinal=0), REFERENCE, None
    shared = SimpleNamespace(
        used_on=lambda stream: nullcontext(), pointers=lambda asked: {each.name: 0x10 for each in asked}
    )
    monkeypatch.setattr(execute.GpuBackend, "load", lambda self, kernel: Kernel())
    monkeypatch.setattr(driver, "on_device", lambda ordinal: nullcontext())
    monkeypatch.setattr(workspaces, "of_stream", lambda ordinal, stream: shared)
    monkeypatch.setattr(call_options, "choose_backend", lambda *asked: backend)
    return seen


@pytest.mark.parametrize("alpha", [1, 0])
def test_a_gpu_gets_no_null_pointer(launched, alpha):
    k = 0 if alpha else 24
    a, b, out = DeviceArray(140, k), DeviceArray(k, 30), DeviceArray(140, 30, address=0xD000)
    assert wt.matmul(a, b, alpha=alpha, out=out) is out
    assert wt.matmul(a, b, DeviceArray(140, 30, address=0x8000), alpha=alpha, out=out) is out
    # Four groups of eight elements in each of 140 rows, the last of them not full: 560 threads.
    assert launched == [((3, 1, 1), {"D": 0xD000}, 5), ((3, 1, 1), {"C": 0x8000, "D": 0xD000}, 5)]


def test_a_gpu_launches_nothing_for_an_empty_result(launched):
    out = DeviceArray(0, 30)
    assert wt.matmul(DeviceArray(0, 24), DeviceArray(24, 30), out=out) is out
    assert (
        wt.plan(DeviceArray(0, 24), DeviceArray(24, 30), out=out)(DeviceArray(0, 24), DeviceArray(24, 30), out=out)
        is out
    )
    assert launched == []


# --- alpha = 0 -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float64", "float8_e5m2"])
def test_alpha_zero_reads_neither_a_nor_b(dtype):
    a = np.full((5, 8), np.inf).astype({"float8_e5m2": ml_dtypes.float8_e5m2}.get(dtype, dtype))
    b = np.full((8, 6), np.nan).astype(a.dtype)[:, ::-1]
    plan = wt.plan(a, b, alpha=0, **EMULATOR)
    assert plan.copies == ()
    assert np.array_equal(plan(a, b).astype(np.float64), np.zeros((5, 6)))
    c = np.full((5, 6), 3, plan(a, b).dtype)
    assert np.array_equal(wt.matmul(a, b, c, alpha=0, beta=2, **EMULATOR).astype(np.float64), np.full((5, 6), 6.0))
    assert np.isnan(wt.matmul(a, b, alpha=1, **EMULATOR).astype(np.float64)).all()


def test_a_zero_scale_is_a_zero_alpha():
    a, b = np.full((2, 4), np.nan, ml_dtypes.float8_e4m3fn), np.ones((4, 2), ml_dtypes.float8_e4m3fn)
    assert np.array_equal(wt.matmul(a, b, scale_a=0.0, **EMULATOR).astype(np.float32), np.zeros((2, 2)))
