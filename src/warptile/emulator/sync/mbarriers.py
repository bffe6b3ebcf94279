"""mbarrier objects: phases, arrivals, transaction bytes, and the threads that wait for them.

A phase is complete when no arrival is pending and the tx-count is zero; then the next phase begins with the expected
count of arrivals. Phases are counted from 0; phase *n* has parity ``n % 2``. A wait asks for the current phase (not
complete yet) or the one before it (complete); other phases cannot be told apart on the hardware.

A thread whose wait finds its phase incomplete is parked: it goes on with *true* when the phase completes, or with
*false* (as the ISA allows, after a time) when nobody else can run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.builders import Destination
from warptile.emulator.lanes import Active
from warptile.emulator.memory.accesses import Memory
from warptile.emulator.memory.spaces import MAPPED, MBARRIER
from warptile.errors import MbarrierMisuse
from warptile.ptx.instruction import Instruction

LARGEST_COUNT = (1 << 20) - 1
"""Arrivals, and transaction bytes in either direction, that an mbarrier can count."""

Lane = int | np.intp
Lanes = NDArray[np.intp]

BYTES = 8
"""Size and alignment of an mbarrier object."""

REFUSALS = 1024
"""Times that waits return false, with nothing done in between, before the program is taken to wait forever."""


@dataclass
class Mbarrier:
    """The state of one mbarrier object.

    Attributes:
        expected: arrivals of each phase from the next one on.
        pending: arrivals that the current phase still lacks.
        phase: number of the current phase.
        tx: bytes that are expected and have not come (negative: they came before they were expected).
        arrived: for the check of races, what arrivals of the current phase have released.
        released: what waiting for the last complete phase acquires.
    """

    expected: int
    pending: int
    phase: int = 0
    tx: int = 0
    arrived: list[int] = field(default_factory=list)
    released: int = 0


@dataclass(frozen=True)
class ParkedThreads:
    """Threads that wait at one instruction for one phase of one mbarrier."""

    instruction: Instruction
    position: int
    lanes: Lanes
    phase: int
    result: Destination
    acquires: bool


class Mbarriers:
    """All mbarrier objects of a wave, by their offset in shared space.

    Attributes:
        wake: what to do with lanes that go on: the position behind their wait, and the lanes.
        finishers: asked when nobody can run, with the offset of an mbarrier that somebody waits for: finish
            asynchronous work that will arrive there or bring bytes, and say whether there was any.
        observers: told of the mbarrier when a wait for its last complete phase succeeds (when races are checked).
    """

    def __init__(self, memory: Memory, schedule: str) -> None:
        self._memory = memory
        self._random = np.random.default_rng(int(schedule.partition(":")[2] or 0))
        self._refuses_early = schedule.startswith("random")
        self._objects: dict[int, Mbarrier] = {}
        self._parked: dict[int, list[ParkedThreads]] = {}
        self._refusals = 0
        self._effect = -1
        memory.overwrite_mbarriers = self.overwrite
        self.parked_since = 0
        self.wake: Callable[[int, Active], None] = lambda position, active: None
        self.finishers: list[Callable[[int], bool]] = []
        self.observers: list[Callable[[Mbarrier], None]] = []

    def new_wave(self) -> None:
        """Shared memory of new CTAs holds no mbarrier."""
        self._objects.clear()
        self._memory.has_mbarriers = False
        self._parked.clear()
        self._refusals = 0

    # -- the object ------------------------------------------------------------------------------------------------

    def init(self, instruction: Instruction, lane: Lane, offset: int, count: int) -> None:
        """`mbarrier.init`: phase 0, with ``count`` arrivals expected."""
        if not 1 <= count <= LARGEST_COUNT:
            raise self._misuse(instruction, lane, f"a count of {count}; it is 1 to {LARGEST_COUNT}")
        if offset in self._objects:
            if self._memory.check_reuse:
                error = self._misuse(
                    instruction, lane, f"initialises {self.name(offset)} again: mbarrier.inval must come before"
                )
                self._memory.findings.report(error, "reuse")
            self._end(instruction, lane, offset, "initialises")
        self._objects[offset] = Mbarrier(count, count)
        self._memory.shared_space.mark(np.array([offset], dtype=np.int64), BYTES, MAPPED | MBARRIER)
        self._memory.has_mbarriers = True

    def inval(self, instruction: Instruction, lane: Lane, offset: int) -> None:
        """`mbarrier.inval`: the bytes are free for other use."""
        self.find(instruction, lane, offset)
        self._end(instruction, lane, offset, "invalidates")

    def overwrite(self, instruction: Instruction, lane: Lane, first: int, size: int) -> None:
        """A write of ``size`` bytes from offset ``first`` of shared space ends the objects that it touches."""
        for offset in [each for each in self._objects if first - BYTES < each < first + size]:
            self._end(instruction, lane, offset, "overwrites")

    def _end(self, instruction: Instruction, lane: Lane, offset: int, verb: str) -> None:
        """The object is no more, unless somebody waits for it."""
        if self._parked.get(offset):
            raise self._misuse(instruction, lane, f"{verb} {self.name(offset)} while threads wait for it")
        del self._objects[offset]
        self._memory.shared_space.mark(np.array([offset], dtype=np.int64), BYTES, MAPPED)

    def find(self, instruction: Instruction, lane: Lane, offset: int) -> Mbarrier:
        """The object at an offset of shared space, or MbarrierMisuse if nobody has initialised one there."""
        found = self._objects.get(offset)
        if found is None:
            raise self._misuse(instruction, lane, f"{self.name(offset)} is no mbarrier: mbarrier.init must come first")
        return found

    def refuse_phase(self, instruction: Instruction, lane: Lane, offset: int, phase: int) -> NoReturn:
        """Raise: a wait asks for a phase that is neither the current one nor the one before."""
        raise self._misuse(
            instruction, lane,
            f"waits for phase {phase} of {self.name(offset)}, which is in phase {self._objects[offset].phase}; only "
            "that one and the one before can be waited for",
        )  # fmt: skip

    def arrive(
        self,
        instruction: Instruction,
        lanes: Lanes,
        offset: int,
        counts: NDArray[np.int64],
        *,
        expect: NDArray[np.int64] | None = None,
        drop: bool = False,
        completes: bool = True,
        releases: bool = True,
        released: int = 0,
    ) -> NDArray[np.uint64]:
        """Arrivals of threads of one CTA, one after the other, each ``counts`` times.

        What they have done so far lies before the end of the phase (if ``releases``), and so does ``released``, a
        table of `VectorClocks`. With ``expect`` each first makes the phase wait for so many bytes more.

        Returns the states before the arrivals, as `mbarrier.pending_count` and waits take them.
        """
        barrier = self.find(instruction, lanes[0], offset)
        races = self._memory.races
        if int(counts.min()) < 1 or int(counts.max()) > LARGEST_COUNT:
            raise self._misuse(instruction, lanes[0], f"a count of {counts[0]}; it is 1 to {LARGEST_COUNT}")
        states = np.empty(len(lanes), dtype=np.uint64)
        start = 0
        while start < len(lanes):
            sums = np.cumsum(counts[start:])
            end = start + int(np.searchsorted(sums, barrier.pending, side="right"))
            if end == start:
                raise self._misuse(
                    instruction, lanes[start],
                    f"arrives {counts[start]} times at {self.name(offset)}, whose phase {barrier.phase} waits for "
                    f"{barrier.pending} of {barrier.expected} arrivals{self._bytes_missing(barrier)}",
                )  # fmt: skip
            total = int(sums[end - start - 1])
            states[start:end] = (barrier.phase << 20) + barrier.pending - (sums[: end - start] - counts[start:end])
            if expect is not None:
                self._count_bytes(instruction, lanes[start], offset, int(expect[start:end].sum()))
            barrier.pending -= total
            if drop:
                barrier.expected -= total
            if races is not None and releases:
                barrier.arrived.append(races.release(lanes[start:end]))
            if released:
                barrier.arrived.append(released)
            if not completes and barrier.pending == 0:
                raise self._misuse(
                    instruction, lanes[end - 1],
                    f"completes phase {barrier.phase} of {self.name(offset)}, which .noComplete forbids",
                )  # fmt: skip
            self._complete_if_due(offset, barrier)
            start = end
        return states

    def expect_arrivals(self, instruction: Instruction, lane: Lane, offset: int, count: int) -> None:
        """The current phase waits for ``count`` arrivals more."""
        barrier = self.find(instruction, lane, offset)
        barrier.pending += count
        if barrier.pending > LARGEST_COUNT:
            raise self._misuse(
                instruction,
                lane,
                f"{self.name(offset)} waits for {barrier.pending} arrivals; it is at most {LARGEST_COUNT}",
            )

    def expect_tx(self, instruction: Instruction, lane: Lane, offset: int, size: int) -> None:
        """`mbarrier.expect_tx`: the current phase waits for ``size`` bytes more."""
        self._count_bytes(instruction, lane, offset, size)
        self._complete_if_due(offset, self._objects[offset])

    def complete_tx(self, instruction: Instruction, lane: Lane, offset: int, size: int, released: int = 0) -> None:
        """``size`` bytes of asynchronous copies that ``lane`` started have come; wakes who waits if that is all.

        ``offset`` is the mbarrier's place in shared space, as `Memory.resolve` gives it (of any CTA). ``released``,
        a table of `VectorClocks`, is what those that wait for the phase acquire; 0 for nothing.
        """
        self._count_bytes(instruction, lane, offset, -size)
        barrier = self._objects[offset]
        if released:
            barrier.arrived.append(released)
        self._complete_if_due(offset, barrier)

    def _count_bytes(self, instruction: Instruction, lane: Lane, offset: int, change: int) -> None:
        barrier = self.find(instruction, lane, offset)
        barrier.tx += change
        if abs(barrier.tx) > LARGEST_COUNT:
            raise self._misuse(
                instruction, lane,
                f"the tx-count of {self.name(offset)} becomes {barrier.tx}; it is at most {LARGEST_COUNT}",
            )  # fmt: skip

    def _complete_if_due(self, offset: int, barrier: Mbarrier) -> None:
        if barrier.pending or barrier.tx:
            return
        races = self._memory.races
        if races is not None:
            barrier.released = races.union([barrier.released, *barrier.arrived])
            barrier.arrived.clear()
        phase, barrier.phase, barrier.pending = barrier.phase, barrier.phase + 1, barrier.expected
        waiting = self._parked.pop(offset, [])
        still = [each for each in waiting if each.phase != phase]
        if still:
            self._parked[offset] = still
        for each in waiting:
            if each.phase == phase:
                self._go_on(each, barrier)

    # -- waiting -----------------------------------------------------------------------------------------------------

    def acquire(self, barrier: Mbarrier, lanes: Lanes) -> None:
        """A wait of these lanes was successful: what was released before the phase completed lies behind them."""
        if self._memory.races is not None and barrier.released:
            for observe in self.observers:
                observe(barrier)
            self._memory.races.acquire(lanes, barrier.released)

    def refuses(self) -> bool:
        """Whether a wait that would block returns false at once: sometimes, under a random schedule."""
        return self._refuses_early and bool(self._random.random() < 0.25)

    def park(self, offset: int, parked: ParkedThreads, steps: int) -> None:
        """These lanes wait."""
        if not self._parked:
            self.parked_since = steps
        self._parked.setdefault(offset, []).append(parked)

    def _go_on(self, parked: ParkedThreads, barrier: Mbarrier | None) -> None:
        active = Active.of(parked.lanes)
        if barrier is not None and parked.acquires:
            self.acquire(barrier, parked.lanes)
        parked.result(active, np.array([barrier is not None]))
        self.wake(parked.position + 1, active)

    @property
    def parked(self) -> bool:
        """Whether anybody waits."""
        return bool(self._parked)

    def starve(self, last_effect: int) -> bool:
        """Nobody can run, or others only spin: finish asynchronous work that is waited for, or let waits return false.

        Whether there was such work: it may not have been all that a phase lacks.
        """
        helped: set[int] = set()
        for offset in list(self._parked):
            cta = offset // self._memory.shared_stride
            if cta not in helped and any(finish(offset) for finish in self.finishers):
                helped.add(cta)  # one mbarrier of each CTA: as late as possible, and CTAs keep step
        if not helped:
            self.refuse(last_effect)
        return bool(helped)

    def refuse(self, last_effect: int) -> None:
        """Waits return false, unless they have done so too often while nothing happened (the last thing being at
        step ``last_effect``)."""
        if last_effect != self._effect:
            self._effect, self._refusals = last_effect, 0
        self._refusals += 1
        if self._refusals > REFUSALS:
            return
        waiting, self._parked = self._parked, {}
        for each in (one for some in waiting.values() for one in some):
            self._go_on(each, None)

    # -- reports -----------------------------------------------------------------------------------------------------

    def stuck(self) -> list[tuple[ParkedThreads, str]]:
        """Who waits, and what is missing."""
        lines = []
        for offset, some in self._parked.items():
            barrier = self._objects[offset]
            for each in some:
                lines.append((
                    each,
                    f"for phase {each.phase} (parity {each.phase % 2}) of {self.name(offset)}, which lacks "
                    f"{barrier.pending} of {barrier.expected} arrivals{self._bytes_missing(barrier)}",
                ))  # fmt: skip
        return lines

    def name(self, offset: int) -> str:
        """An mbarrier by its place."""
        cta, byte = divmod(offset, self._memory.shared_stride)
        first = int(np.searchsorted(self._memory.shared_origin, cta * self._memory.shared_stride))
        return f"the mbarrier at byte {byte} of the shared memory of {self._memory.thread(first).partition(' of ')[2]}"

    def _bytes_missing(self, barrier: Mbarrier) -> str:
        if not barrier.tx:
            return ""
        return f" and {barrier.tx} bytes" if barrier.tx > 0 else f", with {-barrier.tx} bytes more than were expected"

    def _misuse(self, instruction: Instruction, lane: Lane, what: str) -> MbarrierMisuse:
        return MbarrierMisuse(f"{instruction.text}: {self._memory.thread(lane)}: {what}", **self._where(instruction))

    def _where(self, instruction: Instruction) -> dict[str, Any]:
        return {"kernel": self._memory.kernel, "location": instruction.location}


def split_state(states: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Phases and pending arrivals of states that `Mbarriers.arrive` returned."""
    signed = states.astype(np.int64)
    return signed >> 20, signed & LARGEST_COUNT
