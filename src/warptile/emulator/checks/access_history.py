"""Keeps the last accesses to every location of a memory and compares each new access with them.

A place is a run of bytes as long as the shortest access to its page so far. Of each are kept its last write and two
reads since then (the first, and the last one from another warp): thread, clock and what the instruction was. This is
the scheme of FastTrack (Flanagan and Freund, PLDI 2009), with two readers in the place of a vector clock of all.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from warptile.emulator.checks.vector_clocks import VectorClocks
from warptile.emulator.lanes import WARP

WRITE, FIRST_READ, OTHER_READ = 0, 3, 6
"""Columns of a place at which its accesses start: thread (from 1; 0 is none; negative is an unfinished copy that the
thread issued), clock, and tag (number of the instruction times 4, plus its `strength`)."""
COLUMNS = 9

READING, WRITING, COPYING_FROM, COPYING_TO = range(4)
"""What an access does. A copy that has been issued reads and writes, and no thread knows it to be over, not even the
one that issued it, until that one has waited for it."""

WEAK, WITHIN_CTA, WITHIN_CLUSTER, ANYWHERE = range(4)
"""Strength of an access: plain, or atomic (volatile, relaxed, ...) for threads of the CTA, the cluster, or all."""

LONGEST = 4
"""Logarithm of the bytes of the longest place: no access is longer."""

PAGE = 10
"""Logarithm of the bytes of a page, whose places are all equally long."""

Table = NDArray[np.int32]
Places = NDArray[np.int64]


class AccessHistory:
    """What has been done to ``size`` bytes, all of it by the threads that `clocks` knows.

    Attributes:
        shifts: of each page, the logarithm of the bytes of its places.
        tables: for each such logarithm, `COLUMNS` numbers of every place one behind the other, whatever the page; those
            of other pages mean nothing. What was never used takes no memory.
    """

    def __init__(self, size: int, clocks: VectorClocks) -> None:
        self._clocks = clocks
        self.shifts = np.full(-(-size // (1 << PAGE)), LONGEST, dtype=np.int64)
        self.tables = tuple(self._table(shift) if shift == LONGEST else _NOTHING for shift in range(LONGEST + 1))

    def _table(self, shift: int) -> Table:
        return np.zeros((len(self.shifts) << PAGE >> shift) * COLUMNS, dtype=np.int32)

    def fit(self, offsets: Places, size: int) -> None:
        """Make places at which something of ``size`` bytes is accessed no longer than that."""
        shift = size.bit_length() - 1
        if shift == LONGEST:
            return
        pages = offsets >> PAGE
        coarse = np.unique(pages[self.shifts[pages] > shift])
        if len(coarse):
            self.expect(shift)
            _refine(self.tables, self.shifts, coarse, shift)

    def expect(self, shift: int) -> None:
        """Make room for places of ``2**shift`` bytes."""
        if not len(self.tables[shift]):
            self.tables = (*self.tables[:shift], self._table(shift), *self.tables[shift + 1 :])

    def access(
        self, offsets: Places, size: int, lanes: NDArray[np.intp], doing: int, tag: int, unchecked: int = 0
    ) -> tuple[int, int, int, Table] | None:
        """Enter one access for each lane; None, or the first that nothing orders after an earlier one.

        Of that: its number, its offset, and the other access: its column and the three values there. The first
        ``unchecked`` accesses are entered whatever they conflict with: so to go on after a conflict.
        """
        self.fit(offsets, size)
        clocks, done = self._clocks, 0
        while True:
            index, offset, column = _access(
                self.tables, self.shifts, offsets[done:], size, lanes[done:], doing, tag, max(0, unchecked - done),
                clocks.first_thread, clocks.shape, clocks.clock, clocks.cta_floor, clocks.warp_floor, clocks.known,
                clocks.starts, clocks.keys, clocks.values,
            )  # fmt: skip
            if index < 0:
                return None
            index, done = done + index, done + index
            if column >= 0:
                break
            clocks.settle(lanes[done : done + 1])
        shift = self.shifts[offset >> PAGE]
        place = (offset >> shift) * COLUMNS + column
        return index, offset, column, self.tables[shift][place : place + 3].copy()

    def write(self, offset: int) -> Table:
        """The last write (thread, clock, tag) of the place of a byte."""
        shift = self.shifts[offset >> PAGE]
        place = (offset >> shift) * COLUMNS + WRITE
        found: Table = self.tables[shift][place : place + 3]
        return found

    def finish_copies(
        self, offsets: Places, size: int, lanes: NDArray[np.intp], tag: int, clock: NDArray[np.int32] | None = None
    ) -> None:
        """The lanes' own copies are over: from now on their accesses are like any other, made at ``clock`` (now)."""
        clock = self._clocks.clock if clock is None else clock
        _finish(self.tables, self.shifts, offsets, size, lanes, tag, self._clocks.first_thread, clock)


_NOTHING: Table = np.zeros(0, dtype=np.int32)


@numba.njit(cache=True)
def _refine(tables: Any, shifts: Any, pages: Any, shift: int) -> None:
    """Make places of some pages shorter; each gets what was known of the longer one."""
    for page in pages:
        old, new, parts = tables[shifts[page]], tables[shift], 1 << shifts[page] - shift
        for place in range(page << PAGE >> shift, (page + 1) << PAGE >> shift):
            for column in range(COLUMNS):
                new[place * COLUMNS + column] = old[place // parts * COLUMNS + column]
        shifts[page] = shift


@numba.njit(cache=True)
def rows(shifts: Any, offset: int, size: int) -> tuple[int, int, int]:
    """Where in which table the places of an access start and end: the table's number and two indices."""
    shift = shifts[offset >> PAGE]
    return shift, (offset >> shift) * COLUMNS, ((offset + size) >> shift) * COLUMNS


@numba.njit(cache=True)
def _search(keys: Any, values: Any, low: int, high: int, key: int) -> int:
    """The value of ``key`` in a sorted range, or 0."""
    end = high
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return values[low] if low < end and keys[low] == key else 0


@numba.njit(cache=True)
def published(
    thread: int, clock: int, table: int, shape: Any, starts: Any, keys: Any, values: Any
) -> bool:  # fmt: skip
    """Does a table of knowledge say that ``thread`` (from 0) is past ``clock``?"""
    if table == 0:
        return False
    lanes_per_cta, stride, _ = shape
    low, high = starts[table], starts[table + 1]
    base, inner = thread // lanes_per_cta * stride, thread % lanes_per_cta
    if clock < _search(keys, values, low, high, base):
        return True
    if clock < _search(keys, values, low, high, base + 1 + inner // WARP):
        return True
    last = _search(keys, values, low, high, base + 1 + lanes_per_cta // WARP + inner)
    return bool(clock < last)


@numba.njit(cache=True)
def _tells(memo: Any, thread: int, clock: int, table: int, shape: Any, starts: Any, keys: Any, values: Any) -> bool:
    """`published`, which remembers the last question and its answer: neighbouring places often have one past."""
    if memo[0] != thread or memo[1] != clock or memo[2] != table:
        memo[0], memo[1], memo[2] = thread, clock, table
        memo[3] = published(thread, clock, table, shape, starts, keys, values)
    return bool(memo[3] != 0)


@numba.njit(cache=True)
def _finish(
    tables: Any, shifts: Any, offsets: Any, size: int, lanes: Any, tag: int, first_thread: int, clock: Any
) -> None:
    """Turn what unfinished copies of these lanes have entered into accesses at the lanes' ``clock``."""
    for i in range(len(offsets)):
        thread = first_thread + lanes[i] + 1
        shift, start, end = rows(shifts, offsets[i], size)
        table = tables[shift]
        for column in range(start, end, 3):
            if table[column] == -thread and table[column + 2] == tag:
                table[column] = thread
                table[column + 1] = clock[lanes[i]]


@numba.njit(cache=True)
def _access(
    tables: Any, shifts: Any, offsets: Any, size: int, lanes: Any, doing: int, tag: int, unchecked: int,
    first_thread: int, shape: Any, clock: Any, cta_floor: Any, warp_floor: Any, known: Any, starts: Any, keys: Any,
    values: Any,
) -> tuple[int, int, int]:  # fmt: skip
    """Enter accesses one after the other; -1, or of the first conflict: the number, the offset, and the column.

    The column is -1 if that cannot be told before what the lane knows is settled.

    Threads are counted from 1 here, so that 0 is none.
    """
    lanes_per_cta, _, lanes_per_cluster = shape
    strength = tag & 3
    reading = doing in (READING, COPYING_FROM)
    sign = -1 if doing >= COPYING_FROM else 1
    held_columns = FIRST_READ if reading else COLUMNS  # a read conflicts with the write only
    cta_first = cta_end = passed = 0
    memos = np.full((4, 4), -1, dtype=np.int64)  # of the three accesses that a place has, and of the first read again
    for i in range(len(offsets)):
        lane = lanes[i]
        me = first_thread + lane + 1
        now = clock[lane]
        if not cta_first <= me < cta_end:
            cta = lane // lanes_per_cta
            cta_first = first_thread + cta * lanes_per_cta + 1
            cta_end = cta_first + lanes_per_cta
            passed = cta_floor[cta]
        warp = lane // WARP
        warp_first = first_thread + warp * WARP + 1
        warp_passed = warp_floor[warp]
        shift, start, end = rows(shifts, offsets[i], size)
        table = tables[shift]
        for row in range(start, end, COLUMNS):
            for column in range(0, held_columns, 3):
                other = table[row + column]
                if other == 0 or other == me or i < unchecked:
                    continue
                near = cta_first <= other < cta_end
                since = table[row + column + 1]
                if near and (since < passed or (since < warp_passed and warp_first <= other < warp_first + WARP)):
                    continue
                allies = min(strength, table[row + column + 2] & 3)
                if allies == ANYWHERE or (allies and near):
                    continue
                if allies == WITHIN_CLUSTER and (abs(other) - 1) // lanes_per_cluster == (me - 1) // lanes_per_cluster:
                    continue
                if other > 0 and known[lane] < 0:
                    return i, 0, -1
                if other < 0 or not _tells(
                    memos[column // 3], other - 1, since, known[lane], shape, starts, keys, values
                ):
                    return i, row // COLUMNS << shift, column
            column = row + WRITE if not reading else row + FIRST_READ
            held = table[column]
            if reading and held not in (0, me):
                since = table[column + 1]
                near = cta_first <= held < cta_end
                behind = near and (since < passed or (since < warp_passed and warp_first <= held < warp_first + WARP))
                if not behind and held > 0 and known[lane] < 0:
                    return i, 0, -1
                if not behind and (
                    held < 0 or not _tells(memos[3], held - 1, since, known[lane], shape, starts, keys, values)
                ):
                    column = row + OTHER_READ
                    other = table[column]
                    mine = warp_first <= held < warp_first + WARP
                    if mine and other not in (0, me) and not warp_first <= other < warp_first + WARP:
                        continue
            if not reading:
                table[row + FIRST_READ] = 0
                table[row + OTHER_READ] = 0
            if table[column] == me and table[column + 1] == now and table[column + 2] & 3 < strength:
                continue  # who does not know of the weak access does not know of this one either
            table[column] = sign * me
            table[column + 1] = now
            table[column + 2] = tag
    return -1, 0, 0
