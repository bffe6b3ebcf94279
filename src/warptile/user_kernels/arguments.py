"""What a call gives a kernel, checked against the kernel's parameters, as the arguments of a launch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from warptile.codegen.kernel_names import instance_name, parameter_types
from warptile.errors import ArgumentError, ArgumentTypeError, DTypeError
from warptile.launch.params import SCALAR_BYTES, MapPointer, Pointer, Scalar, StructBytes, integer_range
from warptile.launch.spec import Argument
from warptile.launch.tensor_map import TENSOR_MAP_BYTES, TensorMap
from warptile.ptx.instruction import PtxFunction, Variable
from warptile.user_kernels.array_memory import ArrayMemory, Regions, array_memory, is_array
from warptile.user_kernels.parameter_values import (
    SCALAR_TYPES,
    ArrayTensorMap,
    StructValue,
    struct_bytes,
)
from warptile.user_kernels.pointed_types import CPP_SCALARS, taken_instead

POINTER_BYTES = 8

_LARGEST = {
    "f16": 65504.0, "bf16": float.fromhex("0x1.fep127"), "f32": float.fromhex("0x1.fffffep127"),
    "f64": float.fromhex("0x1.fffffffffffffp1023"),
}  # fmt: skip
"""The largest number of each floating-point type."""

_NUMPY = {kind: name for name, kind in SCALAR_TYPES.items()}


@dataclass(frozen=True)
class _Parameter:
    """A kernel parameter.

    Attributes:
        position: counted from 0.
        kernel: name of the kernel.
        size_bytes: of it.
        ptx_type: such as ``"u64"``; ``"b8"`` of a struct.
        cuda_type: such as ``"float*"`` or ``"int"``; None where the kernel's name does not say.
    """

    position: int
    kernel: str
    size_bytes: int
    ptx_type: str
    cuda_type: str | None

    @property
    def is_struct(self) -> bool:
        """It is an array of bytes in PTX, as structs, tensor maps and 16-bit floats are."""
        return self.ptx_type == "b8" and (self.size_bytes > 1 or self.kind is None)

    @property
    def is_pointer(self) -> bool:
        """It may be a pointer. 64-bit integers cannot be told from pointers where the name does not say the type."""
        if self.cuda_type is not None:
            return self.cuda_type.endswith(("*", "&")) or "(*" in self.cuda_type
        return self.size_bytes == POINTER_BYTES and self.ptx_type in ("u64", "s64", "b64")

    @property
    def points_to_map(self) -> bool:
        """It may be a pointer to a tensor map."""
        return self.is_pointer and (self.cuda_type is None or "CUtensorMap" in self.cuda_type)

    @property
    def kind(self) -> str | None:
        """Its type as a `Scalar`, where it is known."""
        return CPP_SCALARS.get(self.cuda_type or "")

    @property
    def is_float(self) -> bool | None:
        """Whether it is a floating-point number; None where nothing says."""
        kind = self.kind or self.ptx_type
        return None if kind[0] == "b" and kind not in ("bool", "bf16") else "f" in kind

    @property
    def shown(self) -> str:
        """Its type, for messages."""
        if self.cuda_type is not None:
            return f"{self.cuda_type} ({self.size_bytes} bytes)"
        return f"a struct of {self.size_bytes} bytes" if self.is_struct else f".{self.ptx_type}"

    @property
    def example(self) -> str:
        """What it takes, for messages."""
        if self.size_bytes == TENSOR_MAP_BYTES and self.is_struct:
            return "wt.tensor_map(x, box=(64, 64)), or a struct of 128 bytes"
        if self.kind in ("f16", "bf16"):
            return "2.0" if self.kind == "f16" else "2.0, or ml_dtypes.bfloat16(2)"
        if self.is_struct:
            return f"a NumPy record or ctypes structure of {self.size_bytes} bytes, or wt.struct(...)"
        if self.cuda_type is None and self.is_pointer:
            return "an array, None for a null pointer, or a whole number such as 5"
        if self.points_to_map:
            return "wt.tensor_map(x, box=(64, 64)), an array, or None for a null pointer"
        if self.is_pointer:
            return "an array, such as numpy.zeros(128, 'f4'), or None for a null pointer"
        return "2.0" if self.is_float else "True" if self.kind == "bool" else "5"

    @property
    def needed(self) -> str:
        """What it takes, with an example."""
        if self.is_struct or self.is_pointer or self.points_to_map:
            return self.example
        kind = "a number" if self.is_float else "a truth value" if self.kind == "bool" else "a whole number"
        return f"{kind}, such as {self.example}"

    def refusal(self, value: Any, why: str = "") -> ArgumentTypeError:
        """The error for a value that it does not take."""
        said = f" {value!r}" if isinstance(value, bool | int | float | np.generic) else ""
        return ArgumentTypeError(
            f"{self.kernel}: argument {self.position} is {_described(value)}{said}{why}; the parameter is {self.shown} "
            f"and takes {self.needed}"
        )


def launch_arguments(
    function: PtxFunction, values: Sequence[Any], names: Sequence[str] | None = None
) -> tuple[tuple[Argument, ...], Regions]:
    """The arguments of a launch and the memory that they point to.

    Args:
        function: the kernel.
        names: what reports call the arguments; by default ``arg0``, ``arg1`` ...
        values: one for each parameter: arrays and None for pointers; numbers; NumPy records, ctypes structures and
            `StructValue` for structs; `ArrayTensorMap`.

    Raises:
        ArgumentError: their number is not the kernel's, or an integer is out of range.
        ArgumentTypeError: one that its parameter does not take.
        DTypeError: an array whose elements are not what its pointer points to.
    """
    parameters = _parameters(function)
    if len(parameters) != len(values):
        shown = ", ".join(each.cuda_type or each.shown for each in parameters)
        raise ArgumentError(
            f"{instance_name(function.name)}: got {len(values)} arguments; it takes {len(parameters)} ({shown}), such "
            f"as kernel[grid, block]({', '.join(f'arg{i}' for i in range(len(parameters)))})"
        )
    names = names or [f"arg{position}" for position in range(len(values))]
    given = zip(parameters, values, names, strict=True)
    converted = [_named(_converted(parameter, value), name) for parameter, value, name in given]
    regions = Regions(memory for one in converted for memory in _memories(one))
    return tuple(_argument(one, regions.pointer) for one in converted), regions


def arrays_in(values: Sequence[Any]) -> list[ArrayMemory]:
    """The memory of all arrays among the arguments of a call, of those in structs and of tensor maps."""
    found = []
    for position, value in enumerate(values):
        name = f"arg{position}"
        if isinstance(value, StructValue | ArrayTensorMap):
            found += _memories(_named(value, name))
        elif struct_bytes(value) is None and is_array(value):
            found.append(array_memory(value, name))
    return found


def _parameters(function: PtxFunction) -> list[_Parameter]:
    found = [each for each in function.parameters if isinstance(each, Variable)]
    types = parameter_types(function.name)
    if types is None or len(types) != len(found):
        types = (None,) * len(found)  # type: ignore[assignment]
    return [
        _Parameter(position, instance_name(function.name), each.size_bytes, each.type.lstrip("."), cuda_type)
        for position, (each, cuda_type) in enumerate(zip(found, types or (), strict=True))
    ]


@dataclass(frozen=True)
class _MapInMemory:
    """A tensor map for a parameter that points to one."""

    map: ArrayTensorMap


_Converted = Scalar | ArrayMemory | ArrayTensorMap | _MapInMemory | StructValue | None


def _converted(parameter: _Parameter, value: Any) -> _Converted:
    """A value as its parameter takes it; arrays have no place yet."""
    if value is None:
        if parameter.is_pointer:
            return None
        raise parameter.refusal(value)
    if isinstance(value, ArrayTensorMap):
        if parameter.is_struct and parameter.size_bytes == TENSOR_MAP_BYTES:
            return value
        if parameter.points_to_map:
            return _MapInMemory(value)
        raise parameter.refusal(value)
    content = value if isinstance(value, StructValue) else _struct(parameter, value)
    if content is not None:
        if len(content.content) == parameter.size_bytes:
            return content
        raise parameter.refusal(value, f" of {len(content.content)} bytes")
    if is_array(value):
        if parameter.is_pointer:
            return _pointed(parameter, array_memory(value, f"arg{parameter.position}"))
        raise parameter.refusal(value)
    if isinstance(value, np.generic):
        return _numpy_scalar(parameter, value)
    if isinstance(value, bool | int | float):
        return _number(parameter, value)
    raise parameter.refusal(value)


def _pointed(parameter: _Parameter, memory: ArrayMemory) -> ArrayMemory:
    """An array whose elements may be what its parameter points to.

    Raises:
        DTypeError: they are not.
    """
    taken = taken_instead(parameter.cuda_type, memory.element)
    if not taken or memory.low == memory.high:
        return memory
    convert, view = (".to(torch.{})", ".view(torch.uint8)") if memory.framework == "torch" else (
        ".astype('{}')", ".view('uint8')",
    )  # fmt: skip
    name = memory.name
    raise DTypeError(
        f"{parameter.kernel}: argument {parameter.position} is an array of {memory.element}; the parameter is "
        f"{parameter.cuda_type} and takes {', '.join(taken)}, or bytes: give {name}{convert.format(taken[0])} for the "
        f"values, or {name}{view} for the bytes as they are"
    )


def _struct(parameter: _Parameter, value: Any) -> StructValue | None:
    """A record, or any NumPy scalar for a parameter that is a struct of its size, such as a complex number for a
    ``float2``."""
    content = struct_bytes(value)
    if content is None and parameter.is_struct and isinstance(value, np.generic):
        kind = SCALAR_TYPES.get(value.dtype.name)
        if parameter.kind is None or kind == parameter.kind:
            content = value.tobytes()
    return None if content is None else StructValue(content)


def _named(one: _Converted, name: str) -> _Converted:
    """An argument whose arrays are called after it, and those in a struct after their members."""
    if isinstance(one, StructValue):
        return replace(
            one, fields=tuple((offset, path, _renamed(held, f"{name}.{path}")) for offset, path, held in one.fields)
        )
    if isinstance(one, _MapInMemory):
        return _MapInMemory(replace(one.map, memory=replace(one.map.memory, name=name)))
    return one if isinstance(one, Scalar) else _renamed(one, name)


def _renamed(held: ArrayMemory | ArrayTensorMap | None, name: str) -> ArrayMemory | ArrayTensorMap | None:
    if isinstance(held, ArrayTensorMap):
        return replace(held, memory=replace(held.memory, name=name))
    return None if held is None else replace(held, name=name)


def _numpy_scalar(parameter: _Parameter, value: np.generic) -> Scalar:
    kind = SCALAR_TYPES.get(value.dtype.name)
    if kind is None or parameter.is_struct or SCALAR_BYTES[kind] != parameter.size_bytes:
        raise parameter.refusal(value, _better(parameter))
    if parameter.is_float is not None and parameter.is_float != ("f" in kind):
        raise parameter.refusal(value, _better(parameter))
    return Scalar(kind, value.item())


def _better(parameter: _Parameter) -> str:
    name = _NUMPY.get(parameter.kind or "")
    return f", which is not numpy.{name}" if name and name != "bfloat16" else ""


def _number(parameter: _Parameter, value: bool | int | float) -> Scalar:
    """A number of Python's, which has the type of its parameter."""
    kind = parameter.kind
    if kind is None:
        if parameter.is_struct:
            raise parameter.refusal(value)
        if parameter.cuda_type is not None and parameter.is_pointer:
            raise parameter.refusal(value, ", which is no array")
        kind = _kind_by_size(parameter, value)
    if isinstance(value, float) and "f" not in kind:
        raise parameter.refusal(value)
    if not _holds(kind, value):
        raise ArgumentError(
            f"{parameter.kernel}: argument {parameter.position} is {value}; the parameter is {parameter.shown}, which "
            f"does not hold it: give a smaller number, such as {parameter.example}"
        )
    return Scalar(kind, value)


def _holds(kind: str, value: bool | int | float) -> bool:
    """Whether a type has a number near a value: an integer itself, a float one that is finite if the value is."""
    if kind == "bool":
        return True
    if "f" not in kind:
        return value in integer_range(kind)
    largest = _LARGEST[kind]
    return not abs(value) > largest or value in (float("inf"), float("-inf"))


def _kind_by_size(parameter: _Parameter, value: bool | int | float) -> str:
    """The type of a number where only PTX says something, which does not tell signed from unsigned integers."""
    bits = 8 * parameter.size_bytes
    if parameter.is_float or (parameter.is_float is None and isinstance(value, float)):
        return f"f{bits}"
    return f"{'s' if value < 0 else 'u'}{bits}"


def _memories(one: _Converted) -> list[ArrayMemory]:
    if isinstance(one, StructValue):
        return [memory for _, _, field in one.fields for memory in _memories(field)]
    if isinstance(one, ArrayTensorMap):
        return [one.memory]
    if isinstance(one, _MapInMemory):
        return [one.map.memory]
    return [one] if isinstance(one, ArrayMemory) else []


def _argument(one: _Converted, pointer: Callable[[ArrayMemory], Pointer]) -> Argument:
    if isinstance(one, Scalar):
        return one
    if isinstance(one, StructValue):
        return StructBytes(one.content, tuple((offset, _field(field, pointer)) for offset, _, field in one.fields))
    if isinstance(one, _MapInMemory):
        found = _field(one.map, pointer)
        assert isinstance(found, TensorMap)
        return MapPointer(found)
    return _field(one, pointer)


def _field(one: ArrayMemory | ArrayTensorMap | None, pointer: Callable[[ArrayMemory], Pointer]) -> Pointer | TensorMap:
    if one is None:
        return Pointer(None)
    if isinstance(one, ArrayMemory):
        return pointer(one)
    place = pointer(one.memory)
    assert place.operand is not None, "tensor maps have elements"
    return replace(one.fields, operand=place.operand, offset_bytes=place.offset_bytes)


def _described(value: Any) -> str:
    """A value in a few words."""
    if value is None:
        return "None"
    if isinstance(value, ArrayTensorMap):
        return "a tensor map"
    if isinstance(value, StructValue | ctypes.Structure | np.void):
        return "a struct"
    if is_array(value):
        return f"an array of {getattr(value, 'dtype', 'elements')}"
    return type(value).__name__
