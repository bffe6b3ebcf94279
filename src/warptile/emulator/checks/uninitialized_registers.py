"""Finds registers that are used before anything has written them, where the value matters.

A dataflow analysis of each function finds the reads that some path reaches without a write, or with a value computed
from such a register. Most functions have none and are not slowed down. For the registers of the others a shadow says,
lane by lane, whether the value is defined: arithmetic propagates the undefined state, and an instruction that uses the
value (a store, an address, a tensor core, a guard) reports it. Compilers leave undefined values where nothing depends
on them, so reading alone is not a bug, nor is combining a false predicate with an undefined one. Loads of local memory
are treated alike. Results of `shfl`, `vote` and the like count as written, and so do arguments of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warptile.emulator import program as p
from warptile.emulator.builders import Source
from warptile.emulator.lanes import Active, Array, RegisterFile
from warptile.emulator.memory.accesses import Memory, loads_local
from warptile.emulator.program import ProgramStep, Routine
from warptile.errors import UninitializedRead
from warptile.ptx.instruction import Instruction, Negated, Operand, Register

LETS_OUT = frozenset(
    {"st", "ld", "ldu", "red", "atom", "cp", "mma", "wmma", "wgmma", "ldmatrix", "stmatrix", "mbarrier"}
)
"""Instructions that report what they read: it is stored, multiplied, or used as an address."""

EXCHANGES = frozenset({"shfl", "vote", "match", "redux", "movmatrix"})
"""Instructions whose result comes from other lanes too: it counts as written."""


def watch(routine: Routine, steps: list[ProgramStep], memory: Memory) -> None:
    """Make the steps of one function report such reads. Guards must not have been folded into ``run`` yet."""
    doubtful = doubtful_reads(routine, steps)
    if not any(doubtful):
        return
    # What a call or a barrier without `run` writes cannot be followed: such registers are taken as written.
    followed = set().union(*doubtful) - {name for step in steps if step.run is None for name in step.writes}
    followed -= _formals(routine)
    watcher = _Watcher(routine.registers, memory)
    for step, reads in zip(steps, doubtful, strict=True):
        instruction = step.instruction
        if instruction is None:
            continue
        guard = instruction.predicate.name if instruction.predicate is not None else ""
        if step.guard is not None and guard in reads & followed:
            step.guard = watcher.reporting(step.guard, instruction, [guard])
        if step.run is None:
            continue
        read = [name for name in dict.fromkeys(step.reads) if name in reads & followed]
        written = [name for name in dict.fromkeys(step.writes) if name in followed]
        if read and _lets_out(instruction):
            step.run = watcher.reporting(step.run, instruction, read)
        if written:
            step.run = watcher.noting(step.run, instruction, read if _hands_on(instruction) else [], written)


def doubtful_reads(routine: Routine, steps: list[ProgramStep]) -> list[frozenset[str]]:
    """For each step, the registers among its reads (and its guard) that may hold nothing, or come from nothing."""
    bit: dict[str, int] = {}

    def bits(names: Iterable[str]) -> int:
        mask = 0
        for name in names:
            mask |= bit.setdefault(name, 1 << len(bit))
        return mask

    effects = []
    for step in steps:
        instruction = step.instruction
        guard = bits([instruction.predicate.name]) if instruction and instruction.predicate else 0
        hands_on = instruction is not None and _hands_on(instruction)
        uncertain = instruction is not None and loads_local(instruction)
        effects.append((bits(step.reads), bits(step.writes), guard, hands_on, uncertain))
    blocks = _blocks(steps, routine.start)
    held = dict.fromkeys(blocks, (1 << len(bit)) - 1)  # registers that hold a value on every path to a block
    held[0] = bits(_formals(routine))
    pending = list(reversed(blocks))
    while pending:
        leader = pending.pop()
        behind, following = blocks[leader]
        holding = held[leader]
        for effect in effects[leader:behind]:
            holding = _after(holding, *effect)
        for successor in following:
            if held[successor] & ~holding:
                held[successor] &= holding
                pending.append(successor)
    nothing: frozenset[str] = frozenset()
    names = list(bit)  # in the order of their bits
    found = []
    for leader, (behind, _) in blocks.items():
        holding = held[leader]
        for effect in effects[leader:behind]:
            missing = (effect[0] | effect[2]) & ~holding
            found.append(frozenset(names[place] for place in _ones(missing)) if missing else nothing)
            holding = _after(holding, *effect)
    return found


def _ones(mask: int) -> Iterator[int]:
    """Positions of the bits that are set."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _after(holding: int, reads: int, writes: int, guard: int, hands_on: bool, uncertain: bool) -> int:
    """Which registers hold a value behind an instruction."""
    if uncertain or (hands_on and reads & ~holding):
        return holding & ~writes
    return holding if guard else holding | writes


def _blocks(steps: list[ProgramStep], start: int) -> dict[int, tuple[int, list[int]]]:
    """Basic blocks in order: first position -> the position behind it and the blocks that may follow."""
    following: dict[int, list[int]] = {}
    for position, step in enumerate(steps):
        if step.kind in (p.BRANCH, p.INDEXED_BRANCH, p.RETURN, p.EXIT):
            after = following[position + 1] = [] if step.guard is None else [position + 1]
            if step.kind == p.BRANCH:
                after.append(step.target - start)
            elif step.kind == p.INDEXED_BRANCH:
                after += [int(target) - start for target in step.detail[1]]  # type: ignore[index]
    leaders = sorted({0, *following, *(target for after in following.values() for target in after)} - {len(steps)})
    ends = [*leaders[1:], len(steps)]
    return {leader: (end, following.get(end, [end])) for leader, end in zip(leaders, ends, strict=True)}


def _lets_out(instruction: Instruction) -> bool:
    return instruction.opcode in LETS_OUT and not any(m.startswith("param") for m in instruction.modifiers)


def _hands_on(instruction: Instruction) -> bool:
    return not _lets_out(instruction) and instruction.opcode not in EXCHANGES


def _formals(routine: Routine) -> set[str]:
    """Parameters of a function that are registers: its caller writes them."""
    return {formal.name for formal in routine.function.parameters if isinstance(formal, Register)}


Condition = Callable[[Active], Array]
"""For each active lane: does it hold?"""


class _Watcher:
    """Wraps what steps of one function do, with the shadows of its registers."""

    def __init__(self, registers: RegisterFile, memory: Memory) -> None:
        self.registers = registers
        self.memory = memory
        self.origins: dict[str, str] = {}  # of a register computed from one that nothing has written: where, from what

    def reporting(self, run: Callable[..., Any], instruction: Instruction, names: list[str]) -> Callable[..., Any]:
        """``run``, after a look at the registers that it reads."""
        flags = [(name, self.registers.unwritten(name)) for name in names]

        def reported(active: Active) -> Any:
            for name, unwritten in flags:
                missing = unwritten.among(active)
                if missing is not None:
                    lane = active.lanes[np.argmax(missing)]
                    error = UninitializedRead(
                        f"{instruction.text}: {self.memory.thread(lane)} uses register {name}, "
                        f"{self.origins.get(name, '')}which nothing has written",
                        kernel=self.memory.kernel,
                        location=instruction.location,
                    )
                    self.memory.findings.report(error)
            return run(active)

        return reported

    def noting(
        self, run: Callable[..., Any], instruction: Instruction, read: list[str], written: list[str]
    ) -> Callable[[Active], None]:
        """``run``, which leaves ``written`` as doubtful as what it ``read``."""
        inherited = [(name, self.registers.unwritten(name)) for name in read]
        matters = self._conditions(instruction, read)
        memory = self.memory
        targets = [self.registers.unwritten(name) for name in written]

        def noted(active: Active) -> None:
            doubt: NDArray[np.bool_] | None = None
            for name, unwritten in inherited:
                missing = unwritten.among(active)
                if missing is None:
                    continue
                if name in matters:
                    missing = missing & matters[name](active)
                doubt = missing if doubt is None else doubt | missing
                here = f"computed at {instruction.location} from {name}, "
                for target in written:
                    self.origins[target] = self.origins.get(name, here)
            memory.undefined = None
            run(active)
            if memory.undefined is not None:
                doubt = memory.undefined
                for target in written:
                    self.origins[target] = f"read at {instruction.location} from local memory, "
            for unwritten in targets:
                unwritten.set(active, doubt)

        return noted

    def _conditions(self, instruction: Instruction, doubtful: list[str]) -> dict[str, Condition]:
        """In which lanes the value of an operand matters, where that depends on another one.

        Compilers work out ``a && b`` without a branch, b undefined where a is false.
        """
        first, second, last = (*instruction.operands[1:4], None, None, None)[:3]
        found: list[tuple[Operand | None, Condition | None]] = []
        if instruction.opcode == "selp":
            chosen = self._value(last)
            found = [(first, chosen), (second, None if chosen is None else lambda active: ~chosen(active))]
        elif instruction.opcode in ("and", "or"):
            found = [(first, self._decides(instruction, second, doubtful))]
            found.append((second, self._decides(instruction, first, doubtful)))
        elif instruction.opcode == "setp" and {"and", "or"} & set(instruction.modifiers):
            decides = self._decides(instruction, last, doubtful)
            found = [(first, decides), (second, decides)]
        return {
            operand.name: condition
            for operand, condition in found
            if isinstance(operand, Register) and condition is not None
        }

    def _decides(self, instruction: Instruction, other: Operand | None, doubtful: list[str]) -> Condition | None:
        """Where the other operand of an `and` (or `or`) leaves a say to this one: it is not 0 (not all ones)."""
        read = self._value(other)
        if read is None:
            return None
        absorbs_ones = instruction.opcode == "or" or "or" in instruction.modifiers
        name = getattr(other, "name", "")
        unwritten = self.registers.unwritten(name).lanes if name in doubtful else None

        def decides(active: Active) -> Array:
            value = read(active)
            undecided = np.asarray((~value if absorbs_ones else value) != 0)
            return undecided if unwritten is None else undecided | unwritten[active.index]

        return decides

    def _value(self, operand: Operand | None) -> Source | None:
        """Reads a register or the negation of a predicate; None for anything else."""
        if isinstance(operand, Negated):
            negated = self.registers.array(operand.register)
            return lambda active: ~negated[active.index]
        if isinstance(operand, Register):
            plain = self.registers.array(operand)
            return lambda active: plain[active.index]
        return None
