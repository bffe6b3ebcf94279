"""Global memory at the start of a launch: operands and parameters."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from warptile.emulator.async_ops.tensor_boxes import encode
from warptile.emulator.lanes import POISON_BYTE, Array
from warptile.emulator.memory.accesses import GLOBAL_BASE
from warptile.emulator.memory.device_memory import PARAMETER_BYTES, DeviceMemory
from warptile.emulator.memory.spaces import MAPPED, PARAMETERS, GlobalSpace, room
from warptile.emulator.program import used_variables
from warptile.errors import EmulationError, LayoutError, ParameterMismatch
from warptile.launch.access import Access, Rows
from warptile.launch.params import MapPointer, Params, Pointer, StructBytes
from warptile.launch.spec import Argument, LaunchSpec
from warptile.launch.tensor_map import TENSOR_MAP_ALIGNMENT, TENSOR_MAP_BYTES, TensorMap
from warptile.ptx.instruction import PtxModule, Variable


def place_operands(
    module: PtxModule,
    spec: LaunchSpec,
    operands: Mapping[str, Array],
    accesses: Mapping[str, Access],
    device: DeviceMemory | None,
    names: tuple[str, ...],
) -> DeviceMemory:
    """Memory with the operands ``names`` of a launch and the variables of its module: ``device``, or new memory.

    Raises:
        EmulationError: an operand has no array.
        LayoutError: one that has is not C-contiguous.
    """
    sizes: dict[str, int] = {}
    for name in names:
        if name not in operands:
            raise EmulationError(
                f"operand {name} is in the launch but has no array; there are {', '.join(operands) or 'none'}"
            )
        sizes[name] = bytes_of(name, operands[name]).size + accesses.get(name, Access()).lead_bytes
    # Headers leave many variables in a module, of which a kernel uses few. Other launches may use others.
    used = used_variables(module, spec.entry) if device is None else None
    device = device or DeviceMemory(sum(map(room, sizes.values())))
    device.start_launch()
    for name in names:
        access = accesses.get(name, Access())
        device.place(name, bytes_of(name, operands[name]), writable=access.writes, lead=access.lead_bytes)
        device.space.named(name).read_by_host = access.writes
        if access.holds is not None:
            _forget_all_but(device.space, name, access.holds)
    device.load(module, used)
    return device


def bytes_of(name: str, array: Array) -> NDArray[np.uint8]:
    """The bytes of an operand (a view)."""
    if not array.flags.c_contiguous:
        raise LayoutError(f"operand {name} is not C-contiguous; pass numpy.ascontiguousarray({name.lower()})")
    return array.reshape(-1).view(np.uint8)


def _forget_all_but(space: GlobalSpace, name: str, rows: Rows) -> None:
    """Make what an operand holds outside ``rows`` unknown, as if nothing had ever written it."""
    home = space.named(name)
    home.initialised = False
    home.padded = bool(rows.count and rows.columns)
    unknown = np.ones(home.size, dtype=np.bool_)
    bytes_of_rows(unknown, rows)[...] = False
    space.data[home.start : home.start + home.size][unknown] = POISON_BYTE
    space.shadow[home.start : home.start + home.size][unknown] = MAPPED


def bytes_of_rows(content: Array, rows: Rows) -> Array:
    """The bytes of ``rows`` as a view of an operand's: (matrices, rows, bytes of a row)."""
    shape = (rows.matrices, rows.count, rows.columns * rows.element_bytes)
    if not all(shape):
        return content[:0].reshape(shape)
    last = (rows.matrices - 1) * rows.matrix_stride_bytes + (rows.count - 1) * rows.stride_bytes + shape[2]
    inside = content[rows.offset_bytes : rows.offset_bytes + last]
    assert len(inside) == last
    return as_strided(inside, shape, (rows.matrix_stride_bytes, rows.stride_bytes, 1))


def fill_parameters(space: GlobalSpace, parameters: tuple[object, ...], spec: LaunchSpec) -> dict[str, int]:
    """Lay the arguments out as the driver does: each at its alignment. Returns the address of each parameter."""
    if len(parameters) != len(spec.arguments):
        raise ParameterMismatch(
            f"the kernel takes {len(parameters)} parameters and the launch gives {len(spec.arguments)}",
            kernel=spec.entry,
        )
    content = bytearray(space.named(PARAMETERS).size)
    start = GLOBAL_BASE + space.named(PARAMETERS).start
    addresses = {}
    top, bottom = 0, len(content)  # maps that are pointed to lie behind the parameters, from the end on
    for number, (parameter, argument) in enumerate(zip(parameters, spec.arguments, strict=True)):
        assert isinstance(parameter, Variable)
        top = -(-top // parameter.alignment_bytes) * parameter.alignment_bytes
        addresses[parameter.name] = start + top
        if isinstance(argument, MapPointer):
            bottom = (bottom - TENSOR_MAP_BYTES) // TENSOR_MAP_ALIGNMENT * TENSOR_MAP_ALIGNMENT
            content[bottom : bottom + TENSOR_MAP_BYTES] = _argument_bytes(space, argument.map)
            raw = (start + bottom).to_bytes(8, "little")
        else:
            raw = _argument_bytes(space, argument)
        if len(raw) != parameter.size_bytes:
            raise ParameterMismatch(
                f"parameter {number}, {parameter.name}, has {parameter.size_bytes} bytes in the kernel; the launch "
                f"gives {len(raw)}: {_described(argument)}",
                kernel=spec.entry,
            )
        if top + len(raw) > bottom:
            raise ParameterMismatch(
                f"parameter {number}, {parameter.name}, ends at byte {top + len(raw)}; a kernel has at most "
                f"{PARAMETER_BYTES} bytes of parameters",
                kernel=spec.entry,
            )
        content[top : top + len(raw)] = raw
        top += len(raw)
    space.fill(PARAMETERS, bytes(content), writable=False)
    # An index before the first operand must not meet what no parameter occupies.
    space.shadow[start - GLOBAL_BASE + top : start - GLOBAL_BASE + bottom] = 0
    space.named(PARAMETERS).initialised = False
    return addresses


def _described(argument: Argument) -> str:
    """An argument in a few words, for messages; of a struct its members and their offsets."""
    if isinstance(argument, Params):
        members = ", ".join(f"{name} at {argument.offsets[name]}" for name, _ in argument.members)
        return f"a struct of {members or 'no members'}"
    if isinstance(argument, StructBytes):
        return f"a struct of {argument.size_bytes} bytes"
    if isinstance(argument, TensorMap):
        return f"a tensor map of {argument.operand}"
    if isinstance(argument, MapPointer):
        return f"a pointer to a tensor map of {argument.map.operand}"
    if isinstance(argument, Pointer):
        return f"a pointer to {argument.operand}" if argument.operand is not None else "a null pointer"
    return f"{argument.type} {argument.value}"


def _argument_bytes(space: GlobalSpace, argument: Argument) -> bytes:
    if isinstance(argument, Params | StructBytes):
        return argument.encoded(lambda field: _argument_bytes(space, field))
    if isinstance(argument, TensorMap):
        start = GLOBAL_BASE + space.named(argument.operand).start + argument.offset_bytes
        return encode(*argument.placed(start))
    if isinstance(argument, Pointer):
        address = 0
        if argument.operand is not None:
            address = GLOBAL_BASE + space.named(argument.operand).start + argument.offset_bytes
        return address.to_bytes(8, "little")
    assert not isinstance(argument, MapPointer), "it has a place of its own"
    return argument.encoded
