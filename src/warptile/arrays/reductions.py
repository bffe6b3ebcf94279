"""Reductions of an epilogue: what kernels leave of them, and the outputs that are made of that."""

from __future__ import annotations

from typing import Any

import numpy as np

from warptile.dtypes import DType
from warptile.epilogue.epilogue_program import Reduction
from warptile.epilogue.fused_epilogue import Partials

_METHODS = {"add": "sum", "maximum": "max", "minimum": "min"}
_NOTHING = {"add": 0.0, "maximum": -np.inf, "minimum": np.inf}
"""Of no elements, by operation."""


def partials_of(how: Reduction, dtype: DType) -> Partials:
    """What kernels leave of a reduction."""
    return Partials(dtype, how.operation, how.over != "rows")


def reduced(partials: Any, how: Reduction) -> Any:
    """The output of a reduction: partials of the same element combined, by the framework that they are of.

    Args:
        partials: (\\*batch, blocks, rows or columns), written by a kernel.
        how: the reduction.

    Returns:
        An array of that framework: of the shape that `Reduction.shape` says.
    """
    *batch, _, line = partials.shape
    axes = {"columns": (-2,), "rows": (-2,), "matrix": (-2, -1)}.get(how.over, tuple(range(-len(batch) - 2, 0)))
    found = _combined(partials, how.operation, axes)
    return found.reshape(how.shape(tuple(batch), line, line)) if how.keeps_axes else found


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
