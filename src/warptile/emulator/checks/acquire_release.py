"""Order through memory: release and acquire accesses, fences, and the flags that pass order between threads.

PTX ISA, "Memory Consistency Model". A write is a *release* if it says so, or if it is strong (atomic, relaxed,
volatile) and a fence stands before it in its own thread. A strong read of what it wrote, or of what atomics have made
of that since, is an *acquire* if it says so, or once a fence follows it in its own thread. Both must have a scope that
includes the other thread. Then everything that the writer did or knew before the release lies behind the reader.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.checks.displaced_accesses import ANYWHERE, WEAK, WITHIN_CLUSTER, WITHIN_CTA
from warptile.emulator.checks.vector_clocks import Lanes, VectorClocks
from warptile.emulator.lanes import WARP
from warptile.ptx.instruction import Instruction

_SCOPES = {"cta": WITHIN_CTA, "cluster": WITHIN_CLUSTER, "gpu": ANYWHERE, "sys": ANYWHERE, "gl": ANYWHERE}
"""Threads that each scope names; without clusters, every CTA is a cluster of its own."""

_LEVELS = range(ANYWHERE)
"""Who is told: level 0 threads of the same CTA, 1 of the same cluster, 2 all. A strength reaches the levels below."""


@dataclass(frozen=True)
class MemoryOrder:
    """The memory-order semantics of an access or a fence.

    Attributes:
        strength: WEAK, or for whose threads it is strong.
        acquires: a read that is an acquire by itself.
        releases: a write that is a release by itself.
    """

    strength: int
    acquires: bool = False
    releases: bool = False

    @staticmethod
    def of(instruction: Instruction, *, weak_volatile: bool = False) -> MemoryOrder:
        """The order of a load, a store, an atomic or a fence; with ``weak_volatile``, volatile says nothing of it."""
        words = instruction.modifiers
        scope = next((_SCOPES[word] for word in words if word in _SCOPES), ANYWHERE)
        if instruction.opcode in ("fence", "membar"):
            return MemoryOrder(scope, acquires="release" not in words, releases="acquire" not in words)
        semantics = next((word for word in words if word in ("acquire", "release", "acq_rel")), "")
        strong = bool(semantics) or instruction.opcode in ("atom", "red")
        strong = strong or any(word in ("relaxed", "mmio") for word in words)
        strong = strong or ("volatile" in words and not weak_volatile)
        return MemoryOrder(
            scope if strong else WEAK, semantics in ("acquire", "acq_rel"), semantics in ("release", "acq_rel")
        )


class AcquireReleaseState:
    """What strong writes have released, and what a later fence lets strong reads acquire.

    Tables of knowledge (see `VectorClocks`) are kept by level: what threads of the CTA get, of the cluster, and all.
    """

    def __init__(self, clocks: VectorClocks) -> None:
        lanes = len(clocks.clock)
        self._clocks = clocks
        self._released: dict[tuple[str, int], tuple[int, list[int]]] = {}  # place: CTA, table for each level
        self._pending: NDArray[np.int32] = np.zeros((len(_LEVELS), lanes), dtype=np.int32)
        # The table that each lane has acquired last, or read of each level without acquiring it yet.
        self._acquired: NDArray[np.int32] = np.zeros(lanes, dtype=np.int32)
        self._noticed: NDArray[np.int32] = np.zeros((len(_LEVELS), lanes), dtype=np.int32)
        self._fenced: NDArray[np.int32] = np.zeros((len(_LEVELS), 4, lanes), dtype=np.int32)
        self._fences = False
        self._tables: dict[tuple[int, int], int] = {}  # what a fence has published: by lane and clock at the fence

    def start_wave(self) -> None:
        """New threads: no fence, nothing seen. What older waves have released stays."""
        self._pending.fill(0)
        self._acquired.fill(0)
        self._noticed.fill(0)
        self._fenced.fill(0)
        self._fences = False
        self._tables.clear()

    @property
    def quiet(self) -> bool:
        """Whether no access can release or acquire anything that does not say so itself."""
        return not self._fences and not self._released

    def idle(self, space: str, offsets: NDArray[np.int64], lanes: Lanes, order: MemoryOrder) -> bool:
        """Whether these accesses neither release nor acquire anything."""
        if order.acquires or order.releases or (self._fences and self._fenced[0, 0, lanes].any()):
            return False
        return not self._released or not any((space, offset) in self._released for offset in offsets.tolist())

    def pending(self, lane: int) -> bool:
        """Whether a lane has read a flag and would acquire something by a fence."""
        return bool(self._pending[:, lane].any())

    def fence(self, lanes: Lanes, order: MemoryOrder) -> None:
        """`fence` or `membar`: strong reads before it become acquires, strong writes behind it releases."""
        clocks = self._clocks
        levels = range(order.strength)
        if order.acquires and self._pending.any():
            for lane in lanes[self._pending[: order.strength, lanes].any(axis=0)].tolist():
                seen = [int(self._pending[level, lane]) for level in levels]
                clocks.known[lane] = clocks.union([int(clocks.known[lane]), *seen])
                self._pending[: order.strength, lane] = 0
        if order.releases:
            self._fences = True
            ctas, warps = lanes // clocks.lanes_per_cta, lanes // WARP
            state = (clocks.clock[lanes], clocks.cta_floor[ctas], clocks.warp_floor[warps], clocks.known[lanes])
            for level in levels:
                self._fenced[level][:, lanes] = state
            clocks.clock[lanes] += 1

    def read(self, space: str, offsets: NDArray[np.int64], lanes: Lanes, order: MemoryOrder) -> None:
        """Strong reads of flags at some offsets."""
        if not self._released:
            return
        for offset in np.unique(offsets).tolist():
            found = self._released.get((space, offset))
            if found is None:
                continue
            readers = lanes[offsets == offset]
            ctas = (self._clocks.first_thread + readers) // self._clocks.lanes_per_cta
            for cta in np.unique(ctas).tolist():
                self._read(found, cta, readers[ctas == cta], order)

    def _read(self, found: tuple[int, list[int]], cta: int, lanes: Lanes, order: MemoryOrder) -> None:
        """Lanes of a CTA read a flag, for which ``found`` has been released."""
        level = self._level(found[0], cta)
        table = found[1][level]
        if not table or order.strength <= level:
            return
        # Lanes that spin read the same again and again.
        seen = self._acquired if order.acquires else self._noticed[level]
        lanes = lanes[seen[lanes] != table]
        seen[lanes] = table
        gains = self._clocks.known if order.acquires else self._pending[level]
        for lane in lanes.tolist():
            gains[lane] = self._clocks.union([int(gains[lane]), table])

    def write(self, space: str, offsets: NDArray[np.int64], lanes: Lanes, order: MemoryOrder) -> None:
        """Strong writes of flags at some offsets."""
        if not order.releases and not self._fences:
            if self._released:
                for offset in offsets.tolist():
                    self._released.pop((space, offset), None)
            return
        for offset, lane in zip(offsets.tolist(), lanes.tolist(), strict=True):
            self._release((space, offset), lane, self._released_by(lane, order))

    def exchange(
        self, space: str, offsets: NDArray[np.int64], lanes: Lanes, order: MemoryOrder, *, reads: bool
    ) -> None:
        """Atomics on flags at some offsets, one after the other: they keep what was released before.

        ``reads``: they return what they find, and so acquire it (`atom`, not `red`).
        """
        releases = order.releases or self._fences
        for row, (offset, lane) in enumerate(zip(offsets.tolist(), lanes.tolist(), strict=True)):
            place = space, offset
            before = self._released.get(place)
            if reads and before is not None:
                self._read(before, self._cta(lane), lanes[row : row + 1], order)
            if not releases:
                continue
            tables = self._released_by(lane, order)
            if before is not None:
                # What one block (or cluster) alone may know is lost when an atomic of another comes between.
                between = self._level(before[0], self._cta(lane))
                tables = [self._clocks.union([tables[i], before[1][max(i, between)]], later=True) for i in _LEVELS]
            self._release(place, lane, tables)

    def _release(self, place: tuple[str, int], lane: int, tables: list[int]) -> None:
        if any(tables):
            self._released[place] = self._cta(lane), tables
        else:
            self._released.pop(place, None)

    def _released_by(self, lane: int, order: MemoryOrder) -> list[int]:
        """What a strong write of ``lane`` releases to each level."""
        if order.releases:
            table = self._clocks.release(np.array([lane]))
            return [table if level < order.strength else 0 for level in _LEVELS]
        return [self._published(lane, level) if level < order.strength else 0 for level in _LEVELS]

    def published(self, lanes: Lanes) -> list[int]:
        """What the last fences of lanes stand behind, of those that reach the cluster."""
        if not self._fences:
            return []
        level = WITHIN_CLUSTER - 1
        return [self._published(lane, level) for lane in lanes[self._fenced[level, 0, lanes] != 0].tolist()]

    def _level(self, cta: int, other: int) -> int:
        """How far apart two CTAs are: 0 the same, 1 of one cluster, 2 neither."""
        size = self._clocks.shape[2] // self._clocks.lanes_per_cta
        return 0 if cta == other else 1 if cta // size == other // size else 2

    def _published(self, lane: int, level: int) -> int:
        """What the lane's last fence of a scope stands behind."""
        clock, cta_floor, warp_floor, known = self._fenced[level, :, lane].tolist()
        if not clock:
            return 0
        table = self._tables.get((lane, clock))
        if table is None:
            table = self._clocks.release_as_of(lane, clock, cta_floor, warp_floor, known)
            self._tables[lane, clock] = table
        return table

    def _cta(self, lane: int) -> int:
        return (self._clocks.first_thread + lane) // self._clocks.lanes_per_cta
