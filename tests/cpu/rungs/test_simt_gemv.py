"""simt-gemv: few rows of D, and small problems, whose operands no block stages, in any layout and alignment."""

import ml_dtypes
import numpy as np
import pytest

import warptile as wt
from covering import covering, few
from warptile.dtypes import DTYPES
from warptile.errors import UnsupportedError
from warptile.planning.plan import make_plan
from warptile.problem import Problem
from warptile.rungs.simt_gemv import SIMT_GEMV

GEMV = {"rung": "simt-gemv", "backend": "emulator"}
TYPES = {
    "float32": (np.float32, 2.0**-23), "float16": (np.float16, 2.0**-10), "float64": (np.float64, 2.0**-52),
    "bfloat16": (ml_dtypes.bfloat16, 2.0**-7), "int8": (np.int8, 0.0), "uint8": (np.uint8, 0.0),
}  # fmt: skip
"""NumPy's types, and the spacing of the result's next to one."""


def drawn(*shape, dtype=np.float32, seed=0):
    values = np.random.default_rng(seed + sum(shape)).standard_normal(shape) * 3
    return (np.abs(values) if dtype == np.uint8 else values).astype(dtype)


def matrix(k, n, layout, dtype):
    return drawn(k, n, dtype=dtype) if layout == "row" else drawn(n, k, dtype=dtype).T


def assert_product(d, a, b, spacing):
    exact, magnitude = a.astype(np.float64) @ b, np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    assert d.shape == exact.shape
    chain = a.shape[1] * (2.0**-53 if a.dtype == np.float64 else 2.0**-24)
    assert (np.abs(d.astype(np.float64) - exact) <= (spacing and (chain + spacing)) * magnitude).all()


@pytest.mark.parametrize(
    ("name", "layout", "extents"),
    covering(
        tuple(TYPES), ("row", "col"), ((1, 130, 300), (3, 64, 1024), (8, 33, 70), (5, 1, 513), (11, 40, 64)), pairs=()
    ),
    ids=str,
)
def test_products(extents, layout, name):
    (m, n, k), (dtype, spacing) = extents, TYPES[name]
    a, b = drawn(m, k, dtype=dtype), matrix(k, n, layout, dtype)
    result = np.int32 if "int8" in name else dtype
    wide = np.full((m + 2, n + 3), 7, result)
    d = wide[1:-1, 1:-2]
    wt.matmul(a, b, out=d, **GEMV)
    assert_product(d, a, b, spacing)
    wide[1:-1, 1:-2] = 7
    assert (wide == 7).all()


@pytest.mark.parametrize("layout", ["row", "col"])
@pytest.mark.parametrize("extents", few([(1, 5, 700), (13, 8, 150), (5, 40, 200), (21, 2, 64)], 2), ids=str)
def test_every_configuration_that_plans_look_at(extents, layout):
    m, n, k = extents
    a, b = drawn(m, k), matrix(k, n, layout, np.float32)
    given = wt.plan(a, b, **GEMV).plan.problem
    tried = SIMT_GEMV.candidates(given)
    groups = {config["BK"] // config["WARPS"] for config in tried}
    assert len(tried) > 1
    assert layout == "col" or max(groups) > 8 or n > 32  # lanes beyond the columns share K
    for config in tried:
        assert_product(wt.matmul(a, b, config=config, **GEMV), a, b, 2.0**-23)


@pytest.mark.parametrize(
    ("name", "layout", "extents"),
    few(
        covering(
            tuple(TYPES),
            ("row row", "row col", "col row", "col col"),
            ((130, 1, 300), (64, 3, 256), (33, 8, 70), (90, 5, 129), (40, 11, 64)),
            pairs=((0, 1),),
        ),
        8,
    ),
    ids=str,
)
def test_few_columns(extents, layout, name):
    """D^T = B^T A^T: few columns are few rows, in every layout of both operands."""
    (m, n, k), (dtype, spacing) = extents, TYPES[name]
    a, b = (
        matrix(*shape, major, dtype) for shape, major in zip(((m, k), (k, n)), layout.split(), strict=True)
    )  # fmt: skip
    wide = np.full((m + 2, n + 3), 7, np.int32 if "int8" in name else dtype)
    d = wide[1:-1, 1:-2]
    assert wt.plan(a, b, **GEMV).plan.config["SWAP"] == 1
    wt.matmul(a, b, out=d, **GEMV)
    assert_product(d, a, b, spacing)
    wide[1:-1, 1:-2] = 7
    assert (wide == 7).all()


@pytest.mark.parametrize("layout", ["row", "col"])
def test_operands_that_are_not_aligned(layout):
    for offset, k in ((1, 96), (2, 97), (3, 130)):
        memory = drawn(offset + k * 37, dtype=np.float16)[offset:]
        b = memory.reshape(k, 37) if layout == "row" else memory.reshape(37, k).T
        a = drawn(offset + 2 * k, dtype=np.float16)[offset:].reshape(2, k)
        assert_product(wt.matmul(a, b, **GEMV), a, b, 2.0**-10)


def test_infinities_past_the_ends_are_not_read():
    """Neither those beside K in memory, nor those of B times the zeros that stand past the end of K."""
    for layout in ("row", "col"):
        whole_a, whole_b = np.full((3, 120), np.inf, np.float32), np.full((120, 90), np.inf, np.float32)
        stored = whole_b if layout == "row" else whole_b.reshape(90, 120).T
        a, b = whole_a[:2, :100], stored[:100, :70]
        a[...], b[...] = drawn(2, 100), drawn(100, 70)
        assert_product(wt.matmul(a, b, **GEMV), a, b, 2.0**-23)


def test_addend_factors_and_epilogue():
    a, b, c, bias = drawn(4, 160), drawn(160, 50), drawn(4, 50), drawn(50)
    exact = a.astype(np.float64) @ b
    found = wt.matmul(a, b, c, alpha=-0.5, beta=2, **GEMV)
    assert np.abs(found - (2 * c - 0.5 * exact)).max() <= 1e-4
    fused = wt.matmul(a, b, epilogue=lambda acc, bias: wt.relu(acc + bias), bias=bias, **GEMV)
    assert np.abs(fused - np.maximum(exact + bias, 0)).max() <= 1e-4


@pytest.mark.parametrize("layout", few(["row", "col"], 1))
def test_blocks_that_share_k_give_the_same_bits_at_every_call(layout):
    a, b = drawn(2, 3000), matrix(3000, 20, layout, np.float32)
    plan = wt.plan(a, b, **GEMV)
    assert plan.plan.config["SPLITS"] > 1
    first = plan(a, b)
    assert_product(first, a, b, 2.0**-23)
    assert np.array_equal(plan(a, b), first)
    for splits in (1, 2, 5):
        found = wt.matmul(a, b, config={**plan.plan.config, "SPLITS": splits}, **GEMV)
        assert_product(found, a, b, 2.0**-23)


@pytest.mark.parametrize(
    ("dtype", "shape", "b_major", "rung"),
    [
        ("float32", (1, 4096, 4096), "col", "simt-gemv"), ("float32", (4, 4096, 4096), "col", "simt-gemv"),
        ("float32", (1, 4096, 4096), "row", "simt-gemv"), ("float32", (8, 4096, 4096), "row", "simt-split-k"),
        ("float32", (9, 4096, 4096), "col", "wgmma-bf16x6"), ("float64", (1, 4096, 4096), "col", "simt-gemv"),
        ("bfloat16", (8, 4096, 4096), "col", "wgmma-final"), ("bfloat16", (1, 1001, 777), "row", "simt-gemv"),
        ("int8", (1, 4096, 4096), "row", "simt-gemv"),
    ],
)  # fmt: skip
def test_plans_take_it_for_few_rows(dtype, shape, b_major, rung):
    element = DTYPES[dtype]
    accumulator = DTYPES[element.accumulators[0]]
    out = accumulator if dtype == "int8" else element
    plan = make_plan(Problem.dense(*shape, element, out=out, accumulator=accumulator, b_major=b_major))
    assert plan.rung.name == rung
    if rung == "simt-gemv":
        assert not plan.launch("entry").co_resident  # blocks count arrivals and wait for none


def test_what_it_does_not_take_is_refused():
    a, b = drawn(2, 64), drawn(64, 8)
    config = dict(wt.plan(a, b, **GEMV).plan.config)
    for changed, reason in (
        ({"SPLITS": 3}, "SPLITS is 3; K of 64 has"),
        ({"WARPS": 33}, "WARPS is 33; a block has at most 32"),
        ({"BK": 65}, "BK is 65; 32 groups of lanes take 8 rows of B each, so it must be 256"),
        ({"BN": 33}, "BN is 33; 1, 2, 4, ... or 32 lanes load 4 columns each: take 128"),
        ({"BN": 65536, "BK": 16}, "without opting in a block has 49152"),
    ):
        with pytest.raises(UnsupportedError, match=reason):
            wt.matmul(a, b, config={**config, **changed}, **GEMV)
    with pytest.raises(UnsupportedError, match="BK is 48; 2 warps load 256 elements along K at once"):
        wt.matmul(a, matrix(64, 8, "col", np.float32), config={**config, "WARPS": 2, "BK": 48}, **GEMV)
    single = DTYPES["float32"]
    long_k = Problem.dense(1, 8, 20_000_000, single, out=single, accumulator=single)
    assert SIMT_GEMV.illegal(long_k, {**config, "SPLITS": 65536}) is None
    reason = SIMT_GEMV.illegal(long_k, {**config, "SPLITS": 65537})
    assert reason == "SPLITS is 65537; at most 65536 blocks share a tile"
    with pytest.raises(UnsupportedError, match="precision is 'ieee'"):
        wt.matmul(a, b, precision="ieee", **GEMV)
    with pytest.raises(UnsupportedError, match="batch_invariant=True it takes no problem"):
        wt.matmul(a, b, batch_invariant=True, **GEMV)
