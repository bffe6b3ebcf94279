"""Measures the rows of a suite: warptile as planned, cuBLASLt's fastest algorithm, torch, and a neighbouring GEMM.

Results are checked first. Then every participant gets one turn in each of several rounds, in the same order, on operand
sets that L2 cannot hold. Short launches are replayed from CUDA graphs, so that launch overhead of the host does not
count. GEMMs limited by memory bandwidth stay below the power limit, so their turns are short.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from warptile.bench.campaign.journal import JournalTask
from warptile.bench.campaign.ladder_sweep import SEED, Bench, resources_of
from warptile.bench.protocol.row_result import LIBRARY, NEIGHBOUR, OURS, TORCH, ParticipantRounds, RowResult
from warptile.bench.protocol.suites import SuiteRow, chosen
from warptile.bench.protocol.workloads import to_problem
from warptile.codegen.translation_unit import Source
from warptile.device import KNOWN, DeviceLimits
from warptile.device import usual as usual_device
from warptile.errors import DeviceError, UnsupportedError, WarptileError
from warptile.gpu.timing import Candidate, Runner, Schedule, take_turns
from warptile.planning.plan import Plan
from warptile.runtime.device_product import DeviceProduct, runner_for
from warptile.runtime.execute import planned, sources

WHOLE = Schedule("sustained", rounds=9, turn_ms=300.0, warm_up_ms=1000.0)
BRIEF = Schedule("sustained", rounds=7, turn_ms=80.0, warm_up_ms=500.0)
"""Schedules for the tables, and for a whole suite in two minutes. The clock drops by 13 % for 0.1 s about half a second
after a load begins, then settles: the warm-up covers that."""

TORCH_TURN = 0.25
"""Share of a turn that torch gets: its kernels are mostly cuBLAS's."""

COOLING_RATIO = 2.0
"""A participant this many times slower than warptile lets the chip cool: the neighbour is then timed separately."""

STREAMING = 200.0
"""FLOP for each byte of A, B and D below which a GEMM is limited by memory bandwidth."""

STREAMING_TURN = 0.25
"""Share of a turn that GEMMs limited by memory bandwidth get."""


@dataclass
class GpuModel:
    """What rows are planned for: an architecture and, where it is known, the GPU model."""

    arch: str
    gpu: str | None

    @property
    def device(self) -> DeviceLimits:
        """The limits to plan for: those of the model, or of the usual GPU of the architecture."""
        return KNOWN.get(self.gpu or "") or usual_device(self.arch)


def plans_of(row: SuiteRow, device: GpuModel) -> Iterator[Plan]:
    """The plans that a row runs: that of its GEMM, and that of its neighbour if it has one."""
    yield planned(to_problem(row.problem, offset=row.offset), device, max_sms=row.max_sms)
    if row.neighbour is not None:
        yield planned(to_problem(row.neighbour), device)


def sources_of(rows: Iterable[SuiteRow], device: GpuModel) -> list[Source]:
    """Every translation unit that some rows need, once each. Rows without a plan are left out; measuring them fails."""
    found: dict[Source, None] = {}
    for row in rows:
        try:
            plans = tuple(plans_of(row, device))
        except UnsupportedError:
            continue
        for plan in plans:
            found |= dict.fromkeys(sources(plan))
    return list(found)


def schedule_of(row: SuiteRow, brief: bool) -> Schedule:
    """The schedule of a row: shorter turns where memory bandwidth limits it."""
    schedule = BRIEF if brief else WHOLE
    key, problem = row.problem, to_problem(row.problem)
    elements = key.m * key.k + key.k * key.n
    moved = key.batch * (elements * problem.a.dtype.bits + key.m * key.n * problem.d.dtype.bits) / 8
    if key.flops / moved >= STREAMING:
        return schedule
    return replace(schedule, turn_ms=schedule.turn_ms * STREAMING_TURN, warm_up_ms=schedule.warm_up_ms * STREAMING_TURN)


def measure_or_fail(bench: Bench, suite: str, row: SuiteRow, *, brief: bool = False) -> RowResult:
    """As `measure`, but a row without a plan, or whose kernel does not compile, becomes a result that says why.

    Raises:
        DeviceError: the GPU failed; the process is of no more use.
    """
    try:
        return measure(bench, suite, row, brief=brief)
    except DeviceError:
        raise
    except WarptileError as error:
        return RowResult(
            suite=suite, problem=row.problem, offset=row.offset, max_sms=row.max_sms, beside=row.neighbour, rung="",
            config={}, failed=f"{type(error).__name__}: {error}",
        )  # fmt: skip


def measure(bench: Bench, suite: str, row: SuiteRow, *, brief: bool = False) -> RowResult:
    """Check warptile's result against float64 on some rows of D, then time all participants in interleaved rounds."""
    product, library = bench.at(row.problem, row.offset)
    device = GpuModel(bench.device.arch, bench.device.name)
    plan = planned(product.problem, device, max_sms=row.max_sms)
    found = bench.check(plan.rung, product, plan)
    schedule = schedule_of(row, brief)
    described = RowResult(
        suite=suite, problem=row.problem, offset=row.offset, max_sms=row.max_sms, beside=row.neighbour,
        rung=plan.rung.name, config=dict(plan.config), no_baseline=bench.no_library, sets=product.sets,
        origin=plan.origin, resources=resources_of(product, plan),
        copied_bytes=sum(copy.moved_bytes for copy in plan.kernel.copies),
        regime=schedule.regime, turn_ms=schedule.turn_ms,
        error_ratio=found.error_ratio if math.isfinite(found.error_ratio) else None,
    )  # fmt: skip
    if found.wrong is not None:
        return msgspec.structs.replace(described, failed=found.wrong)
    start_s = time.monotonic()
    candidates: dict[str, Candidate] = {}
    if library is not None:
        best = bench.best_algorithm(product, library)
        candidates[LIBRARY] = bench.baseline_candidate(product, library, best.index)
        first = best.best_ms / best.first_ms if best.first_ms else None
        described = msgspec.structs.replace(described, baseline=library.name(best.index), first_heuristic=first)
    torch, no_torch = bench.torch(row.problem, product)
    if torch is not None:
        candidates[TORCH] = Candidate(torch, torch.sets)
    apart = row.neighbour is not None and (row.neighbour, 0) != (row.problem, row.offset)
    other = DeviceProduct(to_problem(row.neighbour), seed=SEED) if apart and row.neighbour is not None else None
    try:
        if row.neighbour is not None:
            neighbour = planned((other or product).problem, device)
            candidates[NEIGHBOUR] = (other or product).candidate(neighbour)
            described = msgspec.structs.replace(
                described, beside_rung=neighbour.rung.name, beside_config=dict(neighbour.config)
            )
        candidates[OURS] = product.candidate(plan)
        turns, near = _rounds(candidates, schedule, bench.stream)
    finally:
        if other is not None:
            other.close()
        product.unload(plan)
    return msgspec.structs.replace(
        described, turns=turns, near=near, torch=torch.name if torch is not None else None, no_torch=no_torch,
        samples=bench.samples_since(start_s),
    )  # fmt: skip


def _rounds(
    candidates: dict[str, Candidate], schedule: Schedule, stream: int
) -> tuple[tuple[ParticipantRounds, ...], tuple[ParticipantRounds, ...]]:
    """Rounds of all participants. Where a slow one lets the chip cool, the neighbour and warptile run separately."""
    runners: dict[str, Runner] = {}
    estimates_ms: dict[str, float] = {}
    for participant, candidate in candidates.items():
        runners[participant], estimates_ms[participant] = runner_for(candidate, stream)

    def turns(names: Iterable[str]) -> tuple[ParticipantRounds, ...]:
        mine = {participant: runners[participant] for participant in names}
        measured = take_turns(mine, estimates_ms, schedule, portions={TORCH: TORCH_TURN})
        return tuple(
            ParticipantRounds(
                who=participant, rounds_ms=rounds_ms, launches=launches, method=runners[participant].method
            )
            for participant, (rounds_ms, launches) in measured.items()
        )

    cools = any(
        estimates_ms[participant] > COOLING_RATIO * estimates_ms[OURS]
        for participant in runners
        if participant in (LIBRARY, TORCH)
    )
    if NEIGHBOUR not in runners or not cools:
        return turns(runners), ()
    return turns(participant for participant in runners if participant != NEIGHBOUR), turns((NEIGHBOUR, OURS))


def tasks(
    suites: Sequence[str], bench: Callable[[], Bench], *, brief: bool = False, only: tuple[str, ...] = ()
) -> Iterator[JournalTask]:
    """One task for each row, whose result is a `RowResult`."""
    for suite in suites:
        for row in chosen(suite, only):
            beside = f"/beside-{row.neighbour.shape}" if row.neighbour else ""
            yield (
                f"suite/{suite}/{row.name.replace(' ', '-')}{beside}",
                lambda suite=suite, row=row: measure_or_fail(bench(), suite, row, brief=brief),  # type: ignore[misc]
            )
