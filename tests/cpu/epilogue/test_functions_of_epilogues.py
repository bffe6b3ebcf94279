"""The functions of epilogues: accuracy on the emulator over a range and at special values; NumPy's side; Philox."""

import math

import numpy as np
import pytest

import warptile as wt
from warptile.epilogue.operations import OPERATIONS
from warptile.epilogue.philox import blocks

INF, NAN = math.inf, math.nan
SPECIAL = (0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 1e-30, -1e-30, 88.0, -88.0, 200.0, -200.0, 1e30, -1e30)

RELATIVE = {
    "exp": 2e-7, "log": 3e-7, "sqrt": 1e-7, "tanh": 3e-7, "erf": 3e-7, "sigmoid": 1e-6, "silu": 1e-6, "gelu": 2e-6,
    "gelu_tanh": 2e-6,
}  # fmt: skip
"""Largest relative error where the result is a normal number; x within 20."""


def of(function, x, dtype):
    """The function of each element of ``x``, by a kernel: the product is x times the identity of one element."""
    a, b = x.astype(dtype).reshape(-1, 1), np.ones((1, 1), dtype)
    return wt.matmul(a, b, epilogue=function, backend="emulator", rung="simt-naive").reshape(-1)


FUNCTIONS = {
    "exp": wt.exp, "log": wt.log, "sqrt": wt.sqrt, "tanh": wt.tanh, "erf": wt.erf, "sigmoid": wt.sigmoid,
    "silu": wt.silu, "gelu": wt.gelu, "gelu_tanh": lambda x: wt.gelu(x, "tanh"),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_accuracy(name, dtype):
    x = np.linspace(-9, 20, 1501)
    if name in ("log", "sqrt"):
        x = np.abs(x) + 1e-3
    x = x.astype(dtype).astype(np.float64)
    found, exact = of(FUNCTIONS[name], x, dtype).astype(np.float64), OPERATIONS[name].reference(x)
    error = np.abs(found - exact) / np.maximum(np.abs(exact), 1e-30)
    error /= 1 + x * x / 16  # an exponential loses as many bits as its argument has before the point
    assert error.max() <= (RELATIVE[name] if dtype == "float32" else 1e-13), x[error.argmax()]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name):
    """Infinities and NaN give what the limit is; nothing else becomes NaN."""
    x = np.array(SPECIAL)
    with np.errstate(all="ignore"):
        exact = OPERATIONS[name].reference(x.astype(np.float32).astype(np.float64))
    found = of(FUNCTIONS[name], x, "float32").astype(np.float64)
    with np.errstate(over="ignore"):
        exact = exact.astype(np.float32).astype(np.float64)
    assert np.array_equal(np.isnan(found), np.isnan(exact)), list(zip(x, found, exact, strict=True))
    with np.errstate(invalid="ignore"):
        same = np.isnan(exact) | (found == exact) | (np.abs(found - exact) <= 1e-5 * np.abs(exact) + 1e-30)
    assert same.all(), [(x[i], found[i], exact[i]) for i in np.flatnonzero(~same)]


@pytest.mark.parametrize(
    ("function", "reference"),
    [
        (lambda x: wt.minimum(x, 0.5), lambda x: np.minimum(x, 0.5)),
        (lambda x: wt.maximum(0.5, x), lambda x: np.maximum(0.5, x)),
        (lambda x: wt.clamp(x, -1, 1), lambda x: np.clip(x, -1, 1)),
        (wt.relu, lambda x: np.where(x < 0, 0, x)),
        (abs, np.abs),
        (lambda x: -x, np.negative),
        (lambda x: 1 / x, lambda x: 1 / x),
        (lambda x: x**3, lambda x: x * x * x),
        (lambda x: x**-2.0, lambda x: 1 / (x * x)),
        (
            lambda x: np.where(x > 0, np.clip(x, 0.5, 2), wt.abs(x)),
            lambda x: np.where(x > 0, np.clip(x, 0.5, 2), abs(x)),
        ),
        (lambda x: wt.where(x == x, x, 7.0), lambda x: np.where(x == x, x, 7.0)),
        (lambda x: wt.where((x < 1) | (x != x), 1, 0), lambda x: ((x < 1) | (x != x)) * 1.0),
        (lambda x: np.maximum(np.exp(np.minimum(x, 1.0)), x), lambda x: np.maximum(np.exp(np.minimum(x, 1.0)), x)),
        (lambda x: x * 1e39, lambda x: x * np.float32(np.inf)),
    ],
)
def test_nan_and_infinity_as_numpy_has_them(function, reference):
    x = np.array([each for each in SPECIAL if str(each) != "-0.0"], np.float32)  # a sum is never -0
    with np.errstate(all="ignore"):
        exact = reference(x).astype(np.float32)
    found = of(function, x, "float32")
    assert np.allclose(found, exact, rtol=3e-7, atol=0, equal_nan=True), list(zip(x, found, exact, strict=True))


def test_a_cast_rounds_in_between():
    x = np.linspace(-3, 3, 301)
    found = of(lambda v: wt.cast(wt.cast(v * 1.1, "bfloat16") * 3, "float32"), x, "float32")
    import ml_dtypes

    once = (x.astype(np.float32) * np.float32(1.1)).astype(ml_dtypes.bfloat16).astype(np.float32)
    assert np.array_equal(found, once * 3)


def test_philox_agrees_with_its_known_answers():
    """Random123's kat_vectors for philox4x32-10."""
    counters = np.array([[0, 0, 0, 0], [0xFFFFFFFF] * 4, [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]], np.uint32)
    keys = (0, 2**64 - 1, 0x299F31D0A4093822)
    answers = (
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    )
    for counter, key, answer in zip(counters, keys, answers, strict=True):
        assert tuple(blocks(counter, key)) == answer


def test_a_mask_has_the_share_that_it_should():
    mask = wt.dropout_mask(3, (500, 401), 0.25)
    assert mask.shape == (500, 401)
    assert abs(mask.mean() - 0.75) < 4 * math.sqrt(0.25 * 0.75 / mask.size)
    assert wt.dropout_mask(3, (4, 4), 0).all()


@pytest.mark.parametrize("name", ["int8", "uint8", "int32"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_cast_to_integers_stops_at_their_ends(name, dtype):
    values = [-3e9, -300, -129, -128.9, -1.7, -0.5, 0.9, 1.5, 127.9, 128, 255.9, 256, 501, 3e9, np.inf, -np.inf]
    x = np.array(values, dtype).reshape(1, -1)
    _, found = wt.matmul(x[:, :0], x[:0], epilogue=lambda acc, x: (acc, wt.cast(x, name)), x=x, backend="emulator")
    limits = np.iinfo(name)
    exact = [int(np.clip(np.trunc(v), limits.min, limits.max)) for v in x[0].astype(float)]
    assert found.dtype.name == name
    assert found[0].tolist() == exact
    assert wt.cast(x[0], name).tolist() == exact


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: wt.gelu("x"), wt.ArgumentTypeError, "gelu: got 'x'; outside of epilogues it takes real numbers"),
        (
            lambda: wt.relu(None),
            wt.ArgumentTypeError,
            r"relu: got None; .*, such as relu\(numpy.ones\(4, ",
        ),
        (lambda: wt.maximum(["a"], 1), wt.ArgumentTypeError, "maximum: got elements of type <U1"),
        (lambda: wt.exp(1j), wt.ArgumentTypeError, "exp: got 1j"),
        (lambda: wt.cast(["a"], "int8"), wt.ArgumentTypeError, "cast: got elements of type <U1"),
        (
            lambda: wt.halves(np.ones((2, 3))),
            wt.ShapeError,
            r"halves: got shape \(2, 3\); .* an even number",
        ),
        (lambda: wt.pairs(1.0), wt.ShapeError, r"pairs: got shape \(\); .* an even number of columns"),
        (lambda: wt.dropout_mask(1, (2, 2), "x"), wt.ArgumentError, "p: got 'x'; it is a number from 0"),
        (lambda: wt.dropout(np.ones(2), 0.5, 1), wt.EpilogueError, r"outside, write x \* dropout_mask"),
        (lambda: wt.per_block(np.ones((1, 1)), 2, 2), wt.EpilogueError, "per_block takes an operand of the epilogue"),
    ],
)
def test_what_functions_refuse_outside_of_epilogues(call, error, words):
    with pytest.raises(error, match=words):
        call()
