"""scale_a and scale_b of matmul: numbers, one element, rows and columns, and blocks along K, on the emulator."""

import ml_dtypes
import numpy as np
import pytest

import scaled_products as sp
import warptile as wt
from covering import ALL, covering, few, of_each

EMULATOR = {"backend": "emulator"}


@pytest.fixture
def rng():
    return np.random.default_rng(20261123)


# --- whole operands, rows and columns ---------------------------------------------------------------------------------


SCALES = [
    ((37, 1), (1, 53)), ((37,), (53,)), ((37,), None), (None, (1, 53)), ((37, 1), 0.5), (np.float32(2), (53,)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("of_a", "of_b", "dtype"),
    [(*scales, dtype) for scales, dtype in covering(SCALES, list(sp.TYPES), pairs=())],
    ids=str,
)
def test_rows_and_columns(rng, of_a, of_b, dtype):
    a, b = sp.operands(rng, 37, 53, 150, dtype)
    given = [sp.scales(rng, *each) if isinstance(each, tuple) else each for each in (of_a, of_b)]
    d = wt.matmul(a, b, scale_a=given[0], scale_b=given[1], out_dtype="float32", **EMULATOR)
    rows, columns = (1.0 if each is None else each for each in given)
    left, right = sp.dequantized(a, b, np.reshape(rows, (-1, 1)), np.reshape(columns, (1, -1)), (0, 0))
    assert sp.error_ratio(d, left, right, output_bits=23) <= 1
    assert d.dtype == np.float32


def test_float8_gives_bfloat16(rng):
    a, b = sp.operands(rng, 5, 7, 33)
    d = wt.matmul(a, b, scale_a=sp.scales(rng, 5), **EMULATOR)
    assert d.dtype.name == "bfloat16"


def test_a_batch_has_scales_of_its_rows(rng):
    a, b = sp.operands(rng, 9, 11, 40, batch=(3,))
    rows, columns = sp.scales(rng, 3, 9, 1), sp.scales(rng, 1, 11)
    d = wt.matmul(a, b, scale_a=rows, scale_b=columns, out_dtype="float32", **EMULATOR)
    left, right = sp.dequantized(a, b, rows, columns, (0, 0))
    assert sp.error_ratio(d, left, right, output_bits=23) <= 1


@pytest.mark.parametrize("vector", few(["b", "a"], 1))
def test_vectors(rng, vector):
    a, b = sp.operands(rng, 9, 11, 40)
    rows, columns = sp.scales(rng, 9), sp.scales(rng, 1, 11)
    if vector == "a":
        d = wt.matmul(a[0], b, scale_a=rows[:1], scale_b=columns, out_dtype="float32", **EMULATOR)
        left, right = sp.dequantized(a[:1], b, rows[:1, None], columns, (0, 0))
        assert sp.error_ratio(d[None], left, right, output_bits=23) <= 1
    else:
        d = wt.matmul(a, b[:, 0], scale_a=rows[:, None], scale_b=columns[0, :1], out_dtype="float32", **EMULATOR)
        left, right = sp.dequantized(a, b[:, :1], rows[:, None], columns[:, :1], (0, 0))
        assert sp.error_ratio(d[:, None], left, right, output_bits=23) <= 1


def test_integers_are_dequantized_to_float32(rng):
    a, b = rng.integers(-128, 128, (21, 45), np.int8), rng.integers(-128, 128, (45, 19), np.int8)
    rows, columns = sp.scales(rng, 21), sp.scales(rng, 19)
    d = wt.matmul(a, b, scale_a=rows, scale_b=columns, **EMULATOR)
    sums = a.astype(np.int32) @ b.astype(np.int32)
    assert d.dtype == np.float32
    assert np.array_equal(d, sums.astype(np.float32) * rows[:, None] * columns)
    half = wt.matmul(a, b, scale_a=0.5, scale_b=columns, out_dtype="bfloat16", **EMULATOR)
    assert np.array_equal(half, (sums.astype(np.float32) * np.float32(0.5) * columns).astype(half.dtype))


def test_alpha_c_and_an_epilogue_go_with_scales(rng):
    a, b = sp.whole_numbers(rng, 20, 30, 70)
    rows, columns = sp.scales(rng, 20), sp.scales(rng, 30)
    c, bias = rng.standard_normal((20, 30)).astype(np.float32), rng.standard_normal(30).astype(np.float32)
    d = wt.matmul(
        a, b, c, alpha=2, beta=-0.5, scale_a=rows, scale_b=columns, out_dtype="float32",
        epilogue=lambda acc, bias: wt.relu(acc + bias), bias=bias, **EMULATOR,
    )  # fmt: skip
    left, right = sp.dequantized(a, b, 2 * rows[:, None], columns, (0, 0))
    assert np.allclose(d, np.maximum(left @ right - 0.5 * c + bias, 0), rtol=1e-5, atol=1e-3)


def test_a_gate_with_scales_of_rows_and_columns(rng):
    a, b = sp.whole_numbers(rng, 12, 32, 48)
    rows, columns = sp.scales(rng, 12), sp.scales(rng, 32)

    def gated(acc):
        gate, up = wt.halves(acc)
        return gate * up

    d = wt.matmul(a, b, scale_a=rows, scale_b=columns, out_dtype="float32", epilogue=gated, **EMULATOR)
    left, right = sp.dequantized(a, b, rows[:, None], columns, (0, 0))
    whole = left @ right
    assert np.allclose(d, whole[:, :16] * whole[:, 16:], rtol=1e-5, atol=1e-3)


def test_the_largest_result_comes_with_it(rng):
    a, b = sp.operands(rng, 20, 30, 70)
    rows = sp.scales(rng, 20)
    d, largest = wt.matmul(
        a, b, scale_a=rows, out_dtype="float32", epilogue=lambda acc: (acc, abs(acc).max()), **EMULATOR
    )
    assert largest.shape == ()
    assert largest == np.abs(d).max()


@pytest.mark.parametrize("dtype", few(list(sp.TYPES), 1))
def test_a_quantized_copy_comes_with_the_result(rng, dtype):
    a, b = sp.operands(rng, 37, 53, 70, dtype)
    name, largest = f"float8_{dtype}", float(ml_dtypes.finfo(sp.TYPES[dtype]).max)

    def quantized(acc, factor):
        return acc, wt.cast(acc * factor, name), abs(acc).max()

    for factor in (3.0, 1e4):  # within the type's range; beyond it, where numbers stop at the largest one
        d, copy, most = wt.matmul(
            a, b, scale_a=sp.scales(rng, 37), out_dtype="float32", epilogue=quantized, factor=factor, **EMULATOR
        )
        exact = np.clip(d.astype(np.float64) * factor, -largest, largest).astype(sp.TYPES[dtype])
        assert copy.dtype == sp.TYPES[dtype]
        assert np.array_equal(copy.astype(np.float64), exact.astype(np.float64))
        assert most == np.abs(d).max()


def test_architectures_without_8_bit_floats_say_so(rng, monkeypatch):
    monkeypatch.setenv("WARPTILE_ARCH", "sm_80")
    a, b = np.ones((5, 6), np.float16), np.ones((6, 7), np.float16)
    with pytest.raises(wt.UnsupportedError, match=r"rounds to 8-bit floats, which needs compute capability 8\.9"):
        wt.matmul(a, b, epilogue=lambda acc: (acc, wt.cast(acc, "float8_e4m3")), **EMULATOR)


# --- blocks -----------------------------------------------------------------------------------------------------------

FINAL = {
    "BM": 128, "BN": 128 if ALL else 64, "BK": 128, "STAGES": 3, "CONSUMERS": 2, "PINGPONG": 0, "CM": 1, "CN": 1,
    "GROUP": 8, "ALONG_N": 0, "OVERLAP": 0, "STREAM": 0, "SPLITS": 1, "SWAP": 0, "SMS": 4,
}  # fmt: skip


SCHEDULES = [
    ((1, 128), (150, 304, 1100), {"OVERLAP": 1, "BN": 144}),
    ((1, 128), (150, 301, 700), {"STREAM": 1, "SMS": 5}),
    ((1, 128), (150, 301, 700), {"SPLITS": 2, "BN": 112, "SMS": 132}),
    ((1, 128), (270, 304, 1100), {"OVERLAP": 1, "CM": 2}),
    ((1, 128), (150, 304, 1100), {"OVERLAP": 1, "SWAP": 1, "BN": 64}),
    ((128, 128), (150, 301, 700), {"PINGPONG": 1, "BM": 64, "BN": 96, "BK": 256}),
    ((1, 1), (150, 304, 1100), {"OVERLAP": 1, "BN": 96}),
    ((128, 1), (150, 301, 700), {"BM": 64, "BN": 32, "CONSUMERS": 1}),
    ((1, 128), (150, 701, 300), {"BM": 64, "BN": 144, "CONSUMERS": 1}),
]


def lines_and_schedule(case):
    lines, _, change = case
    return [lines, *(name for name in change if name not in ("BM", "BN", "BK", "SMS"))]


@pytest.mark.parametrize(("lines", "extents", "change"), of_each(SCHEDULES, lines_and_schedule), ids=str)
def test_every_schedule_takes_scales_of_blocks(rng, lines, extents, change):
    m, n, k = extents if ALL else (extents[0], extents[1] // 2, extents[2] // 2)
    a, b = sp.operands(rng, m, n, k)
    of_a, of_b = sp.block_scales(rng, m, n, k, lines)
    config = FINAL | change
    out_dtype, bits = ("bfloat16", 7) if config["OVERLAP"] else ("float32", 23)
    d = wt.matmul(a, b, scale_a=of_a, scale_b=of_b, out_dtype=out_dtype, rung="wgmma-final", config=config, **EMULATOR)
    assert sp.error_ratio(d, *sp.dequantized(a, b, of_a, of_b, lines), output_bits=bits) <= 1


def test_promotion_multiplies_in_float32(rng):
    """Bit for bit: sums of 128 elements along K that are exact, times the product of two scales, added by fmaf."""
    m, n, k = 70, 90, 300
    a, b = sp.whole_numbers(rng, m, n, k)
    of_a, of_b = sp.block_scales(rng, m, n, k, (1, 128))
    d = wt.matmul(a, b, scale_a=of_a, scale_b=of_b, out_dtype="float32", **EMULATOR)
    expected = np.zeros((m, n), np.float32)
    for block in range(3):
        along = slice(128 * block, 128 * block + 128)
        sums = a[:, along].astype(np.float64) @ b[along].astype(np.float64)
        factors = of_a[:, block, None] * of_b[block].repeat(128)[:n]  # float32
        # A sum has at most 10 bits, a factor 24: the product and the addition are exact in float64 but for the last
        # bits of the smaller term, which do not decide a rounding here.
        expected = (sums * factors.astype(np.float64) + expected).astype(np.float32)
    assert np.array_equal(d, expected)


@pytest.mark.parametrize(
    ("layout", "dtype"), covering(["NN", "TT", "misaligned", "strided scales"], list(sp.TYPES), pairs=())
)
def test_any_layout_with_scales_of_blocks(rng, layout, dtype):
    m, n, k, lines = 67, 133, 261, (1, 128)
    a, b = sp.operands(rng, m, n, k, dtype)
    of_a, of_b = sp.block_scales(rng, m, n, k, lines)
    if layout == "NN":
        b = np.ascontiguousarray(b)
    elif layout == "TT":
        a, b = np.asfortranarray(a), np.ascontiguousarray(b)
    elif layout == "misaligned":
        a = np.concatenate([a[:, :1], a], 1)[:, 1:]
    else:
        of_a, of_b = np.asfortranarray(of_a), np.repeat(of_b, 3, 1)[:, ::3]
    d = wt.matmul(a, b, scale_a=of_a, scale_b=of_b, out_dtype="float32", **EMULATOR)
    assert sp.error_ratio(d, *sp.dequantized(a, b, of_a, of_b, lines), output_bits=23) <= 1


def test_blocks_of_one_operand_alone(rng):
    m, n, k = 70, 140, 260
    a, b = sp.operands(rng, m, n, k)
    of_a, of_b = sp.block_scales(rng, m, n, k, (1, 128))
    columns = sp.scales(rng, n)
    d = wt.matmul(a, b, scale_a=of_a, scale_b=columns, out_dtype="float32", **EMULATOR)
    assert sp.error_ratio(d, *sp.dequantized(a, b, of_a, columns, (1, 0)), output_bits=23) <= 1
    d = wt.matmul(a, b, scale_a=0.5, scale_b=of_b, out_dtype="float32", **EMULATOR)
    assert sp.error_ratio(d, *sp.dequantized(a, b, 0.5, of_b, (0, 128)), output_bits=23) <= 1


def test_a_batch_with_scales_of_blocks(rng):
    m, n, k, lines = 40, 50, 260, (1, 128)
    a, b = sp.operands(rng, m, n, k, batch=(2,))
    of_a, of_b = sp.block_scales(rng, m, n, k, lines, batch=(2,))
    d = wt.matmul(a, b, scale_a=of_a, scale_b=of_b, out_dtype="float32", **EMULATOR)
    assert sp.error_ratio(d, *sp.dequantized(a, b, of_a, of_b, lines), output_bits=23) <= 1


@pytest.mark.parametrize("extents", [(0, 5, 300), (5, 0, 300), (5, 7, 0)])
def test_nothing_is_read_of_empty_operands(rng, extents):
    m, n, k = extents
    a, b = sp.operands(rng, m, n, k)
    of_a, of_b = sp.block_scales(rng, m, n, k, (1, 128))
    d = wt.matmul(a, b, scale_a=of_a, scale_b=of_b, out_dtype="float32", **EMULATOR)
    assert d.shape == (m, n)
    assert not d.any()


def test_out_is_written_and_nothing_beside_it(rng):
    m, n, k, lines = 50, 61, 260, (1, 128)
    a, b = sp.operands(rng, m, n, k)
    of_a, of_b = sp.block_scales(rng, m, n, k, lines)
    band = np.full((m + 2, n + 6), np.nan, np.float32)
    d = wt.matmul(a, b, scale_a=of_a, scale_b=of_b, out=band[1:-1, 3:-3], **EMULATOR)
    assert sp.error_ratio(d, *sp.dequantized(a, b, of_a, of_b, lines), output_bits=23) <= 1
    band[1:-1, 3:-3] = np.nan
    assert np.isnan(band).all()


def test_a_plan_takes_other_scales_of_the_same_shapes(rng):
    m, n, k, lines = 30, 40, 200, (1, 128)
    a, b = sp.operands(rng, m, n, k)
    of_a, of_b = sp.block_scales(rng, m, n, k, lines)
    plan = wt.plan(a, b, scale_a=of_a, scale_b=of_b, out_dtype="float32", **EMULATOR)
    assert "scale_of_a" in plan.explain()
    d = plan(a, b, scale_a=2 * of_a, scale_b=of_b)
    assert sp.error_ratio(d, *sp.dequantized(a, b, 2 * of_a, of_b, lines), output_bits=23) <= 1
    with pytest.raises(wt.ShapeError, match=r"plan\(a, b, scale_a=scale_a, scale_b=scale_b\)"):
        plan(a, b)


def test_messages_name_the_keywords(rng):
    a, b = sp.operands(rng, 30, 40, 200)
    scale = np.ones((30, 1), ml_dtypes.float8_e8m0fnu)
    with pytest.raises(wt.UnsupportedError, match=r"^scale_a: got element type float8_e8m0fnu;.*scale_a.astype"):
        wt.matmul(a, b, scale_a=scale, **EMULATOR)
    with pytest.raises(wt.ShapeError, match=r"^c: shape \(30, 3\) does not broadcast"):
        wt.matmul(a, b, np.ones((30, 3), np.float32), scale_a=np.ones((30, 1), np.float32), **EMULATOR)


def test_rungs_with_one_reason_share_it(rng):
    a, b = sp.operands(rng, 30, 40, 200)
    with pytest.raises(wt.UnsupportedError) as refused:
        wt.matmul(a, b, scale_a=np.ones((30, 2), np.float32), accumulate="float16", **EMULATOR)
    assert str(refused.value).count("which wgmma-final alone applies") == 1
    assert "leave accumulate out" in str(refused.value)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scales", "said"),
    [
        ({"scale_a": (6,)}, r"scale_a: got shape \(6,\).*\(5, 1\).*\(5, 3\).*\(1, 3\)"),
        ({"scale_a": (3, 5)}, r"scale_a: got shape \(3, 5\)"),
        ({"scale_b": (7, 1)}, r"scale_b: got shape \(7, 1\).*\(1, 7\).*\(3, 7\).*\(3, 1\)"),
        ({"scale_b": (1, 3)}, r"scale_b: got shape \(1, 3\)"),
    ],
)
def test_scales_of_other_shapes(rng, scales, said):
    a, b = sp.operands(rng, 5, 7, 300)
    given = {name: np.ones(shape, np.float32) for name, shape in scales.items()}
    with pytest.raises(wt.ShapeError, match=said) as refused:
        wt.matmul(a, b, **given, **EMULATOR)
    suggested = str(refused.value).rpartition("such as ")[2]
    names = {"wt": wt, "a": a, "b": b, "numpy": np}
    assert eval(f"wt.matmul(a, b, backend='emulator', {suggested})", names).shape == (5, 7)


def test_scales_of_other_types(rng):
    a, b = np.ones((5, 6), np.float32), np.ones((6, 7), np.float32)
    with pytest.raises(wt.DTypeError, match="scale_b: it is for operands of 8 bits; a is float32"):
        wt.matmul(a, b, scale_b=np.ones(7, np.float32), **EMULATOR)
    a, b = np.ones((5, 300), np.int8), np.ones((300, 7), np.int8)
    with pytest.raises(wt.UnsupportedError, match=r"each block along K.*a is int8: give one element, or one for each"):
        wt.matmul(a, b, scale_a=np.ones((5, 3), np.float32), **EMULATOR)


def test_scales_of_blocks_need_promotion(rng):
    a, b = sp.operands(rng, 5, 7, 300)
    of_a = np.ones((5, 3), np.float32)
    with pytest.raises(wt.UnsupportedError, match="leave accumulate out"):
        wt.matmul(a, b, scale_a=of_a, accumulate="float32_fast", rung="wgmma-final", **EMULATOR)
    with pytest.raises(wt.UnsupportedError, match="wgmma-final alone"):
        wt.matmul(a, b, scale_a=of_a, rung="wgmma-two-level", **EMULATOR)


def test_a_gate_has_no_scales_of_blocks(rng):
    a, b = sp.operands(rng, 5, 8, 300)

    def gated(acc):
        gate, up = wt.halves(acc)
        return gate * up

    with pytest.raises(wt.EpilogueError, match="with scales of blocks write two calls"):
        wt.matmul(a, b, scale_a=np.ones((5, 3), np.float32), epilogue=gated, **EMULATOR)
