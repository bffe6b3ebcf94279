"""Bound calls of CuPy, JAX, NumPy and arrays with ``__cuda_array_interface__``: what reaches the driver, and when a
call goes the long way. CuPy, JAX and Numba are imitated (`stubbed_frameworks`), as the real ones need a GPU."""

import ctypes
import gc
import sys
import types

import numpy as np
import pytest

import warptile as wt
from stubbed_frameworks import BFLOAT16, DeviceArray, aligned, describe, execute, stubbed_cupy, stubbed_jax
from stubbed_gpu import StubbedGpu
from warptile import api
from warptile.arrays import jax_arrays
from warptile.gpu import staging
from warptile.runtime import jax_calls, online_tuning, trials, xla_ffi


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(api, "_calls", {})
    monkeypatch.delenv("WARPTILE_BACKEND", raising=False)
    return StubbedGpu().install(monkeypatch)


@pytest.fixture
def cupy(monkeypatch, gpu):
    return stubbed_cupy(monkeypatch)


@pytest.fixture
def jax(monkeypatch, gpu):
    made = stubbed_jax(monkeypatch)
    for cached in (jax_calls._registered, jax_calls._refusal):
        cached.cache_clear()
    yield made
    for cached in (jax_calls._registered, jax_calls._refusal):
        cached.cache_clear()


def check(gpu, launched, a, b, c, d, stream):
    """A launch is what its spec says, with these addresses."""
    spec = gpu.specs[launched.entry]
    assert (launched.grid, launched.block, launched.stream) == (spec.grid, spec.block, stream)
    pointers = {"A": a, "B": b, "D": d} | ({} if c is None else {"C": c})
    assert launched.parameters == gpu.expect(spec, pointers)


# --- CuPy ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.float32, np.float16, BFLOAT16, np.float64])
def test_cupy_calls_repeat_without_planning(gpu, cupy, kind):
    for number in range(3):
        a, b = cupy.ndarray((64, 96), kind), cupy.ndarray((96, 32), kind)
        cupy.stream = 0x100 + number
        d = wt.matmul(a, b)
        assert type(d) is cupy.ndarray
        assert d.shape == (64, 32)
        check(gpu, gpu.launches[-1], a.data.ptr, b.data.ptr, None, d.data.ptr, cupy.stream)
    assert (len(gpu.launches), gpu.prepared, gpu.compiled) == (3, [], 1)
    assert cupy.made == 9, "one allocation a result, from CuPy's pool"


def test_cupy_out_and_c_are_those_of_each_call(gpu, cupy):
    for _ in range(2):
        a, b, c, out = (cupy.ndarray((64, 64)) for _ in range(4))
        assert wt.matmul(a, b, c, out=out) is out
        check(gpu, gpu.launches[-1], a.data.ptr, b.data.ptr, c.data.ptr, out.data.ptr, cupy.stream)
        assert wt.matmul(a, b, c, out=c) is c
    assert (len(gpu.launches), gpu.prepared) == (4, [])
    a = cupy.ndarray((64, 64))
    assert wt.matmul(a, b, c, out=a) is a
    assert len(gpu.prepared) == 1, "a is an operand: the result is made apart"
    assert len(cupy.assigned) == 1


def test_cupy_calls_with_an_epilogue_repeat_without_planning(gpu, cupy):
    for number in range(3):
        a, b, x = cupy.ndarray((64, 96)), cupy.ndarray((96, 32)), cupy.ndarray((32,))
        cupy.stream = 0x100 + number
        d, kept = wt.matmul(a, b, epilogue=lambda acc, x, s: (wt.relu(acc) * s + x, acc), x=x, s=0.5)
    assert (type(d), d.shape, kept.shape) == (cupy.ndarray, (64, 32), (64, 32))
    assert (len(gpu.launches), len(gpu.prepared), gpu.compiled) == (2, 1, 1)
    spec = gpu.specs[gpu.launches[-1].entry]
    pointers = {
        "A": a.data.ptr, "B": b.data.ptr, "D": d.data.ptr, "epilogue operand x": x.data.ptr,
        "epilogue output 1": kept.data.ptr,
    }  # fmt: skip
    assert gpu.launches[-1].parameters == gpu.expect(spec, pointers)
    assert gpu.launches[-1].stream == cupy.stream
    wide, beside = cupy.ndarray((64, 64)), cupy.ndarray((64, 64))
    for _ in range(2):
        wt.matmul(wide, wide, epilogue=lambda acc, x: acc + x, x=beside, out=beside)  # read where it is written
        wt.matmul(wide, wide, epilogue=lambda acc, x: acc + x, x=beside, out=wide)
    assert len(gpu.launches) == 3


def test_cupy_calls_with_an_epilogue_and_a_configuration_repeat_without_planning(gpu, cupy):
    a, b = cupy.ndarray((64, 96)), cupy.ndarray((96, 32))
    config = dict(wt.plan(a, b, rung="simt-naive").plan.config)
    for _ in range(3):
        wt.matmul(a, b, epilogue=wt.relu, rung="simt-naive", config=dict(config))
    assert (len(gpu.launches), len(gpu.prepared), gpu.compiled) == (2, 1, 1)


def test_cupy_calls_with_scales_and_with_two_outs_repeat_without_planning(gpu, cupy):
    for _ in range(3):
        a, rows = cupy.ndarray((64, 96), np.int8), cupy.ndarray((64, 1))
        b = cupy.ndarray((), memory=aligned((32, 96), np.int8).T)
        d = wt.matmul(a, b, scale_a=rows)
    assert len(gpu.launches) == 2
    spec = gpu.specs[gpu.launches[-1].entry]
    pointers = {"A": a.data.ptr, "B": b.data.ptr, "D": d.data.ptr, "epilogue operand scale_of_a": rows.data.ptr}
    assert gpu.launches[-1].parameters == gpu.expect(spec, pointers)

    def both(acc):
        return wt.relu(acc), acc

    for _ in range(3):
        a, b, d, other = (cupy.ndarray((64, 64)) for _ in range(4))
        assert wt.matmul(a, b, epilogue=both, out=(d, other))[1] is other
    assert len(gpu.launches) == 4
    spec = gpu.specs[gpu.launches[-1].entry]
    pointers = {"A": a.data.ptr, "B": b.data.ptr, "D": d.data.ptr, "epilogue output 1": other.data.ptr}
    assert gpu.launches[-1].parameters == gpu.expect(spec, pointers)
    with pytest.raises(wt.LayoutError, match=r"out\[1\]: it shares memory with"):
        wt.matmul(a, b, epilogue=both, out=(d, d))


def test_cupy_arrays_on_another_device_than_the_current_one_take_the_long_way(gpu, cupy, monkeypatch):
    a, b = cupy.ndarray((64, 64)), cupy.ndarray((64, 64))
    wt.matmul(a, b)
    cupy.current = 1
    d = wt.matmul(a, b)
    assert (d.device.id, len(gpu.launches), len(gpu.prepared), cupy.current) == (0, 1, 1, 1)


def test_cupy_strides_and_alignment_are_a_part_of_what_arrays_say(gpu, cupy):
    wide, b = cupy.ndarray((64, 136), np.float16), cupy.ndarray((128, 64), np.float16)
    for start in (0, 1, 0, 1):
        a = cupy.ndarray((), memory=wide.array[:, start : start + 128])
        wt.matmul(a, b)
    entries = [each.entry for each in gpu.launches if "A" in gpu.specs[each.entry].operands]
    assert len(set(entries)) == 2
    assert gpu.prepared == []


def test_cupy_bad_input_gets_the_errors_of_the_long_way(gpu, cupy):
    a = cupy.ndarray((64, 64))
    wt.matmul(a, a)
    with pytest.raises(wt.ShapeError):
        wt.matmul(a, cupy.ndarray((32, 64)))
    with pytest.raises(wt.DTypeError):
        wt.matmul(a, cupy.ndarray((64, 64), np.float16))
    with pytest.raises(wt.LayoutError, match="one place"):
        wt.matmul(a, np.ones((64, 64), np.float32))
    with pytest.raises(wt.DTypeError):
        wt.matmul(a, "b")
    with pytest.raises(wt.ArgumentTypeError, match="Did you mean"):
        wt.matmul(a, a, alpa=2)
    gpu.status = 701
    with pytest.raises(wt.DeviceError, match="LAUNCH_OUT_OF_RESOURCES"):
        wt.matmul(a, a)


def test_a_held_plan_on_cupy_arrays_is_bound(gpu, cupy):
    a, b = cupy.ndarray((64, 64)), cupy.ndarray((64, 64))
    plan = wt.plan(a, b, alpha=2)
    for _ in range(3):
        d = plan(a, b)
        check(gpu, gpu.launches[-1], a.data.ptr, b.data.ptr, None, d.data.ptr, cupy.stream)
    assert gpu.prepared == []
    with pytest.raises(wt.ShapeError, match="this plan is for"):
        plan(a, cupy.ndarray((64, 32)))


# --- __cuda_array_interface__ ----------------------------------------------------------------------------------------


def test_arrays_with_the_interface_alone_are_bound_with_out(gpu):
    for number in range(3):
        a, b, c = (DeviceArray((64, 64)) for _ in range(3))
        out = DeviceArray((64, 64), stream=0x40 + number)
        assert wt.matmul(a, b, out=out) is out
        check(gpu, gpu.launches[-1], a.data_ptr(), b.data_ptr(), None, out.data_ptr(), 0x40 + number)
    for number in range(3):
        a, b, c = (DeviceArray((64, 64)) for _ in range(3))
        out = DeviceArray((64, 64), stream=0x40 + number)
        assert wt.matmul(a, b, c, out=out) is out
        check(gpu, gpu.launches[-1], a.data_ptr(), b.data_ptr(), c.data_ptr(), out.data_ptr(), 0x40 + number)
    assert (len(gpu.launches), gpu.prepared) == (6, [])
    with pytest.raises(wt.UnsupportedError, match="give out="):
        wt.matmul(a, b)
    with pytest.raises(wt.LayoutError):
        wt.matmul(a, b, out=DeviceArray((64, 64), read_only=True))
    with pytest.raises(wt.LayoutError, match="one place"):
        wt.matmul(a, np.ones((64, 64), np.float32), out=out)


# --- NumPy -----------------------------------------------------------------------------------------------------------


def ways(gpu):
    return [each[0] for each in gpu.copies]


def test_small_numpy_operands_cross_the_bus_once_in_each_direction(gpu):
    a, b = np.ones((64, 64), np.float16), np.ones((64, 64), np.float16)
    for _ in range(3):
        gpu.copies.clear()
        d = wt.matmul(a, b)
        assert (type(d), d.shape, d.dtype) == (np.ndarray, (64, 64), np.float16)
        assert ways(gpu) == ["in", "out", "wait"]
        (_, device, _, size, stream), out, wait = gpu.copies
        assert size == 2 * a.nbytes
        assert gpu.launches[-1].stream == stream == out[-1] == wait[1]
        check(gpu, gpu.launches[-1], device, device + a.nbytes, None, device + 2 * a.nbytes, stream)
    assert (len(gpu.launches), gpu.prepared) == (3, [])
    (kept,) = staging._KEPT[0]
    assert kept._device.address == device
    staging.free()
    assert staging._KEPT[0] == []


def test_large_numpy_operands_are_copied_from_where_they_are(gpu):
    a, b = np.ones((512, 1024), np.float32), np.ones((1024, 64), np.float32)
    for _ in range(2):
        gpu.copies.clear()
        d = wt.matmul(a, b)
        assert ways(gpu) == ["in", "in", "out", "wait"]
        assert [each[2] for each in gpu.copies[:2]] == [a.ctypes.data, b.ctypes.data]
        assert gpu.copies[2][1] == d.ctypes.data


def test_numpy_results_between_gaps_leave_the_gaps_alone(gpu):
    a, b = np.ones((32, 64), np.float32), np.ones((64, 32), np.float32)
    wide = np.full((32, 48), 7, np.float32)
    for _ in range(2):
        gpu.copies.clear()
        assert wt.matmul(a, b, out=wide[:, :32]).base is wide
        assert gpu.copies[0][3] == a.nbytes + b.nbytes + wide[:, :32].nbytes + 31 * 16 * 4
        assert np.all(wide == 7), "nothing was computed"
    fixed = np.zeros((32, 32), np.float32)
    fixed.flags.writeable = False
    with pytest.raises(wt.LayoutError):
        wt.matmul(a, b, out=fixed)


def test_numpy_scalars_and_addresses_keep_their_meaning(gpu):
    memory = aligned((65,), np.float32)
    for start in (0, 1, 0, 1):
        v = memory[start : start + 64]
        found = wt.matmul(v, v)
        assert isinstance(found, np.float32)
        device, spec = gpu.copies[-3][1], gpu.specs[gpu.launches[-1].entry]
        spans, _ = staging.layout([(v.ctypes.data, 0, v.nbytes)] * 2 + [(0, 0, 0), (found.nbytes, 0, 4)])
        at_a, at_b, _, at_d = (device + each.start for each in spans)
        assert at_a % 16 == at_b % 16 == v.ctypes.data % 16
        assert gpu.launches[-1].parameters == gpu.expect(spec, {"A": at_a, "B": at_b, "D": at_d - found.nbytes})
    assert gpu.prepared == []


def test_memory_that_one_call_needs_beyond_what_is_kept_is_given_back(gpu, monkeypatch):
    monkeypatch.setattr(staging, "KEPT_BYTES", 1 << 20)
    a = np.ones((512, 1024), np.float32)
    wt.matmul(a, a.T)
    (kept,) = staging._KEPT[0]
    assert kept._device is None


def test_areas_are_borrowed_by_one_call_at_a_time(gpu, monkeypatch):
    monkeypatch.setattr(staging, "MOST_AREAS", 1)
    with staging.area(0) as one, staging.area(0) as other:
        assert one is not other
    assert len(staging._KEPT[0]) == 1
    with pytest.raises(ValueError, match="lost"), staging.area(0):
        raise ValueError("lost")
    assert staging._KEPT[0] == []


def test_a_refused_launch_of_numpy_operands_is_an_error(gpu):
    a = np.ones((64, 64), np.float32)
    wt.matmul(a, a)
    gpu.status = 701
    with pytest.raises(wt.DeviceError, match="LAUNCH_OUT_OF_RESOURCES"):
        wt.matmul(a, a)


# --- JAX -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.float32, BFLOAT16])
def test_jax_calls_are_launched_by_xla_on_its_stream(gpu, jax, kind):
    for number in range(3):
        a, b = jax.Array((64, 96), kind), jax.Array((96, 32), kind)
        jax.stream = 0x100 + number
        d = wt.matmul(a, b)
        assert (type(d), d.shape, d.dtype) == (jax.Array, (64, 32), np.dtype(kind))
        check(
            gpu, gpu.launches[-1], a.unsafe_buffer_pointer(), b.unsafe_buffer_pointer(), None,
            d.unsafe_buffer_pointer(), jax.stream,
        )  # fmt: skip
    assert (len(gpu.launches), gpu.prepared, jax.programs, jax.hosted) == (3, [], 1, 0)


def test_jax_takes_c_and_a_held_plan(gpu, jax):
    a, b, c = (jax.Array((64, 64)) for _ in range(3))
    plain, scaled = wt.plan(a, b), wt.plan(a, b, alpha=2)
    for _ in range(2):
        wt.matmul(a, b, c)
        assert c.unsafe_buffer_pointer().to_bytes(8, "little") in b"".join(gpu.launches[-1].parameters)
        one, other = plain(a, b), scaled(a, b)
        assert one.shape == other.shape == (64, 64)
    assert (len(gpu.launches), jax.programs, jax.hosted, gpu.prepared) == (6, 3, 0, [])
    before = len(jax_calls._programs)
    del plain, scaled
    gc.collect()
    assert len(jax_calls._programs) == before, "XLA may still have to call them"
    jax_calls._last_run.clear()
    gc.collect()
    assert len(jax_calls._programs) == before - 2, "plans take their programs along"


def test_jax_arrays_that_are_not_on_one_gpu_go_through_the_host(gpu, jax):
    a, b = jax.Array((64, 64)), jax.Array((64, 64))
    wt.matmul(a, b)
    for place in (jax.Sharding("cpu"), jax.Sharding(memory_kind="pinned_host"), jax.Sharding(ordinal=1)):
        hosted = jax.hosted
        assert wt.matmul(a, jax.Array((64, 64), place=place)).shape == (64, 64)
        assert jax.hosted > hosted
    with pytest.raises(wt.LayoutError, match="a is a JAX array and b is a NumPy array"):
        wt.matmul(a, np.ones((64, 64), np.float32))
    assert len(gpu.launches) == 1


def test_jax_programs_that_xla_runs_elsewhere_go_through_the_host(gpu, jax):
    a, b = jax.Array((64, 64)), jax.Array((64, 64))
    wt.matmul(a, b)
    jax.runs_on = 1
    assert wt.matmul(a, b).shape == (64, 64)
    assert (len(gpu.launches), jax.hosted > 0) == (1, True)
    jax.runs_on = 0
    unaligned = jax.Array((64, 64), memory=aligned((64, 64), np.float32, offset=4))
    assert wt.matmul(unaligned, b).shape == (64, 64)
    assert len(gpu.launches) == 1


def test_tracers_go_to_the_matmul_that_jax_transforms(gpu, jax, monkeypatch):
    class Tracer(jax.Array):
        __module__ = "jax._src.core"

        @property
        def sharding(self):
            raise AttributeError("a tracer has no sharding")

        sharding = sharding.setter(lambda self, place: None)

    traced = types.ModuleType("warptile.jax.traced_matmul")
    traced.matmul = lambda *operands, **options: (operands, options)
    monkeypatch.setitem(sys.modules, "warptile.jax", types.ModuleType("warptile.jax"))
    monkeypatch.setitem(sys.modules, "warptile.jax.traced_matmul", traced)
    a, b, tracer = jax.Array((64, 64)), np.ones((64, 64), np.float32), Tracer((64, 64))
    for operands in ((tracer, tracer), (a, tracer), (tracer, a), (a, a, tracer)):
        given, options = wt.matmul(*operands, alpha=2, max_sms=8)
        assert given[: len(operands)] == operands
        assert (options["alpha"], options["max_sms"], options["beta"]) == (2, 8, None)
    with pytest.raises(wt.LayoutError, match="out: JAX arrays cannot be written"):
        wt.matmul(a, tracer, out=a)
    with pytest.raises(wt.LayoutError, match=r"b is a NumPy array beside .* jax\.numpy\.asarray\(b\)"):
        wt.matmul(tracer, b)
    with pytest.raises(wt.UnsupportedError, match="a: got a value that JAX is tracing"):
        wt.plan(tracer, tracer)


def test_a_jax_that_refuses_the_handler_goes_through_the_host(gpu, jax, monkeypatch, caplog):
    def refuse(*given, **named):
        raise ValueError("another version")

    monkeypatch.setattr(jax.ffi, "register_ffi_target", refuse)
    for _ in range(2):
        assert wt.matmul(jax.Array((64, 64)), jax.Array((64, 64))).shape == (64, 64)
    assert (gpu.launches, jax.hosted > 0) == ([], True)
    assert [each.message for each in caplog.records].count(
        "JAX arrays go through host memory (its foreign function interface: another version)"
    ) == 1


def test_jax_errors_are_those_of_the_long_way(gpu, jax):
    a, b = jax.Array((64, 64)), jax.Array((64, 64))
    wt.matmul(a, b)
    with pytest.raises(wt.ShapeError):
        wt.matmul(a, jax.Array((32, 64)))
    with pytest.raises(wt.LayoutError, match="out"):
        wt.matmul(a, b, out=jax.Array((64, 64)))
    gpu.status = 701
    with pytest.raises(wt.DeviceError, match="LAUNCH_OUT_OF_RESOURCES"):
        wt.matmul(a, b)


def test_a_handler_says_what_it_is_and_turns_exceptions_into_errors():
    seen = []

    def call(number, place, arguments, results):
        seen.append((number, place, arguments, results))
        if number == 9:
            raise ValueError("nine")

    handler = xla_ffi.handler(call)
    assert describe(handler) == (0, 3)
    assert "version 0" in describe(handler, (1, 0))
    assert execute(handler, 5, [16, 32], [48], stream=7, ordinal=1) is None
    assert seen == [(5, xla_ffi.XlaPlace(1, 7), [16, 32], [48])]
    assert execute(handler, 5, [], [], stage=0) is None
    assert len(seen) == 1, "only executing launches"
    assert execute(handler, 9, [], []) == "ValueError: nine"
    assert execute(handler, 5, [], [], stream=None) == "XLA's own error 0xbad"


def test_the_real_jax_calls_the_handler():
    jax = pytest.importorskip("jax")
    pytest.importorskip("jax.ffi")

    def call(number, place, arguments, results):
        ctypes.memmove(results[0], arguments[number], 16)

    handler = xla_ffi.handler(call, lambda frame: xla_ffi.XlaPlace(0, 0))
    jax.ffi.register_ffi_target("warptile_test", jax.ffi.pycapsule(handler), platform="cpu")
    target = jax.ffi.ffi_call("warptile_test", jax.ShapeDtypeStruct((2, 2), np.float32))
    first, second = (jax.numpy.full((2, 2), value, np.float32) for value in (1, 2))
    for number, expected in ((0, 1), (1, 2)):
        found = jax.jit(lambda *given, number=number: target(*given, call=np.int64(number)))(first, second)
        assert np.all(np.asarray(found) == expected)


def test_the_real_jax_runs_bound_calls(gpu, monkeypatch):
    """On JAX's CPU client, which has no stream: all else is as on a GPU."""
    jax = pytest.importorskip("jax")
    pytest.importorskip("jax.ffi")
    real = xla_ffi.handler
    monkeypatch.setattr(jax_calls, "PLATFORM", "cpu")
    monkeypatch.setattr(jax_arrays, "ordinal_of", lambda array: 0)
    monkeypatch.setattr(xla_ffi, "handler", lambda call: real(call, lambda frame: xla_ffi.XlaPlace(0, 7)))
    for cached in (jax_calls._registered, jax_calls._refusal):
        cached.cache_clear()
    a = jax.numpy.ones((64, 64), np.float16)
    plan = wt.plan(a, a)
    for call in (wt.matmul, plan):
        for _ in range(2):
            d = call(a, a).block_until_ready()
            check(
                gpu, gpu.launches[-1], a.unsafe_buffer_pointer(), a.unsafe_buffer_pointer(), None,
                d.unsafe_buffer_pointer(), 7,
            )  # fmt: skip
    assert (len(gpu.launches), gpu.prepared) == (4, [])
    gpu.status = 701
    with pytest.raises(wt.DeviceError, match="LAUNCH_OUT_OF_RESOURCES"):
        wt.matmul(a, a).block_until_ready()
    jax_calls._refusal.cache_clear()


# --- tuning in the running program -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["cupy", "jax", "interface"])
def test_calls_of_every_framework_try_configurations(gpu, monkeypatch, tmp_path, request, kind):
    monkeypatch.setenv("WARPTILE_AUTOTUNE", "on")
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path))
    online_tuning.forget()
    if kind == "cupy":
        cupy = request.getfixturevalue("cupy")
        operands, options = [cupy.ndarray((512, 512), np.float16) for _ in range(2)], {}
    elif kind == "jax":
        jax = request.getfixturevalue("jax")
        operands, options = [jax.Array((512, 512), np.float16) for _ in range(2)], {}
    else:
        operands = [DeviceArray((512, 512), np.float16) for _ in range(2)]
        options = {"out": DeviceArray((512, 512), np.float16)}
    wt.matmul(*operands, **options)
    [tuning] = online_tuning._under_way.values()
    tuning._compiled.result(30)
    for _ in range((1 + trials.LOOKS[0]) * trials.MOST_TRIALS + 1):
        wt.matmul(*operands, **options)
    assert tuning._settled.done()
    assert len(gpu.recorded) == 2 * (1 + trials.LOOKS[0]) * len(tuning._trials.tried)
    before = len(gpu.launches)
    wt.matmul(*operands, **options)
    assert (len(gpu.launches) - before, len(gpu.recorded)) == (1, 2 * (1 + trials.LOOKS[0]) * len(tuning._trials.tried))
    online_tuning.forget()
