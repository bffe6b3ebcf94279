"""Detects data races: unordered accesses to the same bytes by different threads, at least one of them a write.

The order of accesses is that of the PTX memory consistency model, not the order in which the emulator executes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.async_ops.cp_async import CopyBatch
from warptile.emulator.checks.access_history import (
    COPYING_FROM,
    COPYING_TO,
    LONGEST_LOG,
    READING,
    WRITE,
    WRITING,
    AccessHistory,
)
from warptile.emulator.checks.acquire_release import AcquireReleaseState, MemoryOrder
from warptile.emulator.checks.cta_lifetimes import CtaLifetimes
from warptile.emulator.checks.deciding_reads import DecidingReads
from warptile.emulator.checks.displaced_accesses import ANYWHERE, WEAK, WITHIN_CLUSTER
from warptile.emulator.checks.proxies import ProxyFences
from warptile.emulator.checks.race_reports import (
    GENERIC_TO_ASYNC,
    READ_TO_ASYNC,
    WIDER,
    Missing,
    RaceAccess,
    RaceReports,
)
from warptile.emulator.checks.repeated_stores import RepeatedStores
from warptile.emulator.checks.unwaited_reads import UnwaitedReads
from warptile.emulator.checks.vector_clocks import Clock, Lanes, VectorClocks, distinct
from warptile.emulator.lanes import WARP, Active, Array
from warptile.emulator.memory.accesses import Memory
from warptile.emulator.memory.allocations import Home, bulk_parts, copy_parts, parts, shared_home
from warptile.emulator.memory.spaces import GlobalBuffer, Offsets, Space
from warptile.errors import DataRace
from warptile.isa.swizzle import CHUNK_BYTES
from warptile.launch.access import Rows
from warptile.ptx.instruction import Instruction

if TYPE_CHECKING:
    from warptile.emulator.async_ops.bulk_copies import BulkTransfer
    from warptile.emulator.machine import LaunchGeometry

FULL_MASK = 0xFFFFFFFF
"""The member mask that names every lane of a warp."""


CONFLICTS_OF_ONE_ACCESS = 64
"""Conflicts of one instruction at one time, in all its lanes, after which its other lanes are not looked at."""


class RaceChecker:
    """Checks every access to shared and to writable global memory against those that it is not ordered after.

    Reports a `DataRace` at the second of the two accesses.

    Args:
        memory: whose accesses are followed.
        geometry: names of threads.
        lanes: of a full wave.
        rows: of operands that are matrices, how their elements lie.
        shared: addresses of shared variables.
        checks: names of the checks that are made.
        first_reads: ``id`` of the plain loads whose value an atomic checks again (`checks.cas_loops`).
        deciding: which loads and atomics an access waits for.
        unwaited: which loads their thread does not wait for.
        streams: whether streams beside the launch access memory, each as a thread that is in no CTA of the launch.

    Attributes:
        stream_lane: the lane that stands for the first of such streams.
        collectives_order: whether every ``.sync`` instruction orders the lanes that execute it together.
        rows_by_warp: whether each warp reads its own rows of A of a `wgmma`, instead of the warpgroup all of them.
    """

    def __init__(
        self,
        memory: Memory,
        geometry: LaunchGeometry,
        lanes: int,
        *,
        rows: Mapping[str, Rows],
        shared: Mapping[str, int],
        checks: frozenset[str],
        first_reads: frozenset[int] = frozenset(),
        deciding: DecidingReads | None = None,
        unwaited: UnwaitedReads | None = None,
        streams: bool = False,
    ) -> None:
        self.collectives_order = "warp-order" not in checks
        self.rows_by_warp = "wgmma-rows" not in checks
        self._atomic_reads = frozenset[int]() if "cas-read" in checks else first_reads
        self._first_reads = first_reads
        self._deciding = deciding
        self._unwaited = unwaited if "unwaited-reads" in checks else None
        self._weak_volatile = "volatile" in checks
        self._memory = memory
        self._findings = memory.findings
        self._reports_redundant = "redundant-stores" in checks
        self._geometry = geometry
        self._live: NDArray[np.bool_] = np.zeros(lanes, dtype=np.bool_)
        self.stream_lane = lanes
        beside = geometry.lanes_per_cta * geometry.cluster_ctas if streams else 0
        self._clocks = VectorClocks(lanes + beside, geometry.lanes_per_cta, geometry.cluster_ctas)
        self._lifetimes: CtaLifetimes | None = None
        if geometry.cluster_ctas > 1:
            self._lifetimes = CtaLifetimes(self._clocks, geometry.cluster_ctas, memory.shared_stride)
        self._flags = AcquireReleaseState(self._clocks)
        self._reports = RaceReports(
            memory, geometry, rows, shared, lambda thread: self._flags.pending(thread - self._clocks.first_thread)
        )
        self._proxies = ProxyFences(self._clocks)
        self._histories: dict[str, AccessHistory] = {}
        self._numbers: dict[int, int] = {}
        self._instructions: list[tuple[Instruction, MemoryOrder]] = []
        self._plain_numbers: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)  # those of the generic proxy
        self._unwaited_numbers: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)  # loads that are not waited for
        self._arrived: dict[tuple[int, int], list[int]] = {}

    def start_wave(self, first_thread: int, live: NDArray[np.bool_]) -> None:
        """A new set of CTAs, with shared memory of its own; ``live`` is kept up to date by the machine."""
        self._live = live
        self._clocks.start_wave(first_thread)
        self._flags.start_wave()
        self._proxies.start_wave()
        self._histories.pop("shared", None)
        self._arrived.clear()
        if self._lifetimes is not None:
            self._lifetimes.start_wave()

    # -- accesses ----------------------------------------------------------------------------------------------

    def read(self, instruction: Instruction, active: Active, where: Space, offsets: Offsets, size: int) -> None:
        """A load by each active lane."""
        number, order = self._known(instruction)
        for home, lanes, places in parts(self._memory, active.lanes, where, offsets, size):
            self._enter(home, READING, instruction, number * 4 + order.strength, lanes, places, size)
            if order.strength:
                self._flags.read(home.name, places, lanes, order)

    def write(
        self, instruction: Instruction, active: Active, where: Space, offsets: Offsets, size: int, words: Array
    ) -> None:
        """A store of one of ``words`` by each active lane, which memory does not hold yet."""
        number, order = self._known(instruction)
        repeats = RepeatedStores(active.lanes, where, offsets, size, words)
        for home, lanes, places in parts(self._memory, active.lanes, where, offsets, size):
            tag = number * 4 + order.strength
            self._enter(home, WRITING, instruction, tag, lanes, places, size, repeats)
            if order.strength:
                self._flags.write(home.name, places, lanes, order)

    def atomic(self, instruction: Instruction, active: Active, where: Space, offsets: Offsets, size: int) -> None:
        """An atomic by each active lane, in lane order."""
        for home, lanes, places in parts(self._memory, active.lanes, where, offsets, size):
            number, order = self._known(instruction)
            tag = number * 4 + order.strength
            if self._flags.idle(home.name, places, lanes, order):
                self._enter(home, WRITING, instruction, tag, lanes, places, size)
                continue
            # Each lane acquires, updates and releases, then the next one. What it acquires counts for its own update,
            # which lies before its release: so all of them are entered at the clocks that they had before.
            clock = self._clocks.clock
            before = clock[lanes]
            self._flags.exchange(home.name, places, lanes, order, reads=instruction.opcode == "atom")
            after = clock[lanes]
            clock[lanes] = before
            self._enter(home, WRITING, instruction, tag, lanes, places, size)
            clock[lanes] = after

    def by_stream(
        self, instruction: Instruction, lane: int, buffer: GlobalBuffer, offset: int, size: int, *, writes: bool
    ) -> None:
        """An operation of a stream beside the launch reads or writes bytes of a buffer."""
        if not buffer.writable:
            return
        number, order = self._known(instruction)
        home, unit = Home(buffer.name, buffer.size), size if order.strength else CHUNK_BYTES
        places = np.arange(offset // unit * unit, offset + size, unit, dtype=np.int64)
        lanes = np.full(len(places), lane, dtype=np.intp)
        self._enter(home, WRITING if writes else READING, instruction, number * 4 + order.strength, lanes, places, unit)
        if order.strength:
            (self._flags.write if writes else self._flags.read)(home.name, places, lanes, order)

    @property
    def clocks(self) -> VectorClocks:
        """How far every thread has come, and what others know of it."""
        return self._clocks

    def tag_of(self, instruction: Instruction) -> int:
        """What histories keep of an instruction: its number times 4, plus its strength."""
        number, order = self._known(instruction)
        return number * 4 + order.strength

    def history_of(self, name: str) -> AccessHistory | None:
        """What has been done to shared memory or to a buffer, by its name; None where that is nothing yet."""
        return self._histories.get(name)

    @property
    def quiet(self) -> bool:
        """Whether atomics that say nothing of it release and acquire nothing, wherever they are."""
        return self._flags.quiet

    def room_in_logs(self) -> int:
        """How many strong writes may be logged before a log has to be replayed, whichever it is."""
        return LONGEST_LOG - max((each.displaced.logged for each in self._histories.values()), default=0)

    def freed(self, instruction: Instruction, lane: int, block: GlobalBuffer) -> None:
        """A lane frees memory: to other threads' accesses it is a write of all of it."""
        if self._histories.get(block.name) is None:
            return
        places = np.arange(0, block.size, CHUNK_BYTES, dtype=np.int64)
        lanes = np.full(len(places), lane, dtype=np.intp)
        tag = self._known(instruction)[0] * 4
        self._enter(Home(block.name, block.size), WRITING, instruction, tag, lanes, places, CHUNK_BYTES)
        del self._histories[block.name]

    def expect(self, name: str, shift: int) -> None:
        """Be ready for accesses of ``2**shift`` bytes to shared memory or to a buffer, by its name."""
        space = self._memory.global_space
        home = shared_home(self._memory) if name == "shared" else Home(name, space.named(name).size)
        self._history(home).expect(shift)

    def _known(self, instruction: Instruction) -> tuple[int, MemoryOrder]:
        number = self._numbers.get(id(instruction))
        if number is None:
            number = self._numbers[id(instruction)] = len(self._instructions)
            order = MemoryOrder.of(instruction, weak_volatile=self._weak_volatile)
            if id(instruction) in self._atomic_reads and not order.strength:
                order = MemoryOrder(ANYWHERE)
            self._instructions.append((instruction, order))
            self._plain_numbers = np.append(self._plain_numbers, not _asynchronous(instruction))
        return number, self._instructions[number][1]

    def _history(self, home: Home) -> AccessHistory:
        found = self._histories.get(home.name)
        if found is None:
            within_cta = home.name == "shared" and self._geometry.cluster_ctas == 1
            found = self._histories[home.name] = AccessHistory(home.size, self._clocks, within_cta=within_cta)
        return found

    def _enter(
        self,
        home: Home,
        doing: int,
        instruction: Instruction,
        tag: int,
        lanes: Lanes,
        places: Offsets,
        size: int,
        repeats: RepeatedStores | None = None,
    ) -> None:
        """Enter one access for each lane and report what it conflicts with."""
        if self._lifetimes is not None and home.name == "shared":
            early = self._lifetimes.use(lanes, places, tag >> 2, at_once=doing in (READING, WRITING))
            if early is not None:
                self._findings.report(self._reports.too_early(instruction, *early))
        history, conflicts, unchecked, observers = self._history(home), 0, 0, None
        while True:
            conflict = history.access(places, size, lanes, doing, tag, unchecked, observers)
            if conflict is None:
                return
            index, offset, column, other = conflict
            lanes, places = lanes[index:], places[index:]
            if observers is None and column == WRITE and other[2] & 3 == ANYWHERE and doing in (READING, WRITING):
                observers = self._observers(instruction)
                if observers.any():
                    unchecked = max(0, unchecked - index)
                    continue
            second = RaceAccess(instruction, self._clocks.first_thread + int(lanes[0]), doing)
            did = (WRITING if column == WRITE else READING) + (COPYING_FROM if other[0] < 0 else 0)
            first = RaceAccess(self._instructions[int(other[2]) >> 2][0], abs(int(other[0])) - 1, did)
            unchecked = 1
            if repeats is not None and did == WRITING and repeats.same(int(lanes[0])):
                again = repeats.duplicates(lanes)
                again[0] = True
                self._redundant(home, offset, first, second, int(np.count_nonzero(again)))
                again[0] = False
                lanes, places = lanes[~again], places[~again]
                continue
            self._race(home, offset, first, second)
            conflicts += 1
            if conflicts == CONFLICTS_OF_ONE_ACCESS:
                unchecked = len(lanes)

    def _observers(self, instruction: Instruction) -> NDArray[np.bool_]:
        """Of each instruction, by its number, whether it reads what decides about this one."""
        deciding = frozenset[int]() if self._deciding is None else self._deciding.of(instruction)
        return np.array([id(each) in deciding for each, _ in self._instructions])

    def _race(
        self,
        home: Home,
        offset: int,
        first: RaceAccess,
        second: RaceAccess,
        missing: Missing | None = None,
        *,
        check: str | None = None,
    ) -> None:
        known = self._findings.known(DataRace, first.instruction.location, second.instruction.location)
        if known is None:
            race = self._reports.race(home, offset, first, second, missing)
            relies_on = None if check else self._model_check(first.instruction, second.instruction)
            self._findings.report(race, check, relies_on=relies_on)
        elif missing is None and self._reports.missing(first, second) in WIDER.get(known.fix, ()):
            # The barrier that one pair of threads needs is not enough for this one.
            self._findings.reword(known, self._reports.race(home, offset, first, second))

    def _model_check(self, *pair: Instruction) -> str:
        """Which check of severity ``model`` it is, should one of them be what the order of two accesses relies on."""
        if any("volatile" in each.modifiers for each in pair) and self._weak_volatile:
            return "volatile"
        if any(id(each) in self._first_reads for each in pair):
            return "cas-read"
        return "wgmma-rows" if any(each.opcode == "wgmma" for each in pair) else "warp-order"

    def _redundant(self, home: Home, offset: int, first: RaceAccess, second: RaceAccess, count: int) -> None:
        if self._reports_redundant:
            self._findings.report(self._reports.redundant(home, offset, first, second), count=count)

    # -- asynchronous copies -------------------------------------------------------------------------------------

    def copy_issued(self, batch: CopyBatch) -> None:
        """Each lane starts a copy: a thread of its own, which nobody has waited for."""
        number, _ = self._known(batch.instruction)
        for doing, home, lanes, places, size in copy_parts(self._memory, batch):
            self._enter(home, doing, batch.instruction, number * 4, lanes, places, size)

    def copy_waited(self, batch: CopyBatch, clock: Clock | None = None) -> None:
        """Each lane has waited for its copy, which now lies behind it like its own accesses.

        With ``clock`` (of every lane) the copy was over for others, by an arrival, when its lane had come so far.
        """
        number, _ = self._known(batch.instruction)
        for _, home, lanes, places, size in copy_parts(self._memory, batch):
            self._history(home).finish_copies(places, size, lanes, number * 4, clock)

    def bulk_issued(self, transfer: BulkTransfer) -> tuple[int, int]:
        """A lane starts a bulk copy. Returns its clock then, and what lies behind the copy, as a table."""
        lane = np.array([transfer.lane], dtype=np.intp)
        tag = self._bulk_tag(transfer)
        for doing, places in ((COPYING_FROM, transfer.source), (COPYING_TO, transfer.target)):
            for home, lanes, offsets in bulk_parts(self._memory, transfer, places):
                unfenced = None
                if doing == COPYING_TO and home.name == "shared":
                    unfenced = self._unwaited_read(home, transfer.instruction, lanes, offsets, CHUNK_BYTES)
                self._enter(home, doing, transfer.instruction, tag, lanes, offsets, CHUNK_BYTES)
                if unfenced is not None:
                    self._race(home, *unfenced, READ_TO_ASYNC, check="unwaited-reads")
                if doing == COPYING_FROM:
                    self._through_async_proxy(home, transfer.instruction, lanes, offsets, CHUNK_BYTES)
        clock = int(self._clocks.clock[transfer.lane])
        return clock, self.release(lane) if transfer.barrier is not None else 0

    def bulk_read_waited(self, transfer: BulkTransfer) -> None:
        """The lane has waited until its copy had read its source."""
        self._bulk_over(transfer, transfer.source, None)

    def bulk_written(self, transfer: BulkTransfer) -> None:
        """The copy is over: for who waits for its mbarrier, or for the lane, which has waited for its group."""
        clock = transfer.clock if transfer.barrier is not None else None
        if clock is not None:
            self._bulk_over(transfer, transfer.source, clock)
        self._bulk_over(transfer, transfer.target, clock)

    def _bulk_over(self, transfer: BulkTransfer, places: tuple[Space, Offsets], clock: int | None) -> None:
        every = self._clocks.clock
        at = every if clock is None else np.broadcast_to(np.int32(clock), every.shape)
        for home, lanes, offsets in bulk_parts(self._memory, transfer, places):
            self._history(home).finish_copies(offsets, CHUNK_BYTES, lanes, self._bulk_tag(transfer), at)

    def _bulk_tag(self, transfer: BulkTransfer) -> int:
        """Reductions are atomic to each other."""
        return self._known(transfer.instruction)[0] * 4 + (ANYWHERE if transfer.reduction is not None else WEAK)

    def departs(
        self, instruction: Instruction, lanes: Lanes, offsets: Offsets, size: int, atomic: bool
    ) -> AsyncStoreSnapshot:
        """Lanes of any CTAs start asynchronous stores to shared memory; `lands` ends them."""
        tag = self._known(instruction)[0] * 4 + (WITHIN_CLUSTER if atomic else WEAK)
        self._enter(shared_home(self._memory), COPYING_TO, instruction, tag, lanes, offsets, size)
        clock = self._clocks.clock.copy()
        ctas = lanes // self._geometry.lanes_per_cta
        released = self.union(self.release(lanes[ctas == cta]) for cta in np.unique(ctas))
        return AsyncStoreSnapshot(lanes, offsets, size, tag, clock, released)

    def lands(self, departure: AsyncStoreSnapshot) -> None:
        """Asynchronous stores are over, for those that acquire what was released behind them."""
        each = departure
        self._history(shared_home(self._memory)).finish_copies(
            each.offsets, each.size, each.lanes, each.tag, each.clock
        )

    # -- wgmma -------------------------------------------------------------------------------------------------------

    def operand_read(self, instruction: Instruction, lanes: Lanes, offsets: Offsets) -> None:
        """Products that have been issued read 16 bytes of shared memory each, until they have been waited for."""
        number, _ = self._known(instruction)
        home = shared_home(self._memory)
        self._enter(home, COPYING_FROM, instruction, number * 4, lanes, offsets, CHUNK_BYTES)
        self._through_async_proxy(home, instruction, lanes, offsets, CHUNK_BYTES)

    def operand_waited(self, instruction: Instruction, lanes: Lanes, offsets: Offsets) -> None:
        """They are over for who knows that these lanes are past their clocks: see `past`."""
        number, _ = self._known(instruction)
        self._history(shared_home(self._memory)).finish_copies(offsets, CHUNK_BYTES, lanes, number * 4)

    def past(self, lane: int) -> int:
        """A table that says nothing but that a lane is past its clock, which goes on."""
        return self._clocks.past(lane)

    # -- order -----------------------------------------------------------------------------------------------------

    def join_all_ctas(self) -> None:
        """A barrier of every living thread of every CTA."""
        self._clocks.join_ctas(slice(None))

    def arrive(self, cta: int, number: int, lanes: Lanes) -> None:
        """`bar.arrive`: what these lanes have done is behind those who wait for barrier ``number``."""
        self._arrived.setdefault((cta, number), []).append(self._clocks.release(lanes))

    def barrier(self, cta: int, number: int, waiting: list[Lanes]) -> None:
        """A barrier of one CTA completes: those who waited go on."""
        arrived = self._arrived.pop((cta, number), [])
        if not waiting:
            return
        lanes = np.concatenate(waiting)
        per_cta = self._geometry.lanes_per_cta
        living = int(np.count_nonzero(self._live[cta * per_cta : (cta + 1) * per_cta]))
        if len(lanes) == living and not arrived:
            self._clocks.join_ctas(np.array([cta]))
        else:
            self._clocks.join(np.sort(lanes), arrived)

    def warp_barrier(self, active: Active, masks: Array) -> None:
        """`bar.warp.sync`: lanes of a warp that name each other."""
        warps = active.lanes // WARP
        if (masks == FULL_MASK).all():
            self._clocks.join_warps(np.unique(warps))
            return
        weights = np.uint64(1) << np.arange(WARP, dtype=np.uint64)
        living = (self._live.reshape(-1, WARP) * weights).sum(axis=1, dtype=np.uint64)
        masks = np.broadcast_to(masks, active.count).astype(np.uint64)
        whole = (living[warps] & ~masks) == 0
        if whole.any():
            self._clocks.join_warps(np.unique(warps[whole]))
        groups = warps.astype(np.uint64) << np.uint64(WARP) | masks
        for group in np.unique(groups[~whole]):
            self._clocks.join(active.lanes[groups == group])

    def clock(self) -> Clock:
        """How far every lane has come."""
        return self._clocks.clock.copy()

    def release(self, lanes: Lanes) -> int:
        """What lanes, in order, have done and know so far, as a table; what they do next is not in it."""
        per_cta = self._geometry.lanes_per_cta
        if lanes[0] // per_cta == lanes[-1] // per_cta:
            return self._clocks.release(lanes)
        starts = np.flatnonzero(np.diff(lanes // per_cta)) + 1
        return self._clocks.union([self._clocks.release(some) for some in np.split(lanes, starts)])

    def release_fenced(self, lanes: Lanes) -> int:
        """What lanes have done and known before their last fence of the cluster's scope or a wider one."""
        return self._clocks.union(self._flags.published(lanes))

    def union(self, tables: Iterable[int]) -> int:
        """What is in any of some tables."""
        return self._clocks.union(tables)

    def acquire(self, lanes: Lanes, table: int) -> None:
        """What a table holds lies behind these lanes."""
        known = self._clocks.known
        held = distinct(known[lanes])
        if len(held) == 1:
            known[lanes] = self._clocks.union([*held, table])
            return
        for each in held:
            some = lanes[known[lanes] == each]
            known[some] = self._clocks.union([each, table])

    def mbarrier(self, instruction: Instruction, active: Active, offsets: Offsets, *, plain: bool = False) -> None:
        """An operation on mbarriers, atomic to each other; making and ending one is ``plain``, so barriers must part it
        from the others."""
        tag = self._known(instruction)[0] * 4 + (WEAK if plain else ANYWHERE)
        self._enter(shared_home(self._memory), WRITING, instruction, tag, active.lanes, offsets, 8)

    def met(self, lanes: Lanes) -> None:
        """Lanes that have waited for their cluster's barrier."""
        if self._lifetimes is not None:
            self._lifetimes.met(lanes)

    def exited(self, lanes: Lanes) -> None:
        """The end of some threads; of a CTA, when they are its last."""
        if self._lifetimes is None:
            return
        per_cta = self._geometry.lanes_per_cta
        for cta in np.unique(lanes // per_cta).tolist():
            if not self._live[cta * per_cta : (cta + 1) * per_cta].any():
                late = self._lifetimes.exit(cta)
                if late is not None:
                    lane, number = late
                    self._findings.report(self._reports.too_late(self._instructions[number][0], lane, cta))

    def fence(self, instruction: Instruction, active: Active) -> None:
        """`fence` and `membar`."""
        self._flags.fence(active.lanes, self._known(instruction)[1])

    def proxy_fence(self, active: Active, spaces: tuple[str, ...]) -> None:
        """`fence.proxy.async`, for shared memory, global memory, or both."""
        self._proxies.fence(active.lanes, spaces)

    def _through_async_proxy(
        self, home: Home, instruction: Instruction, lanes: Lanes, places: Offsets, size: int
    ) -> None:
        """Bulk copies and `wgmma` that lanes start read these bytes: report a plain write without a proxy fence."""
        space = "shared" if home.name == "shared" else "global"
        history = self._history(home)
        found = self._proxies.first_missing(history, places, size, lanes, space, self._plain_numbers)
        if found is None:
            return
        number, offset = found
        thread, _, tag = history.write(offset).tolist()
        first = RaceAccess(self._instructions[tag >> 2][0], thread - 1, WRITING)
        second = RaceAccess(instruction, self._clocks.first_thread + int(lanes[number]), READING)
        self._race(home, offset, first, second, GENERIC_TO_ASYNC)

    def _unwaited_read(
        self, home: Home, instruction: Instruction, lanes: Lanes, places: Offsets, size: int
    ) -> tuple[int, RaceAccess, RaceAccess] | None:
        """Of the shared memory that bulk copies of lanes are to overwrite, a place that was read by a load for which
        its thread has not waited, nor made a proxy fence; that read, and the copy."""
        if self._unwaited is None:
            return None
        known = len(self._unwaited_numbers)
        new = [
            not _asynchronous(each) and self._unwaited.reaches_arrival(each) for each, _ in self._instructions[known:]
        ]
        self._unwaited_numbers = np.append(self._unwaited_numbers, np.array(new, dtype=np.bool_))
        if not self._unwaited_numbers.any():
            return None
        history = self._history(home)
        found = self._proxies.first_unfenced_read(history, places, size, lanes, "shared", self._unwaited_numbers)
        if found is None:
            return None
        number, offset, column = found
        thread, _, tag = history.read(offset, column).tolist()
        first = RaceAccess(self._instructions[tag >> 2][0], thread - 1, READING)
        second = RaceAccess(instruction, self._clocks.first_thread + int(lanes[number]), WRITING)
        return offset, first, second


@dataclass(frozen=True)
class AsyncStoreSnapshot:
    """Asynchronous stores on their way: places and tag in the history, the lanes' clocks when they started, and a table
    of what lay behind them then."""

    lanes: Lanes
    offsets: Offsets
    size: int
    tag: int
    clock: NDArray[np.int32]
    released: int


def _asynchronous(instruction: Instruction) -> bool:
    """Whether an instruction accesses memory through the async proxy."""
    return instruction.opcode == "wgmma" or (instruction.opcode == "cp" and "bulk" in instruction.modifiers)
