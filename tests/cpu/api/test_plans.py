"""What `warptile.plan` returns: one type, whatever the call is made of."""

import copy
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import warptile as wt
from typed_calls import described, plans, repeated


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
    assert "by wgmma" in said["scales"]
    assert " and " in said["two GEMMs"]
    assert "no element" in said["no element"]
    assert "D[16, 48] = 0" in said["nothing multiplied"]


def test_the_blocks_of_the_page_run():
    page = Path(__file__).parents[3] / "docs" / "planning.md"
    [block] = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
    exec(block, {})
