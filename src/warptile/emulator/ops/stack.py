"""Stack manipulation: alloca, stacksave, stackrestore."""

from __future__ import annotations

import numpy as np

from warptile.emulator.builders import Assembler, Modifiers, Operation, builder, unknown
from warptile.emulator.lanes import Active
from warptile.ptx.instruction import Immediate, Instruction
from warptile.ptx.variable import TYPE_BYTES

_ALIGNMENT = 8
"""Of memory of an `alloca` that names none."""


@builder("alloca")
def build_alloca(instruction: Instruction, assembler: Assembler) -> Operation:
    """`alloca.{u32,u64} ptr, size{, alignment}`: bytes of local memory, until the function returns."""
    dtype = _type(instruction)
    target = assembler.destination(instruction.operands[0], dtype)
    read = assembler.source(instruction.operands[1], dtype)
    alignment = _ALIGNMENT
    if len(instruction.operands) > 2:
        given = instruction.operands[2]
        if not isinstance(given, Immediate) or int(given.value) < 1 or int(given.value) & (int(given.value) - 1):
            raise unknown(instruction, "takes a power of two as alignment")
        alignment = int(given.value)
    machine = assembler.machine

    def allocate(active: Active) -> None:
        sizes = np.broadcast_to(read(active), active.count).astype(np.int64)
        assert machine.stack is not None
        target(active, machine.stack.take(active, sizes, alignment).astype(dtype))

    return Operation(allocate)


@builder("stacksave")
def build_stacksave(instruction: Instruction, assembler: Assembler) -> Operation:
    """`stacksave.{u32,u64} d`: the stack pointer."""
    dtype = _type(instruction)
    target = assembler.destination(instruction.operands[0], dtype)
    machine = assembler.machine

    def save(active: Active) -> None:
        assert machine.stack is not None
        target(active, machine.stack.top[active.index].astype(dtype))

    return Operation(save)


@builder("stackrestore")
def build_stackrestore(instruction: Instruction, assembler: Assembler) -> Operation:
    """`stackrestore.{u32,u64} a`: what was taken since the `stacksave` of ``a`` is free."""
    read = assembler.source(instruction.operands[0], _type(instruction))
    machine = assembler.machine

    def restore(active: Active) -> None:
        assert machine.stack is not None
        machine.stack.top[active.index] = read(active)

    return Operation(restore)


def _type(instruction: Instruction) -> np.dtype[np.generic]:
    modifiers = Modifiers(instruction)
    name = modifiers.need("u32", "u64")
    modifiers.done()
    return np.dtype(f"u{TYPE_BYTES[name]}")
