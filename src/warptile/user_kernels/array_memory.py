"""The memory of arrays that a kernel is given: any element type, any framework, and which of them share bytes."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import ml_dtypes  # noqa: F401  (registers bfloat16 and the 8-bit floats with NumPy)
import numpy as np
from numpy.typing import NDArray

from warptile.errors import DTypeError, LayoutError
from warptile.launch.params import Pointer

DEVICE_ALIGNMENT_BYTES = 256
"""Of memory that a GPU allocates: an array lies as far behind a multiple of it as it lies in its own allocation."""


@dataclass(frozen=True, eq=False)
class ArrayMemory:
    """Where an array is.

    Attributes:
        name: in messages.
        array: keeps the memory alive.
        framework: ``"numpy"``, ``"torch"``, ``"cupy"`` or ``"cuda"``.
        pointer: address of the first element.
        low, high: lowest address, and one past the highest, that an element occupies.
        lead: bytes from a multiple of `DEVICE_ALIGNMENT_BYTES` to ``low``, counted in the array's allocation.
        shape: extents.
        strides: bytes from one index to the next.
        element: name of the element type, as NumPy and ml_dtypes say it.
        element_bytes: of one element.
        device: CUDA ordinal, or None in host memory.
        stream: handle of the caller's current stream on that device.
        read_only: nothing may write here.
    """

    name: str
    array: Any
    framework: str
    pointer: int
    low: int
    high: int
    lead: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element: str
    element_bytes: int
    device: int | None = None
    stream: int = 0
    read_only: bool = False


def is_array(value: Any) -> bool:
    """Whether `array_memory` takes it: an array of NumPy, torch, CuPy, or with ``__cuda_array_interface__``."""
    if isinstance(value, np.ndarray):
        return True
    return (_module(value) == "torch" and hasattr(value, "data_ptr")) or hasattr(value, "__cuda_array_interface__")


def array_memory(array: Any, name: str) -> ArrayMemory:
    """Where an array is; it need not be contiguous.

    Raises:
        DTypeError: elements that are Python objects, or not in the native byte order.
        LayoutError: memory that strides cannot describe.
    """
    if isinstance(array, np.ndarray):
        if array.dtype.hasobject:
            raise DTypeError(f"{name}: got elements that are Python objects; give numbers: numpy.zeros(4, 'f4')")
        if not array.dtype.isnative:
            raise DTypeError(
                f"{name}: got byte order {array.dtype.str!r}, and a GPU reads and writes the native one: "
                f"{name}.astype({str(array.dtype.newbyteorder('='))!r})"
            )
        if isinstance(array, np.ma.MaskedArray):
            raise LayoutError(f"{name}: got a masked array, whose mask no kernel looks at; fill it: {name}.filled(0)")
        pointer, owner = int(array.__array_interface__["data"][0]), array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        start = int(owner.__array_interface__["data"][0])
        return _memory(
            name, array, "numpy", pointer, array.shape, array.strides, array.dtype.name, array.itemsize, start,
            read_only=not array.flags.writeable,
        )  # fmt: skip
    if _module(array) == "torch":
        return _torch_memory(array, name)
    interface = array.__cuda_array_interface__
    pointer, read_only = interface["data"]
    storage = np.dtype(interface["typestr"])
    shape = tuple(interface["shape"])
    strides = interface.get("strides") or _row_major(shape, storage.itemsize)
    framework = "cupy" if _module(array) == "cupy" else "cuda"
    device = int(getattr(getattr(array, "device", None), "id", 0))
    stream = interface.get("stream") or 0
    if framework == "cupy":
        stream = sys.modules["cupy"].cuda.get_current_stream(device).ptr
    return _memory(
        name, array, framework, int(pointer), shape, tuple(strides), str(getattr(array, "dtype", storage)),
        storage.itemsize, int(pointer), device=device, stream=int(stream), read_only=bool(read_only),
    )  # fmt: skip


def _torch_memory(tensor: Any, name: str) -> ArrayMemory:
    torch = sys.modules["torch"]
    if tensor.layout != torch.strided or tensor.device.type not in ("cpu", "cuda"):
        raise LayoutError(
            f"{name}: got a {tensor.layout} tensor on {tensor.device}; it takes strided tensors on cpu or "
            f"cuda, such as {name}.cpu()"
        )
    device = tensor.device.index if tensor.device.type == "cuda" else None
    stream = 0 if device is None else int(torch.cuda.current_stream(device).cuda_stream)
    size = tensor.element_size()
    start = tensor.data_ptr() - tensor.storage_offset() * size
    return _memory(
        name, tensor, "torch", tensor.data_ptr(), tuple(tensor.shape), tuple(size * each for each in tensor.stride()),
        str(tensor.dtype).removeprefix("torch."), size, start, device=device, stream=stream,
    )  # fmt: skip


def _memory(
    name: str,
    array: Any,
    framework: str,
    pointer: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    element: str,
    element_bytes: int,
    start: int,
    *,
    device: int | None = None,
    stream: int = 0,
    read_only: bool = False,
) -> ArrayMemory:
    low = high = pointer
    if 0 not in shape:
        reach = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
        low = pointer + sum(min(each, 0) for each in reach)
        high = pointer + sum(max(each, 0) for each in reach) + element_bytes
    lead = (low - start) % DEVICE_ALIGNMENT_BYTES
    return ArrayMemory(
        name, array, framework, pointer, low, high, lead, tuple(shape), tuple(strides), element, element_bytes, device,
        stream, read_only,
    )  # fmt: skip


def _module(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def _row_major(shape: tuple[int, ...], unit: int) -> tuple[int, ...]:
    strides: list[int] = []
    for extent in reversed(shape):
        strides.insert(0, unit)
        unit *= max(extent, 1)
    return tuple(strides)


@dataclass(eq=False)
class Region:
    """Bytes that arrays occupy, some of them perhaps together.

    Attributes:
        name: of the first array in it, which reports name it by.
        low, high, lead, device: as of an `ArrayMemory`.
        read_only: all arrays in it are.
        arrays: that lie in it.
    """

    name: str
    low: int
    high: int
    lead: int
    device: int | None
    read_only: bool
    arrays: list[ArrayMemory]

    @property
    def size_bytes(self) -> int:
        """Bytes from the lowest one on."""
        return self.high - self.low

    def host_bytes(self) -> NDArray[np.uint8]:
        """The bytes themselves, in host memory."""
        assert self.device is None
        return np.ctypeslib.as_array((ctypes.c_uint8 * self.size_bytes).from_address(self.low))


class Regions:
    """The memory of all arrays of a call: arrays that share bytes lie in one region."""

    def __init__(self, memories: Iterable[ArrayMemory]) -> None:
        self.all: list[Region] = []
        self._of: dict[int, Region] = {}
        self._kept = [each for each in memories if each.low < each.high]
        for each in sorted(self._kept, key=lambda one: (one.device is not None, one.device or 0, one.low)):
            last = self.all[-1] if self.all else None
            if last is not None and last.device == each.device and each.low < last.high:
                last.high = max(last.high, each.high)
                last.read_only &= each.read_only
                last.arrays.append(each)
            else:
                last = Region(each.name, each.low, each.high, each.lead, each.device, each.read_only, [each])
                self.all.append(last)
            self._of[id(each)] = last
        for region in self.all:
            region.name = min(region.arrays, key=lambda one: self._kept.index(one)).name

    @property
    def stream(self) -> int:
        """The caller's current stream on the GPU of the arrays; 0 where they are in host memory."""
        return next((each.arrays[0].stream for each in self.all if each.device is not None), 0)

    def pointer(self, memory: ArrayMemory) -> Pointer:
        """The address of an array; a null pointer for one without elements."""
        region = self._of.get(id(memory))
        return Pointer(None) if region is None else Pointer(region.name, memory.pointer - region.low)
