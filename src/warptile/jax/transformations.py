"""``vmap`` and derivatives of the primitive: each is a matmul of the same primitive again.

D = alpha * A @ B + beta * C is linear in each operand, so that

    dD = alpha * (dA @ B + A @ dB) + beta * dC        (forward)
    dA = alpha * ct @ B^T    dB = alpha * A^T @ ct    dC = beta * ct        (reverse, ct the cotangent of D)

with sums over the leading axes that were broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import ad, batching

from warptile.jax.primitive import Majors, Options, matmul_p

_TRANSPOSED = {"row": "col", "col": "row"}


def _tangent(primals: Sequence[Any], tangents: Sequence[Any], *, options: Options, majors: Majors) -> tuple[Any, Any]:
    """The result and its tangent."""
    result = matmul_p.bind(*primals, options=options, majors=majors)
    along = product_tangent(primals, tangents, options, majors, result.shape, str(result.dtype))
    return result, ad.Zero(jax.typeof(result).to_tangent_aval()) if along is None else along


def product_tangent(
    primals: Sequence[Any], tangents: Sequence[Any], options: Options, majors: Majors, shape: Any, dtype: str
) -> Any:
    """The tangent of alpha * A @ B + beta * C, whose terms are added by the matmuls themselves.

    Args:
        primals, tangents: of A, B and, where ``options.beta`` is not zero, C.
        options, majors: of the matmul.
        shape, dtype: of the tangent.

    Returns:
        The tangent, None where it is zero.
    """
    a, b = primals[:2]
    da, db, *dc = tangents
    terms = [(da, b)] * (type(da) is not ad.Zero) + [(a, db)] * (type(db) is not ad.Zero)
    moves = bool(dc) and type(dc[0]) is not ad.Zero
    addend, factor = (dc[0].astype(dtype), options.beta) if moves else (None, 0.0)
    if not terms:
        return None if addend is None else jnp.broadcast_to(_scaled(factor, addend), shape)
    output = options.of_derivative.with_output(dtype)
    for x, y in terms:
        operands = (x, y) if addend is None else (x, y, addend)
        addend = matmul_p.bind(*operands, options=replace(output, beta=factor), majors=majors)
        factor = 1
    return addend


def _transposed(
    cotangent: Any, a: Any, b: Any, *addend: Any, options: Options, majors: Majors
) -> tuple[Any | None, ...]:
    """Cotangents of the operands in which a matmul is linear: of A or B, and of C."""
    unknown = [ad.is_undefined_primal(each) for each in (a, b)]
    assert sum(unknown) <= 1, "linear in one factor at a time"
    if type(cotangent) is ad.Zero:
        return tuple(ad.Zero(each.aval) if ad.is_undefined_primal(each) else None for each in (a, b, *addend))
    of_a = _cotangent_of_a(cotangent, a.aval, b, options, majors[1]) if unknown[0] else None
    of_b = _cotangent_of_b(cotangent, a, b.aval, options, majors[0]) if unknown[1] else None
    of_c = [_summed(_scaled(options.beta, cotangent), each.aval.shape) for each in addend]
    return of_a, of_b, *of_c


def _cotangent_of_a(cotangent: Any, a: Any, b: Any, options: Options, b_major: str) -> Any:
    """``alpha * ct @ B^T`` with the type and shape of A."""
    common, options = _common_type(a.dtype, options)
    right = _as_matrices(b, column=True)
    left = with_matrix_axes(cotangent, a.ndim, b.ndim)
    whole = (1, *a.shape) if a.ndim == 1 else a.shape
    operands = left.astype(common), right.swapaxes(-1, -2).astype(common)
    return _multiplied(*operands, whole, a, options, ("row", _TRANSPOSED[b_major]))


def _cotangent_of_b(cotangent: Any, a: Any, b: Any, options: Options, a_major: str) -> Any:
    """``alpha * A^T @ ct`` with the type and shape of B. Where all matrices share B, their rows are one long K."""
    common, options = _common_type(b.dtype, options)
    left = _as_matrices(a, column=False)
    right = with_matrix_axes(cotangent, a.ndim, b.ndim)
    whole = (*b.shape, 1) if b.ndim == 1 else b.shape
    if prod(whole[:-2]) == 1 and a_major == "row" and left.ndim == right.ndim > 2:
        left, right = left.reshape(-1, left.shape[-1]), right.reshape(-1, right.shape[-1])
    operands = left.swapaxes(-1, -2).astype(common), right.astype(common)
    return _multiplied(*operands, whole, b, options, (_TRANSPOSED[a_major], "row"))


def _common_type(dtype: Any, options: Options) -> tuple[Any, Options]:
    """The type in which cotangents are multiplied with operands of a type, and the options for it."""
    if jnp.dtype(dtype).itemsize > 1:
        return dtype, options.of_derivative
    return jnp.bfloat16, replace(options.of_derivative, accumulate=None)


def _multiplied(left: Any, right: Any, whole: tuple[int, ...], like: Any, options: Options, majors: Majors) -> Any:
    """``alpha * left @ right``, summed down to ``whole`` and brought to the type and shape of ``like``."""
    batch = jnp.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    sums = prod(batch) != prod(whole[:-2])
    wide = str(left.dtype) if left.dtype.itemsize > 2 else "float32"
    same = left.dtype == like.dtype and not sums
    found = matmul_p.bind(left, right, options=options.with_output(str(like.dtype) if same else wide), majors=majors)
    return _summed(found, whole).astype(like.dtype).reshape(like.shape)


def _summed(values: Any, shape: tuple[int, ...]) -> Any:
    """The transpose of broadcasting from ``shape``."""
    missing = values.ndim - len(shape)
    repeated = [axis + missing for axis, extent in enumerate(shape) if extent != values.shape[axis + missing]]
    axes = (*range(missing), *repeated)
    return values.sum(axis=axes).reshape(shape) if axes else values


def _scaled(factor: float, values: Any) -> Any:
    return values if factor == 1 else values * jnp.asarray(factor, values.dtype)


def _as_matrices(operand: Any, *, column: bool) -> Any:
    if operand.ndim > 1:
        return operand
    return operand[:, None] if column else operand[None, :]


def with_matrix_axes(result: Any, a_axes: int, b_axes: int) -> Any:
    """The result's axes with those of extent 1 that it lacks because an operand is 1-D."""
    if b_axes == 1:
        result = result[..., None]
    return result[..., None, :] if a_axes == 1 else result


def _batched(operands: Sequence[Any], dims: Sequence[Any], *, options: Options, majors: Majors) -> tuple[Any, int]:
    """The matmul of all examples of a ``vmap`` at once, and the axis along which they are."""
    bind = partial(matmul_p.bind, options=options)
    a, b, *addend = (
        each if dim is None else jnp.moveaxis(each, dim, 0) for each, dim in zip(operands, dims, strict=True)
    )
    of_a, of_b = dims[0] is not None, dims[1] is not None
    a_axes, b_axes = a.ndim - of_a, b.ndim - of_b
    if not addend and of_a and not of_b and b_axes <= 2 and majors[0] == "row":
        # All examples share B: they are further rows.
        rows = a.reshape(-1, a.shape[-1])
        result = bind(rows, b, majors=majors)
        return result.reshape(*a.shape[:-1], *result.shape[1:]), 0
    if not addend and of_b and not of_a and b_axes == 1 and a_axes == 2:
        # Vectors that share A: they are the columns of one matrix.
        return bind(a, b.swapaxes(0, 1), majors=(majors[0], "col")), 1
    if not of_a and not of_b:  # C alone is mapped, and each example is rounded once
        (c,) = addend
        a, of_a = jnp.broadcast_to(a, (c.shape[0], *a.shape)), True
    batch_axes = max(a_axes, b_axes, 2) - 2

    left = a if a_axes > 1 else a[..., None, :]
    right = b if b_axes > 1 else b[..., None]
    matrices = [aligned(left, batch_axes, of_a), aligned(right, batch_axes, of_b)]
    if addend:
        (c,) = addend
        shaped = aligned(with_matrix_axes(c, a_axes, b_axes), batch_axes, dims[2] is not None)
        matrices.append(shaped)
    result = bind(*matrices, majors=majors)
    drop = [result.ndim - 2] * (a_axes == 1) + [result.ndim - 1] * (b_axes == 1)
    return (result.squeeze(axis=tuple(drop)) if drop else result), 0


def aligned(values: Any, batch_axes: int, mapped: bool) -> Any:
    """Matrices with the examples first, then as many leading axes as the results have; unmapped as they are."""
    missing = batch_axes + 3 - values.ndim
    return values.reshape(values.shape[0], *(1,) * missing, *values.shape[1:]) if mapped else values


ad.primitive_jvps[matmul_p] = _tangent
ad.primitive_transposes[matmul_p] = _transposed
batching.primitive_batchers[matmul_p] = _batched
