"""User arrays as views, and what becomes of them as operands."""

import sys
from types import ModuleType

import ml_dtypes
import numpy as np
import pytest

from warptile.arrays import array_view
from warptile.arrays.operands import arrange
from warptile.arrays.options import scale_factor
from warptile.errors import DTypeError, LayoutError, ShapeError, UnsupportedError


def test_a_numpy_view_says_where_and_how():
    base = np.zeros((6, 10), np.float32)
    seen = array_view.view(base[1::2, 2:9], "a")
    assert seen.pointer == base.ctypes.data + (1 * 10 + 2) * 4
    assert (seen.shape, seen.strides, seen.dtype.name) == ((3, 7), (20, 1), "float32")
    assert (seen.device, seen.framework, seen.read_only) == (None, "numpy", False)


def test_bfloat16_is_an_element_type():
    assert array_view.view(np.zeros(3, ml_dtypes.bfloat16), "a").dtype.name == "bfloat16"


def test_host_bytes_are_the_memory_itself():
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    window = array_view.host_bytes(array_view.view(base[1:3, 2:5], "a"))
    assert window.size == (6 + 3) * 4
    window[:4] = np.array([-1], np.float32).view(np.uint8)
    assert base[1, 2] == -1
    backwards = array_view.host_bytes(array_view.view(base[::-1], "a"))
    assert backwards.size == base.nbytes
    assert backwards.ctypes.data == base.ctypes.data
    assert array_view.host_bytes(array_view.view(base[:0], "a")).size == 0


@pytest.mark.parametrize(
    ("array", "words"),
    [
        ([[1.0]], "list, which is not an array"),
        (np.zeros(3, np.complex64), "complex64"),
        (np.zeros(3, np.int64), "int64"),
        (np.zeros(3, ">f4"), "byte order"),
        (3.0, "float, which is not an array"),
    ],
)
def test_what_is_no_operand_is_named(array, words):
    with pytest.raises(DTypeError, match=words) as caught:
        array_view.view(array, "left")
    assert "left" in str(caught.value)


@pytest.mark.parametrize(
    ("storage", "name"), [(ml_dtypes.float8_e4m3fn, "float8_e4m3"), (ml_dtypes.float8_e5m2, "float8_e5m2")]
)
def test_float8_is_an_element_type(storage, name):
    assert array_view.view(np.zeros(3, storage), "a").dtype.name == name


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3, ml_dtypes.float8_e4m3b11fnuz, ml_dtypes.int4])
def test_types_that_come_later_are_refused_as_such(dtype):
    with pytest.raises(UnsupportedError, match=r"a: got element type .*not available yet"):
        array_view.view(np.zeros(4, dtype), "a")


def test_memory_that_strides_cannot_describe_is_refused():
    records = np.zeros(4, np.dtype([("x", np.float32), ("y", np.uint8)]))
    with pytest.raises(LayoutError, match="no multiples"):
        array_view.view(records["x"], "a")
    shifted = np.zeros(17, np.uint8)[1:].view(np.float32)
    with pytest.raises(LayoutError, match="address"):
        array_view.view(shifted, "a")


def test_broadcasting_sets_strides_to_zero():
    seen = array_view.view(np.zeros((3, 1, 5), np.float32), "c").broadcast((2, 3, 4, 5))
    assert (seen.shape, seen.strides[:1], seen.strides[2]) == ((2, 3, 4, 5), (0,), 0)
    with pytest.raises(ShapeError, match=r"c: shape \(3, 5\) does not broadcast to \(3, 4\)"):
        array_view.view(np.zeros((3, 5), np.float32), "c").broadcast((3, 4))
    with pytest.raises(ShapeError, match="does not broadcast"):
        array_view.view(np.zeros((1, 3, 5), np.float32), "c").broadcast((3, 5))


def test_overlap_is_judged_by_bytes():
    base = np.zeros((4, 4), np.float32)
    top, bottom = array_view.view(base[:2], "a"), array_view.view(base[2:], "b")
    assert not top.overlaps(bottom)
    assert top.overlaps(array_view.view(base[1:3], "c"))
    assert array_view.view(base[::-1], "a").overlaps(bottom)


@pytest.mark.parametrize("dtype", [np.float16, np.int8, ml_dtypes.bfloat16])
def test_a_contiguous_copy_has_the_same_elements(dtype):
    base = np.arange(60).reshape(3, 4, 5).astype(dtype)
    for array in (base.transpose(0, 2, 1), base[:, ::-2], base[0, :1]):
        copy = array_view.contiguous(array_view.view(array, "a"))
        assert np.array_equal(copy.array, array)
        assert copy.strides == array_view.row_major(array.shape)


class FakeDeviceArray:
    """Has the CUDA array interface; its memory is never touched."""

    dtype = np.dtype(np.float16)

    def __init__(self, strides=None, stream=None):
        self.__cuda_array_interface__ = {
            "shape": (4, 6), "typestr": "<f2", "data": (0x7000, False), "strides": strides, "stream": stream,
            "version": 3,
        }  # fmt: skip


def test_the_cuda_array_interface_is_read():
    seen = array_view.view(FakeDeviceArray(), "a")
    assert (seen.pointer, seen.shape, seen.strides, seen.device) == (0x7000, (4, 6), (6, 1), 0)
    assert array_view.view(FakeDeviceArray(strides=(2, 8), stream=7), "a").strides == (1, 4)
    assert array_view.view(FakeDeviceArray(stream=7), "a").stream == 7
    with pytest.raises(UnsupportedError, match="out="):
        array_view.empty(seen, (4, 4), seen.dtype)
    with pytest.raises(LayoutError, match="row-major"):
        array_view.contiguous(seen)


def test_jax_arrays_are_read_through_numpy(monkeypatch):
    class Array:
        __module__ = "jax"

        def __init__(self, content):
            self.content = content

        def __array__(self, dtype=None, copy=None):
            return self.content

    jax = ModuleType("jax")
    jax.numpy = ModuleType("jax.numpy")
    jax.numpy.asarray = Array
    monkeypatch.setitem(sys.modules, "jax", jax)
    seen = array_view.view(Array(np.ones((2, 3), np.float32)), "a")
    assert (seen.framework, seen.shape, seen.read_only) == ("jax", (2, 3), True)
    back = array_view.returned(array_view.empty(seen, (2, 2), seen.dtype), seen)
    assert type(back) is Array


class TestTorch:
    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch", reason="torch is not installed")

    def test_views(self, torch):
        base = torch.zeros(4, 6, dtype=torch.bfloat16)
        seen = array_view.view(base.T, "a")
        assert (seen.pointer, seen.shape, seen.strides) == (base.data_ptr(), (6, 4), (1, 6))
        assert (seen.dtype.name, seen.device) == ("bfloat16", None)

    def test_a_gradient_is_not_lost_silently(self, torch):
        weight = torch.zeros(4, 6, requires_grad=True)
        with pytest.raises(UnsupportedError, match="no_grad"):
            array_view.view(weight, "b")
        with torch.no_grad():
            assert array_view.view(weight, "b").shape == (4, 6)

    def test_sparse_is_refused(self, torch):
        with pytest.raises(LayoutError, match="to_dense"):
            array_view.view(torch.eye(3).to_sparse(), "a")


# --- as operands -----------------------------------------------------------------------------------------------------


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def test_an_operand_by_rows_is_used_in_place():
    a, b = zeros(5, 40)[:, 3:20], zeros(17, 9)
    product = arrange(a, b)
    assert (product.problem.m, product.problem.n, product.problem.k) == (5, 9, 17)
    assert product.a.pointer == a.ctypes.data
    assert (product.problem.a.leading_dimension, product.problem.b.leading_dimension) == (40, 9)
    assert product.copies == ()


def test_a_transposed_b_is_used_in_place_by_columns():
    weight = zeros(9, 17)
    product = arrange(zeros(5, 17), weight.T)
    assert (product.problem.b.major, product.problem.b.leading_dimension) == ("col", 17)
    assert product.b.pointer == weight.ctypes.data
    assert product.copies == ()


@pytest.mark.parametrize(
    ("a", "words"),
    [
        (zeros(17, 5).T, "a (5 x 17) is stored by columns"),
        (zeros(5, 34)[:, ::2], "strides (34, 2)"),
        (zeros(5, 17)[::-1], "strides (-17, 1)"),
        (np.broadcast_to(zeros(17), (5, 17)), "strides (0, 1)"),
    ],
)
def test_any_other_a_is_copied_once_and_said_so(a, words):
    product = arrange(a, zeros(17, 9)).with_row_major_a()
    assert len(product.copies) == 1
    assert words in product.copies[0]
    assert "340 bytes" in product.copies[0]
    assert product.problem.a.leading_dimension == 17


def test_an_a_by_columns_is_used_in_place():
    stored = zeros(17, 6)[:, 1:]
    product = arrange(stored.T, zeros(17, 9))
    assert (product.problem.a.major, product.problem.a.leading_dimension) == ("col", 6)
    assert product.problem.a.alignment_bytes == 4
    assert product.a.pointer == stored.ctypes.data
    assert product.copies == ()
    assert arrange(zeros(5, 17), zeros(17, 9)).problem.a.major == "row"
    strided = arrange(zeros(5, 34)[:, ::2], zeros(17, 9))
    assert strided.problem.a.major == "row"
    assert "the kernels read it by rows or by columns" in strided.copies[0]


def test_a_kernel_that_reads_a_by_rows_gets_a_copy_of_an_a_by_columns():
    stored = np.arange(17 * 6, dtype=np.float32).reshape(17, 6)
    product = arrange(stored.T, zeros(17, 9))
    by_rows = product.with_row_major_a()
    assert (by_rows.problem.a.major, by_rows.problem.a.leading_dimension) == ("row", 17)
    assert by_rows.a.pointer != stored.ctypes.data
    assert len(by_rows.copies) == 1
    assert by_rows.with_row_major_a() is by_rows
    assert (by_rows.b, by_rows.target) == (product.b, product.target)


@pytest.mark.parametrize(("column", "alignment"), [(0, 16), (1, 2), (2, 4), (4, 8), (8, 16)])
def test_alignment_follows_address_and_rows(column, alignment):
    base = zeros(8, 64, dtype=np.float16)
    assert base.ctypes.data % 16 == 0
    product = arrange(base[:, column : column + 16], zeros(16, 8, dtype=np.float16))
    assert product.problem.a.alignment_bytes == alignment


def test_alignment_of_one_row_is_that_of_its_address():
    assert arrange(zeros(1, 97), zeros(97, 8)).problem.a.alignment_bytes == 16
    assert arrange(zeros(2, 97), zeros(97, 8)).problem.a.alignment_bytes == 4


@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [
        ((5,), (5,)),
        ((5,), (5, 3)),
        ((4, 5), (5,)),
        ((2, 4, 5), (5, 3)),
        ((2, 4, 5), (2, 5, 3)),
        ((4, 5), (7, 5, 3)),
        ((6, 1, 4, 5), (7, 5, 3)),
        ((6, 7, 4, 5), (5,)),
        ((5,), (7, 5, 3)),
        ((0, 5), (5, 3)),
        ((4, 0), (0, 3)),
        ((3, 0, 4, 5), (5, 2)),
    ],
)
def test_shapes_follow_the_array_api(a_shape, b_shape):
    a, b = zeros(*a_shape), zeros(*b_shape)
    product = arrange(a, b)
    want = (a @ b).shape
    assert product.result_shape == want
    result = array_view.empty(product.like, want, product.problem.d.dtype)
    matrices = product.as_matrices(result)
    assert matrices.shape == (*product.batch, product.problem.m, product.problem.n)
    assert matrices.size == result.size


@pytest.mark.parametrize(
    ("a_shape", "b_shape", "words"),
    [
        ((4, 5), (4, 3), "last axis of a .5."),
        ((4, 5), (3, 5), "b.T"),
        ((5,), (4,), "only axis of b .4."),
        ((2, 4, 5), (3, 5, 6), "do not broadcast"),
        ((), (5,), "scalar"),
    ],
)
def test_shapes_that_do_not_multiply_are_named(a_shape, b_shape, words):
    with pytest.raises(ShapeError, match=words):
        arrange(zeros(*a_shape), zeros(*b_shape))


def test_types_that_do_not_go_together_are_named():
    with pytest.raises(DTypeError, match=r"a is float16 and b is float32.*matmul\(a.astype\('float32'\), b\)"):
        arrange(zeros(2, 2, dtype=np.float16), zeros(2, 2))
    with pytest.raises(DTypeError, match="precision: got 'high'"):
        arrange(zeros(2, 2), zeros(2, 2), precision="high")
    with pytest.raises(DTypeError, match=r"tf32.*float64"):
        arrange(zeros(2, 2, dtype=np.float64), zeros(2, 2, dtype=np.float64), precision="tf32")
    with pytest.raises(DTypeError, match="accumulate: got 'float16'; float32 operands accumulate in float32"):
        arrange(zeros(2, 2), zeros(2, 2), accumulate="float16")
    with pytest.raises(DTypeError, match="out_dtype: got 'float16'; float32 operands give float32"):
        arrange(zeros(2, 2), zeros(2, 2), out_dtype="float16")
    with pytest.raises(DTypeError, match="out_dtype: got 'float64'; float8_e4m3 operands give bfloat16 or"):
        arrange(zeros(2, 2, dtype="float8_e4m3fn"), zeros(2, 2, dtype="float8_e4m3fn"), out_dtype="float64")
    with pytest.raises(DTypeError, match="accumulate: got 'int32_xor'; int8 operands accumulate in int32 or"):
        arrange(zeros(2, 2, dtype=np.int8), zeros(2, 2, dtype=np.int8), accumulate="int32_xor")
    with pytest.raises(DTypeError, match="int32"):
        arrange(zeros(2, 2, dtype=np.int32), zeros(2, 2, dtype=np.int32))


@pytest.mark.parametrize(
    ("dtype", "options", "out", "accumulator"),
    [
        ("float16", {}, "float16", "float32"),
        ("float16", {"accumulate": "float16"}, "float16", "float16"),
        ("float16", {"out_dtype": "float32"}, "float32", "float32"),
        ("bfloat16", {}, "bfloat16", "float32"),
        ("float32", {}, "float32", "float32"),
        ("float64", {}, "float64", "float64"),
        ("int8", {}, "int32", "int32"),
        ("uint8", {}, "int32", "int32"),
        ("int8", {"accumulate": "int32_saturating"}, "int32", "int32_saturating"),
        ("float16", {"out_dtype": "bfloat16"}, "bfloat16", "float32"),
        ("bfloat16", {"out_dtype": "float16"}, "float16", "float32"),
        ("float8_e4m3fn", {}, "bfloat16", "float32"),
        ("float8_e5m2", {"out_dtype": "float32", "accumulate": "float16"}, "float32", "float16"),
    ],
)
def test_result_types(dtype, options, out, accumulator):
    problem = arrange(zeros(2, 3, dtype=dtype), zeros(3, 2, dtype=dtype), **options).problem
    assert (problem.d.dtype.name, problem.accumulator.name) == (out, accumulator)


@pytest.mark.parametrize("value", [0.5, np.float64(0.5), np.array(0.5), np.array([[0.5]], np.float16)])
def test_a_scale_is_one_number_on_the_host(value):
    assert scale_factor(value, "scale_a", array_view.view(zeros(2, 2, dtype="float8_e5m2"), "a")) == 0.5
    assert scale_factor(None, "scale_a", array_view.view(zeros(2, 2), "a")) == 1.0


def test_other_scales_are_told_what_would_work():
    eighth = array_view.view(zeros(2, 2, dtype="float8_e4m3fn"), "a")
    with pytest.raises(ShapeError, match=r"scale_b: got shape \(2,\); it is one number"):
        scale_factor(np.ones(2), "scale_b", eighth)
    with pytest.raises(DTypeError, match="scale_a: it is for operands of 8 bits; a is float32: give alpha"):
        scale_factor(2.0, "scale_a", array_view.view(zeros(2, 2), "a"))
    one = FakeDeviceArray()
    one.__cuda_array_interface__["shape"] = ()
    with pytest.raises(UnsupportedError, match=r"scale_a: it is in a GPU's memory; .*float\(scale_a\)"):
        scale_factor(one, "scale_a", eighth)


def test_tf32_only_when_asked_for():
    assert arrange(zeros(2, 3), zeros(3, 2)).problem.a.dtype.name == "float32"
    problem = arrange(zeros(2, 3), zeros(3, 2), precision="tf32").problem
    assert (problem.a.dtype.name, problem.d.dtype.name) == ("tfloat32", "float32")


def test_c_is_looked_at_only_when_beta_is_not_zero():
    a, b = zeros(4, 5), zeros(5, 3)
    assert arrange(a, b, zeros(99)).problem.c is None
    with pytest.raises(ShapeError, match=r"c: got None with beta=0.5; give c of shape \(4, 3\)"):
        arrange(a, b, beta=0.5)
    with pytest.raises(ShapeError, match="c: shape"):
        arrange(a, b, zeros(4, 4), beta=1)
    with pytest.raises(DTypeError, match="c is float16 and the result is float32"):
        arrange(a, b, zeros(4, 3, dtype=np.float16), beta=1)
    bias = arrange(a, b, zeros(3), beta=1)
    assert bias.c.shape == (4, 3)
    assert (bias.problem.c.leading_dimension, bias.copies) == (0, ())
    assert not bias.problem.reads_matrix_c
    column = arrange(a, b, zeros(4, 1), beta=1)
    assert column.problem.reads_matrix_c
    assert "copied once" in column.copies[0]


def test_an_out_that_cannot_be_written_is_refused():
    a, b = zeros(4, 5), zeros(5, 3)
    with pytest.raises(ShapeError, match=r"out: got shape \(3, 4\)"):
        arrange(a, b, out=zeros(3, 4))
    with pytest.raises(DTypeError, match="out: got 'float16'"):
        arrange(a, b, out=zeros(4, 3, dtype=np.float16))
    frozen = zeros(4, 3)
    frozen.flags.writeable = False
    with pytest.raises(LayoutError, match="read-only"):
        arrange(a, b, out=frozen)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8"])
@pytest.mark.parametrize("offset", [0, 1])
def test_the_leading_dimension_of_a_single_row_or_column_keeps_the_alignment(dtype, offset):
    """Kernels form the address of the row after the only one: as aligned as the first (of B and of A, M = 1)."""
    size = np.dtype(dtype).itemsize
    memory = zeros(4096, dtype=dtype)
    memory = memory[-memory.ctypes.data % 16 // size + offset :]
    aligned = 16 if not offset else size
    for extent in (1, 3, 7, 16, 33):
        row, column = memory[:extent].reshape(1, extent), memory[:extent].reshape(extent, 1)
        b = arrange(zeros(5, 1, dtype=dtype), row).problem.b
        a = arrange(row, zeros(extent, 5, dtype=dtype)).problem.a
        single_column = arrange(zeros(5, extent, dtype=dtype), column).problem.b
        for operand in (a, b, single_column):
            assert operand.alignment_bytes == aligned
            assert operand.leading_dimension * size % 16 == 0
            assert operand.leading_dimension >= extent


def test_out_is_written_in_place_when_it_can_be():
    a, b = zeros(4, 5), zeros(5, 3)
    wide = zeros(4, 8)
    product = arrange(a, b, out=wide[:, 2:5])
    assert product.target.pointer == wide.ctypes.data + 8
    assert product.problem.d.leading_dimension == 8
    assert "strides (1, 4)" in arrange(a, b, out=zeros(3, 4).T).copies[0]
    square = zeros(4, 4)
    product = arrange(square, square, out=square)
    assert product.target is None
    assert "shares memory with a and b" in product.copies[0]
    accumulated = zeros(4, 3)
    assert arrange(a, b, accumulated, accumulated, beta=1).target is not None
    tall = zeros(5, 3)
    assert arrange(a, b, tall[:4], tall[1:], beta=1).target is None


def test_operands_in_two_places_are_refused():
    with pytest.raises(LayoutError, match="a is on cuda:0 and b is in host memory"):
        arrange(FakeDeviceArray(), zeros(6, 3, dtype=np.float16))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_refused():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    with pytest.raises(LayoutError, match=r"a: got a nested tensor.*torch.nested.to_padded_tensor\(a, 0\)"):
        arrange(nested, torch.ones(3, 2))
