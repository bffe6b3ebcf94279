"""Measuring the rows of a suite: our product as a plan takes it, cuBLASLt's best, torch and what stands beside.

Protocol: correct first; then everybody has a turn in each of several rounds, in the same order, on operand sets that L2
cannot keep; short launches are replayed from graphs, so that gaps between launches of the host do not count. Products
that stream their operands never meet the power limit, so their turns are short.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from warptile.bench.contest import BESIDE, LIBRARY, OURS, TORCH, Contest, Turns
from warptile.bench.journal import Task
from warptile.bench.suites import Row, chosen
from warptile.bench.sweep import SEED, Bench, resources_of
from warptile.bench.workloads import to_problem
from warptile.device_product import DeviceProduct, runner_for
from warptile.errors import DeviceError, UnsupportedError, WarptileError
from warptile.execute import planned, sources
from warptile.gpu.timing import Candidate, Runner, Schedule, take_turns
from warptile.plan import Plan
from warptile.source import Source

WHOLE = Schedule("sustained", rounds=9, turn_ms=300.0, warm_up_ms=1000.0)
BRIEF = Schedule("sustained", rounds=7, turn_ms=80.0, warm_up_ms=500.0)
"""For tables, and for a look at a whole suite in two minutes. Half a second after a load begins the chip draws in its
clock for a tenth of one, by 13 %, before it settles: the warm-up takes that in."""

TORCH_TURN = 0.25
"""How much of a turn torch gets: as a rule its kernels are cuBLAS's."""

IDLE = 2.0
"""Who takes so many times as long as our product leaves the chip cool: what stands beside is then timed apart."""

STREAMING = 200.0
"""Operations for each byte of A, B and D below which a product waits for memory."""

STREAMING_TURN = 0.25
"""How much of a turn such products get."""


@dataclass
class Device:
    """An architecture, and a GPU's model or None."""

    arch: str
    gpu: str | None


def plans_of(row: Row, device: Device) -> Iterator[Plan]:
    """The plans of a row: its own, and that of what stands beside."""
    yield planned(to_problem(row.problem, offset=row.offset), device, max_sms=row.max_sms)
    if row.beside is not None:
        yield planned(to_problem(row.beside), device)


def sources_of(rows: Iterable[Row], device: Device) -> list[Source]:
    """Every translation unit that some rows need, each once; a row without a plan says so when it is measured."""
    found: dict[Source, None] = {}
    for row in rows:
        try:
            plans = tuple(plans_of(row, device))
        except UnsupportedError:
            continue
        for plan in plans:
            found |= dict.fromkeys(sources(plan))
    return list(found)


def schedule_of(row: Row, brief: bool) -> Schedule:
    """How long turns are."""
    schedule = BRIEF if brief else WHOLE
    key, problem = row.problem, to_problem(row.problem)
    elements = key.m * key.k + key.k * key.n
    moved = key.batch * (elements * problem.a.dtype.bits + key.m * key.n * problem.d.dtype.bits) / 8
    if key.flops / moved >= STREAMING:
        return schedule
    return replace(schedule, turn_ms=schedule.turn_ms * STREAMING_TURN, warm_up_ms=schedule.warm_up_ms * STREAMING_TURN)


def attempt(bench: Bench, suite: str, row: Row, *, brief: bool = False) -> Contest:
    """As `measure`; where there is no plan, or its kernel does not compile, a row that failed.

    Raises:
        DeviceError: the GPU failed; the process is of no more use.
    """
    try:
        return measure(bench, suite, row, brief=brief)
    except DeviceError:
        raise
    except WarptileError as error:
        return Contest(
            suite=suite, problem=row.problem, offset=row.offset, max_sms=row.max_sms, beside=row.beside, rung="",
            config={}, failed=f"{type(error).__name__}: {error}",
        )  # fmt: skip


def measure(bench: Bench, suite: str, row: Row, *, brief: bool = False) -> Contest:
    """Check our product on some rows, then give everybody their turns."""
    product, library = bench.at(row.problem, row.offset)
    device = Device(bench.device.arch, bench.device.name)
    plan = planned(product.problem, device, max_sms=row.max_sms)
    found = bench.check(plan.rung, product, plan)
    schedule = schedule_of(row, brief)
    described = Contest(
        suite=suite, problem=row.problem, offset=row.offset, max_sms=row.max_sms, beside=row.beside,
        rung=plan.rung.name, config=dict(plan.config), no_baseline=bench.no_library, sets=product.sets,
        origin=plan.origin, resources=resources_of(product, plan),
        copied_bytes=sum(copy.moved_bytes for copy in plan.copies), regime=schedule.regime, turn_ms=schedule.turn_ms,
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
    apart = row.beside is not None and (row.beside, 0) != (row.problem, row.offset)
    other = DeviceProduct(to_problem(row.beside), seed=SEED) if apart and row.beside is not None else None
    try:
        if row.beside is not None:
            neighbour = planned((other or product).problem, device)
            candidates[BESIDE] = (other or product).candidate(neighbour)
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
) -> tuple[tuple[Turns, ...], tuple[Turns, ...]]:
    """Everybody's rounds, and what stands beside with our product by themselves where somebody lets the chip cool."""
    runners: dict[str, Runner] = {}
    estimates_ms: dict[str, float] = {}
    for who, candidate in candidates.items():
        runners[who], estimates_ms[who] = runner_for(candidate, stream)

    def turns(names: Iterable[str]) -> tuple[Turns, ...]:
        mine = {who: runners[who] for who in names}
        measured = take_turns(mine, estimates_ms, schedule, portions={TORCH: TORCH_TURN})
        return tuple(
            Turns(who=who, rounds_ms=rounds_ms, launches=launches, method=runners[who].method)
            for who, (rounds_ms, launches) in measured.items()
        )

    cools = any(estimates_ms[who] > IDLE * estimates_ms[OURS] for who in runners if who in (LIBRARY, TORCH))
    if BESIDE not in runners or not cools:
        return turns(runners), ()
    return turns(who for who in runners if who != BESIDE), turns((BESIDE, OURS))


def tasks(
    suites: Sequence[str], bench: Callable[[], Bench], *, brief: bool = False, only: tuple[str, ...] = ()
) -> Iterator[Task]:
    """One task for each row, whose result is a `Contest`."""
    for suite in suites:
        for row in chosen(suite, only):
            beside = f"/beside-{row.beside.shape}" if row.beside else ""
            yield (
                f"suite/{suite}/{row.name.replace(' ', '-')}{beside}",
                lambda suite=suite, row=row: attempt(bench(), suite, row, brief=brief),  # type: ignore[misc]
            )
