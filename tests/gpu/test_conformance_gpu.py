"""The cases of tests/cpu/conformance/ on torch's and CuPy's arrays in GPU memory, by the kernels that are planned."""

import numpy as np
import pytest

import warptile as wt
from matmul_conformance import (
    LAYOUTS,
    MISMATCHED,
    SHAPES,
    TYPES,
    CupyArrays,
    Stored,
    TorchArrays,
    check,
    drawn,
    exact,
    multiply,
    multiply_in_place,
    multiply_into,
)  # fmt: skip


@pytest.fixture(params=["torch", "cupy"])
def arrays(request):
    found = pytest.importorskip(request.param)
    if request.param == "cupy":
        return CupyArrays(found)
    if not found.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return TorchArrays(found, "cuda")


def skip_unless_stored(arrays, dtype, *layouts):
    if "reversed" in layouts and not arrays.negative_strides:
        pytest.skip("torch has no negative strides")
    try:
        arrays.array(drawn((2,), dtype, 0))
    except (TypeError, ValueError):
        pytest.skip(f"this {arrays.name} has no {dtype}")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes(arrays, shapes, dtype):
    skip_unless_stored(arrays, dtype)
    multiply(arrays, Stored(shapes[0]), Stored(shapes[1]), dtype)


@pytest.mark.parametrize("shapes", MISMATCHED, ids=str)
def test_shapes_that_do_not_multiply_are_value_errors(arrays, shapes):
    a, b = (Stored(shape).of(arrays, "float32") for shape in shapes)
    with pytest.raises(wt.ShapeError):
        wt.matmul(a, b)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shapes", [((4, 5), (5, 3)), ((2, 4, 5), (2, 5, 3)), ((2, 1, 4, 5), (3, 5, 3))], ids=str)
def test_layouts(arrays, shapes, dtype, layout):
    skip_unless_stored(arrays, dtype, layout)
    for _ in range(2):  # the second call is a bound one, where calls on such operands are bound
        multiply(arrays, Stored(shapes[0], layout), Stored(shapes[1], layout), dtype)


@pytest.mark.parametrize("of_b", LAYOUTS)
@pytest.mark.parametrize("of_a", LAYOUTS)
def test_layouts_of_matrices(arrays, of_a, of_b):
    skip_unless_stored(arrays, "float16", of_a, of_b)
    multiply(arrays, Stored((4, 5), of_a), Stored((5, 3), of_b), "float16")


@pytest.mark.parametrize("layout", ["steps", "reversed", "repeated"])
@pytest.mark.parametrize("shapes", [((5,), (5,)), ((5,), (5, 3)), ((4, 5), (5,))], ids=str)
def test_layouts_of_vectors(arrays, shapes, layout):
    skip_unless_stored(arrays, "float32", layout)
    multiply(arrays, Stored(shapes[0], layout), Stored(shapes[1], layout), "float32")


@pytest.mark.parametrize("layout", ["rows", "columns", "gaps", "steps", "swapped", "reversed"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_out_in_any_layout(arrays, dtype, layout):
    skip_unless_stored(arrays, dtype, layout)
    for _ in range(2):
        multiply_into(arrays, layout, dtype)


@pytest.mark.parametrize("shared", ["a", "b", "both", "transposed", "shifted"])
def test_out_may_share_memory_with_operands(arrays, shared):
    multiply_in_place(arrays, shared)


def test_an_out_of_another_shape_or_type_is_refused(arrays):
    a, b = Stored((4, 5)).of(arrays, "float32"), Stored((5, 3)).of(arrays, "float32")
    with pytest.raises(wt.ShapeError, match="out: got shape"):
        wt.matmul(a, b, out=Stored((3, 4)).of(arrays, "float32"))
    with pytest.raises(wt.DTypeError, match="out: got"):
        wt.matmul(a, b, out=Stored((4, 3)).of(arrays, "float64"))


def test_negative_bits_are_resolved():
    torch = pytest.importorskip("torch")
    arrays = TorchArrays(torch, "cuda")
    a, b = Stored((4, 4)).of(arrays, "float32"), Stored((4, 4)).of(arrays, "float32", seed=5)
    check(arrays, wt.matmul(torch._neg_view(a), b), -exact(arrays, a, b), "float32")


@pytest.mark.parametrize("device_type", ["cpu", "cuda"])
def test_arrays_of_two_frameworks_on_one_gpu_are_refused(device_type):
    torch, cupy = pytest.importorskip("torch"), pytest.importorskip("cupy")
    a, b = cupy.ones((3, 3), np.float32), torch.ones(3, 3, device=device_type)
    words = "a is a CuPy array and b is a torch tensor" if device_type == "cuda" else "both must be in one place"
    with pytest.raises(wt.LayoutError, match=words) as caught:
        wt.matmul(a, b)
    converted = eval(str(caught.value).rpartition("such as ")[2], {"cupy": cupy, "torch": torch, "b": b})
    assert cupy.all(wt.matmul(a, converted) == 3)
