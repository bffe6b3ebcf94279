"""Repeated calls on CuPy, JAX and NumPy arrays on a GPU: right every time, in order with their frameworks' own work."""

import gc

import ml_dtypes
import numpy as np
import pytest

import warptile as wt
from warptile import api
from warptile.arrays.operands import arrange
from warptile.gpu import staging, stream_state, workspaces
from warptile.runtime import jax_calls
from warptile.runtime.cupy_calls import CupyCalls
from warptile.runtime.jax_calls import JaxCalls
from warptile.runtime.numpy_calls import NumpyCalls
from warptile.verify.reference import error_ratio, is_correct, reference

TYPES = [np.float16, np.float32, np.float64, np.int8, ml_dtypes.bfloat16]
SHAPES = [
    ((64, 64), (64, 64)),
    ((33, 65), (65, 31)),
    ((3, 40, 64), (64, 24)),
    ((16, 8192), (8192, 64)),
    ((64,), (64, 8)),
]


def drawn(*shape, dtype=np.float32, seed=0):
    generator = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "i":
        return generator.integers(-8, 9, shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


def assert_product(d, a, b):
    ratio = error_ratio(np.asarray(d), reference(arrange(a, b).problem, a, b))
    assert is_correct(ratio), ratio


def bound(kind):
    """The caches of `wt.matmul` for one framework, each of which has bound something."""
    return [cache for cache in api._calls.values() if type(cache) is kind and cache._bound]


@pytest.fixture
def cupy():
    return pytest.importorskip("cupy")


@pytest.fixture
def jax(monkeypatch):
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    found = pytest.importorskip("jax")
    if not any(each.platform == "gpu" for each in found.devices()):
        pytest.skip("this JAX has no CUDA")
    return found


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_cupy_calls_repeat(cupy, dtype, shapes):
    for seed in range(3):
        a, b = drawn(*shapes[0], dtype=dtype, seed=seed), drawn(*shapes[1], dtype=dtype, seed=seed + 9)
        try:
            on_gpu = cupy.asarray(a), cupy.asarray(b)
        except (TypeError, ValueError):
            pytest.skip(f"this CuPy has no {np.dtype(dtype)}")
        d = wt.matmul(*on_gpu)
        assert type(d) is cupy.ndarray
        assert_product(cupy.asnumpy(d), a, b)
    assert bound(CupyCalls)


def test_cupy_calls_are_queued_on_its_current_stream(cupy):
    a, b = drawn(512, 512), drawn(512, 512, seed=1)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        x, y = cupy.asarray(a), cupy.asarray(b)
        for _ in range(20):
            x = x * 1.0
            d = wt.matmul(x, y)
            d += 0
        stream.synchronize()
        assert_product(cupy.asnumpy(d), a, b)


def test_cupy_graphs_keep_their_workspaces_beyond_their_stream(cupy):
    a, b = drawn(16, 8192, dtype=np.float16), drawn(8192, 64, dtype=np.float16, seed=1)
    x, y, d = cupy.asarray(a), cupy.asarray(b), cupy.empty((16, 64), np.float16)
    wt.matmul(x, y, out=d)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        wt.matmul(x, y, out=d)
        stream.synchronize()
        stream.begin_capture()
        wt.matmul(x, y, out=d)
        graph = stream.end_capture()
    del stream
    gc.collect()
    workspaces.free()
    for _ in range(3):
        d.fill(0)
        graph.launch()
        cupy.cuda.get_current_stream().synchronize()
        assert_product(cupy.asnumpy(d), a, b)


def test_many_streams_share_workspaces(cupy, monkeypatch):
    monkeypatch.setattr(workspaces, "MOST_STREAMS", 2)
    a, b = drawn(16, 8192, dtype=np.float16), drawn(8192, 64, dtype=np.float16, seed=1)
    x, y = cupy.asarray(a), cupy.asarray(b)
    streams, results = [cupy.cuda.Stream(non_blocking=True) for _ in range(12)], []
    cupy.cuda.get_current_stream().synchronize()
    for _ in range(3):
        for stream in streams:
            with stream:
                results.append(wt.matmul(x, y))
    cupy.cuda.runtime.deviceSynchronize()
    for each in results:
        assert_product(cupy.asnumpy(each), a, b)


def test_the_native_state_of_a_stream_is_the_bindings_one(cupy):
    state = stream_state.state_function()
    one, other = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    assert state(one.ptr) == stream_state.asked(one.ptr) != state(other.ptr)
    assert state(0) == state(1) == stream_state.DEFAULT
    with one:
        one.begin_capture()
        captured = state(one.ptr)
        one.end_capture()
    assert captured == 2 * one.ptr + 1


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, ml_dtypes.bfloat16])
def test_jax_calls_repeat_on_the_gpu(jax, dtype, shapes):
    for seed in range(3):
        a, b = drawn(*shapes[0], dtype=dtype, seed=seed), drawn(*shapes[1], dtype=dtype, seed=seed + 9)
        on_gpu = jax.numpy.asarray(a), jax.numpy.asarray(b)
        d = wt.matmul(*on_gpu)
        assert isinstance(d, jax.Array)
        assert d.devices() == on_gpu[0].devices()
        assert_product(d, a, b)
    assert bound(JaxCalls)


def test_jax_calls_wait_for_producers_and_are_waited_for(jax):
    a, b = drawn(1024, 1024), drawn(1024, 1024, seed=1)
    x, y = jax.numpy.asarray(a), jax.numpy.asarray(b)
    wt.matmul(x, y)

    @jax.jit
    def slowly(x):
        return jax.lax.fori_loop(0, 50, lambda _, each: each @ y * 0 + x, x)

    for _ in range(10):
        operand = slowly(x)
        d = wt.matmul(operand, y)
        del operand  # XLA may use its memory again as soon as the product is done, not before
        busy = [slowly(x + 1) for _ in range(3)]
        assert_product(d * 1.0, a, b)
        del busy


def test_a_held_plan_on_jax_arrays_and_one_with_c(jax):
    a, b, c = drawn(64, 96), drawn(96, 64, seed=1), drawn(64, 64, seed=2)
    x, y, z = (jax.numpy.asarray(each) for each in (a, b, c))
    plan = wt.plan(x, y)
    for _ in range(3):
        assert_product(plan(x, y), a, b)
        d = np.asarray(wt.matmul(x, y, z))
        assert np.allclose(d, a @ b + c, atol=1e-3)
    del plan
    gc.collect()
    assert len(jax_calls._programs) >= 1


@pytest.mark.parametrize("shapes", [*SHAPES, ((700, 900), (900, 800))], ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_numpy_calls_repeat(dtype, shapes):
    for seed in range(3):
        a, b = drawn(*shapes[0], dtype=dtype, seed=seed), drawn(*shapes[1], dtype=dtype, seed=seed + 9)
        assert_product(wt.matmul(a, b, backend="gpu"), a, b)
    assert bound(NumpyCalls), api._calls
    staging.free()
    assert_product(wt.matmul(a, b, backend="gpu"), a, b)


def test_numpy_results_with_gaps_leave_them_alone():
    a, b = drawn(33, 64), drawn(64, 31, seed=1)
    wide = np.full((33, 40), 7, np.float32)
    for _ in range(3):
        wt.matmul(a, b, out=wide[:, 2:33], backend="gpu")
        assert_product(wide[:, 2:33], a, b)
        assert np.all(wide[:, :2] == 7)
        assert np.all(wide[:, 33:] == 7)
