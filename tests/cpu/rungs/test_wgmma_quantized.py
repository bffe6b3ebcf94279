"""wgmma-quantized: the product of dequantized weights, within bounds of float32 accumulation, for any extents."""

from dataclasses import replace

import numpy as np
import pytest

import warptile as wt
from covering import ALL, covering, few
from warptile.arrays import array_view
from warptile.arrays.operands import arrange
from warptile.dtypes import DTYPES
from warptile.planning.plan import make_plan
from warptile.problem import Problem
from warptile.quantization import Quantization
from warptile.rungs.wgmma.quantized import WGMMA_QUANTIZED
from warptile.runtime.execute import EmulatorBackend, compiled

FLOATS = {"out_dtype": "float32", "backend": "emulator"}
NAME = "wgmma-quantized"
UNIT = 2.0**-24
TINY = {"BM": 128, "BN": 8, "BK": 128, "STAGES": 2, "CONSUMERS": 2, "SPLIT_K": 1, "STREAM": 0, "GROUP": 2, "SMS": 3}


def drawn(*shape, dtype="float32", seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(dtype)


def exact(x, w):
    """The product with the dequantized weights, and with all magnitudes."""
    wide = x.astype(np.float64), w.dequantize().astype(np.float64).T
    return wide[0] @ wide[1], np.abs(wide[0]) @ np.abs(wide[1])


def check(d, x, w):
    """Within what float32 accumulation in a tensor core, which truncates every 16 elements, allows."""
    expected, magnitude = exact(x, w)
    assert np.all(np.abs(d - expected) <= (x.shape[-1] / 8 + 4) * UNIT * magnitude)


def problem(m, n, k, bits=4, group_size=128, zero_point=False, dtype="bfloat16", out=None):
    types = {"out": DTYPES[out or dtype], "accumulator": DTYPES["float32"]}
    dense = Problem.dense(m, n, k, DTYPES[dtype], b_major="col", **types)
    return replace(dense, b=replace(dense.b, quantized=Quantization(bits, group_size, zero_point)))


FORMATS = ((4, 128, False), (4, 32, True), (8, 64, False), (8, 256, True))


@pytest.mark.parametrize(
    ("bits", "group_size", "zero_point", "dtype"),
    [(*case, dtype) for case, dtype in few(covering(FORMATS, ("bfloat16", "float16"), pairs=()), 2)],
)
def test_formats(bits, group_size, zero_point, dtype):
    x, w = drawn(5, 300, dtype=dtype), wt.quantize(drawn(70, 300), bits, group_size, zero_point, dtype=dtype)
    check(wt.matmul(x, w, **FLOATS), x, w)


@pytest.mark.parametrize("extents", few([(65, 257, 130), (1, 1, 1), (3, 130, 129), (9, 64, 40)], 1), ids=str)
def test_odd_extents(extents):
    m, n, k = extents
    x, w = drawn(m, k, dtype="bfloat16"), wt.quantize(drawn(n, k), zero_point=True)
    check(wt.matmul(x, w, **FLOATS), x, w)


CONFIGS = [
    ((5, 300, 1100), {"STAGES": 3, "SPLIT_K": 3}),
    ((40, 500, 300), {"BM": 256, "BN": 64, "CONSUMERS": 4, "SPLIT_K": 2}),
    ((150, 500, 200), {"BM": 256, "BN": 128}),
    ((17, 100, 300), {"BN": 16, "CONSUMERS": 1, "SPLIT_K": 3}),
    ((100, 130, 140), {"BN": 192, "STAGES": 2}),
    ((20, 500, 700), {"BN": 32, "STREAM": 1, "SMS": 5}),
    ((37, 300, 900), {"BN": 8, "STREAM": 1, "SMS": 7, "STAGES": 3}),
]


@pytest.mark.parametrize(
    ("bits", "extents", "change"),
    [(bits, *case) for bits, case in few(covering((4, 8), CONFIGS, pairs=()), 2)],
    ids=str,
)
def test_configurations(extents, change, bits):
    m, n, k = extents
    x, w = drawn(m, k, dtype="bfloat16"), wt.quantize(drawn(n, k), bits)
    check(wt.matmul(x, w, rung=NAME, config=TINY | change, **FLOATS), x, w)


def scales_of(rows, groups, bits, dtype, kind):
    """Scales of either sign, and a row of zeros and one of subnormal numbers: all small enough that a code is
    dequantized by one instruction; or in some warps' rows the first scale that is not; or all of them large."""
    limit = {("bfloat16", 4): 2.0**-5, ("bfloat16", 8): 2.0**-5, ("float16", 4): 2.0**-4, ("float16", 8): 2.0**-8}
    drawn_ones = np.random.default_rng(rows).uniform(0.01, 0.99, (rows, groups)) * limit[dtype, bits]
    found = np.where(np.arange(rows)[:, None] % 3 == 0, -drawn_ones, drawn_ones).astype(dtype)
    found[5], found[9] = 0, {"bfloat16": 2.0**-130, "float16": 2.0**-20}[dtype]
    if kind == "some":
        found[[3, 70], -1] = limit[dtype, bits]
    return (found.astype(np.float32) * 100).astype(dtype) if kind == "large" else found


@pytest.mark.parametrize("kind", ["small", "some", "large"])
@pytest.mark.parametrize(
    ("bits", "dtype", "bn"), covering((4, 8), ("bfloat16", "float16"), (8, 16, 32, 64), pairs=[(0, 1)]), ids=str
)
def test_every_weight_is_the_dequantized_one(bits, dtype, bn, kind):
    """Rows of x with a single one pick columns of W, whose elements come out as they are multiplied."""
    rows, k, group = 128, 160, 32
    codes = np.random.default_rng(bn).integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (rows, k))
    w = wt.QuantizedWeights.from_codes(
        codes, scales_of(rows, k // group, bits, dtype, kind), bits=bits, group_size=group, dtype=dtype
    )
    picked = np.random.default_rng(bn).permutation(k)[:bn]
    x = np.zeros((bn, k), dtype)
    x[np.arange(bn), picked] = 1
    for each in (x, np.asfortranarray(x)):
        d = wt.matmul(each, w, rung=NAME, config=TINY | {"BN": bn}, **FLOATS)
        assert np.array_equal(d, w.dequantize()[:, picked].T.astype(np.float32))


def test_few_columns_have_the_bits_of_many():
    x, w = drawn(16, 700, dtype="bfloat16"), wt.quantize(drawn(128, 700) * 0.02)
    found = [wt.matmul(x, w, rung=NAME, config=TINY | {"BN": bn}, **FLOATS) for bn in (8, 16, 32)]
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_a_zero_is_no_rounding_error():
    """Of infinite activations too: a weight that is zero makes NaN of infinity, and any other one infinity."""
    x, w = drawn(2, 32, dtype="float16"), wt.quantize(drawn(64, 32), 4, 32, dtype="float16")
    x[0, 3] = np.inf
    d = wt.matmul(x, w, **FLOATS)
    column = w.dequantize()[:, 3].astype(np.float64)
    assert np.array_equal(np.isnan(d[0]), column == 0)
    assert np.array_equal(d[0][column != 0], np.copysign(np.inf, column[column != 0]))
    check(d[1:], x[1:], w)


@pytest.mark.parametrize("layout", ["columns", "gaps", "misaligned"])
def test_activations_in_any_layout(layout):
    w = wt.quantize(drawn(70, 200))
    x = {
        "columns": drawn(200, 24, dtype="bfloat16").T,
        "gaps": drawn(24, 400, dtype="bfloat16")[:, ::2],
        "misaligned": drawn(24, 201, dtype="bfloat16")[:, 1:],
    }[layout]
    check(wt.matmul(x, w, **FLOATS), x, w)


def test_factors_addend_bias_epilogue_and_out():
    x, w = drawn(20, 130, dtype="bfloat16"), wt.quantize(drawn(48, 130))
    c, bias, (expected, _) = drawn(20, 48), drawn(48), exact(x, w)
    guarded = np.full((22, 50), 7, np.float32)
    out = guarded[1:-1, 1:-1]
    assert wt.matmul(x, w, c, alpha=-0.5, beta=2.0, out=out, backend="emulator") is out
    assert np.all(np.abs(out - (2.0 * c - 0.5 * expected)) <= 1e-4)
    guarded[1:-1, 1:-1] = 7
    assert (guarded == 7).all()
    fused = wt.matmul(x, w, epilogue=lambda acc, bias: wt.relu(acc + bias), bias=bias, **FLOATS)
    assert np.all(np.abs(fused - np.maximum(expected + bias, 0)) <= 1e-4)
    assert np.all(np.abs(wt.linear(x, w, bias, **FLOATS) - (expected + bias)) <= 1e-4)
    fused = wt.linear(x, w, bias, epilogue=wt.relu, **FLOATS)
    assert np.all(np.abs(fused - np.maximum(expected + bias, 0)) <= 1e-4)


def test_splits_with_addend_and_epilogue():
    x, w, c = drawn(20, 600, dtype="bfloat16"), wt.quantize(drawn(48, 600)), drawn(20, 48)
    options = {"rung": NAME, "config": TINY | {"BN": 32, "SPLIT_K": 4}, **FLOATS}
    expected, _ = exact(x, w)
    assert np.all(np.abs(wt.matmul(x, w, c, beta=2.0, **options) - (expected + 2.0 * c)) <= 1e-3)
    assert np.all(np.abs(wt.matmul(x, w, epilogue=lambda acc: acc * acc, **options) - expected**2) <= 1e-2)


def test_all_rows_of_more_axes_are_one_gemm():
    x, w = drawn(2, 3, 5, 130, dtype="bfloat16"), wt.quantize(drawn(48, 130))
    d = wt.matmul(x, w, **FLOATS)
    assert d.shape == (2, 3, 5, 48)
    check(d.reshape(30, 48), x.reshape(30, 130), w)
    assert np.array_equal(wt.linear(x, w, **FLOATS), d)
    assert np.array_equal(wt.matmul(x, w.T, **FLOATS), d)
    row = wt.matmul(x[0, 0, 0], w, **FLOATS)
    assert row.shape == (48,)
    check(row, x[0, 0, 0], w)
    assert wt.matmul(x[:0], w, **FLOATS).shape == (0, 3, 5, 48)


def test_nothing_to_multiply():
    w = wt.quantize(drawn(48, 130))
    assert not wt.matmul(np.zeros((4, 0), "bfloat16"), wt.quantize(np.zeros((6, 0), np.float32)), **FLOATS).any()
    assert wt.matmul(np.zeros((0, 130), "bfloat16"), w, **FLOATS).shape == (0, 48)
    nobody = wt.quantize(np.zeros((0, 130), np.float32))
    assert wt.matmul(np.zeros((3, 130), "bfloat16"), nobody, **FLOATS).shape == (3, 0)


def test_a_plan_is_called_with_other_weights_of_the_format():
    x, w = drawn(9, 260, dtype="bfloat16"), wt.quantize(drawn(130, 260), zero_point=True)
    plan = wt.plan(x, w, **FLOATS)
    other = wt.quantize(drawn(130, 260, seed=1), zero_point=True)
    for each in (w, other, other):
        assert np.array_equal(plan(x, each), wt.matmul(x, each, **FLOATS))
    assert NAME in plan.explain()
    with pytest.raises(wt.LayoutError, match="this plan is for"):
        plan(x, wt.quantize(drawn(130, 260)))


@pytest.mark.parametrize(
    ("change", "schedule"),
    few(covering(({"STREAM": 1}, {"SPLIT_K": 2}), ("earliest", "random:3"), pairs=()), 1),
    ids=str,
)
def test_the_result_does_not_depend_on_when_loads_arrive(change, schedule):
    x, w = drawn(20, 700, dtype="bfloat16"), wt.quantize(drawn(130, 700))
    product = arrange(x, w, out_dtype="float32")
    plan = make_plan(product.problem, rung=NAME, config=TINY | {"BN": 32} | change)
    found = []
    for each in ("latest", schedule):
        d = np.empty((20, 130), np.float32)
        operands = {"A": product.a, "B": product.b, "D": array_view.view(d, "d")}
        EmulatorBackend(schedule=each).run(plan, operands, [()], 1.0, 0.0)
        found.append(d)
    assert np.array_equal(*found)
    check(found[0], x, w)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x, w: wt.matmul(x[:, :8], w), wt.ShapeError, "must equal K"),
        (lambda x, w: wt.matmul(w, x), wt.UnsupportedError, "second operand"),
        (lambda x, w: wt.matmul(x.astype(np.float16), w), wt.DTypeError, "bfloat16"),
        (lambda x, w: wt.matmul(x.astype(np.float32), w), wt.DTypeError, "bfloat16"),
        (lambda x, w: wt.matmul(x, w, rung="wgmma-final"), wt.UnsupportedError, "B is quantized"),
        (lambda x, w: wt.matmul(x, x.T, rung=NAME), wt.UnsupportedError, "B is stored as it is"),
        (lambda x, w: wt.matmul(x, w, rung=NAME, config=TINY | {"BK": 64}), wt.UnsupportedError, "BK is 64"),
        (lambda x, w: wt.matmul(x, w, rung=NAME, config=TINY | {"BM": 256}), wt.UnsupportedError, "take BM=128"),
        (lambda x, w: wt.matmul(x, w, rung=NAME, config=TINY | {"SPLIT_K": 9}), wt.UnsupportedError, "SPLIT_K is 9"),
        (lambda x, w: wt.matmul(x, w, rung=NAME, config=TINY | {"STAGES": 40}), wt.UnsupportedError, "shared memory"),
        (lambda x, w: wt.matmul(x, w, rung=NAME, config=TINY | {"CONSUMERS": 3}), wt.UnsupportedError, "CONSUMERS"),
        (lambda x, w: wt.matmul(x, w, rung=NAME, config=TINY | {"STREAM": 2}), wt.UnsupportedError, "STREAM is 2"),
        (
            lambda x, w: wt.matmul(x, w, rung=NAME, config=TINY | {"STREAM": 1, "BN": 192}),
            wt.UnsupportedError,
            "96 accumulators",
        ),
        (lambda x, w: wt.linear(x, w, np.zeros(3, "bfloat16")), wt.ShapeError, "bias"),
    ],
)
def test_what_it_does_not_take_is_refused(call, error, message):
    x, w = drawn(4, 130, dtype="bfloat16"), wt.quantize(drawn(48, 130))
    with pytest.raises(error, match=message):
        call(x, w)


SIZES = [
    (1, 8192, 8192), (16, 28672, 8192), (64, 8192, 28672), (128, 8192, 8192), (300, 11008, 4096), (4096, 4096, 4096),
]  # fmt: skip


@pytest.mark.parametrize(("bits", "size"), few(covering((4, 8), SIZES, pairs=()), 1), ids=str)
def test_plans_compile_without_spills(size, bits):
    plan = make_plan(problem(*size, bits=bits, zero_point=size[0] > 64), rung=NAME)
    assert plan.rung is WGMMA_QUANTIZED
    resources = compiled(plan).resources
    assert resources.spill_store_bytes == 0


@pytest.mark.parametrize(
    ("bits", "group_size", "zero_point", "dtype"),
    [
        (*case, dtype)
        for case, dtype in covering(((4, 128, False), (4, 32, True), (8, 64, True)), ("bfloat16", "float16"), pairs=())
    ],
)
def test_the_dequantizing_pass(bits, group_size, zero_point, dtype):
    """What it writes are the documented weights, or else the results of both ways differed by more than additions."""
    x, w = drawn(33, 300, dtype=dtype)[:, :296], wt.quantize(drawn(70, 296), bits, group_size, zero_point, dtype=dtype)
    x = np.ascontiguousarray(x)
    plan = wt.plan(x, w, rung="wgmma-dequantized", **FLOATS)
    assert "dequantized B" in plan.explain()
    check(plan(x, w), x, w)
    c = drawn(33, 70)
    found = wt.matmul(x, w, c, alpha=0.5, beta=2.0, rung="wgmma-dequantized", **FLOATS)
    assert np.all(np.abs(found - (0.5 * exact(x, w)[0] + 2.0 * c)) <= 1e-4)


def test_weights_are_dequantized_once_for_many_rows():
    few, many = (make_plan(problem(m, 8192, 8192, bits=8)) for m in (64, 8192))
    assert (few.rung.name, many.rung.name) == (NAME, "wgmma-dequantized")
    (copy,) = many.kernel.copies
    assert copy.moved_bytes == 8192 * 8192 + 2 * 8192 * 64 + 2 * 8192 * 8192
    assert "dequantized B" in {each.name for each in many.kernel.workspaces}
    assert many.kernel.view.problem.b.quantized is None
    assert compiled(many).resources.spill_store_bytes == 0


def test_misaligned_activations_are_not_copied_beside_the_pass():
    x, w = drawn(1000, 129, dtype="bfloat16")[:, :128], wt.quantize(drawn(1000, 128))
    with pytest.raises(wt.UnsupportedError, match="such as a"):
        wt.plan(x, w, rung="wgmma-dequantized", **FLOATS)
    assert wt.plan(x, w, **FLOATS).plan.rung.name == NAME
    with pytest.raises(wt.UnsupportedError, match="B is stored as it is"):
        wt.plan(np.ascontiguousarray(x), w.dequantize().T, rung="wgmma-dequantized", **FLOATS)


@pytest.mark.parametrize(
    ("bits", "size"),
    few(covering((4, 8), (SIZES[1], SIZES[3], (60, 28672, 8192), (1024, 8192, 8192)), pairs=()), 1),
    ids=str,
)
def test_plans_with_an_addend_compile_without_spills(size, bits):
    bare = problem(*size, bits=bits, out="float32")
    plan = make_plan(replace(bare, c=bare.d), rung=NAME)
    assert compiled(plan).resources.spill_store_bytes == 0


def test_few_rows_are_split_along_k():
    """So that all but a few SMs load weights, with more bytes under way than a microsecond of HBM brings."""
    plan = make_plan(problem(16, 8192, 8192))
    assert plan.kernel.ctas == 128
    assert plan.kernel.ctas * plan.config["STAGES"] * 256 * 128 // 2 > 4.8e6
    assert make_plan(problem(2048, 8192, 8192), rung=NAME).config["SPLIT_K"] == 1


@pytest.mark.skipif(not ALL, reason="make test-all")
@pytest.mark.parametrize("seed", range(20))
def test_random_problems(seed):
    rng = np.random.default_rng(seed)
    m, n, k = (int(each) for each in rng.integers(1, 300, 3))
    bits, group_size = int(rng.choice([4, 8])), [32, 64, 128, 256, None][seed % 5]
    dtype = ["bfloat16", "float16"][seed // 2 % 2]
    x, w = drawn(m, k, dtype=dtype), wt.quantize(drawn(n, k), bits, group_size, bool(seed % 2), dtype=dtype)
    check(wt.matmul(x, w, **FLOATS), x, w)
