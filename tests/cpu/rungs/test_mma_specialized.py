"""mma-specialized: float64 by warp specialization, several consumers with a tile each."""

from dataclasses import replace

import numpy as np
import pytest

import warptile as wt
from covering import covering, few
from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import translation_unit
from warptile.device import REFERENCE
from warptile.dtypes import DTYPES
from warptile.errors import UnsupportedError
from warptile.planning.plan import make_plan
from warptile.problem import Problem
from warptile.rungs.mma_specialized import MMA_SPECIALIZED, SIZES
from wgmma_product import product

SPECIALIZED = {"rung": "mma-specialized", "backend": "emulator"}
DOUBLE = DTYPES["float64"]
CONFIGS = MMA_SPECIALIZED.candidates(Problem.dense(64, 64, 64, DOUBLE, out=DOUBLE, accumulator=DOUBLE))


def drawn(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape)


def dense(*extents, b_major="col", **options):
    return Problem.dense(*extents, DOUBLE, out=DOUBLE, accumulator=DOUBLE, b_major=b_major, **options)


@pytest.mark.parametrize(
    ("a_major", "b_major", "extents", "config", "schedule"),
    few(
        covering(
            ("row", "col"),
            ("row", "col"),
            ((130, 70, 50), (66, 200, 16), (5, 34, 130), (64, 64, 1), (33, 31, 15)),
            range(len(SIZES)),
            ("latest", "earliest", "random:3"),
            pairs=((0, 1), (0, 2), (0, 3)),
        ),
        8,
    ),
    ids=str,
)
def test_products(a_major, b_major, extents, config, schedule):
    result = product(
        "mma-specialized", *extents, dtype="float64", a_major=a_major, b_major=b_major, alpha=-0.5, beta=2,
        gap=config % 2, config=CONFIGS[config], schedule=schedule,
    )  # fmt: skip
    assert result.error_ratio <= 1
    assert result.guards_kept


@pytest.mark.parametrize("config", few(range(len(SIZES)), 1))
def test_a_consumer_takes_one_tile_after_the_other(config):
    a, b = drawn(500, 40), drawn(40, 200)
    d = wt.matmul(a, b, max_sms=2, config=CONFIGS[config], **SPECIALIZED)
    assert np.abs(d - a @ b).max() <= 1e-12


def test_batches_and_matrices_that_all_share():
    a, b = drawn(3, 70, 34), drawn(3, 34, 66)
    d = wt.matmul(a, b, max_sms=2, **SPECIALIZED)
    assert np.abs(d - a @ b).max() <= 1e-12
    d = wt.matmul(a, b[0], epilogue=lambda acc, bias: wt.relu(acc + bias), bias=drawn(66), **SPECIALIZED)
    assert np.abs(d - np.maximum(a @ b[0] + drawn(66), 0)).max() <= 1e-12


@pytest.mark.parametrize("layout", ["row row", "col col"])
def test_unaligned_operands_are_repacked(layout):
    a = drawn(67, 33) if layout.startswith("row") else drawn(33, 67).T
    b = drawn(33, 35) if layout.endswith("row") else drawn(35, 33).T
    plan = wt.plan(a, b, **SPECIALIZED).plan
    assert [repack.source for repack in plan.kernel.view.repacks] == ["A", "B"]
    assert np.abs(wt.matmul(a, b, **SPECIALIZED) - a @ b).max() <= 1e-12
    batch = drawn(3, 67 * 33 + 1)[:, :-1].reshape(3, 67, 33)
    assert np.abs(wt.matmul(batch, b, **SPECIALIZED) - batch @ b).max() <= 1e-12


@pytest.mark.parametrize(("a_major", "b_major"), [("row", "col"), ("col", "row")])
def test_fragments_have_no_bank_conflicts(a_major, b_major):
    def counts(k):
        layout = {"a_major": a_major, "b_major": b_major}
        result = product("mma-specialized", 64, 64, k, dtype="float64", config=CONFIGS[0], **layout)
        assert result.report.unfinished_copies == 0
        return result.report.counters

    one, two = counts(16), counts(32)
    assert two["tma_load_sectors"] - one["tma_load_sectors"] == (64 + 64) * 16 * 8 / 32
    names = "shared_load_wavefronts", "shared_load_wavefronts_ideal"
    added, ideal = (two[name] - one[name] for name in names)
    assert added == ideal == 4 * (32 + 32) * 16 * 8 / 128


@pytest.mark.parametrize(
    ("extents", "rung"),
    [
        ((4096, 4096, 4096), "mma-specialized"), ((3072, 2304, 3584), "mma-specialized"),
        ((4096, 4096, 64), "mma-specialized"), ((300, 300, 3000), "mma-split-k"),
    ],
)  # fmt: skip
def test_plans_take_it_for_large_aligned_problems(extents, rung):
    assert make_plan(dense(*extents), arch="sm_90a").rung.name == rung
    assert make_plan(dense(*extents), arch="sm_80").rung.name != "mma-specialized"
    invariant = replace(dense(*extents), batch_invariant=True)
    assert make_plan(invariant, arch="sm_90a").rung.name == "mma-final"


def test_a_launch_has_one_cta_for_each_sm():
    plan = make_plan(dense(1000, 900, 64, batch=3), rung="mma-specialized", arch="sm_90a")
    assert plan.kernel.grid == (REFERENCE.sms, 1, 1)
    assert plan.kernel.overlaps_previous
    assert make_plan(dense(64, 64, 64), rung="mma-specialized", arch="sm_90a").kernel.grid[0] <= 2


@pytest.mark.parametrize("layout", ["row row", "row col", "col row", "col col"])
@pytest.mark.parametrize("with_c", [False, True])
def test_kernels_keep_at_most_a_few_words_in_local_memory(layout, with_c):
    a_major, b_major = layout.split()
    for extents in few(((512, 512, 512), (513, 515, 517)), 1):
        problem = dense(*extents, a_major=a_major, b_major=b_major, with_c=with_c)
        for config in CONFIGS:
            source = translation_unit(MMA_SPECIALIZED.resolve(problem, config))
            assert compile_source(source, "sm_90a").resources.stack_bytes <= 48


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"BK": 32}, "fragments are loaded from rows of 128 bytes, 16 doubles"),
        ({"CONSUMERS": 4}, "CONSUMERS is 4; a CTA has two or three"),
        ({"FK": 4}, "FM, FN, FK are 16, 8, 4; it takes 16, 8, 8"),
        ({"BM": 128}, "a consumer's tile is 8 warps' tiles; it is a warpgroup, four"),
        ({"WM": 16, "BM": 32}, "WM is 16; fragments of A alternate"),
        ({"STAGES": 12}, "shared memory"),
        ({"BN": 128, "WN": 64, "STAGES": 2, "CONSUMERS": 3}, "a thread needs about"),
    ],
)
def test_what_it_does_not_take_is_refused(change, reason):
    a, b = drawn(64, 64), drawn(64, 64)
    with pytest.raises(UnsupportedError, match=reason):
        wt.matmul(a, b, config={**CONFIGS[0], **change}, **SPECIALIZED)
    with pytest.raises(UnsupportedError, match="operands are float32; it takes float64"):
        wt.matmul(a.astype(np.float32), b.astype(np.float32), **SPECIALIZED)
    with pytest.raises(UnsupportedError, match="needs compute capability 9"):
        make_plan(dense(64, 64, 64), rung="mma-specialized", arch="sm_80")
