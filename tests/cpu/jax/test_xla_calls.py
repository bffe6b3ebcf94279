"""Matmuls of programs on a GPU whose driver records launches (`stubbed_gpu`): what is bound, and when it is bound anew.

XLA's side is imitated: handlers are called as XLA calls them, with addresses of host memory."""

import numpy as np
import pytest

import warptile as wt
from stubbed_frameworks import BFLOAT16, aligned, describe, execute
from stubbed_gpu import StubbedGpu
from warptile import api
from warptile.arrays.xla_buffers import ProgramCall, ProgramEpilogue, StoredArray
from warptile.epilogue import program_text
from warptile.epilogue.tracing import trace
from warptile.runtime import xla_ffi
from warptile.runtime.xla_calls import XlaCalls

jax = pytest.importorskip("jax")

from warptile.jax import handlers  # noqa: E402

OPTIONS = {"alpha": 1, "beta": 0}


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(api, "_calls", {})
    monkeypatch.setattr(handlers, "_parsed", {})
    monkeypatch.delenv("WARPTILE_BACKEND", raising=False)
    return StubbedGpu().install(monkeypatch)


def text_of(*shapes, dtype="float16", output=None, majors=("row", "row", "row"), **options):
    """A matmul of a program; the last shape is the result's."""
    *operands, result = shapes
    stored = tuple(StoredArray(dtype, shape, major) for shape, major in zip(operands, majors, strict=False))
    return ProgramCall(stored, StoredArray(output or dtype, result), OPTIONS | options).text().encode()


def memory_of(text):
    """New memory for each buffer of a call."""
    call = ProgramCall.parsed(text)
    return [aligned(each.shape, np.float32) for each in (*call.operands, call.result)]


def run(text, arrays, *, stream=0x77, ordinal=0):
    *addresses, result = (each.ctypes.data for each in arrays)
    handlers.on_gpu(text, xla_ffi.XlaPlace(ordinal, stream), addresses, [result])


def check(gpu, launched, arrays, stream):
    spec = gpu.specs[launched.entry]
    names = "ABD" if len(arrays) == 3 else "ABCD"
    pointers = {name: each.ctypes.data for name, each in zip(names, arrays, strict=True)}
    assert (launched.grid, launched.block, launched.stream) == (spec.grid, spec.block, stream)
    assert launched.parameters == gpu.expect(spec, pointers)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_later_runs_launch_what_the_first_has_bound(gpu, dtype):
    text = text_of((64, 96), (96, 32), (64, 32), dtype=dtype)
    for number in range(3):
        arrays = memory_of(text)
        run(text, arrays, stream=0x100 + number)
        check(gpu, gpu.launches[-1], arrays, 0x100 + number)
    assert (len(gpu.launches), gpu.prepared, gpu.compiled) == (3, [], 1)
    [cache] = api._calls.values()
    assert (type(cache), len(cache._bound)) == (XlaCalls, 1)


def test_calls_with_an_epilogue_are_bound_with_all_their_outputs(gpu):
    program = trace(lambda acc, x, s: (wt.relu(acc) * s + x, wt.cast(acc, "float32")), {"x": 0, "s": 0})
    stored = [StoredArray("float16", shape) for shape in ((64, 96), (96, 32), (32,), (64, 32))]
    text = ProgramCall(
        tuple(stored[:3]), stored[3], OPTIONS, ProgramEpilogue(program_text.text_of(program), ("x",), (("s", 0.5),)),
        (StoredArray("float32", (64, 32)),),
    ).text().encode()  # fmt: skip
    for number in range(3):
        a, b, x, d = (aligned(each.shape, np.float16) for each in stored)
        further = aligned((64, 32), np.float32)
        place = xla_ffi.XlaPlace(0, 0x100 + number)
        handlers.on_gpu(text, place, [each.ctypes.data for each in (a, b, x)], [d.ctypes.data, further.ctypes.data])
    assert (len(gpu.launches), len(gpu.prepared), gpu.compiled) == (2, 1, 1)
    spec = gpu.specs[gpu.launches[-1].entry]
    pointers = {
        "A": a.ctypes.data, "B": b.ctypes.data, "D": d.ctypes.data, "epilogue operand x": x.ctypes.data,
        "epilogue output 1": further.ctypes.data,
    }  # fmt: skip
    assert gpu.launches[-1].parameters == gpu.expect(spec, pointers)
    assert gpu.launches[-1].stream == 0x102


def test_alignment_and_options_are_calls_of_their_own(gpu):
    text = text_of((64, 96), (96, 32), (64, 32))
    arrays = memory_of(text)
    run(text, arrays)
    shifted = [aligned((64, 96), np.float16, offset=2), *arrays[1:]]
    for _ in range(2):
        run(text, shifted)
        run(text_of((64, 96), (96, 32), (64, 32), alpha=2), arrays)
    [cache] = api._calls.values()
    assert len(cache._bound) == 3
    assert gpu.prepared == []


def test_a_configuration_is_bound_too(gpu):
    text = text_of((64, 96), (96, 32), (64, 32), dtype="float32", rung="simt-naive", config=[["BM", 8], ["BN", 32]])
    for _ in range(2):
        run(text, memory_of(text))
    assert (len(gpu.launches), gpu.prepared) == (2, [])


def test_addends_batches_and_columns(gpu):
    for text in (
        text_of((64, 96), (96, 32), (64, 32), (64, 32), beta=1),
        text_of((4, 64, 96), (96, 32), (64, 32), (4, 64, 32), beta=0.5),
        text_of((64, 96), (96, 32), (64, 32), majors=("col", "col")),
    ):
        before = len(gpu.launches)
        for _ in range(2):
            arrays = memory_of(text)
            run(text, arrays)
            check(gpu, gpu.launches[-1], arrays, 0x77)
        assert (len(gpu.launches) - before, gpu.prepared) == (2, [])


def test_empty_results_launch_nothing_and_empty_operands_are_not_read(gpu):
    handlers.on_gpu(text_of((0, 8), (8, 4), (0, 4)), xla_ffi.XlaPlace(0, 7), [0, 64], [0])
    assert gpu.launches == []
    text = text_of((4, 0), (0, 8), (4, 8))
    result = aligned((4, 8), np.float16)
    handlers.on_gpu(text, xla_ffi.XlaPlace(0, 7), [0, 0], [result.ctypes.data])
    assert len(gpu.launches) == 1


def test_the_real_frame_carries_the_text(gpu):
    handler = xla_ffi.handler(handlers.on_gpu, xla_ffi.place_of, xla_ffi.text)
    assert describe(handler) == (0, 3)
    text = text_of((64, 96), (96, 32), (64, 32), dtype="bfloat16")
    arrays = [aligned((64, 96), BFLOAT16), aligned((96, 32), BFLOAT16), aligned((64, 32), BFLOAT16)]
    *addresses, result = (each.ctypes.data for each in arrays)
    assert execute(handler, text, addresses, [result], stream=0x55) is None
    check(gpu, gpu.launches[-1], arrays, 0x55)
    gpu.status = 701
    assert "LAUNCH_OUT_OF_RESOURCES" in execute(handler, text, addresses, [result], stream=0x55)
    assert "ShapeError: a has shape" in execute(
        handler, text_of((64, 96), (95, 32), (64, 32)), addresses, [result], stream=0x55
    )


def test_a_program_for_a_gpu_asks_for_the_layouts_that_its_kernels_take(gpu):
    def layouts(dtype):
        a, b = jax.ShapeDtypeStruct((64, 96), dtype), jax.ShapeDtypeStruct((96, 32), dtype)
        ct = jax.ShapeDtypeStruct((64, 32), dtype)
        traced = jax.jit(lambda a, b, ct: jax.vjp(wt.matmul, a, b)[1](ct)).trace(a, b, ct)
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
        return [line.partition("operand_layouts = ")[2].partition(", result")[0] for line in text.splitlines()
                if "operand_layouts" in line]  # fmt: skip

    rows, columns = "dense<[1, 0]> : tensor<2xindex>", "dense<[0, 1]> : tensor<2xindex>"
    of_a, of_b = f"[{rows}, {columns}]", f"[{columns}, {rows}]"
    assert sorted(layouts(np.float16)) == sorted([of_a, of_b])
    assert sorted(layouts(np.float32)) == sorted([of_a, of_b]), "wgmma-split splits A of either layout"
    assert gpu.launches == []


def test_an_unusable_option_is_an_error_of_the_compilation(gpu):
    a, b = jax.ShapeDtypeStruct((64, 96), np.float32), jax.ShapeDtypeStruct((96, 32), np.float32)
    traced = jax.jit(lambda a, b: wt.matmul(a, b, rung="wgmma-final")).trace(a, b)
    with pytest.raises(wt.UnsupportedError, match="does not take this problem"):
        traced.lower(lowering_platforms=("cuda",))


def test_the_emulator_is_no_place_for_a_program_on_a_gpu(gpu, monkeypatch):
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")
    a, b = jax.ShapeDtypeStruct((64, 96), np.float32), jax.ShapeDtypeStruct((96, 32), np.float32)
    traced = jax.jit(wt.matmul).trace(a, b)
    with pytest.raises(wt.LayoutError, match=r"give jax\.device_put\(a, jax\.devices\('cpu'\)\[0\]\)"):
        traced.lower(lowering_platforms=("cuda",))


def test_a_jax_with_another_interface_is_told_so(monkeypatch):
    def refuse(*given, **named):
        raise ValueError("another version")

    monkeypatch.setattr(jax.ffi, "register_ffi_target", refuse)
    with pytest.raises(wt.UnsupportedError, match=r"handler \(another version\); it needs JAX 0\.9 or newer"):
        handlers.register.__wrapped__("cpu")
