"""Climbing the ladder: every rung compiled, run, checked against float64, counted or timed.

On the GPU rungs are timed next to a baseline in the same rounds; on the emulator their counters are read. The figures
of `warptile ladder --json` are the fields of `RungResult`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from warptile.compile import CompiledKernel
from warptile.dtypes import DTYPES, DType
from warptile.errors import UnsupportedError, WarptileError
from warptile.execute import Backend, EmulatorBackend, GpuBackend, compiled
from warptile.operands import OUTPUTS
from warptile.plan import Plan, make_plan
from warptile.problem import Problem
from warptile.reference import (
    Array,
    Reference,
    error_ratio,
    first_wrong,
    guarded,
    is_correct,
    random_operand,
    reference,
)
from warptile.rungs import Rung

EMULATED_SIZE = (192, 160, 96)
"""m, n, k without a GPU: a ragged grid of 128 x 128 tiles and three steps of 32, small enough for the whole ladder."""

GPU_SIZE = (4096, 4096, 4096)

CHECKED_FLOPS = 3e11
"""Larger products are checked on one random row of each stripe of `STRIPE_ROWS` rows, and everywhere for NaN."""

STRIPE_ROWS = 32

TENSOR_CORE_PRODUCTS = 8
"""Products that tensor cores of sm_80 and later add before they round once (see `warptile.reference`)."""

TURN_MS = 250.0
WARM_UP_MS = 300.0

Addresses = Mapping[str, int]
Launch = Callable[[int, int], None]
BaselineMaker = Callable[[Problem, Sequence[Addresses]], Launch | None]
"""Given a problem and the device addresses of each operand set: what queues the baseline's launch, or None."""

Recorded = Callable[[str, Problem], dict[str, Any] | None]
"""The recorded result of a rung, or None."""


class ProblemSize(msgspec.Struct, frozen=True):
    """What the ladder was climbed on. Rungs that do not take ``dtype`` run in their own, which their row says."""

    m: int
    n: int
    k: int
    dtype: str


class Resources(msgspec.Struct, frozen=True):
    """What a compiled kernel takes: registers of a thread, shared bytes of a block, spilled bytes of a thread."""

    registers: int
    shared_bytes: int
    spill_bytes: int


class Predicted(msgspec.Struct, frozen=True):
    """`warptile.predict`'s figures."""

    time_ms: float
    bound: str
    tflops: float
    arch: str


class RungResult(msgspec.Struct, frozen=True, kw_only=True):
    """One rung of a climb.

    Attributes:
        name: of the rung.
        family: of the rung.
        idea: what it adds.
        arch: the least architecture that its instructions need.
        dtype: operand type that it ran in.
        out_dtype: type of D.
        accumulator: type that it accumulated in.
        correct: every element written, within its error bound, and nothing outside touched.
        error_ratio: largest ``|error| / bound``; None when no result came to be.
        failure: why it is not correct, or None.
        unsupported: the failure is that this architecture or problem is not taken.
        config: tunables.
        resources: of the compiled kernel; None when it did not compile.
        counters: from the emulator; empty on the GPU (``warptile profile`` counts there).
        time_ms: median on the GPU, else None.
        tflops: of ``time_ms``.
        of_cublas: speed relative to the baseline of the same rounds.
        predicted: on the reference GPU.
        measured: the recorded result on the reference GPU, with its problem, date and record.
    """

    name: str
    family: str
    idea: str
    arch: str
    dtype: str
    out_dtype: str
    accumulator: str
    correct: bool
    error_ratio: float | None = None
    failure: str | None = None
    unsupported: bool = False
    config: dict[str, int] = {}
    resources: Resources | None = None
    counters: dict[str, float] = {}
    time_ms: float | None = None
    tflops: float | None = None
    of_cublas: float | None = None
    predicted: Predicted | None = None
    measured: dict[str, Any] | None = None


class Ladder(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="warptile.ladder/1"):
    """The document that ``warptile ladder --json`` prints."""

    backend: str
    problem: ProblemSize
    environment: dict[str, Any]
    rungs: tuple[RungResult, ...]


def climb(
    rungs: Sequence[Rung],
    size: tuple[int, int, int],
    backend: Backend,
    *,
    dtype: str | None = None,
    seed: int = 1,
    baseline: BaselineMaker | None = None,
    recorded: Recorded | None = None,
) -> Iterator[RungResult]:
    """Run each rung and yield its result; a rung that fails is a result too.

    Args:
        rungs: in order.
        size: m, n, k.
        backend: where to run.
        dtype: operand type of every rung that takes it; by default each rung's usual one.
        seed: of the normal random operands.
        baseline: on the GPU, what each rung is timed beside.
        recorded: looks up earlier results.
    """
    checks: dict[tuple[str, str, str, str, int], _Check] = {}
    for rung in rungs:
        plan: Plan | None = None
        try:
            plan = plan_for(rung, size, backend.arch, dtype)
            key = (*_types(plan.problem), plan.problem.b.major, products_per_rounding(rung))
            check = checks.setdefault(key, _Check(plan.problem, products_per_rounding(rung), seed))
            yield _climbed(plan, backend, check, baseline, recorded)
        except (WarptileError, MemoryError) as error:
            yield _failed(rung, plan, error, recorded)


def plan_for(rung: Rung, size: tuple[int, int, int], arch: str, dtype: str | None = None) -> Plan:
    """The plan of one rung: in ``dtype`` if the rung takes it, else in the rung's usual type.

    Raises:
        UnsupportedError: the rung takes this problem in no type, or not on this architecture.
    """
    names = list(dict.fromkeys(([dtype] if dtype in rung.dtypes else []) + list(rung.dtypes)))
    reason: UnsupportedError | None = None
    for problem in (problem for name in names for problem in _problems(DTYPES[name], size)):
        try:
            return make_plan(problem, rung=rung.name, arch=arch)
        except UnsupportedError as error:
            reason = reason or error
    assert reason is not None
    raise reason


def products_per_rounding(rung: Rung) -> int:
    """How many products a rung adds before it rounds once: its kernel's instruction decides."""
    return 1 if rung.family == "simt" else TENSOR_CORE_PRODUCTS


def _problems(element: DType, size: tuple[int, int, int]) -> Iterator[Problem]:
    """Dense problems in the order in which people would want them."""
    for accumulator in element.accumulators:
        for out in OUTPUTS.get(element.name, ("int32",)):
            for b_major in ("row", "col"):
                yield Problem.dense(*size, element, out=DTYPES[out], accumulator=DTYPES[accumulator], b_major=b_major)


def _types(problem: Problem) -> tuple[str, str, str]:
    return problem.a.dtype.name, problem.accumulator.name, problem.d.dtype.name


@dataclass
class _Check:
    """Operands of one type and what their product should be; shared by the rungs that take that type."""

    problem: Problem
    products_per_rounding: int
    seed: int

    @cached_property
    def operands(self) -> tuple[Array, Array]:
        """A (m, k) and B as it is stored: (k, n), or (n, k) where B is column-major."""
        problem, generator = self.problem, np.random.default_rng(self.seed)
        b_shape = (problem.k, problem.n) if problem.b.major == "row" else (problem.n, problem.k)
        return (
            random_operand((problem.m, problem.k), problem.a.dtype, generator),
            random_operand(b_shape, problem.b.dtype, generator),
        )

    @cached_property
    def rows(self) -> Array:
        """Rows that are checked: all, or one of each stripe where all would take too long."""
        problem = self.problem
        if problem.flops <= CHECKED_FLOPS:
            return np.arange(problem.m)
        stripes = np.arange(0, problem.m, STRIPE_ROWS)
        picked: Array = stripes + np.random.default_rng(self.seed).integers(0, STRIPE_ROWS, stripes.size)
        return np.minimum(picked, problem.m - 1)

    @cached_property
    def expected(self) -> Reference:
        """The product of the checked rows, with its bound."""
        a, b = self.operands
        b = b if self.problem.b.major == "row" else b.T
        return reference(self.problem, a[self.rows], b, products_per_rounding=self.products_per_rounding)

    def judge(self, d: Array) -> tuple[float, str | None]:
        """The error ratio of a result, and what is wrong with it or None."""
        if not np.isfinite(d).all():
            return float("inf"), "D has elements that are not finite, or were never written"
        checked = d[self.rows]
        ratio = error_ratio(checked, self.expected)
        if is_correct(ratio):
            return ratio, None
        wrong = first_wrong(checked, self.expected)
        assert wrong is not None
        (row, column), got, want = wrong
        return ratio, f"D[{self.rows[row]}, {column}] is {got}, which is not {want} within its error bound"


def _climbed(
    plan: Plan, backend: Backend, check: _Check, baseline: BaselineMaker | None, recorded: Recorded | None
) -> RungResult:
    kernel = compiled(plan)
    if isinstance(backend, EmulatorBackend):
        run = _emulated(plan, kernel, backend, check)
    elif isinstance(backend, GpuBackend):
        run = _on_gpu(plan, kernel, backend, check, baseline)
    else:
        raise UnsupportedError(f"backend {backend.name}: the ladder runs on 'gpu' and 'emulator'")
    return RungResult(
        **_who(plan.rung, plan),
        correct=run.failure is None,
        error_ratio=run.ratio,
        failure=run.failure,
        resources=Resources(
            kernel.resources.registers,
            kernel.resources.static_shared_bytes + plan.rung.dynamic_shared_bytes(plan.problem, plan.config),
            kernel.resources.spill_bytes,
        ),
        counters=run.counters,
        time_ms=run.time_ms,
        tflops=None if run.time_ms is None else plan.problem.flops / run.time_ms / 1e9,
        of_cublas=run.of_baseline,
        measured=recorded(plan.rung.name, plan.problem) if recorded else None,
    )


def _who(rung: Rung, plan: Plan | None) -> dict[str, Any]:
    """The fields that are known without running anything."""
    who: dict[str, Any] = {
        "name": rung.name,
        "family": rung.family,
        "idea": rung.idea,
        "arch": f"sm_{rung.min_arch}",
        "dtype": rung.dtypes[0],
        "out_dtype": OUTPUTS.get(rung.dtypes[0], ("int32",))[0],
        "accumulator": DTYPES[rung.dtypes[0]].accumulators[0],
    }
    if plan is not None:
        dtype, accumulator, out = _types(plan.problem)
        prediction = plan.prediction
        who |= {
            "dtype": dtype,
            "out_dtype": out,
            "accumulator": accumulator,
            "config": dict(plan.config),
            "predicted": Predicted(prediction.time_ms, prediction.bound, prediction.tflops, prediction.arch),
        }
    return who


def _failed(rung: Rung, plan: Plan | None, error: Exception, recorded: Recorded | None) -> RungResult:
    return RungResult(
        **_who(rung, plan),
        correct=False,
        failure=f"{type(error).__name__}: {error}",
        unsupported=isinstance(error, UnsupportedError),
        measured=recorded(rung.name, plan.problem) if recorded and plan is not None else None,
    )


@dataclass(frozen=True)
class _Run:
    ratio: float
    failure: str | None
    counters: dict[str, float]
    time_ms: float | None = None
    of_baseline: float | None = None


def _emulated(plan: Plan, kernel: CompiledKernel, backend: EmulatorBackend, check: _Check) -> _Run:
    """One emulated launch. The emulator itself refuses accesses outside the operands and unwritten outputs."""
    a, b = check.operands
    d = guarded(plan.problem.m, plan.problem.n, plan.problem.d.dtype).matrix.copy()
    report = backend.emulate(plan, kernel, {"A": a, "B": b, "D": d}, alpha=1, beta=0)
    ratio, failure = check.judge(d)
    counters = dict(report.counters)
    traffic = counters["global_load_bytes"] + counters["global_store_bytes"]
    if not counters["tensor_flops"] and traffic:
        counters["arithmetic_intensity"] = plan.problem.flops / traffic
    return _Run(ratio, failure, counters)


# --- on the GPU ------------------------------------------------------------------------------------------------------


def _on_gpu(
    plan: Plan, kernel: CompiledKernel, backend: GpuBackend, check: _Check, baseline: BaselineMaker | None
) -> _Run:
    """A checked launch into guarded memory, then timing over operand sets that L2 cannot hold."""
    from warptile.gpu import driver

    with driver.on_device(backend.info.ordinal):
        loaded = backend.load(kernel)
        spec = plan.launch(kernel.entry)
        a, b = check.operands
        target = guarded(plan.problem.m, plan.problem.n, plan.problem.d.dtype)
        with (
            driver.Allocation.from_array(a) as device_a,
            driver.Allocation.from_array(b) as device_b,
            driver.Allocation.from_array(target.memory) as device_d,
        ):
            pointers = {"A": device_a.address, "B": device_b.address, "D": device_d.address + target.offset_bytes}
            loaded.launch(spec, pointers, 0)
            device_d.to_host(target.memory)
        ratio, failure = check.judge(target.matrix)
        damage = target.damage()
        if damage is not None:
            failure = f"it wrote outside D: {damage}"
        time_ms, of_baseline = _timed(plan, backend, loaded, spec, (a, b), baseline)
    return _Run(ratio, failure, {}, time_ms, of_baseline)


def _timed(
    plan: Plan,
    backend: GpuBackend,
    loaded: Any,
    spec: Any,
    operands: tuple[Array, Array],
    baseline: BaselineMaker | None,
) -> tuple[float, float | None]:
    """Milliseconds of one launch and the speed relative to the baseline of the same rounds, if there is one."""
    from warptile.gpu import driver, timing

    problem = plan.problem
    d_bytes = problem.m * problem.n * problem.d.dtype.bits // 8
    set_bytes = sum(operand.nbytes for operand in operands) + d_bytes
    count = timing.operand_sets(set_bytes, backend.info.l2_bytes)
    memory = [
        {"A": driver.Allocation.from_array(operands[0]), "B": driver.Allocation.from_array(operands[1]),
         "D": driver.Allocation(d_bytes)}
        for _ in range(count)
    ]  # fmt: skip
    try:
        sets = [{name: allocation.address for name, allocation in one.items()} for one in memory]
        prepared = [loaded.prepare(spec, addresses) for addresses in sets]
        candidates = {}
        other = baseline(problem, sets) if baseline is not None else None
        if other is not None:
            candidates["baseline"] = timing.Candidate(other, count)
        candidates[plan.rung.name] = timing.Candidate(lambda index, stream: prepared[index].launch(stream), count)
        schedule = timing.Schedule("sustained", turn_ms=TURN_MS, warm_up_ms=WARM_UP_MS)
        times = timing.compare(candidates, schedule=schedule)
    finally:
        for one in memory:
            for allocation in one.values():
                allocation.close()
    own = times[plan.rung.name]
    ratio = timing.speed_ratio(own, times["baseline"]).median if other is not None else None
    return own.median_ms, ratio
