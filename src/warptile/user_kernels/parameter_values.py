"""Values of kernel parameters that are more than a number: structs with pointers, and tensor maps of arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from warptile.errors import ArgumentError, ArgumentTypeError, DTypeError, LayoutError
from warptile.launch.params import Params, Scalar
from warptile.launch.tensor_map import TENSOR_MAP_TYPES, TensorMap
from warptile.user_kernels.array_memory import ArrayMemory, array_memory, is_array

SCALAR_TYPES = {
    "bool": "bool", "int8": "s8", "uint8": "u8", "int16": "s16", "uint16": "u16", "int32": "s32", "uint32": "u32",
    "int64": "s64", "uint64": "u64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
}  # fmt: skip
"""A scalar of NumPy's -> its type in a `warptile.launch.params.Scalar`."""

_MAP_TYPES = {
    "int8": "u8", "uint8": "u8", "bool": "u8", "float8_e4m3fn": "u8", "float8_e5m2": "u8", "int16": "u16",
    "uint16": "u16", "int32": "s32", "uint32": "u32", "int64": "s64", "uint64": "u64", "float16": "f16",
    "bfloat16": "bf16", "float32": "f32", "float64": "f64",
}  # fmt: skip
"""Element type of an array -> that of a tensor map."""


@dataclass(frozen=True)
class ArrayTensorMap:
    """A tensor map of an array, as `tensor_map` makes it.

    Attributes:
        memory: of the array.
        fields: the map; its operand is not named yet.
    """

    memory: ArrayMemory
    fields: TensorMap


def tensor_map(
    array: Any,
    box: Sequence[int],
    *,
    swizzle: str = "none",
    dtype: str | None = None,
    element_strides: Sequence[int] | None = None,
    interleave: str = "none",
    oob_fill: str = "zero",
    l2_promotion: str = "none",
) -> ArrayTensorMap:
    """A tensor map (``CUtensorMap``) of an array, for a kernel parameter ``const __grid_constant__ CUtensorMap``.

    Axes are in the order of the array's shape, so the last one is the innermost: ``box=(128, 64)`` of a row-major
    matrix has 128 rows of 64 elements. (``cuTensorMapEncodeTiled`` counts from the innermost one.)

    Args:
        array: of one to five axes; the elements along the last one follow each other, the other strides are multiples
            of 16 bytes.
        box: extent, in elements, of what one copy moves, along each axis: 1 to 256.
        swizzle: ``"none"``, ``"32B"``, ``"64B"`` or ``"128B"``.
        dtype: how TMA sees the elements, by default as the array has them: u8, u16, u32, s32, u64, s64, f16, bf16,
            f32, f64 or tf32. 8-bit floats are u8.
        element_strides: take every how many-th element of the box along each axis; by default every one.
        interleave: ``"none"``.
        oob_fill: what elements outside the array read as: ``"zero"`` or ``"nan"``.
        l2_promotion: ``"none"``, ``"64B"``, ``"128B"`` or ``"256B"``.

    Raises:
        ArgumentTypeError: not an array.
        DTypeError: elements that no tensor map has.
        LayoutError: a field outside the limits of ``cuTensorMapEncodeTiled``.

    Example:
        ``k[grid, 128](wt.tensor_map(a, box=(64, 64), swizzle="128B"), d)``
    """
    if not is_array(array):
        raise ArgumentTypeError(
            f"tensor_map: got {type(array).__name__}; it takes an array, such as "
            f"wt.tensor_map(numpy.zeros((128, 64), 'f2'), box=(64, 64))"
        )
    memory = array_memory(array, "array")
    fields = tensor_map_of(
        memory, box, swizzle=swizzle, dtype=dtype, element_strides=element_strides, interleave=interleave,
        oob_fill=oob_fill, l2_promotion=l2_promotion,
    )  # fmt: skip
    return ArrayTensorMap(memory, fields)


def tensor_map_of(
    memory: ArrayMemory,
    box: Sequence[int],
    *,
    swizzle: str = "none",
    dtype: str | None = None,
    element_strides: Sequence[int] | None = None,
    interleave: str = "none",
    oob_fill: str = "zero",
    l2_promotion: str = "none",
) -> TensorMap:
    """The map of memory with shape and strides; arguments and errors as of `tensor_map`."""
    for what, extents in (("box", box), ("element_strides", () if element_strides is None else element_strides)):
        if not isinstance(extents, Sequence) or isinstance(extents, str) or not all(map(_is_whole, extents)):
            raise ArgumentTypeError(
                f"tensor_map: {what} is {extents!r}; it takes a whole number for each axis, such as {what}="
                f"{tuple(min(each, 64) if what == 'box' else 1 for each in memory.shape)}"
            )
    kind = dtype or _MAP_TYPES.get(memory.element)
    if kind is None:
        raise DTypeError(
            f"tensor_map: elements of type {memory.element}; tensor maps have {', '.join(TENSOR_MAP_TYPES)}: say which "
            f"one to read them as, such as dtype='u8'"
        )
    if TENSOR_MAP_TYPES.get(kind, memory.element_bytes) != memory.element_bytes:
        raise DTypeError(
            f"tensor_map: dtype={kind!r} has {TENSOR_MAP_TYPES[kind]} bytes and the array's {memory.element} has "
            f"{memory.element_bytes}; give dtype={_MAP_TYPES.get(memory.element, 'u8')!r}, or a view of the array"
        )
    if not memory.shape or memory.strides[-1] != memory.element_bytes:
        raise LayoutError(
            f"tensor_map: shape {memory.shape}, strides {memory.strides} bytes; the elements along the last axis have "
            f"to follow each other: numpy.ascontiguousarray(array)"
        )
    try:
        return TensorMap(
            "the array",
            kind,
            dims=memory.shape[::-1],
            strides_bytes=memory.strides[:-1][::-1],
            box=tuple(map(int, box))[::-1],
            element_strides=() if element_strides is None else tuple(map(int, element_strides))[::-1],
            swizzle=swizzle,
            interleave=interleave,
            oob_fill=oob_fill,
            l2_promotion=l2_promotion,
        )
    except LayoutError as error:
        if len(memory.shape) < 2:
            raise
        raise LayoutError(f"{error}; axes are named as a tensor map has them, the innermost first") from None


def _is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and hasattr(value, "__index__")


@dataclass(frozen=True)
class StructValue:
    """A struct passed by value, as `struct` makes it.

    Attributes:
        content: its bytes.
        fields: arrays whose addresses, and tensor maps that, stand in it: byte offset, path of the field, value.
    """

    content: bytes
    fields: tuple[tuple[int, str, ArrayMemory | ArrayTensorMap | None], ...] = ()


def struct(base: Any = None, /, **fields: Any) -> StructValue:
    """A struct for a kernel parameter, with the addresses of arrays in it.

    Without ``base``, the members are ``fields`` in order, laid out as C++ does: arrays as pointers, tensor maps,
    NumPy scalars by their types, Python's ``bool``, ``int`` and ``float`` as ``bool``, ``int`` and ``float`` of CUDA.
    Lists and tuples are members that are arrays: ``sizes=[numpy.int64(3)] * 4``, or ``data=[x, y, None]`` of pointers.

    Args:
        base: a NumPy record (``numpy.void``, or a structured array without axes) or a ctypes structure that has the
            layout of the struct: its bytes are taken, and ``fields`` replace pointers in it. A field of a member has
            its path as name: ``**{"a.data": x}``.
        fields: members.

    Raises:
        ArgumentTypeError: a base or a member of another type.
        ArgumentError: a member that the base does not have, or that has no room for it.

    Example:
        ``k[8, 128](wt.struct(x=x, y=y, n=numpy.int32(1000), scale=numpy.float32(2)))``
    """
    if base is None:
        return _members(fields)
    content = struct_bytes(base)
    if content is None:
        raise ArgumentTypeError(
            f"struct: got {type(base).__name__}; it takes a NumPy record or a ctypes structure, or members alone, such "
            f"as wt.struct(x=x, n=numpy.int32(5))"
        )
    placed = []
    for path, value in fields.items():
        offset, size = _place(base, path)
        held = _held(value, path)
        need = 8 if not isinstance(held, ArrayTensorMap) else 128
        if size != need:
            raise ArgumentError(f"struct: {path} has {size} bytes; {_what(held)} takes {need}, such as a field of 'u8'")
        placed.append((offset, path, held))
    return StructValue(content, tuple(placed))


def struct_bytes(value: Any) -> bytes | None:
    """The bytes of a NumPy record or a ctypes object; None of anything else."""
    if isinstance(value, ctypes.Structure | ctypes.Union | ctypes.Array | ctypes._SimpleCData):
        return bytes(value)
    if isinstance(value, np.void) or (isinstance(value, np.ndarray) and value.dtype.fields and not value.ndim):
        return value.tobytes()
    return None


def _members(fields: dict[str, Any]) -> StructValue:
    if not fields:
        raise ArgumentError("struct: got no member; give some, such as wt.struct(x=x, n=numpy.int32(5))")
    scalars: dict[str, Scalar | TensorMap] = {}
    held: dict[str, ArrayMemory | ArrayTensorMap | None] = {}
    for name, value in _elements(fields.items()):
        if isinstance(value, np.generic) and value.dtype.name in SCALAR_TYPES:
            scalars[name] = Scalar(SCALAR_TYPES[value.dtype.name], value.item())
        elif isinstance(value, bool | int | float):
            kind = "bool" if isinstance(value, bool) else "s32" if isinstance(value, int) else "f32"
            scalars[name] = Scalar(kind, value)
        else:
            held[name] = _held(value, name)
            found = held[name]
            scalars[name] = found.fields if isinstance(found, ArrayTensorMap) else Scalar("u64", 0)
    layout = Params(tuple(scalars.items()))
    content = layout.encoded(lambda field: field.encoded if isinstance(field, Scalar) else bytes(128))
    return StructValue(content, tuple((layout.offsets[name], name, value) for name, value in held.items()))


def _elements(members: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Members, and the elements of those that are arrays, by names such as ``data[0][2]``."""
    for name, value in members:
        if not isinstance(value, list | tuple):
            yield name, value
        elif value:
            yield from _elements((f"{name}[{i}]", each) for i, each in enumerate(value))
        else:
            raise ArgumentError(f"struct: {name} is empty; an array of C++ has elements")


def _held(value: Any, name: str) -> ArrayMemory | ArrayTensorMap | None:
    if value is None or isinstance(value, ArrayTensorMap):
        return value
    if is_array(value):
        return array_memory(value, name)
    raise ArgumentTypeError(
        f"struct: {name} is {type(value).__name__}; members are arrays, None for a null pointer, tensor maps, and "
        f"numbers of a known type, such as numpy.int32(5)"
    )


def _what(held: ArrayMemory | ArrayTensorMap | None) -> str:
    return "a tensor map" if isinstance(held, ArrayTensorMap) else "a pointer"


def _place(base: Any, path: str) -> tuple[int, int]:
    """Byte offset and size of the field at a path of names."""
    offset, layout = 0, base.dtype if isinstance(base, np.void | np.ndarray) else type(base)
    for name in path.split("."):
        if isinstance(layout, np.dtype):
            known = {each: (entry[0], entry[1]) for each, entry in (layout.fields or {}).items()}
        else:
            known = {each[0]: (each[1], getattr(layout, each[0]).offset) for each in getattr(layout, "_fields_", ())}
        if name not in known:
            raise ArgumentError(f"struct: there is no field {path!r}; there are {', '.join(known) or 'none'}")
        layout, start = known[name]
        offset += start
    return offset, layout.itemsize if isinstance(layout, np.dtype) else ctypes.sizeof(layout)
