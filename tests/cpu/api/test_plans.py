"""What `warptile.plan` returns: one type, whatever the call is made of."""

import copy
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import warptile as wt
from typed_calls import described, gated, plans, repeated


@pytest.fixture(scope="module")
def operands():
    rng = np.random.default_rng(20261129)
    a, b = rng.integers(-4, 5, (16, 32)).astype(np.float32), rng.integers(-4, 5, (32, 48)).astype(np.float32)
    return a, b, np.full((16, 1), 0.5, np.float32)


def test_plans_of_all_calls_have_one_type_and_say_the_same_of_themselves(operands):
    made = plans(*operands)
    assert all(isinstance(each, wt.MatmulPlan) for each in made.values())
    said = {name: said[:4] for name, said in zip(made, described(made.values()), strict=True)}
    assert said == {
        "one GEMM": (16, 48, 32, "emulator"),
        "two GEMMs": (16, 24, 32, "emulator"),
        "scales": (16, 48, 32, "emulator"),
        "no element": (0, 48, 32, "emulator"),
        "nothing multiplied": (16, 48, 0, "emulator"),
    }
    assert {name: len(each.gemms) for name, each in made.items() if len(each.gemms) > 1} == {"two GEMMs": 2}
    assert all(each.plan is each.gemms[-1].chosen and each.copies == () for each in made.values())


def test_a_plan_is_called_under_that_type(operands):
    a, b, scales = operands
    made = plans(*operands)
    assert np.array_equal(repeated(made["one GEMM"], a, b), a @ b)
    product = a @ b
    assert np.array_equal(repeated(made["two GEMMs"], a, b), product[:, :24] * product[:, 24:])
    assert np.array_equal(made["scales"](a.astype(np.int8), b.astype(np.int8), scale_a=scales), product / 2)


def test_plans_are_copied_and_pickled(operands):
    a, b, _ = operands
    for made in plans(*operands).values():
        for again in (pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made)):
            assert again.explain() == made.explain()
    product, again = a @ b, pickle.loads(pickle.dumps(plans(*operands)["two GEMMs"]))
    assert np.array_equal(again(a, b), product[:, :24] * product[:, 24:])


def test_a_plan_is_pickled_without_what_its_calls_have_bound(operands):
    made = plans(*operands)["one GEMM"]
    made.gemms[0].calls[np.ndarray] = lambda: "machine code"
    assert pickle.loads(pickle.dumps(made)).gemms[0].calls == {}


def test_a_plan_s_repr_says_what_is_computed_and_by_which_kernels(operands):
    said = {name: repr(each) for name, each in plans(*operands).items()}
    assert all(each.startswith("<plan of D") for each in said.values())
    assert all(each.endswith("; print(plan.explain()) says why>") for each in said.values())
    assert "by simt-gemv" in said["scales"]
    assert " and " in said["two GEMMs"]
    assert "no element" in said["no element"]
    assert "D[16, 48] = 0" in said["nothing multiplied"]


def test_the_blocks_of_the_page_run():
    page = Path(__file__).parents[3] / "docs" / "planning.md"
    [block] = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
    exec(block, {})


# --- what a plan is called with --------------------------------------------------------------------------------------


def shifted(acc, shift):
    first, second = wt.halves(acc + shift)
    return first * second


def held(operands):
    """A plan of each kind with operands, the arrays and keywords of its call, and its C."""
    a, b, scales = operands
    small = a.astype(np.int8), b.astype(np.int8)
    shift = {"shift": np.ones(48, np.float32)}
    bias = {"bias": np.ones(48, np.float32)}
    scaled = {"scale_a": scales, "scale_b": np.ones(48, np.float32), "scale_d": 2.0}
    said = {"backend": "emulator"}
    added = {"epilogue": lambda acc, bias: acc + bias, **said}
    return {
        "one GEMM": (wt.plan(a, b, **added, **bias), (a, b), bias, np.ones((16, 48), np.float32)),
        "two GEMMs": (wt.plan(a, b, epilogue=shifted, **shift, **said), (a, b), shift, np.ones((16, 48), np.float32)),
        "scales": (wt.plan(*small, **scaled, **added, **bias), small, scaled | bias, np.ones((16, 48), np.float32)),
    }


KINDS = ("one GEMM", "two GEMMs", "scales")


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_names_the_operands_that_its_calls_give(operands, kind):
    made, arrays, given, _ = held(operands)[kind]
    assert sorted(made.operands) == sorted(given)
    made(*arrays, **given)


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_ignores_no_keyword(operands, kind):
    made, arrays, given, _ = held(operands)[kind]
    with pytest.raises(wt.ArgumentTypeError, match=r"alpha: it is fixed when a plan is made: warptile\.plan\(a, b"):
        made(*arrays, **given, alpha=2)
    with pytest.raises(wt.ArgumentTypeError, match="amax: it is fixed when a plan is made"):
        made(*arrays, **given, amax=True)
    with pytest.raises(wt.ArgumentTypeError, match=r"unexpected keyword argument 'oout'\. Did you mean 'out'\?"):
        made(*arrays, **given, oout=None)


@pytest.mark.parametrize("kind", KINDS)
def test_an_operand_that_is_missing_is_named(operands, kind):
    made, arrays, given, _ = held(operands)[kind]
    for name in given:
        rest = {other: value for other, value in given.items() if other != name}
        with pytest.raises((wt.EpilogueError, wt.ShapeError), match=f"{name}.*which was not given"):
            made(*arrays, **rest)


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_never_ignores_c(operands, kind):
    made, arrays, given, c = held(operands)[kind]
    with pytest.raises(wt.ShapeError, match=r"c: this plan was made without it .* warptile\.plan\(a, b, c\)"):
        made(*arrays, c, **given)


def test_a_plan_that_was_made_with_c_asks_for_it(operands):
    a, b, scales = operands
    c = np.ones((16, 48), np.float32)
    small = a.astype(np.int8), b.astype(np.int8)
    scaled = wt.plan(*small, c, scale_a=scales, backend="emulator")
    for made, arrays, given in (
        (wt.plan(a, b, c, backend="emulator"), (a, b), {}),
        (wt.plan(a, b, c, epilogue=gated, backend="emulator"), (a, b), {}),
        (scaled, small, {"scale_a": scales}),
    ):
        made(*arrays, c, **given)
        with pytest.raises(wt.ShapeError, match=r"c: got None, and this plan adds it .* plan\(a, b, c\)"):
            made(*arrays, **given)


def test_scales_of_other_shapes_are_answered_with_a_call_that_runs(operands):
    made, arrays, given, _ = held(operands)["scales"]
    with pytest.raises(wt.ShapeError, match=r"plan\(a, b, scale_a=scale_a, scale_b=scale_b, scale_d=scale_d, b"):
        made(*arrays, **given | {"scale_a": np.ones((), np.float32)})


def test_an_operand_without_an_epilogue_is_shown_one(operands):
    a, b, _ = operands
    for function in (wt.matmul, wt.plan):
        with pytest.raises(wt.ArgumentTypeError, match=r"such as epilogue=lambda acc, res: acc \+ res, res=res"):
            function(a, b, res=np.ones(48, np.float32))
