"""Times every rung over all sizes against cuBLASLt's fastest algorithm, as tasks of a journal."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from warptile.bench.baselines.cublaslt import (
    ALIGNMENT_BYTES,
    WORKSPACE_BYTES,
    CublasLt,
    CublasLtMatmul,
    FastestAlgorithm,
    fastest,
)
from warptile.bench.baselines.torch_matmul import TorchLaunch, torch_launch
from warptile.bench.campaign.journal import JournalTask
from warptile.bench.protocol.environment import Sampler
from warptile.bench.protocol.interleaving import CELL_CAP_MS, SWEEP, compare
from warptile.bench.protocol.measurements import (
    BaselineTime,
    LadderCell,
    ProblemKey,
    RecordedPrediction,
    RecordedResources,
    Samples,
)
from warptile.bench.protocol.workloads import GROUPS, SIZES, TypeGroup, groups_of, square, to_problem
from warptile.errors import UnsupportedError
from warptile.gpu import driver
from warptile.gpu.timing import Candidate, Schedule
from warptile.planning.plan import Plan, make_plan
from warptile.planning.tuned_table import config_for
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.rung import Rung
from warptile.runtime.device_product import DENSE, CheckResult, DeviceProduct, runner_for
from warptile.verify.reference import Reference, products_per_rounding

CHECKED_ROWS = 16
"""Rows that are compared with a float64 reference before a cell is measured; the correctness record compares all."""

SEED = 1
"""Of the operands: large ones of the same type then begin with the same numbers, which are drawn once."""

CHECKED_ELEMENTS = 2**24
"""Elements of B that go into the reference: of a larger B one random column of each of equally many stripes does."""

SCREEN_MS, LEAST_SCREEN_MS = 25.0, 5.0
SCREEN_LAUNCHES = 300
"""How long each algorithm of the vendor's library runs while the best is looked for: so many launches, at least and at
most so long."""


class Bench:
    """Holds operands, baseline and reference of one problem at a time, and measures kernels on them."""

    def __init__(
        self,
        sampler: Sampler,
        *,
        schedule: Schedule = SWEEP,
        cap_ms: float = CELL_CAP_MS,
        tuned_folder: Path | None = None,
    ) -> None:
        driver.enter()
        self.tuned_folder = tuned_folder
        self.device = driver.device_info()
        self._sampler = sampler
        self._schedule = schedule
        self._cap_ms = cap_ms
        self._cublas = CublasLt()
        self._workspace = driver.Allocation(WORKSPACE_BYTES)
        self._stream = driver.Stream()
        self._key: tuple[ProblemKey, int] | None = None
        self._product: DeviceProduct | None = None
        self._library: CublasLtMatmul | None = None
        self.no_library = ""
        self._rows: Any = None
        self._columns: Any = None
        self._expected: dict[int, Reference] = {}

    @property
    def baseline_library(self) -> str:
        """Name and version of the vendor's library."""
        return self._cublas.version

    def at(self, key: ProblemKey, offset: int = 0) -> tuple[DeviceProduct, CublasLtMatmul | None]:
        """Operands of a problem, begun ``offset`` elements into memory, and the library's algorithms for it; None where
        it has none (`no_library` says why)."""
        if self._product is None or self._key != (key, offset):
            self.close()
            problem = to_problem(key, offset=offset)
            self._product = DeviceProduct(problem, seed=SEED, offset_elements=offset)
            try:
                self._library, self.no_library = self._cublas.product(key, begin_of(problem, offset)), ""
            except UnsupportedError as error:
                self.no_library = str(error)
            generator = np.random.default_rng(key.m)
            self._rows = np.sort(generator.choice(key.m, min(CHECKED_ROWS, key.m), replace=False))
            self._columns = columns_of_stripes(key, generator)
            self._key, self._expected = (key, offset), {}
        return self._product, self._library

    def _with_library(self, key: ProblemKey) -> tuple[DeviceProduct, CublasLtMatmul]:
        product, library = self.at(key)
        if library is None:
            raise UnsupportedError(self.no_library)
        return product, library

    def close(self) -> None:
        """Give the operands back; the next problem brings its own."""
        if self._product is not None:
            self._product.close()
        if self._library is not None:
            self._library.close()
        self._product, self._library, self._key = None, None, None

    def check(self, rung: Rung, product: DeviceProduct, plan: Plan) -> CheckResult:
        """The result of one launch against some rows and columns of the reference."""
        return product.check(plan, self.reference(rung, product), self._rows, self._columns)

    def exact(self, product: DeviceProduct) -> Any:
        """What is compared, of the numbers before they were rounded to the operands' type."""
        return product.exact_before_rounding(self._rows, self._columns)

    @property
    def stream(self) -> int:
        """The stream of everything that is timed."""
        return self._stream.handle

    def samples_since(self, start_s: float) -> Samples | None:
        """Clocks and power since a moment of `time.monotonic`."""
        return self._sampler.since(start_s)

    def tuned(self, rung: Rung) -> Config | None:
        """The configuration that a search found for the problem at hand, or None."""
        assert self._product is not None
        return config_for(rung, self._product.problem, self.device.name, self.tuned_folder)

    def baseline_candidate(self, product: DeviceProduct, library: CublasLtMatmul, algorithm: int) -> Candidate:
        """Launches of one of the library's algorithms."""
        pointers = [product.pointers(index) for index in range(product.sets)]
        workspace = self._workspace.address

        def launch(index: int, stream: int) -> None:
            at = pointers[index]
            library.launch(algorithm, at.get(DENSE, at["A"]), at["B"], at["D"], workspace, stream)

        return Candidate(launch, product.sets)

    def reference(self, rung: Rung, product: DeviceProduct) -> Reference:
        """What the compared rows and columns should be."""
        together = products_per_rounding(rung.family, product.problem.a.dtype)
        if together not in self._expected:
            self._expected[together] = product.reference(self._rows, self._columns, products_per_rounding=together)
        return self._expected[together]

    def baseline(self, key: ProblemKey) -> BaselineTime:
        """The library's best algorithm, its first, and torch.matmul where torch is installed."""
        product, library = self._with_library(key)
        best = self.best_algorithm(product, library)
        torch, note = self.torch(key, product)
        torch_ms = self._screen(Candidate(torch, torch.sets)) if torch is not None else None
        notes = "; ".join([*best.failed, *([note] if note else [])])
        return BaselineTime(
            problem=key, best_ms=best.best_ms, first_ms=best.first_ms, best=library.name(best.index),
            heuristics=len(library), best_index=best.index, torch_ms=torch_ms, notes=notes,
        )  # fmt: skip

    def best_algorithm(self, product: DeviceProduct, library: CublasLtMatmul) -> FastestAlgorithm:
        """The library's fastest algorithm."""
        return fastest(len(library), lambda i: self._screen(self.baseline_candidate(product, library, i)))

    def _screen(self, candidate: Candidate) -> float:
        """A quick look: milliseconds of one launch."""
        runner, one_ms = runner_for(candidate, self._stream.handle)
        if one_ms >= SCREEN_MS:
            return one_ms
        wanted_ms = min(max(SCREEN_LAUNCHES * one_ms, LEAST_SCREEN_MS), SCREEN_MS)
        elapsed_ms, launches = runner.run(max(1, round(wanted_ms / one_ms)))
        return elapsed_ms / launches

    def copies_ms(self, product: DeviceProduct, plan: Plan) -> float | None:
        """Milliseconds of the launches before a product alone, or None where there are none."""
        return self._screen(product.copies_candidate(plan)) if plan.kernel.copies else None

    def torch(self, key: ProblemKey, product: DeviceProduct) -> tuple[TorchLaunch | None, str]:
        """torch's product of the same operands, tried once, or None and why there is none."""
        pointers = [product.pointers(index) for index in range(product.sets)]
        try:
            launch = torch_launch(key, [{**at, "A": at.get(DENSE, at["A"])} for at in pointers])
            launch(0, self.stream)
            driver.synchronize()
        except Exception as error:  # torch raises its own types; a comparison does without it
            return None, f"torch: {type(error).__name__}: {error}"
        return launch, ""

    def cell(self, rung: Rung, key: ProblemKey, baseline: BaselineTime) -> LadderCell:
        """Check one rung on some rows of D, then time it in rounds interleaved with cuBLASLt's fastest algorithm."""
        product, library = self._with_library(key)
        tuned = self.tuned(rung)
        plan = make_plan(product.problem, rung=rung.name, config=tuned, arch=self.device.arch)
        described = LadderCell(
            rung=rung.name, problem=key, config=dict(plan.config), baseline=baseline.best,
            first_heuristic_ms=baseline.first_ms, predicted=predicted(plan),
            resources=resources_of(product, plan), tuned=tuned is not None,
        )  # fmt: skip
        found = self.check(rung, product, plan)
        ratio = found.error_ratio if math.isfinite(found.error_ratio) else None
        if found.wrong is not None:
            return msgspec.structs.replace(described, error_ratio=ratio, failed=found.wrong)
        start_s = time.monotonic()
        stream = self._stream.handle
        base, base_ms = runner_for(self.baseline_candidate(product, library, baseline.best_index), stream)
        candidate, one_ms = runner_for(product.candidate(plan), stream)
        measured = compare(candidate, one_ms, base, base_ms, schedule=self._schedule, cap_ms=self._cap_ms)
        product.unload(plan)
        return msgspec.structs.replace(
            described, error_ratio=ratio, rounds=measured.rounds, launches=measured.launches,
            baseline_launches=measured.baseline_launches, method=measured.method, note=measured.note,
            samples=self._sampler.since(start_s),
        )  # fmt: skip


def columns_of_stripes(key: ProblemKey, generator: np.random.Generator) -> Any:
    """The columns that are compared: None for all, else one random column of each stripe of equal width."""
    stripes = max(CHECKED_ELEMENTS // max(key.k * key.batch, 1), 1)
    if stripes >= key.n:
        return None
    ends = np.linspace(0, key.n, stripes + 1).astype(np.int64)
    return generator.integers(ends[:-1], ends[1:])


def begin_of(problem: Problem, offset: int) -> int:
    """The power of two that divides where all matrices begin, which are ``offset`` elements behind aligned memory."""
    operands = (problem.a, problem.b, problem.d)
    distances = [offset * max(operand.dtype.bits, 8) // 8 for operand in operands]
    return math.gcd(ALIGNMENT_BYTES, *distances)


def resources_of(product: DeviceProduct, plan: Plan) -> RecordedResources:
    """What the plan's kernel takes."""
    found = product.loaded(plan).kernel.resources
    shared_bytes = found.static_shared_bytes + plan.kernel.dynamic_shared_bytes
    return RecordedResources(found.registers, shared_bytes, found.spill_bytes)


def predicted(plan: Plan) -> RecordedPrediction:
    """The plan's prediction as a record keeps it."""
    said = plan.prediction
    return RecordedPrediction(said.time_ms, said.bound, said.tflops, said.arch)


def plan_cells(
    rungs: Sequence[Rung], arch: str, sizes: Sequence[int] = SIZES, groups: Sequence[TypeGroup] = GROUPS
) -> Iterator[tuple[ProblemKey, tuple[Rung, ...]]]:
    """Problems with the rungs that are measured on them; the sizes that documents show first come first."""
    order = sorted(sizes, key=lambda size: (abs(math.log2(size / 4096)), size))
    for size in order:
        for group in groups:
            taking: dict[ProblemKey, list[Rung]] = {}
            for rung in rungs:
                if group in groups_of(rung, arch):
                    taking.setdefault(square(rung, group, size), []).append(rung)
            yield from ((key, tuple(taken)) for key, taken in sorted(taking.items(), key=lambda each: each[0].sparse))


def key_name(key: ProblemKey) -> str:
    """A problem as part of a task's name."""
    usual = (key.a_major, key.b_major) == ("row", "row")
    words = [key.dtype, key.accumulator, *([] if usual else [key.a_major, key.b_major])]
    return f"{key.shape.replace(' ', '-')}/{'-'.join(words + (['sparse'] if key.sparse else []))}"


def tasks(
    rungs: Sequence[Rung],
    arch: str,
    bench: Callable[[], Bench],
    baseline_of: Callable[[ProblemKey], BaselineTime],
    sizes: Sequence[int] = SIZES,
    *,
    groups: Sequence[TypeGroup] = GROUPS,
    prefix: str = "cell",
) -> Iterator[JournalTask]:
    """Baselines and cells as tasks: for each problem its baseline, then its rungs, named after ``prefix``.

    ``baseline_of`` finds the result of a baseline's task; it raises when there is none, and the cell then fails.
    """
    for key, taking in plan_cells(rungs, arch, sizes, groups):
        yield f"baseline/{key_name(key)}", lambda key=key: bench().baseline(key)  # type: ignore[misc]
        for rung in taking:
            yield (
                f"{prefix}/{key_name(key)}/{rung.name}",
                lambda key=key, rung=rung: bench().cell(rung, key, baseline_of(key)),  # type: ignore[misc]
            )
