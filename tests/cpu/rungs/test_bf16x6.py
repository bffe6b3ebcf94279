"""wgmma-bf16x6: float32 products of few rows on tensor cores, in three bfloat16 slices."""

import numpy as np
import pytest

import warptile as wt
from covering import covering, few
from warptile.dtypes import DTYPES
from warptile.errors import UnsupportedError
from warptile.planning.plan import make_plan
from warptile.problem import Problem
from warptile.rungs.wgmma.bf16x6 import KEYS, LEAST_K, SIZES, WGMMA_BF16X6

BF16X6 = {"rung": "wgmma-bf16x6", "backend": "emulator"}


def drawn(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def configuration(**changes):
    return {**dict(zip(KEYS, (16, 128, 32, 3, 2, 1, 0), strict=True)), **changes}


def exact_and_magnitude(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return a @ b, np.abs(a) @ np.abs(b)


def chain(a, b):
    """The product by float32 multiply-adds in the order of K."""
    sums = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        sums = (sums + np.outer(a[:, k].astype(np.float64), b[k].astype(np.float64))).astype(np.float32)
    return sums


@pytest.mark.parametrize(
    ("layout", "extents", "changes"),
    few(
        covering(
            ("row row", "row col", "col row", "col col"),
            ((9, 130, 300), (13, 65, 257), (40, 132, 96), (70, 66, 100), (1, 1, 513), (33, 40, 64)),
            (
                {},
                {"BM": 64, "SPLITS": 2, "MIN_BLOCKS": 1},
                {"BM": 32, "BN": 64, "SWAP": 1},
                {"BM": 8, "BK": 64, "SPLITS": 2},
            ),
            pairs=((0, 1), (0, 2)),
        ),
        6,
    ),
    ids=str,
)
def test_products(layout, extents, changes):
    m, n, k = extents
    a = drawn(m, k) if layout.startswith("row") else drawn(k, m).T
    b = drawn(k, n) if layout.endswith("row") else drawn(n, k).T
    wide = np.full((m + 2, n + 3), 7, np.float32)
    d = wide[1:-1, 1:-2]
    wt.matmul(a, b, out=d, config=configuration(**changes), **BF16X6)
    exact, magnitude = exact_and_magnitude(a, b)
    assert (np.abs(d - exact) <= 4 * 2.0**-24 * magnitude).all()
    wide[1:-1, 1:-2] = 7
    assert (wide == 7).all()


@pytest.mark.parametrize(
    ("extents", "along", "start"), covering([(70, 101), (1, 67), (131, 130)], ["K", "N"], few([0, 1, 2, 3], 2)), ids=str
)
def test_unaligned_lines_of_b(extents, along, start):
    """What lies around B is infinite: it is copied with the ends of lines, and must not be multiplied."""
    n, k = extents
    lines, elements = (n, k) if along == "K" else (k, n)
    memory = np.full(start + lines * elements + 5, np.inf, np.float32)
    b = memory[start : start + lines * elements].reshape(lines, elements)
    b[:] = drawn(lines, elements)
    b = b.T if along == "K" else b
    a = drawn(5, k)
    plan = wt.plan(a, b, config=configuration(BN=64, SPLITS=2), **BF16X6)
    assert dict(plan.plan.kernel.instance.values)["B_WIDTH"] == 1
    exact, magnitude = exact_and_magnitude(a, b)
    assert (np.abs(plan(a, b) - exact) <= 4 * 2.0**-24 * magnitude).all()


@pytest.mark.parametrize("terms", few(["normal", "positive"], 2))
@pytest.mark.parametrize("k", few([LEAST_K, 96, 512], 2))
def test_no_less_accurate_than_a_chain_of_multiply_adds(k, terms):
    a, b = drawn(16, k), drawn(k, 128)
    if terms == "positive":
        a, b = np.abs(a), np.abs(b)
    exact, magnitude = exact_and_magnitude(a, b)

    def rms(d):
        return np.sqrt((((d - exact) / magnitude) ** 2).mean())

    assert rms(wt.matmul(a, b, config=configuration(), **BF16X6)) <= rms(chain(a, b))


@pytest.mark.parametrize(("of_a", "of_b"), [(1e-36, 1e36), (1e-42, 1e38), (1e37, 1e-20), (1e-30, 1e-12)])
def test_numbers_of_any_size(of_a, of_b):
    a, b = drawn(9, 70) * np.float32(of_a), np.clip(drawn(70, 66), -2, 2) * np.float32(of_b)
    exact, magnitude = exact_and_magnitude(a, b)
    found = wt.matmul(a, b, config=configuration(), **BF16X6)
    # A chain of multiply-adds rounds to multiples of the least float32 too.
    assert (np.abs(found - exact) <= 70 * (2.0**-24 * magnitude + 2.0**-149)).all()


def test_infinities_nans_and_what_overflows():
    a, b = drawn(20, 64), drawn(64, 140)
    a[3, 5], a[4, 7], b[9, 11] = np.inf, np.nan, -np.inf
    a[6], b[:, 30] = 1e30, 1e30
    with np.errstate(all="ignore"):
        expected = chain(a, b)
    found = wt.matmul(a, b, config=configuration(BM=24, SPLITS=1), **BF16X6)
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    for infinity in (np.inf, -np.inf):
        assert np.array_equal(found == infinity, expected == infinity)
    assert np.isinf(expected[6, 30])
    finite = np.isfinite(expected)
    assert 0.6 < finite.mean() < 1
    assert np.allclose(found[finite], expected[finite], rtol=1e-4, atol=1e-4)


def test_addend_factors_and_epilogue():
    a, b, c, bias = drawn(20, 160), drawn(160, 50), drawn(20, 50), drawn(50)
    exact = a.astype(np.float64) @ b
    found = wt.matmul(a, b, c, alpha=-0.5, beta=2, **BF16X6)
    assert np.abs(found - (2 * c - 0.5 * exact)).max() <= 1e-4
    fused = wt.matmul(a, b, epilogue=lambda acc, bias: wt.relu(acc + bias), bias=bias, **BF16X6)
    assert np.abs(fused - np.maximum(exact + bias, 0)).max() <= 1e-4


def test_of_split_weights_it_reads_the_matrix():
    a, b = drawn(20, 130), drawn(130, 70)
    expected = wt.matmul(a, b, **BF16X6)
    assert np.array_equal(wt.matmul(a, wt.split(b), **BF16X6), expected)


def test_parts_are_added_in_the_order_of_k_whoever_is_last():
    a, b = drawn(5, 192), drawn(192, 40)
    expected = np.zeros((5, 40), np.float32)
    for left, right in zip(np.split(a, 3, 1), np.split(b, 3, 0), strict=True):
        expected += wt.matmul(np.ascontiguousarray(left), right, config=configuration(), **BF16X6)
    plan = wt.plan(a, b, config=configuration(SPLITS=3), **BF16X6)
    for _ in range(2):
        assert np.array_equal(plan(a, b), expected)


@pytest.mark.parametrize(
    ("shape", "rung"),
    [
        ((32, 4096, 4096), "wgmma-bf16x6"), ((64, 4096, 4096), "wgmma-bf16x6"), ((64, 1024, 8192), "wgmma-bf16x6"),
        ((96, 1032, 496), "simt-split-k"), ((256, 4096, 4096), "wgmma-split"), ((4, 4096, 4096), "simt-gemv"),
    ],
)  # fmt: skip
def test_plans_take_it_for_few_rows_of_a_large_b(shape, rung):
    single = DTYPES["float32"]
    problem = Problem.dense(*shape, single, out=single, accumulator=single, b_major="col")
    plan = make_plan(problem)
    assert plan.rung.name == rung
    if rung == "wgmma-bf16x6":
        assert not plan.launch("entry").co_resident  # CTAs count arrivals and wait for none
        assert plan.config in WGMMA_BF16X6.candidates(problem)
        assert make_plan(problem, arch="sm_80").rung.name != rung


@pytest.mark.parametrize("extents", [(1, 1, 64), (300, 5000, 64), (4096, 4096, 4096), (20000, 3, 48)])
def test_a_call_may_name_it_whatever_the_extents(extents):
    single = DTYPES["float32"]
    plan = make_plan(Problem.dense(*extents, single, out=single, accumulator=single), rung="wgmma-bf16x6")
    assert plan.config["SWAP"] == (extents[1] < extents[0])


def test_every_size_is_legal_whatever_the_layout():
    single = DTYPES["float32"]
    for b_major in ("row", "col"):
        problem = Problem.dense(128, 512, 4096, single, out=single, accumulator=single, b_major=b_major)
        found = WGMMA_BF16X6.candidates(problem)
        assert {(each["BM"], each["BN"]) for each in found} == {size[:2] for size in SIZES}
        assert not [reason for each in found if (reason := WGMMA_BF16X6.illegal(problem, each))]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"BM": 12}, "BM is 12; an instruction takes 8 to 256 rows of D, in steps of 8"),
        ({"BN": 96}, "BN is 96"),
        ({"BK": 16}, "BK is 16"),
        ({"STAGES": 1}, "STAGES is 1"),
        ({"STAGES": 14}, "a CTA needs 249856 bytes of shared memory"),
        ({"BM": 256}, "a thread needs about"),
        ({"SPLITS": 5}, "SPLITS is 5; K of 128 has 4 stages of 32"),
    ],
)
def test_what_it_does_not_take_is_refused(changes, words):
    a, b = drawn(16, 128), drawn(128, 64)
    with pytest.raises(UnsupportedError, match=words):
        wt.matmul(a, b, config=configuration(**changes), **BF16X6)


def test_calls_that_ask_for_something_else_are_refused():
    a, b = drawn(16, 128), drawn(128, 64)
    with pytest.raises(UnsupportedError, match="precision is 'ieee'"):
        wt.matmul(a, b, precision="ieee", **BF16X6)
    with pytest.raises(UnsupportedError, match="batch_invariant=True it takes no problem"):
        wt.matmul(a, b, batch_invariant=True, **BF16X6)
    with pytest.raises(UnsupportedError, match="float16"):
        wt.matmul(a.astype(np.float16), b.astype(np.float16), **BF16X6)
