"""Operands of many problems cut from one piece of random numbers on the GPU, so that a search among a hundred problems
spends its time on kernels and not on drawing, copying and multiplying matrices on the host.

The pool repeats a block of random numbers, so that the host knows every element of every operand, and some
rows and columns of a product are checked against a float64 reference of these alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from warptile.arrays.array_view import numpy_dtype
from warptile.dtypes import DType
from warptile.gpu import driver
from warptile.gpu.timing import Candidate, operand_sets
from warptile.planning.plan import Plan
from warptile.problem import Operand, Problem
from warptile.runtime.device_product import CANARY, GUARD_BYTES, UNWRITTEN, CheckResult, Launcher, unwritten_elements
from warptile.runtime.host_operands import draw, set_bytes, stacked_shape
from warptile.verify.reference import Reference, error_ratio, products_per_rounding, reference

Array = np.ndarray[Any, np.dtype[Any]]

BLOCK = 2**24 - 3
"""Elements of the block that repeats: no power of two divides it, so that rows of a matrix differ."""

START_ALIGNMENT_BYTES = 256
"""Operands begin at multiples of it, as memory does that the driver allocates."""

CHECKED_ROWS, CHECKED_COLUMNS = 96, 96
WHOLE_BYTES = 8 * 2**20
"""A D of so many bytes is looked at wholly for elements that were not written, a larger one in the checked rows."""


def _rounded(size_bytes: int) -> int:
    return -(-size_bytes // START_ALIGNMENT_BYTES) * START_ALIGNMENT_BYTES


def _stacked_bytes(problem: Problem, name: str) -> int:
    operand: Operand = getattr(problem, name.lower())
    return math.prod(stacked_shape(problem, name)) * operand.dtype.bits // 8


def _gap_bytes(problem: Problem) -> int:
    """Between A and B: where A takes about whole blocks, B would be the same numbers, and sums of one sign."""
    each = problem.a.dtype.bits // 8
    return _rounded(BLOCK // 3 * each) if _stacked_bytes(problem, "A") >= BLOCK // 2 * each else 0


def sets_of(problem: Problem, l2_bytes: int) -> int:
    """Sets of operands that are used in turn, as many as L2 cannot keep."""
    return operand_sets(set_bytes(problem), l2_bytes)


def spread(extent: int, most: int) -> Array:
    """So many places at most, one in each of as many equal bands: no tile is left out that is a band wide."""
    bands = min(extent, most)
    random = np.random.default_rng(extent).random(bands)
    return ((np.arange(bands) + random) * extent / bands).astype(np.int64)


class OperandPool:
    """Random numbers of one type, and room for results, for the largest of some problems."""

    def __init__(self, element: DType, problems: Iterable[Problem], l2_bytes: int, seed: int = 0) -> None:
        """Draw a block and fill the memory with it."""
        sizes, results = [START_ALIGNMENT_BYTES], [START_ALIGNMENT_BYTES]
        for problem in problems:
            sets = sets_of(problem, l2_bytes)
            operands = sum(_rounded(_stacked_bytes(problem, name)) + START_ALIGNMENT_BYTES for name in "AB")
            sizes.append(sets * (operands + _gap_bytes(problem)))
            results.append(sets * (_rounded(_stacked_bytes(problem, "D")) + 2 * GUARD_BYTES + START_ALIGNMENT_BYTES))
        self.element = element
        each = element.bits // 8
        self.block: Array = draw((1, min(BLOCK, max(sizes) // each)), element, seed)[0]
        self.operands, self.results = driver.Allocation(max(sizes)), driver.Allocation(max(results))
        for start in range(0, max(sizes), self.block.nbytes):
            length = min(self.block.nbytes, max(sizes) - start)
            self.operands.from_host(self.block[: length // each], offset_bytes=start)

    def values(self, indices: Array) -> Array:
        """Elements by their place in the pool."""
        found: Array = self.block[indices % len(self.block)]
        return found

    def close(self) -> None:
        """Give the memory back."""
        self.operands.close()
        self.results.close()


class PooledProduct:
    """One GEMM whose operands are cut from a pool; D has guard bands. Only the first operand set is checked."""

    def __init__(
        self, problem: Problem, pool: OperandPool, launcher: Launcher, l2_bytes: int, offset_elements: int = 0
    ) -> None:
        """``offset_elements`` of the operands' type lie between a 256-byte boundary and the matrices, D's among them;
        the problem is `Problem.displaced` by as much."""
        assert problem.c is None, "a pool has no C"
        assert problem.a.dtype == pool.element, problem
        self.problem, self._pool, self._launcher = problem, pool, launcher
        self.sets = sets_of(problem, l2_bytes)
        each = problem.a.dtype.bits // 8
        self._shift, self._d_shift = offset_elements * each, offset_elements * problem.d.dtype.bits // 8
        self._a_bytes, self._b_bytes = (_rounded(_stacked_bytes(problem, name) + self._shift) for name in "AB")
        self._a_bytes += _gap_bytes(problem)
        self._d_bytes = _stacked_bytes(problem, "D")
        self._d_pitch = _rounded(self._d_bytes + self._d_shift + 2 * GUARD_BYTES)
        self._matrix = problem.batch // 2
        self._rows, self._columns = spread(problem.m, CHECKED_ROWS), spread(problem.n, CHECKED_COLUMNS)
        self._expected: Reference | None = None

    def pointers(self, index: int) -> dict[str, int]:
        """Device addresses of one set."""
        base = self._pool.operands.address + index * (self._a_bytes + self._b_bytes) + self._shift
        d = self._pool.results.address + index * self._d_pitch + GUARD_BYTES + self._d_shift
        return {"A": base, "B": base + self._a_bytes, "D": d}

    def candidate(self, plan: Plan) -> Candidate:
        """Launches of ``plan`` over all sets; copies of operands are part of each."""
        pointers = [self.pointers(index) for index in range(self.sets)]
        return self._launcher.candidate(plan, self._launcher.launches(plan), pointers)

    def _elements(self, operand: Operand, start_bytes: int, rows: Array, columns: Array) -> Array:
        """Some rows and columns of an operand of one matrix of the batch, as the host knows them."""
        each, lead = operand.dtype.bits // 8, operand.leading_dimension
        start = start_bytes // each + self._matrix * operand.batch_stride
        down, across = (lead, 1) if operand.major == "row" else (1, lead)
        return self._pool.values(start + down * rows[:, None] + across * columns)

    def expected(self, family: str) -> Reference:
        """What the checked rows and columns should be."""
        if self._expected is None:
            problem, depth = self.problem, np.arange(self.problem.k)
            a = self._elements(problem.a, self._shift, self._rows, depth)
            b = self._elements(problem.b, self._a_bytes + self._shift, depth, self._columns)
            together = products_per_rounding(family, problem.a.dtype)
            self._expected = reference(problem, a, b, products_per_rounding=together)
        return self._expected

    def check(self, plan: Plan) -> CheckResult:
        """Launch ``plan`` once on the first set; compare some rows and columns, look for unwritten ones, at guards."""
        expected, workspaces = self.expected(plan.rung.family), self._launcher.workspaces
        launches, beside = self._launcher.launches(plan), workspaces.pointers(plan.kernel.workspaces)
        workspaces.spoil()
        memory, begin = self._pool.results, GUARD_BYTES + self._d_shift
        canary = np.full(begin, CANARY, np.uint8)
        memory.fill(UNWRITTEN)
        memory.from_host(canary)
        memory.from_host(canary[:GUARD_BYTES], offset_bytes=begin + self._d_bytes)
        for kernel, spec in launches:
            kernel.launch(spec, self.pointers(0) | beside)
        before = memory.to_host(np.empty_like(canary))
        behind = memory.to_host(np.empty(GUARD_BYTES, np.uint8), begin + self._d_bytes)
        d, unwritten = self._result(memory, begin)
        return CheckResult(
            error_ratio=error_ratio(np.ascontiguousarray(d[:, self._columns]), expected),
            unwritten=unwritten,
            guards_intact=bool(np.all(before == CANARY) and np.all(behind == CANARY)),
            d=d,
            left_behind=workspaces.leftovers(),
        )

    def _result(self, memory: driver.Allocation, begin: int) -> tuple[Array, int]:
        """The checked rows, and how many elements of them, or of a small D, were not written."""
        element, n = self.problem.d.dtype, self.problem.n
        storage, each = numpy_dtype(element), element.bits // 8
        first = self._matrix * self.problem.m
        if self._d_bytes <= WHOLE_BYTES:
            whole = memory.to_host(np.empty(self._d_bytes, np.uint8), begin)
            return whole.view(storage).reshape(-1, n)[first + self._rows], unwritten_elements(whole, element)
        rows = np.empty((len(self._rows), n), storage)
        for place, row in enumerate(self._rows):
            memory.to_host(rows[place], begin + (first + int(row)) * n * each)
        return rows, unwritten_elements(rows.reshape(-1).view(np.uint8), element)
