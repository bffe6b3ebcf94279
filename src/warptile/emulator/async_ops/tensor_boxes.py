"""Maps the 16-byte chunks of a box in shared memory to those of the tensor in global memory.

A tensor map makes everything a multiple of 16 bytes: the start of the tensor, its strides and the rows of the box.
The innermost coordinate has to be one too, so a copy moves *chunks* of 16 bytes, aligned on both sides, and only the
last one of a row of the tensor may be partly outside (PTX ISA, "Tensors"; CUDA Driver API, cuTensorMapEncodeTiled).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from warptile.errors import LayoutError, UnsupportedError
from warptile.isa.swizzle import CHUNK_BYTES, swizzled
from warptile.launch.tensor_map import SWIZZLE_BYTES, TENSOR_MAP_BYTES, TENSOR_MAP_TYPES, TensorMap

TILE_ALIGNMENT_BYTES = 128
"""Of the box in shared memory."""

NAN_FILL = 0x7FF7
"""What every 16 bits read as under ``oob_fill="nan"``, whatever the type (an H200)."""

TF32_NAN = 0x7FFFE000
"""What a load through a tf32 map makes of NaN (an H200)."""

_TF32_LOST_BITS = 13

_MAGIC = b"waRptile"
_FORMAT = struct.Struct("<Q8s5I4Q5B5B5BI")
"""The address comes first, as the driver has it. CUTLASS clears bit 21 of the second 64-bit word of the maps that it
makes on the host, so `_MAGIC` does not have it."""

_PLACES = {
    "global_address": range(1), "global_dim": range(2, 7), "global_stride": range(7, 11), "box_dim": range(11, 16),
    "element_stride": range(16, 21), "rank": range(21, 22), "elemtype": range(22, 23), "swizzle_mode": range(23, 24),
    "fill_mode": range(24, 25), "interleave_layout": range(25, 26),
}  # fmt: skip
"""Which numbers of the format are which field, as ``tensormap.replace`` calls them. The last number has a bit for each
other one that has been set."""

_MAY_BE_UNSET = ("fill_mode", "interleave_layout")
"""Fields whose zero, in a map made of 128 zero bytes, is a choice: fill with zeros, no interleave."""

_TYPES = tuple(TENSOR_MAP_TYPES)
_SWIZZLES = tuple(SWIZZLE_BYTES)
_PERIOD_BYTES = 1024
"""The swizzle of an address depends on this many bytes around it."""


@dataclass(frozen=True)
class BoxChunks:
    """Global addresses of the chunks of the boxes at some coordinates: one row per box, innermost dimension first.

    Attributes:
        places: byte offsets of the chunks from the start of the tensor; anything where none of it is inside.
        inside: bytes of each chunk that belong to the tensor, 0 to 16: always the first ones.
    """

    places: NDArray[np.int64]
    inside: NDArray[np.int64]


def extents(tensor: TensorMap) -> tuple[int, ...]:
    """Elements of a box along each dimension: fewer than ``box`` where only every n-th is taken.

    The element stride of the innermost dimension has no effect without interleave, as on the hardware.
    """
    strides = (1, *tensor.element_strides[1:])
    return tuple(-(-extent // stride) for extent, stride in zip(tensor.box, strides, strict=True))


def box_bytes(tensor: TensorMap) -> int:
    """Bytes that one copy moves, those outside the tensor included: what a transaction barrier counts."""
    return int(np.prod(extents(tensor))) * tensor.element_bytes


def row_chunks(tensor: TensorMap) -> int:
    """Chunks of one row of a box."""
    return tensor.box[0] * tensor.element_bytes // CHUNK_BYTES


def chunks(tensor: TensorMap, coordinates: NDArray[np.int64]) -> BoxChunks:
    """The chunks of the boxes at ``coordinates``, of shape (boxes, rank), innermost first.

    Args:
        tensor: the map.
        coordinates: in elements; the innermost of each box is a multiple of 16 bytes.
    """
    count = len(coordinates)
    start = coordinates[:, :1] * tensor.element_bytes
    places = start + np.arange(0, tensor.box[0] * tensor.element_bytes, CHUNK_BYTES)
    inside = np.where(places < 0, 0, np.clip(tensor.dims[0] * tensor.element_bytes - places, 0, CHUNK_BYTES))
    outer = zip(extents(tensor)[1:], tensor.element_strides[1:], tensor.dims[1:], tensor.strides_bytes, strict=True)
    for dimension, (extent, step, size, stride) in enumerate(outer, 1):
        index = coordinates[:, dimension : dimension + 1] + np.arange(extent) * step
        within = (index >= 0) & (index < size)
        places = (places[:, None, :] + (index * stride)[:, :, None]).reshape(count, -1)
        inside = (inside[:, None, :] * within[:, :, None]).reshape(count, -1)
    return BoxChunks(places, inside)


@lru_cache(maxsize=512)
def box_at(tensor: TensorMap, coordinates: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`BoxChunks` of one box: CTAs that share rows or columns load the same ones."""
    found = chunks(tensor, np.array([coordinates], dtype=np.int64))
    for each in (found.places, found.inside):
        each.setflags(write=False)
    return found.places[0], found.inside[0]


def slots(tensor: TensorMap, start: NDArray[np.int64]) -> NDArray[np.int64]:
    """Addresses in shared memory of the chunks of boxes that start at ``start``: one row per box, in the box's order.

    Under a swizzle rows lie as far apart as it permutes, however short they are. It permutes addresses, wherever the
    box starts (both settled on an H200).
    """
    span = SWIZZLE_BYTES[tensor.swizzle]
    plain: NDArray[np.int64] = start[:, None] + _unpermuted(
        box_bytes(tensor), tensor.box[0] * tensor.element_bytes, span
    )
    return plain + _moves(span)[(plain & (_PERIOD_BYTES - 1)) // CHUNK_BYTES] if span else plain


@lru_cache(maxsize=64)
def _unpermuted(size: int, row_bytes: int, span: int) -> NDArray[np.int64]:
    """Offsets of the chunks of a box of ``size`` bytes, before a swizzle of ``span`` bytes permutes them."""
    offsets = np.arange(0, size, CHUNK_BYTES)
    return offsets // row_bytes * span + offsets % row_bytes if span else offsets


@cache
def _moves(span: int) -> NDArray[np.int64]:
    """How far the swizzle of ``span`` bytes moves each chunk of a period."""
    offsets = range(0, _PERIOD_BYTES, CHUNK_BYTES)
    return np.array([swizzled(offset, span) - offset for offset in offsets], dtype=np.int64)


def filled(tensor: TensorMap, words: NDArray[np.uint8], inside: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Chunks as a load leaves them in shared memory: tf32 rounded, what lies outside the tensor replaced.

    Args:
        tensor: the map.
        words: bytes of the chunks, of shape (..., 16); what lies outside holds anything.
        inside: as in `BoxChunks`, of shape (...).
    """
    if tensor.dtype == "tf32":
        words = as_tf32(words.view(np.uint32)).view(np.uint8)
    if (inside == CHUNK_BYTES).all():
        return words
    outside = np.arange(CHUNK_BYTES) >= inside[..., None]
    return np.where(outside, fill_chunk(tensor), words)


def as_tf32(bits: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """f32 bits as a load through a tf32 map leaves them: rounded to the nearest, ties to even, subnormal ones too."""
    unit = np.uint32(1 << _TF32_LOST_BITS)
    ties = bits >> np.uint32(_TF32_LOST_BITS) & np.uint32(1)
    rounded = bits + (unit // np.uint32(2) - np.uint32(1)) + ties & ~(unit - np.uint32(1))
    nan = bits & np.uint32(0x7FFFFFFF) > np.uint32(0x7F800000)
    return np.where(nan, np.uint32(TF32_NAN), rounded)


def fill_chunk(tensor: TensorMap) -> NDArray[np.uint8]:
    """A chunk of elements outside the tensor, 16 bytes."""
    fill = NAN_FILL if tensor.oob_fill == "nan" else 0
    return np.full(CHUNK_BYTES // 2, fill, "<u2").view(np.uint8)


def encode(tensor: TensorMap, address: int) -> bytes:
    """A map as 128 bytes of memory: the emulator's own format, which kernels can copy but not look into.

    Args:
        tensor: the map.
        address: where the tensor starts (the operand's address and ``offset_bytes``).
    """
    rank = len(tensor.dims)
    missing = 5 - rank
    raw = _FORMAT.pack(
        address, _MAGIC,
        *(d - 1 for d in tensor.dims), *(0,) * missing,
        *tensor.strides_bytes, *(0,) * missing,
        *(b - 1 for b in tensor.box), *(0,) * missing,
        *tensor.element_strides, *(1,) * missing,
        rank, _TYPES.index(tensor.dtype), _SWIZZLES.index(tensor.swizzle), tensor.oob_fill == "nan", 0, (1 << 26) - 1,
    )  # fmt: skip
    return raw.ljust(TENSOR_MAP_BYTES, b"\0")


def decode(raw: bytes, operand: str) -> tuple[TensorMap, int] | None:
    """The map in 128 bytes of memory and the address where its tensor starts; None if there is no map.

    Args:
        raw: what lies at the map's address.
        operand: what to call its tensor in messages.

    Raises:
        LayoutError: the kernel has not set a field that needs a value, or set one to what it cannot be.
    """
    address, magic, *numbers, given = _FORMAT.unpack_from(raw)
    if magic != _MAGIC:
        return None
    rank, dtype, swizzle, nan, _ = numbers[19:]
    unset = []
    for name, places in _PLACES.items():
        if name in _MAY_BE_UNSET:
            continue
        needed = max(rank - (name == "global_stride"), 0) if len(places) > 1 else 1
        unset += [f"{name} {i}" if len(places) > 1 else name for i in range(needed) if not given >> places[i] & 1]
    if unset:
        raise LayoutError(f"tensor map of {operand}: tensormap.replace has not set {', '.join(unset)}")
    if address % CHUNK_BYTES:
        raise LayoutError(f"tensor map of {operand}: its tensor is at {address:#x}, no multiple of {CHUNK_BYTES}")
    tensor = TensorMap(
        operand,
        _TYPES[dtype],
        dims=tuple(d + 1 for d in numbers[:rank]),
        strides_bytes=tuple(numbers[5 : 5 + rank - 1]),
        box=tuple(b + 1 for b in numbers[9 : 9 + rank]),
        element_strides=tuple(numbers[14 : 14 + rank]),
        swizzle=_SWIZZLES[swizzle],
        oob_fill="nan" if nan else "zero",
    )
    return tensor, address


ELEMTYPES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", None, "f64", "bf16", "tf32")
"""Types by their number as an ``elemtype`` (PTX ISA, ``tensormap.replace``); 8 is f32 with subnormals flushed."""


def replaced(raw: bytes, field: str, ordinal: int, value: int) -> bytes:
    """The map with one field changed, as ``tensormap.replace`` does; 128 zero bytes are a map with none set.

    Args:
        raw: 128 bytes.
        field: as the instruction calls it: ``global_address``, ``rank`` (one less), ``box_dim``, ``global_dim``,
            ``global_stride`` (in bytes), ``element_stride``, ``elemtype``, ``interleave_layout``, ``swizzle_mode``
            or ``fill_mode``.
        ordinal: which dimension's, for those that each dimension has.
        value: the instruction's operand.

    Raises:
        LayoutError: neither a map nor zeros, or a value that the field cannot have.
        UnsupportedError: one that the emulator does not know.
    """
    if not any(raw):
        raw = _FORMAT.pack(0, _MAGIC, *(0,) * 25).ljust(TENSOR_MAP_BYTES, b"\0")
    numbers = list(_FORMAT.unpack_from(raw))
    if numbers[1] != _MAGIC:
        raise LayoutError("there is no tensor map, nor 128 zero bytes to make one of")
    places = _PLACES[field]
    if not 0 <= ordinal < len(places):
        raise LayoutError(f"{field} {ordinal}: there are 0 to {len(places) - 1}")
    numbers[places[ordinal]] = _stored(field, value)
    numbers[-1] |= 1 << places[ordinal]
    return _FORMAT.pack(*numbers).ljust(TENSOR_MAP_BYTES, b"\0")


def _stored(field: str, value: int) -> int:
    """A field's value in the emulator's format."""
    low, high = {
        "global_dim": (1, 1 << 32), "box_dim": (1, 256), "element_stride": (1, 8), "rank": (0, 4),
        "swizzle_mode": (0, 3), "fill_mode": (0, 1), "global_stride": (0, (1 << 40) - 1),
        "elemtype": (0, len(ELEMTYPES) - 1),
    }.get(field, (0, (1 << 64) - 1))  # fmt: skip
    if not low <= value <= high:
        raise LayoutError(f"{field} of {value}; it takes {low} to {high}")
    if field == "interleave_layout" and value:
        raise UnsupportedError(f"interleave_layout {value}; the emulator knows 0, none")
    if field == "elemtype":
        name = ELEMTYPES[value]
        if name is None:
            raise UnsupportedError(f"elemtype {value}, f32 with subnormals flushed, is not known to the emulator")
        return _TYPES.index(name)
    return value - 1 if field in ("global_dim", "box_dim") else value + 1 if field == "rank" else value
