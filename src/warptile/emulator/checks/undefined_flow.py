"""How undefined bits go through each instruction, and which of its operands must not have any.

Loads, stores, copies and exchanges between lanes move them; bitwise operations and selections keep those that matter;
operations on two packed elements keep these apart;
each element of a matrix product has those of its row of A, its column of B and its element of C; any other result is
undefined altogether if an operand is. Addresses and what leaves for global memory, atomics and asynchronous copies
must be defined. Only copies of what lies in memory may go to global memory: of global memory as it is, of shared and
local memory padding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from warptile.emulator.builders import Assembler, Run, Source
from warptile.emulator.checks.undefined_bits import (
    Flags,
    StoredOrigins,
    UndefinedMachine,
    UndefinedMemory,
    UndefinedRegister,
    UndefinedRegisters,
    ValueOrigin,
    element_bytes,
    moving,
    ones,
)
from warptile.emulator.lanes import Active, Array
from warptile.emulator.machine import Machine
from warptile.emulator.memory.accesses import is_followed
from warptile.emulator.ops.bits import funnel_shifted
from warptile.emulator.ops.warp import Warps
from warptile.emulator.program import Routine
from warptile.errors import UninitializedRead
from warptile.ptx.instruction import (
    Address,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Paired,
    Register,
    Symbol,
    Vector,
    parts_of,
)
from warptile.ptx.variable import TYPE_BYTES

EFFECTS = frozenset(
    {"st", "ld", "ldu", "red", "atom", "cp", "wmma", "wgmma", "ldmatrix", "stmatrix", "mbarrier", "sust"}
)
"""Instructions that report undefined operands which are not data that they only move."""

VOTES = frozenset({"vote", "match", "redux"})
"""Instructions whose result depends on an operand of every lane of their mask."""

PACKED = {("f16x2",), ("bf16x2",), ("u16x2",), ("s16x2",)}
"""Types of two elements in 32 bits."""

BITWISE = frozenset({"and", "or", "xor", "not", "lop3"})

MOVES = frozenset(
    {"ld", "ldu", "ldmatrix", "wmma", "mov", "st", "stmatrix", "shfl", "movmatrix", "mma", "wgmma", "shl", "shr", "bfe",
     "bfi", "prmt", "cvt", "mul"}
)  # fmt: skip
"""Opcodes of which some instructions only move data, or multiply it."""

_BYTE_SHIFTS = tuple(Immediate(1 << bits) for bits in (8, 16, 24))
"""Factors by which compilers multiply a byte to have it where it belongs in a word."""

COMPUTES = frozenset(
    {"mov", "add", "sub", "mul", "mul24", "mad", "mad24", "fma", "min", "max", "abs", "neg", "sad", "and", "or", "xor",
     "not", "cnot", "lop3", "shl", "shr", "shf", "bfe", "bfi", "bfind", "brev", "popc", "clz", "prmt", "cvt", "cvta",
     "selp", "slct", "set", "setp", "testp", "copysign", "div", "rem", "sqrt", "rsqrt", "rcp", "ex2", "lg2", "sin",
     "cos", "tanh", "dp2a", "dp4a"}
)  # fmt: skip
"""Instructions that do nothing but write registers, whatever their operands are."""


def moved_data(instruction: Instruction) -> tuple[int, ...] | None:
    """Which operands are data that the instruction only moves, or multiplies; None if it does neither."""
    opcode, modifiers, operands = instruction.opcode, instruction.modifiers, instruction.operands
    if opcode not in MOVES or "async" in modifiers:
        return None
    if opcode in ("ld", "ldu", "ldmatrix") or (opcode == "wmma" and "load" in modifiers):
        return ()
    if opcode in ("mov", "st", "stmatrix", "shfl", "movmatrix") or (opcode == "wmma" and "store" in modifiers):
        return (1,)
    if opcode in ("mma", "wmma"):
        return (1, 2, 3)
    if opcode == "wgmma":
        in_registers = "mma_async" in modifiers and isinstance(operands[1], Vector)
        return ((0, 1) if in_registers else (0,)) if "mma_async" in modifiers else None
    if opcode in ("shl", "shr", "bfe") and all(isinstance(each, Immediate) for each in operands[2:]):
        return (1,)
    if opcode in ("prmt", "bfi") and all(isinstance(each, Immediate) for each in operands[3:]):
        return (1, 2)
    if opcode == "mul":
        return (1,) if modifiers[0] == "wide" and modifiers[1][0] == "u" and operands[2] in _BYTE_SHIFTS else None
    whole = len(modifiers) == 2 and all(each[0] in "us" for each in modifiers)
    return (1,) if opcode == "cvt" and whole else None


def reports_operands(instruction: Instruction) -> bool:
    """Whether an operand that is not moved data, such as an address, must be defined."""
    return instruction.opcode in EFFECTS


def hands_on(instruction: Instruction) -> bool:
    """Whether results may be undefined because operands are."""
    data = moved_data(instruction)
    return bool(data) or (data is None and instruction.opcode not in EFFECTS)


def may_load_undefined(instruction: Instruction, routine: Routine, *, follows_loads: frozenset[str]) -> bool:
    """Whether results may be undefined because memory is, or because a lane that is asked takes no part.

    Compilers move loads of local memory ahead of their condition, so these always may. Those of other memory and of
    parameters of functions, and shuffles, are followed with ``follows_loads``, which is that of `Memory`.
    """
    modifiers = instruction.modifiers
    if instruction.opcode == "shfl":
        return "shared" in follows_loads
    if instruction.opcode == "ldmatrix" or "mma_async" in modifiers:
        return bool(follows_loads)
    if instruction.opcode == "wmma":
        return "load" in modifiers and is_followed(instruction, follows_loads)
    if instruction.opcode not in ("ld", "ldu"):
        return False
    if any(each.startswith("param") for each in modifiers):
        base = instruction.operands[1].base if isinstance(instruction.operands[1], Address) else None
        own = isinstance(base, Symbol) and base.name in {each.name for each in routine.function.parameters}
        return bool(follows_loads) and not (own and routine.function.entry)
    return is_followed(instruction, follows_loads)


@dataclass
class UndefinedFlow:
    """Follows undefined bits through the steps of one function.

    Attributes:
        machine: of the launch; ``registers`` are those of the function.
        memory: its undefined bytes.
        registers: the undefined bits of registers.
        origins: where the undefined value of a register comes from.
    """

    machine: Machine
    memory: UndefinedMemory
    registers: UndefinedRegisters

    def __post_init__(self) -> None:
        self.origins: dict[str, ValueOrigin] = {}
        self._undefined = UndefinedMachine(self.machine, self.registers, self.memory)

    # -- reports -----------------------------------------------------------------------------------------------

    def reporting(self, run: Callable[..., Any], instruction: Instruction, used: Iterable[Register]) -> Any:
        """``run`` (or a guard), after a look at registers that must be defined."""
        watched = [(each.name, self.registers.of(each)) for each in used]

        def reported(active: Active) -> Any:
            for name, register in watched:
                undefined = register.among(active)
                if undefined is not None:
                    self._report(instruction, name, int(active.lanes[np.argmax(undefined)]))
            return run(active)

        return reported

    def choosing(
        self, run: Callable[..., Any], instruction: Instruction, by: list[Register], written: list[Register]
    ) -> Any:
        """``run`` (or a guard): where registers that choose between ways are undefined, so are those ``written``."""
        choices = [(each, self.registers.of(each)) for each in by]
        targets = [(each, self.registers.of(each)) for each in written]

        def chosen(active: Active) -> Any:
            result = run(active)
            for register, bits in choices:
                undefined = bits.among(active)
                if undefined is None:
                    continue
                lanes = active.where(undefined)
                origin = self._origin_of(register, instruction).computed()
                for each, target in targets:
                    target.bits[lanes.index] = ones(target.bits.dtype)
                    target.some = True
                    self._note(each, origin, lanes)
            return result

        return chosen

    def _report(self, instruction: Instruction, name: str, lane: int) -> None:
        memory, origin = self.machine.memory, self.origins.get(name)
        error = UninitializedRead(
            f"{instruction.text}: {memory.thread(lane)} uses register {name}, {origin.said if origin else ''}which "
            "nothing has written",
            kernel=memory.kernel,
            location=instruction.location,
            first=origin.location if origin else None,
            fix=origin.fix if origin else "",
        )
        memory.findings.report(error)

    # -- steps -------------------------------------------------------------------------------------------------

    def following(
        self, run: Run, instruction: Instruction, read: list[Register], written: list[Register], *, loads: bool
    ) -> Run:
        """What a step does, and what that does to undefined bits.

        Args:
            run: executes the instruction.
            instruction: of the step.
            read: registers, among those that it reads, that may be undefined there.
            written: registers, among those that are followed, that it writes.
            loads: memory that it reads may be undefined.
        """
        data = moved_data(instruction)
        if data is not None and (loads or read):
            return self._moving(run, instruction, data, read, written, loads=loads)
        targets = [self.registers.of(each) for each in written]
        if not read or not hands_on(instruction):

            def defined(active: Active) -> None:
                run(active)
                for target in targets:
                    target.clear(active)

            return defined
        exact = self._bitwise(instruction) or self._halves(instruction) or self._selected(instruction)
        rule = exact or self._shifted(instruction) or self._flags(instruction, read)
        become = self._becoming(instruction, read)

        def followed(active: Active) -> None:
            some = self._origin(instruction, read, active, written, become)
            if some:
                rule(active, targets)  # before the values change
            run(active)
            if not some:
                for target in targets:
                    target.clear(active)

        return followed

    def _origin(
        self, instruction: Instruction, read: list[Register], active: Active, written: list[Register],
        become: Callable[[ValueOrigin], ValueOrigin] = ValueOrigin.computed,
    ) -> bool:  # fmt: skip
        """Whether an operand has undefined bits; where they come from is noted for the registers that are written."""
        undefined = [each for each in read if self.registers.of(each).among(active) is not None]
        if not undefined:
            return False
        if written:
            found = [self._origin_of(each, instruction) for each in undefined]
            origin = become(min(found, key=ValueOrigin.rank))
            for target in written:
                self._note(target, origin, active)
        return True

    def _origin_of(self, register: Register, instruction: Instruction) -> ValueOrigin:
        """Where the undefined bits of an operand come from."""
        known = self.origins.get(register.name)
        if known is not None:
            return known
        return ValueOrigin(f"computed at {instruction.location} from {register.name}, ", instruction.location)

    def _note(self, register: Register, origin: ValueOrigin, active: Active) -> None:
        """Note where a register's undefined bits come from, unless other lanes have some of which more is wrong."""
        before = self.origins.get(register.name)
        if before is not None and before.rank() < origin.rank():
            others = self.registers.of(register).bits.copy()
            others[active.index] = 0
            if others.any():
                return
        self.origins[register.name] = origin

    def _becoming(self, instruction: Instruction, read: list[Register]) -> Callable[[ValueOrigin], ValueOrigin]:
        """What an instruction makes of the origin of an operand: a copy, a part, or something computed from it."""
        opcode, modifiers, operands = instruction.opcode, instruction.modifiers, instruction.operands
        if opcode == "selp":
            chosen = operands[3].register if isinstance(operands[3], Negated) else operands[3]
            if not isinstance(chosen, Register) or all(each.name != chosen.name for each in read):
                return lambda origin: origin
            by = self.registers.of(chosen)
            return lambda origin: origin.computed() if by.some else origin
        if opcode == "mov" and isinstance(operands[1], Vector):
            width = TYPE_BYTES.get(modifiers[-1], 16)
            return lambda origin: origin.packed(width)
        if opcode in ("prmt", "or", "bfi"):
            return ValueOrigin.assembled
        if opcode in ("mov", "shfl", "movmatrix") or (opcode == "mul" and moved_data(instruction)):
            return lambda origin: origin
        if opcode == "cvt" and len(modifiers) == 2:
            width = TYPE_BYTES.get(modifiers[0], 16)
            return lambda origin: origin.narrowed(width)
        # Compilers take words apart by shifts and masks and put them together again: bytes are copied by that too.
        last = operands[-1]
        amount = int(last.value) if opcode in ("and", "shl", "shr", "bfe") and isinstance(last, Immediate) else None
        if opcode == "and" and amount is not None and amount < 0:  # a field of bits is taken out
            return lambda origin: origin
        if amount is None or amount < 0 or modifiers[-1].startswith("s") or (opcode[0] == "s" and amount % 8):
            return ValueOrigin.computed
        if opcode == "shr":
            return lambda origin: origin if origin.pieces else origin.narrowed(origin.width - amount // 8)
        if opcode == "shl":  # a byte is put where it belongs, unless some of it is lost
            room = TYPE_BYTES[modifiers[-1]] - amount // 8
            return lambda origin: origin if origin.pieces or origin.width <= room else origin.computed()
        width = -(-amount.bit_length() // 8) if opcode == "and" else -(-amount // 8)
        return lambda origin: origin.narrowed(width)

    def _moving(
        self, run: Run, instruction: Instruction, data: tuple[int, ...], read: list[Register],
        written: list[Register], *, loads: bool,
    ) -> Run:  # fmt: skip
        """Loads, stores, copies, exchanges between lanes, and matrix products."""
        move = moving(instruction, self.machine, self._undefined, data)
        if instruction.opcode == "wgmma":
            self.machine.products.observe(instruction, lambda: self._multiplied(instruction, read, written))
            return run
        targets = [self.registers.of(each) for each in written]
        flowing = {each.name for position in data for each in registers_of(instruction.operands[position])}
        control = [each for each in read if each.name not in flowing]
        if reports_operands(instruction):
            control = []  # they have been reported
        memory, values = self.memory, self.machine.memory
        read = [each for each in read if each.name in flowing]
        address = {each.name for each in registers_of(*instruction.operands[1:])}
        overwritten = any(each.name in address for each in written)
        stores = instruction.opcode in ("st", "stmatrix") or "store" in instruction.modifiers
        pair = instruction.operands[0]
        beside = None if not isinstance(pair, Paired) or pair.second not in written else self.registers.of(pair.second)

        def clear(active: Active) -> None:
            for target in targets:
                target.clear(active)

        become = self._becoming(instruction, read)

        def store(active: Active) -> None:
            run(active)
            if any(self.registers.of(each).among(active) is not None for each in read):
                self._store(move, instruction, read, active)

        def load(active: Active) -> None:
            values.met_undefined, memory.loaded = False, None
            if overwritten:
                move(active)
            run(active)
            if values.met_undefined and not overwritten:
                move(active)
            if memory.loaded is None:
                clear(active)
                return
            for each, target in zip(written, targets, strict=True):
                target.some = True
                self._note(each, memory.loaded, active)

        def move_between_registers(active: Active) -> None:
            some = self._origin(instruction, read, active, written, become)
            if some:
                move(active)
            run(active)
            if not some:
                clear(active)
                return
            for target in targets:
                target.some = True
            if beside is not None:
                beside.clear(active)

        absent = ValueOrigin(
            f"read at {instruction.location} from a lane that does not execute the shuffle, ",
            instruction.location,
            "let every lane that is asked execute the shuffle, also behind the end of the data, or drop what comes "
            "from the others; threads of a block that is no multiple of 32 have a last warp with missing lanes",
        )

        def exchange(active: Active) -> None:
            some = self._origin(instruction, read, active, written, become)
            if not some and active.whole_warps:
                run(active)
                clear(active)
                return
            move(active)  # before the values change
            values.met_undefined = False
            run(active)
            for each, target in zip(written, targets, strict=True):
                target.some = bool(target.bits.any())
                if values.met_undefined and not some:
                    self.origins[each.name] = absent
            if beside is not None:
                beside.clear(active)

        if loads and instruction.opcode == "shfl":
            return self._controlled(exchange, instruction, control, written, targets) if control else exchange
        if loads:
            return load
        if stores:
            return store
        if control:
            return self._controlled(move_between_registers, instruction, control, written, targets)
        return move_between_registers

    def _multiplied(self, instruction: Instruction, read: list[Register], written: list[Register]) -> None:
        """A `wgmma` has written undefined bits."""
        here = ValueOrigin(f"computed at {instruction.location}, ", instruction.location)
        origin = next((self.origins[each.name] for each in read if each.name in self.origins), self.memory.loaded)
        for each in written:
            register = self.registers.of(each)
            register.some = bool(register.bits.any())
            self.origins.setdefault(each.name, (origin or here).computed())

    def _controlled(
        self, run: Run, instruction: Instruction, control: list[Register], written: list[Register],
        targets: list[UndefinedRegister],
    ) -> Run:  # fmt: skip
        """``run``, whose results are undefined where the lane, or the amount, of what it moves is."""
        rule = self._flags(instruction, control)

        def controlled(active: Active) -> None:
            flags = _any(self.registers, control, active)
            run(active)
            if flags is not None:
                self._origin(instruction, control, active, written)
                rule(active, targets)

        return controlled

    def _store(self, move: Run, instruction: Instruction, read: list[Register], active: Active) -> None:
        """A store of undefined bits: noted in memory; in global memory reported, unless it only copies."""
        memory = self.memory
        lanes = self.machine.geometry.lanes
        values, own, alone = (np.zeros(lanes, np.bool_) for _ in range(3))
        width = element_bytes(instruction)
        found: list[tuple[int, Register, ValueOrigin]] = []
        for each in read:
            flags = self.registers.of(each).among(active)
            if flags is None:
                continue
            origin = self.origins.get(each.name)
            if origin is None:
                said = f"stored at {instruction.location} from {each.name}, "
                origin = ValueOrigin(said, instruction.location)
            if width > origin.width:
                extended = flags & ~self._wholly(each, width, active) if origin.pieces else flags
                if extended.any():
                    values[active.lanes[extended]] = True
                    origin = origin.computed()
            if origin.copied != "global":
                (own if origin.copied else values)[active.lanes[flags]] = True
            elif origin.alone:
                alone[active.lanes[flags & self._wholly(each, width, active)]] = True
            found.append((origin.rank(), each, origin))
        found.sort(key=lambda each: each[0])
        memory.escaped = None
        memory.storing = StoredOrigins(found[0][2], values, own, alone)
        move(active)
        memory.storing = None
        if memory.escaped is None:
            return
        lanes_escaped, places = memory.escaped
        lane = Active.of(lanes_escaped[:1])
        guilty = (each for _, each, _ in found if self.registers.of(each).among(lane) is not None)
        self._report(instruction, next(guilty, found[0][1]).name, int(lanes_escaped[0]))
        memory.accept(places)

    def _wholly(self, register: Register, width: int, active: Active) -> Flags:
        """In which lanes all of the low ``width`` bytes of a register are undefined."""
        bits = self.registers.of(register).bits[active.index]
        if bits.ndim > 1:
            whole: Flags = (bits == ~bits.dtype.type(0)).all(axis=1)
            return whole
        ones = bits.dtype.type((1 << 8 * min(width, bits.dtype.itemsize)) - 1)
        low: Flags = (bits & ones) == ones
        return low

    # -- rules ---------------------------------------------------------------------------------------------------

    def _flags(self, instruction: Instruction, read: list[Register]) -> Callable[..., None]:
        """Results that are undefined altogether in some lanes."""
        conditions = self._conditions(instruction)
        mask = self._mask(instruction)
        undefined = [(each.name, self.registers.of(each)) for each in read]

        def rule(active: Active, targets: list[UndefinedRegister]) -> None:
            found = np.zeros(active.count, np.bool_)
            for name, register in undefined:
                flags = register.among(active)
                if flags is not None:
                    condition = conditions.get(name)
                    found |= flags if condition is None else flags & condition(active)
            if mask is not None:
                members = np.broadcast_to(mask(active), active.count).astype(np.uint64)
                found = (Warps(active).ballot(found) & members) != 0
            for target in targets:
                target.set(active, found)

        return rule

    def _mask(self, instruction: Instruction) -> Source | None:
        if instruction.opcode not in VOTES:
            return None
        return Assembler(self.machine).source(instruction.operands[-1], np.uint32)

    def _conditions(self, instruction: Instruction) -> dict[str, Callable[[Active], Flags]]:
        """In which lanes an operand matters, where that depends on a predicate: of `setp.and` and `.or`.

        Compilers work out ``a && b`` without a branch, b undefined where a is false.
        """
        opcode, modifiers, operands = instruction.opcode, instruction.modifiers, instruction.operands
        if opcode not in ("setp", "set") or not {"and", "or"} & set(modifiers):
            return {}
        found = [(operand, self._decided(operands[3], "and" in modifiers)) for operand in operands[1:3]]
        names = [operand.name for operand, _ in found if isinstance(operand, Register)]
        return {
            operand.name: condition
            for operand, condition in found
            if isinstance(operand, Register) and names.count(operand.name) == 1
        }

    def _decided(self, operand: Operand, wanted: bool) -> Callable[[Active], Flags]:
        """Where a predicate is as wanted, or undefined itself."""
        read = Assembler(self.machine).source(operand, np.bool_)
        register = operand.register if isinstance(operand, Negated) else operand
        bits = self.registers.array(register) if isinstance(register, Register) else None

        def decided(active: Active) -> Flags:
            holds: Flags = read(active) == wanted
            return holds if bits is None else holds | bits[active.index]

        return decided

    def _bitwise(self, instruction: Instruction) -> Callable[..., None] | None:
        """A bit of ``a & b`` is undefined if one operand's is and the other's is not 0; likewise of ``a | b``."""
        target = instruction.operands[0]
        if instruction.opcode not in BITWISE or not isinstance(target, Register):
            return None
        count = {"not": 1, "lop3": 3}.get(instruction.opcode, 2)
        kind = self.machine.registers.array(target).dtype
        given = instruction.operands[1 : 1 + count]
        values = [Assembler(self.machine).source(each, kind) for each in given]
        bits = [self._bits_of(each, kind) for each in given]
        opcode = instruction.opcode

        def rule(active: Active, targets: list[UndefinedRegister]) -> None:
            undefined = [read(active) for read in bits]
            if opcode in ("and", "or"):
                a, b = (each(active) if opcode == "and" else ~each(active) for each in values)
                found = (undefined[0] & (b | undefined[1])) | (undefined[1] & a)
            else:
                found = np.bitwise_or.reduce(np.broadcast_arrays(*undefined))
            for each in targets:
                each.bits[active.index] = found
                each.some = True

        return rule

    def _selected(self, instruction: Instruction) -> Callable[..., None] | None:
        """The bits of `selp` are those of the operand that is chosen, and undefined if the choice is."""
        target = instruction.operands[0]
        if instruction.opcode != "selp" or not isinstance(target, Register):
            return None
        kind = self.machine.registers.array(target).dtype
        first, second = (self._bits_of(each, kind) for each in instruction.operands[1:3])
        chosen = Assembler(self.machine).source(instruction.operands[3], np.bool_)
        undecided = self._bits_of(instruction.operands[3], np.dtype(np.bool_))

        def rule(active: Active, targets: list[UndefinedRegister]) -> None:
            bits = np.where(chosen(active), first(active), second(active))
            found = np.where(undecided(active), ones(kind), bits)
            for each in targets:
                each.bits[active.index] = found
                each.some = True

        return rule

    def _shifted(self, instruction: Instruction) -> Callable[..., None] | None:
        """The bits of `shf` are shifted as its words are, and all undefined if the amount is."""
        if instruction.opcode != "shf":
            return None
        word, function = np.dtype(np.uint32), funnel_shifted(instruction)
        low, high, unknown = (self._bits_of(each, word) for each in instruction.operands[1:])
        amount = Assembler(self.machine).source(instruction.operands[3], np.uint32)

        def rule(active: Active, targets: list[UndefinedRegister]) -> None:
            bits = function(low(active), high(active), amount(active))
            found = np.where(unknown(active) != 0, ones(word), bits)
            for each in targets:
                each.bits[active.index] = found
                each.some = True

        return rule

    def _halves(self, instruction: Instruction) -> Callable[..., None] | None:
        """Of two packed elements each result is undefined if one of its own operands is."""
        target, *given = instruction.operands
        registers = [each for each in (target, *given) if isinstance(each, Register)]
        if instruction.modifiers[-1:] not in PACKED or instruction.opcode == "cvt" or target not in registers:
            return None
        if any(self.machine.registers.array(each).dtype != np.uint32 for each in registers):
            return None
        bits = [self._bits_of(each, np.dtype(np.uint32)) for each in given]

        def rule(active: Active, targets: list[UndefinedRegister]) -> None:
            low, high = np.uint32(0xFFFF), np.uint32(0xFFFF0000)
            some = np.bitwise_or.reduce(np.broadcast_arrays(*(read(active) for read in bits)))
            found = np.where(some & low, low, np.uint32(0)) | np.where(some & high, high, np.uint32(0))
            for each in targets:
                each.bits[active.index] = found
                each.some = True

        return rule

    def _bits_of(self, operand: Operand, kind: np.dtype[Any]) -> Source:
        register = operand.register if isinstance(operand, Negated) else operand
        if not isinstance(register, Register):
            none: Array = np.zeros(1, kind)
            return lambda active: none
        bits = self.registers.array(register)
        return lambda active: bits[active.index]


def _any(registers: UndefinedRegisters, read: list[Register], active: Active) -> Flags | None:
    found: Flags | None = None
    for each in read:
        flags = registers.of(each).among(active)
        if flags is not None:
            found = flags if found is None else found | flags
    return found


def registers_of(*operands: Operand | None) -> list[Register]:
    """The registers of some operands."""
    return [each for each in parts_of(*operands) if isinstance(each, Register)]


def distinct(registers: Iterable[Register]) -> list[Register]:
    """Each register once."""
    return list({each.name: each for each in registers}.values())
