"""`cp.async`: copies that a lane has issued and that finish when the schedule says, at the latest when waited for.

Schedules: ``latest`` (as late as the lane's own wait allows: a missing wait leaves the destination unreadable),
``earliest`` (at once), ``random:SEED`` (each pending batch may finish at any later `cp.async` instruction).
The source is read and the destination written when a copy finishes; until then the destination is marked in flight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.lanes import Active, Array
from warptile.emulator.memory import IN_FLIGHT, INITIALISED, MAPPED, WRITTEN, Memory, Offsets, Space
from warptile.errors import UnsupportedError
from warptile.ptx.instruction import Instruction


@dataclass
class Batch:
    """The copies that one execution of one instruction issued.

    ``lanes`` in order; ``target`` and ``source`` are offsets into shared and global space; of each copy's ``size``
    bytes the first ``source_bytes`` come from the source and the rest is zero. ``group`` is each lane's group number.
    """

    instruction: Instruction
    lanes: NDArray[np.intp]
    target: Offsets
    source: Offsets
    source_bytes: NDArray[np.int64]
    size: int
    group: NDArray[np.int64]


def check_schedule(schedule: str) -> None:
    """Raise UnsupportedError unless ``schedule`` is ``latest``, ``earliest`` or ``random:SEED``."""
    kind, _, seed = schedule.partition(":")
    if not (schedule in ("latest", "earliest") or (kind == "random" and seed.isdigit())):
        raise UnsupportedError(
            f"schedule: got {schedule!r}; it is latest, earliest or random:SEED, such as schedule='random:7'"
        )


class PendingCopies:
    """All unfinished copies of a wave."""

    def __init__(self, memory: Memory, schedule: str, lanes: int) -> None:
        check_schedule(schedule)
        self._memory = memory
        self._schedule = schedule
        self._random = np.random.default_rng(int(schedule.partition(":")[2] or 0))
        self._committed: NDArray[np.int64] = np.zeros(lanes, dtype=np.int64)
        self._batches: list[Batch] = []
        self._unwaited: list[Batch] = []  # for the check of races: finished or not
        memory.copy_into = self.into

    def new_wave(self) -> None:
        """No lane has issued anything."""
        self._batches.clear()
        self._unwaited.clear()
        self._committed[:] = 0

    def issue(
        self, instruction: Instruction, active: Active, target: Array, source: Array, source_bytes: Array, size: int
    ) -> None:
        """Start one copy per active lane: shared addresses, global or generic source addresses; checked now."""
        memory = self._memory
        shared, target_offsets = memory.resolve(instruction, active, "shared", target, size)
        where, source_offsets = memory.resolve(instruction, active, "global", source, size)
        reads = source_bytes > 0
        if reads.all():
            memory.check_read(instruction, active, where, source_offsets, size)
        elif reads.any():
            self._check_partial(instruction, active, where, source_offsets, source_bytes, size)
        batch = Batch(
            instruction, active.lanes, target_offsets, source_offsets, source_bytes.astype(np.int64), size,
            self._committed[active.index].copy(),
        )  # fmt: skip
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

        def due(batch: Batch) -> NDArray[np.bool_]:
            if keep is None:
                return waiting[batch.lanes]
            return waiting[batch.lanes] & (batch.group < self._committed[batch.lanes] - keep)

        self._finish_some()
        self._batches = _without(self._batches, due, self._finish)
        if self._memory.races is not None:
            self._unwaited = _without(self._unwaited, due, self._memory.races.copy_waited)

    def into(self, offset: int, size: int) -> Instruction | None:
        """The instruction of an unfinished copy to one of ``size`` bytes from ``offset`` on in shared space."""
        for batch in self._batches:
            if ((batch.target < offset + size) & (offset < batch.target + batch.size)).any():
                return batch.instruction
        return None

    def unfinished(self) -> list[Batch]:
        """Copies that nothing has waited for (a kernel may end with them)."""
        return self._batches

    def _finish_some(self) -> None:
        if self._schedule.startswith("random"):
            self._batches = _without(self._batches, lambda b: self._random.random(len(b.lanes)) < 0.25, self._finish)

    def _finish(self, batch: Batch) -> None:
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

    def _check_partial(
        self, instruction: Instruction, active: Active, where: Space, offsets: Offsets, source_bytes: Array, size: int
    ) -> None:
        """Check only the bytes that are read: each power-of-two piece of a partial copy."""
        whole = source_bytes >= size
        if whole.any():
            self._memory.check_read(instruction, active.where(whole), where, offsets[whole], size)
        for position in range(size):
            part = ~whole & (source_bytes > position)
            if not part.any():
                break
            self._memory.check_read(instruction, active.where(part), where, offsets[part] + position, 1)


def _without(
    batches: list[Batch], due: Callable[[Batch], NDArray[np.bool_]], use: Callable[[Batch], None]
) -> list[Batch]:
    """``use`` the copies that are ``due``; what is left of the batches."""
    rest: list[Batch] = []
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


def _part(batch: Batch, mask: NDArray[np.bool_]) -> Batch:
    return Batch(
        batch.instruction,
        batch.lanes[mask],
        batch.target[mask],
        batch.source[mask],
        batch.source_bytes[mask],
        batch.size,
        batch.group[mask],
    )
