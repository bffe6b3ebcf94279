"""`atom` and `red`: lanes that update the same address do so one after the other, in lane order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from warptile.emulator.arithmetic.memory_updates import OPERATIONS, MemoryUpdate
from warptile.emulator.builders import Assembler, Modifiers, Operation, builder, unknown
from warptile.emulator.lanes import Active, Array
from warptile.emulator.memory.spaces import INITIALISED, MAPPED, WRITTEN
from warptile.emulator.ops.load_store import SCOPES, VECTOR, address_source, take_space
from warptile.ptx.instruction import Instruction, Operand, Sink, Vector
from warptile.ptx.variable import TYPE_BYTES

_HALVES = ("f16", "f16x2", "bf16", "bf16x2")
_EXTREMES = ("u32", "s32", "u64", "s64")
_TYPES_OF = {
    "add": ("u32", "s32", "u64", "f32", "f64", *_HALVES), "min": _EXTREMES, "max": _EXTREMES, "inc": ("u32",),
    "dec": ("u32",), "and": ("b32", "b64"), "or": ("b32", "b64"), "xor": ("b32", "b64"), "exch": ("b32", "b64", "b128"),
    "cas": ("b16", "b32", "b64", "b128"),
}  # fmt: skip
"""Types of each operation (PTX ISA, "Parallel Synchronization and Communication Instructions: atom"; ptxas 13.0)."""

_VECTORS = {
    "f32": ("v2", "v4"), "f16": ("v2", "v4", "v8"), "bf16": ("v2", "v4", "v8"), "f16x2": ("v2", "v4"),
    "bf16x2": ("v2", "v4"),
}  # fmt: skip
"""Vectors of global memory that one instruction may update, by element type (sm_90)."""

_SEMANTICS = {"atom": ("relaxed", "acquire", "release", "acq_rel"), "red": ("relaxed", "release")}


@dataclass(frozen=True)
class _Form:
    """What an atomic says apart from its operands.

    Attributes:
        name: of the operation.
        type: of the elements.
        count: elements of a vector, 1 without.
        space: of the address.
        hinted: a cache policy follows the operands.
    """

    name: str
    type: str
    count: int
    space: str
    hinted: bool

    @property
    def bytes_together(self) -> int:
        """Bytes of one lane; the address is a multiple of it."""
        return TYPE_BYTES[self.type] * self.count


@builder("atom", "red")
def build_atomic(instruction: Instruction, assembler: Assembler) -> Operation:
    """All operations and types on global, shared and generic addresses; vectors on global and generic ones."""
    form = _form(instruction)
    operands = list(instruction.operands[: len(instruction.operands) - form.hinted])
    result = operands.pop(0) if instruction.opcode == "atom" else Sink()
    if len(operands) != (3 if form.name == "cas" else 2):
        raise unknown(instruction, f"takes {'two values' if form.name == 'cas' else 'a value'} behind the address")
    address, space = address_source(assembler, operands[0], form.space)
    values, *swapped = (_Words(instruction, assembler, operand, form) for operand in operands[1:])
    target = None if isinstance(result, Sink) else _Words(instruction, assembler, result, form, written=True)
    machine = assembler.machine
    updates = MemoryUpdate(form.name, form.type), MemoryUpdate(form.name, form.type, flushes=True)

    def update(active: Active, addresses: Array, given: Array, new: Array | None) -> Array:
        """What the lanes find: (lanes, elements)."""
        memory = machine.memory
        parts = memory.split(active, addresses) if space == "generic" else None
        if parts is not None:
            found = np.empty_like(given)
            for mask in parts:
                replaced = new[mask] if new is not None else None
                found[mask] = update(active.where(mask), addresses[mask], given[mask], replaced)
            return found
        together, size = form.bytes_together, values.element.itemsize
        where, offsets = memory.resolve(instruction, active, space, addresses, together)
        memory.check_read(instruction, active, where, offsets, together)
        memory.check_write(instruction, active, where, offsets, together, None)
        if memory.races is not None:
            for place in range(0, together, size):
                memory.races.atomic(instruction, active, where, offsets + place, size)
        in_global = where is memory.global_space
        if in_global:
            machine.count.access_global(instruction, active, addresses, together, write=True)
        words, places = where.words(size), offsets // size
        old = updates[in_global].apply(words, places, given, new)
        if any(np.any(words[places + each] != old[:, each]) for each in range(old.shape[1])):
            machine.last_effect = machine.steps
        else:  # a lock that is taken, a flag that is not set
            machine.last_poll = machine.steps
        where.mark(offsets, together, MAPPED | INITIALISED | WRITTEN)
        return old

    def run(active: Active) -> None:
        addresses = address(active)
        old = update(active, addresses, values.read(active), swapped[0].read(active) if swapped else None)
        if target is not None:
            target.write(active, old)

    return Operation(run)


def _form(instruction: Instruction) -> _Form:
    """ptxas takes the modifiers in any order: ``atom.global.add.v2.f32`` is also ``atom.global.v2.f32.add``."""
    modifiers = Modifiers(instruction)
    every = tuple(dict.fromkeys(name for types in _TYPES_OF.values() for name in types))
    type_name = modifiers.take(*every)
    if type_name is None:
        raise unknown(instruction, f"has none of the types .{', .'.join(every)}")
    space = take_space(modifiers)
    if space not in ("generic", "global", "shared"):
        raise unknown(instruction, f"no atomics on .{space} memory")
    name = modifiers.need(*(each for each in OPERATIONS if instruction.opcode == "atom" or each not in ("exch", "cas")))
    vector = modifiers.take(*VECTOR)
    noftz = modifiers.flag("noftz")
    modifiers.take(*_SEMANTICS[instruction.opcode])
    modifiers.take(*SCOPES)
    hinted = modifiers.flag("L2::cache_hint")
    modifiers.done()
    if noftz != (type_name in _HALVES):
        raise unknown(instruction, f".noftz goes with .{', .'.join(_HALVES)}, and with no other type")
    if vector is not None:
        _check_vector(instruction, name, type_name, vector, space)
        space = "global"  # also where the instruction names none
    elif type_name not in _TYPES_OF[name]:
        raise unknown(instruction, f".{name} takes one of the types .{', .'.join(_TYPES_OF[name])}")
    return _Form(name, type_name, VECTOR.get(vector or "", 1), space, hinted)


def _check_vector(instruction: Instruction, name: str, type_name: str, vector: str, space: str) -> None:
    if vector not in _VECTORS.get(type_name, ()) or name not in ("add", "min", "max") or space == "shared":
        raise unknown(instruction, "vectors are sums of .f32, or sums, .min and .max of f16 and bf16, in global memory")
    if type_name == "f32" and name != "add":
        raise unknown(instruction, f"vectors of .f32 have .add alone, no .{name}")


class _Words:
    """An operand of an atomic as (lanes, elements): registers of one element, or of the two of a packed type."""

    def __init__(
        self, instruction: Instruction, assembler: Assembler, operand: Operand, form: _Form, *, written: bool = False
    ) -> None:
        self.element = MemoryUpdate(form.name, form.type).element
        self._register = np.dtype(f"u{min(TYPE_BYTES[form.type], 8)}")
        self._pair: Array | None = None
        self._columns: list[Any] = []
        if form.type == "b128":
            self._pair = assembler.wide(operand, written=written)
            return
        if isinstance(operand, Vector) != (form.count > 1):
            raise unknown(instruction, f"each of its vector operands has {form.count} elements")
        bind = assembler.destinations if written else assembler.sources
        self._columns = bind(operand, self._register)
        if len(self._columns) != form.count:
            raise unknown(instruction, f"each of its vector operands has {form.count} elements")

    def read(self, active: Active) -> Array:
        """The elements of the active lanes."""
        if self._pair is not None:
            return np.ascontiguousarray(self._pair[active.index])
        table = np.empty((active.count, len(self._columns)), dtype=self._register)
        for number, read in enumerate(self._columns):
            table[:, number] = read(active)
        return table.view(self.element)

    def write(self, active: Active, elements: Array) -> None:
        """Write the elements of the active lanes."""
        if self._pair is not None:
            self._pair[active.index] = elements
            return
        table = np.ascontiguousarray(elements).view(self._register)
        for number, write in enumerate(self._columns):
            write(active, table[:, number])
