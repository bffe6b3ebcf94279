"""`warptile.jax.matmul` in programs of JAX on a GPU: results, derivatives, order with JAX's work, no host copies."""

import ml_dtypes
import numpy as np
import pytest

import warptile as wt
from warptile import api
from warptile.arrays.array_view import ArrayView
from warptile.arrays.operands import arrange
from warptile.verify.reference import error_ratio, is_correct, reference

TYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.int8, ml_dtypes.float8_e4m3fn]
SHAPES = [
    ((64, 64), (64, 64)),
    ((33, 65), (65, 31)),
    ((3, 40, 64), (64, 24)),
    ((3, 40, 64), (3, 64, 24)),
    ((16, 8192), (8192, 64)),
    ((64,), (64, 8)),
    ((0, 8), (8, 4)),
    ((4, 0), (0, 8)),
]


@pytest.fixture
def jax(monkeypatch):
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    found = pytest.importorskip("jax")
    if not any(each.platform == "gpu" for each in found.devices()):
        pytest.skip("this JAX has no CUDA")
    import warptile.jax  # noqa: F401

    return found


@pytest.fixture
def no_host_copies(jax, monkeypatch):
    """JAX refuses to bring arrays to the host, and no operand is staged."""
    from warptile.gpu import staging

    monkeypatch.setattr(staging, "area", lambda *given: pytest.fail("an operand went through host memory"))
    with jax.transfer_guard_device_to_host("disallow"):
        yield


def drawn(*shape, dtype=np.float32, seed=0):
    generator = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "i":
        return generator.integers(-8, 9, shape).astype(dtype)
    return generator.standard_normal(shape).astype(np.float32).astype(dtype)


def assert_product(d, a, b, **options):
    ratio = error_ratio(np.asarray(d), reference(arrange(a, b, **options).problem, a, b))
    assert is_correct(ratio), ratio


def bound_calls():
    """The cache of calls on XLA's buffers."""
    return api._calls[ArrayView]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_programs_multiply(jax, dtype, shapes):
    program = jax.jit(wt.matmul)
    for seed in range(3):
        a, b = drawn(*shapes[0], dtype=dtype, seed=seed), drawn(*shapes[1], dtype=dtype, seed=seed + 9)
        on_gpu = jax.numpy.asarray(a), jax.numpy.asarray(b)
        d = program(*on_gpu)
        assert d.devices() == on_gpu[0].devices()
        assert_product(d, a, b)
        eager = wt.matmul(*on_gpu)
        assert np.asarray(eager).tobytes() == np.asarray(d).tobytes(), "the same plan gives the same bits"


def test_later_runs_are_bound_and_nothing_goes_to_the_host(jax, no_host_copies, monkeypatch):
    a, b = jax.numpy.ones((256, 512), np.float16), jax.numpy.ones((512, 128), np.float16)
    program = jax.jit(lambda a, b: wt.matmul(a, b, alpha=0.5))
    program(a, b).block_until_ready()
    monkeypatch.setattr(api, "chosen_kernel", lambda *given: pytest.fail("planned again"))
    for _ in range(20):
        program(a, b).block_until_ready()
    assert bound_calls()._bound


def test_epilogues_are_bound_with_operands_and_outputs(jax, no_host_copies, monkeypatch):
    a, b, x = (jax.numpy.ones(shape, np.float16) for shape in ((256, 512), (512, 128), (128,)))
    scale = jax.numpy.float32(0.25)

    def call(a, b, x, s):
        return wt.matmul(a, b, alpha=0.5, epilogue=lambda acc, x, s: ((acc + x) * s, acc), x=x, s=s)

    program = jax.jit(call)
    jax.block_until_ready((program(a, b, x, scale), call(a, b, x, scale)))
    monkeypatch.setattr(api, "chosen_kernel", lambda *given: pytest.fail("planned again"))
    for function in (program, call):
        d, kept = function(a, b, x, scale)
        with jax.transfer_guard_device_to_host("allow"):
            assert (np.asarray(d) == 64.25).all()
            assert (np.asarray(kept) == 256).all()
    assert bound_calls()._fused


def test_options_and_an_addend(jax):
    a, b, c = drawn(64, 96, dtype=np.float16), drawn(96, 40, dtype=np.float16, seed=1), drawn(40, seed=2)
    x, y, z = (jax.numpy.asarray(each) for each in (a, b, c))
    options = {"alpha": 0.5, "beta": 2, "out_dtype": "float32"}
    d = jax.jit(lambda a, b, c: wt.matmul(a, b, c, **options))(x, y, z)
    expected = 0.5 * (a.astype(np.float64) @ b.astype(np.float64)) + 2 * c
    assert np.allclose(np.asarray(d), expected, atol=1e-3)


def test_many_calls_in_one_program_are_in_order(jax, no_host_copies):
    x = jax.numpy.asarray(drawn(32, 256, dtype=np.float16))
    weights = [jax.numpy.asarray(drawn(256, 256, dtype=np.float16, seed=seed) / 16) for seed in range(24)]

    def chain(matmul, x, weights):
        for w in weights:
            x = jax.numpy.tanh(matmul(x, w)) + x * 0.5
        return x

    ours, theirs = (jax.jit(lambda x, w, f=f: chain(f, x, w)) for f in (wt.matmul, jax.numpy.matmul))
    expected = theirs(x, weights)
    for _ in range(10):
        difference = jax.numpy.abs(ours(x, weights) - expected).max()
    with jax.transfer_guard_device_to_host("allow"):
        assert float(difference) < 0.05


def test_programs_wait_for_producers_and_are_waited_for(jax):
    a, b = drawn(1024, 1024), drawn(1024, 1024, seed=1)
    x, y = jax.numpy.asarray(a), jax.numpy.asarray(b)
    slowly = jax.jit(lambda x: jax.lax.fori_loop(0, 50, lambda _, each: each @ y * 0 + x, x))
    program = jax.jit(wt.matmul)
    for _ in range(10):
        operand = slowly(x)
        d = program(operand, y)
        del operand
        busy = [slowly(x + 1) for _ in range(3)]
        assert_product(d * 1.0, a, b)
        del busy


def test_a_loop_on_the_gpu(jax):
    w = jax.numpy.asarray(drawn(128, 128) / 12)
    x = jax.numpy.asarray(drawn(8, 128, seed=1))
    found = jax.jit(lambda x: jax.lax.fori_loop(0, 30, lambda _, each: wt.matmul(each, w), x))(x)
    expected = np.asarray(x, np.float64)
    for _ in range(30):
        expected = expected @ np.asarray(w, np.float64)
    assert np.allclose(np.asarray(found), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("dims", [(0, None), (None, 0), (0, 0), (1, 0)], ids=str)
@pytest.mark.parametrize("shapes", [((16, 64), (64, 24)), ((64,), (64, 24)), ((16, 64), (64,))], ids=str)
def test_vmap(jax, shapes, dims):
    def stacked(shape, dim, seed):
        each = drawn(*shape, seed=seed) if dim is None else np.moveaxis(drawn(5, *shape, seed=seed), 0, dim)
        return jax.numpy.asarray(np.ascontiguousarray(each))

    a, b = stacked(shapes[0], dims[0], 0), stacked(shapes[1], dims[1], 1)
    found = jax.jit(jax.vmap(wt.matmul, in_axes=dims))(a, b)
    with jax.default_matmul_precision("highest"):
        expected = jax.vmap(jax.numpy.matmul, in_axes=dims)(a, b)
    assert np.allclose(np.asarray(found), np.asarray(expected), atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32], ids=lambda dtype: np.dtype(dtype).name)
def test_gradients(jax, dtype, no_host_copies):
    x = jax.numpy.asarray(drawn(4, 64, 128, dtype=dtype))
    w = jax.numpy.asarray(drawn(128, 96, dtype=dtype, seed=1))

    def loss(matmul, x, w):
        return (jax.numpy.sin(matmul(x, w).astype("float32") / 8) ** 2).sum()

    with jax.default_matmul_precision("highest"):
        expected = jax.jit(jax.grad(lambda x, w: loss(jax.numpy.matmul, x, w), argnums=(0, 1)))(x, w)
    found = jax.jit(jax.grad(lambda x, w: loss(wt.matmul, x, w), argnums=(0, 1)))(x, w)
    rounding = {2: 0.03, 4: 1e-4}[np.dtype(dtype).itemsize]
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        one, other = one.astype("float32"), other.astype("float32")
        error = jax.numpy.abs(one - other).max() / jax.numpy.abs(other).max()
        with jax.transfer_guard_device_to_host("allow"):
            assert float(error) < rounding


def test_transposed_operands_of_gradients_are_not_copied(jax):
    a, b = (jax.numpy.ones((256, 256), np.float16) for _ in range(2))
    text = jax.jit(lambda a, b, ct: jax.vjp(wt.matmul, a, b)[1](ct)).lower(a, b, a).compile().as_text()
    assert text.count('custom_call_target="warptile_matmul"') == 2
    assert " transpose(" not in text
    assert "[256,256]{0,1}" in text


def test_second_derivatives(jax):
    a, b = jax.numpy.asarray(drawn(8, 16)), jax.numpy.asarray(drawn(16, 8, seed=1))

    def hessian_vector(matmul):
        gradient = jax.grad(lambda a: (matmul(a, b) ** 3).sum())
        return jax.jit(lambda a: jax.jvp(gradient, (a,), (a,))[1])(a)

    with jax.default_matmul_precision("highest"):
        expected = np.asarray(hessian_vector(jax.numpy.matmul))
    assert np.allclose(np.asarray(hessian_vector(wt.matmul)), expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


def test_arrays_from_dlpack_that_are_not_aligned(jax):
    torch = pytest.importorskip("torch")
    memory = torch.randn(64 * 64 + 1, device="cuda", dtype=torch.float16)
    x = jax.dlpack.from_dlpack(memory[1:].reshape(64, 64))
    aligned = jax.numpy.ones_like(x)
    for _ in range(3):  # bound calls look the same, but for where their arrays are
        wt.matmul(aligned, aligned)
    with pytest.raises(jax.errors.JaxRuntimeError, match="Address of buffer"):  # XLA takes none in a program
        np.asarray(jax.jit(wt.matmul)(x, x))
    assert_product(wt.matmul(x, x), np.asarray(x), np.asarray(x))


def test_a_training_step(jax):
    x = jax.numpy.asarray(drawn(128, 64, dtype=ml_dtypes.bfloat16))
    y = jax.numpy.asarray(drawn(128, 16, seed=5))
    weights = [jax.numpy.asarray(drawn(*shape, seed=seed) / 8) for seed, shape in enumerate(((64, 128), (128, 16)))]

    @jax.jit
    def step(weights):
        def loss(weights):
            first, second = (each.astype(x.dtype) for each in weights)
            hidden = jax.nn.gelu(wt.matmul(x, first))
            return ((wt.matmul(hidden, second, out_dtype="float32") - y) ** 2).mean()

        value, gradients = jax.value_and_grad(loss)(weights)
        return value, [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)]

    losses = []
    for _ in range(30):
        value, weights = step(weights)
        losses.append(float(value))
    assert losses[-1] < 0.9 * losses[0]


def test_the_emulator_is_refused_for_programs_on_a_gpu(jax):
    a = jax.numpy.ones((8, 8), np.float32)
    with pytest.raises(wt.UnsupportedError, match="this program runs on a GPU"):
        jax.jit(lambda a: wt.matmul(a, a, backend="emulator"))(a)
