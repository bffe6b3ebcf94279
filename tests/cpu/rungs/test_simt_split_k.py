"""simt-split-k: float32 and float64 products of few tiles, whose K several blocks share, and of few columns."""

import re

import numpy as np
import pytest

import warptile as wt
from covering import ALL, covering, few
from warptile.dtypes import DTYPES
from warptile.errors import UnsupportedError
from warptile.planning.plan import make_plan
from warptile.problem import Problem
from warptile.rungs.simt_split_k import FEW_COLUMNS, LONG_K, SIMT_SPLIT_K

SPLIT_K = {"rung": "simt-split-k", "backend": "emulator"}


def drawn(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def assert_product(d, exact, magnitude, k):
    assert d.shape == exact.shape
    assert (np.abs(d - exact) <= k * 2.0**-24 * magnitude).all()


@pytest.mark.parametrize(
    ("layout", "extents"),
    few(
        covering(
            ("row row", "row col", "col row", "col col"),
            ((1, 130, 300), (9, 65, 257), (17, 70, 96), (70, 66, 200), (1, 1, 513), (40, 36, 130)),
            pairs=(),
        ),
        4,
    ),
    ids=str,
)
def test_products(extents, layout):
    m, n, k = extents
    a = drawn(m, k) if layout.startswith("row") else drawn(k, m).T
    b = drawn(k, n) if layout.endswith("row") else drawn(n, k).T
    wide = np.full((m + 2, n + 3), 7, np.float32)
    d = wide[1:-1, 1:-2]
    wt.matmul(a, b, out=d, **SPLIT_K)
    assert_product(d, a.astype(np.float64) @ b, np.abs(a).astype(np.float64) @ np.abs(b), k)
    wide[1:-1, 1:-2] = 7
    assert (wide == 7).all()


@pytest.mark.parametrize("m", few([70, 68], 1))
def test_every_tile_gives_the_same_bits_for_either_layout_of_a(m):
    a, b = drawn(m, 130), drawn(130, 140)
    columns = np.asfortranarray(a)
    plan = wt.plan(columns, b, **SPLIT_K)
    assert plan.plan.problem.a.major == "col"
    assert not plan.copies
    configs = [each for each in SIMT_SPLIT_K.candidates(plan.plan.problem) if ALL or each["BM"] in (8, 64)]
    for config in configs:
        expected = wt.matmul(a, b, config=config, **SPLIT_K)
        assert np.array_equal(wt.matmul(columns, b, config=config, **SPLIT_K), expected), config


@pytest.mark.parametrize(
    ("layout", "extents", "element"),
    few(
        covering(
            ("row row", "row col", "col row", "col col"),
            ((130, 3, 70), (97, 9, 200), (64, 16, 64), (65, 40, 130)),
            (np.float32, np.float64),
            pairs=(),
        ),
        4,
    ),
    ids=str,
)
def test_few_columns(layout, extents, element):
    m, n, k = extents
    a = (drawn(m, k) if layout.startswith("row") else drawn(k, m).T).astype(element)
    b = (drawn(k, n) if layout.endswith("row") else drawn(n, k).T).astype(element)
    c, bias = drawn(m, n).astype(element), drawn(n).astype(element)
    wide = np.full((m + 2, n + 3), 7, element)
    d = wide[1:-1, 1:-2]
    plan = wt.plan(a, b, **SPLIT_K)
    assert plan.plan.config["SWAP"] == (k >= LONG_K or n <= FEW_COLUMNS)
    for swap in (0, 1):
        config = {**plan.plan.config, "SWAP": swap}
        wt.matmul(a, b, c, beta=2, epilogue=lambda acc, bias: acc + bias, bias=bias, out=d, config=config, **SPLIT_K)
        exact = a.astype(np.float64) @ b + 2 * c.astype(np.float64) + bias
        magnitude = np.abs(a).astype(np.float64) @ np.abs(b) + 2 * np.abs(c) + np.abs(bias)
        assert (np.abs(d - exact) <= (k + 2) * (2.0**-24 if element == np.float32 else 2.0**-53) * magnitude).all()
        wide[1:-1, 1:-2] = 7
        assert (wide == 7).all()


def test_k_in_one_piece_is_one_chain_whichever_operand_comes_first():
    """The bits of simt-warptile, in every layout and orientation: multiply-adds in the order of K."""
    a, b = drawn(33, 50), drawn(50, 45)
    expected = wt.matmul(a, b, rung="simt-warptile", backend="emulator")
    config = wt.plan(a, b, precision="ieee", **SPLIT_K).plan.config
    assert config["SPLITS"] == 1
    for swap, columns in ((0, True), (1, False), (1, True)):
        left = np.asfortranarray(a) if columns else a
        found = wt.matmul(left, b, precision="ieee", config={**config, "SWAP": swap}, **SPLIT_K)
        assert np.array_equal(found, expected)


def test_addend_factors_and_epilogue():
    a, b, c, bias = drawn(20, 160), drawn(160, 50), drawn(20, 50), drawn(50)
    exact = a.astype(np.float64) @ b
    found = wt.matmul(a, b, c, alpha=-0.5, beta=2, **SPLIT_K)
    assert np.abs(found - (2 * c - 0.5 * exact)).max() <= 1e-4
    fused = wt.matmul(a, b, epilogue=lambda acc, bias: wt.relu(acc + bias), bias=bias, **SPLIT_K)
    assert np.abs(fused - np.maximum(exact + bias, 0)).max() <= 1e-4


def test_parts_are_added_in_the_order_of_k_whoever_is_last():
    a, b = drawn(5, 640), drawn(640, 40)
    plan = wt.plan(a, b, **SPLIT_K)
    splits, step = plan.plan.config["SPLITS"], plan.plan.config["BK"]
    tiles = [len(each) * step for each in np.array_split(np.arange(640 // step), splits)]
    assert min(tiles) == max(tiles)  # parts of one length, as np.array_split makes them
    parts = zip(np.split(a, splits, 1), np.split(b, splits, 0), strict=True)
    chain = {"rung": "simt-warptile", "backend": "emulator"}
    expected = np.zeros((5, 40), np.float32)
    for left, right in parts:
        expected += wt.matmul(np.ascontiguousarray(left), right, **chain)
    for _ in range(2):
        assert np.array_equal(plan(a, b), expected)


@pytest.mark.parametrize(
    ("shape", "rung"),
    [
        ((40, 120, 600), "simt-gemv"), ((72, 480, 600), "simt-split-k"), ((300, 300, 20000), "wgmma-split"),
        ((512, 512, 512), "wgmma-split"), ((2048, 2048, 2048), "wgmma-split"),
        ((400, 300, 100), "simt-warptile"), ((200, 400, 500), "simt-split-k"), ((200, 200, 1000), "simt-split-k"),
    ],
)  # fmt: skip
def test_plans_take_it_where_tiles_are_few_and_k_is_long(shape, rung):
    single = DTYPES["float32"]
    plan = make_plan(Problem.dense(*shape, single, out=single, accumulator=single))
    assert plan.rung.name == rung
    if rung == "simt-split-k":
        told = re.fullmatch(r"predicted ([\d.]+) ms, against ([\d.]+) ms", dict(plan.rejected)["simt-warptile"])
        assert float(told[1]) > float(told[2])  # by the time that is compared, not by simt-warptile's bound
        assert not plan.launch("entry").co_resident  # blocks count arrivals and wait for none


def test_what_it_does_not_take_is_refused():
    a, b = drawn(8, 64), drawn(64, 8)
    config = dict(wt.plan(a, b, **SPLIT_K).plan.config)
    with pytest.raises(UnsupportedError, match="K is 64; 5 parts of whole tiles need 80"):
        wt.matmul(a, b, config={**config, "SPLITS": 5}, **SPLIT_K)
    with pytest.raises(UnsupportedError, match="SPLITS is 0; it must be at least 1"):
        wt.matmul(a, b, config={**config, "SPLITS": 0}, **SPLIT_K)
    with pytest.raises(UnsupportedError, match="SWAP is 2; it is 1 where operands are swapped, else 0"):
        wt.matmul(a, b, config={**config, "SWAP": 2}, **SPLIT_K)
    with pytest.raises(UnsupportedError, match="SPLITS is 2; precision is 'ieee', one chain"):
        wt.matmul(a, b, config={**config, "SPLITS": 2}, precision="ieee", **SPLIT_K)
    with pytest.raises(UnsupportedError, match="batch_invariant=True it takes no problem"):
        wt.matmul(a, b, batch_invariant=True, **SPLIT_K)
    with pytest.raises(UnsupportedError, match="float16"):
        wt.matmul(a.astype(np.float16), b.astype(np.float16), **SPLIT_K)
