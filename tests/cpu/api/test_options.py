"""Options of matmul: what each takes, and that a wrong one is a typed error which names it and a call that works."""

import ml_dtypes
import numpy as np
import pytest

import warptile as wt
from covering import ALL, covering
from warptile.arrays.array_view import view
from warptile.arrays.operands import arrange

EMULATOR = {"backend": "emulator"}


def ones(*shape, dtype="float16"):
    return np.ones(shape, dtype)


@pytest.mark.parametrize("function", [wt.matmul, wt.plan])
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"alpha": "2"}, TypeError, "alpha: got '2'; it takes a real number, such as alpha=0.5"),
        ({"alpha": None}, TypeError, "alpha: got None"),
        ({"alpha": 2j}, TypeError, "alpha: got 2j"),
        ({"alpha": np.complex64(2)}, TypeError, "alpha: got"),
        ({"alpha": float}, TypeError, "alpha: got <class 'float'>"),
        ({"alpha": np.ndarray}, TypeError, "alpha: got <class 'numpy.ndarray'>"),
        ({"alpha": [2.0]}, TypeError, r"alpha: got \[2.0\]"),
        ({"alpha": np.ones(2)}, ValueError, r"alpha: got shape \(2,\); it is one number"),
        ({"alpha": 10**400}, ValueError, "alpha: got an integer beyond float64's range"),
        ({"beta": "1"}, TypeError, "beta: got '1'"),
        ({"beta": {}}, TypeError, "beta: got {}"),
        ({"out_dtype": 5}, TypeError, "out_dtype: got 5; it takes the name of an element type or"),
        ({"out_dtype": "float31"}, TypeError, "out_dtype: got 'float31'"),
        ({"out_dtype": np.dtype(">f4")}, TypeError, "out_dtype: got"),
        ({"out_dtype": np.int16}, TypeError, "out_dtype: got <class 'numpy.int16'>"),
        ({"out_dtype": float}, TypeError, "out_dtype: got 'float64'; float16 operands give float16 or"),
        ({"accumulate": 16}, TypeError, "accumulate: got 16; it takes the name"),
        ({"accumulate": ["float16"]}, TypeError, "accumulate: got"),
        ({"accumulate": "bfloat16"}, TypeError, "accumulate: got 'bfloat16'; float16 operands accumulate in"),
        ({"precision": 1}, TypeError, "precision: got 1; it takes None, 'ieee'"),
        ({"precision": np.ones(2)}, TypeError, "precision: got"),
        ({"rung": 5}, TypeError, "rung: got 5; it takes a rung's name, such as rung='simt-naive'"),
        ({"rung": ["simt-naive"]}, TypeError, "rung: got"),
        ({"rung": "simt-nave"}, NotImplementedError, "Did you mean rung='simt-naive'.*list\\(warptile.rungs.RUNGS\\)"),
        ({"rung": "simt-naive", "config": {"BM": 100}}, ValueError, "it lacks BN.*takes BM, BN, such as rung="),
        ({"rung": "simt-naive", "config": {"BM": "8", "BN": 32}}, TypeError, "config: got 'BM': '8'"),
        ({"rung": "simt-naive", "config": {"BM": 8.0, "BN": 32}}, TypeError, "config: got 'BM': 8.0"),
        ({"rung": "simt-naive", "config": {"BM": [8], "BN": 32}}, TypeError, "config: got"),
        ({"rung": "simt-naive", "config": {1: 8}}, TypeError, "config: got 1: 8"),
        ({"rung": "simt-naive", "config": "BM=8"}, TypeError, "config: got 'BM=8'; it takes a mapping"),
        ({"config": {"BM": 100}}, ValueError, "config was given without a rung; name it"),
        ({"max_sms": 0}, ValueError, "max_sms is 0; it takes a whole number from 1 on, such as max_sms=120"),
        ({"max_sms": -3}, ValueError, "max_sms is -3"),
        ({"max_sms": 2.0}, TypeError, "max_sms is 2.0"),
        ({"max_sms": int}, TypeError, "max_sms is <class 'int'>"),
        ({"max_sms": np.ones(1, int)}, TypeError, "max_sms is array"),
        ({"max_sms": True}, TypeError, "max_sms is True"),
        ({"backend": 5}, NotImplementedError, "backend: got 5; it takes 'gpu', 'emulator'"),
        ({"backend": ""}, NotImplementedError, "backend: got ''"),
        ({"backend": np.ones(2)}, NotImplementedError, "backend: got"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_a_typed_error(function, options, error, words):
    with pytest.raises(wt.WarptileError, match=words) as caught:
        function(ones(4, 5), ones(5, 3), **{**EMULATOR, **options})
    assert isinstance(caught.value, error)


@pytest.mark.parametrize("value", [0.5, float("nan"), float("inf"), 2**31, -(2**31) - 1, 1e300])
def test_integers_take_factors_of_32_bits(value):
    a, b = ones(2, 3, dtype="int8"), ones(3, 2, dtype="int8")
    for name, c in (("alpha", None), ("beta", ones(2, 2, dtype="int32"))):
        with pytest.raises(wt.DTypeError, match=f"{name} is .*; with int32 accumulators it must be a whole number"):
            wt.plan(a, b, c, **{name: value}, **EMULATOR)


def test_a_factor_beyond_float32_is_infinite():
    d = wt.matmul(ones(2, 3, dtype="float32"), ones(3, 2, dtype="float32"), alpha=1e300, **EMULATOR)
    assert np.isposinf(d).all()


@pytest.mark.parametrize(
    "value", [2, 2.0, np.float16(2), np.int64(2), ml_dtypes.bfloat16(2), np.array(2), np.array([[2.0]])]
)
def test_factors_are_any_real_numbers(value):
    d = wt.matmul(ones(2, 3), ones(3, 2), ones(2, 2), alpha=value, beta=value, **EMULATOR)
    assert np.array_equal(d, np.full((2, 2), 8.0))


def test_factors_may_be_tensors_on_the_host():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    a = torch.ones(2, 2)
    assert torch.equal(wt.matmul(a, a, alpha=torch.tensor(3), **EMULATOR), torch.full((2, 2), 6.0))


@pytest.mark.parametrize(
    "given", ["float32", "f32", "fp32", np.float32, np.dtype("float32"), np.dtype("f4"), "torch.float32"]
)
def test_out_dtype_takes_names_and_dtypes_of_frameworks(given):
    if given == "torch.float32":
        given = pytest.importorskip("torch", reason="torch is not installed").float32
    assert wt.matmul(ones(2, 3), ones(3, 2), out_dtype=given, **EMULATOR).dtype == np.float32
    assert wt.plan(ones(2, 3), ones(3, 2), out_dtype=given, **EMULATOR).plan.problem.d.dtype.name == "float32"


def test_narrow_types_are_named_by_frameworks_too():
    torch = pytest.importorskip("torch", reason="torch is not installed")

    class JaxScalar:  # jax.numpy.bfloat16 is such an object
        dtype = np.dtype(ml_dtypes.bfloat16)

    for given in (ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16), torch.bfloat16, JaxScalar(), "bf16"):
        assert arrange(ones(2, 3), ones(3, 2), out_dtype=given).problem.d.dtype.name == "bfloat16"
    for given in (np.float16, torch.float16, "half"):
        assert arrange(ones(2, 3), ones(3, 2), accumulate=given).problem.accumulator.name == "float16"


# --- advice ----------------------------------------------------------------------------------------------------------


def advised(array, other=None, **names):
    """Follow the advice of matmul's error: run the call that it ends with."""
    b = array if other is None else other
    with pytest.raises(wt.DTypeError) as caught:
        wt.matmul(array, b, **EMULATOR)
    call = str(caught.value).rpartition(": ")[2]
    scope = {"a": array, "b": b, "matmul": lambda x, y: wt.matmul(x, y, **EMULATOR), **names}
    return eval(call, scope)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint16", ">i8"])
def test_wide_integers_are_told_what_holds_them(dtype):
    assert advised(np.full((2, 2), 3, dtype)).dtype == np.float64


def test_booleans_are_told_to_be_integers():
    assert advised(np.ones((2, 2), bool)).dtype == np.uint8


def test_complex_is_told_to_multiply_the_parts():
    a = np.full((2, 2), 1 + 2j, np.complex64)
    with pytest.raises(wt.DTypeError, match=r"there are no complex kernels.*matmul\(a.real, b.real\)"):
        wt.matmul(a, a, **EMULATOR)
    real = wt.matmul(a.real, a.real, **EMULATOR) - wt.matmul(a.imag, a.imag, **EMULATOR)
    assert np.array_equal(real, (a @ a).real)


@pytest.mark.parametrize(
    ("left", "right", "wide"),
    [
        ("float16", "float32", "float32"),
        ("float32", "float16", "float32"),
        ("float16", "bfloat16", "float32"),
        ("float64", "float32", "float64"),
        ("int8", "uint8", "float16"),
        ("int8", "float16", "float16"),
        ("bfloat16", "uint8", "bfloat16"),
        ("float8_e4m3fn", "float8_e5m2", "float16"),
        ("int32", "int8", "float64"),
    ],
)
def test_two_types_are_told_the_one_that_holds_both(left, right, wide):
    d = advised(ones(2, 3, dtype=left), ones(3, 2, dtype=right))
    assert d.dtype == wide
    assert np.array_equal(d.astype(np.float64), np.full((2, 2), 3.0))


@pytest.mark.parametrize("left", ["float16", "int64", "int32", "bool"])
def test_advice_for_torch_is_torchs(left):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    a, b = torch.ones(2, 2, dtype=getattr(torch, left)), torch.ones(2, 2)
    found = advised(a, b, torch=torch) if left in ("float16", "int32") else advised(a, torch=torch)
    assert isinstance(found, torch.Tensor)
    with pytest.raises(wt.DTypeError, match=r"c\.to\(torch\.float32\)"):
        wt.matmul(b, b, torch.ones(2, 2, dtype=torch.float16), **EMULATOR)
    with pytest.raises(wt.DTypeError, match=r"a\.to\(torch\.float16\)|w\.to\(torch\.float16\)"):
        wt.sparsify(torch.ones(2, 4, dtype=torch.float64))


def test_text_is_no_operand():
    with pytest.raises(wt.DTypeError, match=r"a: got element type str.*its elements are not numbers"):
        view(np.array(["x"]), "a")


# --- plans -----------------------------------------------------------------------------------------------------------


def test_a_plan_copies_nothing():
    huge = np.broadcast_to(np.float16(1), (2**20, 2**20))
    plan = wt.plan(huge, huge, np.float16(1).reshape(1, 1), out_dtype="float16", **EMULATOR)
    assert len(plan.copies) == 3
    assert (plan.plan.problem.m, plan.plan.problem.k) == (2**20, 2**20)


def test_a_plan_made_without_copies_takes_arrays_that_need_them():
    a, b, c = ones(5, 16)[:, ::2], ones(8, 6)[::-1], np.broadcast_to(np.float16(2), (5, 6))
    plan = wt.plan(a, b, c, **EMULATOR)
    assert len(plan.copies) == 2 + (plan.plan.problem.b.major == "row")
    assert np.array_equal(plan(a, b, c), np.full((5, 6), 10.0))
    assert np.array_equal(wt.matmul(a, b, c, **EMULATOR), np.full((5, 6), 10.0))


# --- out -------------------------------------------------------------------------------------------------------------


def strided(memory, shape, strides):
    return np.lib.stride_tricks.as_strided(memory, shape, tuple(4 * s for s in strides))


@pytest.mark.parametrize(
    ("shape", "strides", "shared"),
    [
        ((4, 3), (3, 1), False),
        ((4, 3), (0, 1), True),
        ((4, 3), (1, 1), True),
        ((4, 3), (2, 1), True),
        ((2, 3), (3, 2), False),
        ((3, 3), (3, 2), False),
        ((3, 4), (3, 2), True),
        ((1, 3), (0, 1), False),
        ((4, 3), (1, 4), False),
        ((2, 4, 3), (12, 3, 1), False),
        ((2, 4, 3), (0, 3, 1), True),
        ((0, 3), (0, 0), False),
    ],
)
def test_memory_shared_between_elements_of_out(shape, strides, shared):
    memory = np.zeros(64, np.float32)
    out = strided(memory, shape, strides)
    distinct = len({sum(i * s for i, s in zip(index, strides, strict=True)) for index in np.ndindex(*shape)})
    assert (distinct < out.size) == shared
    assert view(out, "out").overlaps_itself() == shared


def test_an_out_whose_elements_share_memory_is_refused():
    a, b = ones(4, 5, dtype="float32"), ones(5, 3, dtype="float32")
    with pytest.raises(
        wt.LayoutError, match=r"out: .*strides \(0, 1\) some of its elements share memory.*out.copy\(\)"
    ):
        wt.matmul(a, b, out=strided(np.zeros(3, np.float32), (4, 3), (0, 1)), **EMULATOR)


def test_a_negated_tensor_is_read_and_written():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    a, b = torch.randn(4, 8), torch.randn(8, 3)
    want = wt.matmul(a, b, **EMULATOR)
    assert torch.equal(wt.matmul(torch._neg_view(a), b, **EMULATOR), -want)
    out = torch._neg_view(torch.zeros(4, 3))
    assert wt.matmul(a, b, out=out, **EMULATOR) is out
    assert torch.equal(out, want)
    plan = wt.plan(a, b, torch._neg_view(want), **EMULATOR)
    assert "negative bit" in plan.explain()
    assert torch.equal(plan(a, b, torch._neg_view(want)), torch.zeros(4, 3))


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16])
def test_every_type_is_copied_where_it_has_to_be(dtype):
    generator = np.random.default_rng(0)
    a, b = generator.standard_normal((5, 8)).astype(dtype), generator.standard_normal((8, 6)).astype(dtype)
    d = wt.matmul(a[:, ::-1], b[::-1], **EMULATOR)
    assert np.array_equal(d, wt.matmul(a[:, ::-1].copy(), b[::-1].copy(), **EMULATOR))


# --- saturation ------------------------------------------------------------------------------------------------------


SCALES = ((1, 1), (-1, 1), (2**15, -1), (-(2**31), -(2**31)), (2**31 - 1, 2), (-(2**15), 2**31 - 1))


RUNGS = ("mma-naive", "mma-final", "wgmma-tma", "wgmma-final") if ALL else ("mma-final", "wgmma-final")


@pytest.mark.parametrize(("rung", "scales"), covering(RUNGS, (SCALES[::2], SCALES[1::2]), pairs=()))
def test_saturating_integers_saturate_with_c(rung, scales):
    a, b = np.full((16, 32), 127, np.int8), np.full((32, 16), 127, np.int8)
    total, ends = 32 * 127 * 127, np.iinfo(np.int32)
    c = np.full((16, 16), ends.max, np.int32)
    c[1], c[2], c[3] = ends.min, 5, -7
    options = {"accumulate": "int32_saturating", "rung": rung, **EMULATOR}
    for alpha, beta in scales:
        exact = [alpha * total + beta * int(value) for value in c[:, 0]]
        want = [max(ends.min, min(ends.max, value)) for value in exact]
        d = wt.matmul(a, b, c, alpha=alpha, beta=beta, **options)
        assert d[:, 0].tolist() == want
        assert (d == d[:, :1]).all()


def test_advice_for_out_runs_as_written():
    a, b = ones(4, 5), ones(5, 3)
    with pytest.raises(wt.ShapeError, match="out: got shape") as caught:
        wt.matmul(a, b, out=ones(3, 4), **EMULATOR)
    out = eval(str(caught.value).rpartition("out=")[2], {"numpy": np})
    assert wt.matmul(a, b, out=out, **EMULATOR) is out


def test_an_out_that_is_no_array_is_not_answered_with_a_copy_of_it():
    with pytest.raises(wt.DTypeError, match=r"out: got list, .*, leave out= away for a new one"):
        wt.matmul(ones(2, 3), ones(3, 2), out=[[0.0, 0.0]], **EMULATOR)
