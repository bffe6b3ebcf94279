"""Formulas compiled to machine code say what NumPy says."""

import sys
import threading

import numpy as np
import pytest

from warptile.native import background
from warptile.native.formulas import Compiled, Constants, Formulas, lookup

TABLE = (3.0, -1.5, 8.0, 0.25)


def everything(of):
    """Every operator and function, of columns x and y, both positive, and a number n."""
    x, y, n = of["x"], of["y"], of["n"]
    small = np.minimum(np.floor(x), 3)
    return (
        x + y - 2 * n, 3 - x, x * y / n, 1 / x, x // y, 7 // y, x % y, 7 % y, x**1.5, y**n, -x, -(-x // y),
        np.where(x > y, x, 0.0), np.where((x >= 1) & (y < 2), 1.0, n), np.where((x <= y) | ~(x != n), y, 5),
        (x == x) * 2.0 + (x != y), np.clip(x, 1, 2), np.clip(x, None, 1.5), np.clip(x, 0.5, None), np.ceil(x),
        np.log(x), np.log2(y), np.exp(-y), np.minimum(x, n), np.maximum(2, y),
        np.where(np.isin(np.floor(x), (1, 3)), 1.0, 0.0),
        lookup(TABLE, small), Constants(np.array(TABLE))[small], np.where(True, x, y), 4.0,
    )  # fmt: skip


def columns(count, seed=0):
    return np.random.default_rng(seed).uniform(0.05, 6, (2, count))


@pytest.mark.parametrize("count", [0, 1, 7, 64])
def test_each_operator_and_function_is_numpys(count):
    numbers, both = np.array([2.5]), columns(count)
    expected = Formulas(everything, ("x", "y"), ("n",)).by_numpy(both, numbers)
    found = Compiled(everything, ("x", "y"), ("n",))(both, numbers)
    assert found.shape == expected.shape == (30, count)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_arrays_that_are_not_contiguous_are_copied():
    both = columns(12).T.copy().T
    assert not both.flags.c_contiguous
    (found,) = Compiled(lambda of: (of["x"] - of["y"],), ("x", "y"))(both, np.zeros(0))
    np.testing.assert_array_equal(found, both[0] - both[1])


def test_comparisons_with_nan_are_numpys():
    both = np.array([[np.nan, 1.0, np.nan], [1.0, np.nan, np.nan]])

    def compared(of):
        x, y = of["x"], of["y"]
        return [np.where(each, 1.0, 0.0) for each in (x < y, x <= y, x > y, x >= y, x == y, x != y)]

    found = Compiled(compared, ("x", "y"))(both, np.zeros(0))
    np.testing.assert_array_equal(found, Formulas(compared, ("x", "y")).by_numpy(both, np.zeros(0)))


@pytest.mark.parametrize(
    "formula",
    [
        lambda x: np.sin(x),
        lambda x: np.add.reduce(x),
        lambda x: np.cumsum(x),
        lambda x: x if x > 1 else -x,
        lambda x: (x > 1) + (x > 2),
    ],
)
def test_what_cannot_be_compiled_raises(formula):
    with pytest.raises(TypeError):
        Compiled(lambda of: (formula(of["x"]),), ("x",))


def test_formulas_are_compiled_after_a_few_calls_and_say_the_same():
    some = Formulas(everything, ("x", "y"), ("n",))
    both, numbers = columns(9), np.array([1.5])
    by_numpy = [some(both, numbers) for _ in range(background.CALLS_WITHOUT)]
    for thread in threading.enumerate():
        if thread.name == background.THREAD:
            thread.join()
    assert some.compiled.made is not None
    for each in by_numpy:
        np.testing.assert_allclose(some(both, numbers), each, rtol=1e-12, atol=1e-12)


def test_fewer_calls_compile_nothing():
    some = Formulas(everything, ("x", "y"), ("n",))
    for _ in range(background.CALLS_WITHOUT - 1):
        some(columns(3), np.array([1.5]))
    assert some.compiled.made is None
    assert not [thread for thread in threading.enumerate() if thread.name == background.THREAD]


def test_without_llvm_numpy_goes_on(monkeypatch):
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    some = Formulas(lambda of: (2 * of["x"],), ("x",))
    some.compiled.make_now()
    assert some.compiled.made is None
    np.testing.assert_array_equal(some(np.ones((1, 3)), np.zeros(0)), [[2, 2, 2]])


def test_elementary_functions_are_those_of_numpy_over_all_magnitudes():
    def functions(of):
        x, y = of["x"], of["y"]
        return [np.log2(x), np.log(x), np.exp(y), x**0.37, x**-1.5]

    x = 2.0 ** np.random.default_rng(1).uniform(-600, 600, 1001)
    y = np.linspace(-600, 700, 1001)
    both = np.array([x, y])
    found = Compiled(functions, ("x", "y"))(both, np.zeros(0))
    expected = Formulas(functions, ("x", "y")).by_numpy(both, np.zeros(0))
    np.testing.assert_allclose(found, expected, rtol=3e-13, atol=1e-13)


def test_zero_negative_and_undefined_numbers_are_as_in_numpy():
    def functions(of):
        x = of["x"]
        return [np.log2(x), np.log(x), np.exp(x)]

    x = np.array([[0.0, -1.0, np.nan, 1.0]])
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = Formulas(functions, ("x",)).by_numpy(x, np.zeros(0))
    np.testing.assert_allclose(Compiled(functions, ("x",))(x, np.zeros(0)), expected, rtol=1e-14)
    (powers,) = Compiled(lambda of: (of["x"] ** 8.0,), ("x",))(np.array([[0.0, 1.0]]), np.zeros(0))
    np.testing.assert_allclose(powers, [0, 1], atol=1e-300)


def test_exponents_beyond_those_of_normal_numbers_give_the_least_and_the_largest_power_of_two():
    (found,) = Compiled(lambda of: (np.exp(of["x"]),), ("x",))(np.array([[-1e4, 1e4]]), np.zeros(0))
    np.testing.assert_allclose(found, [2.0**-1022, 2.0**1023], rtol=1e-12)
