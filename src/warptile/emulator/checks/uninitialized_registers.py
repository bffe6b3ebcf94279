"""Finds values that are used before anything has written them, where they matter.

A dataflow analysis of each function finds the reads that some path reaches without a write, or with a value computed
from such a register. Most functions have none and are not slowed down. For the registers of the others a shadow says,
lane by lane and bit by bit, what is undefined (`checks.undefined_flow`): an instruction on which something observable
depends (a store to global memory, an address, a guard) reports it. Compilers leave undefined values where nothing
depends on them, so reading alone is not a bug, nor is combining a false predicate with an undefined one. Compilers make
branches of choices between values: where the ways of a branch only compute, what they write is undefined if the choice
is. Arguments of calls count as written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from warptile.emulator import program as p
from warptile.emulator.builders import Run, built_when_executed
from warptile.emulator.checks.undefined_bits import UndefinedMemory, UndefinedRegisters
from warptile.emulator.checks.undefined_flow import (
    COMPUTES,
    UndefinedFlow,
    distinct,
    hands_on,
    may_load_undefined,
    moved_data,
    registers_of,
    reports_operands,
)
from warptile.emulator.machine import Machine
from warptile.emulator.program import ProgramStep, Routine
from warptile.ptx.instruction import Instruction, Register

_LONGEST_CHOICE = 256
"""Steps between a branch and where its ways meet, if it is looked at as a choice between values."""


@dataclass(frozen=True)
class _Watched:
    """What is watched at a step.

    Attributes:
        position: of the step, from the start of its function.
        guard: a guard that must hold something, and may not.
        chosen: registers that are undefined if the guard is, which then need not hold anything.
        choices: guards of branches that decide whether the step is executed, as of those.
        used: operands of which the same is true.
        read: registers that may be undefined where the step reads them.
        written: registers that are followed, where the step has an effect on what is undefined of them; else None.
        loads: memory that it reads may be undefined.
    """

    position: int
    guard: Register | None
    chosen: list[Register] | None
    choices: list[Register]
    used: list[Register]
    read: list[Register]
    written: list[Register] | None
    loads: bool


@dataclass(frozen=True)
class _WatchPlan:
    """What is watched in a function: the same at every launch.

    Attributes:
        followed: registers whose undefined bits are followed.
        steps: those at which there is something to do.
    """

    followed: frozenset[str]
    steps: list[_Watched]


def watch(routine: Routine, steps: list[ProgramStep], machine: Machine, memory: UndefinedMemory) -> None:
    """Make the steps of one function report such values. Guards must not have been folded into ``run`` yet."""
    follows_loads = machine.memory.follows_loads
    analyses, key = routine.function.analyses, (_watch_plan, follows_loads)
    if key not in analyses:
        analyses[key] = _watch_plan(routine, steps, follows_loads=follows_loads)
    plan: _WatchPlan | None = analyses[key]
    if plan is None:
        return
    registers = UndefinedRegisters(routine.registers, plan.followed)
    routine.registers.at_start_of_wave = registers.start_wave
    flow = UndefinedFlow(machine, memory, registers)
    for watched in plan.steps:
        step = steps[watched.position]
        instruction = step.instruction
        assert instruction is not None
        if watched.guard is not None and step.guard is not None:
            if watched.chosen is None:
                step.guard = flow.reporting(step.guard, instruction, [watched.guard])
            else:
                step.guard = flow.choosing(step.guard, instruction, [watched.guard], watched.chosen)
        if watched.used and step.run is not None:
            step.run = flow.reporting(step.run, instruction, watched.used)
        if watched.written is not None:
            step.run = _following(machine, flow, step, watched)
            if watched.choices:
                step.run = flow.choosing(step.run, instruction, watched.choices, watched.written)


def _following(machine: Machine, flow: UndefinedFlow, step: ProgramStep, watched: _Watched) -> Run:
    run, instruction, written = step.run, step.instruction, watched.written
    assert run is not None
    assert instruction is not None
    assert written is not None
    for each in (*watched.read, *written):
        flow.registers.of(each)  # all that are followed start as undefined
    return built_when_executed(
        machine, lambda: flow.following(run, instruction, watched.read, written, loads=watched.loads)
    )


def _watch_plan(routine: Routine, steps: list[ProgramStep], *, follows_loads: frozenset[str]) -> _WatchPlan | None:
    """What has to be watched in a function; None if every register holds something where it is read."""
    # What a call or a barrier without `run` writes cannot be followed: such registers are taken as written.
    unfollowed = {name for step in steps if step.run is None for name in step.writes} | _formals(routine)
    choices = _choices(steps, routine.start, unfollowed)
    doubtful = doubtful_reads(routine, steps, follows_loads=follows_loads, choices=choices)
    if not any(doubtful):
        return None
    followed = frozenset().union(*doubtful) - unfollowed
    deciding = _deciding(choices)
    found = []
    for position, (step, reads) in enumerate(zip(steps, doubtful, strict=True)):
        instruction = step.instruction
        if instruction is None:
            continue
        doubts = reads & followed
        guard = instruction.predicate if doubts and step.guard is not None else None
        if guard is not None and guard.name not in doubts:
            guard = None
        chosen = None
        if guard is not None and position in choices:
            chosen = distinct(
                each
                for step in steps[position + 1 : choices[position].end]
                if step.instruction is not None
                for each in _those(step.instruction, followed.intersection(step.writes))
            )
        deciders = [each for each in deciding.get(position, ()) if each.name in doubts]
        used: list[Register] = []
        read: list[Register] = []
        written: list[Register] | None = None
        if step.run is not None:
            names = doubts.intersection(step.reads)
            data = (moved_data(instruction) or ()) if names else ()
            if names and reports_operands(instruction):
                others = [operand for place, operand in enumerate(instruction.operands) if place not in data]
                used = distinct(each for each in registers_of(*others) if each.name in names)
            read = _those(instruction, names)
            written = _those(instruction, followed.intersection(step.writes))
            if not written and not (read and data):
                written = None
        if guard is not None or used or written is not None:
            loads = may_load_undefined(instruction, routine, follows_loads=follows_loads)
            found.append(_Watched(position, guard, chosen, deciders, used, read, written, loads))
    return _WatchPlan(followed, found)


def _those(instruction: Instruction, names: frozenset[str]) -> list[Register]:
    """The registers of an instruction that are called so."""
    return distinct(each for each in instruction.registers if each.name in names) if names else []


@dataclass(frozen=True)
class _Choice:
    """A branch around steps that only write registers, up to ``end``, with what it chooses by and what they write."""

    guard: Register
    end: int
    writes: frozenset[str]


def _choices(steps: list[ProgramStep], start: int, unfollowed: set[str]) -> dict[int, _Choice]:
    """Branches, by position, that the compiler could have made selections of instead."""
    targets = {position: step.target - start for position, step in enumerate(steps) if step.kind == p.BRANCH}
    sources: dict[int, list[int]] = {}
    for source, target in targets.items():
        sources.setdefault(target, []).append(source)
    for source, step in enumerate(steps):
        if step.kind == p.INDEXED_BRANCH:
            for target in step.detail[1]:  # type: ignore[index]
                sources.setdefault(int(target) - start, []).append(source)
    found = {}
    for position, target in targets.items():
        instruction = steps[position].instruction
        if instruction is None or instruction.predicate is None or not 0 < target - position <= _LONGEST_CHOICE:
            continue
        end, place, writes = target, position + 1, set[str]()
        while place < end:
            step = steps[place]
            if step.kind == p.BRANCH and place < targets[place] <= position + _LONGEST_CHOICE:
                end = max(end, targets[place])
            elif step.kind != p.PLAIN or step.instruction is None or step.instruction.opcode not in COMPUTES:
                break
            writes.update(step.writes)
            place += 1
        entered = (each for within in range(position + 1, end) for each in sources.get(within, ()))
        inside = all(position <= each < end for each in entered)
        guard = instruction.predicate
        if place == end and inside and not (writes & unfollowed) and guard.name not in writes:
            found[position] = _Choice(guard, end, frozenset(writes))
    return found


def _deciding(choices: Mapping[int, _Choice]) -> dict[int, list[Register]]:
    """For each step the guards of the branches that it stands behind."""
    found: dict[int, list[Register]] = {}
    for position, choice in choices.items():
        for place in range(position + 1, choice.end):
            found.setdefault(place, []).append(choice.guard)
    return found


class _Bits(dict[str, int]):
    """A bit for each name, given when it is first asked for."""

    def __missing__(self, name: str) -> int:
        bit = self[name] = 1 << len(self)
        return bit

    def of(self, names: Iterable[str]) -> int:
        """The bits of some names together."""
        mask = 0
        for name in names:
            mask |= self[name]
        return mask


def doubtful_reads(
    routine: Routine,
    steps: list[ProgramStep],
    *,
    follows_loads: frozenset[str] = frozenset(),
    choices: Mapping[int, _Choice] = MappingProxyType({}),
) -> list[frozenset[str]]:
    """For each step, the registers among its reads (and its guards) that may hold nothing, or come from nothing.

    ``follows_loads`` is that of `Memory`.
    """
    bits = _Bits()
    effects = []
    deciding = _deciding(choices)
    for position, step in enumerate(steps):
        instruction = step.instruction
        if instruction is None:
            effects.append((0, 0, 0, False, False))
            continue
        guard = bits[instruction.predicate.name] if instruction.predicate is not None else 0
        loads = may_load_undefined(instruction, routine, follows_loads=follows_loads)
        reads, writes, flows = bits.of(step.reads), bits.of(step.writes), hands_on(instruction)
        if position in choices:
            reads, writes, flows = guard, bits.of(choices[position].writes), True
        if position in deciding and step.kind == p.PLAIN:
            reads |= bits.of(each.name for each in deciding[position])
            flows = True
        effects.append((reads, writes, guard, flows, loads))
    blocks = _blocks(steps, routine.start)
    held = dict.fromkeys(blocks, (1 << len(bits)) - 1)  # registers that hold a value on every path to a block
    held[0] = bits.of(_formals(routine))
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
    names = list(bits)  # in their order
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


def _after(holding: int, reads: int, writes: int, guard: int, flows: bool, loads: bool) -> int:
    """Which registers hold a value behind an instruction."""
    if loads or (flows and reads & ~holding):
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


def _formals(routine: Routine) -> set[str]:
    """Parameters of a function that are registers: its caller writes them."""
    return {formal.name for formal in routine.function.parameters if isinstance(formal, Register)}
