"""Pending `cp.async` copies, which complete when the schedule says, at the latest at their thread's wait.

Schedules: ``latest`` (as late as the lane's own wait allows: a missing wait leaves the destination unreadable),
``earliest`` (at once), ``random:SEED`` (each pending batch may finish at any later `cp.async` instruction).
The source is read and the destination written when a copy finishes; until then the destination is marked in flight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.lanes import Active, Array
from warptile.emulator.memory.accesses import Memory
from warptile.emulator.memory.spaces import IN_FLIGHT, INITIALISED, MAPPED, WRITTEN, Offsets, Space
from warptile.emulator.sync.mbarriers import Mbarriers
from warptile.errors import UnsupportedError
from warptile.ptx.instruction import Instruction


@dataclass
class CopyBatch:
    """The copies that one execution of one instruction issued.

    ``lanes`` in order; ``target`` and ``source`` are offsets into shared and global space; of each copy's ``size``
    bytes the first ``source_bytes`` come from the source and the rest is zero. ``group`` is each lane's group number,
    ``serial`` the number of the batch. ``undefined`` says whether something of the source was when it was issued.
    """

    instruction: Instruction
    lanes: NDArray[np.intp]
    target: Offsets
    source: Offsets
    source_bytes: NDArray[np.int64]
    size: int
    group: NDArray[np.int64]
    serial: int = 0
    undefined: bool = False


@dataclass
class CopyArrival:
    """`cp.async.mbarrier.arrive`: lanes that arrive at one mbarrier once the copies that they have issued are over.

    Those are the ones with a smaller ``serial``. For the check of races: ``released`` is what lies before the arrival,
    and ``clock`` the clock of every lane then.
    """

    instruction: Instruction
    lanes: NDArray[np.intp]
    offset: int
    serial: int
    released: int
    clock: NDArray[np.int32] | None


def check_schedule(schedule: str) -> None:
    """Raise UnsupportedError unless ``schedule`` is ``latest``, ``earliest`` or ``random:SEED``."""
    kind, _, seed = schedule.partition(":") if isinstance(schedule, str) else ("", "", "")
    if schedule not in ("latest", "earliest") and not (kind == "random" and seed.isascii() and seed.isdigit()):
        raise UnsupportedError(
            f"schedule: got {schedule!r}; it is latest, earliest or random:SEED, such as schedule='random:7'"
        )


class PendingAsyncCopies:
    """All unfinished copies of a wave."""

    def __init__(self, memory: Memory, schedule: str, lanes: int, mbarriers: Mbarriers) -> None:
        self._memory = memory
        self._schedule = schedule
        self._random = np.random.default_rng(int(schedule.partition(":")[2] or 0))
        self._committed: NDArray[np.int64] = np.zeros(lanes, dtype=np.int64)
        self._batches: list[CopyBatch] = []
        self._unwaited: list[CopyBatch] = []  # for the check of races: finished or not
        self._mbarriers = mbarriers
        self._arrivals: list[CopyArrival] = []
        self._serial = 0
        mbarriers.finishers.append(self._finish_for)
        memory.copy_into = self.into

    def new_wave(self) -> None:
        """No lane has issued anything."""
        self._batches.clear()
        self._unwaited.clear()
        self._arrivals.clear()
        self._committed[:] = 0

    def issue(
        self, instruction: Instruction, active: Active, target: Array, source: Array, source_bytes: Array, size: int
    ) -> None:
        """Start one copy per active lane: shared addresses, global or generic source addresses; checked now."""
        memory = self._memory
        shared, target_offsets = memory.resolve(instruction, active, "shared", target, size)
        where, source_offsets = memory.resolve(instruction, active, "global", source, size)
        memory.check_write(instruction, active, shared, target_offsets, size, None)
        memory.met_undefined = False
        if (source_bytes == size).all():
            memory.check_read(instruction, active, where, source_offsets, size, copies=True)
        elif source_bytes.any():
            self._check_partial(instruction, active, where, source_offsets, source_bytes, size)
        batch = CopyBatch(
            instruction, active.lanes, target_offsets, source_offsets, source_bytes.astype(np.int64), size,
            self._committed[active.index].copy(), self._serial, memory.met_undefined,
        )  # fmt: skip
        self._serial += 1
        if memory.races is not None:
            memory.races.copy_issued(batch)
            self._unwaited.append(batch)
        if self._schedule == "earliest":
            self._finish(batch)
            return
        shared.mark(target_offsets, size, MAPPED | IN_FLIGHT)
        self._batches.append(batch)
        self._finish_some()

    def commit(self, active: Active) -> None:
        """`cp.async.commit_group`: what each lane has issued since its last commit becomes a group."""
        self._committed[active.index] += 1

    def wait(self, active: Active, keep: int | None) -> None:
        """`cp.async.wait_group keep`: finish all but each lane's last ``keep`` groups; None is `wait_all`."""
        waiting = np.zeros(len(self._committed), dtype=np.bool_)
        waiting[active.index] = True

        def due(batch: CopyBatch) -> NDArray[np.bool_]:
            if keep is None:
                return waiting[batch.lanes]
            return waiting[batch.lanes] & (batch.group < self._committed[batch.lanes] - keep)

        self._finish_some()
        self._batches = _without(self._batches, due, self._finish)
        if self._memory.races is not None:
            self._unwaited = _without(self._unwaited, due, self._memory.races.copy_waited)
        self._arrive_if_due()

    def arrive(self, instruction: Instruction, active: Active, offsets: Offsets, *, increment: bool) -> None:
        """`cp.async.mbarrier.arrive`: one arrival per lane when its copies so far are over.

        ``increment`` (no `.noinc`) adds the arrival to what the phase waits for, so that it changes nothing.
        """
        races = self._memory.races
        clock = races.clock() if races is not None else None
        for offset in np.unique(offsets).tolist():
            lanes = active.lanes[offsets == offset]
            if increment:
                self._mbarriers.expect_arrivals(instruction, lanes[0], offset, len(lanes))
            released = races.release(lanes) if races is not None else 0
            self._arrivals.append(CopyArrival(instruction, lanes, offset, self._serial, released, clock))
        self._finish_some()
        self._arrive_if_due()

    def _arrive_if_due(self) -> None:
        """Those arrive whose copies have finished."""
        if not self._arrivals:
            return
        oldest = self._oldest_copies()
        arrivals, self._arrivals = self._arrivals, []
        due: list[CopyArrival] = []
        for arrival in arrivals:
            over = oldest[arrival.lanes] >= arrival.serial
            if over.all():
                due.append(arrival)
                continue
            self._arrivals.append(replace(arrival, lanes=arrival.lanes[~over]))
            if over.any():
                due.append(replace(arrival, lanes=arrival.lanes[over]))
        if self._memory.races is not None:
            self._note_waited(due)
        for arrival in due:
            ones = np.ones(len(arrival.lanes), dtype=np.int64)
            self._mbarriers.arrive(
                arrival.instruction, arrival.lanes, arrival.offset, ones, releases=False, released=arrival.released
            )

    def _oldest_copies(self) -> NDArray[np.int64]:
        """For each lane, the serial number of its first unfinished copy."""
        oldest = np.full(len(self._committed), self._serial, dtype=np.int64)
        for batch in reversed(self._batches):  # in the order of their serial numbers
            oldest[batch.lanes] = batch.serial
        return oldest

    def _note_waited(self, arrivals: list[CopyArrival]) -> None:
        """For the race check, copies that precede some arrivals are over since their threads issued the arrivals."""
        races = self._memory.races
        assert races is not None
        together: dict[tuple[int, int], list[CopyArrival]] = {}
        for arrival in arrivals:
            together.setdefault((arrival.serial, id(arrival.clock)), []).append(arrival)
        for (serial, _), same in together.items():
            arrived = self._members(np.concatenate([arrival.lanes for arrival in same]))
            clock = same[0].clock

            def seen(batch: CopyBatch, arrived: NDArray[np.bool_] = arrived, serial: int = serial) -> NDArray[np.bool_]:
                return arrived[batch.lanes] & (batch.serial < serial)

            self._unwaited = _without(self._unwaited, seen, partial(races.copy_waited, clock=clock))

    def _members(self, lanes: NDArray[np.intp]) -> NDArray[np.bool_]:
        """For each lane of the wave whether it is among some."""
        members = np.zeros(len(self._committed), dtype=np.bool_)
        members[lanes] = True
        return members

    def _finish_for(self, offset: int) -> bool:
        """Finish the copies that an arrival at an mbarrier which somebody waits for is to follow."""
        arrival = next((each for each in self._arrivals if each.offset == offset), None)
        if arrival is None:
            return False
        waiting, serial = self._members(arrival.lanes), arrival.serial
        self._batches = _without(
            self._batches, lambda batch: waiting[batch.lanes] & (batch.serial < serial), self._finish
        )
        self._arrive_if_due()
        return True

    def into(self, offset: int, size: int) -> Instruction | None:
        """The instruction of an unfinished copy to one of ``size`` bytes from ``offset`` on in shared space."""
        for batch in self._batches:
            if ((batch.target < offset + size) & (offset < batch.target + batch.size)).any():
                return batch.instruction
        return None

    def unfinished(self) -> list[CopyBatch]:
        """Copies that nothing has waited for (a kernel may end with them)."""
        return self._batches

    def _finish_some(self) -> None:
        if self._schedule.startswith("random"):
            self._batches = _without(self._batches, lambda b: self._random.random(len(b.lanes)) < 0.25, self._finish)

    def _finish(self, batch: CopyBatch) -> None:
        memory = self._memory
        shared, size = memory.shared_space, batch.size
        whole = batch.source_bytes >= size
        if whole.all():
            shared.scatter(batch.target, size, memory.global_space.gather(batch.source, size))
        else:
            lanes = np.arange(size)
            take = lanes[None, :] < batch.source_bytes[:, None]
            places = np.where(take, batch.source[:, None] + lanes, 0)
            filled = np.where(take, memory.global_space.data[places], np.uint8(0))
            shared.data[batch.target[:, None] + lanes] = filled
        shared.mark(batch.target, size, MAPPED | INITIALISED | WRITTEN)
        if batch.undefined:
            self._carry_undefined(batch)

    def _carry_undefined(self, batch: CopyBatch) -> None:
        memory, lanes = self._memory, np.arange(batch.size)
        taken = lanes[None, :] < batch.source_bytes[:, None]
        sources, targets = (batch.source[:, None] + lanes)[taken], (batch.target[:, None] + lanes)[taken]
        undefined = memory.undefined_bytes(memory.global_space, sources)
        source, target = (memory.global_space, sources[undefined]), (memory.shared_space, targets[undefined])
        memory.carry_undefined(batch.instruction, int(batch.lanes[0]), source, target)

    def _check_partial(
        self, instruction: Instruction, active: Active, where: Space, offsets: Offsets, source_bytes: Array, size: int
    ) -> None:
        """Check only the bytes that are read: of a partial copy one after the other."""
        whole = source_bytes >= size
        if whole.any():
            self._memory.check_read(instruction, active.where(whole), where, offsets[whole], size, copies=True)
        for position in range(size):
            part = ~whole & (source_bytes > position)
            if not part.any():
                break
            self._memory.check_read(instruction, active.where(part), where, offsets[part] + position, 1, copies=True)


def _without(
    batches: list[CopyBatch], due: Callable[[CopyBatch], NDArray[np.bool_]], use: Callable[[CopyBatch], None]
) -> list[CopyBatch]:
    """``use`` the copies that are ``due``; what is left of the batches."""
    rest: list[CopyBatch] = []
    for batch in batches:
        chosen = due(batch)
        if chosen.all():
            use(batch)
        elif not chosen.any():
            rest.append(batch)
        else:
            use(_part(batch, chosen))
            rest.append(_part(batch, ~chosen))
    return rest


def _part(batch: CopyBatch, mask: NDArray[np.bool_]) -> CopyBatch:
    return CopyBatch(
        batch.instruction,
        batch.lanes[mask],
        batch.target[mask],
        batch.source[mask],
        batch.source_bytes[mask],
        batch.size,
        batch.group[mask],
        batch.serial,
        batch.undefined,
    )
