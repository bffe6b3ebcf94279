"""Kernel parameters: scalars, pointers, tensor maps, and a struct of them laid out as C++ does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from warptile.launch.tensor_map import TENSOR_MAP_ALIGNMENT, TENSOR_MAP_BYTES, TensorMap

SCALAR_BYTES = {"s32": 4, "u32": 4, "s64": 8, "u64": 8, "f16": 2, "f32": 4, "f64": 8}


@dataclass(frozen=True)
class Scalar:
    """A kernel parameter passed by value. ``type`` is one of s32, u32, s64, u64, f16, f32, f64."""

    type: str
    value: int | float

    def __post_init__(self) -> None:
        assert self.type in SCALAR_BYTES, self.type


@dataclass(frozen=True)
class Pointer:
    """A kernel parameter that is the address of ``operand`` plus ``offset_bytes``; operand None is a null pointer."""

    operand: str | None
    offset_bytes: int = 0


Field = Scalar | Pointer | TensorMap


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

    def with_values(self, values: Mapping[str, float]) -> Params:
        """The same struct with other values in scalar members."""
        assert values.keys() <= self.offsets.keys(), values
        return Params(
            tuple(
                (name, replace(field, value=values[name]) if name in values and isinstance(field, Scalar) else field)
                for name, field in self.members
            )
        )
