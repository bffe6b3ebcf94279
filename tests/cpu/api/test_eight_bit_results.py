"""Results of 8-bit floats: rounding and saturation, layouts, scale_d, and amax. On the emulator."""

import ml_dtypes
import numpy as np
import pytest

import scaled_products as sp
import warptile as wt
from covering import ALL, alternating, covering, few, of_each
from warptile.runtime import execute

EMULATOR = {"backend": "emulator"}
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
TYPES = {"float8_e4m3": E4M3, "float8_e5m2": E5M2}


@pytest.fixture
def rng():
    return np.random.default_rng(20261124)


def rounded(values, dtype):
    """To nearest, at most the largest number, NaN as it is: cvt.rn.satfinite."""
    largest = float(ml_dtypes.finfo(dtype).max)
    return np.clip(np.asarray(values, np.float32), -largest, largest).astype(dtype)


def same(d, expected):
    return np.array_equal(d.view(np.uint8), expected.view(np.uint8))


def product(a, b, **options):
    """The same sums in float32: of the same kernel's accumulators."""
    return wt.matmul(a, b, out_dtype="float32", **options, **EMULATOR)


def operands(rng, m, n, k, dtype, layout="TN"):
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    return (np.asfortranarray(a) if layout[0] == "N" else a), (np.asfortranarray(b) if layout[1] == "N" else b)


@pytest.mark.parametrize(
    ("dtype", "out_dtype"),
    of_each(covering([E4M3, E5M2, ml_dtypes.bfloat16, np.float16], list(TYPES), pairs=()), lambda case: case[1:]),
    ids=lambda each: each if isinstance(each, str) else np.dtype(each).name,
)
def test_results_are_rounded_to_nearest_and_stop_at_the_largest_number(rng, dtype, out_dtype):
    a, b = operands(rng, 37, 48, 64, dtype)
    a, b = (each.astype(np.float32).round().astype(dtype) for each in (a, b))  # exact in any order of additions
    sums = a.astype(np.float32) @ b.astype(np.float32)
    for factor in (1.0, 2.0**-12, 100.0, 1e6) if ALL else (2.0**-12, 1e6):
        d = wt.matmul(a, b, alpha=factor, out_dtype=out_dtype, **EMULATOR)
        assert d.dtype == TYPES[out_dtype]
        assert same(d, rounded(sums * np.float32(factor), TYPES[out_dtype]))
    assert float(np.abs(d.astype(np.float32)).max()) == float(ml_dtypes.finfo(TYPES[out_dtype]).max)


@pytest.mark.parametrize(
    ("rung", "layout", "extents"),
    covering(
        ["wgmma-final", "mma-final"],
        ["TN", "NT"],
        [(1, 1, 1), (37, 45, 70), (130, 256, 96), (3, 528, 64), *([(129, 250, 130)] if ALL else [])],
        pairs=[(0, 1)],
    ),
    ids=str,
)
def test_any_extents_and_layouts(rng, rung, layout, extents):
    a, b = sp.whole_numbers(rng, *extents)
    a, b = np.asarray(a, order="CF"[layout[0] == "N"]), np.asarray(b, order="CF"[layout[1] == "N"])
    d = wt.matmul(a, b, out_dtype="e4m3", alpha=0.125, rung=rung, **EMULATOR)
    assert same(d, rounded(a.astype(np.float32) @ b.astype(np.float32) * np.float32(0.125), E4M3))


BASE = {
    "BM": 128, "BN": 128 if ALL else 64, "BK": 128, "STAGES": 3, "CONSUMERS": 2, "PINGPONG": 0, "CM": 1, "CN": 1,
    "GROUP": 8, "ALONG_N": 0, "OVERLAP": 0, "STREAM": 0, "SPLITS": 1, "SWAP": 0, "SMS": 4,
}  # fmt: skip
CHANGES = [
    {}, {"OVERLAP": 1}, {"PINGPONG": 1, "BM": 64}, {"SPLITS": 2}, {"SWAP": 1, "OVERLAP": 1},
    *([{"SWAP": 1}, {"BN": 48}, {"STREAM": 1}, {"CM": 2}, {"SWAP": 1, "STREAM": 1}] if ALL else []),
    *([{"SWAP": 1, "BN": 24}, {"BN": 80}] if ALL else []),
]  # fmt: skip


@pytest.mark.parametrize(("n", "change"), covering([256, 250] if ALL else [144, 138], CHANGES, pairs=()), ids=str)
def test_every_schedule_stores_them(rng, n, change):
    a, b = sp.whole_numbers(rng, 140, n, 700 if ALL else 300)
    options = {"rung": "wgmma-final", "config": BASE | change, "out_dtype": "e4m3", "alpha": 0.125, **EMULATOR}
    if ALL or not change:  # ptxas takes longer than all else
        assert execute.compiled(wt.plan(a, b, **options).plan).resources.spill_store_bytes == 0
    assert same(wt.matmul(a, b, **options), rounded(a.astype(np.float32) @ b.astype(np.float32) / 8, E4M3))


def test_columns_that_make_no_row_of_16_bytes_are_refused(rng):
    a, b = sp.whole_numbers(rng, 140, 256, 128)
    with pytest.raises(wt.UnsupportedError, match=r"BN is 24, .* a multiple of 16"):
        wt.matmul(a, b, rung="wgmma-final", config=BASE | {"BN": 24}, out_dtype="e4m3", **EMULATOR)


@pytest.mark.parametrize("columns", few([121, 128], 1))
def test_an_out_inside_guard_bands(rng, columns):
    a, b = sp.whole_numbers(rng, 67, columns, 70)
    guarded = np.full((69, columns + 32), 99, np.uint8).view(E4M3)
    d = guarded[1:-1, 16:-16]
    assert wt.matmul(a, b, out=d, alpha=0.125, **EMULATOR) is d
    assert same(d.copy(), rounded(a.astype(np.float32) @ b.astype(np.float32) / 8, E4M3))
    d.view(np.uint8)[:] = 99
    assert (guarded.view(np.uint8) == 99).all()


def test_a_batch_vectors_and_nothing_to_multiply(rng):
    a, b = sp.whole_numbers(rng, 20, 32, 40)
    both = wt.matmul(np.stack([a, a]), b, out_dtype="e4m3", alpha=0.125, **EMULATOR)
    assert same(both[0].copy(), both[1].copy())
    assert same(both[0].copy(), wt.matmul(a, b, out_dtype="e4m3", alpha=0.125, **EMULATOR))
    assert same(wt.matmul(a[3], b, out_dtype="e4m3", alpha=0.125, **EMULATOR), both[0][3].copy())
    assert not wt.matmul(a[:, :0], b[:0], out_dtype="e4m3", scale_d=2.0, **EMULATOR).view(np.uint8).any()
    assert not wt.matmul(a, b, alpha=0, out_dtype="e5m2", **EMULATOR).view(np.uint8).any()


# --- scale_d and amax -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "of_d", alternating([4.0, np.float32(0.25), (37, 1), np.array([[8]], np.float32), (53,), (1, 53)]), ids=str
)
def test_scales_of_the_result(rng, of_d):
    a, b = sp.operands(rng, 37, 53, 150)
    rows, columns = sp.scales(rng, 37, 1), sp.scales(rng, 53)
    scale = sp.scales(rng, *of_d) if isinstance(of_d, tuple) else of_d
    options = {"scale_a": rows, "scale_b": columns, **EMULATOR}
    before = wt.matmul(a, b, out_dtype="float32", **options)
    d, amax = wt.matmul(a, b, out_dtype="float8_e4m3", scale_d=scale, amax=True, **options)
    assert same(d, rounded(before * np.asarray(scale, np.float32), E4M3))
    assert (amax.shape, amax.dtype, amax) == ((), np.float32, np.abs(before).max())
    if ALL or scale is of_d:
        assert same(wt.matmul(a, b, out_dtype="float8_e4m3", scale_d=scale, **options), d)


def test_out_is_that_of_the_result_alone(rng):
    a, b = sp.whole_numbers(rng, 20, 32, 70)
    out = np.zeros((20, 32), E4M3)
    d, amax = wt.matmul(a, b, scale_d=0.125, amax=True, out=out, **EMULATOR)
    sums = a.astype(np.float32) @ b.astype(np.float32)
    assert d is out
    assert same(out, rounded(sums / 8, E4M3))
    assert amax == np.abs(sums).max()


def test_scales_along_k_go_with_them(rng):
    a, b = sp.operands(rng, 70, 140, 300)
    scales = {"scale_a": sp.scales(rng, 70, 3), "scale_b": sp.scales(rng, 3, 2), **EMULATOR}
    before = wt.matmul(a, b, out_dtype="float32", **scales)
    d, amax = wt.matmul(a, b, out_dtype="e5m2", scale_d=16.0, amax=True, **scales)
    assert same(d, rounded(before * 16, E5M2))
    assert amax == np.abs(before).max()


def test_c_and_an_epilogue_come_before_them(rng):
    a, b = sp.whole_numbers(rng, 20, 32, 70)
    c = rng.integers(-9, 9, (20, 32)).astype(ml_dtypes.bfloat16)
    before = a.astype(np.float32) @ b.astype(np.float32) + c.astype(np.float32)
    d, amax = wt.matmul(a, b, c, out_dtype="e4m3", scale_d=0.125, amax=True, **EMULATOR)
    assert same(d, rounded(before / 8, E4M3))
    assert amax == np.abs(before).max()
    d, kept, amax = wt.matmul(
        a, b, c, out_dtype="e4m3", scale_d=0.5, amax=True, **EMULATOR,
        epilogue=lambda acc, s: (wt.relu(acc) * s, wt.cast(acc, "float32")), s=0.5,
    )  # fmt: skip
    assert np.array_equal(kept, before)
    assert same(d, rounded(np.maximum(before, 0) / 4, E4M3))
    assert amax == before.max() / 2


def test_the_next_layer_divides_by_the_scale(rng):
    x, w, up = (rng.standard_normal(shape).astype(np.float32) for shape in ((24, 64), (64, 96), (96, 32)))
    x8, w8, up8 = ((each * 32).astype(E4M3) for each in (x, w, up))
    scale_d = np.array([4.0], np.float32)
    hidden = wt.matmul(x8, w8, scale_a=1 / 32, scale_b=1 / 32, scale_d=scale_d, out_dtype="e4m3", **EMULATOR)
    y = wt.matmul(hidden, up8, scale_a=1 / scale_d, scale_b=1 / 32, out_dtype="float32", **EMULATOR)
    exact = x @ w @ up
    assert np.abs(y - exact).max() < 0.1 * np.abs(exact).max()


def test_amax_comes_with_results_of_any_type(rng):
    a, b = rng.standard_normal((20, 30)).astype(np.float32), rng.standard_normal((30, 40)).astype(np.float32)
    d, amax = wt.matmul(a, b, amax=True, **EMULATOR)
    assert amax == np.abs(d).max()
    whole = rng.integers(-9, 9, (20, 30)).astype(np.int8)
    assert wt.matmul(whole, whole.T, amax=True, **EMULATOR)[1] == np.abs(whole.astype(np.int32) @ whole.T).max()
    wide, of_wide = wt.matmul(a.astype(np.float64), b.astype(np.float64), amax=True, **EMULATOR)
    assert of_wide.dtype == np.float64
    assert of_wide == np.abs(wide).max()


def test_nan_stays_nan(rng):
    a, b = sp.operands(rng, 9, 16, 40)
    a[3, 7] = np.nan
    d, amax = wt.matmul(a, b, out_dtype="e4m3", scale_d=2.0, amax=True, **EMULATOR)
    assert np.isnan(d.astype(np.float32)).sum() == 16
    assert np.isnan(amax)


def test_a_held_plan_takes_another_scale(rng):
    a, b = sp.operands(rng, 37, 53, 150)
    rows = sp.scales(rng, 37)
    plan = wt.plan(a, b, scale_a=rows, scale_d=1.0, amax=True, out_dtype="e4m3", **EMULATOR)
    before = wt.matmul(a, b, scale_a=rows, out_dtype="float32", **EMULATOR)
    for scale in (0.5, 16.0):
        d, amax = plan(a, b, scale_a=rows, scale_d=scale)
        assert same(d, rounded(before * np.float32(scale), E4M3))
        assert amax == np.abs(before).max()
    with pytest.raises(wt.ShapeError, match="scale_d=scale_d"):
        plan(a, b, scale_a=rows)


A, B = np.ones((8, 16), E4M3), np.ones((16, 24), E4M3)


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"scale_d": np.ones(5, np.float32)}, wt.ShapeError, r"scale_d: got shape \(5,\); .* \(8, 1\) .* \(24,\)"),
        ({"scale_d": np.ones(8, np.float32)}, wt.ShapeError, r"one for each row \(8, 1\)"),
        ({"scale_d": "2"}, wt.ArgumentTypeError, r"scale_d: got .2.; .* or an array, such as scale_d=numpy.ones\("),
        ({"amax": 2}, wt.ArgumentTypeError, "amax: got 2"),
        ({"accumulate": "float16"}, wt.DTypeError, "made of float32 sums: leave accumulate out"),
        ({"c": np.ones((8, 24), np.float32)}, wt.DTypeError, "with scale_d=1 it is added in its own"),
        ({"rung": "wgmma-tma"}, wt.UnsupportedError, "it writes float16, bfloat16, float32"),
    ],
    ids=str,
)
def test_what_is_refused(options, kind, words):
    with pytest.raises(kind, match=words):
        wt.matmul(A, B, **{"out_dtype": "e4m3"} | options, **EMULATOR)


def test_the_largest_value_of_a_vector_is_refused():
    for a, b in ((A[0], B), (A, B[:, 0])):
        with pytest.raises(wt.ShapeError, match=r"amax: .* a\.reshape\(1, -1\)"):
            wt.matmul(a, b, amax=True, **EMULATOR)


def test_architectures_without_the_conversion_are_refused(monkeypatch):
    monkeypatch.setenv("WARPTILE_ARCH", "sm_86")
    with pytest.raises(wt.UnsupportedError, match=r"8-bit floats, which needs compute capability 8\.9"):
        wt.matmul(A.astype(np.float16), B.astype(np.float16), out_dtype="e4m3", rung="mma-final", **EMULATOR)
    monkeypatch.setenv("WARPTILE_ARCH", "sm_89")
    d = wt.matmul(A.astype(np.float16), B.astype(np.float16), out_dtype="e4m3", **EMULATOR)
    assert (d.astype(np.float32) == 16).all()
