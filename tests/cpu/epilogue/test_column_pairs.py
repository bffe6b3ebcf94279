"""Epilogues that make one column of D of two columns of the product: `warptile.halves` and `warptile.pairs`."""

import re

import ml_dtypes
import numpy as np
import pytest

import warptile as wt
from covering import alternating, few


@pytest.fixture(autouse=True)
def on_the_emulator(monkeypatch):
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")


def drawn(*shape, dtype="float16", seed=0):
    rng = np.random.default_rng(seed + sum(shape))
    if np.dtype(dtype).kind == "i":
        return rng.integers(-9, 9, shape).astype(dtype)
    return rng.standard_normal(shape).astype(np.float32).astype(dtype)


def wide(*arrays):
    return [each.astype(np.float64) for each in arrays]


def swiglu(acc, bias, s):
    gate, up = wt.halves(acc + bias)
    return wt.silu(gate) * up * s


def geglu(acc):
    gate, up = wt.pairs(acc)
    return wt.gelu(gate) * up, wt.cast(up, "float32")


def assert_close(found, expected, dtype):
    """``dtype``: of D, or what its error is bounded by."""
    bound = 4 * float(ml_dtypes.finfo(dtype).eps) + 4e-6
    worst = np.abs(found.astype(np.float64) - expected).max() / np.abs(expected).max()
    assert worst <= bound  # NaN is not


@pytest.mark.parametrize("dtype", alternating(["float16", "bfloat16", "float32", "float64"]))
def test_a_gate_in_one_half_of_the_columns(dtype):
    a, b, bias = drawn(33, 40, dtype=dtype), drawn(40, 46, dtype=dtype), drawn(46, dtype=dtype)
    d = wt.matmul(a, b, epilogue=swiglu, bias=bias, s=0.5)
    left, right, added = wide(a, b, bias)
    assert d.shape == (33, 23)
    assert d.dtype == dtype
    assert_close(d, swiglu(left @ right, added, 0.5), dtype)


@pytest.mark.parametrize("dtype", few(["int8", "float16"], 1))
def test_a_gate_in_every_other_column_and_two_outputs(dtype):
    a, b = drawn(2, 17, 24, dtype=dtype), drawn(24, 20, dtype=dtype)
    d, up = wt.matmul(a, b, epilogue=geglu)
    left, right = wide(a, b)
    expected = geglu(left @ right)
    assert d.shape == up.shape == (2, 17, 10)
    assert up.dtype == np.float32
    assert d.dtype == ("float32" if dtype == "int8" else dtype)
    assert_close(d, expected[0], d.dtype)
    assert_close(up, expected[1].astype(np.float64), "float32")


def test_the_second_product_is_not_rounded_to_the_result():
    a, b = drawn(16, 64), drawn(64, 16)
    d = wt.matmul(a, b, epilogue=lambda acc: wt.cast(wt.pairs(acc)[1] - wt.pairs(acc)[0], "float32"))
    left, right = wide(a, b)
    assert np.abs(d - ((left @ right)[:, 1::2] - (left @ right)[:, 0::2])).max() < 2e-5


@pytest.mark.parametrize("which", [0, 1])
def test_one_column_of_two_alone(which):
    a, b = drawn(9, 16), drawn(16, 12)
    d = wt.matmul(a, b, epilogue=lambda acc: wt.relu(wt.halves(acc)[which]))
    assert np.array_equal(d, wt.matmul(a, b[:, 6 * which : 6 * which + 6], epilogue=wt.relu))


def test_factors_addend_and_out():
    a, b, c = drawn(8, 16), drawn(16, 12), drawn(1, 12)
    out = np.full((8, 6), np.nan, np.float16)
    found = wt.matmul(a, b, c, alpha=0.5, beta=2.0, out=out, epilogue=lambda acc: geglu(acc)[0])
    left, right, added = wide(a, b, c)
    assert found is out
    assert_close(out, geglu(0.5 * left @ right + 2 * added)[0], "float16")


def test_a_held_plan():
    a, b, bias = drawn(33, 40), drawn(40, 48), drawn(48)
    plan = wt.plan(a, b, epilogue=swiglu, bias=bias, s=1.0)
    assert "j + N / 2" in plan.explain()
    assert plan.explain().count("D[33, 24]") == 2
    other = drawn(33, 40, seed=7)
    assert np.array_equal(plan(other, b, bias=bias, s=2.0), wt.matmul(other, b, epilogue=swiglu, bias=bias, s=2.0))
    with pytest.raises(wt.EpilogueError, match=re.escape("give bias=...")):
        plan(a, b, s=1.0)
    with pytest.raises(wt.ShapeError, match="this plan is for 48 columns"):
        plan(a, b[:, :40], bias=bias, s=1.0)


def test_linear_has_half_as_many_outputs_as_weights():
    x, w, bias = drawn(3, 5, 16), drawn(12, 16), drawn(12)
    y = wt.linear(x, w, bias, epilogue=lambda acc: geglu(acc)[0])
    rows, weights, added = wide(x, w, bias)
    assert y.shape == (3, 5, 6)
    assert_close(y, geglu(rows @ weights.T + added)[0], "float16")


def test_no_rows():
    assert wt.matmul(drawn(0, 16), drawn(16, 12), epilogue=lambda acc: geglu(acc)[0]).shape == (0, 6)


@pytest.mark.parametrize(
    ("epilogue", "operands", "error", "message"),
    [
        (lambda acc: wt.halves(acc)[0] + acc, {}, wt.EpilogueError, "give halves all that has N columns"),
        (lambda acc: wt.halves(wt.pairs(acc)[0])[0], {}, wt.EpilogueError, "uses both halves and pairs"),
        (lambda acc: wt.pairs(wt.pairs(acc)[0])[0], {}, wt.EpilogueError, "once is enough"),
        (lambda acc, bias: wt.pairs(acc + bias)[0] + bias, {"bias": drawn(12)}, wt.EpilogueError, "by two names"),
        (lambda acc, bias: wt.pairs(acc + bias)[0], {"bias": drawn(6)}, wt.ShapeError, "the product of 12 columns"),
        (lambda acc, s: wt.pairs(wt.dropout(acc, 0.5, s))[0], {"s": 1}, wt.EpilogueError, "comes behind pairs"),
        (
            lambda acc, s: wt.pairs(acc * wt.per_block(s, 8, 8))[0],
            {"s": np.ones((1, 2), "float32")},
            wt.EpilogueError,
            "comes behind pairs",
        ),
    ],
)
def test_what_cannot_be_paired_is_refused(epilogue, operands, error, message):
    with pytest.raises(error, match=re.escape(message)):
        wt.matmul(drawn(8, 16), drawn(16, 12), epilogue=epilogue, **operands)


@pytest.mark.parametrize("b", [drawn(16, 11), drawn(16)])
def test_columns_must_pair_up(b):
    with pytest.raises(wt.ShapeError, match="an even N"):
        wt.matmul(drawn(8, 16), b, epilogue=lambda acc: wt.halves(acc)[0])


def test_quantized_weights_are_not_taken_apart():
    x, weights = drawn(8, 32), wt.quantize(drawn(12, 32))
    with pytest.raises(wt.UnsupportedError, match="b: got a QuantizedWeights, which is packed; pairs takes columns"):
        wt.matmul(x, weights, epilogue=lambda acc: wt.pairs(acc)[0])
    with pytest.raises(wt.UnsupportedError, match="pack the gate's and those of what it gates apart"):
        wt.plan(x, weights, epilogue=lambda acc: wt.halves(acc)[0])
