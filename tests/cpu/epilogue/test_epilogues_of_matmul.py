"""Epilogues of matmul on the emulator: values, layouts, types, rungs, outputs."""

import ml_dtypes
import numpy as np
import pytest

import warptile as wt
from covering import ALL, alternating, covering, few
from epilogue_cases import CASES, SCHEDULES, emulated, wrong_outputs
from warptile.rungs import RUNGS
from wgmma_product import small

E4M3 = ml_dtypes.float8_e4m3fn
MIXED = CASES[-1]


@pytest.fixture(autouse=True)
def on_the_emulator(monkeypatch):
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")


def drawn(rng, *shape, dtype="float16"):
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 7, shape).astype(dtype)
    return rng.standard_normal(shape).astype(np.float32).astype(dtype)


def wide(*arrays):
    return [each.astype(np.float64) for each in arrays]


def product(a, b):
    left, right = wide(a, b)
    return left @ right


DTYPES = ("float16", "bfloat16", "float32", "float64")


@pytest.mark.parametrize(
    ("case", "dtype"), covering(CASES, DTYPES, pairs=()), ids=lambda each: getattr(each, "name", each)
)
def test_values(case, dtype):
    rng = np.random.default_rng(1)
    m, n, k = 37, 43, 21
    a, b = drawn(rng, m, k, dtype=dtype), drawn(rng, k, n, dtype=dtype)
    operands = case.drawn(m, n, dtype, rng)
    outputs = wt.matmul(a, b, epilogue=case.function, **operands)
    assert wrong_outputs(case, outputs, product(a, b), operands, k) is None


FEW = ("simt-naive", "simt-warptile", "wmma-naive", "wmma-final", "mma-final", "wgmma-tma", "wgmma-store")
"""Rungs that store D in different ways; the others store it as one of these does."""

SOME = [(rung, (70, 72, 64) if number % 2 else (33, 45, 19)) for number, rung in enumerate(RUNGS) if ALL or rung in FEW]


@pytest.mark.parametrize(("rung", "extents"), SOME)
def test_every_rung_has_an_epilogue(rung, extents):
    rng = np.random.default_rng(2)
    m, n, k = extents
    k = k if not RUNGS[rung].sparse else 64
    dtype = E4M3 if rung == "wgmma-two-level" else "float16"
    a, b = drawn(rng, m, k, dtype=dtype), drawn(rng, n, k, dtype=dtype).T
    given = a
    if RUNGS[rung].sparse:
        a = np.where(np.arange(k) % 4 < 2, a, 0).astype(dtype)
        given = wt.sparsify(a)
    operands = MIXED.drawn(m, n, "float16", rng)
    options = {"accumulate": "float16"} if rung == "simt-half2" else {}
    if not ALL and rung.startswith("wgmma"):
        options["config"] = small(rung)  # tiles of fewer elements for each thread compile faster
    outputs = wt.matmul(given, b, epilogue=MIXED.function, rung=rung, out_dtype="float16", **options, **operands)
    exact = product(a, b)
    if rung in ("simt-half2", "wgmma-two-level"):  # sums in float16; of 8-bit floats, kept to 14 bits
        pre = exact + operands["bias"]
        assert np.abs(outputs[1] - pre).max() < 0.2
        full = operands["full"] * 0.25
        assert np.abs(outputs[0] - (wt.gelu(pre) * operands["column"] + full)).max() < 0.5
    else:
        assert wrong_outputs(MIXED, outputs, exact, operands, k) is None


@pytest.mark.parametrize("name", SCHEDULES if ALL else list(SCHEDULES)[::6])
@pytest.mark.parametrize("batch", [(), (2,)] if ALL else [()], ids=str)
def test_schedules_of_the_last_rung(name, batch):
    """Extents that are aligned, so that TMA stores D and the residual is staged, and whose last tiles are ragged."""
    rng = np.random.default_rng(3)
    m, n, k = 136, 200, 192
    a, b = drawn(rng, *batch, m, k), drawn(rng, *batch, n, k).swapaxes(-1, -2)
    bias, res = drawn(rng, n), drawn(rng, *batch, m, n)
    d, pre = wt.matmul(
        a, b, epilogue=lambda acc, bias, res: (wt.gelu(acc + bias) + res, acc + bias), bias=bias, res=res,
        rung="wgmma-final", config=emulated(name),
    )  # fmt: skip
    exact = product(a, b) + bias.astype(np.float64)
    assert np.abs(pre - exact).max() < 0.02
    assert np.abs(d - (wt.gelu(exact) + res.astype(np.float64))).max() < 0.02


@pytest.mark.parametrize(
    ("changes", "dtype", "out"),
    [
        ({"BM": 192, "SWAP": 1}, "bfloat16", "float32"),  # two subtiles below each other, in three blocks of 64 rows
        ({}, "bfloat16", "bfloat16"),
        *([({"BM": 256, "SWAP": 1}, "bfloat16", "float32"), ({"BM": 192, "BN": 128, "SWAP": 1}, "float16", "float32"),
           ({"SWAP": 1}, E4M3, "bfloat16"), ({"BN": 128}, E4M3, "float16"), ({"BN": 208}, "float16", "float16"),
           ({"BN": 256}, "bfloat16", "bfloat16")] if ALL else []),
    ],
)  # fmt: skip
def test_vectors_of_tiles_that_are_stored_during_the_next_one(changes, dtype, out):
    """Each CTA has several tiles: what is read for one is not what the next one needs."""
    rng = np.random.default_rng(6)
    m, n, k = 264, 280, 640 if dtype is E4M3 else 832 if ALL else 576
    a, b = drawn(rng, m, k, dtype=dtype), drawn(rng, n, k, dtype=dtype).T
    bias, column, row = (drawn(rng, *shape, dtype="float32") for shape in ((n,), (n,), (m, 1)))
    d = wt.matmul(
        a, b, epilogue=lambda acc, bias, column, row: acc * row * column + bias, out_dtype=out, bias=bias,
        column=column, row=row, rung="wgmma-final", config=small("wgmma-final", OVERLAP=1, **changes)
        | {"BK": 128 if dtype is E4M3 else 64},
    )  # fmt: skip
    exact = product(a, b) * row * column + bias
    size = np.abs(product(np.abs(a), np.abs(b)) * row * column)
    rounding = np.abs(exact) * 2.0 ** {"float32": -20, "float16": -10, "bfloat16": -8}[out]
    assert (np.abs(np.float64(d) - exact) <= size * 2.0**-12 + rounding).all()


def test_operands_broadcast_in_any_layout():
    rng = np.random.default_rng(4)
    a, b = drawn(rng, 2, 3, 5, 8), drawn(rng, 3, 9, 8).swapaxes(-1, -2)  # need no copies
    exact = product(a, b)
    for operand in alternating([
        drawn(rng, 5, 1), drawn(rng, 9), drawn(rng, 3, 5, 9), drawn(rng, 1, 1), drawn(rng, 9, 5).T,
        drawn(rng, 5, 18)[:, ::2], drawn(rng, 5, 9)[::-1, ::-1], drawn(rng, 2, 1, 1, 9), np.array(0.5, "float32"),
        drawn(rng, 2, 3, 5, 9).transpose(0, 1, 2, 3), np.arange(9, dtype="int32"),
    ]):  # fmt: skip
        # All kernels load operands by the same functions: in an ordinary run one that is compiled in a moment does.
        d = wt.matmul(a, b, epilogue=lambda acc, x: acc + x, x=operand, rung=None if ALL else "simt-naive")
        assert np.abs(d - (exact + operand)).max() < 0.02, operand.shape


def test_vectors_and_scalars():
    rng = np.random.default_rng(5)
    a, b = drawn(rng, 5, 7), drawn(rng, 7, 9)
    exact = product(a, b)
    row = wt.matmul(a[0], b, epilogue=lambda acc, x: (acc + x, acc), x=drawn(rng, 9) * 0 + 2)
    assert row[0].shape == row[1].shape == (9,)
    assert np.abs(row[0] - exact[0] - 2).max() < 0.02
    column = wt.matmul(a, b[:, 0], epilogue=lambda acc, x: acc * x, x=np.full(5, 2, "float32"))
    assert column.shape == (5,)
    assert np.abs(column - 2 * exact[:, 0]).max() < 0.05
    assert wt.matmul(a[0], b[:, 0], epilogue=lambda acc: acc * 2) == pytest.approx(2 * exact[0, 0], abs=0.05)


def test_nothing_to_multiply_and_nothing_to_compute():
    rng = np.random.default_rng(6)
    row, c = drawn(rng, 9), drawn(rng, 5, 9)
    empty = np.empty((5, 0), "float16"), np.empty((0, 9), "float16")
    assert np.array_equal(wt.matmul(*empty, epilogue=lambda acc, x: acc + x, x=row), np.tile(row, (5, 1)))
    a, b = np.full((5, 7), np.nan, "float16"), drawn(rng, 7, 9)
    d = wt.matmul(a, b, c, alpha=0, beta=2, epilogue=lambda acc, x: acc + x, x=row)
    assert np.abs(d - (2 * c.astype(np.float64) + row)).max() < 0.02
    d, pre = wt.matmul(np.empty((0, 7), "float16"), b, epilogue=lambda acc: (acc, wt.cast(acc, "float32")))
    assert d.shape == pre.shape == (0, 9)
    assert pre.dtype == np.float32


def test_integer_sums_become_floats():
    rng = np.random.default_rng(7)
    a, b = drawn(rng, 5, 32, dtype="int8"), drawn(rng, 9, 32, dtype="int8").T
    rows, columns = rng.random((5, 1), np.float32), rng.random(9, np.float32)
    d = wt.matmul(a, b, epilogue=lambda acc, s, t: acc * s * t, s=rows, t=columns)
    assert d.dtype == np.float32
    assert np.abs(d - product(a, b) * rows * columns).max() < 1e-3
    assert wt.matmul(a, b, epilogue=lambda acc: acc, out_dtype="bfloat16").dtype == ml_dtypes.bfloat16
    assert wt.matmul(a, b, epilogue=lambda acc: wt.cast(acc, "int32")).dtype == np.int32


@pytest.mark.parametrize("block", alternating([(128, 128), (1, 128), (64, 32)]), ids=str)
def test_scales_of_blocks(block):
    rng = np.random.default_rng(8)
    m, n, k = 200, 150, 32
    a, b = drawn(rng, m, k, dtype=E4M3), drawn(rng, n, k, dtype=E4M3).T
    scale = rng.random((-(-m // block[0]), -(-n // block[1])), np.float32)
    d = wt.matmul(
        a, b, epilogue=lambda acc, s: acc * wt.per_block(s, *block), s=scale, out_dtype="float32"
    )  # fmt: skip
    spread = np.repeat(np.repeat(scale, block[0], 0)[:m], block[1], 1)[:, :n]
    assert np.abs(d - product(a, b) * spread).max() < 1e-2


@pytest.mark.parametrize("rung", few(["simt-warptile", None, "mma-final"], 2))
def test_dropout_keeps_what_its_mask_says(rung):
    rng = np.random.default_rng(9)
    a, b = np.abs(drawn(rng, 40, 16)) + 1, np.abs(drawn(rng, 24, 16)).T + 1
    d = wt.matmul(a, b, epilogue=lambda acc, seed: wt.dropout(acc, 0.3, seed), seed=2**40 + 5, rung=rung)
    mask = wt.dropout_mask(2**40 + 5, d.shape, 0.3)
    assert np.array_equal(d != 0, mask)
    assert np.abs(d - product(a, b) * mask / 0.7).max() < 0.2
    other = wt.matmul(a, b, epilogue=lambda acc, seed: wt.dropout(acc, 0.3, seed), seed=6, rung=rung)
    assert not np.array_equal(other != 0, mask)


def test_outputs_go_where_out_says():
    rng = np.random.default_rng(10)
    a, b = drawn(rng, 5, 7), drawn(rng, 7, 9)
    exact = product(a, b)
    first, second = np.zeros((5, 9), "float16"), np.zeros((9, 5), "float32").T
    found = wt.matmul(a, b, epilogue=lambda acc: (wt.relu(acc), wt.cast(acc, "float32")), out=(first, second))
    assert found[0] is first
    assert found[1] is second
    assert np.abs(second - exact).max() < 1e-2
    residual = drawn(rng, 5, 9)
    expected = exact + residual
    assert wt.matmul(a, b, epilogue=lambda acc, x: acc + x, x=residual, out=residual) is residual
    assert np.abs(residual - expected).max() < 0.02
    behind = np.zeros((6, 9), "float16")
    behind[:5] = drawn(rng, 5, 9)
    expected = exact + behind[:5]
    wt.matmul(a, b, epilogue=lambda acc, x: acc + x, x=behind[:5], out=behind[1:])  # shares memory, shifted by a row
    assert np.abs(behind[1:] - expected).max() < 0.02


def two(acc):
    return acc, acc * 2


def test_outputs_share_memory_with_nothing_that_the_call_reads_or_writes():
    rng = np.random.default_rng(12)
    a, b, d = drawn(rng, 16, 16), drawn(rng, 16, 16), np.zeros((17, 16), "float16")
    for taken, name in ((d[:16], "out"), (d[1:], "out"), (a, "a"), (b.T, "b")):
        with pytest.raises(wt.LayoutError, match=rf"out\[1\]: it shares memory with {name}; .*out\[1\].copy\(\)"):
            wt.matmul(a, b, out=(d[:16], taken), epilogue=two)
    x = drawn(rng, 16, 16)
    with pytest.raises(wt.LayoutError, match=r"out\[1\]: it shares memory with x"):
        wt.matmul(a, b, out=(d[:16], x.T), epilogue=lambda acc, x: (acc, acc + x), x=x)
    exact = product(a, b) + x
    wt.matmul(a, b, out=(d[:16], x), epilogue=lambda acc, x: (acc, acc + x), x=x)  # element by element
    assert np.abs(x - exact).max() < 0.05


@pytest.mark.parametrize("count", [0, 1, 3])
def test_out_has_an_array_for_each_output(count):
    a = np.ones((4, 4), "float16")
    with pytest.raises(wt.ShapeError, match=f"out: got {count} arrays; the epilogue has 2 outputs"):
        wt.matmul(a, a, out=tuple(np.zeros((4, 4), "float16") for _ in range(count)), epilogue=two)


@pytest.mark.parametrize("kind", ["blocks", "narrower"])
def test_an_operand_at_the_address_of_d_but_with_other_elements_is_apart_from_it(kind):
    a, b, d = np.ones((8, 8), "float16"), np.ones((8, 8), "float16"), np.ones((8, 8), "float32")
    if kind == "blocks":  # element (i, j) is read for the whole block (i, j)
        plan = wt.plan(a, b, out=d, epilogue=lambda acc, s: acc * wt.per_block(s, 4, 4), s=d[:2, :2])
    else:  # as many elements to the next row, but of half the size
        s = d.ravel().view("float16")[:64].reshape(8, 8)
        plan = wt.plan(a, b, out=d, epilogue=lambda acc, s: acc * s, s=s)
    assert plan.copies == ("out shares memory with s: the result is made apart and copied into it",)
    whole = wt.plan(a, b, out=d, epilogue=lambda acc, s: acc * s, s=d)
    assert whole.copies == ()


def test_a_plan_takes_other_operands_of_the_same_kind():
    rng = np.random.default_rng(11)
    a, b, row = drawn(rng, 5, 7), drawn(rng, 7, 9), drawn(rng, 9)
    plan = wt.plan(a, b, epilogue=lambda acc, x, s: acc * s + x, x=row, s=2.0)
    assert "epilogue   2 operations on each element, reads x, s" in plan.explain()
    other = drawn(rng, 9)
    assert np.abs(plan(a, b, x=other, s=3.0) - (3 * product(a, b) + other)).max() < 0.05
    with pytest.raises(wt.LayoutError, match="operands of another type or layout"):
        plan(a, b, x=drawn(rng, 5, 9), s=3.0)
    with pytest.raises(wt.EpilogueError, match="it takes 's', which was not given"):
        plan(a, b, x=other)
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'y'"):
        plan(a, b, x=other, s=1.0, y=other)
