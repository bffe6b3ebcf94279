"""wgmma-split: float32 products of float16 slices, accurate for any values and layouts."""

from itertools import product

import numpy as np
import pytest

import warptile as wt
from covering import ALL, covering, few, of_each
from warptile import emulator
from warptile.codegen.nvrtc import compile_source
from warptile.codegen.translation_unit import Source
from warptile.dtypes import DTYPES
from warptile.problem import Problem
from warptile.rungs.operand_split import FILE, Split, split_of

SINGLE = DTYPES["float32"]
UNIT = 2.0**-24
WAYS = ("ByLines<true>", "ByLines<false>", "Across<true>", "Across<false>")
SPLIT = {"rung": "wgmma-split", "backend": "emulator"}
TF32 = {"precision": "tf32", "backend": "emulator"}
CHAIN = {"rung": "simt-warptile", "backend": "emulator"}


def drawn(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def errors(d, a, b):
    """Errors in units of 2^-24 |A| |B|, element by element; 0 where that is 0 and the element is."""
    wide = a.astype(np.float64), b.astype(np.float64)
    exact, magnitude = wide[0] @ wide[1], np.abs(wide[0]) @ np.abs(wide[1])
    distance = np.abs(d - exact)
    assert not distance[magnitude == 0].any()
    return distance / np.where(magnitude == 0, 1, magnitude) / UNIT


def root_mean_square(values):
    return np.sqrt(np.mean(np.square(values)))


@pytest.mark.parametrize(
    ("layout", "extents"),
    few(covering(("rows", "columns"), ((130, 136, 200), (1, 1, 1), (5, 257, 129), (129, 3, 65)), pairs=()), 2),
    ids=str,
)
def test_no_less_accurate_than_a_chain(extents, layout):
    m, n, k = extents
    a, b = (drawn(m, k), drawn(n, k).T) if layout == "rows" else (drawn(k, m).T, drawn(k, n))
    found = errors(wt.matmul(a, b, **SPLIT), a, b)
    assert found.max() <= max(k, 4)  # the bound of a float32 dot product
    if k > 100:
        assert root_mean_square(found) <= root_mean_square(errors(wt.matmul(a, b, **CHAIN), a, b))


@pytest.mark.parametrize("k", [48, 255, 256, 2047, 2048] if ALL else [256])
def test_main_products_are_promoted_along_k(k):
    """Of positive terms the tensor core's truncation adds up unless main products are promoted, the sooner the shorter
    the chain that they are compared with."""
    rng = np.random.default_rng(k)
    a, b = rng.random((16, k), np.float32), rng.random((k, 8), np.float32)
    found = errors(wt.matmul(a, b, **SPLIT), a, b)
    assert root_mean_square(found) <= root_mean_square(errors(wt.matmul(a, b, **CHAIN), a, b))


@pytest.mark.skipif(not ALL, reason="make test-all")
def test_the_table_of_its_page():
    rng = np.random.default_rng(0)
    draws = {"normal": rng.standard_normal, "uniform": rng.random}
    found = {}
    for name, draw in draws.items():
        a, b = draw((64, 4096)).astype(np.float32), draw((4096, 64)).astype(np.float32)
        found[name] = [root_mean_square(errors(wt.matmul(a, b, **options), a, b)) for options in (CHAIN, SPLIT, TF32)]
    assert found["normal"] == pytest.approx([0.475, 0.094, 123], rel=0.01)
    assert found["uniform"] == pytest.approx([14.2, 7.9, 146], rel=0.01)


@pytest.mark.parametrize(
    "config", few([{"BM": 128, "BN": 128, "STAGES": 2}, {"BM": 128, "BN": 64, "STAGES": 4}], 1), ids=str
)
def test_other_configurations(config):
    a, b = drawn(140, 300), drawn(300, 132)
    fixed = {"BK": 64, "SPLIT_K": 1, "GROUP": 2, "SMS": 3}
    assert errors(wt.matmul(a, b, config=config | fixed, **SPLIT), a, b).max() <= 8


@pytest.mark.parametrize(
    ("k", "columns", "splits"), few([(300, 64, 5), (2100, 128, 9), (700, 64, 3), (130, 128, 2)], 1)
)
def test_k_split_among_ctas(k, columns, splits):
    m = 130 if columns == 64 else 60
    a, b = drawn(m, k), drawn(k, 132)
    a[3, k - 1], b[5, 131] = 1e30, np.inf  # a line of each operand that is not split, in different parts of K
    config = {"BM": 128, "BN": columns, "STAGES": 2, "BK": 64, "SPLIT_K": splits, "GROUP": 2, "SMS": 2}
    plan = wt.plan(a, b, config=config, **SPLIT).plan
    assert plan.kernel.ctas == plan.kernel.grid[0] == splits * (6 if columns == 64 else 2)
    found, chain = wt.matmul(a, b, config=config, **SPLIT), wt.matmul(a, b, **CHAIN)
    rest = np.delete(found[:, :131], 3, 0)
    assert errors(rest, np.delete(a, 3, 0), b[:, :131]).max() <= 8
    assert np.allclose(found[3, :131], chain[3, :131], rtol=1e-5, atol=0)
    assert np.array_equal(np.isfinite(found), np.isfinite(chain))


def test_of_tiles_at_the_ends_of_operands_what_is_inside_is_loaded(monkeypatch):
    m, n, k = 200, 72, 256
    reports, emulate = [], emulator.emulate

    def kept(*args, **named):
        reports.append(emulate(*args, **named))
        return reports[-1]

    monkeypatch.setattr(emulator, "emulate", kept)
    config = {"BM": 128, "BN": 64, "BK": 64, "STAGES": 2, "SPLIT_K": 1, "GROUP": 2, "SMS": 3}
    wt.matmul(drawn(m, k), drawn(n, k).T, config=config, **SPLIT)
    across, down, slices = 2, 2, 2
    counters = reports[-1].counters
    assert counters["tma_load_sectors"] == slices * (across * m + down * n) * k * 2 // 32
    assert counters["tma_zero_bytes"] == 0


def test_k_is_split_into_whole_intervals_and_for_one_order_of_additions_not_at_all():
    a, b = drawn(8, 2048), drawn(2048, 8)
    config = {"BM": 128, "BN": 64, "STAGES": 2, "BK": 64, "SPLIT_K": 17, "GROUP": 2, "SMS": 2}
    with pytest.raises(wt.UnsupportedError, match="K has 16 parts of 128"):
        wt.plan(a, b, config=config, **SPLIT)
    with pytest.raises(wt.UnsupportedError, match="take SPLIT_K=1"):
        wt.plan(a, b, config={**config, "SPLIT_K": 2}, batch_invariant=True, **SPLIT)
    with pytest.raises(wt.UnsupportedError, match="take fewer splits"):
        wt.plan(drawn(1300, 2048), drawn(2048, 64), config={**config, "SPLIT_K": 16}, **SPLIT)
    assert wt.plan(a, b, batch_invariant=True, **SPLIT).plan.config["SPLIT_K"] == 1


@pytest.mark.parametrize("columns", few([38, 40], 1))
def test_lines_that_are_not_contiguous_in_vectors_and_one_by_one(columns):
    """Four neighbours are loaded together where they are aligned; the last lines are fewer than four."""
    a, b = drawn(90, columns).T, drawn(90, columns)
    b[:, 7] *= np.float32(1e30)
    b[3, 7] = 1e-30
    assert errors(wt.matmul(a, b, **SPLIT), a, b).max() <= 8


@pytest.mark.parametrize(("where", "outlier"), few(covering(("a", "b"), (1e3, 1e6, 1e9, 1e12, 1e30), pairs=()), 2))
def test_outliers_of_one_line_cost_the_others_nothing(outlier, where):
    a, b = drawn(140, 96), drawn(96, 136)
    (a if where == "a" else b.T)[3, 7] *= outlier
    (b[7] if where == "a" else a.T[7])[::2] = 0  # elements that the outlier does not hide
    found = errors(wt.matmul(a, b, **SPLIT), a, b)
    assert found.max() <= 96 / 4


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_lines_of_different_magnitude(scale):
    a, b = drawn(40, 64), drawn(64, 48)
    a[::3] *= np.float32(scale)
    b[:, ::5] *= np.float32(1 / scale)
    assert errors(wt.matmul(a, b, **SPLIT), a, b).max() <= 8


@pytest.mark.parametrize("exponent", [-117, -110, -104, 110, 124])
def test_lines_at_the_ends_of_the_range_of_scales(exponent):
    """Of lines whose largest magnitude is about a power of two; those below 2^-114 are not split."""
    a, b = np.clip(drawn(20, 64), -1.5, 1.5) * np.float32(2.0**exponent), drawn(64, 24)
    b *= np.float32(2.0 ** (-exponent / 2))
    assert errors(wt.matmul(a, b, **SPLIT), a, b).max() <= 8
    assert errors(wt.matmul(b.T, a.T, **SPLIT), b.T, a.T).max() <= 8


def test_lines_of_zeros_and_of_subnormal_numbers():
    a, b = drawn(20, 33), drawn(33, 24)
    a[4], b[:, 5] = 0, 0
    a[6] *= np.float32(1e-42)
    found = wt.matmul(a, b, **SPLIT)
    assert not found[4].any()
    assert not found[:, 5].any()
    expected = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(found[6] - expected[6]).max() <= 33 * 2.0**-149
    assert errors(np.delete(found, 6, 0), np.delete(a, 6, 0), b).max() <= 8


@pytest.mark.parametrize(
    ("columns", "layout"),
    of_each(list(product((128, 64), range(4))), lambda case: {case[:1], ("A", case[1] % 2), ("B", case[1] // 2)}),
)
def test_tiles_of_lines_that_cannot_be_split_are_chains_of_multiply_adds(layout, columns):
    m, n, k = (139, 151, 83) if ALL else (131, 133, 67)
    a = drawn(m, k) if layout % 2 else drawn(k, m).T
    b = drawn(k, n) if layout // 2 else drawn(n, k).T
    a[:, 3] *= np.float32(1e15)
    config = {"BM": 128, "BN": columns, "STAGES": 2, "BK": 64, "SPLIT_K": 1, "GROUP": 2, "SMS": 2}
    assert np.array_equal(wt.matmul(a, b, config=config, **SPLIT), wt.matmul(a, b, **CHAIN))


@pytest.mark.parametrize("columns", few([64, 128], 1))
def test_a_line_that_cannot_be_split_changes_no_bits_of_others(columns):
    a, b = drawn(139, 83), drawn(83, 151)
    spoilt = a.copy(), b.copy()
    spoilt[0][77, 3], spoilt[1][5, 140], spoilt[0][3, 9] = 1e15, -1e25, np.inf
    config = {"BM": 128, "BN": columns, "STAGES": 2, "BK": 64, "SPLIT_K": 1, "GROUP": 2, "SMS": 2}
    usual, found = (wt.matmul(*each, config=config, **SPLIT) for each in ((a, b), spoilt))
    chain = wt.matmul(*spoilt, **CHAIN)
    marked = np.zeros(found.shape, bool)
    marked[[3, 77]], marked[:, 140] = True, True
    assert np.array_equal(found[marked], chain[marked], equal_nan=True)
    assert np.array_equal(found[~marked], usual[~marked])
    assert not np.array_equal(usual, wt.matmul(a, b, **CHAIN))


@pytest.mark.parametrize("k", [130, 700, 1000] if ALL else [130])
def test_long_lines_that_are_not_contiguous_are_split_by_clusters(k):
    a, b = drawn(k, 70).T, drawn(k, 45)
    a[5, k - 1] = np.float32(1e30)
    plan = wt.plan(a, b, **SPLIT).plan
    assert max(each.cluster for each in plan.kernel.copies) == (2 if k == 130 else 8)
    assert errors(wt.matmul(a, b, **SPLIT), a, b).max() <= 16


@pytest.mark.parametrize("k", [8192, 16390] if ALL else [8195])
def test_few_long_lines_that_are_contiguous_are_split_by_clusters(k):
    a, b = drawn(3, k), drawn(k, 2)
    a[0, k - 1], a[1, 0] = np.float32(1e5), np.float32(1e6)
    plan = wt.plan(a, b, **SPLIT).plan
    assert [each.cluster for each in plan.kernel.copies] == [k // 4096, 8]
    assert errors(wt.matmul(a, b, **SPLIT), a, b).max() <= 16


@pytest.mark.parametrize("value", few([np.inf, np.nan, -np.inf], 1))
def test_infinities_and_nan_are_those_of_float32(value):
    a, b = drawn(140, 40), drawn(40, 136)
    a[3, 5], b[7, 100] = value, value
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b.astype(np.float64)
    found = wt.matmul(a, b, **SPLIT)
    special = ~np.isfinite(expected)
    assert np.array_equal(found[special], expected[special].astype(np.float32), equal_nan=True)
    assert np.abs(found[~special] - expected[~special]).max() <= 1e-4


def test_results_overflow_where_those_of_float32_do():
    a, b = np.full((2, 4), 1e30, np.float32), np.full((4, 2), 1e10, np.float32)
    assert np.isposinf(wt.matmul(a, b, **SPLIT)).all()
    tiny = np.full((4, 2), 1e-10, np.float32)
    assert np.abs(wt.matmul(a, tiny, **SPLIT) / 4e20 - 1).max() <= 4 * UNIT
    assert not wt.matmul(np.full((2, 4), 1e-30, np.float32), np.full((4, 2), 1e-30, np.float32), **SPLIT).any()


def test_factors_addend_epilogue_and_out():
    a, b, c, bias = drawn(37, 100), drawn(100, 50), drawn(37, 50), drawn(50)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    out = c.copy()
    assert wt.matmul(a, b, out, alpha=-0.5, beta=2.0, out=out, **SPLIT) is out
    assert np.abs(out - (2.0 * c - 0.5 * exact)).max() <= 1e-5
    a[2, 3] = 1e20  # its tile is computed without slices; C, which is overwritten, is read all the same
    exact, out = a.astype(np.float64) @ b.astype(np.float64), c.copy()
    wt.matmul(a, b, out, alpha=-0.5, beta=2.0, out=out, **SPLIT)
    assert (np.abs(out - (2.0 * c - 0.5 * exact)) <= 1e-5 * np.maximum(np.abs(exact), 1)).all()
    fused = wt.matmul(a, b, epilogue=lambda acc, bias: wt.relu(acc + bias), bias=bias, **SPLIT)
    assert (np.abs(fused - np.maximum(exact + bias, 0)) <= 1e-5 * np.maximum(np.abs(exact), 1)).all()


@pytest.mark.skipif(not ALL, reason="make test-all")
def test_the_same_bits_each_time():
    a, b = drawn(150, 130), drawn(130, 140)
    a[9, 9] = 1e25
    assert np.array_equal(wt.matmul(a, b, **SPLIT), wt.matmul(a, b, **SPLIT))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"out_dtype": "float16"}, "float16"),
        ({"precision": "tf32"}, "tfloat32"),
        ({"accumulate": "float64"}, "float64"),
    ],
)
def test_what_it_does_not_take_is_refused(options, message):
    with pytest.raises(wt.WarptileError, match=message):
        wt.matmul(drawn(8, 8), drawn(8, 8), **options, **SPLIT)


def test_a_plan_says_what_is_split():
    plan = wt.plan(drawn(64, 96), drawn(96, 64), **SPLIT)
    said = plan.explain()
    assert "split A: 2 x 24576 bytes" in said
    assert "split B: 2 x 24576 bytes, transposed" in said
    of_a, of_b = plan.plan.kernel.copies
    assert isinstance(of_a, Split)
    assert [name for name, _, _ in of_b.targets] == ["split B", "exponents of B"]


@pytest.mark.skipif(not ALL, reason="make test-all")
@pytest.mark.parametrize("seed", range(20))
def test_random_problems(seed):
    rng = np.random.default_rng(seed)
    m, n, k = (int(each) for each in rng.integers(1, 400, 3))
    a = drawn(m, k, seed=seed) if seed % 2 else drawn(k, m, seed=seed).T
    b = drawn(k, n, seed=seed) if seed % 3 else drawn(n, k, seed=seed).T
    spread = np.exp2(rng.integers(-20, 20, (m, 1))).astype(np.float32)
    assert errors(wt.matmul(a * spread, b, **SPLIT), a * spread, b).max() <= max(k, 4)


@pytest.mark.parametrize(
    ("layout", "splits"), few([("rows", 2), ("columns", 1), ("B shared", 1), ("A shared", 2), ("apart", 1)], 3)
)
def test_a_batch_is_one_launch(layout, splits):
    """With a line in one matrix of each operand that cannot be split, C and a bias."""
    batch, m, n, k = 2, 40, 37, 140
    a, b = drawn(batch, m, k), drawn(batch, k, n)
    a[1, 5, 7], b[1, 9, 11] = np.float32(1e25), np.inf
    if layout == "columns":
        a = np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2)
        b = np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2)
    elif layout == "apart":
        wide = np.full((2 * batch, m + 3, k + 5), np.inf, np.float32)
        wide[::2, 1 : m + 1, 2 : k + 2] = a
        a = wide[::2, 1 : m + 1, 2 : k + 2]
    a = np.broadcast_to(a[1], a.shape) if layout == "A shared" else a
    b = np.broadcast_to(b[1], b.shape) if layout == "B shared" else b
    c, bias = drawn(batch, m, n, seed=1), drawn(batch, 1, n, seed=2)
    config = {"BM": 128, "BN": 64, "STAGES": 2, "BK": 64, "SPLIT_K": splits, "GROUP": 2, "SMS": 2}
    plan = wt.plan(a, b, config=config, **SPLIT)
    assert (plan.plan.problem.batch, plan.apart, len(plan.plan.kernel.copies)) == (batch, None, 2)
    single = [wt.matmul(*each, config=config, **SPLIT) for each in zip(a, b, strict=True)]
    assert np.array_equal(wt.matmul(a, b, config=config, **SPLIT), single, equal_nan=True)
    moved = wt.matmul(a, b, c, beta=1, epilogue=lambda acc, bias: acc + bias, bias=bias, config=config, **SPLIT)
    assert np.allclose(moved, single + c + bias, rtol=1e-6, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize(
    ("lines", "k", "threads"), [(3, 20, 4), (7, 100, 16), (40, 600, 128), (70000, 40, 8), (5, 5000, 256)]
)
def test_threads_share_a_contiguous_line(lines, k, threads):
    """As many as hold it in registers, and more where that keeps more of the GPU busy."""
    split = split_of("A", Problem.dense(lines, 1, k, SINGLE, out=SINGLE, accumulator=SINGLE).a, lines, k)
    assert split.shared_by == max(threads, 8)
    assert split.shared_by * 16 >= min(k, 4096)


def test_ctas_share_a_line_that_is_transposed():
    """A part of 256 elements stays in registers; with few lines parts are shorter, for more loads at a time."""

    def clusters(lines, k):
        return Split("A", lines, k, 1, lines, 16).cluster

    assert [clusters(lines, 1000) for lines in (100, 1000, 4000, 20000)] == [8, 8, 4, 4]
    assert [clusters(20000, k) for k in (64, 256, 257, 1024, 1025, 9000)] == [1, 1, 2, 4, 8, 8]


@pytest.mark.parametrize("ways", few(list(product(WAYS, repeat=2)), 2), ids=" ".join)
def test_the_pass_compiles_without_spills(ways):
    types = ", ".join(f"operand_split::{way}" for way in ways)
    made = compile_source(Source(f'#include "{FILE}"\n', f"operand_split::split_two<{types}>"), "sm_90a")
    assert made.resources.spill_bytes == 0
