"""mma-split-k: float64 products of few tiles on tensor cores, whose K several blocks share."""

from dataclasses import replace

import numpy as np
import pytest

import warptile as wt
from covering import covering, few
from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import translation_unit
from warptile.dtypes import DTYPES
from warptile.errors import UnsupportedError
from warptile.planning.plan import make_plan
from warptile.problem import Problem
from warptile.rungs import RUNGS
from warptile.rungs.mma import FINAL_KEYS, ranked
from warptile.rungs.mma_split_k import MMA_SPLIT_K, SIZES

SPLIT_K = {"rung": "mma-split-k", "backend": "emulator"}
DOUBLE = DTYPES["float64"]


def drawn(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape)


def dense(*extents):
    return Problem.dense(*extents, DOUBLE, out=DOUBLE, accumulator=DOUBLE, b_major="col")


@pytest.mark.parametrize(
    ("layout", "extents", "size", "splits"),
    few(
        covering(
            ("row row", "row col", "col row", "col col"),
            ((16, 64, 200), (70, 33, 257), (5, 130, 100), (90, 7, 130)),
            tuple(size[:2] for size in SIZES),
            (1, 2, 4),
            pairs=((0, 1), (0, 2)),
        ),
        8,
    ),
    ids=str,
)
def test_products(layout, extents, size, splits):
    m, n, k = extents
    a = drawn(m, k) if layout.startswith("row") else drawn(k, m).T
    b = drawn(k, n) if layout.endswith("row") else drawn(n, k).T
    c = drawn(m, n)
    wide = np.full((m + 2, n + 3), 7.0)
    d = wide[1:-1, 1:-2]
    config = next(each for each in MMA_SPLIT_K.candidates(dense(m, n, k)) if (each["BM"], each["BN"]) == size)
    wt.matmul(a, b, c, alpha=-0.5, beta=2, out=d, config={**config, "SPLITS": splits}, **SPLIT_K)
    magnitude = np.abs(a) @ np.abs(b) + np.abs(c)
    assert (np.abs(d - (2 * c - 0.5 * (a @ b))) <= (k + 2) * 2.0**-53 * magnitude).all()
    wide[1:-1, 1:-2] = 7
    assert (wide == 7).all()


def test_parts_are_added_in_the_order_of_k_whoever_is_last():
    a, b = drawn(20, 192), drawn(192, 40)
    plan = wt.plan(a, b, **SPLIT_K)
    config = {**plan.plan.config, "SPLITS": 3}
    expected = np.zeros((20, 40))
    for left, right in zip(np.split(a, 3, 1), np.split(b, 3, 0), strict=True):
        expected += wt.matmul(np.ascontiguousarray(left), right, rung="mma-final", backend="emulator")
    for _ in range(2):
        assert np.array_equal(wt.matmul(a, b, config=config, **SPLIT_K), expected)


def test_an_epilogue():
    a, b, bias = drawn(20, 160), drawn(160, 50), drawn(50)
    fused = wt.matmul(a, b, epilogue=lambda acc, bias: wt.relu(acc + bias), bias=bias, **SPLIT_K)
    assert np.abs(fused - np.maximum(a @ b + bias, 0)).max() <= 1e-12


@pytest.mark.parametrize(
    ("shape", "rung"),
    [
        ((2048, 8, 8192), "mma-split-k"), ((16, 4096, 4096), "mma-split-k"), ((300, 300, 3000), "mma-split-k"),
        ((4096, 4096, 4096), "mma-specialized"), ((2, 4096, 4096), "simt-gemv"),
    ],
)  # fmt: skip
def test_plans_take_it_where_tiles_are_few(shape, rung):
    plan = make_plan(dense(*shape))
    assert plan.rung.name == rung
    if rung == "mma-split-k":
        assert plan.config in MMA_SPLIT_K.candidates(dense(*shape))
        assert not plan.launch("entry").co_resident  # blocks count arrivals and wait for none


@pytest.mark.parametrize(("shape", "rung"), [((4096, 4096, 4096), "mma-final"), ((64, 64, 8192), "mma-split-k")])
def test_gpus_before_hopper_get_their_instruction(shape, rung):
    plan = make_plan(dense(*shape), arch="sm_80")
    assert (plan.rung.name, *(plan.config[key] for key in ("FM", "FN", "FK"))) == (rung, 8, 8, 4)
    assert compile_source(translation_unit(plan.kernel), "sm_80").resources.spill_bytes == 0


@pytest.mark.parametrize("rung", ["mma-final", "mma-split-k"])
def test_products_before_hopper(rung, monkeypatch):
    monkeypatch.setenv("WARPTILE_ARCH", "sm_80")
    a, b = drawn(70, 65), drawn(65, 90)
    assert wt.plan(a, b, rung=rung, backend="emulator").plan.config["FM"] == 8
    assert np.abs(wt.matmul(a, b, rung=rung, backend="emulator") - a @ b).max() <= 1e-12


def test_k_is_split_only_where_parts_pay():
    assert make_plan(dense(128, 128, 128)).config["SPLITS"] == 1
    assert make_plan(dense(144, 160, 5288)).config["SPLITS"] > 1
    for extents in ((128, 128, 128), (144, 160, 5288), (4000, 4000, 64)):
        candidates = MMA_SPLIT_K.candidates(dense(*extents))
        assert any(each["SPLITS"] == 1 for each in candidates)
        whole = [{key: each[key] for key in FINAL_KEYS} for each in candidates if each["SPLITS"] == 1]
        assert not [each for each in whole if each in ranked(dense(*extents))], "mma-final has them"


@pytest.mark.parametrize("layout", ["row row", "row col", "col row", "col col"])
@pytest.mark.parametrize("size", few(SIZES, 1), ids=str)
def test_unaligned_doubles_do_not_spill(size, layout):
    """They take twice the copies of aligned ones, each with its address and predicate."""
    a_major, b_major = layout.split()
    of = Problem.dense(513, 515, 517, DOUBLE, out=DOUBLE, accumulator=DOUBLE, a_major=a_major, b_major=b_major)
    keys = "BM", "BN", "BK", "WM", "WN", "STAGES", "MIN_BLOCKS"
    config = next(each for each in MMA_SPLIT_K.candidates(of) if tuple(each[key] for key in keys) == size)
    assert MMA_SPLIT_K.illegal(of, config) is None
    compiled = compile_source(translation_unit(MMA_SPLIT_K.resolve(of, config)), "sm_90a")
    assert compiled.resources.spill_bytes == 0


def test_kernels_with_few_registers_may_spill_a_little():
    """So that they compile at once; what they keep in local memory costs less than it hides."""
    of, allowed = Problem.dense(512, 512, 512, DOUBLE, out=DOUBLE, accumulator=DOUBLE), []
    for config in ranked(of):
        source = translation_unit(RUNGS["mma-final"].resolve(of, config))
        compiled = compile_source(source, "sm_90a")
        allowed.append(source.may_spill)
        assert compiled.resources.stack_bytes <= (64 if source.may_spill else 0)
    assert allowed == [False, False, True, True, True, True]


def test_tiles_with_too_many_copies_of_unaligned_doubles_are_refused():
    of = dense(512, 512, 512)
    tiles = (each for each in MMA_SPLIT_K.candidates(of) if (each["BM"], each["BN"], each["WN"]) == (64, 64, 32))
    config = {**next(tiles), "BK": 32, "STAGES": 3}
    assert MMA_SPLIT_K.illegal(of, config) is None
    unaligned = replace(of, b=replace(of.b, alignment_bytes=8))
    assert "copies 32 elements of a stage one by one" in MMA_SPLIT_K.illegal(unaligned, config)


def test_what_it_does_not_take_is_refused():
    a, b = drawn(16, 64), drawn(64, 16)
    config = wt.plan(a, b, **SPLIT_K).plan.config
    with pytest.raises(UnsupportedError, match="SPLITS is 3; K of 64 has 2 stages of 32"):
        wt.matmul(a, b, config={**config, "SPLITS": 3}, **SPLIT_K)
    with pytest.raises(UnsupportedError, match="batch_invariant=True it takes no problem"):
        wt.matmul(a, b, batch_invariant=True, **SPLIT_K)
    for name in ("float32", "float16", "int8"):
        with pytest.raises(UnsupportedError, match=f"operands are {name}; it takes float64"):
            wt.matmul(a.astype(name), b.astype(name), **SPLIT_K)
