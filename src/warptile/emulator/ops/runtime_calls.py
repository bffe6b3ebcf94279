"""Functions of the CUDA device runtime that a kernel may call: printing, assertions, allocation."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from warptile.emulator.builders import Assembler, Source
from warptile.emulator.lanes import Active
from warptile.emulator.memory.accesses import GLOBAL_BASE, LOCAL_WINDOW
from warptile.emulator.memory.spaces import INITIALISED, MAPPED, WRITTEN
from warptile.emulator.ops import c_format, heap_calls
from warptile.emulator.program import ALLOCATORS
from warptile.errors import KernelTrap, UninitializedRead, UnknownInstruction
from warptile.ptx.instruction import Instruction, Operand, Register, Symbol


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
            text, counts[i] = _format(assembler, instruction, lane, _text(assembler, lane, pattern), values)
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


class _Arguments:
    """The buffer of a thread's arguments: each is aligned to its size, floats are doubles.

    Attributes:
        taken: how many have been read.
    """

    def __init__(self, assembler: Assembler, instruction: Instruction, lane: Active, address: int) -> None:
        self._assembler = assembler
        self._instruction = instruction
        self._lane = lane
        self._address = address
        self._position = 0
        self.taken = 0

    def take(self, kind: str, size: int) -> Any:
        """The next argument, which is ``size`` bytes of what ``struct`` calls ``kind``."""
        self._position = -(-self._position // size) * size
        address = self._address + self._position
        self._position += size
        self.taken += 1
        self._check(address, size)
        return struct.unpack(f"<{kind}", _bytes(self._assembler, self._lane, address, size))[0]

    def _check(self, address: int, size: int) -> None:
        """A value that is printed must have been written."""
        memory = self._assembler.machine.memory
        if address >= GLOBAL_BASE or not memory.check_uninitialised:
            return
        space = memory.local_space
        start = address - LOCAL_WINDOW + int(memory.local_origin[self._lane.index][0])
        places = np.arange(start, start + size)
        undefined = memory.undefined_bytes(space, places)
        if memory.undefined is None or not undefined.any():
            return
        origin = memory.undefined.origin_of(self._instruction, space, places[undefined], size)
        error = UninitializedRead(
            f"printf: {memory.thread(self._lane.lanes[0])} prints argument {self.taken}, {origin.said}which nothing "
            "has written",
            kernel=memory.kernel,
            location=self._instruction.location,
            first=origin.location,
            fix=origin.fix,
        )
        memory.findings.report(error)


def _format(
    assembler: Assembler, instruction: Instruction, lane: Active, pattern: str, address: int
) -> tuple[str, int]:
    """C's printf of a buffer of arguments: the text, and how many arguments it takes."""
    arguments = _Arguments(assembler, instruction, lane, address)

    def replace(match: re.Match[str]) -> str:
        flags, width, precision, length, kind = match.groups()
        if kind == "%":
            return "%"
        columns = arguments.take("i", 4) if width == "*" else int(width or 0)
        if columns < 0:
            flags, columns = flags + "-", -columns
        exact = arguments.take("i", 4) if precision == "*" else None if precision is None else int(precision or 0)
        exact = None if exact is not None and exact < 0 else exact
        if kind in "diouxX":
            size = c_format.integer_bytes(length)
            value = arguments.take("q" if size == 8 else "i", size)
            return c_format.format_integer(value, kind, length, flags, columns, exact)
        if kind == "c":
            return c_format.format_text(chr(arguments.take("i", 4) & 0xFF), flags, columns, None)
        if kind == "s":
            text = arguments.take("Q", 8)
            found = _text(assembler, lane, text) if text else "(null)"
            return c_format.format_text(found, flags, columns, exact)
        if kind == "p":
            return c_format.format_pointer(arguments.take("Q", 8), flags, columns)
        return c_format.format_float(arguments.take("d", 8), kind, flags, columns, exact)

    return c_format.CONVERSION.sub(replace, pattern), arguments.taken
