"""One problem on a GPU: operands in several sets, launches of any plan for it, their timing, the check of a result.

Tuning and benchmarks use it; `matmul` works on the user's own arrays instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from warptile.arrays.array_view import numpy_dtype, packed
from warptile.codegen.nvrtc import CompiledKernel
from warptile.dtypes import DTYPES, DType
from warptile.errors import DeviceError
from warptile.gpu import driver
from warptile.gpu.loader import LoadedKernel, PreparedLaunch, load
from warptile.gpu.timing import Candidate, EventRunner, GraphRunner, Runner, operand_sets
from warptile.gpu.workspaces import Workspaces
from warptile.launch.spec import LaunchSpec
from warptile.planning.plan import Plan
from warptile.problem import Operand, Problem
from warptile.runtime.execute import compiled, copy_launches
from warptile.runtime.host_operands import draw, matrices_of, set_bytes, stacked_shape, stored_operand
from warptile.verify.reference import (
    Reference,
    error_ratio,
    is_correct,
    reference,
)

Array = np.ndarray[Any, np.dtype[Any]]

GUARD_BYTES = 256
"""Canary before and behind D; a multiple of every alignment a kernel may rely on."""

CANARY = 0xA5
UNWRITTEN = 0xFF
"""D is filled with it: NaN in every floating-point type, -1 in integers."""

SHORT_MS = 0.1
"""Kernels shorter than this are timed by replaying a graph: the host queues a launch every 10 us or so."""

GRAPH_MS = 1.0
"""GPU time of one graph."""

MOST_OF_GRAPH = 1024
"""Launches of a graph."""

SLOW_MS = 1000.0
"""A kernel slower than this is not launched again just to warm it up."""

DENSE = "dense A"
"""Address of the whole of a sparse A, zeros included, for libraries that multiply it as a dense one."""


@dataclass(frozen=True)
class CheckResult:
    """The result of one launch against its reference.

    Attributes:
        error_ratio: largest error over its bound, over the rows that were compared; at most 1 is correct.
        unwritten: elements of D that still hold what D was filled with, over the whole of D.
        guards_intact: nothing before or behind D, between its rows, or around the operands was written.
        d: the rows and columns that were compared.
        left_behind: bytes that are not zero in workspaces that kernels must leave zero.
    """

    error_ratio: float
    unwritten: int
    guards_intact: bool
    d: Array
    left_behind: int = 0

    @property
    def rows(self) -> int:
        """How many rows were compared."""
        return math.prod(self.d.shape[:-1])

    @property
    def wrong(self) -> str | None:
        """What is wrong, or None."""
        if not self.guards_intact:
            return "it wrote outside D"
        if self.left_behind:
            return f"{self.left_behind} bytes of workspaces that it must leave zero are not"
        if self.unwritten:
            return f"{self.unwritten} elements of D were never written"
        if not is_correct(self.error_ratio):
            return f"wrong result: the error is {self.error_ratio:.3g} times its bound"
        return None


@dataclass(frozen=True)
class StoredLines:
    """A matrix as it lies in memory: so many lines of so many stored units (bytes or larger), with gaps up to
    ``stride`` units."""

    lines: int
    units: int
    stride: int
    unit_bytes: int

    @staticmethod
    def of(operand: Operand, lines: int, units: int) -> StoredLines:
        """Those of an operand whose lines (as stored) have ``units`` units."""
        bits = operand.dtype.bits
        stride = operand.leading_dimension * min(bits, 8) // 8
        return StoredLines(lines, units, max(stride, units), max(bits, 8) // 8)

    @property
    def bytes(self) -> int:
        """All lines with all gaps."""
        return self.lines * self.stride * self.unit_bytes

    def spread(self, array: Array) -> Array:
        """The matrix with gaps that hold what guard bands do."""
        found = np.full(self.bytes, UNWRITTEN, np.uint8).view(array.dtype).reshape(self.lines, self.stride)
        found[:, : self.units] = array
        return found


def _chosen(matrix: Array, rows: Array | None, columns: Array | None) -> Array:
    """Some rows and columns of a matrix, or of each of a batch; None is all of them."""
    chosen = matrix if rows is None else matrix[..., rows, :]
    return chosen if columns is None else chosen[..., columns]


def unwritten_elements(raw: Array, dtype: DType) -> int:
    """How many elements of D (as bytes) still hold the fill. Integers may hold -1 rightly, so only a run counts there:
    16 neighbours that are all -1."""
    words = raw.view(f"u{dtype.bits // 8}")
    untouched = words == np.iinfo(words.dtype).max
    if dtype.kind == "float":
        return int(np.count_nonzero(untouched))
    runs = untouched[: len(untouched) // 16 * 16].reshape(-1, 16).all(axis=1)
    return int(np.count_nonzero(runs)) * 16


def estimate_ms(runner: Runner) -> float:
    """Time of one launch. The first is thrown away (it loads the code) unless it is slow."""
    first_ms, launches = runner.run(1)
    first_ms /= launches
    if first_ms >= SLOW_MS:
        return first_ms
    several = max(1, min(16, round(5.0 / max(first_ms, 1e-3))))
    elapsed_ms, launches = runner.run(several)
    return max(elapsed_ms / launches, 1e-4)


def runner_for(candidate: Candidate, stream: int) -> tuple[Runner, float]:
    """How to run a candidate, and its time: launch by launch, or, when it is short, by graph replay if it allows it."""
    events = EventRunner(candidate, stream)
    one_ms = estimate_ms(events)
    if SHORT_MS <= one_ms < SLOW_MS:
        one_ms = min(one_ms, estimate_ms(events))  # the host may have been slow to launch a short one
    if one_ms >= SHORT_MS:
        return events, one_ms
    try:
        return long_graph(lambda launches: GraphRunner(candidate, stream, launches), one_ms)
    except Exception as error:  # the vendor's library raises its own type where it cannot be captured
        if isinstance(error, DeviceError) and "CAPTURE" not in (error.driver_name or ""):
            raise
        return events, one_ms


def long_graph(graph_of: Callable[[int], Runner], one_ms: float) -> tuple[Runner, float]:
    """A graph of some `GRAPH_MS`, and the time of one of its launches.

    ``one_ms`` was measured launch by launch, so that it has the host's time in it: a graph of as few launches as that
    makes `GRAPH_MS` may be so short that the time from one replay to the next is what is measured. Then it is made
    again, longer.
    """
    launches = max(1, round(GRAPH_MS / one_ms))
    while True:
        graph = graph_of(launches)
        one_ms = estimate_ms(graph)
        needed = min(round(GRAPH_MS / one_ms), MOST_OF_GRAPH)
        if needed <= 2 * launches:
            return graph, one_ms
        launches = needed


class Launcher:
    """Kernels of plans on the current GPU, each loaded once, and the workspaces that their launches share."""

    def __init__(self) -> None:
        self._loaded: dict[str, LoadedKernel] = {}
        self.workspaces = Workspaces()

    def loaded(self, plan: Plan) -> LoadedKernel:
        """The plan's kernel; compiled and loaded once."""
        return self._load(compiled(plan))

    def _load(self, kernel: CompiledKernel) -> LoadedKernel:
        if kernel.key not in self._loaded:
            self._loaded[kernel.key] = load(kernel)
        return self._loaded[kernel.key]

    def unload(self, plan: Plan) -> None:
        """Give the plan's kernel back; those of copies stay until the end."""
        kernel = self._loaded.pop(compiled(plan).key, None)
        if kernel is not None:
            kernel.close()

    def launches(self, plan: Plan, alpha: float = 1, beta: float = 0) -> list[tuple[LoadedKernel, LaunchSpec]]:
        """All launches of one product: copies, then the product's own."""
        kernel = self.loaded(plan)
        before = [(self._load(copying), spec) for copying, spec in copy_launches(plan)]
        return [*before, (kernel, plan.launch(kernel.kernel.entry, alpha, beta))]

    def candidate(
        self, plan: Plan, launches: Sequence[tuple[LoadedKernel, LaunchSpec]], pointers: Sequence[Mapping[str, int]]
    ) -> Candidate:
        """Those launches over sets of operands, for `warptile.gpu.timing`.

        Workspaces, and with them the targets of copies, are one for all sets and plans, as they are in one stream.
        """
        beside = self.workspaces.pointers(plan.kernel.workspaces)
        prepared: list[list[PreparedLaunch]] = [
            [kernel.prepare(spec, {**of_set, **beside}) for kernel, spec in launches] for of_set in pointers
        ]

        def launch(index: int, stream: int) -> None:
            for each in prepared[index]:
                each.launch(stream)

        return Candidate(launch, len(pointers))

    def close(self) -> None:
        """Give kernels and workspaces back."""
        for kernel in self._loaded.values():
            kernel.close()
        self._loaded.clear()
        self.workspaces.close()


class DeviceProduct:
    """Operands of one problem, whose matrices are contiguous, on the current GPU. Close it, or wait for it to be
    collected."""

    def __init__(
        self,
        problem: Problem,
        *,
        sets: int | None = None,
        seed: int = 0,
        alpha: float = 1,
        beta: float = 0,
        offset_elements: int = 0,
        displaced: str = "ABCD",
    ) -> None:
        """Draw and copy the operands, each between guard bands that hold NaN (integers: -1).

        Args:
            problem: contiguous, or of one set with gaps between rows, which hold what guard bands do. Matrices of a
                batch follow each other.
            sets: sets of operands; by default as many as L2 cannot keep.
            seed: of the random numbers.
            alpha: factor of the product.
            beta: factor of C, which the problem has if this is not zero.
            offset_elements: distance of matrices from the 256-byte boundary that memory begins at; the problem is
                `Problem.displaced` by as much.
            displaced: which matrices are.
        """
        assert beta == 0 or problem.c is not None, "beta without C"
        self.alpha, self.beta = alpha, beta
        driver.enter()
        self.problem = problem
        self.device = driver.device_info()
        self.sets = operand_sets(set_bytes(problem), self.device.l2_bytes) if sets is None else sets
        self._stored_a, of_a = stored_operand(draw(stacked_shape(problem, "A"), problem.a.dtype, seed), problem.a)
        self._stored_b = draw(stacked_shape(problem, "B"), problem.b.dtype, seed + 1)
        self._seed = seed
        self._offsets = {name: offset_elements if name in displaced else 0 for name in "ABCD"}
        self._d_rows = StoredLines.of(problem.d, *stacked_shape(problem, "D"))
        self._d_begin = GUARD_BYTES + self._offsets["D"] * problem.d.dtype.bits // 8
        self._of_a = {name: self._copies(array, name) for name, array in of_a.items()}
        if problem.a.sparse:
            self._of_a[DENSE] = self._copies(self._stored_a, DENSE)
        self._b = self._copies(packed(self._stored_b, problem.b.dtype), "B")
        d_bytes = self._d_begin + self._d_rows.bytes + GUARD_BYTES
        self._d = [driver.Allocation(d_bytes) for _ in range(self.sets)]
        stored_c = None if problem.c is None else draw(stacked_shape(problem, "C"), problem.c.dtype, seed + 2)
        self.c = None if stored_c is None else matrices_of(problem, "C", stored_c)
        self._c = None if stored_c is None else self._copy(stored_c, 0, "C")
        self._launcher = Launcher()

    @property
    def a(self) -> Array:
        """A as [M, K] or [batch, M, K], whatever its order in memory."""
        return matrices_of(self.problem, "A", self._stored_a)

    @property
    def b(self) -> Array:
        """B as [K, N] or [batch, K, N], whatever its order in memory."""
        return matrices_of(self.problem, "B", self._stored_b)

    def _copies(self, array: Array, name: str) -> list[driver.Allocation]:
        return [self._copy(array, index, name) for index in range(self.sets)]

    def _copy(self, array: Array, index: int, name: str) -> driver.Allocation:
        """Set number ``index`` of an operand between guard bands: the same numbers, begun at another place."""
        operand = {"A": self.problem.a, "B": self.problem.b, "C": self.problem.c}.get(name)
        begin = GUARD_BYTES + self._offsets.get(name, 0) * array.itemsize
        if operand is not None:
            rows = StoredLines.of(operand, *array.shape)
            if rows.stride > array.shape[1]:
                assert self.sets == 1, "gaps between rows are for checks, which take one set"
                array = rows.spread(array)
        flat = array.reshape(-1)
        start = (index * 1_000_003) % max(len(flat), 1)
        memory = driver.Allocation(begin + array.nbytes + GUARD_BYTES)
        band = np.full(begin, UNWRITTEN, np.uint8)
        memory.from_host(band)
        memory.from_host(band[:GUARD_BYTES], offset_bytes=begin + array.nbytes)
        memory.from_host(flat[start:], offset_bytes=begin)
        if start:
            memory.from_host(flat[:start], offset_bytes=begin + (len(flat) - start) * flat.itemsize)
        return memory

    def pointers(self, index: int) -> dict[str, int]:
        """Device addresses of one set."""
        found = {name: sets[index].address + self._begin(name) for name, sets in self._of_a.items()}
        found |= {"B": self._b[index].address + self._begin("B"), "D": self._d[index].address + self._d_begin}
        return found if self._c is None else {**found, "C": self._c.address + self._begin("C")}

    def _begin(self, name: str) -> int:
        """Bytes of a matrix's memory before its first element."""
        dtype = self.problem.d.dtype if name == "C" else self.problem.a.dtype
        return GUARD_BYTES + self._offsets.get(name, 0) * max(dtype.bits, 8) // 8

    def loaded(self, plan: Plan) -> LoadedKernel:
        """The plan's kernel on this GPU; compiled and loaded once."""
        return self._launcher.loaded(plan)

    def unload(self, plan: Plan) -> None:
        """Give the plan's kernel back; those of copies stay until the end."""
        self._launcher.unload(plan)

    def candidate(self, plan: Plan) -> Candidate:
        """Launches of ``plan`` over all sets; copies of operands are part of each."""
        return self._launcher.candidate(plan, self._launches(plan), self._all_pointers())

    def copies_candidate(self, plan: Plan) -> Candidate:
        """The launches before the product alone."""
        return self._launcher.candidate(plan, self._launches(plan)[:-1], self._all_pointers())

    def _launches(self, plan: Plan) -> list[tuple[LoadedKernel, LaunchSpec]]:
        return self._launcher.launches(plan, self.alpha, self.beta)

    def _all_pointers(self) -> list[dict[str, int]]:
        return [self.pointers(index) for index in range(self.sets)]

    def exact_before_rounding(self, rows: Array, columns: Array | None = None) -> Array:
        """Some rows (and columns) of the first set's product (of each matrix of a batch) of the numbers that were
        drawn, before they got the operands' type."""
        problem, float32 = self.problem, DTYPES["float32"]
        a = matrices_of(problem, "A", draw(stacked_shape(problem, "A"), float32, self._seed))
        b = matrices_of(problem, "B", draw(stacked_shape(problem, "B"), float32, self._seed + 1))
        a, b = a[..., rows, :], _chosen(b, None, columns)
        kept = a if not problem.a.sparse else np.where(self.a[rows] != 0, a, 0)
        product: Array = kept.astype(np.float64) @ b.astype(np.float64)
        return product

    def reference(
        self, rows: Array | None = None, columns: Array | None = None, *, products_per_rounding: int = 1
    ) -> Reference:
        """What the first set's product should be, for some rows and columns (of each matrix of a batch) or all."""
        c = None if self.c is None else _chosen(self.c, rows, columns)
        return reference(
            self.problem, _chosen(self.a, rows, None), _chosen(self.b, None, columns), c,
            alpha=self.alpha, beta=self.beta, products_per_rounding=products_per_rounding,
        )  # fmt: skip

    def check(
        self, plan: Plan, expected: Reference, rows: Array | None = None, columns: Array | None = None
    ) -> CheckResult:
        """Launch ``plan`` once on the first set, and compare D with ``expected`` (of some rows and columns, or all)."""
        workspaces = self._launcher.workspaces
        launches, beside = self._launches(plan), workspaces.pointers(plan.kernel.workspaces)
        workspaces.spoil()
        memory, lies = self._d[0], self._d_rows
        canary = np.full(self._d_begin, CANARY, np.uint8)
        memory.fill(UNWRITTEN)
        memory.from_host(canary)
        memory.from_host(canary[:GUARD_BYTES], offset_bytes=self._d_begin + lies.bytes)
        for kernel, spec in launches:
            kernel.launch(spec, self.pointers(0) | beside)
        got = memory.to_host(np.empty(self._d_begin + lies.bytes + GUARD_BYTES, np.uint8))
        before, inside, behind = np.split(got, (self._d_begin, self._d_begin + lies.bytes))
        element = self.problem.d.dtype
        whole = inside.view(numpy_dtype(element)).reshape(lies.lines, lies.stride)
        d, gaps = np.ascontiguousarray(whole[:, : lies.units]), whole[:, lies.units :]
        untouched = bool(np.all(before == CANARY) and np.all(behind == CANARY))
        untouched &= bool(np.all(np.ascontiguousarray(gaps).view(np.uint8) == UNWRITTEN))
        shaped = matrices_of(self.problem, "D", d)
        compared = _chosen(shaped, rows, columns)
        return CheckResult(
            error_ratio=error_ratio(compared, expected),
            unwritten=unwritten_elements(d.reshape(-1).view(np.uint8), element),
            guards_intact=untouched and self._operands_guarded(),
            d=compared,
            left_behind=workspaces.leftovers(),
        )

    def _operands_guarded(self) -> bool:
        """Whether the guard bands around the first set of operands are whole."""
        band = np.empty(GUARD_BYTES, np.uint8)
        memories = [*(sets[0] for sets in self._of_a.values()), self._b[0], *([self._c] if self._c else [])]
        ends = [(memory, place) for memory in memories for place in (0, memory.size_bytes - GUARD_BYTES)]
        return all(bool(np.all(memory.to_host(band, place) == UNWRITTEN)) for memory, place in ends)

    def close(self) -> None:
        """Give all memory and kernels back."""
        self._launcher.close()
        for memory in (*(each for sets in self._of_a.values() for each in sets), *self._b, *self._d):
            memory.close()
        if self._c is not None:
            self._c.close()
