"""``mov``: copies, special registers, addresses, packing and unpacking (PTX ISA, "mov")."""

from __future__ import annotations

import numpy as np

from warptile.emulator.builders import Assembler, Modifiers, Operation, Source, builder, unknown
from warptile.emulator.lanes import REGISTER_BYTES, Active, Array
from warptile.emulator.machine import CLOCK_NAMES
from warptile.emulator.ops.typed import FLOATS, INTEGERS, elementwise
from warptile.ptx.instruction import Immediate, Instruction, Operand, SpecialRegister, Vector


@builder("mov")
def move(instruction: Instruction, assembler: Assembler) -> Operation:
    """``mov.type d, a``: a register, a literal, an address, a special register, ``{...}`` on either side."""
    modifiers = Modifiers(instruction)
    name = modifiers.last()
    modifiers.done()
    if len(instruction.operands) != 2:
        raise unknown(instruction, f"takes 2 operands, got {len(instruction.operands)}")
    target, source = instruction.operands
    if isinstance(source, Vector) and isinstance(target, Vector):
        raise unknown(instruction, "only one side can be a vector")
    if name == "b128" or isinstance(source, Vector) or isinstance(target, Vector):
        return _words(instruction, assembler, name)
    if isinstance(source, SpecialRegister) and source.name in CLOCK_NAMES:
        return _clock(instruction, assembler, source.name, name)
    kind = np.dtype(np.bool_) if name == "pred" else FLOATS.get(name) or INTEGERS.get(name)
    if kind is None or (kind.itemsize == 1 and name != "pred"):
        raise unknown(instruction, f"type .{name}")
    if kind.kind == "f" and not isinstance(source, Immediate):
        kind = np.dtype(f"u{kind.itemsize}")  # bits: a signalling NaN stays one
    return elementwise(instruction, assembler, lambda value: value, kind, kind)


def _clock(instruction: Instruction, assembler: Assembler, clock: str, name: str) -> Operation:
    kind = INTEGERS.get(name)
    if kind is None:
        raise unknown(instruction, f"type .{name}")
    write = assembler.destination(instruction.operands[0], kind)
    machine = assembler.machine
    return Operation(lambda active: write(active, machine.clock(clock).astype(kind)))


def _words(instruction: Instruction, assembler: Assembler, name: str) -> Operation:
    """Between one register and a vector of equal parts, or 128 bits at once."""
    target, source = instruction.operands
    whole = REGISTER_BYTES.get(name)
    if whole is None:
        raise unknown(instruction, f"type .{name}")
    if isinstance(source, Vector):
        part = _part_bytes(instruction, whole, source)
        reads = [assembler.source(element, f"u{part}") for element in source.elements if element is not None]
        if len(reads) != len(source.elements):
            raise unknown(instruction, "a source cannot be _")

        def gather(active: Active) -> Array:
            values = [read(active) for read in reads]
            packed = np.empty((active.count, len(values)), dtype=f"u{part}")
            for place, value in enumerate(values):
                packed[:, place] = value
            return packed.view(np.uint8)

        read_bytes: Source = gather
    else:
        read_bytes = _whole_reader(assembler, source, whole)
    if isinstance(target, Vector):
        part = _part_bytes(instruction, whole, target)
        writes = assembler.destinations(target, f"u{part}")

        def scatter(active: Active) -> None:
            parts = read_bytes(active).view(f"u{part}")
            for place, write in enumerate(writes):
                write(active, parts[:, place])

        return Operation(scatter)
    if whole < 16:
        write_one = assembler.destination(target, f"u{whole}")
        return Operation(lambda active: write_one(active, read_bytes(active).view(f"u{whole}")[:, 0]))
    array = assembler.wide(target, written=True)

    def store(active: Active) -> None:
        array[active.index] = read_bytes(active).view(np.uint64)

    return Operation(store)


def _part_bytes(instruction: Instruction, whole: int, vector: Vector) -> int:
    count = len(vector.elements)
    if count not in (2, 4) or whole // count not in (1, 2, 4, 8):
        raise unknown(instruction, f"{8 * whole} bits do not split into {count} registers")
    return whole // count


def _whole_reader(assembler: Assembler, source: Operand, whole: int) -> Source:
    if whole < 16:
        read = assembler.source(source, f"u{whole}")

        def narrow(active: Active) -> Array:
            return np.ascontiguousarray(read(active)).view(np.uint8).reshape(-1, whole)

        return narrow
    array = assembler.wide(source)
    return lambda active: np.array(array[active.index]).view(np.uint8)
