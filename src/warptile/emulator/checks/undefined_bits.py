"""Undefined bits of registers and memory, and instructions that move them as they move values.

Of a register of which something may be undefined, a second register holds which bits are: ones. Instructions that only
move data (`mov`, `ld`, `st`, `shfl`, `ldmatrix` ...) are assembled twice, once for values and once for these bits, so
that both go the same way. In shared and local memory a byte is undefined if nothing has written it, or something that
was undefined.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.builders import BUILDERS, Assembler, Destination, Run, Source
from warptile.emulator.lanes import Active, Array, RegisterFile
from warptile.emulator.machine import Machine
from warptile.emulator.memory.accesses import Memory
from warptile.emulator.memory.spaces import IN_FLIGHT, INITIALISED, MBARRIER, WORD, Offsets, Space
from warptile.errors import SourceLocation
from warptile.ptx.instruction import Address, Immediate, Instruction, Negated, Operand, Paired, Register, Sink, Vector

Flags = NDArray[np.bool_]


class UndefinedRegister:
    """Which bits of a register are undefined.

    Attributes:
        bits: a word for each lane, of the register's type.
        some: whether any bit is; once none is, keeping them so costs one look.
    """

    __slots__ = ("bits", "some")

    def __init__(self, bits: Array) -> None:
        self.bits = bits
        self.some = True

    def clear(self, active: Active) -> None:
        """The active lanes have got a value."""
        if self.some:
            self.bits[active.index] = 0
            self.some = bool(self.bits.any())

    def set(self, active: Active, flags: Flags) -> None:
        """All bits of the flagged lanes, among the active ones, become undefined, and those of the others defined."""
        if not flags.any():
            self.clear(active)
            return
        ones = _ones(self.bits.dtype)
        self.bits[active.index] = np.where(flags if self.bits.ndim == 1 else flags[:, None], ones, 0 * ones)
        self.some = True

    def among(self, active: Active) -> Flags | None:
        """Which of the active lanes have undefined bits; None if none has."""
        if not self.some:
            return None
        flags = self.bits[active.index] != 0
        flags = flags if flags.ndim == 1 else flags.any(axis=1)
        return flags if flags.any() else None


def _ones(dtype: np.dtype[Any]) -> Any:
    return dtype.type(True) if dtype == np.bool_ else ~dtype.type(0)


class UndefinedRegisters:
    """Those registers of one function whose undefined bits are followed.

    Args:
        registers: their values.
        followed: their names; of all others, every bit is taken to be defined.

    Attributes:
        readers, writers: as of `RegisterFile`, of these bits.
    """

    def __init__(self, registers: RegisterFile, followed: frozenset[str]) -> None:
        self._values = registers
        self.followed = followed
        self.readers: dict[tuple[str, np.dtype[Any]], Source] = {}
        self.writers: dict[tuple[str, np.dtype[Any]], Destination] = {}
        self._found: dict[str, UndefinedRegister] = {}
        self._started = False

    def of(self, register: Register) -> UndefinedRegister:
        """The bits of one register that is followed."""
        assert register.name in self.followed, register.name
        found = self._found.get(register.name)
        if found is None:
            assert not self._started, register.name
            found = self._found[register.name] = UndefinedRegister(np.zeros_like(self._values.array(register)))
        return found

    def array(self, register: Register) -> Array:
        """The same as `RegisterFile.array` has of values; of a register that is not followed, an array of zeros."""
        if register.name in self.followed:
            return self.of(register).bits
        return np.zeros_like(self._values.array(register))

    def start_wave(self, live: Flags) -> None:
        """Nothing holds a value in the lanes that have a thread."""
        self._started = True
        self._values.shadows = [register.bits for register in self._found.values()]
        self._values.restored = self._restored
        for register in self._found.values():
            bits = register.bits
            bits[:] = 0
            bits[live] = _ones(bits.dtype)
            register.some = True

    def _restored(self) -> None:
        """Bits have come back that were put aside."""
        for register in self._found.values():
            register.some = True


class UndefinedMemory:
    """Loads and stores of undefined bits: as `Memory` does it with values.

    Attributes:
        escaped: lanes whose last store took undefined bits to global memory.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._origins: dict[str, tuple[NDArray[np.uint16], list[ValueOrigin]]] = {}
        self.escaped: NDArray[np.intp] | None = None
        self.storing: ValueOrigin | None = None
        self.loaded: ValueOrigin | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)

    def load(self, instruction: Instruction, active: Active, space: str, addresses: Array, size: int) -> Array:
        """The undefined bits of what `Memory.load` returns. ``loaded`` says of some of them where they come from."""
        found = np.zeros((*addresses.shape, size), np.uint8)
        for mask, part in self._parts(active, space, addresses):
            where, offsets = self._memory.resolve(instruction, part, space, addresses[mask], size)
            undefined = self.undefined_bytes(where, offsets, size)
            if undefined.any():
                found[mask] = np.where(undefined, np.uint8(0xFF), np.uint8(0))
                self._note_load(instruction, where, int(_bytes(offsets, size)[undefined][0]))
        words: Array = found.view(WORD[size]).reshape(addresses.shape)
        return words

    def store(
        self, instruction: Instruction, active: Active, space: str, addresses: Array, words: Array, size: int
    ) -> None:
        """What `Memory.store` has just written is undefined where ``words`` are not 0."""
        word = np.dtype(WORD[size])
        raw = np.ascontiguousarray(np.broadcast_to(words, addresses.shape)).astype(word, copy=False)
        undefined = raw.view(np.uint8).reshape(*addresses.shape, size) != 0
        if not undefined.any():
            return
        for mask, part in self._parts(active, space, addresses):
            where, offsets = self._memory.resolve(instruction, part, space, addresses[mask], size)
            if where is self._memory.global_space:
                rows = undefined[mask].reshape(part.count, -1).any(axis=1)
                if rows.any():
                    self.escaped = part.lanes[rows]
                continue
            places = _bytes(offsets, size)[undefined[mask]]
            where.shadow[places] &= np.uint8(0xFF & ~INITIALISED)
            if self.storing is not None:
                self._note_store(where, places, self.storing)

    def check_read(self, instruction: Instruction, active: Active, where: Space, offsets: Offsets, size: int) -> None:
        """Nothing: the operands of a product have been checked when their values were read."""

    def shared_words(self, instruction: Instruction, offsets: Offsets, size: int) -> Array:
        """The undefined bits of what `Memory.shared_words` returns."""
        where = self._memory.shared_space
        undefined = self.undefined_bytes(where, offsets, size)
        if undefined.any():
            self._note_load(instruction, where, int(_bytes(offsets, size)[undefined][0]))
        words: Array = np.where(undefined, np.uint8(0xFF), np.uint8(0)).view(WORD[size]).reshape(offsets.shape)
        return words

    def start_wave(self) -> None:
        """Nothing has been stored."""
        self._origins.clear()

    def undefined_bytes(self, where: Space, offsets: Offsets, size: int) -> Flags:
        """Of each of the ``size`` bytes from each offset on; in global memory, whose check is another one, none."""
        places = _bytes(offsets, size)
        if where is self._memory.global_space:
            return np.zeros(places.shape, np.bool_)
        flags: Flags = (where.shadow[places] & (INITIALISED | IN_FLIGHT | MBARRIER)) == 0
        return flags

    def _parts(self, active: Active, space: str, addresses: Array) -> list[tuple[Any, Active]]:
        parts = self._memory.split(active, addresses) if space == "generic" else None
        return [(mask, active.where(mask)) for mask in parts] if parts is not None else [(slice(None), active)]

    def _note_store(self, where: Space, places: NDArray[np.int64], origin: ValueOrigin) -> None:
        numbers, known = self._origins.setdefault(where.name, (np.zeros(len(where.shadow), np.uint16), []))
        if origin not in known and len(known) < 0xFFFF:
            known.append(origin)
        numbers[places] = known.index(origin) + 1 if origin in known else 0

    def _note_load(self, instruction: Instruction, where: Space, place: int) -> None:
        numbers, known = self._origins.get(where.name, (None, []))
        number = 0 if numbers is None else int(numbers[place])
        if number:
            self.loaded = known[number - 1]
        else:
            said = f"read at {instruction.location} from {where.name} memory at {self._memory.describe(where, place)}, "
            self.loaded = ValueOrigin(said, instruction.location)


class ValueOrigin:
    """Where an undefined value comes from.

    Attributes:
        said: for messages.
        location: the instruction that has read or computed it first.
        fix: what to do about it, where that depends on the case.
    """

    __slots__ = ("fix", "location", "said")

    def __init__(self, said: str, location: SourceLocation | None, fix: str = "") -> None:
        self.said = said
        self.location = location
        self.fix = fix


def _bytes(offsets: Offsets, size: int) -> Offsets:
    return offsets[..., None] + np.arange(size)


class _NoCounters:
    """Counts nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *given, **named: None


class UndefinedMachine:
    """The machine of `UndefinedAssembler`: registers and memory are those of undefined bits."""

    def __init__(self, machine: Machine, registers: UndefinedRegisters, memory: UndefinedMemory) -> None:
        self._machine = machine
        self.registers = registers
        self.memory = memory
        self.count = _NoCounters()
        self.checks: frozenset[str] = frozenset()
        self.last_effect = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)


class UndefinedAssembler(Assembler):
    """Assembles what an instruction does to undefined bits.

    Operands that are data are read and written as undefined bits: constants have none. All others (addresses, the lane
    of a `shfl`) have the values that they have.
    """

    moves_undefined_bits = True

    def __init__(self, machine: Machine, undefined: UndefinedMachine, data: list[Operand]) -> None:
        super().__init__(cast(Machine, undefined))
        self._values = Assembler(machine)
        self._data = {id(each) for each in data}
        self._followed = undefined.registers.followed

    def source(self, operand: Operand, dtype: Any) -> Source:
        """Undefined bits of data, the value of anything else."""
        if id(operand) not in self._data:
            return self._values.source(operand, dtype)
        if isinstance(operand, Negated):
            operand = operand.register
        return super().source(operand if isinstance(operand, Register) else Immediate(0), dtype)

    def destination(self, operand: Operand, dtype: Any) -> Destination:
        """Undefined bits of a register that is followed."""
        followed = isinstance(operand, Register) and operand.name in self._followed
        return super().destination(operand if followed else Sink(), dtype)


def moving(instruction: Instruction, machine: Machine, undefined: UndefinedMachine, data: tuple[int, ...]) -> Run:
    """What an instruction does to undefined bits, the operands ``data`` being data.

    A second result, such as the predicate of `shfl`, holds no data. It is assembled when it is first called, as few
    instructions ever meet an undefined bit; but that of a `wgmma` at once, as others look for it.
    """
    if instruction.opcode == "wgmma":
        return _assembled(instruction, machine, undefined, data)
    for register in instruction.registers:
        if register.name in undefined.registers.followed:
            undefined.registers.of(register)  # their bits are kept from the start
    of_function = machine.registers, machine.frame, machine.shifts
    assembled: list[Run] = []

    def run(active: Active) -> None:
        if not assembled:
            now = machine.registers, machine.frame, machine.shifts
            machine.registers, machine.frame, machine.shifts = of_function
            assembled.append(_assembled(instruction, machine, undefined, data))
            machine.registers, machine.frame, machine.shifts = now
        assembled[0](active)

    return run


def _assembled(instruction: Instruction, machine: Machine, undefined: UndefinedMachine, data: tuple[int, ...]) -> Run:
    operands = list(instruction.operands)
    if isinstance(operands[0], Paired):
        operands[0] = operands[0].first or Sink()
    fresh: list[Operand] = []
    for position in data:
        operands[position] = _fresh(operands[position], fresh)
    moved = replace(instruction, operands=tuple(operands))
    assembler = UndefinedAssembler(machine, undefined, fresh)
    return BUILDERS[instruction.opcode](moved, assembler).run


def _fresh(operand: Operand, made: list[Operand]) -> Operand:
    """A copy that is another object, as are its elements, all of which are noted in ``made``."""
    if isinstance(operand, Vector):
        copied: Operand = Vector(tuple(None if each is None else _fresh(each, made) for each in operand.elements))
    else:
        assert not isinstance(operand, Address)
        copied = replace(operand)
    made.append(copied)
    return copied
