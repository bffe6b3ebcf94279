"""Reductions of an epilogue: memory for what kernels leave of them, and the outputs that are made of that."""

from __future__ import annotations

from typing import Any

import numpy as np

from warptile.arrays import array_view
from warptile.arrays.array_view import ArrayView, Shape
from warptile.epilogue.epilogue_program import Reduction
from warptile.epilogue.fused_epilogue import Partials

_METHODS = {"add": "sum", "maximum": "max", "minimum": "min"}
_NOTHING = {"add": 0.0, "maximum": -np.inf, "minimum": np.inf}
"""Of no elements, by operation."""


def partials_of(how: Reduction, dtype: Any) -> Partials:
    """What kernels leave of a reduction."""
    return Partials(dtype, how.operation, how.over != "rows")


def empty_partials(like: ArrayView, partials: Partials, batch: Shape, m: int, n: int, block: int) -> ArrayView:
    """Memory for the partials of a batch of m x n matrices: (\\*batch, blocks, rows or columns)."""
    return array_view.empty(like, (*batch, *partials.shape(m, n, block)), partials.dtype)


def reduced(partials: ArrayView, how: Reduction, like: ArrayView) -> Any:
    """The output, by the framework of ``like``: partials of the same element combined.

    Args:
        partials: from `empty_partials`, written.
        how: the reduction.
        like: the caller's ``a``.

    Returns:
        An array of that framework, (\\*batch, M) over columns, (\\*batch, N) over rows, (\\*batch,) over matrices, or
        () over all; with ``how.keeps_axes`` the axes that it goes over have one element.
    """
    array = array_view.returned(partials, like)
    axes = {"columns": (-2,), "rows": (-2,), "matrix": (-2, -1)}.get(how.over, tuple(range(-partials.ndim, 0)))
    found = _combined(array, how.operation, axes)
    if not how.keeps_axes:
        return found
    *batch, _, _ = partials.shape
    line = partials.shape[-1]
    return found.reshape(how.shape(tuple(batch), line, line))


def _combined(array: Any, operation: str, axes: tuple[int, ...]) -> Any:
    shape = tuple(array.shape)
    if any(shape[axis] == 0 for axis in axes):
        left = tuple(extent for axis, extent in enumerate(shape, -len(shape)) if axis not in axes)
        filled = array.new_full if hasattr(array, "new_full") else None
        nothing = _NOTHING[operation]
        return np.full(left, nothing, array.dtype) if filled is None else filled(left, nothing)
    if hasattr(array, "amax") and not isinstance(array, np.ndarray):  # torch, whose max of several axes has this name
        return getattr(array, {"add": "sum", "maximum": "amax", "minimum": "amin"}[operation])(axes)
    if isinstance(array, np.ndarray) and operation == "add":  # NumPy adds rows one after the other
        return np.asarray(array.sum(axis=axes, dtype=np.float64).astype(array.dtype))
    return getattr(array, _METHODS[operation])(axis=axes)
