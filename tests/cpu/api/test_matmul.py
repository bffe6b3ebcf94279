"""matmul on the emulator: every shape, layout and type against float64, and what wrong calls are told."""

import logging
import pickle
import re
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import warptile as wt
from covering import ALL, covering
from explained import unwrapped
from warptile.arrays.operands import OUTPUTS, arrange
from warptile.dtypes import DTYPES
from warptile.rungs import RUNGS
from warptile.runtime import execute
from warptile.verify.reference import error_ratio, is_correct, random_operand, reference

ROOT = Path(__file__).parents[3]
NAIVE = {"rung": "simt-naive", "backend": "emulator"}


def drawn(*shape, dtype="float32", seed=0):
    return random_operand(shape, DTYPES[dtype], np.random.default_rng(seed))


def assert_product(d, a, b, c=None, *, alpha=1, beta=0, **options):
    """Compare one matrix with its reference."""
    what = arrange(a, b, c, beta=beta, **options).problem
    expected = reference(what, a, b, c, alpha=alpha, beta=beta)
    ratio = error_ratio(d, expected)
    assert is_correct(ratio), ratio
    assert d.dtype == np.dtype(what.d.dtype.numpy)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint8"])
def test_every_type_through_the_best_rung(dtype):
    a, b = drawn(37, 29, dtype=dtype), drawn(29, 41, dtype=dtype, seed=1)
    assert_product(wt.matmul(a, b, backend="emulator"), a, b)


@pytest.mark.parametrize(
    "options", [{"out_dtype": "float32"}, {"accumulate": "float16"}], ids=["float32 result", "float16 accumulator"]
)
def test_float16_with_other_results_and_accumulators(options):
    a, b = drawn(19, 23, dtype="float16"), drawn(23, 17, dtype="float16", seed=1)
    assert_product(wt.matmul(a, b, backend="emulator", **options), a, b, **options)


def test_tf32_is_less_exact_and_only_on_request():
    a, b = drawn(32, 40), drawn(40, 32, seed=1)
    ieee = reference(arrange(a, b).problem, a, b)
    assert is_correct(error_ratio(wt.matmul(a, b, backend="emulator"), ieee))
    d = wt.matmul(a, b, precision="tf32", backend="emulator")
    assert not is_correct(error_ratio(d, ieee))
    assert_product(d, a, b, precision="tf32")


def test_which_rung_each_type_gets():
    def rung_of(dtype, size=64, **options):
        a = drawn(size, size, dtype=dtype)
        return wt.plan(a, a, backend="emulator", **options).plan.rung

    assert rung_of("float32").name == rung_of("float64").name == "simt-gemv"
    assert rung_of("float32", 512).name == "wgmma-split"
    assert rung_of("float32", precision="ieee").name == "simt-split-k"
    assert rung_of("float32", precision="tf32").name == "wgmma-final"
    assert rung_of("float64", 300).name == "mma-split-k"
    assert rung_of("float64", 2048).name == "mma-specialized"
    for dtype in ("float16", "bfloat16", "float8_e4m3", "float8_e5m2"):
        assert rung_of(dtype).name == "wgmma-final"
    for dtype in ("int8", "uint8"):  # B lies as wgmma does not take it
        assert rung_of(dtype).name == "simt-gemv"
        assert rung_of(dtype, 512).name == "wgmma-final"


@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [((7,), (7,)), ((7,), (7, 5)), ((3, 7), (7,)), ((1, 1), (1, 1)), ((2, 3, 7), (7, 5)), ((2, 1, 3, 7), (4, 7, 5))],
)
def test_shapes_follow_numpy(a_shape, b_shape):
    a, b = drawn(*a_shape, dtype="float64"), drawn(*b_shape, dtype="float64", seed=1)
    d = wt.matmul(a, b, **NAIVE)
    assert d.shape == (a @ b).shape
    assert np.allclose(d, a @ b, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    ("a_shape", "b_shape"), [((0, 7), (7, 5)), ((3, 7), (7, 0)), ((0, 3, 7), (7, 5)), ((0,), (0,))]
)
def test_nothing_in_nothing_out(a_shape, b_shape):
    a, b = drawn(*a_shape), drawn(*b_shape)
    d = wt.matmul(a, b, **NAIVE)
    assert np.array_equal(d, a @ b)


def test_without_products_the_result_is_beta_c_or_zero():
    a, b, c = drawn(4, 0), drawn(0, 5), drawn(4, 5)
    assert np.array_equal(wt.matmul(a, b, **NAIVE), np.zeros((4, 5)))
    assert np.array_equal(wt.matmul(a, b, c, beta=0.5, **NAIVE), 0.5 * c)


def test_alpha_beta_and_an_unread_c():
    a, b, c = drawn(9, 11), drawn(11, 6, seed=1), drawn(9, 6, seed=2)
    assert_product(wt.matmul(a, b, c, alpha=-2.0, beta=0.25, **NAIVE), a, b, c, alpha=-2.0, beta=0.25)
    c[:] = np.nan
    assert_product(wt.matmul(a, b, c, beta=0, **NAIVE), a, b)


DENSE = [name for name, rung in RUNGS.items() if not rung.sparse]
"""An ordinary run takes rungs of each family through each of three tests. tests/cpu/rungs has each of them."""


@pytest.mark.parametrize("name", DENSE if ALL else DENSE[2::12])
@pytest.mark.parametrize("n", [40, 37] if ALL else [37])
def test_one_row_is_added_to_all_rows(name, n):
    kind = {"wgmma-two-level": "float8_e4m3", "wgmma-split": "float32"}.get(name, "float16")
    output = "float32" if name == "wgmma-split" else "float16"
    options = {"accumulate": "float16"} if name == "simt-half2" else {"out_dtype": output}
    rng = np.random.default_rng(n)
    a, b = random_operand((35, 32), DTYPES[kind], rng), random_operand((32, n), DTYPES[kind], rng)
    bias = random_operand((1, n), DTYPES[output], rng)
    every_row = np.ascontiguousarray(np.broadcast_to(bias, (35, n)))
    found = wt.matmul(a, b, bias[0], beta=0.5, rung=name, backend="emulator", **options)
    assert_product(found, a, b, every_row, beta=0.5, **options)
    with pytest.raises(AssertionError):  # it can fail: without the row the result is another one
        assert_product(found, a, b, 0 * every_row, beta=0.5, **options)


def test_a_third_argument_is_added_unless_beta_says_otherwise():
    a, b, c = drawn(9, 11), drawn(11, 6, seed=1), drawn(9, 6, seed=2)
    assert_product(wt.matmul(a, b, c, **NAIVE), a, b, c, beta=1)
    plan = wt.plan(a, b, c, **NAIVE)
    assert_product(plan(a, b, c), a, b, c, beta=1)
    with pytest.raises(wt.ShapeError, match=r"c: got None, and this plan adds it with beta=1"):
        plan(a, b)
    with pytest.raises(wt.ShapeError, match=r"c: got None with beta=2\.0"):
        wt.matmul(a, b, beta=2.0, **NAIVE)
    with pytest.raises(wt.ShapeError, match=r"c: this plan was made without it"):
        wt.plan(a, b, **NAIVE)(a, b, c)
    assert_product(wt.plan(a, b, beta=0, **NAIVE)(a, b, c), a, b)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_two_vectors_give_a_scalar(framework):
    a, b = drawn(7), drawn(7, seed=1)
    if framework == "torch":
        torch = pytest.importorskip("torch", reason="torch is not installed")
        d = wt.matmul(torch.from_numpy(a), torch.from_numpy(b), **NAIVE)
        assert (type(d), d.shape) == (torch.Tensor, ())
    else:
        d = wt.matmul(a, b, **NAIVE)
        assert type(d) is np.float32
    assert float(d) == pytest.approx(float(a @ b), rel=1e-5)
    out = np.empty((), np.float32)
    assert wt.matmul(a, b, out=out, **NAIVE) is out
    assert out == np.float32(d)
    assert type(wt.matmul(a[:0], b[:0], **NAIVE)) is np.float32


def test_integers_wrap_and_take_whole_factors():
    a, b, c = drawn(5, 9, dtype="int8"), drawn(9, 7, dtype="int8"), drawn(5, 7, dtype="int32")
    d = wt.matmul(a, b, c, alpha=3, beta=-2, **NAIVE)
    with np.errstate(over="ignore"):
        assert np.array_equal(d, 3 * (a.astype(np.int32) @ b.astype(np.int32)) - np.int32(2) * c)
    with pytest.raises(wt.DTypeError, match="whole number"):
        wt.matmul(a, b, alpha=0.5, **NAIVE)


LAYOUTS = {
    "rows with gaps": lambda x: np.pad(x, ((0, 0), (3, 2)))[:, 3:-2],
    "by columns": lambda x: np.asfortranarray(x),
    "every second element": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "backwards": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "off its alignment": lambda x: np.pad(x.ravel(), (1, 0))[1:].reshape(x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_gives_the_same_bits(layout):
    a, b = drawn(13, 24, dtype="float16"), drawn(24, 18, dtype="float16", seed=1)
    want = wt.matmul(a, b, backend="emulator", rung="simt-naive")
    relaid_a, relaid_b = LAYOUTS[layout](a), LAYOUTS[layout](b)
    assert np.array_equal(relaid_a, a)
    assert np.array_equal(wt.matmul(relaid_a, relaid_b, **NAIVE), want)


def test_out_is_written_and_nothing_beside_it():
    a, b = drawn(6, 8), drawn(8, 5, seed=1)
    for make in (lambda z: z[1:7, 2:7], lambda z: z[:5, 1:7].T, lambda z: z[1:7, 2:12:2]):
        frame = np.full((9, 14), 7.0, np.float32)
        out = make(frame)
        assert wt.matmul(a, b, out=out, **NAIVE) is out
        assert_product(np.ascontiguousarray(out), a, b)
        out[...] = 7.0
        assert np.array_equal(frame, np.full_like(frame, 7.0))


def test_out_may_be_an_operand():
    a, b = drawn(6, 6), drawn(6, 6, seed=1)
    want = wt.matmul(a, b, **NAIVE)
    into = a.copy()
    assert np.array_equal(wt.matmul(into, b, out=into, **NAIVE), want)
    c = drawn(6, 6, seed=2)
    want = wt.matmul(a, b, c, beta=1, **NAIVE)
    assert np.array_equal(wt.matmul(a, b, c, beta=1, out=c, **NAIVE), want)


def test_a_read_only_operand_stays_as_it_is():
    a, b = drawn(6, 6), drawn(6, 6, seed=1)
    a.flags.writeable = False
    before = a.copy()
    assert_product(wt.matmul(a, b, **NAIVE), a, b)
    assert np.array_equal(a, before)


def test_the_same_call_gives_the_same_bits():
    a, b = drawn(40, 70, dtype="float16"), drawn(70, 50, dtype="float16", seed=1)
    first = wt.matmul(a, b, backend="emulator")
    assert np.array_equal(wt.matmul(a, b, backend="emulator"), first)


@pytest.mark.parametrize("name", DENSE if ALL else DENSE[::12])
def test_every_rung_through_the_drop_in_on_ragged_sizes(name):
    dtype = RUNGS[name].dtypes[0]
    a, b, c = (
        drawn(67, 45, dtype=dtype),
        drawn(45, 83, dtype=dtype, seed=1),
        drawn(67, 83, dtype=OUTPUTS[dtype][0], seed=2),
    )
    options = {"accumulate": "float16"} if name == "simt-half2" else {}
    d = wt.matmul(a, b, c, alpha=0.5, beta=-1.5, rung=name, backend="emulator", **options)
    assert_product(d, a, b, c, alpha=0.5, beta=-1.5, **options)


SINGLE_B, SINGLE_A = ((5, 1, 7), "CC"), ((1, 35, 9), "CF")
"""m, k, n and orders: B, or A, is a single row, of which the bytes are no multiple of 16."""


def assert_single(shape, orders, dtype, **options):
    m, k, n = shape
    a, b = (
        np.asarray(drawn(*extents, dtype=dtype, seed=seed), order=order)
        for seed, (extents, order) in enumerate(zip(((m, k), (k, n)), orders, strict=True))
    )
    what = {name: value for name, value in options.items() if name != "rung"}
    assert_product(wt.matmul(a, b, backend="emulator", **options), a, b, **what)


@pytest.mark.parametrize("name", DENSE if ALL else DENSE[4::12])
def test_every_rung_with_a_single_row_of_odd_bytes(name):
    dtype = RUNGS[name].dtypes[0]
    options = {"accumulate": "float16"} if name == "simt-half2" else {}
    assert_single(*SINGLE_B, dtype, rung=name, **options)


@pytest.mark.parametrize(
    ("arch", "dtype", "given"),
    covering(("sm_75", "sm_80", "sm_90a"), ("float16", "float64", "int8"), (SINGLE_B, SINGLE_A), pairs=()),
    ids=str,
)
def test_a_single_row_of_odd_bytes_on_other_architectures(monkeypatch, arch, dtype, given):
    monkeypatch.setenv("WARPTILE_ARCH", arch)
    assert_single(*given, dtype)


# --- types -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("out_dtype", "dtype"), covering(["bfloat16", "float32"], ["float8_e4m3", "float8_e5m2"], pairs=())
)
def test_float8_with_scales(out_dtype, dtype):
    a, b = drawn(21, 45, dtype=dtype), drawn(45, 19, dtype=dtype, seed=1)
    options = {"out_dtype": out_dtype, "backend": "emulator"}
    d = wt.matmul(a, b, scale_a=0.5, scale_b=np.array([[3.0]]), alpha=2.0, **options)
    assert d.dtype == out_dtype
    assert np.array_equal(d, wt.matmul(a, b, alpha=3.0, **options))
    assert_product(d, a, b, alpha=3.0, out_dtype=out_dtype)
    plan = wt.plan(a, b, scale_a=0.5, scale_b=3.0, alpha=2.0, **options)
    assert np.array_equal(plan(a, b), d)


def test_scales_are_for_float8():
    with pytest.raises(wt.DTypeError, match="scale_a: it is for operands of 8 bits; a is float32: give alpha"):
        wt.matmul(drawn(4, 5), drawn(5, 3), scale_a=2.0, backend="emulator")


def test_integer_sums_saturate_when_asked():
    a, b = drawn(9, 70, dtype="int8"), drawn(70, 8, dtype="int8", seed=1)
    plan = wt.plan(a, b, accumulate="int32_saturating", backend="emulator")
    assert plan.plan.problem.accumulator.name == "int32_saturating"
    assert np.array_equal(plan(a, b), a.astype(np.int32) @ b.astype(np.int32))
    with pytest.raises(wt.UnsupportedError, match="the accumulator is int32_saturating"):
        wt.matmul(a, b, accumulate="int32_saturating", rung="wmma-naive", backend="emulator")


def test_float16_operands_give_bfloat16_when_asked():
    a, b = drawn(9, 40, dtype="float16"), drawn(40, 7, dtype="float16", seed=1)
    d = wt.matmul(a, b, out_dtype="bfloat16", backend="emulator")
    assert d.dtype == ml_dtypes.bfloat16
    assert np.allclose(d.astype(np.float64), a.astype(np.float64) @ b.astype(np.float64), rtol=1e-2, atol=1e-1)


@pytest.mark.parametrize(("dtype", "rung"), [("float16", None), ("int8", None), ("float16", "wmma-naive")])
def test_an_a_by_columns_is_copied_only_where_the_kernel_needs_rows(dtype, rung):
    a, b = drawn(45, 21, dtype=dtype).T, drawn(45, 19, dtype=dtype, seed=1)
    plan = wt.plan(a, b, rung=rung, backend="emulator")
    assert plan.plan.problem.a.major == ("col" if rung is None else "row")
    assert ("stored by columns" in plan.explain()) == (rung is not None)
    assert_product(plan(a, b), a, b)


def test_where_the_architecture_lacks_the_rung_an_a_by_columns_is_copied(monkeypatch):
    monkeypatch.setenv("WARPTILE_ARCH", "sm_75")
    plan = wt.plan(drawn(256, 128, dtype="float16").T, drawn(256, 64, dtype="float16"), backend="emulator")
    assert plan.plan.rung.family == "wmma"
    assert "stored by columns" in plan.explain()


# --- plans -----------------------------------------------------------------------------------------------------------


def test_a_plan_explains_itself_and_runs():
    a, b = drawn(24, 16), drawn(20, 16, seed=1).T
    plan = wt.plan(a.T.copy().T, b, **NAIVE)
    text = unwrapped(plan.explain())
    for words in ("simt-naive", "predicted", "emulator, sm_90a", "a (24 x 16) is stored by columns", "copied once"):
        assert words in text
    assert_product(plan(a, b), a, b)


def test_a_plan_for_a_batch_says_so():
    plan = wt.plan(drawn(3, 4, 5), drawn(5, 6), **NAIVE)
    assert "batch      (3,): one launch for each matrix" in plan.explain()


def test_a_plan_refuses_other_arrays():
    plan = wt.plan(drawn(8, 16), drawn(16, 8), **NAIVE)
    with pytest.raises(wt.ShapeError, match="m, n, k = 8, 8, 16"):
        plan(drawn(8, 12), drawn(12, 8))
    with pytest.raises(wt.ShapeError, match="float32"):
        plan(drawn(8, 16, dtype="float64"), drawn(16, 8, dtype="float64"))
    with pytest.raises(wt.LayoutError, match="b: this plan is for"):
        plan(drawn(8, 16), drawn(8, 16).T)
    with pytest.raises(wt.LayoutError, match="a: this plan is for"):
        plan(np.zeros((8, 17), np.float32)[:, 1:], drawn(16, 8))


def test_a_plan_has_its_options():
    a, b = drawn(8, 16), drawn(16, 8)
    plan = wt.plan(a, b, **NAIVE)
    with pytest.raises(wt.ArgumentTypeError, match=r"^alpha: it is fixed .* warptile\.plan\(a, b, alpha=\.\.\.\)$"):
        plan(a, b, alpha=2.0)
    with pytest.raises(wt.ArgumentTypeError, match=r"'outt'. Did you mean 'out'\?"):
        plan(a, b, outt=None)


def test_a_plan_is_a_key():
    a, b = drawn(8, 16), drawn(16, 8)
    one, other = wt.plan(a, b, **NAIVE), wt.plan(a, b, **NAIVE)
    plans = {one: 1, other: 2}
    assert [plans[one], plans[other]] == [1, 2]
    assert np.array_equal(pickle.loads(pickle.dumps(one))(a, b), one(a, b))


def test_a_plan_says_in_words_which_layout_it_is_for():
    a, b = np.ones((16, 32), np.float16), np.ones((32, 24), np.float16)
    plan = wt.plan(a, b, backend="emulator")
    with pytest.raises(wt.LayoutError) as refused:
        plan(np.asfortranarray(a), b)
    assert str(refused.value) == (
        "a: this plan is for float16, row-major, leading dimension 32, aligned to 16 bytes, and it is float16, "
        "column-major, leading dimension 16, aligned to 16 bytes; make another with warptile.plan(a, b)"
    )
    with pytest.raises(wt.LayoutError, match=r"^out: this plan is for float16"):
        plan(a, b, out=np.zeros((16, 24), np.float32))


def test_a_configuration_is_used():
    plan = wt.plan(drawn(8, 8), drawn(8, 8), rung="simt-naive", config={"BM": 4, "BN": 16}, backend="emulator")
    assert dict(plan.plan.config) == {"BM": 4, "BN": 16}
    assert_product(plan(drawn(8, 8), drawn(8, 8)), drawn(8, 8), drawn(8, 8))


@pytest.mark.parametrize(
    ("m", "options", "said"),
    [
        (
            8,
            {"rung": "simt-naive"},
            "D[8, 8] = A[8, 8] @ B[8, 8], float32 -> float32, accumulated in float32, by simt-",
        ),
        (0, {}, "D has shape (0, 8) and no element"),
        (8, {"alpha": 0}, "D[8, 8] = 0, float32"),
    ],
)
def test_a_plan_shows_itself_in_a_line(m, options, said):
    shown = repr(wt.plan(drawn(m, 8), drawn(8, 8), backend="emulator", **options))
    assert shown.startswith(f"<plan of {said}")
    assert shown.endswith("; print(plan.explain()) says why>")
    assert len(shown) < 160


# --- backends --------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(execute, "has_gpu", lambda: False)
    monkeypatch.delenv("WARPTILE_BACKEND", raising=False)
    monkeypatch.setattr(execute, "_SAID", {})


@pytest.mark.usefixtures("no_gpu")
def test_an_unknown_architecture_of_the_environment_is_told(monkeypatch):
    monkeypatch.setenv("WARPTILE_ARCH", "sm_1")
    with pytest.raises(wt.UnsupportedError, match=r"WARPTILE_ARCH: got 'sm_1'; it takes .* such as sm_90a"):
        execute.choose_backend(None)


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_the_emulator_is_taken_and_said_once(caplog):
    with caplog.at_level(logging.INFO, "warptile"):
        assert execute.choose_backend(None).name == "emulator"
        assert execute.choose_backend(None).name == "emulator"
    assert [record.getMessage() for record in caplog.records if record.name == "warptile"] == [
        "no GPU: kernels run on the emulator, which checks and counts but is slow"
    ]


@pytest.mark.usefixtures("no_gpu")
def test_threads_that_begin_together_say_it_once(caplog):
    together = threading.Barrier(16)

    def choose():
        together.wait()
        execute.choose_backend(None)

    threads = [threading.Thread(target=choose) for _ in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [record.name for record in caplog.records].count("warptile") == 1


@pytest.mark.usefixtures("no_gpu")
def test_asking_for_a_gpu_that_is_not_there():
    with pytest.raises(wt.NoDeviceError, match="backend='emulator' works without one"):
        wt.matmul(drawn(2, 2), drawn(2, 2), backend="gpu")


@pytest.mark.usefixtures("no_gpu")
def test_the_environment_chooses_backend_and_architecture(monkeypatch):
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")
    monkeypatch.setenv("WARPTILE_ARCH", "sm_80")
    assert wt.plan(drawn(4, 4), drawn(4, 4)).plan.arch == "sm_80"
    monkeypatch.setenv("WARPTILE_BACKEND", "gpu")
    with pytest.raises(wt.NoDeviceError, match="WARPTILE_BACKEND='gpu'"):
        wt.matmul(drawn(2, 2), drawn(2, 2))
    monkeypatch.setenv("WARPTILE_BACKEND", "fpga")
    with pytest.raises(wt.UnsupportedError, match="WARPTILE_BACKEND: got 'fpga'"):
        wt.matmul(drawn(2, 2), drawn(2, 2))


def test_threads_may_call_at_once():
    a, b = drawn(20, 12), drawn(12, 16, seed=1)
    results = {}
    threads = [threading.Thread(target=lambda i=i: results.__setitem__(i, wt.matmul(a, b, **NAIVE))) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    for d in results.values():
        assert_product(d, a, b)


# --- wrong calls -----------------------------------------------------------------------------------------------------


def test_wrong_calls_are_told_what_would_work():
    a = drawn(4, 5)
    with pytest.raises(wt.ShapeError, match=r"matmul\(a, b.T\)"):
        wt.matmul(a, drawn(3, 5))
    with pytest.raises(wt.DTypeError, match="one of float16"):
        wt.matmul(np.zeros((2, 2), complex), np.zeros((2, 2), complex))
    with pytest.raises(wt.UnsupportedError, match="wmma-final"):
        wt.matmul(a, drawn(5, 3), rung="wmma-finale", backend="emulator")
    with pytest.raises(wt.ArgumentError, match="rung"):
        wt.matmul(a, drawn(5, 3), config={"BM": 8}, backend="emulator")
    with pytest.raises(wt.UnsupportedError, match="backend: got 'cpu'"):
        wt.matmul(a, drawn(5, 3), backend="cpu")


@pytest.mark.parametrize("function", [wt.matmul, wt.plan])
def test_an_unknown_keyword_names_the_nearest(function):
    words = rf"{function.__name__}\(\) got an unexpected keyword argument 'alpa'. Did you mean 'alpha'\?"
    with pytest.raises(TypeError, match=words):
        function(drawn(2, 2), drawn(2, 2), alpa=2.0)
    with pytest.raises(wt.ArgumentTypeError, match=r"'bias'. It has c, alpha, beta, out, "):
        function(drawn(2, 2), drawn(2, 2), bias=1.0)


def test_a_rung_that_the_architecture_lacks(monkeypatch):
    monkeypatch.setenv("WARPTILE_ARCH", "sm_75")
    half = drawn(64, 64, dtype="float16")
    with pytest.raises(wt.UnsupportedError, match=r"compute capability 8\.0"):
        wt.matmul(half, half, rung="wmma-async", backend="emulator")
    assert wt.plan(half, half, backend="emulator").plan.rung.min_arch <= 75
    monkeypatch.setenv("WARPTILE_ARCH", "sm_1")
    with pytest.raises(wt.UnsupportedError, match="sm_90a"):
        wt.matmul(half, half, backend="emulator")


# --- frameworks ------------------------------------------------------------------------------------------------------


def test_torch_on_the_cpu():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for dtype in (torch.float32, torch.bfloat16):
        a, b = torch.randn(9, 7).to(dtype), torch.randn(11, 7).to(dtype)
        d = wt.matmul(a, b.T, **NAIVE)
        assert d.dtype == dtype
        assert torch.allclose(d, a @ b.T, atol=1e-1)
        for out in (torch.empty(9, 11, dtype=dtype), torch.empty(11, 9, dtype=dtype).T):
            assert wt.matmul(a, b.T, out=out, **NAIVE) is out
            assert torch.equal(out, d)
    with pytest.raises(wt.DTypeError, match=r"matmul\(a.real, b.real\) - matmul\(a.imag, b.imag\)"):
        wt.matmul(a.to(torch.complex64), b.T)


def test_the_readme_runs(capsys, monkeypatch):
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
    names = {}
    exec(code, names)
    assert_product(names["d"], names["a"], names["b"])
    assert "rung" in capsys.readouterr().out


def test_bfloat16_is_ml_dtypes_own():
    d = wt.matmul(drawn(3, 4, dtype="bfloat16"), drawn(4, 3, dtype="bfloat16"), **NAIVE)
    assert d.dtype == ml_dtypes.bfloat16
