"""Loads and stores as records of `memory_access`."""

from __future__ import annotations

from typing import Any

import numpy as np

from warptile.emulator.builders import Modifiers, immediate_array
from warptile.emulator.compiled_steps import memory_access as a
from warptile.emulator.compiled_steps.loop_builder import Loop, Untranslated, address_of
from warptile.emulator.lanes import Array
from warptile.emulator.machine import Machine
from warptile.emulator.memory.accesses import GLOBAL_BASE
from warptile.emulator.ops.load_store import VECTOR, reads_constants, storage_type, take_access_hints, take_space
from warptile.ptx.instruction import Address, Immediate, Instruction, Operand, Register, Symbol, Vector
from warptile.ptx.variable import TYPE_BYTES

SPACES = {"global": a.GLOBAL, "shared": a.SHARED, "local": a.LOCAL, "generic": a.GENERIC}
_STRONG = frozenset({"relaxed", "acquire", "release", "volatile", "mmio"})
_FILLS = {2: "fill.i16:c", 4: "fill.i32:c", 8: "fill.i64:c"}


def access(instruction: Instruction, machine: Machine, constants: dict[int, Array]) -> tuple[int, ...]:
    """The operands of a load or store for `memory_access`, as words.

    Args:
        instruction: `ld` or `st`.
        machine: with the registers and the frame of its function.
        constants: registers that hold one value in every lane, by value; new ones are added.

    Raises:
        Untranslated: it is the interpreter's.
    """
    type_name, space, count = _form(instruction, machine)
    element = storage_type(type_name)
    loads = instruction.opcode == "ld"
    target, where = instruction.operands if loads else reversed(instruction.operands)
    register, register_bytes, offset, space = address(where, machine, space)
    width, registers = _registers(target, machine, count, element.itemsize, constants, loads=loads)
    words = [0] * a.ACCESS_OPERANDS
    words[a.ADDRESS], words[a.ADDRESS_BYTES], words[a.OFFSET] = register, register_bytes, offset
    words[a.SPACE], words[a.SIZE] = SPACES[space], element.itemsize * count
    words[a.ELEMENT_BYTES], words[a.ELEMENTS] = element.itemsize, count
    words[a.REGISTER_BYTES], words[a.SIGNED] = width, element.kind == "i"
    words[a.REGISTERS : a.REGISTERS + count] = registers
    if not (loads and reads_constants(instruction)):
        words[a.COUNTERS] = address_of(machine.count.row(instruction))
    if machine.memory.races is not None:
        words[a.TAG] = machine.memory.races.tag_of(instruction)
        if words[a.TAG] & 3:
            raise Untranslated  # the memory model in use makes a strong access of it
    return tuple(words)


def parameter_loops(instruction: Instruction, machine: Machine) -> list[Loop]:
    """A load of a kernel parameter at a fixed place as loops that fill registers.

    Raises:
        Untranslated: it is none, or not of the usual kind.
    """
    modifiers = Modifiers(instruction)
    type_name = modifiers.last()
    space = take_space(modifiers)
    count = VECTOR.get(modifiers.take(*VECTOR) or "", 1)
    target, where = instruction.operands
    if space != "param" or modifiers.rest or not isinstance(where, Address) or not isinstance(where.base, Symbol):
        raise Untranslated
    if where.base.name in machine.frame:
        raise Untranslated
    start = machine.address_of(where.base.name) + where.base.offset + where.offset - GLOBAL_BASE
    element = storage_type(type_name)
    size = element.itemsize
    if size not in _FILLS:
        raise Untranslated
    width, registers = _registers(target, machine, count, size, {}, loads=True)
    if width != size:
        raise Untranslated
    loops = []
    for number, register in enumerate(registers):
        raw = machine.global_space.data[start + number * size : start + (number + 1) * size].tobytes()
        if register:
            loops.append(Loop(_FILLS[size], (register, int.from_bytes(raw, "little"))))
    if not loops:
        raise Untranslated
    return loops


def _form(instruction: Instruction, machine: Machine) -> tuple[str, str, int]:
    """Type, space and number of elements of a weak access of up to 16 bytes."""
    if instruction.opcode not in ("ld", "st") or _STRONG & set(instruction.modifiers):
        raise Untranslated
    modifiers = Modifiers(instruction)
    type_name = modifiers.last()
    space = take_space(modifiers)
    count = VECTOR.get(modifiers.take(*VECTOR) or "", 1)
    hinted = take_access_hints(modifiers)
    size = TYPE_BYTES.get(type_name, 16)
    if modifiers.rest or hinted or size > 8 or size * count > 16 or len(instruction.operands) != 2:
        raise Untranslated
    memory = machine.memory
    if (memory.previous is not None and space in ("global", "generic")) or (
        memory.clustered and space in ("shared", "generic")
    ):
        raise Untranslated
    return type_name, space, count


def address(operand: Operand, machine: Machine, space: str) -> tuple[int, int, int, str]:
    """The register of an address (or 0), its bytes, what is added, and the space that it lies in."""
    if not isinstance(operand, Address):
        raise Untranslated
    base = operand.base
    if isinstance(base, Register):
        array = machine.registers.array(base)
        if array.ndim != 1 or array.dtype.itemsize not in (4, 8):
            raise Untranslated
        space = "global" if space == "param" else space
        if array.dtype.itemsize == 4 and space == "global":
            raise Untranslated  # the lower 32 bits of an address
        return address_of(array), array.dtype.itemsize, int(operand.offset), space
    if isinstance(base, Symbol):
        found = machine.addresses_of(base.name, base.offset + int(operand.offset))
        if len(found) != 1:
            raise Untranslated
        if space == "param":
            space = "local" if base.name in machine.frame else "global"
        return 0, 8, int(found[0]), space
    return 0, 8, int(operand.offset), space


def _registers(
    operand: Operand, machine: Machine, count: int, size: int, constants: dict[int, Array], *, loads: bool
) -> tuple[int, list[int]]:
    """The bytes of the registers of an access, and the address of each; 0 for one that is not written."""
    elements: tuple[Any, ...] = operand.elements if isinstance(operand, Vector) else (operand,)
    if len(elements) != count:
        raise Untranslated
    widths, found = set(), []
    for element in elements:
        if isinstance(element, Immediate) and not loads:
            value = int.from_bytes(immediate_array(element, np.dtype(f"u{size}")).tobytes(), "little")
            constant = constants.get(value)
            if constant is None:
                constant = constants[value] = np.full(machine.geometry.lanes, value, dtype=np.uint64)
            array: Array | None = constant
        elif isinstance(element, Register):
            array = machine.registers.array(element)
        elif element is None and loads:
            found.append(0)
            continue
        else:
            raise Untranslated
        assert array is not None
        if array.ndim != 1 or array.dtype == np.bool_ or array.dtype.itemsize < size:
            raise Untranslated
        widths.add(array.dtype.itemsize)
        found.append(address_of(array))
    if len(widths) != 1:
        raise Untranslated
    return widths.pop(), found
