"""Functions of the CUDA device runtime that a kernel may call: printing, assertions, allocation."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import numpy as np

from warptile.emulator.builders import Assembler, Source
from warptile.emulator.lanes import Active
from warptile.emulator.memory.accesses import GLOBAL_BASE, LOCAL_WINDOW
from warptile.emulator.memory.spaces import INITIALISED, MAPPED, WRITTEN
from warptile.emulator.ops import heap_calls
from warptile.emulator.program import ALLOCATORS
from warptile.errors import KernelTrap, UnknownInstruction
from warptile.ptx.instruction import Instruction, Operand, Register, Symbol

_FORMAT = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|j|z|t|L)?([diouxXeEfFgGaAcsp%])")


def build(
    name: str,
    returns: tuple[Operand, ...],
    arguments: tuple[Operand, ...],
    instruction: Instruction,
    assembler: Assembler,
) -> Callable[[Active], None]:
    """The function called ``name``, with its arguments and results bound."""
    reads = [_argument(assembler, argument) for argument in arguments]
    machine = assembler.machine
    if name == "__assertfail":

        def fail(active: Active) -> None:
            lane = Active.of(active.lanes[:1])
            message, file, line, function = (int(read(lane)[0]) for read in reads[:4])
            where = f"{_text(assembler, lane, file)}:{line & 0xFFFFFFFF}, in {_text(assembler, lane, function)}"
            thread = machine.memory.thread(active.lanes[0])
            raise KernelTrap(
                f"assertion failed: {_text(assembler, lane, message)} ({where}), {thread}",
                kernel=machine.kernel,
                location=instruction.location,
            )

        return fail
    if name == "free":
        return heap_calls.release(instruction, machine, reads[0])
    store_result = _result(assembler, returns[0]) if returns else None
    if name in ALLOCATORS:
        return heap_calls.allocation(instruction, machine, reads, store_result)

    def vprintf(active: Active) -> None:
        counts = np.zeros(active.count, dtype=np.uint32)
        machine.last_effect = machine.steps
        for i, number in enumerate(active.lanes):
            lane = Active.of(np.array([number]))
            pattern, values = (int(read(lane)[0]) for read in reads)
            text, counts[i] = _format(assembler, lane, _text(assembler, lane, pattern), values)
            machine.output.append(text)
        if store_result is not None:
            store_result(active, counts)

    return vprintf


def _argument(assembler: Assembler, operand: Operand) -> Source:
    if not isinstance(operand, Symbol):
        return assembler.source(operand, np.uint64)
    machine = assembler.machine
    offset = machine.frame[operand.name]
    memory = machine.memory
    return lambda active: memory.local_space.gather(memory.local_origin[active.index] + offset, 8)


def _result(assembler: Assembler, operand: Operand) -> Callable[[Active, np.ndarray], None]:
    """Stores a result: its type is that of the values."""
    if isinstance(operand, Register):
        return assembler.destination(operand, np.dtype(f"u{assembler.width(operand)}"))
    if not isinstance(operand, Symbol):
        raise UnknownInstruction(f"result {operand}")
    memory = assembler.machine.memory
    offset = assembler.machine.frame[operand.name]

    def store(active: Active, values: np.ndarray) -> None:
        where = memory.local_origin[active.index] + offset
        memory.local_space.scatter(where, values.itemsize, values)
        memory.local_space.mark(where, values.itemsize, MAPPED | INITIALISED | WRITTEN)

    return store


def _bytes(assembler: Assembler, lane: Active, address: int, size: int) -> bytes:
    memory = assembler.machine.memory
    if address >= GLOBAL_BASE:
        start = address - GLOBAL_BASE
        return memory.global_space.data[start : start + size].tobytes()
    start = address - LOCAL_WINDOW + int(memory.local_origin[lane.index][0])
    return memory.local_space.data[start : start + size].tobytes()


def _text(assembler: Assembler, lane: Active, address: int) -> str:
    found = bytearray()
    while len(found) < 65536:
        byte = _bytes(assembler, lane, address + len(found), 1)
        if byte in (b"\0", b""):
            break
        found += byte
    return found.decode("utf-8", "replace")


def _format(assembler: Assembler, lane: Active, pattern: str, address: int) -> tuple[str, int]:
    """C's printf over a buffer of arguments: each aligned to its size, floats as doubles. Text and argument count."""
    position = 0
    taken = 0

    def take(size: int) -> bytes:
        nonlocal position, taken
        position = -(-position // size) * size
        raw = _bytes(assembler, lane, address + position, size)
        position += size
        taken += 1
        return raw

    def replace(match: re.Match[str]) -> str:
        flags, width, precision, length, kind = match.groups()
        if kind == "%":
            return "%"
        if width == "*":
            width = str(struct.unpack("<i", take(4))[0])
        if precision == "*":
            precision = str(struct.unpack("<i", take(4))[0])
        spec = f"%{flags}{width or ''}{'.' + precision if precision is not None else ''}"
        wide = length in ("l", "ll", "j", "z", "t")
        if kind in "di":
            return str((spec + "d") % struct.unpack("<q" if wide else "<i", take(8 if wide else 4)))
        if kind in "ouxX":
            return str((spec + kind.replace("u", "d")) % struct.unpack("<Q" if wide else "<I", take(8 if wide else 4)))
        if kind == "c":
            return str((spec + "c") % (struct.unpack("<i", take(4))[0] & 0xFF))
        if kind == "s":
            return str((spec + "s") % _text(assembler, lane, struct.unpack("<Q", take(8))[0]))
        if kind == "p":
            return f"{struct.unpack('<Q', take(8))[0]:#x}"
        value = struct.unpack("<d", take(8))[0]
        return float.hex(value) if kind in "aA" else str((spec + kind) % value)

    return _FORMAT.sub(replace, pattern), taken
