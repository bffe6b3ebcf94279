"""Climbing the ladder: every rung compiled, run, checked against float64, counted or timed.

On the GPU rungs are timed next to a baseline in the same rounds; on the emulator their counters are read. The figures
of `warptile ladder --json` are the fields of `RungResult`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from warptile.arrays.array_view import packed
from warptile.arrays.operands import OUTPUTS
from warptile.codegen.nvrtc import CompiledKernel
from warptile.dtypes import DTYPES, DType
from warptile.errors import UnsupportedError, WarptileError
from warptile.expected.expected_time import expected_time
from warptile.planning.plan import Plan, illegal
from warptile.problem import Problem
from warptile.rungs import Rung
from warptile.runtime.execute import Backend, EmulatorBackend, GpuBackend, compiled, planned
from warptile.runtime.host_operands import stored_operand
from warptile.verify.reference import (
    Array,
    Reference,
    error_ratio,
    first_wrong,
    guarded,
    is_correct,
    products_per_rounding,
    random_operand,
    reference,
    stored_shape,
)

if TYPE_CHECKING:
    from warptile.runtime.device_product import DeviceProduct

EMULATED_SIZE = (192, 160, 96)
"""m, n, k without a GPU: a ragged grid of 128 x 128 tiles and three steps of 32, small enough for the whole ladder."""

GPU_SIZE = (4096, 4096, 4096)

LADDER_OUTPUTS = {**OUTPUTS, "int4": ("int32",), "uint4": ("int32",), "bit1": ("int32",)}
"""Output types of each operand type: `matmul`'s, and those of types narrower than a byte, which it does not take."""

CHECKED_FLOPS = 3e11
"""Larger products are compared on one random row of each stripe of `STRIPE_ROWS` rows; that every element was written
and nothing else was is checked everywhere."""

STRIPE_ROWS = 32
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


class CompiledResources(msgspec.Struct, frozen=True):
    """What a compiled kernel takes: registers of a thread, shared bytes of a block, spilled bytes of a thread."""

    registers: int
    shared_bytes: int
    spill_bytes: int


class PredictedTime(msgspec.Struct, frozen=True):
    """`warptile.expected.expected_time`'s figures."""

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
        counters: of the product's launch, from the emulator; empty on the GPU (``warptile profile`` counts there).
        copy_bytes: read and written by launches before the product, which rewrite operands: in ``time_ms``, but not in
            ``counters``.
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
    resources: CompiledResources | None = None
    counters: dict[str, float] = {}
    copy_bytes: int = 0
    time_ms: float | None = None
    tflops: float | None = None
    of_cublas: float | None = None
    predicted: PredictedTime | None = None
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
    accumulate: str | None = None,
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
        accumulate: accumulator of every rung that has it for its operand type; by default the usual one.
        seed: of the normal random operands.
        baseline: on the GPU, what each rung is compared with.
        recorded: looks up earlier results.
    """
    place: _Emulator | _Gpu
    if isinstance(backend, EmulatorBackend):
        place = _Emulator(backend, seed)
    elif isinstance(backend, GpuBackend):
        place = _Gpu(backend, seed, baseline)
    else:
        raise UnsupportedError(f"backend {backend.name}: the ladder runs on 'gpu' and 'emulator'")
    try:
        for rung in rungs:
            yield _climbed(rung, size, backend, (dtype, accumulate), place, recorded)
    finally:
        place.close()


def plan_for(
    rung: Rung, size: tuple[int, int, int], backend: Backend, dtype: str | None = None, accumulate: str | None = None
) -> Plan:
    """The plan of one rung: in ``dtype`` if the rung takes it, else in the rung's usual type; adding as ``accumulate``
    says if the rung does so for that type, else as usual.

    Raises:
        UnsupportedError: the rung takes this problem in no type, or not on this architecture.
    """
    taken = types_taken(rung)
    names = dict.fromkeys([*([dtype] if dtype in taken else []), *taken])
    by_type = [list(_problems(rung, DTYPES[name], size, accumulate)) for name in names]
    device = backend.device
    # A legal default is found without listing candidates. Where there is none, those of one type say why.
    legal = (
        problem
        for problems in by_type
        for problem in problems
        if illegal(rung, problem, rung.default_config(problem, device), device) is None
    )
    first = next(legal, None)
    reason: UnsupportedError | None = None
    for problem in [first] if first is not None else by_type[0]:
        try:
            return planned(problem, backend, rung=rung.name)
        except UnsupportedError as error:
            reason = reason or error
    assert reason is not None
    raise reason


def usual_b_major(rung: Rung) -> str:
    """How B lies in a rung's usual problem: ``"col"``, stored as [N, K], in the family whose instructions want K
    contiguous in most types, else ``"row"``."""
    return "col" if rung.family == "wgmma" else "row"


def types_taken(rung: Rung) -> tuple[str, ...]:
    """Operand types that the ladder can draw and check for a rung, its usual one first."""
    return tuple(name for name in rung.dtypes if name in LADDER_OUTPUTS)


def _problems(rung: Rung, element: DType, size: tuple[int, int, int], accumulate: str | None) -> Iterator[Problem]:
    """Dense problems in the order in which people would want them, those that accumulate as asked first."""
    usual = usual_b_major(rung)
    for accumulator in sorted(element.accumulators, key=lambda name: name != accumulate):
        for out in LADDER_OUTPUTS[element.name]:
            for b_major in sorted(("row", "col"), key=lambda name: name != usual):
                yield Problem.dense(
                    *size, element, out=DTYPES[out], accumulator=DTYPES[accumulator], b_major=b_major,
                    sparse=rung.sparse,
                )  # fmt: skip


def _arrangement(problem: Problem) -> str:
    """The layouts of A and B, and whether A is sparse, as a key."""
    return f"{problem.a.major} {problem.b.major}{' sparse' if problem.a.sparse else ''}"


def _types(problem: Problem) -> tuple[str, str, str]:
    return problem.a.dtype.name, problem.accumulator.name, problem.d.dtype.name


def _climbed(
    rung: Rung,
    size: tuple[int, int, int],
    backend: Backend,
    types: tuple[str | None, str | None],
    place: _Emulator | _Gpu,
    recorded: Recorded | None,
) -> RungResult:
    plan: Plan | None = None
    resources: CompiledResources | None = None
    try:
        plan = plan_for(rung, size, backend, *types)
        kernel = compiled(plan)
        resources = CompiledResources(
            kernel.resources.registers,
            kernel.resources.static_shared_bytes + plan.kernel.dynamic_shared_bytes,
            kernel.resources.spill_bytes,
        )
        run = place.run(plan, kernel)
    except (WarptileError, MemoryError) as error:
        run = _RungRun(failure=f"{type(error).__name__}: {error}", unsupported=isinstance(error, UnsupportedError))
    return RungResult(
        **_who(rung, plan),
        correct=run.failure is None,
        error_ratio=run.ratio,
        failure=run.failure,
        unsupported=run.unsupported,
        resources=resources,
        counters=run.counters,
        time_ms=run.time_ms,
        tflops=None if run.time_ms is None or plan is None else plan.problem.flops / run.time_ms / 1e9,
        of_cublas=run.of_baseline,
        measured=recorded(rung.name, plan.problem) if recorded and plan is not None else None,
    )


def _who(rung: Rung, plan: Plan | None) -> dict[str, Any]:
    """The fields that are known without running anything."""
    who: dict[str, Any] = {
        "name": rung.name,
        "family": rung.family,
        "idea": rung.idea,
        "arch": f"sm_{rung.min_arch}",
        "dtype": rung.dtypes[0],
        "out_dtype": LADDER_OUTPUTS[rung.dtypes[0]][0],
        "accumulator": DTYPES[rung.dtypes[0]].accumulators[0],
    }
    if plan is not None:
        dtype, accumulator, out = _types(plan.problem)
        prediction = expected_time(rung, plan.problem, plan.config, plan.device)
        who |= {
            "dtype": dtype,
            "out_dtype": out,
            "accumulator": accumulator,
            "config": dict(plan.config),
            "copy_bytes": sum(copy.moved_bytes for copy in plan.kernel.copies),
            "predicted": PredictedTime(prediction.time_ms, prediction.bound, prediction.tflops, prediction.arch),
        }
    return who


@dataclass(frozen=True)
class _RungRun:
    """What became of one rung."""

    ratio: float | None = None
    failure: str | None = None
    unsupported: bool = False
    counters: dict[str, float] = field(default_factory=dict)
    time_ms: float | None = None
    of_baseline: float | None = None


class _Emulator:
    """Runs rungs on the emulator, those of one type on the same operands."""

    def __init__(self, backend: EmulatorBackend, seed: int) -> None:
        self._backend = backend
        self._seed = seed
        self._operands: dict[tuple[str, str], tuple[Array, Array, dict[str, Array]]] = {}
        self._expected: dict[tuple[str | int, ...], Reference] = {}

    def run(self, plan: Plan, kernel: CompiledKernel) -> _RungRun:
        """One launch. The emulator itself refuses accesses outside the operands and outputs left unwritten."""
        problem = plan.problem
        _, b, of_a = self._drawn(problem)
        d = guarded(problem.m, problem.n, problem.d.dtype).matrix.copy()
        stored = {**of_a, "B": packed(b, problem.b.dtype), "D": d}
        report = self._backend.emulate(plan, kernel, stored, alpha=1, beta=0)
        counters = dict(report.counters)
        traffic = counters["global_load_bytes"] + counters["global_store_bytes"]
        if not counters["tensor_flops"] and traffic:
            counters["arithmetic_intensity"] = problem.flops / traffic
        expected = self._reference(problem, products_per_rounding(plan.rung.family, problem.a.dtype))
        ratio = error_ratio(d, expected)
        return _RungRun(ratio, _complaint(d, expected, ratio), counters=counters)

    def _drawn(self, problem: Problem) -> tuple[Array, Array, dict[str, Array]]:
        """A and B as stored, (m, k) and (k, n), or (k, m) and (n, k) where they are column-major, and what
        is stored of A."""
        key = (problem.a.dtype.name, _arrangement(problem))
        if key not in self._operands:
            generator = np.random.default_rng(self._seed)
            a = random_operand(stored_shape(problem.m, problem.k, problem.a), problem.a.dtype, generator)
            b = random_operand(stored_shape(problem.k, problem.n, problem.b), problem.b.dtype, generator)
            a, of_a = stored_operand(a, problem.a)
            self._operands[key] = a, b, of_a
        return self._operands[key]

    def _reference(self, problem: Problem, together: int) -> Reference:
        key = (*_types(problem), _arrangement(problem), together)
        if key not in self._expected:
            a, b, _ = self._drawn(problem)
            a = a if problem.a.major == "row" else a.T
            b = b if problem.b.major == "row" else b.T
            self._expected[key] = reference(problem, a, b, products_per_rounding=together)
        return self._expected[key]

    def close(self) -> None:
        """Nothing to give back."""


class _Gpu:
    """Runs rungs on a GPU, checks them, and times them over operand sets that L2 cannot hold."""

    def __init__(self, backend: GpuBackend, seed: int, baseline: BaselineMaker | None) -> None:
        self._backend = backend
        self._seed = seed
        self._maker = baseline
        self._key: tuple[str, ...] | None = None
        self._product: DeviceProduct | None = None
        self._baseline: Launch | None = None
        self._rows: Array | None = None
        self._expected: dict[int, Reference] = {}

    def run(self, plan: Plan, kernel: CompiledKernel) -> _RungRun:
        """One checked launch, then rounds interleaved with the baseline."""
        from warptile.gpu import driver, timing

        with driver.on_device(self._backend.info.ordinal):
            product = self._at(plan.problem)
            together = products_per_rounding(plan.rung.family, plan.problem.a.dtype)
            if together not in self._expected:
                self._expected[together] = product.reference(self._rows, products_per_rounding=together)
            checked = product.check(plan, self._expected[together], self._rows)
            candidates = {}
            if self._baseline is not None:
                candidates["baseline"] = timing.Candidate(self._baseline, product.sets)
            candidates["rung"] = product.candidate(plan)
            schedule = timing.Schedule("sustained", turn_ms=TURN_MS, warm_up_ms=WARM_UP_MS)
            times = timing.compare(candidates, schedule=schedule)
            product.unload(plan)
        ratio = timing.speed_ratio(times["rung"], times["baseline"]).median if self._baseline is not None else None
        return _RungRun(checked.error_ratio, checked.wrong, time_ms=times["rung"].median_ms, of_baseline=ratio)

    def _at(self, problem: Problem) -> DeviceProduct:
        """Operands of this problem's types; those of the types before are given back."""
        key = (*_types(problem), _arrangement(problem))
        if self._product is None or key != self._key:
            self.close()
            from warptile.runtime.device_product import DeviceProduct

            self._product = DeviceProduct(problem, seed=self._seed)
            self._key, self._expected = key, {}
            self._rows = _stripe_rows(problem.m, self._seed) if problem.flops > CHECKED_FLOPS else None
            sets = [self._product.pointers(index) for index in range(self._product.sets)]
            self._baseline = self._maker(problem, sets) if self._maker is not None else None
        return self._product

    def close(self) -> None:
        """Give the operands back."""
        if self._product is not None:
            self._product.close()
            self._product = None


def _stripe_rows(m: int, seed: int) -> Array:
    """One random row of each stripe of `STRIPE_ROWS` rows, so that every tile has some."""
    stripes = np.arange(0, m, STRIPE_ROWS)
    picked: Array = stripes + np.random.default_rng(seed).integers(0, STRIPE_ROWS, stripes.size)
    return np.minimum(picked, m - 1)


def _complaint(d: Array, expected: Reference, ratio: float) -> str | None:
    """What is wrong with a result, naming the first element, or None."""
    if is_correct(ratio):
        return None
    wrong = first_wrong(d, expected)
    assert wrong is not None
    (row, column), got, want = wrong
    return f"D[{row}, {column}] is {got}, which is not {want} within its error bound"
