"""The async proxy: what `fence.proxy.async` makes visible to bulk copies and `wgmma`.

Plain writes go through the generic proxy, bulk copies and `wgmma` through the async one. PTX ISA, "Memory Consistency
Model: Proxies": besides what orders the two threads, a proxy fence must stand between write and read. Two positions
are recognized: in the writing thread, after the write and before what orders the threads, or in the thread that starts
the asynchronous operation, after what ordered the write before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from warptile.emulator.checks.access_history import (
    COLUMNS,
    FIRST_READ,
    OTHER_READ,
    WRITE,
    AccessHistory,
    rows,
    write_tag,
)
from warptile.emulator.checks.knowledge import published
from warptile.emulator.checks.vector_clocks import Lanes, VectorClocks
from warptile.emulator.lanes import WARP

SPACES = ("shared", "global")
"""What a fence is for: shared memory, or global."""


class ProxyFences:
    """The last proxy fences of every lane of a wave."""

    def __init__(self, clocks: VectorClocks) -> None:
        lanes = len(clocks.clock)
        self._clocks = clocks
        # Of the last two fences of each lane for each space, its clock then; -1 for none.
        self._fences: NDArray[np.int32] = np.full((2, 2, lanes), -1, dtype=np.int32)
        # Of the last one, also the floors of its CTA and warp and its knowledge then.
        self._seen: NDArray[np.int32] = np.zeros((2, 3, lanes), dtype=np.int32)

    def start_wave(self) -> None:
        """New threads, which have made no fence."""
        self._fences.fill(-1)
        self._seen.fill(0)

    def fence(self, lanes: Lanes, spaces: tuple[str, ...]) -> None:
        """`fence.proxy.async` by some lanes."""
        clocks = self._clocks
        clocks.settle(lanes)
        for space in spaces:
            number = SPACES.index(space)
            self._fences[number, 1][lanes] = self._fences[number, 0][lanes]
            self._fences[number, 0][lanes] = clocks.clock[lanes]
            floors = clocks.cta_floor[lanes // clocks.lanes_per_cta], clocks.warp_floor[lanes // WARP]
            for row, values in zip(self._seen[number], (*floors, clocks.known[lanes]), strict=True):
                row[lanes] = values
        clocks.clock[lanes] += 1

    def first_missing(
        self,
        history: AccessHistory,
        offsets: NDArray[np.int64],
        size: int,
        lanes: Lanes,
        space: str,
        plain: NDArray[np.bool_],
    ) -> tuple[int, int] | None:
        """Of what ``lanes`` read, ``size`` bytes each, the first place whose last write lacks a fence before the read.

        ``plain`` says of every instruction, by the number in its tags, whether it goes through the generic proxy.
        Returns the number of the access and the offset of the place, or None.
        """
        self._clocks.settle(lanes)
        number, offset = _first_missing(
            history.tables, history.shifts, history.displaced.headers, offsets, size, lanes, plain, *self._state(space)
        )
        return (number, offset) if number >= 0 else None

    def first_unfenced_read(
        self,
        history: AccessHistory,
        offsets: NDArray[np.int64],
        size: int,
        lanes: Lanes,
        space: str,
        suspect: NDArray[np.bool_],
    ) -> tuple[int, int, int] | None:
        """Of what bulk copies of ``lanes`` overwrite, the first place that was read without a fence before the copy.

        ``suspect`` says of every instruction, by the number in its tags, whether its reads count. Returns the number of
        the access, the offset of the place and the column of the read, or None.
        """
        self._clocks.settle(lanes)
        found = _first_unfenced_read(history.tables, history.shifts, offsets, size, lanes, suspect, *self._state(space))
        return found if found[0] >= 0 else None

    def _state(self, space: str) -> tuple[Any, ...]:
        clocks, number = self._clocks, SPACES.index(space)
        told = (clocks.first_thread, clocks.shape, clocks.starts, clocks.keys, clocks.values)
        now = (clocks.cta_floor, clocks.warp_floor, clocks.known)
        return self._fences[number], self._seen[number], now, told


@njit(cache=True)
def _knows(lane: int, thread: int, clock: int, cta_floor: int, warp_floor: int, known: int, told: Any) -> bool:
    """Does a lane, with these floors of its CTA and warp and this table, know that a thread is past ``clock``?"""
    first_thread, shape, starts, keys, values = told
    mine = first_thread + lane
    if mine // shape[0] == thread // shape[0] and clock < cta_floor:
        return True
    if mine // WARP == thread // WARP and clock < warp_floor:
        return True
    return published(thread, clock, known, shape, starts, keys, values)


@njit(cache=True)
def _missing(lane: int, thread: int, clock: int, fences: Any, seen: Any, now: Any, told: Any) -> bool:
    """Whether no fence stands between a write of ``thread`` (from 0) at ``clock`` and an operation of ``lane``.

    ``fences`` and ``seen`` are those of one space; ``now`` holds the floors of CTAs and warps, and what lanes know.
    """
    cta_floors, warp_floors, known = now
    cta_floor, warp_floor = cta_floors[lane // told[1][0]], warp_floors[lane // WARP]
    writer = thread - told[0]
    if 0 <= writer < fences.shape[1]:
        for number in range(2):
            fence = fences[number, writer]
            if fence >= clock and (
                writer == lane or _knows(lane, thread, fence, cta_floor, warp_floor, known[lane], told)
            ):
                return False
    if writer == lane or fences[0, lane] < 0:
        return True
    return not _knows(lane, thread, clock, seen[0, lane], seen[1, lane], seen[2, lane], told)


@njit(cache=True)
def _first_missing(
    tables: Any, shifts: Any, headers: Any, offsets: Any, size: int, lanes: Any, plain: Any, fences: Any, seen: Any,
    now: Any, told: Any,
) -> tuple[int, int]:  # fmt: skip
    """`ProxyFences.first_missing`; what has just been found right is not looked at again."""
    last_lane, last_thread, last_clock = -1, 0, 0
    for i in range(len(offsets)):
        shift, start, end = rows(shifts, offsets[i], size)
        table = tables[shift]
        for row in range(start + WRITE, end + WRITE, COLUMNS):
            thread, clock, tag = table[row], table[row + 1], table[row + 2]
            if thread <= 0 or not plain[write_tag(tag, headers) >> 2]:
                continue
            if lanes[i] == last_lane and thread == last_thread and clock == last_clock:
                continue
            if _missing(lanes[i], thread - 1, clock, fences, seen, now, told):
                return i, row // COLUMNS << shift
            last_lane, last_thread, last_clock = lanes[i], thread, clock
    return -1, 0


@njit(cache=True)
def _first_unfenced_read(
    tables: Any, shifts: Any, offsets: Any, size: int, lanes: Any, suspect: Any, fences: Any, seen: Any, now: Any,
    told: Any,
) -> tuple[int, int, int]:  # fmt: skip
    """`ProxyFences.first_unfenced_read`."""
    for i in range(len(offsets)):
        shift, start, end = rows(shifts, offsets[i], size)
        table = tables[shift]
        for row in range(start, end, COLUMNS):
            for column in (FIRST_READ, OTHER_READ):
                thread, clock, tag = table[row + column], table[row + column + 1], table[row + column + 2]
                if thread <= 0 or not suspect[tag >> 2]:
                    continue
                if _missing(lanes[i], thread - 1, clock, fences, seen, now, told):
                    return i, row // COLUMNS << shift, column
    return -1, 0, 0
