"""The reference, its error bound, and checkers that must not be fooled."""

import ml_dtypes
import numpy as np
import pytest

from warptile.dtypes import DTYPES
from warptile.errors import UnsupportedError
from warptile.problem import Problem
from warptile.verify.reference import (
    GUARD_ELEMENTS,
    Reference,
    error_ratio,
    first_wrong,
    guarded,
    is_correct,
    random_operand,
    reference,
)


def problem(dtype, *, out=None, accumulator=None, m=13, n=7, k=97, with_c=False):
    element = DTYPES[dtype]
    return Problem.dense(
        m,
        n,
        k,
        element,
        out=DTYPES[out or dtype],
        accumulator=DTYPES[accumulator or element.accumulators[0]],
        with_c=with_c,
    )


def operands(what, seed=3):
    generator = np.random.default_rng(seed)
    return (
        random_operand((what.m, what.k), what.a.dtype, generator),
        random_operand((what.k, what.n), what.a.dtype, generator),
    )


def sequential(a, b, accumulate, rounded):
    """A dot product one product after the other, each sum through ``rounded``."""
    acc = np.zeros((a.shape[0], b.shape[1]), accumulate)
    for k in range(a.shape[1]):
        acc = rounded(acc.astype(np.float64) + np.outer(a[:, k].astype(np.float64), b[k].astype(np.float64)))
    return acc


def to_nearest32(x):
    return x.astype(np.float32)


def truncated32(x):
    """float64 to float32, rounded toward zero."""
    nearest = x.astype(np.float32)
    away = np.abs(nearest.astype(np.float64)) > np.abs(x)
    return np.where(away, np.nextafter(nearest, np.float32(0)), nearest)


@pytest.mark.parametrize("rounded", [to_nearest32, truncated32])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_float32_sum_is_within_the_bound(dtype, rounded):
    what = problem(dtype, out="float32")
    a, b = operands(what)
    ratio = error_ratio(sequential(a, b, np.float32, rounded), reference(what, a, b))
    assert 0 < ratio < 0.5


def test_a_float16_sum_is_within_its_own_bound_and_not_within_a_float32_one():
    half = problem("float16", accumulator="float16")
    a, b = operands(half)
    d = sequential(a, b, np.float16, lambda x: x.astype(np.float16))
    assert is_correct(error_ratio(d, reference(half, a, b)))
    assert not is_correct(error_ratio(d, reference(problem("float16"), a, b)))


def test_rounding_the_output_is_within_the_bound_and_not_within_a_wider_ones():
    what = problem("float16")
    a, b = operands(what)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert 0.1 < error_ratio(exact.astype(np.float16), reference(what, a, b)) <= 1
    assert error_ratio(exact.astype(np.float16), reference(problem("float16", out="float32"), a, b)) > 1


def test_tf32_inputs_are_allowed_their_rounding_and_float32_ones_are_not():
    what = problem("tfloat32", out="float32")
    a, b = operands(what)
    cut = [(x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for x in (a, b)]
    d = (cut[0].astype(np.float64) @ cut[1].astype(np.float64)).astype(np.float32)
    assert is_correct(error_ratio(d, reference(what, a, b)))
    assert not is_correct(error_ratio(d, reference(problem("float32"), a, b)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_one_missing_product_is_seen(dtype):
    what = problem(dtype, out="float32" if dtype in ("float16", "bfloat16") else dtype)
    a, b = operands(what)
    short = a[:, :-1].astype(np.float64) @ b[:-1].astype(np.float64)
    assert error_ratio(short.astype(what.d.dtype.numpy), reference(what, a, b)) > 1


def test_alpha_beta_and_c():
    what = problem("float32", with_c=True)
    a, b = operands(what)
    c = np.random.default_rng(1).standard_normal((what.m, what.n)).astype(np.float32)
    expected = reference(what, a, b, c, alpha=2.0, beta=-0.5)
    assert np.allclose(expected.d, 2 * (a.astype(np.float64) @ b) - 0.5 * c)
    c[:] = np.nan
    assert np.isfinite(reference(what, a, b, c, beta=0).d).all()
    assert np.isnan(reference(what, a, b, c, beta=1).d).all()


def test_integers_are_exact_and_wrap():
    what = problem("int8", out="int32")
    a, b = operands(what)
    exact = a.astype(np.int32) @ b.astype(np.int32)
    expected = reference(what, a, b)
    assert error_ratio(exact, expected) == 0
    exact[0, 0] += 1
    assert error_ratio(exact, expected) == float("inf")
    wrapped = reference(what, a, b, alpha=2**28)
    with np.errstate(over="ignore"):
        assert error_ratio((a.astype(np.int32) @ b.astype(np.int32)) * np.int32(2**28), wrapped) == 0


def of(*values, bound=1e-3, overflow=65504.0):
    d = np.array([values], np.float64)
    return Reference(d, np.full(d.shape, bound), overflow)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_wrong(value):
    assert error_ratio(np.array([[1.0, value]], np.float32), of(1.0, 2.0)) == float("inf")
    assert error_ratio(np.array([[1.0, 2.0]], np.float32), of(1.0, value)) == float("inf")
    assert error_ratio(np.array([[value, 2.0]], np.float32), of(value, 2.0)) == 0
    assert not is_correct(float("nan"))


def test_an_infinity_of_the_wrong_sign_is_wrong():
    assert error_ratio(np.array([[np.inf]]), of(-np.inf)) == float("inf")


def test_overflow_of_the_output_type_is_right():
    assert error_ratio(np.array([[np.inf, -np.inf]], np.float16), of(70000.0, -1e9)) == 0
    assert error_ratio(np.array([[-np.inf]], np.float16), of(70000.0)) == float("inf")
    assert error_ratio(np.array([[np.inf]], np.float16), of(60000.0)) == float("inf")


def test_shape_emptiness_and_a_bound_of_zero():
    assert error_ratio(np.zeros((1, 2)), of(0.0)) == float("inf")
    assert error_ratio(np.zeros((0, 4)), Reference(np.zeros((0, 4)), np.zeros((0, 4)), 1.0)) == 0
    assert error_ratio(np.zeros((1, 1)), of(0.0, bound=0.0)) == 0
    assert error_ratio(np.full((1, 1), 1e-30), of(0.0, bound=0.0)) == float("inf")


def test_the_first_wrong_element_is_named():
    expected = of(1.0, 2.0, 3.0)
    assert first_wrong(np.array([[1.0, 2.5, np.nan]]), expected) == ((0, 1), 2.5, 2.0)
    assert first_wrong(expected.d, expected) is None


def test_a_bound_that_promises_nothing_is_refused():
    what = problem("float32", k=4)
    a = np.broadcast_to(np.ones(1, np.float32), (1, 2**22))
    with pytest.raises(UnsupportedError, match="no bound holds"):
        reference(what, a, a.T)


@pytest.mark.parametrize("gap", [0, 5])
def test_guards_see_every_byte_outside_the_matrix(gap):
    band = guarded(3, 4, DTYPES["float16"], gap)
    assert np.isnan(band.matrix).all()
    band.matrix[...] = 1
    assert band.damage() is None
    band.memory[band.offset_bytes - 1] = 0
    assert band.damage() == "1 bytes before the first element"
    band = guarded(3, 4, DTYPES["float16"], gap)
    band.memory[band.offset_bytes + (2 * (4 + gap) + 4) * 2] = 0
    assert band.damage() == "row 2, 0 bytes behind its last element"
    assert band.memory.size == (2 * GUARD_ELEMENTS + 3 * (4 + gap)) * 2


def test_guards_see_a_write_into_a_gap():
    band = guarded(3, 4, DTYPES["float32"], 2)
    band.memory[band.offset_bytes + 24 + 4 * 4 + 3] = 0
    assert band.damage() == "row 1, 3 bytes behind its last element"


def test_random_integers_use_the_whole_type():
    drawn = random_operand((1000, 10), DTYPES["int8"], np.random.default_rng(0))
    assert (drawn.min(), drawn.max(), drawn.dtype) == (-128, 127, np.int8)
    assert random_operand((2, 2), DTYPES["bfloat16"], np.random.default_rng(0)).dtype == ml_dtypes.bfloat16


def test_saturating_sums_stop_at_the_ends_of_int32():
    what = problem("uint8", out="int32", accumulator="int32_saturating", m=2, n=1, k=40000)
    a = np.stack([np.full(40000, 255, np.uint8), np.ones(40000, np.uint8)])
    b = np.full((40000, 1), 255, np.uint8)
    assert reference(what, a, b).d.tolist() == [[2**31 - 1], [40000 * 255]]
    wrapping = problem("uint8", out="int32", m=2, n=1, k=40000)
    assert reference(wrapping, a, b).d[0, 0] == 40000 * 255 * 255 - 2**32


def test_bits_are_compared_by_xor_or_met_by_and():
    generator = np.random.default_rng(0)
    a, b = (random_operand(shape, DTYPES["bit1"], generator) for shape in ((3, 200), (200, 5)))
    different = (a[:, :, None] != b[None, :, :]).sum(axis=1)
    both = (a[:, :, None] & b[None, :, :]).sum(axis=1)
    assert np.array_equal(reference(problem("bit1", out="int32", accumulator="int32_xor"), a, b).d, different)
    assert np.array_equal(reference(problem("bit1", out="int32"), a, b).d, both)


@pytest.mark.parametrize("dtype", ["float8_e4m3", "float8_e5m2"])
@pytest.mark.parametrize("out", ["float32", "bfloat16", "float16"])
def test_float8_products_are_bound_by_accumulator_and_output(dtype, out):
    what = problem(dtype, out=out)
    a, b = operands(what)
    expected = reference(what, a, b)
    right = sequential(a, b, np.float32, truncated32).astype(ml_dtypes.bfloat16 if out == "bfloat16" else out)
    assert error_ratio(right, expected) <= 1
    wrong = right.copy()
    wrong[3, 2] += 0.5  # two-level accumulation of wgmma may be off by 0.06 here
    assert error_ratio(wrong, expected) > 1
    # Of another instruction the sums are not short.
    expected = reference(what, a, b, products_per_rounding=8)
    assert error_ratio(right, expected) <= 1
    wrong = right.copy()
    wrong[3, 2] *= 1 + 8 * DTYPES[out].unit_roundoff
    wrong[3, 2] += 1e-3
    assert error_ratio(wrong, expected) > 1


@pytest.mark.parametrize(("name", "low", "high"), [("int4", -8, 7), ("uint4", 0, 15), ("bit1", 0, 1)])
def test_narrow_integers_use_the_whole_type(name, low, high):
    drawn = random_operand((1000, 10), DTYPES[name], np.random.default_rng(0))
    assert (drawn.min(), drawn.max(), drawn.dtype) == (low, high, np.int8)
