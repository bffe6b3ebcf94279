"""The table of types: the best rungs in every combination of types, and in every layout.

Each is checked, its error against float64 is measured, and it is timed beside the vendor library's best algorithm for
the same types and layout, or alone where the library has none.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from warptile.bench.campaign.journal import JournalTask
from warptile.bench.campaign.ladder_sweep import Bench, key_name, resources_of
from warptile.bench.protocol.interleaving import BRIEF, SHORT_COOL, SWEEP
from warptile.bench.protocol.measurements import ProblemKey, RegimeTimes, TypeCell
from warptile.bench.protocol.workloads import (
    AT_BOTH_SIZES,
    LAYOUT_GROUPS,
    LAYOUT_SIZE,
    SECOND_TYPE_TABLE_SIZE,
    SPARSE_GROUPS,
    TYPE_GROUPS,
    TYPE_TABLE_RUNGS,
    default_config,
    to_problem,
    type_table_key,
)
from warptile.gpu.timing import Runner, Schedule, take_turns
from warptile.planning.plan import make_plan
from warptile.rungs.rung import Rung
from warptile.runtime.device_product import runner_for

BOTH_REGIMES = (SWEEP, SHORT_COOL)
ONE_LOOK = (BRIEF,)


def errors(d: Any, exact: Any) -> float:
    """Largest error over the root mean square of what is exact."""
    scale = math.sqrt(float(np.mean(np.square(exact, dtype=np.float64))))
    return float(np.max(np.abs(d.astype(np.float64) - exact))) / scale if scale else 0.0


def measure(bench: Bench, rung: Rung, key: ProblemKey, schedules: Sequence[Schedule]) -> TypeCell:
    """Check one rung on some rows of D, measure its error, then its speed in each regime against cuBLASLt's fastest."""
    product, library = bench.at(key)
    tuned = bench.tuned(rung)
    config = tuned or default_config(rung, product.problem, bench.device.arch)
    plan = make_plan(product.problem, rung=rung.name, config=config, arch=bench.device.arch)
    expected = bench.reference(rung, product)
    found = bench.check(rung, product, plan)
    described = TypeCell(
        rung=rung.name, problem=key, config=dict(plan.config), resources=resources_of(product, plan),
        tuned=tuned is not None, error_ratio=found.error_ratio if math.isfinite(found.error_ratio) else None,
        no_baseline=bench.no_library,
    )  # fmt: skip
    if found.wrong is not None:
        return msgspec.structs.replace(described, failed=found.wrong)
    start_s = time.monotonic()
    candidate, one_ms = runner_for(product.candidate(plan), bench.stream)
    runners: dict[str, Runner] = {"candidate": candidate}
    estimates_ms = {"candidate": one_ms}
    name = None
    if library is not None:
        best = bench.best_algorithm(product, library)
        name = library.name(best.index)
        runner, base_ms = runner_for(bench.baseline_candidate(product, library, best.index), bench.stream)
        runners, estimates_ms = {"baseline": runner, **runners}, {"baseline": base_ms, **estimates_ms}
    times = tuple(_timed(runners, estimates_ms, schedule) for schedule in schedules)
    copies_ms = bench.copies_ms(product, plan)
    product.unload(plan)
    is_float = product.problem.a.dtype.kind == "float"
    return msgspec.structs.replace(
        described, times=times, baseline=name, error=errors(found.d, expected.d), copies_ms=copies_ms,
        copied_bytes=sum(copy.moved_bytes for copy in plan.kernel.copies),
        drawn_error=errors(found.d, bench.exact(product)) if is_float else None,
        samples=bench.samples_since(start_s),
    )  # fmt: skip


def _timed(runners: dict[str, Runner], estimates_ms: dict[str, float], schedule: Schedule) -> RegimeTimes:
    measured = take_turns(runners, estimates_ms, schedule)
    baseline = measured["baseline"][0] if "baseline" in measured else ()
    return RegimeTimes(schedule.regime, measured["candidate"][0], baseline)


# --- what is measured ------------------------------------------------------------------------------------------------


def plan_types(rungs: Sequence[Rung], arch: str) -> Iterator[tuple[ProblemKey, Rung]]:
    """Types with the rungs that take them, some at a further size."""
    for size in (None, SECOND_TYPE_TABLE_SIZE):
        for group in TYPE_GROUPS:
            for rung in rungs:
                mine = type_table_key(group, sparse=rung.sparse, size=size)
                wanted = rung.name in (TYPE_TABLE_RUNGS if size is None else AT_BOTH_SIZES)
                wanted &= not rung.sparse or group in SPARSE_GROUPS
                if wanted and _takes(rung, mine, arch):
                    yield mine, rung


def plan_layouts(rungs: Sequence[Rung], arch: str) -> Iterator[tuple[ProblemKey, Rung]]:
    """Every layout of every type, with the rungs that support it."""
    for group in TYPE_GROUPS:
        for a_major, b_major in group.majors:
            key = group.key(LAYOUT_SIZE, LAYOUT_SIZE, LAYOUT_SIZE, b_major, a_major)
            for rung in rungs:
                if group in LAYOUT_GROUPS.get(rung.name, ()) and _takes(rung, key, arch):
                    yield key, rung


def _takes(rung: Rung, key: ProblemKey, arch: str) -> bool:
    return default_config(rung, to_problem(key), arch) is not None


def tasks(
    prefix: str,
    planned: Iterator[tuple[ProblemKey, Rung]],
    bench: Callable[[], Bench],
    schedules: Sequence[Schedule],
) -> Iterator[JournalTask]:
    """One task for each problem and rung, whose result is a `TypeCell`; further sizes get one look."""
    for key, rung in planned:
        again = rung.name in AT_BOTH_SIZES and key.m == SECOND_TYPE_TABLE_SIZE
        yield (
            f"{prefix}/{key_name(key)}-{key.out}/{rung.name}",
            lambda key=key, rung=rung, again=again: measure(  # type: ignore[misc]
                bench(), rung, key, ONE_LOOK if again else schedules
            ),
        )
