"""A user's array, whatever made it, as an `ArrayView`: where it is, how it is laid out, which stream it lives on.

NumPy, torch, CuPy, JAX, and anything with ``__cuda_array_interface__`` or ``__dlpack__``. A framework is touched only
when an array of it is given; none is ever imported here for its own sake.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import ml_dtypes  # noqa: F401  (registers bfloat16 and the 8-bit floats with NumPy)
import numpy as np

from warptile.arrays import dlpack
from warptile.dtypes import DTYPES, DType
from warptile.errors import DTypeError, LayoutError, ShapeError, UnsupportedError

Shape = tuple[int, ...]

STREAM_LEGACY = 0
"""The driver's default stream."""

_ELEMENTS = {
    DTYPES[name].numpy: DTYPES[name]
    for name in (
        "float16", "bfloat16", "float32", "float64", "float8_e4m3", "float8_e5m2", "int8", "uint8", "int32",
    )
}  # fmt: skip
"""Element types that arrays of a framework come in, by the name that NumPy, ml_dtypes and torch share."""


@dataclass(frozen=True)
class ArrayView:
    """Memory that a user's array owns.

    Attributes:
        name: the operand in messages, such as ``"a"``.
        array: keeps the memory alive: the user's object, or what that lends through DLPack.
        framework: ``"numpy"``, ``"torch"``, ``"cupy"``, ``"jax"``, ``"xla"`` (a buffer of a program of JAX's) or
            ``"cuda"`` (only the array interface or DLPack is known).
        pointer: address of the first element, on the host or the device.
        shape: extents.
        strides: elements (not bytes) from one index to the next.
        dtype: element type.
        device: CUDA ordinal, or None when the memory is the host's.
        stream: handle of the caller's current stream on that device.
        read_only: nothing may write here.
        negated: the elements are the negatives of what is in memory (torch's negative bit).
        lender: the user's object, where only DLPack is known of it.
    """

    name: str
    array: Any
    framework: str
    pointer: int
    shape: Shape
    strides: Shape
    dtype: DType
    device: int | None = None
    stream: int = STREAM_LEGACY
    read_only: bool = False
    negated: bool = False
    lender: Any = None

    @property
    def given(self) -> Any:
        """The caller's object: ``array``, or what lent it through DLPack."""
        return self.array if self.lender is None else self.lender

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return self.dtype.bits // 8

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    def relaid(self, shape: Shape, strides: Shape) -> ArrayView:
        """The same memory read with another shape and other strides."""
        return replace(self, shape=shape, strides=strides)

    def at(self, index: Shape) -> ArrayView:
        """The sub-array at ``index`` of the leading axes."""
        offset = sum(i * stride for i, stride in zip(index, self.strides, strict=False))
        rest = len(index)
        pointer = self.pointer + offset * self.element_bytes
        return replace(self, pointer=pointer, shape=self.shape[rest:], strides=self.strides[rest:])

    def broadcast(self, shape: Shape) -> ArrayView:
        """The same memory with stride 0 along the axes that ``shape`` repeats (NumPy's rule)."""
        missing = len(shape) - self.ndim
        fits = missing >= 0 and all(
            have in (1, want) for have, want in zip(self.shape, shape[max(missing, 0) :], strict=True)
        )
        if not fits:
            raise ShapeError(
                f"{self.name}: shape {self.shape} does not broadcast to {shape}; "
                f"give it that shape, or extents of 1 where it repeats"
            )
        strides = (0,) * missing + tuple(
            stride if have == want else 0
            for have, want, stride in zip(self.shape, shape[missing:], self.strides, strict=True)
        )
        return self.relaid(shape, strides)

    def byte_range(self) -> tuple[int, int]:
        """Lowest address and one past the highest that any element occupies (equal when there is no element)."""
        if self.size == 0:
            return self.pointer, self.pointer
        reach = [(extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True)]
        low = sum(min(r, 0) for r in reach)
        high = sum(max(r, 0) for r in reach) + 1
        return self.pointer + low * self.element_bytes, self.pointer + high * self.element_bytes

    def reach(self) -> tuple[int, int]:
        """Bytes from the first element to the lowest one, and past the highest one."""
        low, high = self.byte_range()
        return low - self.pointer, high - self.pointer

    def overlaps(self, other: ArrayView) -> bool:
        """Whether the two may share bytes (judged by address ranges)."""
        (low, high), (other_low, other_high) = self.byte_range(), other.byte_range()
        return self.device == other.device and low < other_high and other_low < high

    def is_same_memory(self, other: ArrayView) -> bool:
        """Whether each element is exactly where the element of ``other`` at the same index is."""
        mine = self.pointer, self.shape, self.strides, self.element_bytes
        return mine == (other.pointer, other.shape, other.strides, other.element_bytes)

    def overlaps_itself(self) -> bool:
        """Whether two elements share memory. Where three or more axes interleave, they are taken to."""
        if self.size == 0:
            return False
        axes = sorted((abs(s), extent) for s, extent in zip(self.strides, self.shape, strict=True) if extent > 1)
        # An axis whose stride passes the span of all smaller ones only repeats what these do.
        while axes and axes[-1][0] > sum(stride * (extent - 1) for stride, extent in axes[:-1]):
            axes.pop()
        if len(axes) != 2:
            return bool(axes)
        (small, small_extent), (large, large_extent) = axes
        common = gcd(small, large)
        return common == 0 or (large // common < small_extent and small // common < large_extent)


def view(array: Any, name: str) -> ArrayView:
    """What ``array`` is, without copying it (a JAX array is brought to the host; `warptile.arrays.jax_arrays` finds
    those that can stay on a GPU). Of a view, the view itself.

    Raises:
        DTypeError: not an array, or an element type that no kernel takes.
        ShapeError: a scalar of NumPy's.
        UnsupportedError: a value that JAX is tracing.
        LayoutError: memory that cannot be described by strides.
    """
    if isinstance(array, ArrayView):
        return replace(array, name=name)
    module = type(array).__module__.partition(".")[0]
    if isinstance(array, np.ndarray):
        return _view_numpy(array, name)
    if module == "torch" and hasattr(array, "data_ptr"):
        return _view_torch(array, name)
    if is_tracer(array):
        raise UnsupportedError(
            f"{name}: got a value that JAX is tracing, which has no memory yet; inside of traced functions call "
            f"warptile.jax.matmul, and make plans outside, of arrays such as jax.numpy.ones({tuple(array.shape)}, "
            f"'{array.dtype}')"
        )
    if module in ("jax", "jaxlib") and hasattr(array, "__array__"):
        return replace(_view_numpy(np.asarray(array), name), array=array, framework="jax", read_only=True)
    if hasattr(array, "__cuda_array_interface__"):
        return _view_cuda_interface(array, name, "cupy" if module == "cupy" else "cuda")
    if isinstance(array, np.generic):
        raise ShapeError(f"{name}: got a scalar; it needs at least one axis: {name}.reshape(1)")
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _view_dlpack(array, name)
    dense = [method for method in ("dequantize", "to_dense", "toarray") if hasattr(array, method)]
    if hasattr(array, "unsplit_lines"):  # a SplitMatrix
        call = f"{name}.matrix"
    else:
        call = f"{name}.{dense[0]}()" if dense else f"numpy.asarray({name}, dtype='float32')"
    advice = "leave out= away for a new one" if name == "out" else f"such as {call}"
    raise DTypeError(
        f"{name}: got {type(array).__name__}, which is not an array; it takes NumPy, torch, CuPy or JAX arrays, "
        f"{advice}"
    )


def view_of(array: Any, name: str, types: Sequence[str], advice: str = "") -> ArrayView:
    """`view` of an array that has one of some element types.

    Args:
        array: what was given.
        name: of the argument, for messages.
        types: names of the types; the last one is what others are converted to.
        advice: a call that makes such an array, where that is no conversion.

    Raises:
        DTypeError: no array, or one of another type.
        ShapeError, UnsupportedError, LayoutError: as of `view`.
    """
    dtype = getattr(array, "dtype", None)
    given = type(array).__name__ if dtype is None else getattr(dtype, "name", str(dtype).removeprefix("torch."))
    if not advice:
        framework = "torch" if str(dtype).startswith("torch.") else "numpy"
        made = f"numpy.asarray({name}, dtype={DTYPES[types[-1]].numpy!r})"
        advice = made if dtype is None else cast(name, framework, DTYPES[types[-1]])
    refusal = DTypeError(f"{name}: got {given}; it takes an array of {' or '.join(types)}, such as {advice}")
    try:
        found = view(array, name)
    except (DTypeError, UnsupportedError):
        if given in _ELEMENTS:  # its type is not what is wrong
            raise
        raise refusal from None
    if found.dtype.name not in types:
        raise refusal
    return found


def is_tracer(array: Any) -> bool:
    """Whether ``array`` stands for a JAX array in a function that is being traced (``jax.jit``, ``jax.grad``, ...)."""
    kind = type(array)
    return kind.__module__.partition(".")[0] in ("jax", "jaxlib") and any(
        each.__name__ == "Tracer" for each in kind.__mro__
    )


def is_interface_alone(array: Any) -> bool:
    """Whether ``__cuda_array_interface__`` is all that is known of an array."""
    known = isinstance(array, np.ndarray) or type(array).__module__.partition(".")[0] in (
        "torch", "cupy", "jax", "jaxlib",
    )  # fmt: skip
    return not known and hasattr(array, "__cuda_array_interface__")


def element_type(name: str, operand: str, framework: str = "numpy") -> DType:
    """The element type that a framework calls ``name``.

    Args:
        name: such as ``"bfloat16"``.
        operand: whose type it is.
        framework: whose words a message uses.

    Returns:
        warptile's type.

    Raises:
        UnsupportedError: another 8-bit float or a 4-bit integer, which matmul does not take.
        DTypeError: no kernel takes it; the message names ``operand``, the types that work, and a conversion.
    """
    if name in _ELEMENTS:
        return _ELEMENTS[name]
    results = operand in ("c", "out")
    taken = ", ".join(known for known in _ELEMENTS if results or known != "int32")
    words = f"{operand}: got element type {name}; it takes one of {taken}"
    if operand == "out":
        raise DTypeError(f"{words}; give an out of the result's type, or leave it out")
    if name.startswith("float8") or name in ("int2", "uint2", "int4", "uint4"):
        wider = {"f": "float32", "i": "int8", "u": "uint8"}[name[0]]
        raise UnsupportedError(f"{words}; {name} is not available yet: {cast(operand, framework, DTYPES[wider])}")
    raise DTypeError(f"{words}; {_remedy(name, operand, framework)}")


def _remedy(name: str, operand: str, framework: str) -> str:
    """What the caller can do with an operand of a type that no kernel takes."""
    if name.startswith("complex"):
        return (
            "there are no complex kernels: multiply real and imaginary parts, such as "
            "matmul(a.real, b.real) - matmul(a.imag, b.imag) for the real part"
        )
    if name == "bool":
        return f"give it as integers: {cast(operand, framework, DTYPES['uint8'])}"
    if name.startswith(("int", "uint")):
        exact = cast(operand, framework, DTYPES["float64"])
        return f"integers wider than 8 bits have no kernel; float64 holds them exactly up to 2**53: {exact}"
    if name in ("float128", "float96", "longdouble"):
        return f"float64 is the widest type: {cast(operand, framework, DTYPES['float64'])}"
    if name.startswith("float"):
        return f"convert it: {cast(operand, framework, DTYPES['float32'])}"
    if name.startswith(("qint", "quint")):
        return f"it is one of torch's quantized tensors: {operand}.dequantize() has the numbers"
    return f"its elements are not numbers; give an array of numbers as {operand}"


def cast(operand: str, framework: str, dtype: DType) -> str:
    """The call that converts an operand to ``dtype``, in the words of its framework."""
    if framework == "torch":
        return f"{operand}.to(torch.{dtype.torch})"
    if framework == "cuda":
        return f"torch.as_tensor({operand}).to(torch.{dtype.torch})"
    return f"{operand}.astype('{dtype.numpy}')"


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """NumPy's (or ml_dtypes') storage type of ``dtype``."""
    return np.dtype(dtype.numpy)


def packed(values: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """Rows as they are stored: elements narrower than a byte together in bytes, the first in the lowest bits.

    ``values`` (rows, columns) holds one element each; the columns of such types fill whole bytes.
    """
    if dtype.bits >= 8:
        return values
    together = 8 // dtype.bits
    parts = (values.astype(np.uint8) & ((1 << dtype.bits) - 1)).reshape(values.shape[0], -1, together)
    shifted = parts << (np.arange(together, dtype=np.uint8) * np.uint8(dtype.bits))
    stored: np.ndarray[Any, Any] = np.bitwise_or.reduce(shifted, axis=2)
    return stored


def _view_numpy(array: np.ndarray[Any, Any], name: str) -> ArrayView:
    if isinstance(array, np.ma.MaskedArray):
        raise LayoutError(f"{name}: got a masked array, whose mask no kernel looks at; fill it: {name}.filled(0)")
    dtype = element_type(array.dtype.name, name)
    if not array.dtype.isnative:
        native = cast(name, "numpy", dtype)
        raise DTypeError(f"{name}: got byte order {array.dtype.str!r}; it takes native order: {native}")
    if any(stride % array.itemsize for stride in array.strides):
        raise LayoutError(
            f"{name}: strides {array.strides} bytes are no multiples of its {array.itemsize}-byte elements; "
            f"copy it first: numpy.ascontiguousarray({name})"
        )
    if not array.flags.aligned:
        raise LayoutError(
            f"{name}: its address is no multiple of its {array.itemsize}-byte elements; copy it first: {name}.copy()"
        )
    return ArrayView(
        name,
        array,
        "numpy",
        int(array.__array_interface__["data"][0]),
        array.shape,
        tuple(stride // array.itemsize for stride in array.strides),
        dtype,
        read_only=not array.flags.writeable,
    )


def _view_torch(tensor: Any, name: str) -> ArrayView:
    torch = sys.modules["torch"]
    if tensor.is_nested:
        raise LayoutError(
            f"{name}: got a nested tensor, whose matrices differ in size; it takes one strided tensor, such as "
            f"torch.nested.to_padded_tensor({name}, 0); groups of rows are for warptile.matmul_grouped"
        )
    if tensor.layout != torch.strided or tensor.device.type not in ("cpu", "cuda"):
        remedy = f"{name}.cpu()" if tensor.layout == torch.strided else f"{name}.to_dense()"
        raise LayoutError(
            f"{name}: got a {tensor.layout} tensor on {tensor.device}; it takes strided tensors on cpu or cuda, "
            f"such as {remedy}"
        )
    if tensor.requires_grad and torch.is_grad_enabled():
        raise UnsupportedError(
            f"{name}: requires a gradient, which is recorded for matmul(a, b) and linear(x, w) of tensors without "
            f"out=; call this under torch.no_grad(), or give {name}.detach()"
        )
    device = tensor.device.index if tensor.device.type == "cuda" else None
    return ArrayView(
        name,
        tensor,
        "torch",
        tensor.data_ptr(),
        tuple(tensor.shape),
        tuple(tensor.stride()),
        element_type(str(tensor.dtype).removeprefix("torch."), name, "torch"),
        device,
        STREAM_LEGACY if device is None else int(torch.cuda.current_stream(device).cuda_stream),
        negated=tensor.is_neg(),
    )


def _view_cuda_interface(array: Any, name: str, framework: str) -> ArrayView:
    interface = array.__cuda_array_interface__
    storage = np.dtype(interface["typestr"])
    dtype = element_type(str(getattr(array, "dtype", storage)), name, framework)
    shape = tuple(interface["shape"])
    strides_bytes = interface.get("strides") or row_major(shape, dtype.bits // 8)
    stream = interface.get("stream") or STREAM_LEGACY
    device = getattr(getattr(array, "device", None), "id", 0)
    if framework == "cupy":
        stream = sys.modules["cupy"].cuda.get_current_stream(device).ptr
    pointer, read_only = interface["data"]
    return ArrayView(
        name,
        array,
        framework,
        int(pointer),
        shape,
        tuple(stride // (dtype.bits // 8) for stride in strides_bytes),
        dtype,
        int(device),
        int(stream),
        bool(read_only),
    )


def _view_dlpack(array: Any, name: str) -> ArrayView:
    """An array of which only DLPack is known: memory of the host as a NumPy array, of a GPU as it is."""
    try:
        found = dlpack.lent(array)
    except (BufferError, RuntimeError) as error:
        raise LayoutError(
            f"{name}: its framework does not lend the memory of this {type(array).__name__}: {error}; give an array "
            f"that numpy.from_dlpack({name}) takes"
        ) from error
    dtype = element_type(found.element, name)
    strides = row_major(found.shape) if found.strides is None else found.strides
    kind, ordinal = found.device
    if kind in (dlpack.HOST, dlpack.CUDA_HOST):
        return replace(_view_numpy(found.on_host(strides), name), lender=array)
    if kind in (dlpack.CUDA, dlpack.CUDA_MANAGED):
        return ArrayView(
            name, found, "cuda", found.pointer, found.shape, strides, dtype, ordinal, read_only=found.read_only,
            lender=array,
        )  # fmt: skip
    raise LayoutError(
        f"{name}: got {type(array).__name__} on a device of DLPack's kind {kind}; it takes memory of the host and of "
        f"CUDA GPUs, such as a copy of {name} there"
    )


def row_major(shape: Shape, unit: int = 1) -> Shape:
    """Strides of a row-major array without gaps, the innermost one ``unit``."""
    strides: list[int] = []
    for extent in reversed(shape):
        strides.insert(0, unit)
        unit *= max(extent, 1)
    return tuple(strides)


def contiguous(source: ArrayView) -> ArrayView:
    """A row-major copy with the shape of ``source``, made by its own framework on its own stream."""
    if source.framework == "torch":
        torch = sys.modules["torch"]
        strided = torch.as_strided(source.array, source.shape, source.strides, source.array.storage_offset())
        return _view_torch(strided.clone(memory_format=torch.contiguous_format), source.name)
    if source.framework == "cupy":
        cupy = sys.modules["cupy"]
        strided = cupy.lib.stride_tricks.as_strided(source.array, source.shape, _byte_strides(source))
        return _view_cuda_interface(cupy.ascontiguousarray(strided).copy(), source.name, "cupy")
    if source.framework in ("cuda", "xla"):
        raise LayoutError(
            f"{source.name}: strides {source.strides} need a copy, which only its own framework can make; "
            f"give a row-major {source.name} of shape {source.shape}"
        )
    host = source.array if isinstance(source.array, np.ndarray) else np.asarray(source.array)
    # As integers of their size: NumPy makes no strided view of some of ml_dtypes' types.
    words = np.lib.stride_tricks.as_strided(host.view(f"u{source.element_bytes}"), source.shape, _byte_strides(source))
    return _view_numpy(np.array(words, order="C").view(host.dtype), source.name)


def contiguous_layout(source: ArrayView) -> ArrayView:
    """How `contiguous` would lay ``source`` out, without making the copy; it has no address yet."""
    return replace(source, pointer=0, strides=row_major(source.shape), negated=False)


def _byte_strides(source: ArrayView) -> Shape:
    return tuple(stride * source.element_bytes for stride in source.strides)


def empty(like: ArrayView, shape: Shape, dtype: DType) -> ArrayView:
    """New uninitialised row-major memory of the same kind, and on the same device, as ``like``."""
    if like.framework == "torch":
        torch = sys.modules["torch"]
        return _view_torch(
            torch.empty(shape, dtype=getattr(torch, dtype.torch or dtype.name), device=like.array.device), "out"
        )
    if like.framework == "cupy":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(like.device):  # CuPy allocates on the current device
            return _view_cuda_interface(cupy.empty(shape, dtype=numpy_dtype(dtype)), "out", "cupy")
    if like.framework == "cuda":
        raise UnsupportedError(
            f"{like.name}: a {type(like.given).__name__} says where its memory is but not how to make more; "
            f"give out= of shape {shape} and type {dtype.name}"
        )
    return _view_numpy(np.empty(shape, numpy_dtype(dtype)), "out")


def empty_call(like: ArrayView, shape: Shape, dtype: DType) -> str:
    """The call that a user makes `empty` with, in the words of the framework."""
    if like.framework in ("torch", "cuda"):
        device = "cpu" if like.device is None else f"cuda:{like.device}"
        return f"torch.empty({shape}, dtype=torch.{dtype.torch}, device='{device}')"
    module = "cupy" if like.framework == "cupy" else "numpy"
    return f"{module}.empty({shape}, '{dtype.numpy}')"


def assign(target: ArrayView, source: ArrayView) -> None:
    """Copy ``source`` into ``target`` (same shape and type), by their own framework."""
    if target.framework == "torch":
        target.array.copy_(source.array)
    else:
        target.array[...] = source.array


def clear(target: ArrayView) -> None:
    """Write zeros, by the array's own framework.

    Raises:
        UnsupportedError: only DLPack is known of an array in GPU memory.
    """
    if target.size == 0:
        return
    if target.framework == "torch":
        target.array.zero_()
    elif target.framework == "cuda" and target.lender is not None:
        raise UnsupportedError(
            f"{target.name}: nothing is multiplied, and a {type(target.given).__name__} in GPU memory says where its "
            f"memory is but not how to write zeros; give {target.name} as an array of its own framework"
        )
    else:
        target.array[...] = 0


def returned(result: ArrayView, like: ArrayView) -> Any:
    """What the caller gets of a new result: an array of the framework that ``like`` came from; of NumPy a scalar where
    there is no axis, as NumPy's own ``matmul`` returns it."""
    if like.framework == "jax" and result.framework == "numpy":
        return sys.modules["jax"].numpy.asarray(result.array)
    if result.framework == "numpy" and result.ndim == 0:
        return result.array[()]
    return result.array


def host_bytes(source: ArrayView) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The host memory from the lowest element of ``source`` to its highest, gaps included, as bytes; not a copy."""
    assert source.device is None
    low, high = source.byte_range()
    if low == high:
        return np.zeros(0, np.uint8)
    memory = (ctypes.c_uint8 * (high - low)).from_address(low)
    return np.ctypeslib.as_array(memory)
