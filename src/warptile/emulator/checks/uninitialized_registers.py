"""Finds values that are used before anything has written them, where they matter.

A dataflow analysis of each function finds the reads that some path reaches without a write, or with a value computed
from such a register. Most functions have none and are not slowed down. For the registers of the others a shadow says,
lane by lane and bit by bit, what is undefined (`checks.undefined_flow`): an instruction on which something observable
depends (a store to global memory, an address, a guard) reports it. Compilers leave undefined values where nothing
depends on them, so reading alone is not a bug, nor is combining a false predicate with an undefined one. Arguments of
calls count as written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from warptile.emulator import program as p
from warptile.emulator.checks.undefined_bits import UndefinedMemory, UndefinedRegisters
from warptile.emulator.checks.undefined_flow import (
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
from warptile.ptx.instruction import Register


def watch(routine: Routine, steps: list[ProgramStep], machine: Machine, memory: UndefinedMemory) -> None:
    """Make the steps of one function report such values. Guards must not have been folded into ``run`` yet."""
    follows_loads = machine.memory.follows_loads
    analyses, key = routine.function.analyses, (doubtful_reads, follows_loads)
    if key not in analyses:
        analyses[key] = doubtful_reads(routine, steps, follows_loads=follows_loads)
    doubtful: list[frozenset[str]] = analyses[key]
    if not any(doubtful):
        return
    # What a call or a barrier without `run` writes cannot be followed: such registers are taken as written.
    followed = frozenset().union(*doubtful) - {name for step in steps if step.run is None for name in step.writes}
    followed -= _formals(routine)
    registers = UndefinedRegisters(routine.registers, followed)
    routine.registers.at_start_of_wave = registers.start_wave
    flow = UndefinedFlow(machine, memory, registers)
    for step, reads in zip(steps, doubtful, strict=True):
        instruction = step.instruction
        if instruction is None:
            continue
        guard = instruction.predicate
        if step.guard is not None and guard is not None and guard.name in reads & followed:
            step.guard = flow.reporting(step.guard, instruction, [guard])
        if step.run is None:
            continue
        names = reads & followed & set(step.reads)
        data = moved_data(instruction) or ()
        if names:
            others = [operand for place, operand in enumerate(instruction.operands) if place not in data]
            used = distinct(each for each in registers_of(*others) if each.name in names)
            if used and reports_operands(instruction):
                step.run = flow.reporting(step.run, instruction, used)
        loads = may_load_undefined(instruction, routine, follows_loads=follows_loads)
        read = distinct(each for each in instruction.registers if each.name in names)
        if flow.written(step, instruction) or (read and data):
            step.run = flow.following(step, instruction, read, loads=loads)


def doubtful_reads(routine: Routine, steps: list[ProgramStep], *, follows_loads: bool = False) -> list[frozenset[str]]:
    """For each step, the registers among its reads (and its guard) that may hold nothing, or come from nothing.

    ``follows_loads`` is that of `Memory`.
    """
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
        flows = instruction is not None and hands_on(instruction)
        loads = instruction is not None and may_load_undefined(instruction, routine, follows_loads=follows_loads)
        effects.append((bits(step.reads), bits(step.writes), guard, flows, loads))
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
