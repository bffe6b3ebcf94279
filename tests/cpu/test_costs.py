"""What configurations of wgmma-final cost: the planner's choices beside recorded searches, and how they are fitted."""

from dataclasses import replace

import pytest

from warptile.arch import H200
from warptile.bench import fit_costs
from warptile.bench.records import committed
from warptile.dtypes import dtype
from warptile.plan import make_plan
from warptile.problem import Problem
from warptile.rungs import RUNGS, wgmma_cost

COSTS = H200.wgmma_costs
SEARCHES = fit_costs.measured_in(committed())


def problem(m, n, k):
    bf16 = dtype("bfloat16")
    return Problem.dense(m, n, k, bf16, out=bf16, accumulator=dtype("float32"), b_major="col")


def config(of, **changes):
    return {**RUNGS["wgmma-final"].default_config(of), **changes}


def test_what_is_predicted_to_be_fastest_is_nearly_the_fastest_that_was_measured():
    assert len(SEARCHES) >= 90
    assert fit_costs.geomean(SEARCHES, COSTS) >= 0.95


def test_a_fit_finds_back_what_was_changed():
    few = SEARCHES[::16]
    spoiled = replace(
        COSTS, block_bytes_per_clock=COSTS.block_bytes_per_clock / 3, meeting_clocks=COSTS.meeting_clocks * 3
    )
    fitted = fit_costs.fit(few, spoiled)
    assert fit_costs.loss(few, fitted) < fit_costs.loss(few, spoiled)
    assert fit_costs.geomean(few, fitted) > fit_costs.geomean(few, spoiled)
    assert all(getattr(fitted, name) == getattr(COSTS, name) for name in fit_costs.KEPT)


def test_problems_are_dealt_once():
    first, second = fit_costs.halves(SEARCHES)
    assert sorted(map(id, [*first, *second])) == sorted(map(id, SEARCHES))
    assert min(len(first), len(second)) > len(SEARCHES) / 3


@pytest.mark.parametrize(
    ("shape", "better", "worse"),
    [
        ((4096, 4096, 4096), {"SMS": 128}, {"SMS": 100}),
        ((4096, 4096, 4096), {"STAGES": 4}, {"STAGES": 2}),
        ((4096, 4096, 4096), {"BM": 128, "BN": 256}, {"BM": 128, "BN": 64}),
        ((64, 64, 65536), {"BM": 64, "BN": 64, "CONSUMERS": 1, "SPLITS": 128, "SMS": 132, "OVERLAP": 0},
         {"BM": 64, "BN": 64, "CONSUMERS": 1, "SPLITS": 8, "SMS": 132, "OVERLAP": 0}),
        ((16, 8192, 8192), {"BK": 256, "STAGES": 5}, {"BK": 64, "STAGES": 12}),
    ],
)  # fmt: skip
def test_costs_know(shape, better, worse):
    of = problem(*shape)
    assert wgmma_cost.microseconds(of, config(of, **better)) < wgmma_cost.microseconds(of, config(of, **worse))


def test_a_plan_explains_by_these_costs():
    of = problem(4096, 4096, 4096)
    plan = make_plan(of, rung="wgmma-final")
    found = wgmma_cost.terms(of, plan.config)
    assert plan.prediction.time_ms == pytest.approx(wgmma_cost.total(found) / 1e3)
    assert set(plan.prediction.terms) == set(found)
    assert all(f"{name} " in plan.explain() for name in found)
