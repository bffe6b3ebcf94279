"""An epilogue by torch's own operations, with its derivatives: what backward passes evaluate on kept accumulators.

The values, the derivative backwards (`pulled_back`) and the one forwards (`pushed_forward`) are made of operations that
torch differentiates, maps and traces, so that derivatives of every order and compiled backward passes follow from them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from math import pi, sqrt
from typing import Any

import torch
from torch.autograd import forward_ad

from warptile.api import matmul
from warptile.epilogue import tracing
from warptile.epilogue.derivative import ARITHMETIC, active_steps
from warptile.epilogue.epilogue_program import ACCUMULATOR, CAST, CONSTANT, UNIFORM, Program, Reduction
from warptile.errors import UnsupportedError
from warptile.torch.results import torch_type

_aten = torch.ops.aten

OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "negative": operator.neg, "less": operator.lt, "less_equal": operator.le, "equal": operator.eq,
    "not_equal": operator.ne, "logical_and": torch.logical_and, "logical_or": torch.logical_or,
    "logical_not": torch.logical_not, "where": torch.where, "minimum": torch.minimum, "maximum": torch.maximum,
    "absolute": torch.abs, "sqrt": torch.sqrt, "exp": torch.exp, "log": torch.log, "tanh": torch.tanh,
    "erf": torch.erf, "sigmoid": torch.sigmoid, "relu": torch.relu, "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu, "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
}  # fmt: skip
"""torch's operation for each of `warptile.epilogue.operations`, on tensors and numbers."""

_OF_TENSORS = ("minimum", "maximum", "where", "logical_and", "logical_or", "logical_not")
"""Operations of several arguments that take no Python number."""


def _chosen(x: Any, y: Any, g: Any) -> Any:
    """``g`` where x is beyond y, half of it where they are equal, as torch shares it."""
    return torch.where(x == y, g / 2, torch.where(x > y, g, 0.0))


def _of_silu(g: Any, y: Any, x: Any) -> Any:
    """torch's own kernel, where nobody differentiates what it computes: it has no derivative."""
    if not torch.is_grad_enabled() and forward_ad._current_level < 0:
        return _aten.silu_backward(g, x)
    share = torch.sigmoid(x)
    return g * (share * (1 + x * (1 - share)))


PARTIALS: dict[str, tuple[Any, ...]] = {
    **ARITHMETIC,
    "where": (
        None,
        lambda g, y, c, a, b: torch.where(c, g, 0.0),
        lambda g, y, c, a, b: torch.where(c, 0.0, g),
    ),
    "minimum": (lambda g, y, a, b: _chosen(b, a, g), lambda g, y, a, b: _chosen(a, b, g)),
    "maximum": (lambda g, y, a, b: _chosen(a, b, g), lambda g, y, a, b: _chosen(b, a, g)),
    "absolute": (lambda g, y, x: g * torch.sgn(x),),
    "tanh": (lambda g, y, x: _aten.tanh_backward(g, y),),
    "erf": (lambda g, y, x: g * (torch.exp(-x * x) * (2 / sqrt(pi))),),
    "sigmoid": (lambda g, y, x: _aten.sigmoid_backward(g, y),),
    "relu": (lambda g, y, x: _aten.threshold_backward(g, y, 0),),
    "silu": (_of_silu,),
    "gelu": (lambda g, y, x: _aten.gelu_backward(g, x),),
    "gelu_tanh": (lambda g, y, x: _aten.gelu_backward(g, x, approximate="tanh"),),
}
"""As of `warptile.epilogue.derivative`, on tensors. An elementwise operation has a diagonal Jacobian, so that these
serve both directions. Truth values have none."""


def _as_tensor(value: Any, like: torch.Tensor) -> torch.Tensor:
    """A number as a tensor; made on the device, so that nothing waits."""
    return value if isinstance(value, torch.Tensor) else torch.full((), value, dtype=like.dtype, device=like.device)


def _applied(name: str, arguments: list[Any], like: torch.Tensor) -> Any:
    """An operation of tensors and numbers."""
    if name not in OPERATIONS:
        raise UnsupportedError(
            f"epilogue: {name!r} has no derivative here; call it on detached tensors under torch.no_grad()"
        )
    if name in _OF_TENSORS or not any(isinstance(each, torch.Tensor) for each in arguments):
        arguments = [_as_tensor(each, like) for each in arguments]
    return OPERATIONS[name](*arguments)


def step_values(program: Program, accumulator: torch.Tensor, operands: Mapping[str, Any]) -> list[Any]:
    """The value of each step: a tensor that broadcasts to ``accumulator``, of its type, or a number.

    Args:
        program: the traced epilogue.
        accumulator: (..., M, N), alpha * A @ B + beta * C.
        operands: tensors and numbers by name.
    """
    values: list[Any] = []
    for step in program.steps:
        arguments = [values[index] for index in step.arguments]
        if step.name == ACCUMULATOR:
            found: Any = accumulator
        elif step.name == CONSTANT:
            found = step.value
        elif step.name == CAST:
            found = _as_tensor(arguments[0], accumulator).to(torch_type(str(step.value))).to(accumulator.dtype)
        elif step.name == UNIFORM:
            found = _uniform(operands[str(step.value)], accumulator)
        elif isinstance(step.value, tuple):
            name, rows, columns = step.value
            found = _operand(operands[name], (rows, columns), accumulator)
        else:
            found = _applied(step.name, arguments, accumulator)
        values.append(found)
    return values


def _uniform(seed: Any, accumulator: torch.Tensor) -> torch.Tensor:
    """The random numbers of the forward pass, drawn by the same device function in a kernel that multiplies nothing."""
    left, right = accumulator.new_empty((accumulator.shape[-2], 0)), accumulator.new_empty((0, accumulator.shape[-1]))
    found: torch.Tensor = matmul(left, right, epilogue=_draw, seed=seed)
    return found


def _draw(acc: Any, seed: Any) -> Any:
    return tracing.uniform(seed)


def _operand(given: Any, block: tuple[int, int], accumulator: torch.Tensor) -> Any:
    if not isinstance(given, torch.Tensor):
        return given
    found = given.to(accumulator.dtype)
    for axis, size in zip((-2, -1), block, strict=True):
        if size > 1:
            found = found.repeat_interleave(size, axis).narrow(axis, 0, accumulator.shape[axis])
    return found


def _whole(value: Any, accumulator: torch.Tensor) -> torch.Tensor:
    """The value of a step for each element of D."""
    return _as_tensor(value, accumulator).broadcast_to(accumulator.shape)


def _axes(how: Reduction, accumulator: torch.Tensor) -> list[int]:
    """The axes that a reduction goes over."""
    every = range(-accumulator.dim(), 0)
    return list({"columns": (-1,), "rows": (-2,), "matrix": (-2, -1)}.get(how.over, every))


def _shares(value: torch.Tensor, how: Reduction, accumulator: torch.Tensor) -> Any:
    """Derivatives of a reduction by its elements; equal largest ones share theirs, as in torch's amax."""
    if how.operation == "add" or 0 in value.shape:
        return 1.0
    axes = _axes(how, accumulator)
    extreme = torch.amax if how.operation == "maximum" else torch.amin
    chosen = (value == extreme(value, axes, keepdim=True)).to(value.dtype)
    return chosen / chosen.sum(axes, keepdim=True)


def _block_sums(values: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    """The transpose of repeating an element for each block: (..., M, N) to (..., M / rows, N / columns), rounded up."""
    for axis, size in zip((-2, -1), block, strict=True):
        if size > 1:
            missing = -values.shape[axis] % size
            values = torch.nn.functional.pad(values, (0, missing) if axis == -1 else (0, 0, 0, missing))
            values = values.unflatten(axis, (-1, size)).sum(axis if axis == -1 else -2)
    return values


def pulled_back(
    program: Program,
    accumulator: torch.Tensor,
    operands: Mapping[str, Any],
    gradients: Sequence[torch.Tensor | None],
    names: Collection[str],
) -> tuple[torch.Tensor | None, dict[str, torch.Tensor]]:
    """Gradients of the accumulator and of operands.

    Args:
        program: the traced epilogue.
        accumulator: (..., M, N), of the type to compute in.
        operands: tensors and numbers by name.
        gradients: of each output, of its shape; None for one that is not used.
        names: operands whose gradients are wanted.

    Returns:
        The accumulator's gradient, or None where no output depends on it, and those of operands by name, each of its
        operand's shape and type. An operand that no output depends on has none.
    """
    values = step_values(program, accumulator, operands)
    active = active_steps(program, names, accumulator=True)
    found: list[torch.Tensor | None] = [None] * len(values)

    def add(index: int, gradient: torch.Tensor) -> None:
        if gradient.shape != values[index].shape:
            gradient = gradient.sum_to_size(values[index].shape)
        before = found[index]
        found[index] = gradient if before is None else before + gradient

    for index, given, how in zip(program.outputs, gradients, program.output_reductions, strict=True):
        if given is not None and active[index]:
            gradient = given.to(accumulator.dtype)
            if how is not None:
                axes = _axes(how, accumulator)
                kept = [1 if i in axes else accumulator.shape[i] for i in range(-accumulator.dim(), 0)]
                gradient = gradient.reshape(kept) * _shares(_whole(values[index], accumulator), how, accumulator)
                gradient = gradient.broadcast_to(accumulator.shape)
            add(index, gradient)
    of_accumulator, of_operands = None, {}
    for index in reversed(range(len(values))):
        step, gradient = program.steps[index], found[index]
        if gradient is None:
            continue
        if step.name == ACCUMULATOR:
            of_accumulator = gradient
        elif isinstance(step.value, tuple):
            name, rows, columns = step.value
            operand = operands[name]
            of_operands[name] = _block_sums(gradient, (rows, columns)).sum_to_size(operand.shape).to(operand.dtype)
        elif step.name == CAST:
            add(step.arguments[0], gradient)
        else:
            arguments = [values[each] for each in step.arguments]
            for position, each in enumerate(step.arguments):
                if active[each]:
                    add(each, PARTIALS[step.name][position](gradient, values[index], *arguments))
    return of_accumulator, of_operands


def pushed_forward(
    program: Program,
    accumulator: torch.Tensor,
    operands: Mapping[str, Any],
    tangent: torch.Tensor | None,
    tangents: Mapping[str, torch.Tensor],
) -> list[torch.Tensor | None]:
    """Tangents of the outputs.

    Args:
        program, accumulator, operands: as of `pulled_back`.
        tangent: of the accumulator; None for none.
        tangents: of operands, by name.

    Returns:
        For each output its tangent, of its shape, or None where it has none.
    """
    values = step_values(program, accumulator, operands)
    active = active_steps(program, tangents, accumulator=tangent is not None)
    found: list[torch.Tensor | None] = []
    for index, step in enumerate(program.steps):
        along: torch.Tensor | None = None
        if not active[index]:
            pass
        elif step.name == ACCUMULATOR:
            along = tangent
        elif isinstance(step.value, tuple):
            name, rows, columns = step.value
            along = _operand(tangents[name], (rows, columns), accumulator)
        elif step.name == CAST:
            along = found[step.arguments[0]]
        else:
            arguments = [values[each] for each in step.arguments]
            for position, each in enumerate(step.arguments):
                if found[each] is not None:
                    term = PARTIALS[step.name][position](found[each], values[index], *arguments)
                    along = term if along is None else along + term
        found.append(along)
    outputs: list[torch.Tensor | None] = []
    for index, how in zip(program.outputs, program.output_reductions, strict=True):
        along = None if found[index] is None else _whole(found[index], accumulator)
        if along is not None and how is not None:
            shares = _shares(_whole(values[index], accumulator), how, accumulator)
            along = (along * shares).sum(_axes(how, accumulator), keepdim=how.keeps_axes)
        outputs.append(along)
    return outputs
