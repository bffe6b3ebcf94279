"""The short list of wgmma-final: legal, different, the planner's own choice first, and what has won is on it."""

import pytest

from covering import of_each
from warptile.device import REFERENCE
from warptile.dtypes import dtype
from warptile.problem import Problem
from warptile.rungs import RUNGS
from warptile.rungs.wgmma.shortlist import MOST, shortlist

RUNG = RUNGS["wgmma-final"]
OUT = {"float8_e4m3": "bfloat16", "int8": "int32", "tfloat32": "float32"}


def listed(m, n, k, element="bfloat16", **majors):
    of = dtype(element)
    out, sums = dtype(OUT.get(element, element)), dtype(of.accumulators[0])
    problem = Problem.dense(m, n, k, of, out=out, accumulator=sums, b_major="col", **majors)
    return problem, shortlist(problem, RUNG.illegal, REFERENCE)


@pytest.mark.parametrize(
    ("shape", "element"),
    of_each([
        ((4096, 4096, 4096), "bfloat16"), ((4095, 4095, 4095), "float16"), ((1792, 1792, 1792), "bfloat16"),
        ((16, 8192, 8192), "bfloat16"), ((128, 28672, 4096), "float8_e4m3"), ((256, 256, 65536), "bfloat16"),
        ((4096, 4096, 4096), "int8"), ((8192, 8192, 8192), "tfloat32"), ((1, 1, 1), "bfloat16"),
    ], lambda case: (case[1], min(case[0]) <= 16)),
)  # fmt: skip
def test_all_are_legal_and_differ_and_the_planners_own_comes_first(shape, element):
    problem, found = listed(*shape, element)
    assert found[0] == RUNG.default_config(problem)
    assert all(RUNG.illegal(problem, config) is None for config in found)
    assert len({tuple(sorted(config.items())) for config in found}) == len(found) <= MOST
    assert len(found) >= (8 if min(shape) > 1 else 1)


def holds(found, **wanted):
    return any(all(config[key] == value for key, value in wanted.items()) for config in found)


def test_what_won_in_studies_is_among_them():
    _, large = listed(8192, 8192, 8192)
    assert holds(large, BM=128, BN=256, OVERLAP=1, CM=2, SMS=128)
    assert holds(large, BM=256, BN=192, STREAM=1)
    assert holds(large, PINGPONG=1, BN=192, CM=2)
    _, exact = listed(8192, 8192, 8192, "float8_e4m3")
    assert holds(exact, BM=128, BN=128, OVERLAP=1, SWAP=0)
    assert holds(exact, BM=128, BN=128, OVERLAP=1, SWAP=1)
    assert holds(exact, BM=128, BN=192)
    assert holds(listed(8192, 8192, 8192, "tfloat32")[1], BM=128, BN=192, OVERLAP=1)
    _, weights = listed(128, 28672, 4096, "float8_e4m3")
    assert {config["OVERLAP"] for config in weights if config["BN"] == 112} == {0, 1}
    _, few_rows = listed(16, 8192, 8192)
    assert all(config["SWAP"] and 16 <= config["BN"] <= 24 for config in few_rows)
    assert {config["BK"] for config in few_rows} >= {128, 256}
    _, two_each = listed(16, 10240, 8192)
    assert holds(two_each, BN=16, BK=64, STAGES=10, SMS=160)
    _, pairs = listed(128, 10240, 8192)
    assert holds(pairs, BM=64, BN=160, CM=2, SMS=128)
    assert holds(pairs, BM=128, BN=160, SPLITS=2)
    _, turned = listed(128, 8192, 8192)
    assert holds(turned, BM=64, BN=128, BK=64, CM=2, SMS=128)
    assert holds(turned, BM=128, BN=128, SPLITS=2, SWAP=1)
    _, cut = listed(64, 28672, 8192)
    assert holds(cut, BM=64, BN=112, CM=1, SMS=128)
    _, deep = listed(128, 128, 16384)
    assert holds(deep, BM=64, BN=64, SPLITS=32)
    assert holds(deep, BM=128, BN=128, SPLITS=64)
    _, medium = listed(1792, 1792, 1792)
    assert len({(config["BM"], config["BN"]) for config in medium}) >= 5


def test_a_problem_that_the_kernel_does_not_take_has_none():
    double = dtype("float64")
    assert shortlist(Problem.dense(64, 64, 64, double, out=double, accumulator=double), RUNG.illegal, REFERENCE) == ()
