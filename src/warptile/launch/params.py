"""Kernel parameters: scalars, pointers, tensor maps, and structs: of such members, or any other as bytes."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from warptile.errors import ArgumentError
from warptile.launch.tensor_map import TENSOR_MAP_ALIGNMENT, TENSOR_MAP_BYTES, TensorMap

SCALAR_BYTES = {
    "bool": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "s32": 4, "u32": 4, "s64": 8, "u64": 8,
    "f16": 2, "bf16": 2, "f32": 4, "f64": 8,
}  # fmt: skip
"""Bytes, and alignment, of each type of a scalar."""


@dataclass(frozen=True)
class Scalar:
    """A number passed by value.

    Attributes:
        type: one of `SCALAR_BYTES`: bool, s8 to s64, u8 to u64, f16, bf16, f32, f64.
        value: a whole number in the range of an integer type; floats are rounded to nearest, ties to even.

    Raises:
        ArgumentError: an unknown type.
    """

    type: str
    value: int | float

    def __post_init__(self) -> None:
        if self.type not in SCALAR_BYTES:
            raise ArgumentError(
                f"Scalar: got type {self.type!r}; it takes {', '.join(SCALAR_BYTES)}, such as Scalar('s32', 5)"
            )

    @cached_property
    def encoded(self) -> bytes:
        """Its bytes, little endian. A float too large for its type becomes infinite.

        Raises:
            ArgumentError: an integer outside the range of its type, or no integer at all.
        """
        if self.type == "bool":
            return bytes([bool(self.value)])
        if self.type == "bf16":
            return _bfloat_bits(self.value).to_bytes(2, "little")
        if self.type[0] != "f":
            return self._integer()
        code = {"f16": "<e", "f32": "<f", "f64": "<d"}[self.type]
        try:
            return struct.pack(code, self.value)
        except OverflowError:
            return struct.pack(code, math.copysign(math.inf, self.value))

    def _integer(self) -> bytes:
        held = integer_range(self.type)
        if int(self.value) != self.value or int(self.value) not in held:
            low, high = held.start, held.stop - 1
            raise ArgumentError(
                f"Scalar({self.type!r}, {self.value!r}): {self.type} holds whole numbers from {low} to {high}; give "
                f"one of them, such as Scalar({self.type!r}, {high}), or a wider type"
            )
        return int(self.value).to_bytes(SCALAR_BYTES[self.type], "little", signed=self.type[0] == "s")


def integer_range(kind: str) -> range:
    """The numbers that an integer type of a scalar holds."""
    bits = 8 * SCALAR_BYTES[kind]
    return range(-(1 << bits - 1), 1 << bits - 1) if kind[0] == "s" else range(1 << bits)


def _bfloat_bits(value: float) -> int:
    """A number rounded to the nearest bf16, ties to even, as its 16 bits."""
    if math.isnan(value):
        return 0x7FFF
    try:
        single = struct.pack("<f", value)
    except OverflowError:
        single = struct.pack("<f", math.copysign(math.inf, value))
    bits = int.from_bytes(single, "little")
    # Where rounding to f32 has met the middle between two bf16, the side that the number was on decides.
    back = struct.unpack("<f", single)[0]
    if bits & 0xFFFF == 0x8000 and back != value:
        bits += 1 if (abs(value) > abs(back)) else -1
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


@dataclass(frozen=True)
class Pointer:
    """A kernel parameter that is the address of ``operand`` plus ``offset_bytes``; operand None is a null pointer."""

    operand: str | None
    offset_bytes: int = 0


Field = Scalar | Pointer | TensorMap


@dataclass(frozen=True)
class MapPointer:
    """A kernel parameter that is the address of a tensor map in global memory, which only the kernel may read.

    Attributes:
        map: which the emulator puts there. GPUs take maps as parameters (``const __grid_constant__ CUtensorMap``).
    """

    map: TensorMap


@dataclass(frozen=True)
class StructBytes:
    """One kernel parameter that is any struct, union or array in a struct, as the bytes that memory holds.

    Attributes:
        content: all bytes of it, those of pointers and tensor maps included, whatever they are.
        fields: pointers and tensor maps in it, each with its byte offset; they replace what ``content`` has there.

    Raises:
        ArgumentError: a field that does not fit into the content, or lies across another one.
    """

    content: bytes
    fields: tuple[tuple[int, Pointer | TensorMap], ...] = ()

    def __post_init__(self) -> None:
        end = 0
        for offset, field in sorted(self.fields, key=lambda entry: entry[0]):
            size = field_bytes(field)[0]
            if offset < end or offset + size > len(self.content):
                raise ArgumentError(
                    f"struct of {len(self.content)} bytes: the {'tensor map' if size > 8 else 'pointer'} at byte "
                    f"{offset} takes bytes {offset} to {offset + size - 1}; it needs room of its own, such as "
                    f"StructBytes(bytes(16), ((0, Pointer('x')), (8, Pointer('y'))))"
                )
            end = offset + size

    @property
    def size_bytes(self) -> int:
        """Size of the struct in bytes."""
        return len(self.content)

    def encoded(self, encode: Callable[[Field], bytes]) -> bytes:
        """The bytes of the struct; ``encode`` gives those of a pointer or tensor map."""
        content = bytearray(self.content)
        for offset, field in self.fields:
            raw = encode(field)
            content[offset : offset + len(raw)] = raw
        return bytes(content)

    @property
    def placed(self) -> tuple[tuple[str, int, Field], ...]:
        """Its pointers and tensor maps: no name, byte offset, and what stands there."""
        return tuple(("", offset, field) for offset, field in self.fields)


def field_bytes(field: Field) -> tuple[int, int]:
    """Size and alignment of a parameter or struct member in bytes."""
    if isinstance(field, TensorMap):
        return TENSOR_MAP_BYTES, TENSOR_MAP_ALIGNMENT
    size = 8 if isinstance(field, Pointer) else SCALAR_BYTES[field.type]
    return size, size


@dataclass(frozen=True)
class Params:
    """One kernel parameter that is a struct (``const __grid_constant__ Params``), its members in order.

    The layout is that of a standard-layout struct in the C++ ABI: each member at the next multiple of its alignment
    (its size, or 64 bytes for a tensor map), the struct padded to its largest alignment.

    Attributes:
        members: name and value of each member.
    """

    members: tuple[tuple[str, Field], ...]

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Byte offset of each member."""
        found, top = {}, 0
        for name, field in self.members:
            size, alignment = field_bytes(field)
            top = -(-top // alignment) * alignment
            found[name] = top
            top += size
        return found

    @cached_property
    def alignment(self) -> int:
        """Alignment of the struct in bytes."""
        return max((field_bytes(field)[1] for _, field in self.members), default=1)

    @cached_property
    def size_bytes(self) -> int:
        """Size of the struct in bytes."""
        if not self.members:
            return 0
        name, field = self.members[-1]
        end = self.offsets[name] + field_bytes(field)[0]
        return -(-end // self.alignment) * self.alignment

    def encoded(self, encode: Callable[[Field], bytes]) -> bytes:
        """The bytes of the struct; ``encode`` gives those of one member. Padding is zero."""
        content = bytearray(self.size_bytes)
        for name, field in self.members:
            raw = encode(field)
            content[self.offsets[name] : self.offsets[name] + len(raw)] = raw
        return bytes(content)

    @property
    def placed(self) -> tuple[tuple[str, int, Field], ...]:
        """Its members: name, byte offset and value."""
        return tuple((name, self.offsets[name], field) for name, field in self.members)

    def with_values(self, values: Mapping[str, float]) -> Params:
        """The same struct with other values in scalar members."""
        assert values.keys() <= self.offsets.keys(), values
        return Params(
            tuple(
                (name, replace(field, value=values[name]) if name in values and isinstance(field, Scalar) else field)
                for name, field in self.members
            )
        )
