"""Two-level accumulation: which kernels have two sets of first-level registers, and what plans make of it."""

import numpy as np
import pytest

from warptile.device import REFERENCE
from warptile.dtypes import dtype
from warptile.planning import tuned_table
from warptile.problem import Problem
from warptile.rungs import rung
from warptile.rungs.wgmma import promotion
from warptile.rungs.wgmma.estimates import estimate_us, surveyed_us

FINAL = rung("wgmma-final")


def problem(accumulator="float32", element="float8_e4m3", m=4096, n=4096, k=4096):
    brain, types = dtype("bfloat16"), (dtype(element), dtype(accumulator))
    return Problem.dense(m, n, k, types[0], out=brain, accumulator=types[1], b_major="col")


def config(**changed):
    return {
        "BM": 128, "BN": 128, "BK": 128, "STAGES": 5, "CONSUMERS": 2, "PINGPONG": 0, "CM": 1, "CN": 1, "GROUP": 8,
        "ALONG_N": 0, "OVERLAP": 0, "STREAM": 0, "SPLITS": 1, "SWAP": 0, "SMS": 128,
    } | changed  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, True), ({"BN": 144}, True), ({"BN": 152}, False), ({"OVERLAP": 1}, False), ({"STREAM": 1}, False),
        ({"SPLITS": 2}, False), ({"BK": 256, "BN": 64}, False), ({"CONSUMERS": 1, "BM": 64, "BN": 64}, False),
        ({"PINGPONG": 1}, False), ({"PINGPONG": 1, "BN": 72}, True), ({"SWAP": 1}, True),
    ],
    ids=str,
)  # fmt: skip
def test_which_kernels_have_two_sets(changed, expected):
    made = config(**changed)
    assert bool(promotion.alternates(problem(), made)) is expected
    columns = {name: np.array([value, value]) for name, value in made.items()}
    assert promotion.alternates(problem(), columns).tolist() == [expected] * 2
    assert not promotion.alternates(problem("float32_fast"), made)
    assert not promotion.alternates(problem(element="bfloat16"), made)


def test_estimates_differ_from_surveys_where_kernels_do():
    for made, factor in ((config(), promotion.ALTERNATING), (config(OVERLAP=1), 1)):
        surveyed = surveyed_us(problem(), made, REFERENCE)
        assert estimate_us(problem(), made, REFERENCE) == pytest.approx(factor * surveyed)
    fast = problem("float32_fast")
    assert estimate_us(fast, config(), REFERENCE) == pytest.approx(surveyed_us(fast, config(), REFERENCE))


def test_a_tuned_configuration_is_left_where_kernels_have_changed():
    before, now = config(OVERLAP=1), config()
    assert tuned_table.is_outdated(problem(), FINAL, before, now, REFERENCE)
    assert not tuned_table.is_outdated(problem(), FINAL, now, before, REFERENCE)
    assert not tuned_table.is_outdated(problem("float32_fast"), FINAL, before, now, REFERENCE)
