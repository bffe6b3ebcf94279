"""Arrays of which only DLPack is known (``__dlpack__``): where they are and how they are laid out, without a copy.

Layouts are those of DLPack's C header, ``dlpack.h`` 1.0: the structures that a capsule points at. A capsule that nobody
consumes gives the memory back when it is deleted, so whoever uses the memory keeps it.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

HOST, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
"""Kinds of devices (``DLDeviceType``)."""

READ_ONLY = 1
"""Bit of the flags of a versioned capsule."""

_INTEGER, _UNSIGNED, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6
_KINDS = {_INTEGER: "int", _UNSIGNED: "uint", _FLOAT: "float", _BFLOAT: "bfloat", _COMPLEX: "complex"}
_NAMED = {
    _BOOL: "bool", 7: "float8_e3m4", 8: "float8_e4m3", 9: "float8_e4m3b11fnuz", 10: "float8_e4m3fn",
    11: "float8_e4m3fnuz", 12: "float8_e5m2", 13: "float8_e5m2fnuz", 14: "float8_e8m0fnu",
}  # fmt: skip
"""Names of element types by ``DLDataTypeCode``; those of the first are followed by bits."""


class _Device(ctypes.Structure):
    _fields_: ClassVar[Any] = [("kind", ctypes.c_int32), ("ordinal", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_: ClassVar[Any] = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        ("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32), ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class _Versioned(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    ]  # fmt: skip


@dataclass(frozen=True)
class Lent:
    """Memory that an array lends through DLPack.

    Attributes:
        array: which lends it.
        capsule: keeps it lent.
        device: kind of device, and its number.
        pointer: of the first element.
        shape: extents.
        strides: elements from one index to the next; None where rows follow each other without gaps.
        element: name of the element type, such as ``"bfloat16"``; of vectors, with their length.
        read_only: nothing may write here.
    """

    array: Any
    capsule: Any
    device: tuple[int, int]
    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    element: str
    read_only: bool

    def on_host(self, strides: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """Memory of the host as a NumPy array; ``strides`` in elements."""
        dtype = np.dtype(self.element)
        if 0 in self.shape:
            return np.empty(self.shape, dtype)
        words = np.asarray(_HostMemory(self, strides, dtype.itemsize))
        return words.view(dtype)


class _HostMemory:
    """What NumPy makes an array of, and keeps beside it."""

    def __init__(self, lent: Lent, strides: tuple[int, ...], size: int) -> None:
        self.lent = lent
        self.__array_interface__ = {
            "version": 3, "data": (lent.pointer, lent.read_only), "shape": lent.shape, "typestr": f"=u{size}",
            "strides": tuple(size * each for each in strides),
        }  # fmt: skip


def lent(array: Any) -> Lent:
    """What ``array`` lends, once the work that its framework has queued for it comes before the default stream's."""
    kind, ordinal = map(int, array.__dlpack_device__())
    stream = {"stream": 1} if kind in (CUDA, CUDA_MANAGED) else {}  # 1 is CUDA's legacy default stream
    try:
        capsule = array.__dlpack__(max_version=(1, 0), **stream)
    except TypeError:  # older than versions
        capsule = array.__dlpack__(**stream)
    tensor, flags = _tensor_of(capsule)
    ndim = tensor.ndim
    named = _NAMED.get(tensor.dtype.code) or f"{_KINDS.get(tensor.dtype.code, 'opaque')}{tensor.dtype.bits}"
    return Lent(
        array, capsule, (kind, ordinal), (tensor.data or 0) + tensor.byte_offset, tuple(tensor.shape[:ndim]),
        tuple(tensor.strides[:ndim]) if tensor.strides else None,
        named if tensor.dtype.lanes == 1 else f"{named}x{tensor.dtype.lanes}", bool(flags & READ_ONLY),
    )  # fmt: skip


def _tensor_of(capsule: Any) -> tuple[Any, int]:
    """The ``DLTensor`` of a capsule, and its flags."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    valid = ctypes.pythonapi.PyCapsule_IsValid
    valid.restype, valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
    if valid(capsule, b"dltensor_versioned"):
        found = _Versioned.from_address(pointer(capsule, b"dltensor_versioned"))
        return found.tensor, found.flags
    return _Tensor.from_address(pointer(capsule, b"dltensor")), 0
