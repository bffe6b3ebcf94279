"""``vmap`` and derivatives of `warptile.jax.matmul`: one matmul each, with the values of JAX's own."""

from functools import partial

import ml_dtypes
import numpy as np
import pytest

import warptile as wt

jax = pytest.importorskip("jax")

import warptile.jax  # noqa: E402

SHAPES = [
    ((5, 8), (8, 6)), ((8,), (8, 6)), ((5, 8), (8,)), ((8,), (8,)), ((2, 5, 8), (8, 6)), ((2, 5, 8), (2, 8, 6)),
    ((5, 8), (2, 8, 6)), ((3, 1, 5, 8), (2, 8, 6)), ((1, 5, 8), (2, 8, 6)), ((2, 5, 8), (8,)), ((8,), (2, 8, 6)),
]  # fmt: skip


def drawn(*shape, dtype=np.float32, seed=0):
    return jax.numpy.asarray(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


def matmuls_in(function, *arrays):
    """Shapes of A and B of each matmul that a traced function has; no loop may be around them."""
    found = []
    for equation in jax.make_jaxpr(function)(*arrays).jaxpr.eqns:
        assert equation.primitive.name not in ("scan", "while", "dot_general")
        if equation.primitive.name == "warptile_matmul":
            found.append(tuple(each.aval.shape for each in equation.invars))
    return found


# --- vmap -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dims", [(0, None), (None, 0), (0, 0), (1, 0), (-1, -1)], ids=str)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_vmap_is_one_matmul(shapes, dims):
    def stacked(shape, dim, seed):
        if dim is None:
            return drawn(*shape, seed=seed)
        return jax.numpy.moveaxis(drawn(3, *shape, seed=seed), 0, dim)

    a, b = stacked(shapes[0], dims[0], 0), stacked(shapes[1], dims[1], 1)
    mapped = jax.vmap(warptile.jax.matmul, in_axes=dims)
    assert len(matmuls_in(mapped, a, b)) == 1
    expected = jax.vmap(jax.numpy.matmul, in_axes=dims)(a, b)
    found = jax.jit(mapped)(a, b)
    assert found.shape == expected.shape
    assert np.allclose(found, expected, atol=1e-5)


def test_examples_that_share_an_operand_are_rows_or_columns_of_one_matrix():
    x, w, v = drawn(3, 5, 8), drawn(8, 6), drawn(3, 8)
    assert matmuls_in(jax.vmap(lambda x: wt.matmul(x, w)), x) == [((15, 8), (8, 6))]
    assert matmuls_in(jax.vmap(lambda v: wt.matmul(v, w)), v) == [((3, 8), (8, 6))]
    assert matmuls_in(jax.vmap(lambda v: wt.matmul(w.T, v)), v) == [((6, 8), (8, 3))]
    assert matmuls_in(jax.vmap(lambda x: wt.matmul(x, w)), x[None, :, 0])


@pytest.mark.parametrize("dims", [(0, None, 0), (None, None, 0), (0, 0, None), (0, None, None), (None, 0, 1)], ids=str)
@pytest.mark.parametrize("shapes", [((5, 8), (8, 6)), ((8,), (8, 6)), ((5, 8), (8,)), ((2, 5, 8), (8, 6))], ids=str)
def test_vmap_takes_an_addend(shapes, dims):
    result = jax.numpy.matmul(jax.numpy.zeros(shapes[0]), jax.numpy.zeros(shapes[1])).shape
    operands = []
    for seed, (shape, dim) in enumerate(zip((*shapes, result), dims, strict=True)):
        each = drawn(*shape, seed=seed) if dim is None else jax.numpy.moveaxis(drawn(3, *shape, seed=seed), 0, dim)
        operands.append(each)
    mapped = jax.vmap(partial(warptile.jax.matmul, alpha=0.5, beta=2), in_axes=dims)
    expected = jax.vmap(lambda a, b, c: 0.5 * (a @ b) + 2 * c, in_axes=dims)(*operands)
    assert np.allclose(jax.jit(mapped)(*operands), expected, atol=1e-5)


def test_vmap_of_vmap():
    a, b = drawn(2, 3, 5, 8), drawn(3, 8, 6)
    found = jax.vmap(jax.vmap(wt.matmul), in_axes=(0, None))(a, b)
    assert np.allclose(found, a @ b, atol=1e-5)


# --- derivatives ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_gradients_are_jaxs_own(shapes):
    a, b = drawn(*shapes[0]), drawn(*shapes[1], seed=1)

    def loss(matmul, a, b):
        return (jax.numpy.sin(matmul(a, b)) ** 2).sum()

    found = jax.jit(jax.grad(partial(loss, partial(wt.matmul, alpha=0.5)), argnums=(0, 1)))(a, b)
    expected = jax.grad(partial(loss, lambda a, b: 0.5 * (a @ b)), argnums=(0, 1))(a, b)
    for one, other in zip(found, expected, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert np.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("shapes", [SHAPES[0], SHAPES[2], SHAPES[4], SHAPES[7]], ids=str)
def test_second_derivatives_are_jaxs_own_in_both_modes(shapes):
    a, b = drawn(*shapes[0]), drawn(*shapes[1], seed=1)
    c = drawn(*(a @ b).shape, seed=2)
    directions = tuple(drawn(*each.shape, seed=3) for each in (a, b, c))

    def loss(fused, a, b, c):
        return jax.numpy.sin(fused(a, b, c)).sum()

    def seconds(fused, *operands):
        gradient = jax.grad(partial(loss, fused), argnums=(0, 1, 2))
        forward_over_reverse = jax.jvp(gradient, operands, directions)[1]
        slope = lambda *operands: jax.jvp(partial(loss, fused), operands, directions)[1]  # noqa: E731
        return forward_over_reverse, jax.grad(slope, argnums=(0, 1, 2))(*operands)

    found = jax.jit(partial(seconds, partial(warptile.jax.matmul, alpha=0.5, beta=-2)))(a, b, c)
    expected = jax.jit(partial(seconds, lambda a, b, c: 0.5 * (a @ b) - 2 * c))(a, b, c)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.allclose(one, other, atol=2e-4, rtol=1e-4)


def test_derivatives_agree_with_differences():
    from jax.test_util import check_grads

    a, b = drawn(2, 3), drawn(3, 2, seed=1)
    check_grads(jax.jit(wt.matmul), (a, b), order=1, modes=("fwd", "rev"), atol=1e-2, rtol=1e-2)


def test_an_addend_that_is_broadcast_gets_the_sum():
    a, b, bias = drawn(5, 8), drawn(8, 6), drawn(6)
    found = jax.grad(lambda bias: wt.matmul(a, b, bias, beta=3).sum())(bias)
    assert np.allclose(found, 3 * 5 * np.ones(6))
    only_c = jax.jvp(lambda bias: wt.matmul(a, b, bias), (bias,), (bias,))[1]
    assert np.allclose(only_c, np.broadcast_to(bias, (5, 6)))


def test_forward_and_reverse_are_matmuls_of_warptile():
    a, b = drawn(5, 8), drawn(8, 6)
    assert len(matmuls_in(lambda a, b: jax.jvp(wt.matmul, (a, b), (a, b)), a, b)) == 3
    fused = matmuls_in(lambda a, b: jax.jvp(wt.matmul, (a, b), (a, b)), a, b)[-1]
    assert len(fused) == 3, "the second term is added to the first by the matmul itself"
    assert len(matmuls_in(lambda a, b: jax.vjp(wt.matmul, a, b)[1](jax.numpy.ones((5, 6))), a, b)) == 3


def test_weights_that_a_batch_shares_get_one_matmul():
    x, w = drawn(4, 5, 8), drawn(8, 6)
    gradient = jax.grad(lambda w: wt.matmul(x, w).sum())
    assert matmuls_in(gradient, w)[-1] == ((8, 20), (20, 6))
    assert np.allclose(gradient(w), jax.grad(lambda w: (x @ w).sum())(w), atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("output", [None, "float32"])
def test_gradients_have_the_type_of_what_is_differentiated(dtype, output):
    a, b = drawn(2, 5, 8, dtype=dtype), drawn(8, 6, dtype=dtype, seed=1)

    def loss(a, b):
        return wt.matmul(a, b, out_dtype=output).astype("float32").sum()

    of_a, of_b = jax.jit(jax.grad(loss, argnums=(0, 1)))(a, b)
    assert (of_a.dtype, of_b.dtype) == (a.dtype, b.dtype)
    wide = [np.asarray(each, np.float32) for each in (a, b)]
    assert np.allclose(np.asarray(of_a, np.float32), np.broadcast_to(wide[1].sum(1), a.shape), rtol=0.02, atol=0.05)
    assert np.allclose(
        np.asarray(of_b, np.float32), np.broadcast_to(wide[0].sum((0, 1))[:, None], b.shape), rtol=0.02, atol=0.05
    )


def test_transposed_operands_of_gradients_are_read_where_they_are():
    a, b = drawn(16, 32, dtype=np.float16), drawn(32, 24, dtype=np.float16, seed=1)
    ct = drawn(16, 24, dtype=np.float16, seed=2)
    text = jax.jit(lambda a, b, ct: jax.vjp(wt.matmul, a, b)[1](ct)).lower(a, b, ct).compile().as_text()
    assert text.count('custom_call_target="warptile_matmul"') == 2
    assert "operand_layout_constraints={f16[16,24]{1,0}, f16[24,32]{0,1}}" in text
    assert "operand_layout_constraints={f16[32,16]{0,1}, f16[16,24]{1,0}}" in text
    assert " copy(" not in text
    assert " transpose(" not in text


def test_gradients_of_float8_are_multiplied_in_bfloat16():
    a, b = drawn(8, 32, dtype=ml_dtypes.float8_e4m3fn), drawn(32, 16, dtype=ml_dtypes.float8_e4m3fn, seed=1)
    of_a = jax.grad(lambda a: wt.matmul(a, b, scale_a=0.5, accumulate="float16").astype("float32").sum())(a)
    assert of_a.dtype == a.dtype
    expected = np.broadcast_to(0.5 * np.asarray(b, np.float32).sum(1), (8, 32))
    assert np.allclose(np.asarray(of_a, np.float32), expected, rtol=0.07, atol=0.05)


def test_integers_have_no_gradient_and_do_not_hinder_others():
    a, b = drawn(4, 8).astype("int8"), drawn(8, 4).astype("int8")

    def loss(scale):
        return (wt.matmul(a, b).astype("float32") * scale).sum()

    assert np.isfinite(jax.grad(loss)(2.0))
    tangent = jax.jvp(wt.matmul, (a, b), tuple(np.zeros(each.shape, jax.dtypes.float0) for each in (a, b)))[1]
    assert tangent.dtype == jax.dtypes.float0


def test_a_named_kernel_is_not_asked_for_derivatives():
    a, b = drawn(16, 32, dtype=np.float16), drawn(32, 24, dtype=np.float16)
    gradient = jax.grad(lambda a: wt.matmul(a, b, rung="wmma-naive").astype("float32").sum())
    assert gradient(a).shape == a.shape


def test_checkpointed_and_scanned_layers_are_differentiated():
    x, weights = drawn(4, 8), drawn(3, 8, 8, seed=1) / 3

    def loss(matmul, weights):
        layer = jax.checkpoint(lambda x, w: (jax.numpy.tanh(matmul(x, w)), None))
        return jax.lax.scan(layer, x, weights)[0].sum()

    found = jax.jit(jax.grad(partial(loss, wt.matmul)))(weights)
    assert np.allclose(found, jax.grad(partial(loss, jax.numpy.matmul))(weights), atol=1e-5)


def test_hessians():
    with jax.enable_x64(True):
        a, b = drawn(2, 3, dtype=np.float64), drawn(3, 2, dtype=np.float64)
        found = jax.hessian(lambda a: (wt.matmul(a, b) ** 2).sum())(a)
        expected = jax.hessian(lambda a: ((a @ b) ** 2).sum())(a)
        assert np.allclose(found, expected)
