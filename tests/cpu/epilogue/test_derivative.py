"""The derivative of an epilogue as an epilogue: against central differences, in float64."""

import numpy as np
import pytest

import warptile as wt
from warptile.epilogue.derivative import KEPT, PARTIALS, WantedGradient, derivative, gradient_name
from warptile.epilogue.operations import FLAG, OPERATIONS
from warptile.epilogue.program_text import replayed
from warptile.epilogue.tracing import trace

ROWS, COLUMNS = 4, 6
STEP = 1e-6

ONE = {
    "absolute": abs, "sqrt": lambda x: wt.sqrt(x * x + 1), "exp": wt.exp, "log": lambda x: wt.log(x * x + 1),
    "tanh": wt.tanh, "erf": wt.erf, "sigmoid": wt.sigmoid, "relu": wt.relu, "silu": wt.silu, "gelu": wt.gelu,
    "gelu_tanh": lambda x: wt.gelu(x, "tanh"), "negative": lambda x: -x,
}  # fmt: skip
TWO = {
    "add": lambda x, y: x + y, "subtract": lambda x, y: x - y, "multiply": lambda x, y: x * y,
    "divide": lambda x, y: x / (abs(y) + 1), "minimum": wt.minimum, "maximum": wt.maximum,
    "where": lambda x, y: wt.where(x < y, x * x, y * x),
}  # fmt: skip


def drawn(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).normal(size=shape)


def pulled(function, operands, gradients, wanted=()):
    """Outputs of the derivative, evaluated in float64."""
    program = trace(function, {name: 0 for name in operands if name != "acc"})
    made = derivative(program, "float64", tuple(each is not None for each in gradients), wanted)
    assert made is not None
    given = {KEPT: operands["acc"]} | {name: each for name, each in operands.items() if name != "acc"}
    given |= {gradient_name(output): each for output, each in enumerate(gradients) if each is not None}
    read = {name: given[name] for name in made.program.operands}
    nothing = np.full((ROWS, COLUMNS), np.nan)  # the accumulator of the derivative's own product is not read
    return made, made.program.evaluate(nothing, read)


def differences(function, operands, gradients, name):
    """The same gradient by central differences of sum(gradient * output)."""
    program = trace(function, {each: 0 for each in operands if each != "acc"})

    def total(changed):
        given = {each: value for each, value in changed.items() if each != "acc"}
        outputs = program.evaluate(changed["acc"], given)
        pairs = zip(outputs, gradients, strict=True)
        return sum(float((value * each).sum()) for value, each in pairs if each is not None)

    found = np.zeros_like(operands[name])
    for at in np.ndindex(found.shape):
        ends = []
        for sign in (1, -1):
            moved = operands[name].copy()
            moved[at] += sign * STEP
            ends.append(total(operands | {name: moved}))
        found[at] = (ends[0] - ends[1]) / (2 * STEP)
    return found


def test_every_operation_with_a_number_has_a_derivative():
    assert set(PARTIALS) == {name for name, each in OPERATIONS.items() if each.gives != FLAG}
    assert set(PARTIALS) == set(ONE) | set(TWO)


@pytest.mark.parametrize("name", list(ONE))
def test_of_one_argument(name):
    operands, g = {"acc": 2 * drawn(ROWS, COLUMNS)}, drawn(ROWS, COLUMNS, seed=1)
    _, (found,) = pulled(lambda acc: ONE[name](acc) * 1.5, operands, [g])
    np.testing.assert_allclose(found, differences(lambda acc: ONE[name](acc) * 1.5, operands, [g], "acc"), atol=1e-7)


@pytest.mark.parametrize("name", list(TWO))
def test_of_two_arguments(name):
    operands = {"acc": drawn(ROWS, COLUMNS), "y": drawn(ROWS, COLUMNS, seed=2)}
    g = drawn(ROWS, COLUMNS, seed=1)

    def function(acc, y):
        return TWO[name](acc, y)

    made, found = pulled(function, operands, [g], (WantedGradient("y", None, "float64"),))
    assert made.names == ("y",)
    for each, operand in zip(found, ("acc", "y"), strict=True):
        np.testing.assert_allclose(each, differences(function, operands, [g], operand), atol=1e-7)


@pytest.mark.parametrize(
    ("shape", "over"),
    [((COLUMNS,), "rows"), ((ROWS, 1), "columns"), ((1, 1), "matrix")],
)
def test_gradients_of_what_broadcasts_are_sums(shape, over):
    operands, g = {"acc": drawn(ROWS, COLUMNS), "s": drawn(*shape)}, drawn(ROWS, COLUMNS, seed=1)

    def function(acc, s):
        return wt.gelu(acc * s) + s

    made, (_, found) = pulled(function, operands, [g], (WantedGradient("s", over, "float64"),))
    assert made.names == ("s",)
    assert made.program.reductions[1].over == over
    np.testing.assert_allclose(found.reshape(shape), differences(function, operands, [g], "s"), atol=1e-6)


def test_the_gradient_of_a_bias_is_that_of_the_accumulator_summed():
    program = trace(lambda acc, bias: wt.silu(acc + bias), {"bias": 0})
    made = derivative(program, "bfloat16", (True,), (WantedGradient("bias", "rows", "bfloat16"),))
    assert (made.names, made.summed) == ((), ("bias",))
    assert made.program.types == ("bfloat16",)
    assert made.program.reductions == ()


def test_several_outputs_and_sums():
    operands = {"acc": drawn(ROWS, COLUMNS), "bias": drawn(COLUMNS)}

    def function(acc, bias):
        y = wt.tanh(acc + bias)
        return y, (y * y).sum(axis=-1), wt.sigmoid(acc)

    gradients = [drawn(ROWS, COLUMNS, seed=1), drawn(ROWS, 1, seed=2), None]
    _, (found,) = pulled(function, operands, gradients)
    of_output = [gradients[0], gradients[1][:, 0], None]
    np.testing.assert_allclose(found, differences(function, operands, of_output, "acc"), atol=1e-7)


def test_dropout_draws_the_numbers_of_the_forward_pass():
    g = drawn(ROWS, COLUMNS)
    operands = {"acc": drawn(ROWS, COLUMNS), "seed": 1234}
    program = trace(lambda acc, seed: wt.dropout(acc, 0.5, seed), {"seed": 0})
    made = derivative(program, "float64", (True,))
    (found,) = made.program.evaluate(np.zeros((ROWS, COLUMNS)), {"seed": operands["seed"], gradient_name(0): g})
    np.testing.assert_allclose(found, np.where(wt.dropout_mask(1234, (ROWS, COLUMNS), 0.5), 2 * g, 0), rtol=1e-6)


def test_a_cast_to_whole_numbers_is_constant():
    program = trace(lambda acc: acc + wt.cast(acc * 3, "int8"), {})
    made = derivative(program, "float32", (True,))
    assert made.program.operands == (gradient_name(0),)


def test_ties_share_the_gradient():
    operands = {"acc": np.ones((ROWS, COLUMNS)), "y": np.ones((ROWS, COLUMNS))}
    g = drawn(ROWS, COLUMNS)
    _, found = pulled(lambda acc, y: wt.maximum(acc, y), operands, [g], (WantedGradient("y", None, "float64"),))
    for each in found:
        np.testing.assert_array_equal(each, g / 2)


@pytest.mark.parametrize(
    ("function", "operands", "given", "wanted"),
    [
        (lambda acc: (acc, acc.max(axis=-1)), {}, (False, True), ()),
        (lambda acc, s: acc * wt.per_block(s, 2, 2), {"s": 0}, (True,), (WantedGradient("s", None, "float32"),)),
        (lambda acc, y: (y * 2, acc), {"y": 0}, (True, False), ()),
    ],
)
def test_what_one_kernel_does_not_compute(function, operands, given, wanted):
    assert derivative(trace(function, operands), "float32", given, wanted) is None


def test_more_steps_than_a_kernel_has_registers_for():
    def deep(acc):
        for _ in range(60):
            acc = wt.gelu(acc)
        return acc

    program = trace(deep, {})
    assert derivative(program, "float32", (True,)) is None


def test_it_runs_as_the_epilogue_of_an_empty_product():
    program = trace(lambda acc, up: wt.silu(acc) * up, {"up": 0})
    made = derivative(program, "float32", (True,), (WantedGradient("up", None, "float32"),))
    kept, up, g = (drawn(5, 37, seed=seed).astype(np.float32) for seed in range(3))
    left, right = np.empty((5, 0), np.float32), np.empty((0, 37), np.float32)
    given = {KEPT: kept, "up": up, gradient_name(0): g}
    found = wt.matmul(left, right, epilogue=replayed(made.program), **given)
    exact = made.program.evaluate(np.zeros((5, 37)), given)
    for each, wanted in zip(found, exact, strict=True):
        np.testing.assert_allclose(each, wanted, rtol=1e-5, atol=1e-6)


def test_gradients_of_outputs_are_handed_on_where_they_are_those_of_operands():
    wanted = tuple(WantedGradient(name, None, "float32") for name in ("res", "up"))
    program = trace(lambda acc, res, up: (wt.silu(acc) * up + res, acc), {"res": 0, "up": 0})
    made = derivative(program, "float32", (True, True), wanted, ("float32", "float32"))
    assert (made.passed, made.names, made.unchanged) == ((("res", 0),), ("up",), None)
    assert derivative(program, "float32", (True, True), wanted).names == ("res", "up")
    assert derivative(program, "float32", (True, True), wanted, ("bfloat16", "float32")).passed == ()
    assert derivative(program, "float32", (True, True), wanted, (None, None)).passed == ()


def test_an_output_whose_gradient_is_the_accumulators_needs_no_kernel():
    def program(function):
        return trace(function, {"res": 0, "bias": 0})

    wanted = WantedGradient("res", None, "float32"), WantedGradient("bias", "rows", "float32")
    added = program(lambda acc, res, bias: acc + bias + res)
    made = derivative(added, "float32", (True,), wanted, ("float32",))
    assert (made.unchanged, made.passed, made.summed, made.names) == (0, (("res", 0),), ("bias",), ())
    assert derivative(added, "bfloat16", (True,), wanted, ("float32",)).unchanged is None, "it is rounded"
    subtracted = derivative(program(lambda acc, res, bias: acc + bias - res), "float32", (True,), wanted, ("float32",))
    assert (subtracted.unchanged, subtracted.names) == (None, ("res",))
    doubled = derivative(program(lambda acc, res, bias: acc * 2 + bias + res), "float32", (True,), (), ("float32",))
    assert doubled.unchanged is None
