"""A program's records, and runs of them: what the scheduler calls in the place of the interpreter."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from warptile.emulator import program as p
from warptile.emulator.compiled_steps import memory_state as m
from warptile.emulator.compiled_steps import step_records as r
from warptile.emulator.compiled_steps.access_translation import access, parameter_loops
from warptile.emulator.compiled_steps.atomic_translation import OPCODES as ATOMICS
from warptile.emulator.compiled_steps.atomic_translation import atomic
from warptile.emulator.compiled_steps.loop_builder import Loop, Untranslated, address_of
from warptile.emulator.compiled_steps.memory_state import MemoryState
from warptile.emulator.compiled_steps.step_library import Library, library
from warptile.emulator.compiled_steps.translation import loops
from warptile.emulator.compiled_steps.warp_collective_translation import OPCODES as COLLECTIVES
from warptile.emulator.compiled_steps.warp_collective_translation import collective
from warptile.emulator.lanes import Active, Array
from warptile.emulator.program import ProgramLayout, ProgramStep, Routine

if TYPE_CHECKING:
    from warptile.emulator.machine import Machine
    from warptile.ptx.instruction import Instruction

MOST_STEPS = 1 << 14
"""Steps of a run at most when there are loops in it: between runs, Python looks for signals."""

_WORD = (1 << 64) - 1
MANY_LANES = 4096
"""Lanes for which records pay even for instructions that are executed once; with the race check, of which the
interpreter makes more work, half of them do."""


class CompiledProgram:
    """Machine code for some of the steps of a program.

    Attributes:
        known: for each position, whether there is a record.
        reasons: see `step_records`.
    """

    def __init__(self, library: Library, machine: Machine, layout: ProgramLayout, steps: list[ProgramStep]) -> None:
        self._library = library
        self._machine = machine
        self._scratch: dict[str, Array] = {}
        self._constants: dict[int, Array] = {}
        self._memory = MemoryState(machine)
        self._words: list[int] = []
        self._has_atomics = False
        self._refused = False  # the interpreter has executed an access, which may have made histories
        self._guard = (0, 0)
        self._addresses: list[int] = []  # words that are offsets of records, to be made addresses
        starts = np.zeros(len(steps) + 1, dtype=np.int64)
        for routine in layout.routines.values():
            machine.registers = routine.registers
            machine.frame, machine.shifts = layout.frame_of(routine), layout.shifts_of(routine)
            body = routine.function.body or ()
            for position in range(routine.start, routine.start + len(body)):
                start = len(self._words)
                if self._add(steps[position], routine):
                    starts[position] = 1 + start
        if self._has_atomics:
            self._memory.prepare_log()
        self.known: list[bool] = (starts > 0).tolist()
        self._table = np.array(self._words, dtype=np.uint64).view(np.int64)
        base = address_of(self._table)
        for place in self._addresses:
            self._table[place] = base + 8 * self._table[place]
        self._note_runs(starts)
        self._records = np.where(starts > 0, base + 8 * (starts - 1), 0)
        self._state = (ctypes.c_int64 * r.STATE_WORDS)()
        self._state_address = ctypes.addressof(self._state)
        self._state[r.MEMORY_STATE] = address_of(self._memory.words)
        self._state[r.RECORDS] = address_of(self._records)
        lanes = machine.geometry.lanes
        self._rooms = [np.zeros(size, dtype=np.int64) for size in (2 * lanes, lanes + 1, 2 * lanes)]
        self._state[r.RUNS : r.STATE_WORDS] = [address_of(room) for room in self._rooms]
        self._state[r.COUNTS] = address_of(machine.count.table)
        self._state[r.COUNTS_BYTES] = machine.count.table.strides[0]

    # -- records -------------------------------------------------------------------------------------------------------

    def _add(self, step: ProgramStep, routine: Routine) -> bool:
        """The records of a step, if it has a translation."""
        instruction = step.instruction
        if instruction is None:
            return False
        collects = step.kind == p.MASK_COLLECTIVE and instruction.opcode in COLLECTIVES
        if step.watched or not (collects or step.kind in (p.BRANCH, p.PLAIN)):
            return False
        self._guard = (0, 0)
        if instruction.predicate is not None:
            predicate = routine.registers.array(instruction.predicate)
            self._guard = (address_of(predicate), int(instruction.predicate_negated))
        if step.kind == p.BRANCH:
            self._record(0, r.BRANCH, step.target, ())
            return True
        try:
            found = self._loops_of(instruction)
        except Untranslated:
            return False
        for number, loop in enumerate(found):
            self._loop(loop, last=number == len(found) - 1)
        return True

    def _loops_of(self, instruction: Instruction) -> list[Loop]:
        """Loops over lanes; none where the record of something else has been added instead."""
        if instruction.opcode in COLLECTIVES:
            self._record(self._library.functions["collective"], r.COLLECTIVE, 0, collective(instruction, self._machine))
            return []
        if instruction.opcode in ATOMICS:
            words = atomic(instruction, self._machine)
            self._record(self._library.functions["atomic"], r.ATOMIC, 0, words)
            self._has_atomics = True
            return []
        if instruction.opcode not in ("ld", "st"):
            return loops(instruction, self._machine, self._scratch)
        if instruction.opcode == "ld":
            with suppress(Untranslated):
                return parameter_loops(instruction, self._machine)
        words = access(instruction, self._machine, self._constants)
        loads = instruction.opcode == "ld"
        function = self._library.functions["load" if loads else "store"]
        self._record(function, r.MEMORY if loads else r.STORING, 0, words)
        return []

    def _loop(self, loop: Loop, *, last: bool) -> None:
        self._record(self._library.functions[loop.name], r.ELEMENTWISE, 0, loop.operands)
        if not last:
            place = len(self._words) - len(loop.operands) - r.OPERANDS + r.NEXT
            self._words[place] = len(self._words)
            self._addresses.append(place)

    def _record(self, function: int, kind: int, target: int, operands: tuple[int, ...]) -> None:
        self._words += [word & _WORD for word in (function, kind, target, 0, 0, *self._guard, *operands)]

    def _note_runs(self, starts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        """How many elementwise instructions without a guard follow each other."""
        length = 0
        for position in range(len(starts) - 1, -1, -1):
            start = int(starts[position]) - 1
            if start < 0 or self._table[start + r.KIND] != r.ELEMENTWISE or self._table[start + r.GUARD]:
                length = 0
                continue
            length += 1
            self._table[start + r.RUN] = length

    def refresh(self) -> None:
        """Look again at what the interpreter may have changed, as at the start of a wave."""
        self._memory.refresh()

    # -- running -------------------------------------------------------------------------------------------------------

    def run(
        self, position: int, active: Active, lowest: int, until: int, latest: int, *, waiting: bool
    ) -> tuple[int, int]:
        """Execute records from ``position`` on; where it ended, and why (see `step_records`).

        Args:
            position: of a record.
            active: lanes that execute it.
            lowest: position at which others wait, which is met once ``until`` steps are done.
            latest: steps beyond which backward branches are the interpreter's.
            waiting: whether lanes wait for others of their warps, so that collectives are the interpreter's.
        """
        machine, state, index = self._machine, self._state, active.index
        if self._refused or not self._memory.up_to_date():
            self._memory.refresh()
        if self._has_atomics:
            self._memory.look_at_flags()
        state[r.POSITION] = position
        state[r.STEPS] = machine.steps
        state[r.LOWEST] = lowest
        state[r.UNTIL] = until
        state[r.COUNT] = active.count
        state[r.WARPS] = active.warp_count
        state[r.LATEST] = min(latest, machine.steps + MOST_STEPS)
        state[r.EFFECT] = machine.last_effect
        state[r.WAITING] = waiting
        if isinstance(index, slice):
            state[r.FIRST] = index.start
            state[r.LANES] = 0
        else:
            state[r.FIRST] = 0
            state[r.LANES] = address_of(index)
        reason = self._execute()
        while reason == r.REFUSED and self._memory.make_missing():
            reason = self._execute()
        self._refused = reason == r.REFUSED
        machine.steps = state[r.STEPS]
        machine.last_effect = state[r.EFFECT]
        return state[r.POSITION], reason

    def _execute(self) -> int:
        """Run from where the state says."""
        reason = self._library.run(self._state_address)
        if self._has_atomics and self._memory.words[m.LOG_ENTRIES]:
            self._memory.hand_over_log()
        return reason


class CompiledWhenItPays:
    """Makes the records of a program when it has run for so long, or on so many lanes, that they are worth their time.

    Args:
        machine: what runs it.
        layout: of the program.
        steps: the program.
    """

    def __init__(self, machine: Machine, layout: ProgramLayout, steps: list[ProgramStep]) -> None:
        self._machine, self._layout, self._steps = machine, layout, steps
        many = MANY_LANES if machine.memory.races is None else MANY_LANES // 2
        self._from = 0 if machine.geometry.lanes >= many else len(steps)
        self._made: CompiledProgram | None = None

    def start_wave(self) -> None:
        """A new set of CTAs is on the machine."""
        if self._made is not None:
            self._made.refresh()

    def __call__(self) -> CompiledProgram | None:
        """The records, or None for now."""
        if self._made is None and self._machine.steps >= self._from:
            loaded = library()
            if loaded is None:
                self._from = self._machine.steps + len(self._steps)
                return None
            self._made = CompiledProgram(loaded, self._machine, self._layout, self._steps)
        return self._made
