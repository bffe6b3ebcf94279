"""Compact vector clocks of all threads of a wave: up to which point each thread is ordered after each other one.

Every thread has a clock, which goes on when the thread releases something. That a thread is *past* a clock value is
known to others through three things, from the cheap to the general: the floor of its block (a barrier of the whole
CTA), the floor of its warp (`bar.warp.sync` of the whole warp), and the thread's own *knowledge*: a sorted table of
keys (a CTA, a warp or a thread) and clocks that threads share and never change. Only partial barriers, partial
masks, and flags make knowledge; a kernel with plain barriers has none.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.lanes import WARP

Lanes = NDArray[np.intp]
Clock = NDArray[np.int32]


class VectorClocks:
    """The clocks of one wave.

    Attributes:
        first_thread: number, in the whole grid, of the thread in lane 0.
        clock: of each lane.
        cta_floor: for each CTA, the clock below which all its threads know all its accesses.
        warp_floor: the same for each warp.
        known: for each lane, which table of knowledge it has; 0 is the empty one, negative ones are promises.
        starts: where in ``keys`` and ``values`` each table starts (and the last one ends).
        shape: lanes of a CTA, how far the keys of neighbouring CTAs are apart, and lanes of a cluster.
    """

    def __init__(self, lanes: int, lanes_per_cta: int, cluster_ctas: int = 1) -> None:
        self.lanes_per_cta = lanes_per_cta
        self.warps_per_cta = lanes_per_cta // WARP
        self.shape = (lanes_per_cta, 1 + self.warps_per_cta + lanes_per_cta, lanes_per_cta * cluster_ctas)
        self.first_thread = 0
        self.clock: Clock = np.ones(lanes, dtype=np.int32)
        self.cta_floor: Clock = np.ones(lanes // lanes_per_cta, dtype=np.int32)
        self.warp_floor: Clock = np.ones(lanes // WARP, dtype=np.int32)
        self.known: NDArray[np.int32] = np.zeros(lanes, dtype=np.int32)
        self.starts: NDArray[np.int64] = np.zeros(2, dtype=np.int64)
        self.keys: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.values: Clock = np.zeros(0, dtype=np.int32)
        self._tables = 1
        self._unions: dict[tuple[int, ...], int] = {}
        self._promises: list[tuple[int, ...]] = []  # the parts of table -1, of table -2, ...
        self._kept: dict[int, int] = {}  # promises that have been made

    def start_wave(self, first_thread: int) -> None:
        """New threads, which know nothing. What older waves have released stays."""
        self.first_thread = first_thread
        for each in (self.clock, self.cta_floor, self.warp_floor):
            each.fill(1)
        self.known.fill(0)

    # -- barriers ----------------------------------------------------------------------------------------------

    def join_ctas(self, ctas: Lanes | slice) -> None:
        """A barrier of all threads of each of some CTAs. Threads that have exited count as arrived."""
        rows = self.clock.reshape(-1, self.lanes_per_cta)
        top = rows[ctas].max(axis=1) + 1
        rows[ctas] = top[:, None]
        self.cta_floor[ctas] = top
        self._share(self.known.reshape(-1, self.lanes_per_cta), ctas)

    def join_warps(self, warps: Lanes | slice) -> None:
        """`bar.warp.sync` of all lanes of each of some warps."""
        rows = self.clock.reshape(-1, WARP)
        top = rows[warps].max(axis=1) + 1
        rows[warps] = top[:, None]
        self.warp_floor[warps] = top
        self._share(self.known.reshape(-1, WARP), warps)

    def join(self, lanes: Lanes, arrived: Iterable[int] = ()) -> None:
        """A barrier among some lanes of a CTA, and what others released when they arrived."""
        self.known[lanes] = self.union([self.release(lanes), *arrived])

    def _share(self, rows: NDArray[np.int32], chosen: Lanes | slice) -> None:
        """What one lane of a row knows, all of them know."""
        if self._tables == 1:
            return
        held = rows[chosen]
        differ = np.flatnonzero(held.min(axis=1) != held.max(axis=1))
        if len(differ):
            numbers = np.arange(len(rows))[chosen][differ]
            for number in numbers.tolist():
                rows[number] = self.union(distinct(rows[number]))

    # -- knowledge ---------------------------------------------------------------------------------------------

    def release(self, lanes: Lanes) -> int:
        """Everything that some lanes of a CTA, in order, have done and know, as a table; their clocks go on.

        Lanes that are a whole warp get one clock and one entry.
        """
        if len(lanes) == 1:
            return self._release_one(int(lanes[0]))
        starts = np.flatnonzero(np.diff(lanes // WARP, prepend=-1))
        counts = np.diff(starts, append=len(lanes))
        warps = lanes[starts] // WARP
        whole = counts == WARP
        rows = self.clock.reshape(-1, WARP)
        rows[warps[whole]] = rows[warps[whole]].max(axis=1)[:, None]
        floors = np.where(whole, rows[warps, 0] + 1, self.warp_floor[warps])
        single = lanes[np.repeat(~whole, counts)]
        cta = int(lanes[0]) // self.lanes_per_cta
        table = self._entries(single, self.clock[single], warps, floors, int(self.cta_floor[cta]))
        self.clock[lanes] += 1
        return self.union([*distinct(self.known[lanes]), table])

    def _release_one(self, lane: int) -> int:
        """`release` by one lane."""
        cta, warp = lane // self.lanes_per_cta, lane // WARP
        known, clock = int(self.known[lane]), int(self.clock[lane])
        table = self.release_as_of(lane, clock, int(self.cta_floor[cta]), int(self.warp_floor[warp]), known)
        self.clock[lane] += 1
        return table

    def release_as_of(self, lane: int, clock: int, cta_floor: int, warp_floor: int, known: int) -> int:
        """What one lane had done and knew at an earlier moment, as a table."""
        _, stride, _ = self.shape
        cta, inner = divmod(self.first_thread + lane, self.lanes_per_cta)
        first = cta * stride
        keys = np.array([first, first + 1 + inner // WARP, first + 1 + self.warps_per_cta + inner])
        table = self._append(keys, np.array([cta_floor, warp_floor, clock + 1], dtype=np.int32))
        return self.union([known, table])

    def past(self, lane: int) -> int:
        """A table that says nothing but that one lane is past its clock, which goes on."""
        per_cta, stride, _ = self.shape
        cta, inner = divmod(self.first_thread + lane, per_cta)
        key = cta * stride + 1 + self.warps_per_cta + inner
        table = self._append(np.array([key]), self.clock[lane : lane + 1] + 1)
        self.clock[lane] += 1
        return table

    def union(self, tables: Iterable[int], *, later: bool = False) -> int:
        """The table that holds the larger clock of each key of some tables.

        With ``later``, or if one of them is a promise, it is a promise, whose number is negative: it is made when
        somebody asks for what is in it. A chain of atomics on one word releases more and more, which mostly nobody
        looks at.
        """
        parts = tuple(sorted({table for table in tables if table}))
        if len(parts) < 2:
            return parts[0] if parts else 0
        if later or parts[0] < 0:
            if not self._promises or self._promises[-1] != parts:
                self._promises.append(parts)
            return -len(self._promises)
        found = self._unions.get(parts)
        if found is None:
            found = self._unions[parts] = self._merge(parts)
        return found

    def settle(self, lanes: Lanes) -> None:
        """Make what lanes know, where it is a promise."""
        held = self.known[lanes]
        for table in np.unique(held[held < 0]).tolist():
            self.known[self.known == table] = self._made(table)

    def _made(self, promise: int) -> int:
        """The table of a promise."""
        found = self._kept.get(promise)
        if found is None:
            made, promised, seen = set[int](), [promise], {promise}
            while promised:
                for part in self._promises[-1 - promised.pop()]:
                    known = part if part > 0 else self._kept.get(part)
                    if known is not None:
                        made.add(known)
                    elif part not in seen:
                        seen.add(part)
                        promised.append(part)
            found = self._kept[promise] = self.union(made)
        return found

    def _merge(self, parts: tuple[int, ...]) -> int:
        runs = [slice(*self.starts[part : part + 2].tolist()) for part in parts]
        keys = np.concatenate([self.keys[run] for run in runs])
        values = np.concatenate([self.values[run] for run in runs])
        return self._add(keys, values)

    def _entries(self, lanes: Lanes, clock: Clock, warps: Lanes, warp_floors: Clock, cta_floor: int) -> int:
        """A table that says: a CTA is past its floor, its ``warps`` past theirs, and ``lanes`` past ``clock``."""
        per_cta, stride, _ = self.shape
        threads = self.first_thread + lanes
        first_warp = self.first_thread // WARP + warps
        cta = first_warp[:1] // self.warps_per_cta
        keys = np.concatenate((
            cta * stride,
            cta * stride + 1 + first_warp % self.warps_per_cta,
            cta * stride + 1 + self.warps_per_cta + threads % per_cta,
        ))  # fmt: skip
        return self._append(keys, np.concatenate(([cta_floor], warp_floors, clock + 1)))

    def _add(self, keys: NDArray[np.int64], values: NDArray[np.int64] | Clock) -> int:
        """A new table; of several clocks of one key the largest counts."""
        order = np.argsort(keys, kind="stable")
        keys, values = keys[order], values[order]
        first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        return self._append(keys[first], np.maximum.reduceat(values, first))

    def _append(self, keys: NDArray[np.int64], values: NDArray[np.int64] | Clock) -> int:
        """A new table of keys that are in order."""
        number = self._tables
        start = int(self.starts[number])
        end = start + len(keys)
        if end > len(self.keys):
            self.keys, self.values = np.resize(self.keys, 2 * end), np.resize(self.values, 2 * end)
        self.keys[start:end], self.values[start:end] = keys, values
        if number + 1 >= len(self.starts):
            self.starts = np.resize(self.starts, 2 * (number + 1))
        self.starts[number + 1] = end
        self._tables += 1
        return number


def distinct(tables: NDArray[np.int32]) -> list[int]:
    """The tables that some lanes have; mostly it is one."""
    first = int(tables[0])
    return [first] if (tables == first).all() else np.unique(tables).tolist()
