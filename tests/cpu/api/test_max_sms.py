"""Launches that leave multiprocessors to others: ``max_sms``."""

from dataclasses import dataclass

import numpy as np
import pytest

import warptile as wt
from warptile.device import REFERENCE, DeviceLimits
from warptile.dtypes import DTYPES
from warptile.errors import UnsupportedError, WarptileError
from warptile.planning import shipped_table
from warptile.planning.plan import cost, make_plan
from warptile.planning.tuned_table import ProblemClass
from warptile.problem import Problem
from warptile.rungs import RUNGS
from warptile.runtime.execute import planned

FINAL = RUNGS["wgmma-final"]
SHAPES = ((1024, 1024, 1024), (4096, 4096, 4096), (128, 128, 16384), (16, 8192, 8192), (1, 1, 1))


def problem(m, n, k):
    element = DTYPES["bfloat16"]
    return Problem.dense(m, n, k, element, out=element, accumulator=DTYPES["float32"], b_major="col")


@dataclass
class Place:
    """An H200 as plans see it."""

    device: DeviceLimits = REFERENCE
    gpu: str | None = "NVIDIA H200"


def blocks(plan):
    return plan.kernel.ctas


@pytest.mark.parametrize("most", [1, 7, 64, 120, 131])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_launch_has_more_blocks(shape, most):
    for gpu in (None, "NVIDIA H200"):
        plan = planned(problem(*shape), Place(gpu=gpu), max_sms=most)
        assert plan.rung is FINAL or shape == (1, 1, 1)
        assert 1 <= blocks(plan) <= most


def test_what_was_tuned_has_a_plan_on_120_multiprocessors():
    table = shipped_table.table(FINAL.name)
    kept, looked_at = 0, table.entries[::4]
    for entry in looked_at:
        tuned_for, config = ProblemClass(*entry.problem), dict(zip(table.keys, entry.config, strict=True))
        plan = planned(tuned_for.problem(), Place(), max_sms=120)
        assert blocks(plan) <= 120, tuned_for
        fits = FINAL.resolve(tuned_for.problem(), config).ctas <= 120
        assert (plan.config == config) >= fits, tuned_for
        kept += fits
    assert 0 < kept < len(looked_at)


def test_a_tile_is_chosen_for_the_multiprocessors_that_are_left():
    given = problem(1024, 1024, 1024)
    whole = make_plan(given)
    assert blocks(whole) > 96
    fewer = make_plan(given, max_sms=96)
    cut = cost((FINAL, {**whole.config, "SMS": 96}), given).time_ms
    assert fewer.prediction.time_ms < cut


def test_a_split_has_parts_for_the_multiprocessors_that_are_left():
    for most, found in ((66, 66), (10, 10)):
        plan = make_plan(problem(64, 64, 65536), max_sms=most)
        assert found / 2 < blocks(plan) <= found
        assert plan.config["SPLITS"] > 1


def test_more_than_there_are_changes_nothing():
    given = problem(4096, 4096, 4096)
    assert planned(given, Place(), max_sms=1000).config == planned(given, Place()).config


def test_a_limited_launch_stands_alone():
    given = problem(256, 256, 256)
    assert make_plan(given).launch("entry").overlaps_previous
    assert not make_plan(given, max_sms=2).launch("entry").overlaps_previous


def test_products_on_two_multiprocessors_are_right():
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((130, 64), (64, 136)))
    explained = wt.plan(a, b, backend="emulator", max_sms=2).explain()
    assert "2 CTAs of" in explained
    assert "on 2 SMs at most" in explained
    want = a.astype(np.float32) @ b.astype(np.float32)
    assert np.array_equal(wt.matmul(a, b, backend="emulator", max_sms=2), want.astype(np.float16))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_sms": 0}, "max_sms is 0; it takes a whole number"),
        ({"max_sms": 1.5}, "max_sms is 1.5; it takes a whole number"),
        ({"max_sms": "all"}, "max_sms is 'all'; it takes a whole number"),
        ({"max_sms": 4, "rung": "simt-warptile"}, r"its launch has \d+ CTAs; max_sms is 4"),
        ({"max_sms": 4, "rung": "wgmma-final", "config": dict(FINAL.default_config(problem(4096, 4096, 4096)))},
         r"its launch has \d+ CTAs; max_sms is 4"),
        ({"max_sms": 1, "rung": "wgmma-multicast"}, "a cluster has 2 CTAs"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(options, message):
    a = np.zeros((2048, 2048), np.float16)
    with pytest.raises(WarptileError, match=message) as caught:
        wt.plan(a, a, backend="emulator", **options)
    given = options["max_sms"]
    kind = UnsupportedError if "rung" in options else ValueError if given == 0 else TypeError
    assert isinstance(caught.value, kind)
