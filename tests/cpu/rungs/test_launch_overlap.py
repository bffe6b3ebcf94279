"""Launches that overlap the one before them: which do, and how their CTAs are kept apart."""

from dataclasses import replace

import numpy as np
import pytest

from warptile.device import REFERENCE
from warptile.dtypes import DTYPES
from warptile.planning.plan import make_plan
from warptile.problem import Problem
from warptile.rungs.launch_overlap import AT_END_US, EARLY_US, MOST, lets_next_start, saved_us, spread
from warptile.runtime.execute import EmulatorBackend, compiled_ptx

DOUBLE, FLOAT = DTYPES["float64"], DTYPES["float32"]


def dense(m, n, k, dtype):
    return Problem.dense(m, n, k, dtype, out=dtype, accumulator=dtype)


@pytest.mark.parametrize(
    ("problem", "rung"),
    [
        (dense(2, 300, 700, FLOAT), "simt-gemv"), (dense(70, 90, 500, FLOAT), "simt-split-k"),
        (dense(70, 90, 500, DOUBLE), "mma-split-k"), (dense(70, 90, 500, FLOAT), "wgmma-bf16x6"),
    ],
)  # fmt: skip
def test_kernels_of_small_problems_overlap(problem, rung):
    assert make_plan(problem, rung=rung).kernel.overlaps_previous
    assert not make_plan(problem, rung=rung, max_sms=20).kernel.overlaps_previous
    if rung.startswith("simt"):  # the others need Hopper
        assert not make_plan(problem, rung=rung, arch="sm_80").kernel.overlaps_previous


def test_launches_with_many_ctas_do_not():
    plan = make_plan(dense(30000, 3000, 20, FLOAT), rung="simt-split-k")
    assert plan.kernel.ctas > MOST * REFERENCE.multiprocessors
    assert not plan.kernel.overlaps_previous


@pytest.mark.parametrize("ctas", [1, 100, 132, 133, 264, 700, 2000])
def test_no_sm_gets_more_than_its_share(ctas):
    kernel = make_plan(dense(70, 90, 500, FLOAT), rung="simt-split-k").kernel
    one = replace(kernel, grid=(ctas, 1, 1), dynamic_shared_bytes=1000)
    each = spread(one, REFERENCE).dynamic_shared_bytes + 1024
    share, of_sm = -(-ctas // 132), REFERENCE.generation.shared_bytes_per_sm
    assert share * each <= of_sm < (share + 1) * each
    assert each - 1024 <= REFERENCE.generation.shared_bytes_per_block


def test_larger_needs_stay_and_launches_that_overlap_nothing_too():
    kernel = make_plan(dense(70, 90, 500, FLOAT), rung="simt-split-k").kernel
    large = replace(kernel, dynamic_shared_bytes=200_000)
    assert spread(large, REFERENCE) == large
    alone = replace(kernel, overlaps_previous=False, dynamic_shared_bytes=1000)
    assert spread(alone, REFERENCE) == alone


def test_what_is_saved():
    assert not lets_next_start(263, 256, 132)
    assert lets_next_start(264, 256, 132)
    assert not lets_next_start(400, 64, 132)
    assert saved_us(100, 128, 132) == AT_END_US
    assert saved_us(100, 128, 132, spreads=True) == saved_us(1000, 128, 132) == EARLY_US
    assert saved_us(MOST * 132 + 1, 128, 132) == 0


def test_the_launch_tells_its_kernel():
    few, many = (make_plan(dense(4, n, 4096, FLOAT), rung="simt-gemv").kernel for n in (64, 20000))
    assert few.ctas < 264 < many.ctas
    for kernel, early in ((few, 0), (many, 1)):
        values = dict(kernel.params.members)
        assert int(values["lets_next_start"].value) == early


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("rung", ["simt-split-k", "simt-gemv"])
def test_the_same_kernels_run_before_hopper(rung, arch):
    """Which has no instructions for it."""
    a, b = (np.random.default_rng(i).standard_normal((31, 31)) for i in (0, 1))
    plan = make_plan(dense(31, 31, 31, DOUBLE), rung=rung, arch=arch)
    d = np.full((31, 31), np.nan)
    EmulatorBackend(arch).emulate(plan, compiled_ptx(plan), {"A": a, "B": b, "D": d}, 1.0, 0.0)
    assert np.allclose(d, a @ b, rtol=1e-12, atol=1e-12)
