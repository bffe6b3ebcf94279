"""`warptile.jax.matmul` and `warptile.matmul` in programs of JAX: the bits of eager calls, types, shapes, errors."""

import json
import os
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import warptile as wt

jax = pytest.importorskip("jax")

import warptile.jax  # noqa: E402
from warptile.arrays.xla_buffers import ProgramCall, StoredArray  # noqa: E402

TYPES = [
    np.float16, ml_dtypes.bfloat16, np.float32, np.int8, np.uint8, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
]  # fmt: skip


def drawn(*shape, dtype=np.float32, seed=0):
    generator = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return jax.numpy.asarray(generator.integers(0, 9, shape).astype(dtype))
    return jax.numpy.asarray(generator.standard_normal(shape).astype(dtype))


def same_bits(one, other):
    one, other = np.asarray(one), np.asarray(other)
    return (one.shape, one.dtype, one.tobytes()) == (other.shape, other.dtype, other.tobytes())


def programs_with(function, *arrays):
    """The custom calls of the compiled function, with the layouts of their operands."""
    text = jax.jit(function).lower(*arrays).compile().as_text()
    return re.findall(r'custom_call_target="warptile_matmul", operand_layout_constraints=\{(.*?)\}, api', text)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_a_program_gives_the_bits_of_an_eager_call(dtype):
    a, b = drawn(19, 40, dtype=dtype), drawn(40, 23, dtype=dtype, seed=1)
    expected = wt.matmul(a, b)
    for call in (warptile.jax.matmul, jax.jit(warptile.jax.matmul), jax.jit(wt.matmul)):
        found = call(a, b)
        assert isinstance(found, jax.Array)
        assert same_bits(found, expected)


@pytest.mark.parametrize("kind", ["element", "rows", "blocks"])
def test_scales_are_values_of_a_program(kind):
    m, n, k = 9, 140, 300
    a, b = (drawn(*shape, dtype=ml_dtypes.float8_e4m3fn) for shape in ((m, k), (k, n)))
    shapes = {"element": ((), (1,)), "rows": ((m,), (1, n)), "blocks": ((m, 3), (3, 2))}[kind]
    of_a, of_b = (jax.numpy.abs(drawn(*shape, seed=2)) + 0.5 for shape in shapes)

    def scaled(a, b, of_a, of_b):
        return wt.matmul(a, b, scale_a=of_a, scale_b=of_b, out_dtype="float32")

    expected = wt.matmul(*(np.asarray(each) for each in (a, b)), scale_a=np.asarray(of_a), scale_b=np.asarray(of_b),
                         out_dtype="float32", backend="emulator")  # fmt: skip
    found = jax.jit(scaled)(a, b, of_a, of_b)
    if kind == "element":  # numbers outside of a program, and a part of alpha
        assert np.allclose(found, expected, rtol=1e-6)
    else:
        assert same_bits(found, expected)
        both = jax.vmap(scaled, (None, None, 0, None))(a, b, jax.numpy.stack([of_a, 2 * of_a]), of_b)
        assert same_bits(both[0], found)
        assert np.allclose(both[1], 2 * found, rtol=1e-6)


def test_float64_where_jax_has_it():
    with jax.enable_x64(True):
        a, b = drawn(9, 12, dtype=np.float64), drawn(12, 7, dtype=np.float64)
        assert a.dtype == np.float64
        assert same_bits(jax.jit(wt.matmul)(a, b), wt.matmul(a, b))


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        (np.float16, {"out_dtype": "float32", "alpha": 0.5}),
        (np.float16, {"accumulate": "float16"}),
        (np.float16, {"out_dtype": jax.numpy.bfloat16, "rung": "mma-final"}),
        (np.float32, {"precision": "tf32"}),
        (np.float32, {"rung": "simt-naive", "config": {"BM": 8, "BN": 32}}),
        (ml_dtypes.float8_e4m3fn, {"scale_a": 0.5, "scale_b": np.float32(4)}),
        (np.int8, {"accumulate": "int32_saturating", "alpha": 3}),
        (np.float32, {"alpha": float("inf")}),
    ],
    ids=str,
)
def test_options_are_static_and_mean_the_same(dtype, options):
    a, b = drawn(16, 32, dtype=dtype), drawn(32, 24, dtype=dtype, seed=1)
    found = jax.jit(lambda a, b: warptile.jax.matmul(a, b, **options))(a, b)
    assert same_bits(found, wt.matmul(a, b, **options))


@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [
        ((7,), (7,)), ((7,), (7, 5)), ((3, 7), (7,)), ((2, 3, 7), (7, 5)), ((2, 1, 3, 7), (4, 7, 5)), ((7,), (2, 7, 5)),
        ((0, 7), (7, 5)), ((3, 0), (0, 5)), ((0,), (0,)), ((0, 3, 7), (7, 5)), ((1, 1), (1, 1)),
    ],
)  # fmt: skip
def test_shapes_are_those_of_eager_calls(a_shape, b_shape):
    a, b = drawn(*a_shape), drawn(*b_shape, seed=1)
    found = jax.jit(wt.matmul)(a, b)
    assert same_bits(found, np.asarray(wt.matmul(a, b)))
    assert jax.eval_shape(wt.matmul, a, b).shape == found.shape


@pytest.mark.parametrize(
    ("a_shape", "b_shape", "c_shape"),
    [
        ((6, 8), (8, 5), (6, 5)), ((6, 8), (8, 5), (5,)), ((6, 8), (8, 5), (6, 1)), ((6, 8), (8, 5), ()),
        ((2, 6, 8), (8, 5), (6, 5)), ((2, 6, 8), (8, 5), (2, 1, 1)), ((8,), (8, 5), (5,)), ((6, 8), (8,), (1,)),
        ((8,), (8,), ()), ((6, 0), (0, 5), (5,)), ((2, 8), (3, 8, 5), (3, 1, 5)),
    ],
)  # fmt: skip
def test_an_addend_is_broadcast(a_shape, b_shape, c_shape):
    a, b, c = drawn(*a_shape), drawn(*b_shape, seed=1), drawn(*c_shape, seed=2)
    found = jax.jit(lambda a, b, c: warptile.jax.matmul(a, b, c, alpha=2, beta=0.5))(a, b, c)
    assert same_bits(found, wt.matmul(a, b, c, alpha=2, beta=0.5))
    assert same_bits(jax.jit(wt.matmul)(a, b, c), wt.matmul(a, b, c))


def test_an_addend_that_is_not_read_is_not_passed():
    a, b, c = drawn(6, 8), drawn(8, 5), drawn(6, 5)
    [call] = programs_with(lambda a, b, c: wt.matmul(a, b, c, beta=0), a, b, c)
    assert call.count("f32") == 2


def test_numpy_arrays_are_constants_of_a_program():
    a, b = drawn(6, 8), drawn(8, 5)
    assert same_bits(jax.jit(lambda a: warptile.jax.matmul(a, np.asarray(b)))(a), wt.matmul(a, b))
    assert same_bits(jax.jit(lambda b: warptile.jax.matmul(np.asarray(a), b))(b), wt.matmul(a, b))
    with pytest.raises(wt.LayoutError, match="b is a NumPy array beside a JAX array that is being traced"):
        jax.jit(lambda a: wt.matmul(a, np.asarray(b)))(a)


def test_types_and_shapes_follow_without_running(monkeypatch):
    monkeypatch.setattr(warptile.jax.handlers, "on_host", lambda *given: pytest.fail("something ran"))
    a, b = (jax.ShapeDtypeStruct(shape, np.float16) for shape in ((4096, 4096), (3, 4096, 64)))
    found = jax.eval_shape(lambda a, b: wt.matmul(a, b, out_dtype="float32"), a, b)
    assert (found.shape, found.dtype) == ((3, 4096, 64), np.float32)


def test_many_calls_in_one_program():
    a, weights = drawn(4, 16, dtype=np.float16), [drawn(16, 16, dtype=np.float16, seed=seed) for seed in range(5)]

    def chain(x, weights):
        for w in weights:
            x = jax.numpy.tanh(wt.matmul(x, w))
        return x

    expected = a
    for w in weights:
        expected = jax.jit(jax.numpy.tanh)(wt.matmul(expected, w))
    assert same_bits(jax.jit(chain)(a, weights), expected)

    looped = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, each: wt.matmul(each, weights[0]), x))(a)
    expected = a
    for _ in range(3):
        expected = wt.matmul(expected, weights[0])
    assert same_bits(looped, expected)


def test_equal_calls_are_compiled_once():
    a, b = drawn(4, 8), drawn(8, 4)
    first = jax.jit(lambda a, b: wt.matmul(wt.matmul(a, b), wt.matmul(a, b)))
    assert len(programs_with(first, a, b)) == 2, "XLA drops the repeated one: it has no side effect"
    assert same_bits(first(a, b), wt.matmul(wt.matmul(a, b), wt.matmul(a, b)))


# --- what a program says of a call --------------------------------------------------------------------------------


def test_a_text_means_the_same_in_every_process():
    call = ProgramCall(
        (StoredArray("float16", (2, 4, 8)), StoredArray("float16", (8, 6), "col")),
        StoredArray("float32", (2, 4, 6)),
        {"alpha": float("inf"), "beta": 0, "config": [["BM", 8]], "rung": "simt-naive"},
    )
    other = ProgramCall.parsed(call.text().encode())
    assert (other.operands, other.result, other.options) == (call.operands, call.result, call.options)
    assert other.text() == call.text() == json.dumps(json.loads(call.text()), sort_keys=True)
    assert dict(other.keywords["config"]) == {"BM": 8}


def test_buffers_are_views_of_memory_by_rows_and_by_columns():
    memory = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    at = memory.ctypes.data
    by_rows, by_columns = StoredArray("float32", (2, 3, 4)), StoredArray("float32", (2, 4, 3), "col")
    assert np.array_equal(by_rows.numpy(at), memory)
    assert np.array_equal(by_columns.numpy(at), memory.swapaxes(1, 2))
    assert by_columns.view("a").strides == (12, 1, 4)
    by_rows.numpy(at)[1, 2, 3] = 7
    assert memory[1, 2, 3] == 7
    assert StoredArray("float32", (0, 3)).numpy(0).shape == (0, 3)


def test_views_at_known_addresses_are_made_once():
    square = StoredArray("float32", (4, 4))
    call = ProgramCall((square, square), square, {})
    assert call.at(0, 7, (16, 32, 48)) is call.at(0, 7, (16, 32, 48))
    a, b, c, d, _ = call.at(0, 7, (16, 32, 48))
    assert (a.pointer, b.pointer, c, d.pointer, d.stream, d.device) == (16, 32, None, 48, 7, 0)
    for address in range(1000):
        call.at(0, 7, (address, 0, 0))
    assert len(call.views) <= 64


def test_a_program_holds_the_whole_call():
    """None of it is a number in a table of the process that wrote it: JAX may keep it in its compilation cache."""
    a, b = drawn(4, 8), drawn(8, 4)
    text = jax.jit(lambda a, b: wt.matmul(a, b, alpha=2)).lower(a, b).as_text()
    said = re.search(r"call = \"(.*?)\"[,}]", text)
    assert said
    assert ProgramCall.parsed(said[1].replace("\\22", '"')).options["alpha"] == 2


IN_ANOTHER_PROCESS = """
import sys
import jax
import warptile.jax
from jax import export
warptile.jax.register_handlers()
found = export.deserialize(open(sys.argv[1], "rb").read()).call(jax.numpy.ones((4, 8)), jax.numpy.ones((8, 6)))
assert (found == 16).all(), found
"""


def test_an_exported_program_runs_in_another_process(tmp_path):
    pytest.importorskip("flatbuffers", reason="jax.export needs flatbuffers")
    from jax import export

    program = jax.jit(lambda a, b: wt.matmul(a, b, alpha=2))
    known = [export.DisabledSafetyCheck.custom_call("warptile_matmul")]
    shapes = [jax.ShapeDtypeStruct(shape, np.float32) for shape in ((4, 8), (8, 6))]
    (tmp_path / "program").write_bytes(export.export(program, disabled_checks=known)(*shapes).serialize())
    subprocess.run([sys.executable, "-c", IN_ANOTHER_PROCESS, str(tmp_path / "program")], check=True, timeout=120)


def test_programs_run_step_by_step_where_jit_is_disabled():
    a, b = drawn(4, 8), drawn(8, 4)
    with jax.disable_jit():
        found = jax.jit(lambda a, b: wt.matmul(a, b) + 0)(a, b)
        assert same_bits(warptile.jax.matmul(a, b), found)
    assert same_bits(found, wt.matmul(a, b))


IN_SEVERAL_DEVICES = """
import jax
import jax.numpy as jnp
import numpy as np
import warptile as wt
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

assert len(jax.devices()) == 2
a = jnp.asarray(np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32))
b = jnp.asarray(np.random.default_rng(1).standard_normal((8, 6)).astype(np.float32))
mesh = Mesh(np.array(jax.devices()), ("x",))


def mapped(matmul, a, b):
    return jax.shard_map(lambda a, b: matmul(a, b), mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x"))(a, b)


def loss(matmul, a, b):
    return (mapped(matmul, a, b) ** 2).sum()


assert np.allclose(mapped(wt.matmul, a, b), a @ b, atol=1e-5)
for one, other in zip(
    jax.grad(lambda a, b: loss(wt.matmul, a, b), argnums=(0, 1))(a, b),
    jax.grad(lambda a, b: loss(jnp.matmul, a, b), argnums=(0, 1))(a, b), strict=True,
):
    assert np.allclose(one, other, atol=1e-4)
split_k = jax.shard_map(
    lambda a, b: jax.lax.psum(wt.matmul(a, b), "x"), mesh=mesh, in_specs=(P(None, "x"), P("x")), out_specs=P()
)
assert np.allclose(split_k(a, b), a @ b, atol=1e-5)
assert np.allclose(jax.pmap(wt.matmul)(jnp.stack([a, a]), jnp.stack([b, b])), a @ b, atol=1e-5)
sharded = jax.device_put(a, NamedSharding(mesh, P("x")))
assert np.allclose(jax.jit(wt.matmul)(sharded, b), a @ b, atol=1e-5)
"""


def test_several_devices_multiply_each_their_part():
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    subprocess.run([sys.executable, "-c", IN_SEVERAL_DEVICES], check=True, timeout=120, env=environment)


# --- other platforms ------------------------------------------------------------------------------


def test_a_program_may_be_lowered_for_a_gpu_where_there_is_none():
    a, b = drawn(4, 8), drawn(8, 4)
    traced = jax.jit(wt.matmul).trace(a, b)
    assert "warptile_matmul" in traced.lower(lowering_platforms=("cuda",)).as_text()
    with pytest.raises(wt.UnsupportedError, match="compiled for tpu; warptile multiplies on NVIDIA GPUs"):
        traced.lower(lowering_platforms=("tpu",))
    with pytest.raises(wt.UnsupportedError, match="backend='emulator': this program runs on a GPU"):
        jax.jit(lambda a, b: wt.matmul(a, b, backend="emulator")).trace(a, b).lower(lowering_platforms=("cuda",))


# --- errors --------------------------------------------------------------------------------------------------------

A, B = jax.numpy.ones((4, 8), np.float32), jax.numpy.ones((8, 6), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda a: wt.matmul(a, a), wt.ShapeError, "the last axis of a"),
        (lambda a: wt.matmul(a, B.astype(np.float16)), wt.DTypeError, "both operands need one type"),
        (lambda a: wt.matmul(a, a[0, 0]), wt.ShapeError, "b: got a scalar"),
        (lambda a: wt.matmul(a, B, a), wt.ShapeError, "c: shape"),
        (lambda a: wt.matmul(a, B, beta=1), wt.ShapeError, "c: got None with beta=1"),
        (lambda a: wt.matmul(a, B, jax.numpy.ones((4, 6), np.float16)), wt.DTypeError, "c is float16"),
        (lambda a: wt.matmul(a, [[1.0] * 6] * 8), wt.DTypeError, "b: got list"),
        (
            lambda a: warptile.jax.matmul(a, np.asarray(B).astype(object)),
            wt.DTypeError,
            "b: got an array of Python objects",
        ),
        (lambda a: wt.matmul(a.astype("complex64"), B), wt.DTypeError, "complex"),
        (lambda a: wt.linear(a.astype("int32"), B.T.astype("int32")), wt.DTypeError, "got int32; matmul multiplies"),
        (lambda a: wt.matmul(a, B, out=a), wt.LayoutError, "out: JAX arrays cannot be written"),
        (lambda a: wt.matmul(a, B, alpha=a[0, 0]), wt.ArgumentTypeError, "alpha: got a value that JAX is tracing"),
        (lambda a: wt.matmul(a, B, B, beta=a[0, 0]), wt.ArgumentTypeError, "scale c instead"),
        (lambda a: wt.matmul(a, B, scale_a=2), wt.DTypeError, "scale_a: it is for operands of 8 bits"),
        (lambda a: wt.matmul(a, B, alpa=2), wt.ArgumentTypeError, "Did you mean 'alpha'"),
        (lambda a: warptile.jax.matmul(a, B, alpa=2), wt.ArgumentTypeError, "Did you mean 'alpha'"),
        (lambda a: wt.matmul(a, B, precision="high"), wt.DTypeError, "precision"),
        (lambda a: wt.matmul(a, B, max_sms=0), wt.ArgumentError, "max_sms"),
        (lambda a: wt.matmul(a, B, rung="wgmma"), wt.UnsupportedError, "Did you mean rung"),
        (lambda a: wt.matmul(a, B, rung="wgmma-final"), wt.UnsupportedError, "does not take this problem"),
        (lambda a: wt.matmul(a, B, backend="cuda"), wt.UnsupportedError, "backend: got 'cuda'"),
        (lambda a: wt.plan(a, B), wt.UnsupportedError, "a: got a value that JAX is tracing"),
        (lambda a: wt.matmul(wt.sparsify(np.asarray(A, np.float16)), a), wt.UnsupportedError, "a: got a SparseMatrix"),
        (
            lambda a: warptile.jax.matmul(a, wt.quantize(np.ones((6, 8), np.float32))),
            wt.UnsupportedError,
            r"b: got a QuantizedWeights; .* jax\.numpy\.asarray\(b\.dequantize\(\)\.T\)",
        ),
        (lambda a: warptile.jax.matmul(a, wt.split(np.asarray(B))), wt.UnsupportedError, r"asarray\(b\.matrix\)"),
        (lambda a: wt.sparsify(a), wt.UnsupportedError, "w: got a value that JAX is tracing"),
    ],
)
def test_what_is_wrong_is_said_when_the_function_is_compiled(call, error, words):
    with pytest.raises(error, match=words):
        jax.jit(call)(A)


def test_a_tensor_of_torch_is_told_how_to_come_along():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    with pytest.raises(wt.LayoutError, match=r"b is of torch .* give jax\.dlpack\.from_dlpack\(b\)"):
        jax.jit(lambda a: wt.matmul(a, torch.ones(8, 6)))(A)
    assert jax.jit(lambda a: wt.matmul(a, jax.dlpack.from_dlpack(torch.ones(8, 6))))(A).shape


def test_an_error_while_a_program_runs_is_xlas(monkeypatch):
    from warptile.jax import handlers

    monkeypatch.setattr(handlers.api, "matmul", lambda *given, **named: (_ for _ in ()).throw(ValueError("too bad")))
    a, b = drawn(5, 8), drawn(8, 6)
    with pytest.raises(Exception, match="ValueError: too bad"):
        jax.jit(lambda a, b: warptile.jax.matmul(a, b))(a, b).block_until_ready()


def test_results_of_8_bits_with_a_factor_and_the_largest_value():
    e4m3 = ml_dtypes.float8_e4m3fn
    a, b = drawn(40, 64, dtype=e4m3), drawn(64, 96, dtype=e4m3, seed=1)

    def call(a, b, factor):
        return warptile.jax.matmul(a, b, scale_a=0.5, scale_b=0.25, out_dtype="float8_e4m3", scale_d=factor, amax=True)

    d, largest = jax.jit(call)(a, b, jax.numpy.full(1, 2.0))
    exact = 0.125 * np.asarray(a, np.float64) @ np.asarray(b, np.float64)
    assert (d.dtype, d.shape, largest.shape) == (e4m3, (40, 96), ())
    assert float(largest) == pytest.approx(np.abs(exact).max(), rel=1e-3)
    off = np.abs(np.asarray(d, np.float64) - 2 * exact)
    assert (off <= 2 * np.abs(exact) / 16 + 2e-3).all()
