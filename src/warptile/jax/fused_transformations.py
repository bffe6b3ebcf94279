"""``vmap`` and derivatives of a matmul with an epilogue.

A call that is differentiated also keeps its accumulators, rounded to the operands' type. The derivative of the epilogue
is JAX's own, of the same operations in ``jax.numpy`` on them; that of the accumulators is one of matmuls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import ad, batching

from warptile.arrays.xla_buffers import ProgramEpilogue
from warptile.epilogue.program_text import keeping_accumulator, text_of
from warptile.epilogue.tracing import trace, uniform
from warptile.jax.epilogue_in_jax import evaluated
from warptile.jax.fused_primitive import fused_p
from warptile.jax.primitive import ROWS, Options
from warptile.jax.transformations import aligned, product_tangent, with_matrix_axes


def _tangents(
    primals: Sequence[Any], tangents: Sequence[Any], *, options: Options, epilogue: ProgramEpilogue
) -> tuple[Sequence[Any], Sequence[Any]]:
    a, b = primals[:2]
    count = len(primals) - len(epilogue.tensors)
    kept_type = "float32" if a.dtype.itemsize == 1 else str(a.dtype)
    keeping = replace(epilogue, text=text_of(keeping_accumulator(epilogue.program, kept_type)))
    *results, kept = fused_p.bind(*primals, options=options, epilogue=keeping)

    compute = jnp.promote_types(kept.dtype, jnp.float32)
    along = product_tangent(primals[:count], tangents[:count], options, ROWS, kept.shape, str(compute))
    operands = dict(zip(epilogue.tensors, primals[count:], strict=True))
    moving = {
        name: each for name, each in zip(epilogue.tensors, tangents[count:], strict=True) if type(each) is not ad.Zero
    }
    if along is None and not moving:
        return results, [_zero(each) for each in results]

    def outputs(accumulator: Any, some: dict[str, Any]) -> list[Any]:
        return _on_accumulators(epilogue, accumulator, operands | some, results, (a.ndim, b.ndim))

    start = kept.astype(compute), {name: operands[name] for name in moving}
    moved = jnp.zeros_like(kept, compute) if along is None else along, moving
    _, found = jax.jvp(outputs, start, moved)
    return results, [
        each if jnp.issubdtype(result.dtype, jnp.floating) else _zero(result)
        for each, result in zip(found, results, strict=True)
    ]


_DRAW = text_of(trace(lambda acc, seed: uniform(seed), {"seed": 0}))
"""Random numbers alone, drawn by the device function that the forward pass calls."""


def _zero(result: Any) -> Any:
    return ad.Zero(jax.typeof(result).to_tangent_aval())


def _on_accumulators(
    epilogue: ProgramEpilogue, accumulator: Any, operands: dict[str, Any], results: Sequence[Any], axes: tuple[int, int]
) -> list[Any]:
    """The outputs, evaluated on accumulators of the results' shape, where A and B have so many axes."""
    program = epilogue.program
    blocked = {name for name, *block in program.tensors if block != [1, 1]}
    named = {name: each if name in blocked else _of_matrices(each, *axes) for name, each in operands.items()}
    matrices = with_matrix_axes(accumulator, *axes)

    def drawn(seed: Any) -> Any:
        m, n = matrices.shape
        left, right = jnp.zeros((m, 0), matrices.dtype), jnp.zeros((0, n), matrices.dtype)
        (found,) = fused_p.bind(left, right, options=Options(), epilogue=ProgramEpilogue(_DRAW, (), (("seed", seed),)))
        return found

    types = [each.dtype for each in results]
    found = evaluated(program, matrices, named | dict(epilogue.numbers), types, drawn)
    return [each.reshape(accumulator.shape) for each in found]


def _batched(
    operands: Sequence[Any], dims: Sequence[Any], *, options: Options, epilogue: ProgramEpilogue
) -> tuple[Sequence[Any], Sequence[int]]:
    """All examples of a ``vmap`` at once, and the axis of each result along which they are."""
    count = len(operands) - len(epilogue.tensors)
    mapped = [dim is not None for dim in dims]
    a, b, *others = (
        each if dim is None else jnp.moveaxis(each, dim, 0) for each, dim in zip(operands, dims, strict=True)
    )
    a_axes, b_axes = a.ndim - mapped[0], b.ndim - mapped[1]
    if mapped[0] and not any(mapped[1:]) and b_axes <= 2 and _same_for_all_rows(epilogue, others, count, b_axes):
        # All examples share all else: they are further rows.
        along = [each.reshape(each.shape[-1:]) for each in others]
        rows = fused_p.bind(a.reshape(-1, a.shape[-1]), b, *along, options=options, epilogue=epilogue)
        return [each.reshape(*a.shape[:-1], *each.shape[1:]) for each in rows], [0] * len(rows)
    if not mapped[0] and not mapped[1]:  # operands alone are mapped
        examples = next(each.shape[0] for each, is_mapped in zip(others, mapped[2:], strict=True) if is_mapped)
        a, mapped[0] = jnp.broadcast_to(a, (examples, *a.shape)), True
    batch_axes = max(a_axes, b_axes, 2) - 2
    blocked = {name for name, *block in epilogue.program.tensors if block != [1, 1]}
    names = [None] * (count - 2) + list(epilogue.tensors)
    shaped = [
        aligned(each if name in blocked else _of_matrices(each, a_axes, b_axes, is_mapped), batch_axes, is_mapped)
        for each, name, is_mapped in zip(others, names, mapped[2:], strict=True)
    ]
    left = aligned(a if a_axes > 1 else a[..., None, :], batch_axes, mapped[0])
    right = aligned(b if b_axes > 1 else b[..., None], batch_axes, mapped[1])
    results = fused_p.bind(left, right, *shaped, options=options, epilogue=epilogue)
    drop = (-2,) * (a_axes == 1) + (-1,) * (b_axes == 1)
    return [each.squeeze(axis=drop) if drop else each for each in results], [0] * len(results)


def _of_matrices(tensor: Any, a_axes: int, b_axes: int, is_mapped: bool = False) -> Any:
    """What broadcasts to the result, with the axes that a result of 1-D operands lacks."""
    return with_matrix_axes(tensor, a_axes, b_axes) if tensor.ndim > is_mapped else tensor


def _same_for_all_rows(epilogue: ProgramEpilogue, others: Sequence[Any], count: int, b_axes: int) -> bool:
    """Whether an epilogue does the same for each row of D: no C, and operands with one element for each column."""
    program = epilogue.program
    elements = all(block == [1, 1] for _, *block in program.tensors)
    along_rows = all(each.size == (each.shape[-1] if each.ndim and b_axes > 1 else 1) for each in others)
    return count == 2 and elements and along_rows and not program.seeds


ad.primitive_jvps[fused_p] = _tangents
batching.primitive_batchers[fused_p] = _batched
