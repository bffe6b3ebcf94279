"""What configurations of wgmma-final cost: the planner's choices beside recorded searches, and how they are fitted."""

from dataclasses import replace

import pytest

from covering import ALL
from warptile.arch import H200, WGMMA_COSTS_RECORDS
from warptile.bench.campaign import fit_costs
from warptile.bench.protocol.records import SearchesRecord, committed
from warptile.device import REFERENCE
from warptile.dtypes import dtype
from warptile.errors import UnsupportedError
from warptile.planning.plan import make_plan
from warptile.problem import Problem
from warptile.rungs import RUNGS
from warptile.rungs.wgmma import cost

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


def test_constants_are_fitted_to_the_records_that_are_named_beside_them(monkeypatch, capsys):
    read = []
    monkeypatch.setattr(fit_costs, "measured_in", lambda records: [read.append(records), SEARCHES[:4]][1])
    monkeypatch.setattr(fit_costs, "fit", lambda data, start: start)
    fit_costs.main()
    newest = [record.id for record in committed() if isinstance(record, SearchesRecord)][-1]
    fit_costs.main([newest])
    assert [tuple(record.id for record in records) for records in read] == [WGMMA_COSTS_RECORDS, (newest,)]
    assert "4 problems" in capsys.readouterr().out


def test_the_constants_choose_well_among_what_they_are_fitted_to_and_are_its_best():
    fitted_to = fit_costs.measured_in(fit_costs.named(WGMMA_COSTS_RECORDS, committed()))
    assert fit_costs.geomean(fitted_to, COSTS) >= 0.965
    least = fit_costs.loss(fitted_to, COSTS)
    for name in ("stage_clocks", "product_clocks", "block_bytes_per_clock", "hidden_clocks", "norm"):
        for factor in (1.5, 1 / 1.5):
            changed = replace(COSTS, **{name: getattr(COSTS, name) * factor})
            assert fit_costs.loss(fitted_to, changed) > least, (name, factor)


def test_a_record_that_is_not_there_is_named():
    with pytest.raises(UnsupportedError, match=r"record searches-h200-1: .*there are searches-h200-2"):
        fit_costs.named(["searches-h200-1"], committed())


def test_a_fit_finds_back_what_was_changed():
    few = SEARCHES[:: 16 if ALL else 48]
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
    times = [cost.estimate_us(of, config(of, **changes), REFERENCE) for changes in (better, worse)]
    assert times[0] < times[1]


def test_a_plan_explains_by_these_costs():
    of = problem(4096, 4096, 4096)
    plan = make_plan(of, rung="wgmma-final")
    found = cost.terms(of, plan.config, REFERENCE)
    assert plan.prediction.time_ms == pytest.approx(cost.total(found) / 1e3)
    assert set(plan.prediction.terms) == set(found)
    assert all(f"{name} " in plan.explain() for name in found)
