"""`warptile.matmul` means what the array API standard, NumPy and torch say ``matmul`` means; docs/conformance.md says
where it does not. The cases are in `matmul_conformance`."""

import numpy as np
import pytest

import warptile as wt
from covering import covering
from matmul_conformance import (
    LAYOUTS,
    MISMATCHED,
    SHAPES,
    TYPES,
    NumpyArrays,
    Stored,
    TorchArrays,
    check,
    contiguous_strides,
    drawn,
    exact,
    installed_torch,
    multiply,
    multiply_in_place,
    multiply_into,
)  # fmt: skip
from warptile.arrays.operands import OUTPUTS
from warptile.dtypes import DTYPES

NAIVE = {"backend": "emulator", "rung": "simt-naive"}
"""What arrays mean does not depend on the kernel: this one compiles fastest."""


@pytest.fixture(params=["numpy", "torch"])
def arrays(request, monkeypatch):
    monkeypatch.setenv("WARPTILE_BACKEND", "emulator")
    return NumpyArrays() if request.param == "numpy" else TorchArrays(installed_torch())


def options(dtype):
    """The fastest to compile of the kernels that take a type."""
    return NAIVE if dtype in ("float16", "float32", "float64", "int8") else {"backend": "emulator"}


# --- shapes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes(arrays, shapes):
    multiply(arrays, Stored(shapes[0]), Stored(shapes[1]), "float32", **NAIVE)


FEW_SHAPES = [
    ((5,), (5,)), ((5,), (5, 3)), ((4, 5), (5,)), ((2, 1, 4, 5), (3, 5, 3)), ((4, 0), (0, 3)), ((0, 4, 5), (5, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("shapes", "dtype"), covering(FEW_SHAPES, TYPES, pairs=()), ids=str)
def test_shapes_of_every_type(arrays, shapes, dtype):
    multiply(arrays, Stored(shapes[0]), Stored(shapes[1]), dtype, **options(dtype))


@pytest.mark.parametrize("shapes", MISMATCHED, ids=str)
def test_shapes_that_do_not_multiply_are_value_errors(arrays, shapes):
    a, b = (Stored(shape).of(arrays, "float32") for shape in shapes)
    with pytest.raises(ValueError) as caught:  # noqa: PT011  (NumPy's type; the next line says more)
        wt.matmul(a, b, **NAIVE)
    assert isinstance(caught.value, wt.ShapeError)


@pytest.mark.parametrize("scalar", [2, 2.0, np.float32(2), np.ones((), np.float32), True, 2j], ids=repr)
def test_scalars_are_refused_on_either_side(scalar):
    b = np.ones((5, 3), np.float32)
    for pair in ((scalar, b), (b, scalar), (scalar, scalar)):
        with pytest.raises((wt.ShapeError, wt.DTypeError)):
            wt.matmul(*pair, **NAIVE)


def test_two_vectors_give_what_the_framework_calls_a_scalar(arrays):
    d = wt.matmul(Stored((5,)).of(arrays, "float32"), Stored((5,)).of(arrays, "float32"), **NAIVE)
    assert tuple(d.shape) == ()
    assert isinstance(d, np.float32) == (arrays.name == "numpy")
    assert float(d) == int(d)


# --- layouts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("of_a", "of_b"), covering(LAYOUTS, LAYOUTS, pairs=()))
def test_layouts_of_matrices(arrays, of_a, of_b):
    if "reversed" in (of_a, of_b) and not arrays.negative_strides:
        pytest.skip("torch has no negative strides")
    multiply(arrays, Stored((4, 5), of_a), Stored((5, 3), of_b), "float32", **NAIVE)


@pytest.mark.parametrize(("dtype", "layout"), covering(TYPES, LAYOUTS, pairs=()))
def test_layouts_of_every_type(arrays, dtype, layout):
    if layout == "reversed" and not arrays.negative_strides:
        pytest.skip("torch has no negative strides")
    multiply(arrays, Stored((4, 5), layout), Stored((5, 3), layout), dtype, **options(dtype))


@pytest.mark.parametrize(
    ("shapes", "layout"),
    covering([((2, 4, 5), (2, 5, 3)), ((2, 1, 4, 5), (3, 5, 3)), ((5,), (2, 5, 3))], LAYOUTS, pairs=()),
    ids=str,
)
def test_layouts_of_stacks(arrays, shapes, layout):
    if layout == "reversed" and not arrays.negative_strides:
        pytest.skip("torch has no negative strides")
    if layout == "columns" and len(shapes[0]) == 1:
        pytest.skip("a vector has one order")
    multiply(arrays, Stored(shapes[0], layout), Stored(shapes[1], layout), "float32", **NAIVE)


@pytest.mark.parametrize("layout", ["steps", "reversed", "repeated"])
@pytest.mark.parametrize("shapes", [((5,), (5,)), ((5,), (5, 3)), ((4, 5), (5,))], ids=str)
def test_layouts_of_vectors(arrays, shapes, layout):
    if layout == "reversed" and not arrays.negative_strides:
        pytest.skip("torch has no negative strides")
    multiply(arrays, Stored(shapes[0], layout), Stored(shapes[1], layout), "float32", **NAIVE)


def test_a_scalar_that_is_expanded_to_a_matrix(arrays):
    memory = arrays.array(drawn((1,), "float32", 0))
    a, b = arrays.strided(memory, (4, 5), (0, 0)), arrays.strided(memory, (5, 3), (0, 0))
    check(arrays, wt.matmul(a, b, **NAIVE), exact(arrays, a, b), "float32")


def test_operands_that_share_memory(arrays):
    a = Stored((4, 4)).of(arrays, "float32")
    transposed = arrays.strided(a, (4, 4), (1, 4))
    for pair in ((a, a), (a, transposed), (transposed, a)):
        check(arrays, wt.matmul(*pair, **NAIVE), exact(arrays, *pair), "float32")


# --- out -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["rows", "columns", "gaps", "steps", "swapped", "reversed"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_out_in_any_layout(arrays, dtype, layout):
    if layout == "reversed" and not arrays.negative_strides:
        pytest.skip("torch has no negative strides")
    multiply_into(arrays, layout, dtype, **options(dtype))


@pytest.mark.parametrize("shared", ["a", "b", "both", "transposed", "shifted"])
def test_out_may_share_memory_with_operands(arrays, shared):
    multiply_in_place(arrays, shared, **NAIVE)


@pytest.mark.parametrize("shape", [(4, 4), (3, 4), (2, 4, 3), (1, 4, 3), (12,), (0,), ()], ids=str)
def test_an_out_of_another_shape_is_refused(arrays, shape):
    """NumPy broadcasts the operands to a larger ``out``; torch resizes it, and warns."""
    a, b = Stored((4, 5)).of(arrays, "float32"), Stored((5, 3)).of(arrays, "float32")
    with pytest.raises(wt.ShapeError, match=r"out: got shape .* such as out="):
        wt.matmul(a, b, out=Stored(shape).of(arrays, "float32"), **NAIVE)


@pytest.mark.parametrize("output", ["float64", "float16", "int8"])
def test_an_out_of_another_type_is_refused(arrays, output):
    a, b = Stored((4, 5)).of(arrays, "float32"), Stored((5, 3)).of(arrays, "float32")
    with pytest.raises(wt.DTypeError, match="out: got"):
        wt.matmul(a, b, out=Stored((4, 3)).of(arrays, output), **NAIVE)


def test_an_out_is_untouched_where_the_call_is_refused(arrays):
    a, out = Stored((4, 5)).of(arrays, "float32"), Stored((4, 3)).of(arrays, "float32")
    before = arrays.numpy(out).copy()
    with pytest.raises(wt.ShapeError):
        wt.matmul(a, Stored((4, 3)).of(arrays, "float32"), out=out, **NAIVE)
    assert np.array_equal(arrays.numpy(out), before)


def test_a_read_only_out_is_refused():
    a, out = np.ones((3, 3), np.float32), np.ones((3, 3), np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        wt.matmul(a, a, out=out, **NAIVE)


# --- types -----------------------------------------------------------------------------------------------------------


def test_types_are_not_promoted(arrays):
    """The standard leaves mixed kinds undefined and promotes within a kind; a GEMM has one type of operands."""
    for one in TYPES:
        for other in TYPES:
            a, b = Stored((4, 5)).of(arrays, one), Stored((5, 3)).of(arrays, other)
            if one != other:
                with pytest.raises(TypeError, match="both operands need one type, such as"):
                    wt.matmul(a, b, **options(one))


def test_result_types_are_those_of_the_documented_table():
    assert {name: OUTPUTS[name][0] for name in TYPES} == {
        "float16": "float16", "bfloat16": "bfloat16", "float32": "float32", "float64": "float64",
        "float8_e4m3": "bfloat16", "float8_e5m2": "bfloat16", "int8": "int32", "uint8": "int32",
    }  # fmt: skip


@pytest.mark.parametrize("dtype", ["bool", "int16", "uint16", "int32", "int64", "uint64", "complex64", "complex128",
                                   "longdouble", "object", "U3", "M8[s]"])  # fmt: skip
def test_types_without_a_kernel_are_type_errors(dtype):
    a = np.ones((3, 3)).astype(dtype) if dtype != "M8[s]" else np.zeros((3, 3), dtype)
    with pytest.raises(TypeError, match=r"a(, b)?: got"):
        wt.matmul(a, a, **NAIVE)


def test_integers_are_summed_in_32_bits(arrays):
    a = arrays.array(np.full((2, 16), 127, np.int8))
    d = wt.matmul(a, arrays.array(np.full((16, 2), -128, np.int8)), **NAIVE)
    assert np.all(arrays.numpy(d) == -128 * 127 * 16)


def test_infinities_and_nans_propagate_as_in_ieee_arithmetic(arrays):
    a = np.array([[0, np.inf, 1], [1, 1, np.nan], [np.inf, -np.inf, 0], [1e38, 1e38, 0]], np.float32)
    b = np.array([[1, np.inf], [2, 1], [4, 1]], np.float32)
    with np.errstate(all="ignore"):
        expected = a @ b
    found = arrays.numpy(wt.matmul(arrays.array(a), arrays.array(b), **NAIVE))
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    assert np.array_equal(found[~np.isnan(found)], expected[~np.isnan(expected)])


# --- NumPy's classes -------------------------------------------------------------------------------------------------


class Labeled(np.ndarray):
    """A subclass that adds nothing."""


@pytest.mark.parametrize("kind", [np.matrix, Labeled, np.memmap], ids=lambda kind: kind.__name__)
def test_subclasses_are_read_as_arrays_and_give_arrays(kind, tmp_path):
    if kind is np.memmap:
        a = np.memmap(tmp_path / "a", np.float32, "w+", shape=(4, 5))
        a[:] = drawn((4, 5), "float32", 0)
    else:
        a = drawn((4, 5), "float32", 0).view(kind)
    b = drawn((5, 3), "float32", 1)
    d = wt.matmul(a, b, **NAIVE)
    assert type(d) is np.ndarray
    assert np.array_equal(d, np.asarray(a) @ b)


def test_a_mask_is_not_dropped_silently():
    a = np.ma.masked_array(np.ones((3, 3), np.float32), mask=np.eye(3))
    for pair in ((a, np.ones((3, 3), np.float32)), (np.ones((3, 3), np.float32), a)):
        with pytest.raises(wt.LayoutError, match=r"got a masked array.*\.filled\(0\)"):
            wt.matmul(*pair, **NAIVE)
    assert wt.matmul(a.filled(0), np.ones((3, 3), np.float32), **NAIVE)[0, 0] == 2


def test_numpys_own_functions_stay_numpys(monkeypatch):
    import warptile.api as api

    monkeypatch.setattr(api, "_matmul", lambda *given, **named: pytest.fail("warptile was called"))
    a = np.ones((3, 3), np.float32)
    before = np.matmul, np.dot, np.ndarray.__matmul__, np.ndarray.__array_function__, np.ndarray.__array_ufunc__
    assert np.array_equal(np.matmul(a, a), a @ a)
    assert np.array_equal(np.dot(a, a), np.einsum("ij,jk", a, a))
    now = np.matmul, np.dot, np.ndarray.__matmul__, np.ndarray.__array_function__, np.ndarray.__array_ufunc__
    assert all(one is other or one == other for one, other in zip(before, now, strict=True))
    assert type(np.matmul) is np.ufunc


# --- torch -----------------------------------------------------------------------------------------------------------


class TestTorch:
    @pytest.fixture
    def torch(self, monkeypatch):
        monkeypatch.setenv("WARPTILE_BACKEND", "emulator")
        return installed_torch()

    @pytest.mark.parametrize(
        ("function", "shapes"),
        [("dot", ((5,), (5,))), ("mv", ((4, 5), (5,))), ("mm", ((4, 5), (5, 3))), ("bmm", ((2, 4, 5), (2, 5, 3)))],
    )
    def test_it_is_dot_mv_mm_and_bmm(self, torch, function, shapes):
        arrays = TorchArrays(torch)
        a, b = (Stored(shape).of(arrays, "float32", seed=seed) for seed, shape in enumerate(shapes))
        assert torch.equal(wt.matmul(a, b, **NAIVE), getattr(torch, function)(a, b))

    @pytest.mark.parametrize("side", ["a", "b", "both", "out"])
    def test_negative_bits_are_resolved(self, torch, side):
        arrays = TorchArrays(torch)
        a, b = Stored((4, 4)).of(arrays, "float32"), Stored((4, 4)).of(arrays, "float32", seed=5)
        expected = exact(arrays, a, b)
        if side == "out":
            out = torch._neg_view(torch.empty(4, 4))
            assert wt.matmul(a, b, out=out, **NAIVE) is out
            assert np.array_equal(arrays.numpy(out), expected)
            return
        left = torch._neg_view(a) if side in ("a", "both") else a
        right = torch._neg_view(b) if side in ("b", "both") else b
        sign = 1 if side == "both" else -1
        assert np.array_equal(arrays.numpy(wt.matmul(left, right, **NAIVE)), sign * expected)

    def test_conjugates_are_refused_as_all_complex_tensors_are(self, torch):
        a = torch.ones(3, 3, dtype=torch.complex64)
        with pytest.raises(TypeError, match="complex"):
            wt.matmul(a.conj(), a, **NAIVE)
        parts = a.conj().imag
        assert torch.equal(wt.matmul(parts, parts, **NAIVE), parts @ parts)

    def test_tensors_without_strides_or_memory_are_refused(self, torch):
        for given in (torch.eye(3).to_sparse(), torch.empty(3, 3, device="meta")):
            with pytest.raises(wt.LayoutError, match="it takes strided tensors on cpu or cuda"):
                wt.matmul(given, torch.ones(3, 3), **NAIVE)

    def test_an_out_of_the_wrong_size_is_not_resized(self, torch):
        out = torch.empty(0)
        with pytest.raises(wt.ShapeError):
            wt.matmul(torch.ones(3, 3), torch.ones(3, 3), out=out, **NAIVE)
        assert out.shape == (0,)


# --- frameworks together ---------------------------------------------------------------------------------------------


def frameworks():
    """Names and constructors of the frameworks that are installed, of float32 arrays from NumPy's."""
    found = {"NumPy array": np.array}
    try:
        import torch

        found["torch tensor"] = torch.tensor
    except ImportError:
        pass
    try:
        import jax.numpy

        found["JAX array"] = jax.numpy.array
    except ImportError:
        pass
    return found


NAMES = ["NumPy array", "torch tensor", "JAX array"]


@pytest.mark.parametrize("place", ["b", "c", "out"])
@pytest.mark.parametrize(("one", "other"), [(one, other) for one in NAMES for other in NAMES if one != other])
def test_arrays_of_two_frameworks_are_refused(one, other, place):
    made = frameworks()
    if not {one, other} <= set(made):
        pytest.skip(f"needs {one}s and {other}s")
    values = drawn((3, 3), "float32", 0)
    operands = [made[one](values), made[one](values)]
    options: dict = dict(NAIVE)
    if place == "b":
        operands[1] = made[other](values)
    elif place == "c":
        operands.append(made[other](values))
    else:
        options["out"] = made[other](values)
    with pytest.raises(wt.LayoutError, match=rf"a is a {one} and {place} is a {other}; .*, such as ") as caught:
        wt.matmul(*operands, **options)
    advice = str(caught.value).rpartition("such as ")[2]
    known = {"numpy": np, place: made[other](values)}
    for name in ("torch", "jax"):
        if name in advice:
            known[name] = __import__(name)
    converted = eval(advice, known)
    if place == "b":
        assert wt.matmul(operands[0], converted, **NAIVE).shape == (3, 3)
    assert type(converted) is type(made[one](values))


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3", "int8"])
@pytest.mark.parametrize("first", ["numpy", "torch"])
def test_the_advice_runs_for_types_that_the_frameworks_exchange_differently(first, dtype):
    torch = installed_torch()
    one, other = NumpyArrays(), TorchArrays(torch)
    if first == "torch":
        one, other = other, one
    a, b = Stored((4, 5)).of(one, dtype), Stored((5, 3)).of(other, dtype)
    with pytest.raises(wt.LayoutError) as caught:
        wt.matmul(a, b, backend="emulator")
    converted = eval(str(caught.value).rpartition("such as ")[2], {"torch": torch, "numpy": np, "b": b})
    check(one, wt.matmul(a, converted, **options(dtype)), exact(one, a, converted), dtype)


@pytest.mark.parametrize(
    "operand",
    [[[1.0]], ((1.0,),), memoryview(np.ones((1, 1), np.float32)), b"\0\0\0\0", None, "a", range(3)],
    ids=lambda operand: type(operand).__name__,
)
def test_what_is_no_array_is_a_type_error_that_names_it(operand):
    a = np.ones((1, 1), np.float32)
    for pair in ((operand, a), (a, operand)):
        with pytest.raises(TypeError, match=f"got {type(operand).__name__}, which is not an array; .* such as numpy"):
            wt.matmul(*pair, **NAIVE)
    if operand is not None:
        with pytest.raises(TypeError, match=f"out: got {type(operand).__name__}"):
            wt.matmul(a, a, out=operand, **NAIVE)


def test_the_cases_are_stored_as_they_say():
    """The cases' own layouts: what `Stored` makes has the strides that its name says."""
    arrays = NumpyArrays()
    elements = {layout: Stored((2, 4, 5), layout).of(arrays, "int8").strides for layout in LAYOUTS}
    assert elements == {
        "rows": (20, 5, 1), "columns": (20, 1, 4), "gaps": (32, 8, 1), "steps": (80, 20, 2), "reversed": (-20, -5, -1),
        "repeated": (0, 0, 1), "overlapping": (1, 1, 1), "swapped": (1, 2, 8), "offset": (20, 5, 1),
    }  # fmt: skip
    assert contiguous_strides((2, 4, 5)) == (20, 5, 1)
    assert Stored((4, 5), "offset").of(arrays, "float64").ctypes.data % 16 == 8
    assert set(TYPES) == {name for name in OUTPUTS if DTYPES[name].numpy and name != "tfloat32"}
