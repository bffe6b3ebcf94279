"""The kernels that the stages of a campaign need, known before anything runs, so that they are compiled in parallel."""

from __future__ import annotations

from collections.abc import Iterator

from warptile.bench import comparison, correctness, precision, sweep, unaligned
from warptile.bench.requests import profile_requests, sanitize_requests
from warptile.bench.stages import COOL_SIZES, Work
from warptile.bench.suites import chosen
from warptile.bench.workloads import COUNTER_SHAPES, PROFILE_SIZE, default_config, to_problem
from warptile.execute import sources
from warptile.plan import Plan, make_plan
from warptile.problem import Problem
from warptile.rungs.rung import Rung
from warptile.source import Source


def plans_of(stage: str, work: Work) -> Iterator[Plan]:
    """The plans whose kernels a stage needs; tuning compiles its own."""
    if stage == "correctness":
        for planned in correctness.plan_checks(work.rungs, work.arch):
            yield planned.plan(work.arch)
    elif stage in ("sweep", "cool"):
        for key, rungs in sweep.plan_cells(work.rungs, work.arch, work.sizes if stage == "sweep" else COOL_SIZES):
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


def sources_of(stage: str, work: Work) -> list[Source]:
    """Every translation unit that a stage needs, each once, those of copies before products among them."""
    if stage == "suites":
        rows = [row for suite in work.suites for row in chosen(suite, work.only)]
        return comparison.sources_of(rows, work.device)
    if stage == "counters":
        counted = [row for rows in work.rows_to_count.values() for row, _ in rows]
        return comparison.sources_of(counted, work.device)
    found: dict[Source, None] = {}
    for plan in plans_of(stage, work):
        found |= dict.fromkeys(sources(plan))
    return list(found)
