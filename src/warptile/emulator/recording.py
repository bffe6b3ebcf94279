"""What every warp of a launch executed, in order: instructions, what each of them counted, and what it did to others.

A recording observes: results and errors are those of a launch that is not recorded. It knows nothing of time; the order
of notes is the emulator's. What makes warps wait for each other is noted, so that the launch can be replayed with
clocks (`warptile.replay`): which phase of which mbarrier an arrival or a copy belongs to, which one a wait waits for,
and who meets at which barrier.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from warptile.emulator import program as p
from warptile.emulator.async_ops.bulk_copies import BulkTransfer
from warptile.emulator.lanes import WARP, Active
from warptile.emulator.machine import Machine
from warptile.emulator.ops.bar import BarInstruction
from warptile.emulator.ops.mbarrier import MbarrierWait, by_offset
from warptile.emulator.program import ProgramLayout, ProgramStep
from warptile.emulator.scheduler import Scheduler
from warptile.isa.swizzle import CHUNK_BYTES
from warptile.ptx.instruction import Instruction

Phase = tuple[int, int, int]
"""An mbarrier and one of its phases: CTA of the grid, offset in that CTA's shared memory, number of the phase."""


@dataclass(frozen=True)
class Arrival:
    """A warp arrives at an mbarrier: now, or when its ``cp.async`` copies so far are done."""

    warp: int
    phase: Phase
    after_copies: bool = False


@dataclass(frozen=True)
class PhaseWait:
    """A warp waits for a phase of an mbarrier."""

    warp: int
    phase: Phase


@dataclass(frozen=True)
class BulkCopy:
    """A thread starts a bulk or tensor copy: into the shared memory of a CTA (a multicast starts several), whose
    mbarrier gets the bytes; or, without a phase, out of it.

    Attributes:
        warp: whose thread it is.
        bytes: that are moved.
        phase: that waits for them.
    """

    warp: int
    bytes: int
    phase: Phase | None = None


@dataclass(frozen=True)
class Meeting:
    """Threads of a warp come to a barrier of their CTA.

    Attributes:
        warp: whose they are.
        number: of the barrier, 0 to 15.
        threads: that have come.
        expected: threads that it waits for; None for all of the CTA.
        waits: they wait there instead of going on.
    """

    warp: int
    number: int
    threads: int
    expected: int | None
    waits: bool


Effect = Arrival | PhaseWait | BulkCopy | Meeting


@dataclass(frozen=True)
class Note:
    """An instruction that some warps executed together.

    Attributes:
        position: of the instruction in the program.
        warps: of the grid, in order; those of a CTA follow each other.
        counts: by field of `warptile.emulator.counters.FIELDS`, of all of them together.
        effects: on other warps.
    """

    position: int
    warps: tuple[int, ...]
    counts: tuple[int, ...]
    effects: tuple[Effect, ...] = ()


@dataclass
class Recording:
    """A launch, as it went.

    Attributes:
        notes: in the order in which the emulator executed them.
        program: what stands at each position.
        reads, writes: registers of each position, those of its guard among ``reads``.
        warps_per_cta: warps of a CTA, padding included.
        cluster_ctas: CTAs of a cluster.
    """

    notes: list[Note] = field(default_factory=list)
    program: tuple[Instruction | None, ...] = ()
    reads: tuple[tuple[str, ...], ...] = ()
    writes: tuple[tuple[str, ...], ...] = ()
    warps_per_cta: int = 1
    cluster_ctas: int = 1


class Recorder:
    """Notes down what a machine does.

    Args:
        recording: where; one launch.
        machine: what runs it.
        steps: the program, whose steps are replaced by ones that note themselves down.
    """

    def __init__(self, recording: Recording, machine: Machine, steps: list[ProgramStep]) -> None:
        self._recording = recording
        self._machine = machine
        self._effects: list[Effect] = []
        self._table = machine.count.table
        geometry = machine.geometry
        recording.warps_per_cta = geometry.lanes_per_cta // WARP
        recording.cluster_ctas = geometry.cluster_ctas
        recording.program = tuple(step.instruction for step in steps)
        recording.reads = tuple(_reads(step) for step in steps)
        recording.writes = tuple(step.writes for step in steps)
        for position, step in enumerate(steps):
            self._wrap(position, step)
        self._observe_mbarriers()
        self._observe_copies()

    # -- instructions --------------------------------------------------------------------------------------------

    def _wrap(self, position: int, step: ProgramStep) -> None:
        """Plain instructions and collectives note themselves down when they run, branches when they are decided."""
        if step.kind == p.BRANCH:
            guard = step.guard

            def decide(active: Active) -> NDArray[np.bool_]:
                self.note(position, active, lambda: None)
                return np.ones(active.count, np.bool_) if guard is None else cast("NDArray[np.bool_]", guard(active))

            step.guard = decide
        elif step.run is not None:
            run = step.run
            step.run = lambda active: self.note(position, active, lambda: run(active))

    def note(self, position: int, active: Active, run: Callable[[], Any]) -> Any:
        """Run an instruction and note it down."""
        row = self._table[position]
        before = row.copy()
        self._effects = []
        found = run()
        warps = tuple((self._first_warp + np.unique(active.lanes // WARP)).tolist())
        counts = tuple((row - before).tolist())
        self._recording.notes.append(Note(position, warps, counts, tuple(self._effects)))
        return found

    @property
    def _first_warp(self) -> int:
        return self._machine.memory.first_thread // WARP

    def _warp(self, lane: int) -> int:
        return self._first_warp + int(lane) // WARP

    # -- what they do to others ------------------------------------------------------------------------------------

    def _phase(self, instruction: Instruction, lane: int, offset: int) -> Phase:
        stride = self._machine.memory.shared_stride
        first = self._machine.memory.first_thread // self._machine.geometry.lanes_per_cta
        number = self._machine.mbarriers.find(instruction, lane, offset).phase
        return first + offset // stride, offset % stride, number

    def _observe_mbarriers(self) -> None:
        mbarriers, arrive = self._machine.mbarriers, self._machine.mbarriers.arrive

        def noted(instruction: Instruction, lanes: NDArray[np.intp], offset: int, *rest: Any, **named: Any) -> Any:
            if instruction.opcode == "mbarrier":  # others arrive for copies, at a time that is the schedule's
                phase = self._phase(instruction, int(lanes[0]), offset)
                self._effects += [Arrival(self._warp(lane), phase) for lane in lanes.tolist()]
            return arrive(instruction, lanes, offset, *rest, **named)

        mbarriers.arrive = noted  # type: ignore[method-assign]

    def _observe_copies(self) -> None:
        machine = self._machine
        arrive, issue = machine.copies.arrive, machine.bulk.issue

        def arrived(instruction: Instruction, active: Active, offsets: Any, *, increment: bool) -> None:
            for offset, chosen in by_offset(offsets):
                phase = self._phase(instruction, int(active.lanes[chosen[0]]), offset)
                self._effects += [Arrival(self._warp(lane), phase, True) for lane in active.lanes[chosen].tolist()]
            arrive(instruction, active, offsets, increment=increment)

        def issued(transfer: BulkTransfer) -> None:
            phase, size = None, transfer.source[1].size * CHUNK_BYTES
            if transfer.barrier is not None:
                phase = self._phase(transfer.instruction, transfer.lane, transfer.barrier)
                size = transfer.counted_bytes
            self._effects.append(BulkCopy(self._warp(transfer.lane), size, phase))
            issue(transfer)

        machine.copies.arrive = arrived  # type: ignore[method-assign]
        machine.bulk.issue = issued  # type: ignore[method-assign]

    def wait(self, wait: MbarrierWait, active: Active) -> None:
        """A wait is about to be tried."""
        offsets = wait.place.offsets(active)
        asked = np.broadcast_to(wait.wanted(active), active.count)
        for offset, chosen in by_offset(offsets):
            cta, place, phase = self._phase(wait.place.instruction, int(active.lanes[chosen[0]]), offset)
            numbers = asked[chosen].astype(np.int64) & 1 if wait.parity else asked[chosen].astype(np.int64) >> 20
            current = numbers == (phase % 2 if wait.parity else phase)
            for warp in np.unique(active.lanes[chosen] // WARP):
                mine = active.lanes[chosen] // WARP == warp
                waited = phase if current[mine].any() else phase - 1
                self._effects.append(PhaseWait(self._first_warp + int(warp), (cta, place, waited)))

    def meet(self, barrier: BarInstruction, active: Active) -> None:
        """Threads are about to come to a barrier."""
        numbers = np.broadcast_to(barrier.identifier(active), active.count)
        expected = None if barrier.threads is None else np.broadcast_to(barrier.threads(active), active.count)
        warps = active.lanes // WARP
        for warp in np.unique(warps):
            mine = np.flatnonzero(warps == warp)
            wanted = None if expected is None else int(expected[mine[0]])
            self._effects.append(
                Meeting(
                    self._first_warp + int(warp), int(numbers[mine[0]]), len(mine), wanted, barrier.mode != "arrive"
                )
            )


def _reads(step: ProgramStep) -> tuple[str, ...]:
    guard = step.instruction.predicate if step.instruction is not None else None
    return step.reads if guard is None else (*step.reads, guard.name)


class RecordingScheduler(Scheduler):
    """A scheduler that also has what it executes itself noted down: barriers, waits, calls and exits."""

    def __init__(self, machine: Machine, steps: list[ProgramStep], layout: ProgramLayout, recorder: Recorder) -> None:
        super().__init__(machine, steps, layout)
        self._recorder = recorder

    def _special(self, kind: int, step: ProgramStep, position: int, active: Active) -> tuple[int, Active] | None:
        if step.run is not None:
            return super()._special(kind, step, position, active)

        def run() -> tuple[int, Active] | None:
            if kind == p.MBARRIER_WAIT:
                self._recorder.wait(cast(MbarrierWait, step.detail), active)
            elif kind == p.BARRIER:
                self._recorder.meet(cast(BarInstruction, step.detail), active)
            return super(RecordingScheduler, self)._special(kind, step, position, active)

        return cast("tuple[int, Active] | None", self._recorder.note(position, active, run))
