"""The kernels that the stages of a campaign need, known before anything runs, so that they are compiled in parallel."""

from __future__ import annotations

from collections.abc import Iterator

from warptile.bench.campaign import correctness, ladder_sweep, precision, unaligned
from warptile.bench.campaign.stages import COOL_SIZES, Campaign
from warptile.bench.profiling.requests import profile_requests, sanitize_requests
from warptile.bench.protocol import measure_rows
from warptile.bench.protocol.suites import chosen
from warptile.bench.protocol.workloads import COUNTER_SHAPES, PROFILE_SIZE, default_config, to_problem
from warptile.codegen.translation_unit import Source
from warptile.planning.plan import Plan, make_plan
from warptile.problem import Problem
from warptile.rungs.rung import Rung
from warptile.runtime.execute import sources


def plans_of(stage: str, work: Campaign) -> Iterator[Plan]:
    """The plans whose kernels a stage needs; tuning compiles its own."""
    if stage == "correctness":
        for planned in correctness.plan_checks(work.rungs, work.arch):
            yield planned.plan(work.arch)
    elif stage in ("sweep", "cool"):
        for key, rungs in ladder_sweep.plan_cells(
            work.rungs, work.arch, work.sizes if stage == "sweep" else COOL_SIZES
        ):
            for rung in rungs:
                yield _planned(rung, to_problem(key), work.arch)
    elif stage in ("types", "layouts"):
        pairs = precision.plan_types if stage == "types" else precision.plan_layouts
        for key, rung in pairs(work.rungs, work.arch):
            yield _planned(rung, to_problem(key), work.arch)
    elif stage == "unaligned":
        for key, offset, neighbour, rung in unaligned.plan_unaligned(work.rungs, work.arch):
            yield _planned(rung, to_problem(key, offset=offset), work.arch)
            yield _planned(rung, to_problem(neighbour), work.arch)
    elif stage in ("ncu", "sanitize"):
        requests = sanitize_requests(work.rungs, work.arch)
        if stage == "ncu":
            shapes = ((PROFILE_SIZE,) * 3, *COUNTER_SHAPES)
            requests = [r for shape in shapes for r in profile_requests(work.rungs, work.arch, shape)]
        for request in requests:
            problem = to_problem(request.problem, with_c=request.beta != 0)
            yield make_plan(problem, rung=request.rung, config=request.config, arch=work.arch)


def _planned(rung: Rung, problem: Problem, arch: str) -> Plan:
    return make_plan(problem, rung=rung.name, config=default_config(rung, problem, arch), arch=arch)


def sources_of(stage: str, work: Campaign) -> list[Source]:
    """Every translation unit that a stage needs, each once, repacking passes included."""
    if stage == "suites":
        rows = [row for suite in work.suites for row in chosen(suite, work.only)]
        return measure_rows.sources_of(rows, work.device)
    if stage == "counters":
        counted = [row for rows in work.rows_to_count.values() for row, _ in rows]
        return measure_rows.sources_of(counted, work.device)
    found: dict[Source, None] = {}
    for plan in plans_of(stage, work):
        found |= dict.fromkeys(sources(plan))
    return list(found)
