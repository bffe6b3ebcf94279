"""The plans whose kernels are compiled ahead: legal on the GPU, of the types that are asked for."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import pytest

from covering import few
from warptile.codegen.translation_unit import translation_unit
from warptile.device import KNOWN, REFERENCE
from warptile.dtypes import DTYPES, dtype
from warptile.planning import tuned_table
from warptile.planning.plan import illegal
from warptile.planning.shipped_kernels import EXAMPLE, shipped_dtypes, shipped_plans
from warptile.problem import Problem
from warptile.rungs.wgmma.kernels import COMPILED_AHEAD, SHAPES, kernels_for
from warptile.runtime.execute import planned


@pytest.fixture(autouse=True)
def nothing_was_tuned(monkeypatch, tmp_path):
    """Plans are those that ship, whatever the user has tuned or calibrated."""
    monkeypatch.setenv("WARPTILE_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("WARPTILE_AUTOTUNE", raising=False)


@cache
def shipped(device, *dtypes):
    """The plans that ship for a GPU, of all types or of some."""
    return tuple(shipped_plans(device, dtypes or None))


@pytest.mark.parametrize("name", few(["NVIDIA H200", "NVIDIA H20", "NVIDIA H100 PCIe"], 2))
def test_plans_are_legal_on_the_gpu_that_they_are_for(name):
    device = KNOWN[name]
    plans = shipped(device)
    assert plans
    for plan in plans:
        assert plan.device == device
        assert illegal(plan.rung, plan.problem, plan.config, device) is None


def test_on_the_gpu_that_was_tuned_they_are_what_tuning_found_unless_kernels_have_changed():
    counted = {True: 0, False: 0}
    tuned = [each for each in shipped(REFERENCE) if each.origin != EXAMPLE]
    changed = [each for each in tuned if each.rung.changed_since_searches(each.problem)]
    for plan in [*changed, *[each for each in tuned if each not in changed][::3]]:
        found = tuned_table.lookup(plan.rung, plan.problem, REFERENCE.name)
        outdated = plan.origin == "predicted"
        assert (found.config == plan.config) is not outdated
        assert not outdated or plan.rung.changed_since_searches(plan.problem)
        counted[outdated] += 1
    assert counted[False], counted  # whether one is outdated depends on the model: test_promotion.py has made-up ones


@pytest.mark.parametrize("b_major", ["row", "col"])
def test_the_kernels_that_plans_choose_most_are_among_them(b_major):
    brain = dtype("bfloat16")
    problem = Problem.dense(64, 64, 64, brain, out=brain, accumulator=dtype("float32"), b_major=b_major)
    lists = [kernels_for(problem, shape)[:COMPILED_AHEAD] for shape in ("", *SHAPES)]
    kernels = {each for some in lists for each in some}
    tiles = {(each.bm, each.bn, each.consumers, each.swap, 64 * each.rows) for each in kernels}
    plans = [plan for plan in shipped(REFERENCE, brain) if plan.origin == EXAMPLE]
    listed = [plan.config for plan in plans if plan.problem.b.major == b_major]
    assert len(listed) == len(kernels)
    assert tiles == {tuple(config[key] for key in ("BM", "BN", "CONSUMERS", "SWAP", "BK")) for config in listed}


@pytest.mark.parametrize("name", few(["NVIDIA H200", "NVIDIA H20", "NVIDIA H100 PCIe"], 2))
def test_they_are_what_plans_take_on_any_number_of_sms(name):
    place = SimpleNamespace(device=KNOWN[name], gpu=name)
    for plan in shipped(KNOWN[name])[::8]:
        if plan.origin != EXAMPLE:
            taken = planned(plan.problem, place)
            assert (taken.rung, taken.config) == (plan.rung, plan.config)


def test_a_type_takes_the_kernels_of_one_that_costs_the_same():
    half, brain = dtype("float16"), dtype("bfloat16")
    assert {half, brain} <= set(shipped_dtypes())
    plans = shipped(REFERENCE, half)
    assert {plan.problem.a.dtype for plan in plans} == {plan.problem.b.dtype for plan in plans} == {half}
    assert {plan.problem.d.dtype.name for plan in plans} <= {"float16", "float32"}
    tiles = {tuple(plan.config.items()) for plan in shipped(REFERENCE, brain)}
    assert tiles <= {tuple(plan.config.items()) for plan in plans}


def test_a_gpu_without_shipped_kernels_has_none():
    assert list(shipped_plans(KNOWN["NVIDIA A30"])) == []
    assert list(shipped_plans(REFERENCE, [DTYPES["float64"]])) == []
    assert DTYPES["float64"] not in shipped_dtypes()


def test_plans_share_kernels():
    plans = shipped(REFERENCE, dtype("bfloat16"))
    assert len({translation_unit(plan.kernel) for plan in plans}) < len(plans)
    small = replace(REFERENCE, name="cut", multiprocessors=66)
    assert all(plan.config["SMS"] <= 66 for plan in shipped_plans(small, [dtype("bfloat16")]))
