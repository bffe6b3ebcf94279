"""The program as steps: every instruction built once, control flow resolved to positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from warptile.emulator import ops
from warptile.emulator import program as p
from warptile.emulator.builders import BUILDERS, Assembler, Modifiers, Run, Source, built_when_executed, unknown
from warptile.emulator.checks import uninitialized_registers  # importing ops registers every builder
from warptile.emulator.checks.races import FULL_MASK
from warptile.emulator.checks.undefined_bits import UndefinedMemory
from warptile.emulator.checks.undefined_flow import COMPUTES
from warptile.emulator.lanes import Active, Array
from warptile.emulator.machine import Machine
from warptile.emulator.ops import runtime_calls
from warptile.emulator.program import ProgramLayout, ProgramStep, Routine
from warptile.errors import EmulationError, UnknownInstruction
from warptile.ptx.instruction import (
    CallArguments,
    Immediate,
    Instruction,
    Label,
    Operand,
    PtxModule,
    Register,
    Symbol,
    Variable,
)

_CONTROL = frozenset({"bra", "brx", "exit", "ret", "call", "bar", "barrier"})
"""Opcodes of control flow and of barriers, which the scheduler executes."""

_BUILT_LATER = COMPUTES | {"ld", "st", "mma", "cp"}
"""Opcodes whose builders only look: at a further launch of a function they are built when they are first executed,
which many instructions never are."""

_KINDS = {None: p.PLAIN, "warp": p.WARP_COLLECTIVE, "mask": p.MASK_COLLECTIVE}
"""Kinds of steps by `Operation.collective`."""


class CallPlan:
    """A call: which bytes and registers go in and come out, and where the callee starts.

    Attributes:
        starts: function address -> first position (one entry for a direct call).
        address: reads the callee's address for an indirect call; None for a direct one.
    """

    def __init__(
        self,
        starts: dict[int, int],
        address: Callable[[Active], Array] | None,
        before: dict[int, list[Callable[[Active], None]]],
        after: dict[int, list[Callable[[Active], None]]],
    ) -> None:
        self.starts = starts
        self.address = address
        self.before = before
        self.after = after


def assemble(module: PtxModule, layout: ProgramLayout, machine: Machine) -> list[ProgramStep]:
    """Every step of the program, by position."""
    steps: list[ProgramStep] = []
    undefined = UndefinedMemory(machine.memory)
    for routine in layout.routines.values():
        machine.registers = routine.registers
        machine.frame, machine.shifts = layout.frame_of(routine), layout.shifts_of(routine)
        body = routine.function.body
        assert body is not None
        machine.count.place(body, len(steps))
        steps += [_located(module, layout, machine, routine, instruction) for instruction in body]
        steps.append(ProgramStep(p.EXIT if routine.function.entry else p.RETURN, None))
        built = [(step.run, step.guard) for step in steps[routine.start :]]
        if machine.memory.check_uninitialised:
            uninitialized_registers.watch(routine, steps[routine.start :], machine, undefined)
        machine.products.watch(routine.registers, steps[routine.start :])
        for step, (run, guard) in zip(steps[routine.start :], built, strict=True):
            step.watched = step.run is not run or step.guard is not guard
            if step.kind == p.PLAIN and step.run is not None and step.guard is not None:
                step.run, step.guard = _guarded(step.run, step.guard), None
    return steps


def _located(
    module: PtxModule, layout: ProgramLayout, machine: Machine, routine: Routine, instruction: Instruction
) -> ProgramStep:
    built: dict[int, tuple[tuple[str, ...], tuple[str, ...]]]
    built = routine.function.analyses.setdefault((_located, machine.arch_capability), {})
    registers = built.get(id(instruction))
    if registers is not None:
        for each in instruction.registers:
            machine.registers.array(each)  # all arrays are there before a wave starts
        step = ProgramStep(p.PLAIN, instruction, run=_later(machine, instruction))
        step.reads, step.writes = registers
    else:
        assembler = Assembler(machine)
        with _naming(machine, instruction):
            step = _step(module, layout, machine, routine, instruction, assembler)
        step.reads, step.writes = tuple(assembler.reads), tuple(assembler.writes)
        if step.kind == p.PLAIN and step.run is not None and instruction.opcode in _BUILT_LATER:
            built[id(instruction)] = step.reads, step.writes
    if instruction.predicate is not None:
        predicate = machine.registers.array(instruction.predicate)
        if instruction.predicate_negated:
            step.guard = lambda active: ~predicate[active.index]
        else:
            step.guard = lambda active: predicate[active.index]
    return step


@contextmanager
def _naming(machine: Machine, instruction: Instruction) -> Iterator[None]:
    """Errors of a builder say which instruction they are about."""
    try:
        yield
    except EmulationError as error:
        if error.location is not None:
            raise
        raise type(error)(
            f"{instruction.text}: {error}", kernel=machine.kernel, location=instruction.location
        ) from error


def _later(machine: Machine, instruction: Instruction) -> Run:
    """An instruction that is built when it is first executed, as it would have been with the others of its function."""

    def build() -> Run:
        with _naming(machine, instruction):
            run = _plain(machine, instruction, Assembler(machine)).run
            assert run is not None
            return run

    return built_when_executed(machine, build)


def _guarded(run: Callable[[Active], None], guard: Callable[[Active], Any]) -> Callable[[Active], None]:
    def run_where(active: Active) -> None:
        mask = guard(active)
        taken = int(np.count_nonzero(mask))
        if taken == active.count:
            run(active)
        elif taken:
            run(active.where(mask))

    return run_where


def _step(
    module: PtxModule,
    layout: ProgramLayout,
    machine: Machine,
    routine: Routine,
    instruction: Instruction,
    assembler: Assembler,
) -> ProgramStep:
    opcode = instruction.opcode
    if opcode not in _CONTROL:
        return _plain(machine, instruction, assembler)
    if opcode == "bra":
        modifiers = Modifiers(instruction)
        modifiers.flag("uni")
        modifiers.done()
        return ProgramStep(p.BRANCH, instruction, target=_target(routine, instruction.operands[0]))
    if opcode == "brx":
        return _indexed_branch(assembler, routine, instruction)
    if opcode == "exit":
        return ProgramStep(p.EXIT, instruction)
    if opcode == "ret":
        return ProgramStep(p.EXIT if routine.function.entry else p.RETURN, instruction)
    if opcode == "call":
        return _call(module, layout, machine, assembler, routine, instruction)
    if opcode == "barrier" and "cluster" in instruction.modifiers:
        return ProgramStep(p.CLUSTER_BARRIER, instruction, detail=ops.cluster.parse_barrier(instruction))
    parts = ops.bar.parse(instruction, assembler)
    if parts.warp_mask is not None:
        run = _warp_barrier(machine, parts.warp_mask)
        return ProgramStep(p.MASK_COLLECTIVE, instruction, run=run, detail=parts.warp_mask)
    return ProgramStep(p.BARRIER, instruction, detail=parts)


def _plain(machine: Machine, instruction: Instruction, assembler: Assembler) -> ProgramStep:
    """The step of an instruction that has a builder."""
    opcode = instruction.opcode
    build = BUILDERS.get(f"{opcode}.async") if "async" in instruction.modifiers else None
    build = build or BUILDERS.get(opcode)
    if build is None:
        raise unknown(instruction, f"opcode {opcode} is not known to the emulator")
    operation = build(instruction, assembler)
    if operation.wait is not None:
        kind = p.MBARRIER_WAIT if operation.collective is None else p.WARP_COLLECTIVE
        return ProgramStep(kind, instruction, detail=operation.wait)
    kind, run = _KINDS[operation.collective], operation.run
    if operation.collective is not None:
        run = _ordering(machine, instruction, run, operation.mask)
    return ProgramStep(kind, instruction, run=run, detail=operation.mask)


def _ordering(machine: Machine, instruction: Instruction, run: Run, mask: Source | None) -> Run:
    """``run`` of a collective, which orders its lanes like `bar.warp.sync` if the memory model is to say so."""
    races = machine.memory.races
    if races is None or not races.collectives_order:
        return run
    accesses = instruction.opcode in ("ldmatrix", "stmatrix", "wmma")

    def ordered(active: Active) -> None:
        masks = np.array([FULL_MASK]) if mask is None else mask(active)
        races.warp_barrier(active, masks)
        run(active)
        if accesses:
            races.warp_barrier(active, masks)

    return ordered


def _warp_barrier(machine: Machine, mask: Source) -> Run:
    """What `bar.warp.sync` does once everybody is there: it orders, and changes nothing else."""
    races = machine.memory.races
    if races is None:
        return lambda active: None
    return lambda active: races.warp_barrier(active, mask(active))


def _target(routine: Routine, operand: Operand) -> int:
    if isinstance(operand, Label | Symbol):
        return routine.position(operand.name)
    raise UnknownInstruction(f"branch target {operand} is not a label")


def _indexed_branch(assembler: Assembler, routine: Routine, instruction: Instruction) -> ProgramStep:
    modifiers = Modifiers(instruction)
    modifiers.need("idx")
    modifiers.flag("uni")
    modifiers.done()
    index = assembler.source(instruction.operands[0], np.uint32)
    table = instruction.operands[1]
    assert isinstance(table, Label | Symbol), table
    labels = routine.function.branch_targets[table.name]
    targets = np.array([routine.position(label) for label in labels], dtype=np.int64)
    return ProgramStep(p.INDEXED_BRANCH, instruction, detail=(index, targets))


def _call(
    module: PtxModule,
    layout: ProgramLayout,
    machine: Machine,
    assembler: Assembler,
    routine: Routine,
    instruction: Instruction,
) -> ProgramStep:
    modifiers = Modifiers(instruction)
    modifiers.flag("uni")
    modifiers.done()
    operands = list(instruction.operands)
    returns: tuple[Operand, ...] = ()
    if operands and isinstance(operands[0], CallArguments) and len(operands) > 1:
        returns = operands[0].elements
        del operands[0]
    callee = operands.pop(0)
    arguments: tuple[Operand, ...] = ()
    if operands and isinstance(operands[0], CallArguments):
        arguments = operands[0].elements
    if isinstance(callee, Symbol | Label) and callee.name in p.NATIVE_FUNCTIONS:
        run = runtime_calls.build(callee.name, returns, arguments, instruction, assembler)
        return ProgramStep(p.PLAIN, instruction, run=run)
    if isinstance(callee, Register):
        names = [name for name in layout.routines if name != layout.entry.name]
        address = assembler.source(callee, np.uint64)
    elif isinstance(callee, Symbol | Label) and callee.name in layout.routines:
        names, address = [callee.name], None
    else:
        raise unknown(instruction, f"calls {getattr(callee, 'name', callee)}, which this module does not define")
    assembler.writes += [operand.name for operand in returns if isinstance(operand, Register)]
    starts: dict[int, int] = {}
    before: dict[int, list[Callable[[Active], None]]] = {}
    after: dict[int, list[Callable[[Active], None]]] = {}
    for name in names:
        target = layout.routines[name]
        if len(target.function.parameters) != len(arguments) or len(target.function.returns) != len(returns):
            if address is None:
                raise unknown(instruction, f"{name} takes {len(target.function.parameters)} arguments")
            continue  # an indirect call cannot mean this function
        starts[machine.symbols.get(name, 0)] = target.start
        moves = [_move(layout, machine, routine, target, a, f, inward=True)
                 for a, f in zip(arguments, target.function.parameters, strict=True)]  # fmt: skip
        before[target.start] = moves
        after[target.start] = [_move(layout, machine, routine, target, a, f, inward=False)
                               for a, f in zip(returns, target.function.returns, strict=True)]  # fmt: skip
    plan = CallPlan(starts, address, before, after)
    return ProgramStep(p.CALL, instruction, target=next(iter(starts.values()), -1), detail=plan)


def _move(
    layout: ProgramLayout,
    machine: Machine,
    caller: Routine,
    callee: Routine,
    actual: Operand,
    formal: Variable | Register,
    *,
    inward: bool,
) -> Callable[[Active], None]:
    """Copy one argument (inward) or result (outward) between a call's operand and the callee's own variable."""
    space, origin = machine.memory.local_space, machine.memory.local_origin
    if isinstance(formal, Register):
        inner = callee.registers.array(formal)
        if isinstance(actual, Register):
            outer = caller.registers.array(actual)
            source, target = (outer, inner) if inward else (inner, outer)

            def move_register(active: Active) -> None:
                target[active.index] = source[active.index]

            return move_register
        if inward and isinstance(actual, Immediate):
            constant = Assembler(machine).source(actual, inner.dtype)

            def move_constant(active: Active) -> None:
                inner[active.index] = constant(active)

            return move_constant
        raise UnknownInstruction(f"argument {actual} for a parameter in a register")
    if not isinstance(actual, Symbol):
        raise UnknownInstruction(f"argument {actual} for a parameter in memory")
    here = layout.local[caller.function.name, actual.name]
    there = layout.local[callee.function.name, formal.name]
    first, second = (here, there) if inward else (there, here)
    width = np.arange(formal.size_bytes)

    def move_bytes(active: Active) -> None:
        start = origin[active.index][:, None] + width
        space.move(start + second, start + first)
        if machine.memory.undefined is not None:
            machine.memory.undefined.copy_origins(space, start + second, start + first)

    return move_bytes
