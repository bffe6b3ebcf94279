"""Times GEMMs whose leading dimensions or pointers are not multiples of 16 bytes, as tasks of a journal.

Rung, neighbour and the vendor library's best algorithm for the same problem run in turn, so that the shares compare
runs of one chip at one temperature.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from warptile.bench.campaign.journal import JournalTask
from warptile.bench.campaign.ladder_sweep import SEED, Bench, key_name
from warptile.bench.protocol.interleaving import BRIEF
from warptile.bench.protocol.measurements import ProblemKey, UnalignedCell
from warptile.bench.protocol.workloads import BF16, UNALIGNED, default_config, to_problem
from warptile.gpu.timing import Runner, take_turns
from warptile.planning.plan import Plan, make_plan
from warptile.planning.tuned_table import config_for
from warptile.rungs.rung import Rung
from warptile.runtime.device_product import DeviceProduct, runner_for

RUNG = "wgmma-final"
GROUP = BF16

PlannedUnaligned = tuple[ProblemKey, int, ProblemKey, Rung]
"""Problem, offset in elements, neighbour, rung."""


def plan_unaligned(rungs: Sequence[Rung], arch: str) -> Iterator[PlannedUnaligned]:
    """What is measured."""
    for rung in rungs:
        if rung.name != RUNG:
            continue
        for shape, offset, beside in UNALIGNED:
            key, neighbour = GROUP.key(*shape, b_major="col"), GROUP.key(*beside, b_major="col")
            if default_config(rung, to_problem(key, offset=offset), arch) is not None:
                yield key, offset, neighbour, rung


def measure(bench: Bench, key: ProblemKey, offset: int, neighbour: ProblemKey, rung: Rung) -> UnalignedCell:
    """Check the rung on some rows of D, then time it in rounds with its aligned neighbour and cuBLASLt."""
    product, library = bench.at(key, offset)
    plan = _plan(bench, product, rung)
    found = bench.check(rung, product, plan)
    described = UnalignedCell(
        rung=rung.name, problem=key, offset=offset, config=dict(plan.config), neighbour=neighbour,
        copied_bytes=sum(copy.moved_bytes for copy in plan.kernel.copies), no_baseline=bench.no_library,
        error_ratio=found.error_ratio if math.isfinite(found.error_ratio) else None,
    )  # fmt: skip
    if found.wrong is not None:
        return msgspec.structs.replace(described, failed=found.wrong)
    start_s = time.monotonic()
    beside = DeviceProduct(to_problem(neighbour), seed=SEED)
    try:
        aligned = _plan(bench, beside, rung)
        runners: dict[str, Runner] = {}
        estimates_ms: dict[str, float] = {}
        name = None
        if library is not None:
            best = bench.best_algorithm(product, library)
            name = library.name(best.index)
            candidate = bench.baseline_candidate(product, library, best.index)
            runners["baseline"], estimates_ms["baseline"] = runner_for(candidate, bench.stream)
        for label, candidate in (("neighbour", beside.candidate(aligned)), ("itself", product.candidate(plan))):
            runners[label], estimates_ms[label] = runner_for(candidate, bench.stream)
        times = {label: rounds for label, (rounds, _) in take_turns(runners, estimates_ms, BRIEF).items()}
        copies_ms = bench.copies_ms(product, plan)
    finally:
        beside.close()
        product.unload(plan)
    return msgspec.structs.replace(
        described, rounds_ms=times["itself"], neighbour_ms=times["neighbour"], baseline_ms=times.get("baseline", ()),
        neighbour_config=dict(aligned.config), baseline=name, copies_ms=copies_ms, samples=bench.samples_since(start_s),
    )  # fmt: skip


def _plan(bench: Bench, product: DeviceProduct, rung: Rung) -> Plan:
    """In the configuration that a search found, or the usual one."""
    problem, arch = product.problem, bench.device.arch
    config = config_for(rung, problem, bench.device.name, bench.tuned_folder) or default_config(rung, problem, arch)
    return make_plan(problem, rung=rung.name, config=config, arch=arch)


def tasks(rungs: Sequence[Rung], arch: str, bench: Callable[[], Bench]) -> Iterator[JournalTask]:
    """One task for each problem, whose result is an `UnalignedCell`."""
    for key, offset, neighbour, rung in plan_unaligned(rungs, arch):
        displaced = f"-offset{offset}" if offset else ""
        yield (
            f"unaligned/{key_name(key)}{displaced}/{rung.name}",
            lambda key=key, offset=offset, neighbour=neighbour, rung=rung: measure(  # type: ignore[misc]
                bench(), key, offset, neighbour, rung
            ),
        )
