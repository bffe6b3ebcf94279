"""Arrays of which only DLPack is known: their memory is used in place."""

import ctypes
import gc
import weakref

import ml_dtypes
import numpy as np
import pytest

import warptile as wt
from warptile.arrays import array_view, dlpack

NAIVE = {"rung": "simt-naive", "backend": "emulator"}


class Foreign:
    """A NumPy array that offers DLPack and nothing else."""

    def __init__(self, array):
        self.array, self.asked = array, []

    def __dlpack__(self, **given):
        self.asked.append(given)
        return self.array.__dlpack__(**given)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Old(Foreign):
    """The same from before capsules had versions."""

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__(stream=stream)


class Made:
    """A capsule made by hand: any device, element type and layout.

    Attributes:
        asked: keywords that the capsule was asked for with.
    """

    def __init__(self, pointer, shape, strides, element=(2, 32, 1), device=(dlpack.HOST, 0), *, flags=None, offset=0):
        self.device, self.asked = device, []
        self.extents = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        self.strides = None if strides is None else (ctypes.c_int64 * max(len(shape), 1))(*strides)
        tensor = dlpack._Tensor(
            pointer, dlpack._Device(*device), len(shape), dlpack._DataType(*element), self.extents, self.strides, offset
        )
        if flags is None:
            self.managed, self.name = tensor, b"dltensor"
        else:
            self.managed = dlpack._Versioned(1, 0, None, None, flags, tensor)
            self.name = b"dltensor_versioned"

    def __dlpack__(self, **given):
        self.asked.append(given)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self.managed), self.name, None)

    def __dlpack_device__(self):
        return self.device


@pytest.fixture
def rng():
    return np.random.default_rng(20261128)


@pytest.mark.parametrize("kind", [Foreign, Old])
@pytest.mark.parametrize("strided", [False, True])
def test_products_of_memory_of_the_host(rng, kind, strided):
    a, b = rng.standard_normal((9, 40)).astype("f4"), rng.standard_normal((20, 7)).astype("f4")
    a = a[:, ::2] if strided else np.ascontiguousarray(a[:, :20])
    d = wt.matmul(kind(a), kind(b), **NAIVE)
    assert type(d) is np.ndarray
    assert np.array_equal(d, wt.matmul(a, b, **NAIVE))
    assert np.array_equal(d, wt.matmul(a, kind(b), **NAIVE))


def test_out_is_written_in_place(rng):
    a, b, out = (rng.standard_normal(shape).astype("f4") for shape in ((5, 6), (6, 7), (5, 7)))
    foreign = Foreign(out)
    assert wt.matmul(a, b, out=foreign, **NAIVE) is foreign
    assert np.array_equal(out, wt.matmul(a, b, **NAIVE))


@pytest.mark.parametrize("extents", [(0, 4, 5), (3, 0, 5), (3, 4, 0)], ids=str)
def test_an_out_without_elements_or_products_is_returned(extents):
    m, n, k = extents
    foreign = Foreign(np.full((m, n), 7, "f4"))
    assert wt.matmul(np.ones((m, k), "f4"), np.ones((k, n), "f4"), out=foreign) is foreign
    assert not foreign.array.any()


def test_zeros_of_groups_without_products():
    ends = np.array([2, 3], np.int32)
    foreign = Foreign(np.full((3, 4), 7, np.float16))
    a, b = np.ones((3, 0), np.float16), np.ones((2, 0, 4), np.float16)
    assert wt.matmul_grouped(a, b, ends, out=foreign) is foreign
    assert not foreign.array.any()
    on_gpu = array_view.view(Made(4096, (2, 2), None, device=(dlpack.CUDA, 0)), "out")
    with pytest.raises(wt.UnsupportedError, match="a Made in GPU memory says where its memory is but not how to write"):
        array_view.clear(on_gpu)


def test_a_flag_says_that_nothing_may_be_written():
    memory = np.ones((3, 3), "f4")
    made = Made(memory.ctypes.data, (3, 3), None, flags=dlpack.READ_ONLY)
    assert array_view.view(made, "out").read_only
    with pytest.raises(wt.WarptileError, match=r"out: .*read-only"):
        wt.matmul(memory, memory, out=made, **NAIVE)
    assert not array_view.view(Made(memory.ctypes.data, (3, 3), None, flags=0), "out").read_only


@pytest.mark.parametrize(
    ("code", "bits", "dtype"),
    [(4, 16, ml_dtypes.bfloat16), (10, 8, ml_dtypes.float8_e4m3fn), (12, 8, ml_dtypes.float8_e5m2), (0, 8, np.int8)],
)
def test_types_that_numpy_does_not_exchange(rng, code, bits, dtype):
    a = rng.integers(-3, 4, (4, 32)).astype(dtype)
    b = rng.integers(-3, 4, (32, 8)).astype(dtype)
    made = Made(a.ctypes.data - 64, a.shape, None, (code, bits, 1), offset=64)
    found = wt.matmul(made, b, backend="emulator")
    assert np.array_equal(found, wt.matmul(a, b, backend="emulator"))


def test_memory_is_kept_as_long_as_it_is_viewed():
    array = np.ones((4, 4), "f4")
    gone = weakref.ref(array.base if array.base is not None else array)
    view = array_view.view(Foreign(array), "a")
    del array
    gc.collect()
    assert gone() is not None
    assert view.array.sum() == 16
    del view
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("strides", [(1, 5), None])
def test_memory_of_a_gpu_is_viewed_as_it_is(strides):
    made = Made(0xF000, (5, 7), strides, (4, 16, 1), (dlpack.CUDA, 2), offset=32)
    view = array_view.view(made, "a")
    assert (view.pointer, view.shape, view.strides) == (0xF020, (5, 7), strides or (7, 1))
    assert (view.framework, view.device, view.stream, view.dtype.name) == ("cuda", 2, 0, "bfloat16")
    assert made.asked == [{"max_version": (1, 0), "stream": 1}], "ready for the legacy default stream"
    with pytest.raises(wt.WarptileError, match="out"):
        array_view.empty(view, (5, 5), view.dtype)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"element": (2, 32, 4)}, "a: got element type float32x4; it takes one of"),
        ({"element": (5, 64, 1)}, "a: got element type complex64; it takes one of"),
        ({"element": (6, 8, 1)}, "a: got element type bool; it takes one of"),
        ({"element": (3, 64, 1)}, "a: got element type opaque64; it takes one of"),
        ({"device": (10, 0)}, "a: got Made on a device of DLPack's kind 10; it takes memory of the host and of CUDA"),
    ],
)
def test_what_no_kernel_takes_is_said(change, said):
    memory = np.ones((4, 4), "f8")
    with pytest.raises(wt.WarptileError, match=said.replace("(", r"\(")):
        wt.matmul(Made(memory.ctypes.data, (2, 2), None, **change), memory, **NAIVE)


def test_what_a_framework_does_not_lend_is_said():
    class Kept(Foreign):
        def __dlpack__(self, **given):
            raise BufferError("it is needed here")

    memory = np.ones((2, 2), "f4")
    with pytest.raises(
        wt.LayoutError, match=r"b: its framework does not lend .* Kept: it is needed here; give an array"
    ):
        wt.matmul(memory, Kept(memory), **NAIVE)


def test_empty_memory_has_no_address():
    made = Made(None, (0, 6), None)
    assert wt.matmul(made, np.ones((6, 3), "f4"), **NAIVE).shape == (0, 3)


def test_linear_says_what_it_takes():
    x = Foreign(np.ones((3, 4), "f4"))
    with pytest.raises(wt.DTypeError, match=r"x: got Foreign, which has no shape; .* x = numpy\.from_dlpack\(x\)"):
        wt.linear(x, np.ones((5, 4), "f4"))
    assert wt.linear(np.from_dlpack(x), np.ones((5, 4), "f4"), backend="emulator").shape == (3, 5)
