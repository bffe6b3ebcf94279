"""The derivative of an epilogue, as an epilogue: gradients of the accumulator and of operands, in one kernel.

With y = f(acc, operands) and g the gradient of y, the chain rule is applied to the steps of f backwards. What comes out
is a `Program` like any other, whose operands are those of f that it needs, the accumulators that the forward pass kept,
and g. It reads no accumulator of its own: it is the epilogue of a product with K = 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any, NamedTuple

from warptile.dtypes import DTYPES
from warptile.epilogue import expressions, tracing
from warptile.epilogue.epilogue_program import ACCUMULATOR, CAST, CONSTANT, TENSOR, UNIFORM, Program, Reduction, Step
from warptile.epilogue.operations import NUMBER
from warptile.epilogue.tracing import MOST_STEPS, Reduced, Trace, Traced

KEPT = "kept_accumulator"
"""The operand that holds the accumulators of the forward pass."""

MOST_KNOWN = 256
"""Derivatives that are remembered."""


def gradient_name(output: int) -> str:
    """The operand that holds the gradient of an output."""
    return f"gradient_of_output_{output}"


ARITHMETIC: dict[str, tuple[Callable[..., Any], ...]] = {
    "add": (lambda g, y, a, b: g, lambda g, y, a, b: g),
    "subtract": (lambda g, y, a, b: g, lambda g, y, a, b: -g),
    "multiply": (lambda g, y, a, b: g * b, lambda g, y, a, b: g * a),
    "divide": (lambda g, y, a, b: g / b, lambda g, y, a, b: -g * y / b),
    "negative": (lambda g, y, x: -g,),
    "sqrt": (lambda g, y, x: g / (2 * y),),
    "exp": (lambda g, y, x: g * y,),
    "log": (lambda g, y, x: g / x,),
}
"""For each argument of an operation ``g`` times the partial derivative, from ``g``, the result y and the arguments:
those that are made of operators alone, and so serve symbolic values, arrays and tensors. (Numbers are literals here and
below: others are symbols where Dynamo traces with dynamic shapes.)"""


def _chosen(x: Traced, y: Traced, g: Traced) -> Any:
    """``g`` where x is beyond y, half of it where they are equal, as torch shares it."""
    return expressions.where(x == y, g * 0.5, expressions.where(x > y, g, 0.0))


def _of_absolute(g: Traced, y: Traced, x: Traced) -> Any:
    return expressions.where(x > 0, g, expressions.where(x < 0, -g, g * x))  # 0 at 0, NaN at NaN


def _of_silu(g: Traced, y: Traced, x: Traced) -> Any:
    share = expressions.sigmoid(x)
    return g * (share * (1 + x * (1 - share)))


def _of_gelu(g: Traced, y: Traced, x: Traced) -> Any:
    """The normal distribution's cumulative distribution function, and x times its density."""
    below = 0.5 + 0.5 * expressions.erf(x * 0.7071067811865476)  # sqrt(1 / 2)
    return g * (below + x * (expressions.exp(x * x * -0.5) * 0.3989422804014327))  # 1 / sqrt(2 pi)


def _of_gelu_tanh(g: Traced, y: Traced, x: Traced) -> Any:
    """Of x times sigmoid(u), u = sqrt(8 / pi) (x + 0.044715 x^3): sigmoid is cheaper than tanh."""
    scale, cubic = 1.5957691216057308, 0.044715  # sqrt(8 / pi)
    square = x * x
    share = expressions.sigmoid(x * (scale + scale * cubic * square))
    return g * (share + x * (share * (1 - share)) * (scale + 3 * scale * cubic * square))


PARTIALS: dict[str, tuple[Callable[..., Any] | None, ...]] = {
    **ARITHMETIC,
    "where": (
        None,
        lambda g, y, c, a, b: expressions.where(c, g, 0.0),
        lambda g, y, c, a, b: expressions.where(c, 0.0, g),
    ),
    "minimum": (lambda g, y, a, b: _chosen(b, a, g), lambda g, y, a, b: _chosen(a, b, g)),
    "maximum": (lambda g, y, a, b: _chosen(a, b, g), lambda g, y, a, b: _chosen(b, a, g)),
    "absolute": (_of_absolute,),
    "tanh": (lambda g, y, x: g * (1 - y * y),),
    "erf": (lambda g, y, x: g * (expressions.exp(-x * x) * 1.1283791670955126),),  # 2 / sqrt(pi)
    "sigmoid": (lambda g, y, x: g * (y * (1 - y)),),
    "relu": (lambda g, y, x: expressions.where(y <= 0, 0.0, g),),
    "silu": (_of_silu,),
    "gelu": (_of_gelu,),
    "gelu_tanh": (_of_gelu_tanh,),
}
"""The same for all operations, on symbolic values. Truth values have no derivative."""


def active_steps(program: Program, names: Collection[str], *, accumulator: bool) -> list[bool]:
    """Which steps depend on the accumulator or on operands with these names, in a way that has a derivative."""
    found: list[bool] = []
    for step in program.steps:
        if step.name == ACCUMULATOR:
            depends = accumulator
        elif isinstance(step.value, tuple):
            depends = step.value[0] in names
        elif step.name == CAST:  # whole numbers are constant almost everywhere
            depends = DTYPES[str(step.value)].kind == "float" and found[step.arguments[0]]
        else:
            depends = step.name in PARTIALS and any(found[index] for index in step.arguments)
        found.append(depends)
    return found


class WantedGradient(NamedTuple):
    """The gradient of an operand.

    Attributes:
        name: of the operand.
        over: what it is summed over, as of a `Reduction`; None for an operand of D's shape.
        dtype: its type where it is not summed; sums are float32 or float64.
    """

    name: str
    over: str | None
    dtype: str


class Derivative(NamedTuple):
    """A derivative that one kernel computes.

    Attributes:
        program: its outputs are the accumulator's gradient and those of ``names``.
        names: operands with a gradient of their own, of the ones that were asked for and that an output depends on.
        summed: those whose gradient is the accumulator's, summed, as that of a bias is.
        passed: those whose gradient is an output's, as that of a residual is, and that output.
        unchanged: the output whose gradient is the accumulator's, where the program has nothing else to compute.
    """

    program: Program
    names: tuple[str, ...]
    summed: tuple[str, ...]
    passed: tuple[tuple[str, int], ...] = ()
    unchanged: int | None = None


@lru_cache(maxsize=MOST_KNOWN)
def derivative(
    program: Program,
    dtype: str,
    given: tuple[bool, ...],
    wanted: tuple[WantedGradient, ...] = (),
    types: tuple[str | None, ...] = (),
) -> Derivative | None:
    """The derivative of an epilogue on matrices.

    Args:
        program: the epilogue.
        dtype: type of the accumulator's gradient.
        given: for each output whether it has a gradient. That of a sum broadcasts to D.
        wanted: gradients of operands.
        types: those of the outputs' gradients, which may be handed on where they are gradients of operands; None for
            one that may not, empty for none.

    Returns:
        The derivative, or None where one kernel does not compute it: no output depends on the accumulator, an output is
        a largest or smallest element, operands or operands' scales have an element for each block, an operand has the
        name of one that is added here, or there are more than `MOST_STEPS` operations.
    """
    blocks = {name for name, *block in program.tensors if block != [1, 1]}
    hows = [how for has, how in zip(given, program.output_reductions, strict=True) if has and how is not None]
    added = {KEPT, *map(gradient_name, range(len(given)))}
    if (
        added & set(program.operands)
        or program.block_scales
        or program.paired
        or blocks & {each.name for each in wanted}
        or any(how.operation != "add" for how in hows)
    ):
        return None
    noted = Trace(most_steps=None)
    of_accumulator, of_operands = _pulled_back(noted, program, given, {each.name for each in wanted})
    if of_accumulator is None:
        return None
    found = [each for each in wanted if each.name in of_operands]
    summed = [each for each in found if each.over and of_operands[each.name].index == of_accumulator.index]
    whole = {
        (_operand(noted, gradient_name(output)).index, kind): output
        for output, (kind, has, how) in enumerate(zip(types, given, program.output_reductions, strict=False))
        if kind is not None and has and how is None
    }
    handed = {each.name: whole.get((of_operands[each.name].index, each.dtype)) for each in found if each.over is None}
    passed = {name: output for name, output in handed.items() if output is not None}
    found = [each for each in found if each not in summed and each.name not in passed]
    outputs: list[Traced | Reduced] = [tracing.cast(of_accumulator, dtype)]
    for each in found:
        gradient = of_operands[each.name]
        if each.over is None:
            outputs.append(tracing.cast(gradient, each.dtype))
        else:
            outputs.append(Reduced(gradient, Reduction("add", each.over)))
    made = tracing.noted_program(noted, outputs)
    if len(made.steps) > MOST_STEPS:
        return None
    unchanged = None if found else whole.get((of_accumulator.index, dtype))
    return Derivative(
        made, tuple(each.name for each in found), tuple(each.name for each in summed), tuple(passed.items()), unchanged
    )


def _pulled_back(
    noted: Trace, program: Program, given: tuple[bool, ...], names: Collection[str]
) -> tuple[Traced | None, dict[str, Traced]]:
    """Gradients of the accumulator and of operands, for each element of D."""
    values = _repeated(noted, program)
    active = active_steps(program, names, accumulator=True)
    found: dict[int, Traced] = {}

    def add(index: int, gradient: Traced) -> None:
        found[index] = found[index] + gradient if index in found else gradient

    for output, (index, has) in enumerate(zip(program.outputs, given, strict=True)):
        if has and active[index]:
            add(index, _operand(noted, gradient_name(output)))
    of_accumulator, of_operands = None, {}
    for index in reversed(range(len(values))):
        step, gradient = program.steps[index], found.get(index)
        if gradient is None:
            continue
        if step.name == ACCUMULATOR:
            of_accumulator = gradient
        elif isinstance(step.value, tuple):
            of_operands[step.value[0]] = gradient
        elif step.name == CAST:
            add(step.arguments[0], gradient)
        else:
            arguments = [values[each] for each in step.arguments]
            for each, partial in zip(step.arguments, PARTIALS[step.name], strict=True):
                if active[each] and partial is not None:
                    add(each, partial(gradient, values[index], *arguments))
    return of_accumulator, of_operands


def _operand(noted: Trace, name: str) -> Traced:
    return noted.value(TENSOR, value=(name, 1, 1))


def _repeated(noted: Trace, program: Program) -> list[Traced]:
    """The steps of the forward pass, on the accumulators that it kept."""
    values: list[Traced] = []
    for step in program.steps:
        values.append(_repeated_step(noted, step, [values[index] for index in step.arguments]))
    return values


def _repeated_step(noted: Trace, step: Step, arguments: list[Traced]) -> Traced:
    if step.name == ACCUMULATOR:
        return _operand(noted, KEPT)
    if step.name in (CONSTANT, TENSOR, CAST, UNIFORM):
        return noted.value(step.name, tuple(each.index for each in arguments), step.value, NUMBER)
    return tracing.apply(step.name, *arguments)
