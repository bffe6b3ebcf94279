"""What of a Python function becomes an epilogue, and what is refused, with which words and which line."""

import math
import re

import numpy as np
import pytest

import warptile as wt
from warptile.epilogue import expressions
from warptile.epilogue.identity import identity
from warptile.epilogue.tracing import FUNCTIONS, trace

A, B, ROW = np.ones((5, 7), "float16"), np.ones((7, 9), "float16"), np.ones(9, "float16")


def branches(acc):
    if acc > 0:
        return acc
    return -acc


@pytest.mark.parametrize(
    ("function", "operands", "words"),
    [
        (
            branches,
            {},
            r"test_tracing.py, line \d+: if acc > 0:\): .* no truth value.*warptile.where",
        ),
        (lambda acc: max(acc, 0), {}, "warptile.maximum"),
        (lambda acc: math.exp(acc), {}, "is no number: in place of math.exp"),
        (lambda acc: acc + ROW, {}, r"got ndarray of shape \(.*\); constants .* arrays are given by name: matmul"),
        (lambda acc, x: wt.where(x, acc, 0), {"x": ROW}, "where takes a truth value and got a number; write x != 0"),
        (
            lambda acc: acc.mean(),
            {},
            r"has no attribute 'mean'; it has operators, \.sum, \.max",
        ),
        (lambda acc: acc.tanh(), {}, r"has no attribute 'tanh'; write warptile\.tanh\(x\)$"),
        (lambda acc: acc.add(1), {}, r"has no attribute 'add'; it has operators, .* absolute, cast, clamp, "),
        (lambda acc: acc % 2, {}, "%, // and @ cannot be fused; there are"),
        (lambda acc: acc @ acc, {}, "%, // and @ cannot be fused; there are"),
        (lambda acc: 2**acc, {}, r"2 \*\* x cannot be fused; write warptile\.exp\(x \* math\.log\(2\)\)"),
        (np.maximum, {}, "maximum.. takes from 2 to 3 positional arguments"),
        (lambda acc: acc[0], {}, "has no index"),
        (lambda acc: [*acc], {}, "cannot be iterated over"),
        (lambda acc: np.sin(acc), {}, "numpy.sin cannot be fused; there are add, "),
        (lambda acc: acc**0.3, {}, "the exponent is 0.5 or a whole number"),
        (lambda acc: np.sum(acc), {}, "its first output is the result, and no reduction"),
        (lambda acc: acc + True, {}, "constants are real numbers"),
        (lambda acc: None, {}, "it returns None"),
        (lambda acc: (), {}, "it returns no value"),
        (lambda acc: acc > 0, {}, r"truth value; write warptile.where\(condition, 1, 0\)"),
        (lambda acc: (acc > 0) + 1, {}, "add takes a number and got a truth value"),
        (lambda acc: 1 / 0, {}, "ZeroDivisionError: division by zero"),
        (lambda acc, bias: acc, {"bias": ROW}, "does not use its operand 'bias'"),
        (lambda acc, bias: acc + bias, {}, "it takes 'bias', which was not given: give bias=..."),
        (lambda acc, beta: acc + beta, {}, "operand 'beta' has the name of an argument of matmul"),
        (lambda *values: values[0], {}, "its first parameter is the accumulator"),
        (lambda acc, *rest: acc, {}, r"its operands have names; \*rest has none"),
        (math.exp, {}, "is no number: in place of math.exp"),
        (type("ReLU", (), {"__call__": lambda self, *args: 0})(), {}, "accumulator, such as epilogue=warptile.relu$"),
        ("relu", {}, "got str; it takes a function of the accumulator"),
        (lambda acc: wt.per_block(acc, 2, 2), {}, "per_block takes an operand of the epilogue itself"),
        (lambda acc: wt.dropout(acc, 0.5, 7), {}, "the seed is an operand of the epilogue"),
        (lambda acc, seed: wt.dropout(acc, 0.5, seed), {"seed": 1.5}, "a seed is a whole number"),
        (lambda acc, s: wt.dropout(acc, 0.5, s) * s, {"s": 1}, "'s' is a seed, and used as a number too"),
        (lambda acc, s: acc * s * wt.per_block(s, 2, 2), {"s": ROW}, "give it twice, by two names"),
    ],
)
def test_refused(function, operands, words):
    with pytest.raises(wt.EpilogueError) as raised:
        wt.matmul(A, B, epilogue=function, backend="emulator", **operands)
    said = re.sub(r", line \d+: \(lambda .*?\): ", ": ", str(raised.value))  # the line of this file has the words too
    assert re.search(words, said), said


def test_the_functions_that_messages_name_are_warptiles():
    assert set(FUNCTIONS) <= set(wt.__all__)
    public = {name for name in wt.__all__ if hasattr(expressions, name) and callable(getattr(wt, name))}
    functions = {name for name in public if getattr(wt, name).__module__ == expressions.__name__}
    assert functions - set(FUNCTIONS) == {"abs", "dropout_mask", "halves", "pairs", "per_block"}


def test_an_operand_beyond_every_float_is_told():
    with pytest.raises(wt.ArgumentError, match=r"s: got an integer beyond float64's range; give s=float\('inf'\)"):
        wt.matmul(A, B, epilogue=lambda acc, s: acc * s, s=10**400, backend="emulator")


def test_types_that_values_are_not_rounded_to():
    for name in ("bit1", "int64", "foo"):
        with pytest.raises(wt.DTypeError, match=f"got '{name}'; it is one of float16, .*float8_e5m2, such as cast"):
            wt.matmul(A, B, epilogue=lambda acc: wt.cast(acc, name), backend="emulator")  # noqa: B023


def test_a_function_of_numpy_is_an_epilogue():
    x = A.astype(np.float32)
    plain = wt.matmul(x, B.astype(np.float32), epilogue=wt.tanh, backend="emulator")
    assert np.array_equal(wt.matmul(x, B.astype(np.float32), epilogue=np.tanh, backend="emulator"), plain)


def test_wrong_keywords_and_operands():
    def call(**options):
        return wt.matmul(A, B, backend="emulator", **options)

    with pytest.raises(TypeError, match="unexpected keyword argument 'bias'"):
        call(bias=ROW)
    with pytest.raises(TypeError, match=r"'out_dtpye'\. Did you mean 'out_dtype'"):
        call(epilogue=lambda acc: acc, out_dtpye="float32")
    with pytest.raises(wt.ShapeError, match=r"r: shape \(4,\) does not broadcast to \(5, 9\)"):
        call(epilogue=lambda acc, r: acc + r, r=ROW[:4])
    with pytest.raises(wt.ShapeError, match=r"one element for each row is r.reshape\(5, 1\)"):
        call(epilogue=lambda acc, r: acc + r, r=ROW[:5])
    with pytest.raises(wt.ShapeError, match=r"per_block\(s, 4, 4\) and a result of 5 x 9 it needs \(2, 3\)"):
        call(epilogue=lambda acc, s: acc * wt.per_block(s, 4, 4), s=ROW)
    with pytest.raises(wt.DTypeError, match="operands of an epilogue are float16, "):
        call(epilogue=lambda acc, r: acc + r, r=ROW.astype("float8_e4m3fn"))
    batch = np.ones((2, 5, 7), "float16")
    with pytest.raises(wt.EpilogueError, match="random numbers are numbered by row and column of one matrix"):
        wt.matmul(batch, B, epilogue=lambda acc, seed: wt.dropout(acc, 0.5, seed), seed=1, backend="emulator")
    with pytest.raises(wt.ArgumentError, match="p: got 1; it is a number from 0 to less than 1"):
        call(epilogue=lambda acc, seed: wt.dropout(acc, 1, seed), seed=1)
    with pytest.raises(wt.ArgumentError, match="approximate: got 'erf'"):
        call(epilogue=lambda acc: wt.gelu(acc, "erf"))


def test_equal_programs_are_equal_and_others_are_not():
    def program(function, *names):
        return trace(function, dict.fromkeys(names))

    one = program(lambda acc, bias: wt.relu(acc + bias) + (acc + bias), "bias")
    assert one == program(lambda x, bias: wt.relu(x + bias) + (x + bias), "bias")
    assert hash(one) == hash(program(lambda x, bias: wt.relu(x + bias) + (x + bias), "bias"))
    assert one != program(lambda x, bias: wt.relu(x + bias) - (x + bias), "bias")
    assert program(lambda acc: acc * 0.0) != program(lambda acc: acc * -0.0)
    assert len([step for step in one.steps if step.name == "add"]) == 2, "acc + bias is computed once"
    pruned = program(lambda acc: (acc * 3, acc)[1])
    assert len(pruned.steps) == 1, "what no output depends on is left out"


def test_identity_of_functions():
    def scaled(factor):
        return lambda acc: acc * factor

    assert identity(scaled(2.0)) == identity(scaled(2.0))
    assert identity(scaled(2.0)) != identity(scaled(3.0))
    assert identity(scaled(1)) != identity(scaled(1.0))
    assert identity(lambda acc: wt.gelu(acc)) is not None
    assert identity(wt.relu) is not None
    assert identity(scaled(np.ones(3))) is None, "an array may change"
    assert identity(lambda acc: math.floor(acc)) is None, "what other modules do is not known"


def test_a_global_number_is_part_of_the_identity():
    names = {"FACTOR": 2.0}
    exec("def function(acc):\n    return acc * FACTOR", names)
    before = identity(names["function"])
    names["FACTOR"] = 3.0
    assert before is not None
    assert identity(names["function"]) != before


def test_the_program_in_float64_is_its_reference():
    rng = np.random.default_rng(0)
    accumulator, row = rng.standard_normal((4, 6)), rng.standard_normal(6)
    program = trace(lambda acc, r, s: (wt.silu(acc * s + r), wt.cast(acc, "float16")), {"r": 0, "s": 0})
    d, second = program.evaluate(accumulator, {"r": row, "s": 0.5})
    inner = accumulator * 0.5 + row
    assert np.allclose(d, inner / (1 + np.exp(-inner)), rtol=1e-12)
    assert np.array_equal(second, accumulator.astype(np.float16))
    assert program.types == (None, "float16")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((1, 13, 0.5), r"shape: got 13; it is \(M, N\)"),
        ((1, (2, 3, 4), 0.5), "shape: got"),
        ((1.5, (2, 3), 0.5), "seed: got 1.5"),
        ((-1, (2, 3), 0.5), "seed: got -1"),
    ],
)
def test_a_mask_of_dropout_that_there_is_not(arguments, words):
    with pytest.raises(wt.ArgumentError, match=words):
        wt.dropout_mask(*arguments)
