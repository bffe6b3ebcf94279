"""Pending bulk and tensor copies: 16-byte chunks that the async proxy moves when the schedule completes them.

A copy into shared memory brings its bytes to an mbarrier when it is over; one into global memory belongs to a bulk
group of its thread, which first waits until shared memory has been read (`.read`), then until all is written.
Schedules: ``latest`` (the default: when nobody can go on without, or when its group is waited for), ``earliest`` (at
once), ``random:SEED`` (at any later bulk instruction). Until then the destination is in flight and the source unread.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.arithmetic.memory_updates import MemoryUpdate
from warptile.emulator.async_ops.tensor_boxes import filled
from warptile.emulator.lanes import Active
from warptile.emulator.memory.accesses import Memory
from warptile.emulator.memory.spaces import IN_FLIGHT, INITIALISED, MAPPED, WRITTEN, Offsets, Space
from warptile.emulator.sync.mbarriers import Mbarrier, Mbarriers
from warptile.errors import IllegalAddress
from warptile.isa.swizzle import CHUNK_BYTES
from warptile.launch.tensor_map import TensorMap
from warptile.ptx.instruction import Instruction


@dataclass
class BulkTransfer:
    """One copy by one thread, or one store by lanes of a warp that give the same operands: the first is its thread.

    Attributes:
        instruction: that started it.
        lane: whose it is.
        source: space of the chunks that are read, and their offsets.
        target: space of the chunks that are written, and their offsets.
        fill: of a tensor load, the map and how many bytes of each chunk lie inside the tensor.
        reduction: of a reduction, what it makes of old and given elements.
        barrier: offset in shared space of the mbarrier that gets the bytes; None for a copy of a bulk group.
        counted_bytes: how many bytes that mbarrier gets.
        group: number of the thread's bulk group.
        undefined: whether something of the source was when the copy started.
        held: the bytes, once read.
        lacking: which of them were undefined; None if none was.
        written: whether it is over.
        read_waited: whether its thread has waited for the reading.
        clock, released: for the check of races, the thread's clock when it started, and what lay behind it then.
    """

    instruction: Instruction
    lane: int
    source: tuple[Space, Offsets]
    target: tuple[Space, Offsets]
    fill: tuple[TensorMap, NDArray[np.int64]] | None = None
    reduction: MemoryUpdate | None = None
    barrier: int | None = None
    counted_bytes: int = 0
    group: int = 0
    undefined: bool = False
    held: NDArray[np.uint8] | None = None
    lacking: NDArray[np.bool_] | None = None
    written: bool = False
    read_waited: bool = False
    clock: int = 0
    released: int = 0


class BulkCopies:
    """All bulk copies of a wave that are incomplete, or that no thread has waited for."""

    def __init__(
        self, memory: Memory, mbarriers: Mbarriers, schedule: str, lanes: int, *, check_exits: bool = True
    ) -> None:
        self._memory = memory
        self._check_exits = check_exits
        self._mbarriers = mbarriers
        self._schedule = schedule
        self._random = np.random.default_rng(int(schedule.partition(":")[2] or 0))
        self._committed: NDArray[np.int64] = np.zeros(lanes, dtype=np.int64)
        self._loads: defaultdict[int, list[BulkTransfer]] = defaultdict(list)  # by mbarrier
        self._stores: list[BulkTransfer] = []
        self._read_stores: list[BulkTransfer] = []  # those whose thread has waited for the reading
        self._moving: list[BulkTransfer] = []  # under a random schedule, what has not been written
        # By mbarrier: it, and what it has counted, with its phase.
        self._brought: dict[int, tuple[Mbarrier, list[tuple[int, BulkTransfer]]]] = {}
        mbarriers.finishers.append(self.bring)
        mbarriers.observers.append(self.observed)
        self._other_copy_into = memory.copy_into
        memory.copy_into = self.into

    def new_wave(self) -> None:
        """No thread has started anything."""
        self._loads.clear()
        self._stores.clear()
        self._read_stores.clear()
        self._moving.clear()
        self._brought.clear()
        self._committed[:] = 0

    def issue(self, transfer: BulkTransfer) -> None:
        """Start a copy whose addresses have been checked."""
        memory, races = self._memory, self._memory.races
        one = Active.of(np.array([transfer.lane], dtype=np.intp))
        source, target = transfer.source, transfer.target
        if source[1].size:
            self._check_source(transfer, one)
            memory.check_write(transfer.instruction, one, target[0], target[1][None, :], CHUNK_BYTES, None)
        if races is not None:
            transfer.clock, transfer.released = races.bulk_issued(transfer)
        if transfer.barrier is None:
            transfer.group = int(self._committed[transfer.lane])
            self._stores.append(transfer)
        else:
            if transfer.reduction is None:
                target[0].mark(target[1], CHUNK_BYTES, MAPPED | IN_FLIGHT)
            self._loads[transfer.barrier].append(transfer)
        if self._schedule == "earliest":
            self._write(transfer)
            self._drop_written()
        elif self._schedule.startswith("random"):
            self._moving.append(transfer)
        self._finish_some()

    def commit(self, active: Active) -> None:
        """`cp.async.bulk.commit_group`: what each lane has started since its last commit becomes a group."""
        self._committed[active.index] += 1
        self._finish_some()

    def wait(self, active: Active, keep: int, *, read: bool) -> None:
        """`cp.async.bulk.wait_group{.read} keep`: all but each lane's last ``keep`` groups are over, or read."""
        self._finish_some()
        waiting = np.zeros(len(self._committed), dtype=np.bool_)
        waiting[active.index] = True
        races = self._memory.races

        def due(transfer: BulkTransfer) -> bool:
            return bool(waiting[transfer.lane] and transfer.group < self._committed[transfer.lane] - keep)

        for transfer in filter(due, self._stores):
            self._read(transfer)
            if races is not None:
                races.bulk_read_waited(transfer)
            transfer.read_waited = True
            self._read_stores.append(transfer)
        self._stores = [transfer for transfer in self._stores if not transfer.read_waited]
        if read:
            return
        for transfer in filter(due, self._read_stores):
            self._write(transfer)
            if races is not None:
                races.bulk_written(transfer)
        self._read_stores = [transfer for transfer in self._read_stores if not due(transfer)]

    def bring(self, offset: int) -> bool:
        """Finish every copy that brings bytes to the mbarrier at ``offset``; whether there was one."""
        due = self._loads.pop(offset, [])
        for transfer in due:
            self._write(transfer)
        return bool(due)

    def observed(self, barrier: Mbarrier) -> None:
        """Somebody has waited for the last complete phase of an mbarrier: what it counted is over for the races.

        Until then a copy is its own thread, whether or not its bytes have come.
        """
        races = self._memory.races
        assert races is not None
        known, counted = self._brought.get(id(barrier), (barrier, []))
        for phase, transfer in counted:
            if phase < barrier.phase:
                races.bulk_written(transfer)
        self._brought[id(barrier)] = known, [entry for entry in counted if entry[0] >= barrier.phase]

    def end_wave(self) -> None:
        """The CTAs are gone: what they stored arrives.

        That a copy still had to read shared memory then is a finding of ``bulk-exit``: the PTX ISA wants a wait, and
        GPUs keep the memory until it has been read.
        """
        for transfer in self._stores if self._check_exits else ():
            error = IllegalAddress(
                f"{transfer.instruction.text}: {self._memory.thread(transfer.lane)} ends before this copy has read "
                "shared memory, which then belongs to another CTA; it takes cp.async.bulk.commit_group and "
                "cp.async.bulk.wait_group.read 0 before the end",
                kernel=self._memory.kernel,
                location=transfer.instruction.location,
            )
            self._memory.findings.report(error, "bulk-exit")
        for transfer in self._read_stores + self._stores:
            self._write(transfer)

    @property
    def unfinished(self) -> int:
        """Copies into shared memory that nobody has waited for."""
        return sum(map(len, self._loads.values()))

    def into(self, offset: int, size: int) -> Instruction | None:
        """The instruction of an unfinished copy to one of ``size`` bytes from ``offset`` on in shared space."""
        for transfer in chain.from_iterable(self._loads.values()):
            places = transfer.target[1]
            if ((places < offset + size) & (offset < places + CHUNK_BYTES)).any():
                return transfer.instruction
        return self._other_copy_into(offset, size) if self._other_copy_into is not None else None

    def _finish_some(self) -> None:
        if not self._moving:
            return
        for transfer in self._moving:
            if self._random.random() < 0.25:
                self._read(transfer)
            if self._random.random() < 0.25:
                self._write(transfer)
        self._moving = [each for each in self._moving if not each.written]
        self._drop_written()

    def _drop_written(self) -> None:
        for barrier, loads in self._loads.items():
            self._loads[barrier] = [each for each in loads if not each.written]

    def _check_source(self, transfer: BulkTransfer, one: Active) -> None:
        """Every byte that is read must be there; of a chunk at the edge of a tensor only what lies inside.

        A copy may move what nothing has written in global memory, and from shared memory copies of that, and padding.
        """
        memory, (space, places) = self._memory, transfer.source
        memory.met_undefined = False
        copies = transfer.reduction is None and (space is memory.global_space or self._only_copies(transfer))
        whole = np.ones(len(places), dtype=np.bool_)
        if transfer.fill is not None:
            inside = transfer.fill[1]
            whole = inside == CHUNK_BYTES
            partly = (inside > 0) & ~whole
            for size in np.unique(inside[partly]).tolist():
                edges = places[partly & (inside == size), None] + np.arange(size)
                memory.check_read(transfer.instruction, one, space, edges.reshape(1, -1), 1, copies=copies)
        if whole.any():
            memory.check_read(transfer.instruction, one, space, places[None, whole], CHUNK_BYTES, copies=copies)
        transfer.undefined = memory.met_undefined

    def _only_copies(self, transfer: BulkTransfer) -> bool:
        """Whether what is undefined of shared memory may go to its target, as it may by stores (`undefined_bits`)."""
        memory, (space, places) = self._memory, transfer.source
        every = places[:, None] + np.arange(CHUNK_BYTES)
        lacking = memory.undefined_bytes(space, every)
        if not lacking.any():
            return False
        if transfer.target[0] is not memory.global_space:
            return True
        home = memory.global_space.around(int(transfer.target[1][0]))
        if lacking.all(axis=1).any() and (home is None or home.read_by_host):
            return False
        if memory.undefined is not None:
            lacking &= ~memory.undefined.copied_from_global(space, every)
        return not lacking.any() or (not lacking.all(axis=1).any() and _repeats(lacking.ravel()))

    def _read(self, transfer: BulkTransfer) -> None:
        if transfer.held is not None or transfer.written:
            return
        space, places = transfer.source
        words = np.ascontiguousarray(space.gather(places, CHUNK_BYTES)).view(np.uint8).reshape(-1, CHUNK_BYTES)
        if transfer.undefined:
            transfer.lacking = self._memory.undefined_bytes(space, places[:, None] + np.arange(CHUNK_BYTES))
            if transfer.fill is not None:
                transfer.lacking &= np.arange(CHUNK_BYTES) < transfer.fill[1][:, None]
        transfer.held = filled(transfer.fill[0], words, transfer.fill[1]) if transfer.fill is not None else words

    def _write(self, transfer: BulkTransfer) -> None:
        if transfer.written:
            return
        self._read(transfer)
        space, places = transfer.target
        words = transfer.held
        assert words is not None
        if transfer.reduction is not None:
            words = transfer.reduction.combine(space.gather(places, CHUNK_BYTES), words)
        space.scatter(places, CHUNK_BYTES, np.ascontiguousarray(words).view(np.complex128).reshape(-1))
        space.mark(places, CHUNK_BYTES, MAPPED | INITIALISED | WRITTEN)
        if transfer.lacking is not None and transfer.lacking.any():
            from_, to = (
                (each[:, None] + np.arange(CHUNK_BYTES))[transfer.lacking] for each in (transfer.source[1], places)
            )
            source = transfer.source[0], from_
            self._memory.carry_undefined(transfer.instruction, transfer.lane, source, (space, to))
        transfer.written = True
        transfer.held = transfer.lacking = None
        if transfer.barrier is not None:
            if self._memory.races is not None:
                barrier = self._mbarriers.find(transfer.instruction, transfer.lane, transfer.barrier)
                _, counted = self._brought.setdefault(id(barrier), (barrier, []))
                counted.append((barrier.phase, transfer))
            self._mbarriers.complete_tx(
                transfer.instruction, transfer.lane, transfer.barrier, transfer.counted_bytes, transfer.released
            )


def _repeats(flags: NDArray[np.bool_]) -> bool:
    """Whether flags of bytes are the same for each element of an array of structs, of some size."""
    sizes = range(4, max(len(flags) // 2, CHUNK_BYTES) + 1, 4)
    return any(bool((flags[size:] == flags[:-size]).all()) for size in sizes)
