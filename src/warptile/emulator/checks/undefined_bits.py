"""Undefined bits of registers and memory, and instructions that move them as they move values.

Of a register of which something may be undefined, a second register holds which bits are: ones. Instructions that only
move data (`mov`, `ld`, `st`, `shfl`, `ldmatrix` ...) are assembled twice, once for values and once for these bits, so
that both go the same way. In memory a byte is undefined if nothing has written it, or something that was undefined.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.builders import BUILDERS, Assembler, Destination, Run, Source
from warptile.emulator.lanes import Active, Array, RegisterFile
from warptile.emulator.machine import Machine
from warptile.emulator.memory.accesses import Memory
from warptile.emulator.memory.spaces import COPIED, INITIALISED, MAPPED, PARTLY, WORD, WRITTEN, Offsets, Space
from warptile.emulator.memory.undefined_copies import UndefinedCopy
from warptile.errors import SourceLocation
from warptile.ptx.instruction import Address, Immediate, Instruction, Negated, Operand, Paired, Register, Sink, Vector
from warptile.ptx.variable import TYPE_BYTES

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
        if self.some and np.count_nonzero(self.bits[active.index]):
            self.bits[active.index] = 0
            self.some = bool(np.count_nonzero(self.bits))

    def set(self, active: Active, flags: Flags) -> None:
        """All bits of the flagged lanes, among the active ones, become undefined, and those of the others defined."""
        if not flags.any():
            self.clear(active)
            return
        all_bits = ones(self.bits.dtype)
        self.bits[active.index] = np.where(flags if self.bits.ndim == 1 else flags[:, None], all_bits, 0 * all_bits)
        self.some = True

    def among(self, active: Active) -> Flags | None:
        """Which of the active lanes have undefined bits; None if none has."""
        if not self.some:
            return None
        flags = self.bits[active.index] != 0
        flags = flags if flags.ndim == 1 else flags.any(axis=1)
        return flags if flags.any() else None


def ones(dtype: np.dtype[Any]) -> Any:
    """All bits of a type."""
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
            bits[live] = ones(bits.dtype)
            register.some = True

    def _restored(self) -> None:
        """Bits have come back that were put aside."""
        for register in self._found.values():
            register.some = True


class UndefinedMemory:
    """Loads and stores of undefined bits: as `Memory` does it with values.

    Attributes:
        storing: what a store takes to memory.
        escaped: lanes whose last store took to global memory what it must not, and the bytes that it wrote.
        loaded: where the undefined bits of the last load come from; None if it met none.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._origins: dict[str, tuple[NDArray[np.uint32], dict[ValueOrigin, int], list[ValueOrigin]]] = {}
        self._loads: dict[tuple[int, str], list[ValueOrigin]] = {}
        self.escaped: tuple[NDArray[np.intp], Offsets] | None = None
        self.storing: StoredOrigins | None = None
        self.loaded: ValueOrigin | None = None
        memory.undefined = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)

    def load(self, instruction: Instruction, active: Active, space: str, addresses: Array, size: int) -> Array:
        """The undefined bits of what `Memory.load` returns. ``loaded`` says of some of them where they come from."""
        found = np.zeros((*addresses.shape, size), np.uint8)
        for mask, part in self._parts(active, space, addresses):
            where, offsets = self._memory.resolve(instruction, part, space, addresses[mask], size)
            places = _bytes(offsets, size)
            undefined = self._memory.undefined_bytes(where, places)
            if undefined.any():
                found[mask] = np.where(undefined, ~where.defined_bits(places), np.uint8(0))
                self._note_load(instruction, where, places[undefined])
        words: Array = found.view(WORD[size]).reshape(addresses.shape)
        return words

    def store(
        self, instruction: Instruction, active: Active, space: str, addresses: Array, words: Array, size: int
    ) -> None:
        """What `Memory.store` has just written is undefined where ``words`` are not 0."""
        word = np.dtype(WORD[size])
        raw = np.ascontiguousarray(np.broadcast_to(words, addresses.shape)).astype(word, copy=False)
        bits = raw.view(np.uint8).reshape(*addresses.shape, size)
        undefined = bits != 0
        if not undefined.any():
            return
        for mask, part in self._parts(active, space, addresses):
            where, offsets = self._memory.resolve(instruction, part, space, addresses[mask], size)
            places, held = _bytes(offsets, size), undefined[mask]
            where.forget(places[held], ~bits[mask][held])
            if where is self._memory.global_space:
                self._store_globally(instruction, part, places, bits[mask])
            elif self.storing is not None:
                self._note_store(where, places[held], self.storing.origin)

    def accept(self, places: Offsets) -> None:
        """What escaped to some bytes of global memory has been reported, and once is enough."""
        self._memory.global_space.mark(places, 1, MAPPED | INITIALISED | WRITTEN)

    def _store_globally(
        self, instruction: Instruction, active: Active, places: Offsets, bits: NDArray[np.uint8]
    ) -> None:
        """Undefined bits have been stored to global memory: where they are more than a copy they have ``escaped``.

        A copy of global memory moves what is undefined there, unless the host reads the target and it is no padding.
        One of shared or local memory may move padding: bytes that most lanes lack alike, beside others. Of the other
        lanes memory may have held something else before.
        """
        undefined: Flags = bits != 0
        rows = undefined.reshape(active.count, -1)
        some: Flags = np.asarray(rows.any(axis=1))
        whole: Flags = np.asarray(rows.all(axis=1))
        storing = self.storing
        wrong = some
        if storing is not None:
            lacking = rows[some]
            padding = not whole.any() and 2 * len(lacking) >= len(rows) and bool((lacking == lacking[0]).all())
            wrong = some & storing.values[active.index]
            if not padding:
                wrong |= some & storing.own[active.index]
            values = whole | (some & storing.alone[active.index])
            if values.any():
                space = self._memory.global_space
                homes = space.numbers_around(places.reshape(active.count, -1)[:, 0])
                wrong |= values & np.array([home.read_by_host for home in space.allocations])[homes]
            # A word with a field of bits that has been written is undefined for the others and for its padding.
            values &= ~wrong & ~(whole & (bits.reshape(active.count, -1) != 0xFF).any(axis=1))
            for lanes, is_value in ((values, True), (some & ~values, False)):
                if lanes.any():
                    thread = self._memory.thread(active.lanes[np.argmax(lanes)])
                    alone = bool(storing.alone[active.index][lanes].any())
                    bytes_there = places[lanes][undefined[lanes]]
                    self._note_global_store(instruction, thread, bytes_there, storing.origin, is_value, alone)
        if wrong.any():
            self.escaped = active.lanes[wrong], places[wrong][undefined[wrong]]

    def _note_global_store(
        self, instruction: Instruction, thread: str, places: NDArray[np.int64], origin: ValueOrigin, is_value: bool,
        alone: bool,
    ) -> None:  # fmt: skip
        """Note where undefined bytes of global memory come from, also for later launches and for the host."""
        space = self._memory.global_space
        self._note_store(space, places, origin)
        before = origin.before
        store = UndefinedCopy(
            self._memory.kernel,
            thread,
            instruction.text,
            instruction.location,
            origin.said.removesuffix(", ") if before is None else before.read,
            origin.location if before is None else before.first,
            alone,
        )
        if is_value:
            space.shadow[places] |= np.uint8(COPIED)
        for number in np.unique(space.numbers_around(places)).tolist():
            home = space.allocations[number]
            if is_value:
                home.value_from = store
            else:
                home.padding_from = store

    def check_read(
        self,
        instruction: Instruction,
        active: Active,
        where: Space,
        offsets: Offsets,
        size: int,
        *,
        copies: bool = False,
    ) -> None:
        """Nothing: the operands of a product have been checked when their values were read."""

    def shared_words(self, instruction: Instruction, offsets: Offsets, size: int) -> Array:
        """The undefined bits of what `Memory.shared_words` returns."""
        where = self._memory.shared_space
        places = _bytes(offsets, size)
        undefined = self._memory.undefined_bytes(where, places)
        if undefined.any():
            self._note_load(instruction, where, places[undefined])
        bits = np.where(undefined, ~where.defined_bits(places), np.uint8(0))
        words: Array = bits.view(WORD[size]).reshape(offsets.shape)
        return words

    def start_wave(self) -> None:
        """Nothing has been stored to shared and local memory."""
        for name in ("shared", "local"):
            self._origins.pop(name, None)

    def note_copy(
        self, instruction: Instruction, thread: str, source: Space, from_: Offsets, target: Space, places: Offsets
    ) -> None:
        """An asynchronous copy has brought the undefined bytes of ``source`` at ``from_`` to some places of ``target``.

        Into global memory it brings words of 16 bytes, and what is undefined of one that holds something is padding.
        """
        origin = self.origin_of(instruction, source, from_, 16)
        if target is not self._memory.global_space:
            self._note_store(target, places, origin)
            return
        words, counts = np.unique(places >> 4, return_counts=True)
        values = np.isin(places >> 4, words[counts == 16]) | origin.alone
        for flags, is_value in ((values, True), (~values, False)):
            if flags.any():
                self._note_global_store(instruction, thread, places[flags], origin, is_value, origin.alone)

    def copied_from_global(self, where: Space, places: Offsets) -> Flags:
        """Which of some undefined bytes are a copy of global memory."""
        numbers, _, origins = self._origins.get(where.name, (None, {}, []))
        if numbers is None:
            return np.zeros(places.shape, np.bool_)
        copies = np.array([False, *(each.copied == "global" for each in origins)])
        flags: Flags = copies[numbers[places]]
        return flags

    def _parts(self, active: Active, space: str, addresses: Array) -> list[tuple[Any, Active]]:
        parts = self._memory.split(active, addresses) if space == "generic" else None
        return [(mask, active.where(mask)) for mask in parts] if parts is not None else [(slice(None), active)]

    def _note_store(self, where: Space, places: NDArray[np.int64], origin: ValueOrigin) -> None:
        if where.name not in self._origins:
            self._origins[where.name] = np.zeros(len(where.shadow), np.uint32), {}, []
        numbers, known, origins = self._origins[where.name]
        if origin not in known:
            origins.append(origin)
            known[origin] = len(origins)
        numbers[places] = known[origin]

    def copy_origins(self, where: Space, target: Offsets, source: Offsets) -> None:
        """What is undefined of ``target`` is a copy of ``source``, byte for byte."""
        if where.name in self._origins:
            numbers = self._origins[where.name][0]
            numbers[target] = numbers[source]

    def _note_load(self, instruction: Instruction, where: Space, places: NDArray[np.int64]) -> None:
        """Note in ``loaded`` the origin of undefined bytes that are read."""
        self.loaded = self.origin_of(instruction, where, places, element_bytes(instruction))

    def origin_of(self, instruction: Instruction, where: Space, places: NDArray[np.int64], width: int) -> ValueOrigin:
        """The origin of undefined bytes of elements of ``width`` bytes that are read: of several the one of which most
        is wrong."""
        numbers, _, origins = self._origins.get(where.name, (None, {}, []))
        stored = np.zeros(1, np.uint32) if numbers is None else np.unique(numbers[places])
        found = [origins[number - 1].packed(width) for number in stored.tolist() if number]
        if not stored[0]:
            found.append(
                self._read_from(instruction, where, places if numbers is None else places[numbers[places] == 0], width)
            )
        worst: ValueOrigin = min(found, key=ValueOrigin.rank)
        return worst

    def _read_from(self, instruction: Instruction, where: Space, places: NDArray[np.int64], width: int) -> ValueOrigin:
        """The origin of what an instruction reads: of those of many executions the first ones are told apart."""
        known = self._loads.setdefault((id(instruction), where.name), [])
        copied = "global" if where is self._memory.global_space else "own"
        before = self._brought_by(int(places[0])) if copied == "global" else None
        alone = copied == "global" and (self._alone(places) or (before is not None and before.alone))
        said = (
            f"read at {instruction.location} from {where.name} memory at {self._memory.describe(where, int(places[0]))}"
        )
        said += f", where a kernel has put what was {before.read}, " if before is not None else ", "
        same = next((each for each in known if each.said == said and each.alone == alone), None)
        if same is None and len(known) < _ORIGINS_OF_A_LOAD:
            same = ValueOrigin(said, instruction.location, copied=copied, width=width, alone=alone, before=before)
            known.append(same)
        return same or known[-1]

    def _alone(self, places: NDArray[np.int64]) -> bool:
        """Whether nothing has been written in the lines of some bytes of global memory."""
        lines = self._memory.global_space.shadow
        lines = lines[: len(lines) // LINE_BYTES * LINE_BYTES].reshape(-1, LINE_BYTES)
        numbers = np.unique(places // LINE_BYTES)
        return bool(numbers[-1] < len(lines)) and not (lines[numbers] & (INITIALISED | PARTLY)).any()

    def _brought_by(self, place: int) -> UndefinedCopy | None:
        """The store of an earlier launch that has brought an undefined value to a place of global memory."""
        space = self._memory.global_space
        home = space.around(place) if space.shadow[place] & COPIED else None
        return None if home is None else home.value_from


_ORIGINS_OF_A_LOAD = 64

LINE_BYTES = 128
"""A line of the cache. Padding is not longer, even where structs are aligned to lines, so that what nothing has written
is none if its line holds nothing else."""


def element_bytes(instruction: Instruction) -> int:
    """Bytes of an element of a load or store, whose register may be wider: it is then extended, or cut."""
    return TYPE_BYTES.get(instruction.modifiers[-1], 16) if instruction.modifiers else 16


class ValueOrigin:
    """Where an undefined value comes from, and what has become of it.

    Attributes:
        said: for messages.
        location: the instruction that has read or computed it first.
        fix: what to do about it, where that depends on the case.
        copied: so far it has only been copied, from ``"global"`` or from shared or local memory (``"own"``); ``""`` if
            it has been computed, or comes from a register or another lane.
        width: bytes of it that come from memory; what is wider has been extended, unless it was put together of
            ``pieces``.
        alone: nothing was written in the lines of global memory that it was read from.
        before: the store of an earlier launch that had brought it there.
    """

    __slots__ = ("_variants", "alone", "before", "copied", "fix", "location", "pieces", "said", "width")

    def __init__(
        self,
        said: str,
        location: SourceLocation | None,
        fix: str = "",
        *,
        copied: str = "",
        width: int = 16,
        pieces: bool = False,
        alone: bool = False,
        before: UndefinedCopy | None = None,
    ) -> None:
        self.alone = alone
        self.before = before
        self.said = said
        self.location = location
        self.fix = fix
        self.copied = copied
        self.width = width
        self.pieces = pieces
        self._variants: dict[tuple[str, int, bool], ValueOrigin] = {}

    def rank(self) -> int:
        """Which of several origins is reported: the one of which more is wrong comes first."""
        return ("", "own", "global").index(self.copied)

    def computed(self) -> ValueOrigin:
        """The origin of what is computed from the value."""
        return self._variant("", self.width)

    def assembled(self) -> ValueOrigin:
        """The origin of a value of which this one is a piece."""
        return self._variant(self.copied, self.width, pieces=True)

    def narrowed(self, width: int) -> ValueOrigin:
        """The origin of ``width`` bytes of the value, if it has more."""
        return self._variant(self.copied, min(self.width, max(width, 0)))

    def packed(self, width: int) -> ValueOrigin:
        """The origin of a value of ``width`` bytes that several are packed into."""
        return self._variant(self.copied, width)

    def _variant(self, copied: str, width: int, *, pieces: bool | None = None) -> ValueOrigin:
        key = copied, width, self.pieces if pieces is None else pieces
        if key == (self.copied, self.width, self.pieces):
            return self
        if key not in self._variants:
            made = ValueOrigin(
                self.said, self.location, self.fix, copied=copied, width=width, pieces=key[2], alone=self.alone,
                before=self.before,
            )  # fmt: skip
            made._variants = self._variants
            self._variants[key] = made
        return self._variants[key]


@dataclass(frozen=True)
class StoredOrigins:
    """What a store takes to memory.

    Attributes:
        origin: of all of it, the one of which most is wrong.
        values: of each lane of the wave, whether it stores something undefined that is more than a copy.
        own: the same of a copy of shared or local memory.
        alone: the same of a copy of global memory around which nothing was written.
    """

    origin: ValueOrigin
    values: Flags
    own: Flags
    alone: Flags


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
