"""`st.async` and `red.async`: asynchronous stores to a cluster's shared memory that complete on an mbarrier there.

They complete as bulk copies do: ``latest`` (when nothing else can run), ``earliest`` (at once) or ``random:SEED`` (at
any later such store). Until then the destination bytes are marked as in flight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.arithmetic.memory_updates import MemoryUpdate
from warptile.emulator.checks.races import AsyncStoreSnapshot
from warptile.emulator.lanes import Active, Array
from warptile.emulator.memory.accesses import Memory
from warptile.emulator.memory.spaces import IN_FLIGHT, INITIALISED, MAPPED, WRITTEN, Offsets
from warptile.emulator.sync.mbarriers import Mbarriers
from warptile.errors import IllegalAddress
from warptile.ptx.instruction import Instruction


@dataclass
class RemoteStore:
    """The stores of some lanes by one execution of one instruction that complete on one mbarrier.

    Attributes:
        instruction: that does it.
        lanes: whose stores they are.
        offsets: places in shared space, each of ``size`` bytes.
        words: what to store there, or to combine with what is there.
        barrier: offset in shared space of the mbarrier that gets the bytes.
        reduction: of `red.async`, what it makes of old and given words.
        departure: for the check of races, what lay behind the lanes then.
    """

    instruction: Instruction
    lanes: NDArray[np.intp]
    offsets: Offsets
    words: Array
    size: int
    barrier: int
    reduction: MemoryUpdate | None = None
    departure: AsyncStoreSnapshot | None = None


class RemoteStores:
    """All incomplete asynchronous stores of a wave."""

    def __init__(self, memory: Memory, mbarriers: Mbarriers, schedule: str) -> None:
        self._memory = memory
        self._mbarriers = mbarriers
        self._schedule = schedule
        self._random = np.random.default_rng(int(schedule.partition(":")[2] or 0))
        self._waiting: list[RemoteStore] = []
        mbarriers.finishers.append(self.bring)
        self._other_copy_into = memory.copy_into
        memory.copy_into = self.into

    def new_wave(self) -> None:
        """Nothing has been stored."""
        self._waiting.clear()

    def issue(self, store: RemoteStore) -> None:
        """Start stores whose addresses have been checked."""
        memory = self._memory
        active = Active.of(store.lanes)
        if store.reduction is not None:
            memory.check_read(store.instruction, active, memory.shared_space, store.offsets, store.size)
        memory.check_write(store.instruction, active, memory.shared_space, store.offsets, store.size, None)
        if memory.races is not None:
            atomic = store.reduction is not None
            store.departure = memory.races.departs(store.instruction, store.lanes, store.offsets, store.size, atomic)
        if store.reduction is None:
            memory.shared_space.mark(store.offsets, store.size, MAPPED | IN_FLIGHT)
        self._waiting.append(store)
        for each in list(self._waiting):
            if self._schedule == "earliest" or (self._schedule != "latest" and self._random.random() < 0.25):
                self._land(each)

    def bring(self, offset: int) -> bool:
        """Finish every store that brings bytes to the mbarrier at ``offset``; whether there was one."""
        due = [store for store in self._waiting if store.barrier == offset]
        for store in due:
            self._land(store)
        return bool(due)

    def into(self, offset: int, size: int) -> Instruction | None:
        """The instruction of an unfinished store to one of ``size`` bytes from ``offset`` on in shared space."""
        for store in self._waiting:
            if ((store.offsets < offset + size) & (offset < store.offsets + store.size)).any():
                return store.instruction
        return self._other_copy_into(offset, size) if self._other_copy_into is not None else None

    def end_wave(self) -> None:
        """The CTAs are gone.

        Raises:
            IllegalAddress: a store that nobody has waited for.
        """
        for store in self._waiting:
            memory = self._memory
            owner = memory.peers.name(int(store.offsets[0]) // memory.shared_stride)
            raise IllegalAddress(
                f"{store.instruction.text}: {memory.thread(store.lanes[0])} stores to shared memory of {owner}, which "
                "ends without having waited for it by its mbarrier, and may be gone when the store comes",
                kernel=memory.kernel,
                location=store.instruction.location,
                fix="let the CTA that owns the memory wait for the store by its mbarrier before it ends",
            )

    def _land(self, store: RemoteStore) -> None:
        self._waiting = [each for each in self._waiting if each is not store]
        space = self._memory.shared_space
        if store.reduction is None:
            space.scatter(store.offsets, store.size, store.words)
        else:
            store.reduction.apply(space.words(store.size), store.offsets // store.size, store.words[:, None])
        space.mark(store.offsets, store.size, MAPPED | INITIALISED | WRITTEN)
        released = 0
        if self._memory.races is not None and store.departure is not None:
            self._memory.races.lands(store.departure)
            released = store.departure.released
        total = len(store.lanes) * store.size
        self._mbarriers.complete_tx(store.instruction, store.lanes[0], store.barrier, total, released)
