"""Random operands of a problem in host memory, as they lie there: what benchmarks and the ladder multiply."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from warptile.arrays.array_view import numpy_dtype, packed
from warptile.arrays.sparse import sparsify
from warptile.dtypes import DType
from warptile.problem import Operand, Problem
from warptile.verify.reference import random_operand, stored_shape

Array = np.ndarray[Any, np.dtype[Any]]

_BLOCK = 2**24 - 3
"""Random numbers that are drawn; larger matrices repeat them, out of step with their rows."""


def draw(shape: tuple[int, int], dtype: DType, seed: int) -> Array:
    """Normal data (integers: uniform over the type), quickly: large matrices repeat a block of 16 million numbers.

    Types narrower than a byte come one element in each byte; `warptile.arrays.array_view.packed` stores them.
    """
    count = math.prod(shape)
    if count <= _BLOCK:
        return _drawn(count, dtype, seed).reshape(shape)
    return np.resize(_block(dtype, seed), count).reshape(shape)


@lru_cache(maxsize=4)
def _block(dtype: DType, seed: int) -> Array:
    """What large matrices repeat; several in a row repeat the same."""
    return _drawn(_BLOCK, dtype, seed)


def _drawn(count: int, dtype: DType, seed: int) -> Array:
    generator = np.random.default_rng(seed)
    if dtype.kind == "float":
        return generator.standard_normal(count, dtype=np.float32).astype(numpy_dtype(dtype))
    return random_operand((count,), dtype, generator)


def stored_operand(drawn: Array, operand: Operand) -> tuple[Array, dict[str, Array]]:
    """A as drawn, in the shape in which it lies in memory, made 2:4 sparse where it is to be: the matrix that is
    multiplied, and what is stored of it by the names of a launch's operands."""
    if not operand.sparse:
        return drawn, {"A": packed(drawn, operand.dtype)}
    matrix = sparsify(drawn)
    return matrix.to_dense(), {"A": matrix.values, "E": matrix.packed()}


def stacked_shape(problem: Problem, name: str) -> tuple[int, int]:
    """Shape of all matrices of operand ``name`` as they lie in memory, one behind the other."""
    rows, columns = {"A": (problem.m, problem.k), "B": (problem.k, problem.n)}.get(name, (problem.m, problem.n))
    operand = getattr(problem, name.lower())
    lines, units = stored_shape(rows, columns, operand)
    if operand.leading_dimension == 0:
        lines = 1  # for all rows
    one_matrix = lines * (operand.leading_dimension or units)
    assert operand.batch_stride in (0, one_matrix), "matrices of a batch follow each other"
    return lines * (problem.batch if operand.batch_stride else 1), units


def matrices_of(problem: Problem, name: str, stacked: Array) -> Array:
    """Operand ``name``, all of whose matrices lie in ``stacked``, as (rows, columns), or as (batch, rows, columns)."""
    operand = getattr(problem, name.lower())
    each = stacked
    if problem.batch > 1:
        count = problem.batch if operand.batch_stride else 1
        each = stacked.reshape(count, -1, stacked.shape[1])
        each = np.broadcast_to(each, (problem.batch, *each.shape[1:]))
    if operand.leading_dimension == 0:
        each = np.broadcast_to(each, (*each.shape[:-2], problem.m, problem.n))
    return each if operand.major == "row" else each.swapaxes(-1, -2)


def host_operands(problem: Problem, seed: int = 0) -> dict[str, Array]:
    """Everything that one launch reads and writes, by the names of its operands, as it lies in memory; D is zero."""
    _, found = stored_operand(draw(stacked_shape(problem, "A"), problem.a.dtype, seed), problem.a)
    found["B"] = packed(draw(stacked_shape(problem, "B"), problem.b.dtype, seed + 1), problem.b.dtype)
    if problem.c is not None:
        found["C"] = draw(stacked_shape(problem, "C"), problem.c.dtype, seed + 2)
    found["D"] = np.zeros(stacked_shape(problem, "D"), numpy_dtype(problem.d.dtype))
    return found


def set_bytes(problem: Problem) -> int:
    """Bytes of one set of operands."""
    elements = math.prod(stacked_shape(problem, "A")) + math.prod(stacked_shape(problem, "B"))
    return (elements * problem.a.dtype.bits + math.prod(stacked_shape(problem, "D")) * problem.d.dtype.bits) // 8
