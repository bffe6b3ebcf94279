"""An epilogue by operations of ``jax.numpy``: what derivatives are taken of, on accumulators that were kept."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from warptile.dtypes import DTYPES
from warptile.epilogue.epilogue_program import ACCUMULATOR, CAST, CONSTANT, UNIFORM, Program, Reduction

OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "negative": operator.neg, "less": jnp.less, "less_equal": jnp.less_equal, "equal": jnp.equal,
    "not_equal": jnp.not_equal, "logical_and": jnp.logical_and, "logical_or": jnp.logical_or,
    "logical_not": jnp.logical_not, "where": jnp.where, "minimum": jnp.minimum, "maximum": jnp.maximum,
    "absolute": jnp.abs, "sqrt": jnp.sqrt, "exp": jnp.exp, "log": jnp.log, "tanh": jnp.tanh,
    "erf": jax.scipy.special.erf, "sigmoid": jax.nn.sigmoid, "relu": jax.nn.relu, "silu": jax.nn.silu,
    "gelu": partial(jax.nn.gelu, approximate=False), "gelu_tanh": partial(jax.nn.gelu, approximate=True),
}  # fmt: skip
"""JAX's operation for each of `warptile.epilogue.operations`."""


def evaluated(
    program: Program,
    accumulator: Any,
    operands: Mapping[str, Any],
    types: Sequence[Any],
    uniform: Callable[[Any], Any],
) -> list[Any]:
    """The outputs.

    Args:
        program: without reductions.
        accumulator: (..., M, N), of the type to compute in.
        operands: arrays that broadcast to it (of blocks with one element for each block), and numbers, by name.
        types: of the outputs.
        uniform: the random numbers of a seed, (M, N).

    Returns:
        Each output, of the accumulator's shape and its type.
    """
    values: list[Any] = []
    for step in program.steps:
        arguments = [values[index] for index in step.arguments]
        if step.name == ACCUMULATOR:
            found = accumulator
        elif step.name == CONSTANT:
            found = jnp.asarray(step.value, accumulator.dtype)
        elif step.name == CAST:
            found = _rounded(arguments[0], DTYPES[str(step.value)].numpy)
        elif step.name == UNIFORM:
            found = uniform(operands[str(step.value)])
        elif isinstance(step.value, tuple):
            name, *block = step.value
            found = _operand(operands[name], block, accumulator)
        else:
            found = OPERATIONS[step.name](*arguments)
        values.append(found)
    return [
        jnp.broadcast_to(values[index], accumulator.shape).astype(dtype)
        for index, dtype in zip(program.outputs, types, strict=True)
    ]


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _rounded(x: Any, dtype: str) -> Any:
    """``x`` rounded to a type; its derivative is not."""
    return x.astype(dtype).astype(x.dtype)


def _rounded_tangent(dtype: str, primals: Any, tangents: Any) -> Any:
    (x,), (along,) = primals, tangents
    whole = not jnp.issubdtype(dtype, jnp.floating)  # constant almost everywhere
    return _rounded(x, dtype), jnp.zeros_like(along) if whole else along


_rounded.defjvp(_rounded_tangent)


def _operand(given: Any, block: Sequence[int], accumulator: Any) -> Any:
    found = jnp.asarray(given, accumulator.dtype)
    for axis, size in zip((-2, -1), block, strict=True):
        if size > 1:
            repeated = jnp.repeat(found, size, axis)
            found = jax.lax.slice_in_dim(repeated, 0, accumulator.shape[axis], axis=axis % found.ndim)
    return found


def reduced(values: Any, how: Reduction) -> Any:
    """An output that is a reduction."""
    axes = {"columns": (-1,), "rows": (-2,), "matrix": (-2, -1)}.get(how.over)
    if how.operation == "add":
        return jnp.sum(values, axes, keepdims=how.keeps_axes)
    function, neutral = {"maximum": (jnp.max, -jnp.inf), "minimum": (jnp.min, jnp.inf)}[how.operation]
    # An extreme of no elements needs a start, which would share the derivative of an equal element.
    return function(values, axes, keepdims=how.keeps_axes, **{"initial": neutral} if values.size == 0 else {})
