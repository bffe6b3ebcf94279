"""Epilogues in programs of JAX: one custom call, JAX's derivatives, and what is refused while a function is traced."""

from functools import partial

import numpy as np
import pytest

import quick_products
import warptile as wt
from covering import ALL

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

import warptile.jax  # noqa: E402

gelu = partial(jax.nn.gelu, approximate=False)


@pytest.fixture
def made(monkeypatch):
    return quick_products.install(monkeypatch)


def drawn(*shape, dtype=np.float32, seed=0):
    return jnp.asarray(np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(dtype))


def custom_calls(function, *arrays):
    """Shapes of A and B of each matmul that a traced function has."""
    return [
        tuple(each.aval.shape for each in equation.invars[:2])
        for equation in jax.make_jaxpr(function)(*arrays).jaxpr.eqns
        if equation.primitive.name.startswith("warptile")
    ]


def agree(found, expected, tolerance=2e-5):
    one, other = jax.tree.leaves(found), jax.tree.leaves(expected)
    assert [each.shape for each in one] == [each.shape for each in other]
    for ours, theirs in zip(one, other, strict=True):
        np.testing.assert_allclose(np.float64(ours), np.float64(theirs), rtol=tolerance, atol=tolerance)


# --- values ---------------------------------------------------------------------------------------------------------


def two_outputs(acc, bias, res, s):
    return wt.gelu(acc + bias) * s + res, wt.cast(acc, "float32")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"] if ALL else ["bfloat16"])
def test_a_program_gives_the_bits_of_an_eager_call(dtype):
    a, b, bias = drawn(7, 16, dtype=dtype), drawn(16, 9, dtype=dtype), drawn(9, dtype=dtype)
    res, c = drawn(7, 1), drawn(7, 9, dtype=dtype)

    def call(a, b, c, bias, res, s):
        return wt.matmul(a, b, c, alpha=0.5, epilogue=two_outputs, bias=bias, res=res, s=s)

    arrays = a, b, c, bias, res
    assert len(custom_calls(lambda *each: call(*each, 2.0), *arrays)) == 1
    found = jax.jit(lambda *each: call(*each, 2.0))(*arrays)
    for ours, eager in zip(found, call(*arrays, 2.0), strict=True):
        assert ours.dtype == eager.dtype
        assert np.array_equal(ours, eager)
    scale = jnp.float32(2)  # read from memory: a value of the program
    assert np.array_equal(jax.jit(call)(*arrays, scale)[0], found[0])


def swiglu(acc, bias):
    gate, up = wt.halves(acc + bias)
    return wt.silu(gate) * up


CALLS = {
    "vectors": (lambda a, b, x: wt.matmul(a[0], b, epilogue=lambda acc, x: acc * x, x=x), lambda y, x: y[0] * x),
    "a column": (
        lambda a, b, x: wt.matmul(a, b[:, 0], epilogue=lambda acc, x: acc * x, x=x[:5]), lambda y, x: y[:, 0] * x[:5]
    ),
    "halves": (
        lambda a, b, x: wt.matmul(a, b, epilogue=swiglu, bias=x),
        lambda y, x: jax.nn.silu((y + x)[:, :3]) * (y + x)[:, 3:],
    ),
    "reductions": (
        lambda a, b, x: wt.matmul(
            a, b, x=x,
            epilogue=lambda acc, x: (acc, (acc * x).sum(axis=-1), abs(acc).max(axis=-2, keepdims=True), acc.min()),
        ),
        lambda y, x: (y, (y * x).sum(-1), abs(y).max(-2, keepdims=True), y.min()),
    ),
    "linear": (
        lambda a, b, x: wt.linear(a[None], b.T, x, epilogue=wt.relu), lambda y, x: jax.nn.relu(y + x)[None]
    ),
    "blocks": (
        lambda a, b, x: wt.matmul(a, b, epilogue=lambda acc, x: acc * wt.per_block(x, 4, 2), x=x.reshape(2, 3)),
        lambda y, x: y * jnp.repeat(jnp.repeat(x.reshape(2, 3), 4, 0)[:5], 2, 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_values_and_both_derivatives(made, name):
    ours, reference = CALLS[name]

    def theirs(a, b, x):
        return reference(jnp.matmul(a, b, precision="highest"), x)

    arrays = drawn(5, 8), drawn(8, 6, seed=1), drawn(6, seed=2)
    agree(jax.jit(ours)(*arrays), theirs(*arrays))
    directions = tuple(drawn(*each.shape, seed=3) for each in arrays)

    def derivatives(call):
        value, back = jax.vjp(call, *arrays)
        return jax.jvp(call, arrays, directions)[1], back(jax.tree.map(jnp.ones_like, value))

    agree(*(jax.jit(partial(derivatives, each))() for each in (ours, theirs)), 1e-4)


FUNCTIONS = {
    "extremes": (
        lambda acc, x: wt.maximum(acc, x) * wt.minimum(acc, 0.3), lambda y, x: jnp.maximum(y, x) * jnp.minimum(y, 0.3)
    ),
    "choice": (lambda acc, x: wt.where(acc > x, wt.exp(-acc), acc), lambda y, x: jnp.where(y > x, jnp.exp(-y), y)),
    "roots": (
        lambda acc, x: wt.sqrt(1 + acc * acc) / (2 + x * x) + wt.log(1 + abs(acc)),
        lambda y, x: jnp.sqrt(1 + y * y) / (2 + x * x) + jnp.log(1 + abs(y)),
    ),
    "sigmoids": (
        lambda acc, x: wt.tanh(acc) + wt.erf(x) * wt.sigmoid(acc) - wt.silu(acc),
        lambda y, x: jnp.tanh(y) + jax.scipy.special.erf(x) * jax.nn.sigmoid(y) - jax.nn.silu(y),
    ),
    "activations": (
        lambda acc, x: wt.gelu(acc) + wt.gelu(acc, "tanh") * x + wt.relu(acc),
        lambda y, x: gelu(y) + jax.nn.gelu(y) * x + jax.nn.relu(y),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivatives_are_jaxs_own(made, name):
    function, reference = FUNCTIONS[name]
    a, b, x = drawn(3, 4), drawn(4, 2, seed=1), drawn(2, seed=2)

    def ours(a, x):
        return wt.matmul(a, b, epilogue=function, x=x).sum()

    def theirs(a, x):
        return reference(jnp.matmul(a, b, precision="highest"), x).sum()

    found, expected = (jax.jit(jax.jacfwd(jax.grad(each, (0, 1)), (0, 1)))(a, x) for each in (ours, theirs))
    agree(found, expected, 1e-4)


def test_derivatives_on_the_emulator():
    a, b, bias = (drawn(*shape, dtype="bfloat16") for shape in ((5, 16), (16, 6), (6,)))

    def loss(call, a, b, bias):
        return call(a, b, bias).astype(jnp.float32).sum()

    found = jax.grad(partial(loss, lambda a, b, bias: wt.matmul(a, b, epilogue=swiglu, bias=bias)), (0, 1, 2))(
        a, b, bias
    )

    def plain(a, b, bias):
        y = jnp.matmul(a, b, preferred_element_type=jnp.float32) + bias
        return jax.nn.silu(y[:, :3]) * y[:, 3:]

    expected = jax.grad(partial(loss, plain), (0, 1, 2))(a, b, bias)
    assert [each.dtype for each in found] == [jnp.bfloat16] * 3
    agree(found, expected, 0.06)


def test_whole_numbers_casts_and_dropout(made):
    a, b = (jnp.asarray(np.random.default_rng(0).integers(-9, 9, shape), jnp.int8) for shape in ((4, 8), (8, 5)))

    def loss(scale):
        return wt.matmul(a, b, epilogue=lambda acc, s: (wt.cast(acc * s, "float16"), wt.cast(acc, "int32")), s=scale)[
            0
        ].sum()

    assert jax.grad(loss)(jnp.float32(0.5)).dtype == jnp.float32
    x, w = drawn(40, 8), drawn(8, 24)
    mask = wt.dropout_mask(5, (40, 24), 0.25) / 0.75
    dropped = jax.grad(lambda x: wt.matmul(x, w, epilogue=lambda acc, seed: wt.dropout(acc, 0.25, seed), seed=5).sum())
    agree(dropped(x), jax.grad(lambda x: ((x @ w) * mask).sum())(x))


# --- vmap and shard_map ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shapes", "dims"),
    [
        (((3, 5, 8), (8, 6), (6,)), (0, None, None)),
        (((3, 5, 8), (8, 6), (5, 1)), (0, None, None)),
        (((5, 8), (8, 6), (3, 6)), (None, None, 0)),
        (((5, 8), (8, 6, 3), (3,)), (None, 2, 0)),
        (((3, 8), (8, 6), (3, 6)), (0, None, 0)),
        (((3, 8), (2, 8, 6), (2, 6)), (0, None, None)),
        (((2, 5, 8), (3, 8), (3, 2, 5)), (None, 0, 0)),
    ],
    ids=str,
)
def test_vmap_is_one_call(made, shapes, dims):
    arrays = tuple(drawn(*shape, seed=seed) for seed, shape in enumerate(shapes))

    def ours(a, b, x):
        return wt.matmul(a, b, epilogue=lambda acc, x: wt.silu(acc + x) * x, x=x)

    def theirs(a, b, x):
        y = jnp.matmul(a, b, precision="highest")
        return jax.nn.silu(y + x) * x

    mapped, expected = jax.vmap(ours, dims), jax.vmap(theirs, dims)
    assert len(custom_calls(mapped, *arrays)) == 1
    agree(jax.jit(mapped)(*arrays), jax.jit(expected)(*arrays))

    def sums(call):
        return jax.jit(jax.vmap(jax.grad(lambda *each: call(*each).sum(), (0, 1, 2)), dims))

    agree(sums(ours)(*arrays), sums(theirs)(*arrays), 1e-4)


def test_examples_that_share_all_else_are_rows_of_one_matrix(made):
    x, w, bias = drawn(3, 5, 8), drawn(8, 6), drawn(6)
    mapped = jax.vmap(lambda x: wt.matmul(x, w, epilogue=lambda acc, b: wt.relu(acc + b), b=bias))
    assert custom_calls(mapped, x) == [((15, 8), (8, 6))]
    totals = jax.vmap(lambda x: wt.matmul(x, w, epilogue=lambda acc: (acc, acc.sum()))[1])(x)
    agree(totals, jnp.matmul(x, w, precision="highest").sum((1, 2)), 1e-4)


def test_a_part_for_each_device(made):
    from jax.sharding import Mesh, PartitionSpec

    mesh = Mesh(jax.devices()[:1], ("batch",))
    x, w, bias = drawn(6, 8), drawn(8, 4), drawn(4)
    rows, whole = PartitionSpec("batch"), PartitionSpec()

    def part(x, w, bias):
        return wt.matmul(x, w, epilogue=lambda acc, b: wt.silu(acc + b), b=bias)

    mapped = jax.shard_map(part, mesh=mesh, in_specs=(rows, whole, whole), out_specs=rows)
    agree(jax.jit(mapped)(x, w, bias), jax.nn.silu(x @ w + bias), 1e-4)
    gradient = jax.grad(lambda bias: mapped(x, w, bias).sum())(bias)
    agree(gradient, jax.grad(lambda bias: jax.nn.silu(x @ w + bias).sum())(bias), 1e-4)


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda a, b: wt.matmul(a, b, epilogue=lambda acc: acc if acc > 0 else 0), wt.EpilogueError, "no truth value"),
        (lambda a, b: wt.matmul(a, b, epilogue=lambda acc, x: acc + x), wt.EpilogueError, "give x="),
        (lambda a, b: wt.matmul(a, b, epilogue=wt.relu, x=1), wt.ArgumentTypeError, "'x'"),
        (lambda a, b: wt.matmul(a, b, epilogue=lambda acc, x: acc + x, x=a), wt.ShapeError, "x: shape"),
        (lambda a, b: wt.matmul(a, b, epilogue=lambda acc, x: acc + x, x=np.ones(5)), wt.LayoutError, "asarray"),
        (
            lambda a, b: wt.matmul(a, b, epilogue=lambda acc, s: wt.dropout(acc, 0.5, s), s=a.astype(int)[0, 0]),
            wt.EpilogueError, "a mask as an operand",
        ),
        (lambda a, b: wt.matmul(a[0], b, epilogue=lambda acc: (acc, acc.sum())), wt.EpilogueError, "is 1-D"),
        (lambda a, b: wt.matmul(a, b, epilogue=wt.relu, out=a), wt.LayoutError, "cannot be written"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_when_the_function_is_traced(call, error, words):
    with pytest.raises(error, match=words):
        jax.jit(call)(drawn(4, 8), drawn(8, 5))
