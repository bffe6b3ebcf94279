"""Keeps the last accesses to every location of a memory and compares each new access with them.

A place is a run of bytes as long as the shortest access to its page so far. Of each are kept its last write and two
reads since then (the first, and the last one from another warp): thread, clock and what the instruction was. This is
the scheme of FastTrack (Flanagan and Freund, PLDI 2009), with two readers in the place of a vector clock of all. What
strong writes displace without being a stand-in for it is kept beside the tables: see `displaced_accesses`.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from warptile.emulator.checks.displaced_accesses import (
    ANYWHERE,
    CLOCK,
    COPIES,
    ENTRY_TAG,
    FREE,
    FRESH_HEADER,
    KIND,
    NARROW,
    NARROW_CTA,
    RACES,
    READ,
    STRICT,
    TAG,
    UNFINISHED,
    UNSETTLED,
    WEAK,
    WEAK_ACCESSES,
    WIDE,
    WITHIN_CLUSTER,
    Displaced,
    copy_header,
    enter,
    finish_copy,
    first_race,
    free_header,
    free_list,
    has_room,
    length,
    new_header,
    observes,
)
from warptile.emulator.checks.knowledge import published
from warptile.emulator.checks.vector_clocks import VectorClocks
from warptile.emulator.lanes import WARP

WRITE, FIRST_READ, OTHER_READ = 0, 3, 6
"""Columns of a place at which its accesses start: thread (from 1; 0 is none; negative is an unfinished copy that the
thread issued), clock, and tag (number of the instruction times 4, plus its `strength`). The tag of a write that has
displaced accesses is minus their header's number; only the interpreter follows it."""
COLUMNS = 9

LOGGED = 1 << 30
"""A bit of the tag of a write: strong writes for all threads that it has displaced are in the log, or were when it was
replayed last."""

READING, WRITING, COPYING_FROM, COPYING_TO = range(4)
"""What an access does. A copy that has been issued reads and writes, and no thread knows it to be over, not even the
one that issued it, until that one has waited for it."""

LONGEST = 4
"""Logarithm of the bytes of the longest place: no access is longer."""

PAGE = 10
"""Logarithm of the bytes of a page, whose places are all equally long."""

Table = NDArray[np.int32]
Places = NDArray[np.int64]


class AccessHistory:
    """What has been done to ``size`` bytes, all of it by the threads that `clocks` knows.

    Args:
        size: in bytes.
        clocks: of the wave.
        within_cta: whether each byte is accessed by threads of one CTA only.

    Attributes:
        shifts: of each page, the logarithm of the bytes of its places.
        tables: for each such logarithm, `COLUMNS` numbers of every place one behind the other, whatever the page; those
            of other pages mean nothing. What was never used takes no memory.
        longest_used: one number: whether anything was ever entered into places of the longest kind.
        displaced: what strong writes have displaced.
    """

    def __init__(self, size: int, clocks: VectorClocks, *, within_cta: bool = False) -> None:
        self._clocks = clocks
        self._within_cta = within_cta
        self._other = np.zeros(4, dtype=np.int64)  # of the last conflict: thread, clock, tag and column
        self.displaced = Displaced()
        self.shifts = np.full(-(-size // (1 << PAGE)), LONGEST, dtype=np.int64)
        self.longest_used: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self.tables = tuple(self._table(shift) if shift == LONGEST else _NOTHING for shift in range(LONGEST + 1))

    def _table(self, shift: int) -> Table:
        return np.zeros((len(self.shifts) << PAGE >> shift) * COLUMNS, dtype=np.int32)

    def fit(self, offsets: Places, size: int) -> None:
        """Make places at which something of ``size`` bytes is accessed no longer than that."""
        shift = size.bit_length() - 1
        if shift == LONGEST:
            self.longest_used[0] = 1
            return
        pages = offsets >> PAGE
        too_long = self.shifts[pages] > shift
        if too_long.any():
            coarse = np.unique(pages[too_long])
            self.expect(shift)
            if not self.longest_used[0]:
                fresh = self.shifts[coarse] == LONGEST  # of such pages nothing is known that there would be to hand on
                self.shifts[coarse[fresh]] = shift
                coarse = coarse[~fresh]
            headers = self.displaced.used[FRESH_HEADER] > 1
            if headers:
                found = _headers(
                    self.tables, self.shifts, coarse, shift, self.displaced.headers, self.displaced.entries
                )
                self.displaced.make_room(*found)
            _refine(self.tables, self.shifts, coarse, shift)
            if headers:
                _share_headers(self.tables[shift], coarse, shift, *self.displaced.arrays)

    def expect(self, shift: int) -> None:
        """Make room for places of ``2**shift`` bytes."""
        if not len(self.tables[shift]):
            self.tables = (*self.tables[:shift], self._table(shift), *self.tables[shift + 1 :])

    def access(
        self,
        offsets: Places,
        size: int,
        lanes: NDArray[np.intp],
        doing: int,
        tag: int,
        unchecked: int = 0,
        observers: NDArray[np.bool_] | None = None,
    ) -> tuple[int, int, int, Table] | None:
        """Enter one access for each lane; None, or the first that nothing orders after an earlier one.

        Of that: its number, its offset, and the other access: its column and the three values there. The first
        ``unchecked`` accesses are entered whatever they conflict with: so to go on after a conflict. ``observers`` says
        of each instruction, by its number, whether this access waits for what it reads: then it lies behind the strong
        writes before that one, of the same place.
        """
        self.fit(offsets, size)
        clocks, displaced, done = self._clocks, self.displaced, 0
        if self._within_cta and tag & 3:
            tag |= ANYWHERE  # nobody else is there
        if tag & 3 == ANYWHERE and doing == WRITING and not unchecked:
            self.keep(tag, size, lanes, offsets, clocks.clock[lanes])
        observers = _NO_OBSERVERS if observers is None else observers
        while True:
            index, offset, why = _access(
                self.tables, self.shifts, offsets[done:], size, lanes[done:], doing, tag, max(0, unchecked - done),
                self._within_cta, len(displaced.log) > 0, observers, *displaced.arrays, self._other,
                clocks.first_thread, clocks.shape, clocks.clock, clocks.cta_floor, clocks.warp_floor, clocks.known,
                clocks.starts, clocks.keys, clocks.values,
            )  # fmt: skip
            if index < 0:
                return None
            index, done = done + index, done + index
            if why == _CONFLICT:
                return index, offset, int(self._other[3]), self._other[:3].astype(np.int32)
            if why == _LOGGED:
                self._replay()
            elif why == _NO_ROOM:
                places = (len(offsets) - done) * self._places(offsets[done:], size)
                displaced.make_room(places, 3 * places)
            else:
                clocks.settle(lanes[done : done + 1])

    def keep(self, tag: int, size: int, lanes: NDArray[np.intp], offsets: Places, clock: NDArray[np.int32]) -> None:
        """Log strong writes for all threads, which have been or are about to be entered."""
        self.displaced.keep(tag, size, self._clocks.first_thread, lanes, offsets, clock)
        if self.displaced.logged > LONGEST_LOG:
            self._replay()

    def _replay(self) -> None:
        """Enter what has been logged into the lists of its places."""
        displaced, clocks = self.displaced, self._clocks
        for tag, size, first_thread, lanes, offsets, clock in displaced.log:
            places = len(lanes) * self._places(offsets, size)
            displaced.make_room(places, places)
            _enter_logged(
                self.tables, self.shifts, offsets, size, lanes, tag, first_thread, clock, self._within_cta,
                clocks.cta_floor, clocks.lanes_per_cta, *displaced.arrays,
            )  # fmt: skip
        displaced.log.clear()
        displaced.logged = 0

    def write(self, offset: int) -> NDArray[np.int32]:
        """The last write (thread, clock, tag) of the place of a byte."""
        shift = self.shifts[offset >> PAGE]
        place = (offset >> shift) * COLUMNS + WRITE
        found: Table = self.tables[shift][place : place + 3]
        if 0 <= found[2] < LOGGED:
            return found
        return np.array([found[0], found[1], write_tag(found[2], self.displaced.headers)])

    def read(self, offset: int, column: int) -> NDArray[np.int32]:
        """A read (thread, clock, tag) of the place of a byte: `FIRST_READ` or `OTHER_READ`."""
        shift = self.shifts[offset >> PAGE]
        place = (offset >> shift) * COLUMNS + column
        found: Table = self.tables[shift][place : place + 3]
        return found

    def finish_copies(
        self, offsets: Places, size: int, lanes: NDArray[np.intp], tag: int, clock: NDArray[np.int32] | None = None
    ) -> None:
        """The lanes' own copies are over: from now on their accesses are like any other, made at ``clock`` (now)."""
        clock = self._clocks.clock if clock is None else clock
        first_thread, displaced = self._clocks.first_thread, self.displaced
        if self._within_cta and tag & 3:
            tag |= ANYWHERE
        wrote = np.zeros(len(lanes), dtype=np.bool_)
        _finish(self.tables, self.shifts, displaced.headers, offsets, size, lanes, tag, first_thread, clock, wrote)
        if tag & 3 == ANYWHERE and wrote.any():
            displaced.keep(tag, size, first_thread, lanes[wrote], offsets[wrote], clock[lanes[wrote]])
        if tag & 3 and displaced.used[FRESH_HEADER] > 1:
            displaced.make_room(0, len(offsets) * self._places(offsets, size))
            _finish_displaced(
                self.tables, self.shifts, offsets, size, lanes, tag, first_thread, clock, self._clocks.lanes_per_cta,
                *displaced.arrays,
            )  # fmt: skip

    def _places(self, offsets: Places, size: int) -> int:
        """How many places an access has at most."""
        return max(1, size >> int(self.shifts[offsets >> PAGE].min()))


_NOTHING: Table = np.zeros(0, dtype=np.int32)
_NO_OBSERVERS = np.zeros(0, dtype=np.bool_)


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
def _headers(tables: Any, shifts: Any, pages: Any, shift: int, headers: Any, entries: Any) -> tuple[int, int]:
    """How many headers and entries `_share_headers` makes of some pages."""
    more, filled = 0, 0
    for page in pages:
        old = shifts[page]
        for place in range(page << PAGE >> old, (page + 1) << PAGE >> old):
            tag = tables[old][place * COLUMNS + WRITE + 2]
            if tag < 0:
                more += (1 << old - shift) - 1
                filled += ((1 << old - shift) - 1) * length(headers, entries, -tag)
    return more, filled


@numba.njit(cache=True)
def _share_headers(table: Any, pages: Any, shift: int, headers: Any, entries: Any, used: Any) -> None:
    """Give each place of some pages a header of its own, of which neighbours have the same."""
    for page in pages:
        last = 0
        for place in range(page << PAGE >> shift, (page + 1) << PAGE >> shift):
            tag = table[place * COLUMNS + WRITE + 2]
            if tag < 0 and tag == last:
                table[place * COLUMNS + WRITE + 2] = -copy_header(headers, entries, used, -tag)
            last = tag


@numba.njit(cache=True)
def rows(shifts: Any, offset: int, size: int) -> tuple[int, int, int]:
    """Where in which table the places of an access start and end: the table's number and two indices."""
    shift = shifts[offset >> PAGE]
    return shift, (offset >> shift) * COLUMNS, ((offset + size) >> shift) * COLUMNS


@numba.njit(cache=True)
def write_tag(held: int, headers: Any) -> int:
    """The tag of a write, of which a place holds this."""
    return (headers[-held, TAG] if held < 0 else held) & (LOGGED - 1)


@numba.njit(cache=True)
def _tells(memo: Any, thread: int, clock: int, table: int, shape: Any, starts: Any, keys: Any, values: Any) -> bool:
    """`published`, which remembers the last question and its answer: neighbouring places often have one past."""
    if memo[0] != thread or memo[1] != clock or memo[2] != table:
        memo[0], memo[1], memo[2] = thread, clock, table
        memo[3] = published(thread, clock, table, shape, starts, keys, values)
    return bool(memo[3] != 0)


@numba.njit(cache=True)
def _observed(
    table: Any, row: int, me: int, observers: Any, cta_first: int, cta_end: int, passed: int, warp_first: int,
    warp_passed: int, known: int, shape: Any, starts: Any, keys: Any, values: Any,
) -> bool:  # fmt: skip
    """Whether a strong read of a place's last write lies before thread ``me`` (from 1): its own, or one that it is
    ordered after. Then so do that write and the strong ones before it (see `checks.deciding_reads`)."""
    for column in (FIRST_READ, OTHER_READ):
        other, since = table[row + column], table[row + column + 1]
        if other <= 0 or not observes(table[row + column + 2], observers):
            continue
        if other == me or published(other - 1, since, max(0, known), shape, starts, keys, values):
            return True
        if cta_first <= other < cta_end and (
            since < passed or (since < warp_passed and warp_first <= other < warp_first + WARP)
        ):
            return True
    return False


@numba.njit(cache=True)
def _finish(
    tables: Any, shifts: Any, headers: Any, offsets: Any, size: int, lanes: Any, tag: int, first_thread: int,
    clock: Any, wrote: Any,
) -> None:  # fmt: skip
    """Turn what unfinished copies of these lanes have entered into accesses at the lanes' ``clock``.

    Which of them were the last write of a place is noted in ``wrote``.
    """
    for i in range(len(offsets)):
        thread = first_thread + lanes[i] + 1
        shift, start, end = rows(shifts, offsets[i], size)
        table = tables[shift]
        for column in range(start, end, 3):
            if table[column] != -thread:
                continue
            held = table[column + 2]
            if write_tag(held, headers) == tag:
                table[column] = thread
                table[column + 1] = clock[lanes[i]]
                wrote[i] |= (column - start) % COLUMNS == WRITE


@numba.njit(cache=True)
def _finish_displaced(
    tables: Any, shifts: Any, offsets: Any, size: int, lanes: Any, tag: int, first_thread: int, clock: Any,
    lanes_per_cta: int, headers: Any, entries: Any, used: Any,
) -> None:  # fmt: skip
    """`_finish`, of what has been displaced."""
    for i in range(len(offsets)):
        thread = first_thread + lanes[i]
        shift, start, end = rows(shifts, offsets[i], size)
        for row in range(start, end, COLUMNS):
            header = -tables[shift][row + WRITE + 2]
            if header > 0 and headers[header, COPIES]:
                finish_copy(headers, entries, used, header, thread, clock[lanes[i]], tag, lanes_per_cta)


@numba.njit(cache=True)
def _enter_logged(
    tables: Any, shifts: Any, offsets: Any, size: int, lanes: Any, tag: int, first_thread: int, clock: Any,
    within_cta: bool, cta_floor: Any, lanes_per_cta: int, headers: Any, entries: Any, used: Any,
) -> None:  # fmt: skip
    """Enter strong writes for all threads, unless a weak write or a barrier has made up for them."""
    for i in range(len(offsets)):
        shift, start, end = rows(shifts, offsets[i], size)
        table = tables[shift]
        over = within_cta and clock[i] < cta_floor[lanes[i] // lanes_per_cta]
        for row in range(start, end, COLUMNS):
            held = table[row + WRITE + 2]
            its_tag = write_tag(held, headers)
            if held >= 0:
                table[row + WRITE + 2] = its_tag
            else:
                headers[-held, TAG] = its_tag
            if over or its_tag & 3 == WEAK:
                continue
            if held >= 0:
                held = -new_header(headers, used, its_tag)
                table[row + WRITE + 2] = held
            enter(headers, entries, used, -held, first_thread + lanes[i], clock[i], tag, 0, lanes_per_cta)


_CONFLICT, _UNSETTLED, _NO_ROOM, _LOGGED = range(4)
"""Why `_access` ends before the last access: a conflict; what the lane knows must be settled first; more may be
displaced than there is room for; the log must be replayed."""

LONGEST_LOG = 1 << 22
"""Accesses that are logged before they are entered, which takes as long as to make them."""


@numba.njit(cache=True)
def _displace(
    table: Any, row: int, me: int, strength: int, unchecked: bool, within_cta: bool, cta_first: int, cta_end: int,
    passed: int, warp_first: int, warp_passed: int, lanes_per_cta: int, headers: Any, entries: Any, used: Any,
) -> bool:  # fmt: skip
    """Keep what a strong write displaces and does not stand for; False if there is no room for it.

    What has been reported to race with it (``unchecked``) is not kept, lest all that follows be reported too.
    """
    if not has_room(headers, entries, used):
        return False
    held = table[row + WRITE + 2]
    header = -held if held < 0 else 0
    if header and unchecked:
        for word in range(9):
            headers[header, WEAK_ACCESSES + word] = 0
        free_list(entries, used, headers[header, NARROW])
        headers[header, NARROW] = headers[header, NARROW_CTA] = headers[header, STRICT] = 0
    fresh_reads = False
    for column in (WRITE, FIRST_READ, OTHER_READ):
        other = table[row + column]
        if other == 0:
            continue
        since, tag = table[row + column + 1], write_tag(table[row + column + 2], headers)
        if other == me or cta_first <= other < cta_end:
            known = since < passed or (since < warp_passed and warp_first <= other < warp_first + WARP)
            if (within_cta and since < passed) or ((other == me or known) and tag & 3 >= strength):
                continue  # the new one stands for it
        if unchecked and tag & 3 != ANYWHERE:
            continue
        if not header:
            header = new_header(headers, used, held)
            table[row + WRITE + 2] = -header
        if column == WRITE and tag & 3 == ANYWHERE and other > 0:
            headers[header, TAG] |= LOGGED
            continue
        if tag & 3 != ANYWHERE:
            headers[header, STRICT] = 1
        if tag & 3 != WEAK:
            kind = (READ if column != WRITE else 0) | (UNFINISHED if other < 0 else 0)
            enter(headers, entries, used, header, abs(other) - 1, since, tag, kind, lanes_per_cta)
            continue
        if column != WRITE and not fresh_reads:
            fresh_reads = True
            headers[header, WEAK_ACCESSES + FIRST_READ] = headers[header, WEAK_ACCESSES + OTHER_READ] = 0
        headers[header, WEAK_ACCESSES + column] = other
        headers[header, WEAK_ACCESSES + column + 1] = since
        headers[header, WEAK_ACCESSES + column + 2] = tag
    return True


@numba.njit(cache=True)
def _access(
    tables: Any, shifts: Any, offsets: Any, size: int, lanes: Any, doing: int, tag: int, unchecked: int,
    within_cta: bool, logs: bool, observers: Any, headers: Any, entries: Any, used: Any, conflict: Any,
    first_thread: int, shape: Any, clock: Any, cta_floor: Any, warp_floor: Any, known: Any, starts: Any, keys: Any,
    values: Any,
) -> tuple[int, int, int]:  # fmt: skip
    """Enter accesses one after the other; -1, or of the first that cannot be entered the number, the offset, and why.

    Of a conflict, what it is with is noted in ``conflict``. Threads are counted from 1 here, so that 0 is none.
    """
    lanes_per_cta, _, lanes_per_cluster = shape
    strength = tag & 3
    reading = doing in (READING, COPYING_FROM)
    atomic = strength == ANYWHERE and not reading  # after another such write, all that there is to do is to log that
    sign = -1 if doing >= COPYING_FROM else 1
    held_columns = FIRST_READ if reading else COLUMNS  # a read conflicts with the write only
    cta_first = cta_end = passed = 0
    memos = np.full((7, 4), -1, dtype=np.int64)  # of the three accesses of a place, weak ones displaced, the first read
    cleared = by_cta = by_table = 0  # a header whose lists mean nothing to weak reads of a CTA that know as much
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
            held = table[row + WRITE + 2]
            header = -held if held < 0 else 0
            if within_cta and (header or held >= LOGGED) and table[row] > 0 and table[row + 1] < passed:
                # All that has been displaced was there before the write, and so lies behind the same barrier.
                copies = header and headers[header, COPIES]
                if header and not copies:
                    free_header(headers, entries, used, header)
                if not copies:
                    held = table[row + WRITE + 2] = write_tag(held, headers)
                    header = 0
            unread = table[row + FIRST_READ] == 0 and table[row + OTHER_READ] == 0
            if atomic and unread and header == 0 and held & 3 == ANYWHERE and table[row] > 0:
                other, since = table[row], table[row + 1]
                behind = cta_first <= other < cta_end and (
                    since < passed or (since < warp_passed and warp_first <= other < warp_first + WARP)
                )
                if other != me and not behind:
                    held |= LOGGED
                table[row] = sign * me
                table[row + 1] = now
                table[row + 2] = tag | (held & LOGGED)
                continue
            for column in range(0, held_columns, 3):
                other = table[row + column]
                if other == 0 or other == me or i < unchecked:
                    continue
                near = cta_first <= other < cta_end
                since = table[row + column + 1]
                if near and (since < passed or (since < warp_passed and warp_first <= other < warp_first + WARP)):
                    continue
                its_tag = write_tag(table[row + column + 2], headers)
                allies = min(strength, its_tag & 3)
                if allies == ANYWHERE or (allies and near):
                    continue
                if allies == WITHIN_CLUSTER and (abs(other) - 1) // lanes_per_cluster == (me - 1) // lanes_per_cluster:
                    continue
                if other > 0 and known[lane] < 0:
                    return i, 0, _UNSETTLED
                if other < 0 or not _tells(
                    memos[column // 3], other - 1, since, known[lane], shape, starts, keys, values
                ):
                    if column == WRITE and its_tag & 3 == ANYWHERE and other > 0 and _observed(
                        table, row, me, observers, cta_first, cta_end, passed, warp_first, warp_passed, known[lane],
                        shape, starts, keys, values,
                    ):  # fmt: skip
                        continue
                    conflict[0], conflict[1], conflict[2], conflict[3] = other, since, its_tag, column
                    return i, row // COLUMNS << shift, _CONFLICT
            if (
                logs
                and strength != ANYWHERE
                and i >= unchecked
                and (headers[header, TAG] if header else held) >= LOGGED
            ):
                return i, 0, _LOGGED
            if header and i >= unchecked and (strength != ANYWHERE or headers[header, STRICT]):
                # What an atomic of a long chain knows takes long to settle. It has acquired from atomics that were
                # ordered after the weak accesses, and so mostly is ordered after them itself.
                for column in range(0, held_columns if known[lane] >= 0 or not strength else 0, 3):
                    other = headers[header, WEAK_ACCESSES + column]
                    if other == 0 or other == me:
                        continue
                    since = headers[header, WEAK_ACCESSES + column + 1]
                    if cta_first <= other < cta_end and (
                        since < passed or (since < warp_passed and warp_first <= other < warp_first + WARP)
                    ):
                        continue
                    if known[lane] < 0:
                        return i, 0, _UNSETTLED
                    if not _tells(memos[3 + column // 3], other - 1, since, known[lane], shape, starts, keys, values):
                        conflict[0], conflict[1], conflict[3] = other, since, column
                        conflict[2] = headers[header, WEAK_ACCESSES + column + 2]
                        return i, row // COLUMNS << shift, _CONFLICT
                ours = (cta_first - 1) // lanes_per_cta + 1
                chains = 1 if strength == ANYWHERE else 2  # narrow entries, then wide ones
                if strength != WEAK and headers[header, NARROW_CTA] == ours and chains == 1:
                    chains = 0
                if reading and strength == WEAK and cleared == header and by_cta == ours and by_table == known[lane]:
                    chains = 0
                meaning = FREE
                for number in range(chains):
                    last = headers[header, WIDE if number else NARROW]
                    means, entry, other = first_race(
                        entries, last, me, reading, strength, observers, False, cta_first, cta_end, passed, warp_passed,
                        known[lane], shape, starts, keys, values,
                    )  # fmt: skip
                    if means == RACES and number and _observed(
                        table, row, me, observers, cta_first, cta_end, passed, warp_first, warp_passed, known[lane],
                        shape, starts, keys, values,
                    ):  # fmt: skip
                        means, entry, other = first_race(
                            entries, last, me, reading, strength, observers, True, cta_first, cta_end, passed,
                            warp_passed, known[lane], shape, starts, keys, values,
                        )  # fmt: skip
                    if means == UNSETTLED:
                        return i, 0, _UNSETTLED
                    if means == RACES:
                        conflict[0], conflict[1], conflict[2] = other, entries[entry, CLOCK], entries[entry, ENTRY_TAG]
                        conflict[3] = FIRST_READ if entries[entry, KIND] & READ else WRITE
                        return i, row // COLUMNS << shift, _CONFLICT
                    meaning = max(meaning, means)
                if chains == 2 and meaning == FREE:
                    cleared, by_cta, by_table = header, ours, known[lane]
            column = row + WRITE if not reading else row + FIRST_READ
            first = table[column]
            if reading and first not in (0, me):
                since = table[column + 1]
                near = cta_first <= first < cta_end
                behind = near and (since < passed or (since < warp_passed and warp_first <= first < warp_first + WARP))
                if not behind and first > 0 and known[lane] < 0:
                    return i, 0, _UNSETTLED
                if not behind and (
                    first < 0 or not _tells(memos[6], first - 1, since, known[lane], shape, starts, keys, values)
                ):
                    column = row + OTHER_READ
                    other = table[column]
                    mine = warp_first <= first < warp_first + WARP
                    if mine and other not in (0, me) and not warp_first <= other < warp_first + WARP:
                        continue
            its_tag = write_tag(table[column + 2], headers)
            # who does not know of the weaker access does not know of this one either, unless it is a copy
            stays = table[column] == me and table[column + 1] == now and its_tag & 3 < strength and sign > 0
            logged = 0
            if not reading:
                if strength == WEAK:
                    if header:
                        free_header(headers, entries, used, header)
                        table[row + WRITE + 2] = 0
                elif not stays:
                    other, since = table[row], table[row + 1]
                    if unread and other >= 0:
                        near = cta_first <= other < cta_end
                        behind = near and (
                            since < passed or (since < warp_passed and warp_first <= other < warp_first + WARP)
                        )
                        stands = other == 0 or ((other == me or behind) and its_tag & 3 >= strength)
                        stands = stands or (within_cta and since < passed)
                        if not stands and its_tag & 3 == ANYWHERE:
                            logged = LOGGED
                    else:
                        stands = False
                    if not stands and not logged and not _displace(
                        table, row, me, strength, i < unchecked, within_cta, cta_first, cta_end, passed, warp_first,
                        warp_passed, lanes_per_cta, headers, entries, used,
                    ):  # fmt: skip
                        return i, 0, _NO_ROOM
                    held = table[row + WRITE + 2]
                    if held >= 0:
                        logged |= held & LOGGED
                table[row + FIRST_READ] = 0
                table[row + OTHER_READ] = 0
            if stays:
                continue
            table[column] = sign * me
            table[column + 1] = now
            if not reading and table[column + 2] < 0:
                header = -table[column + 2]
                headers[header, TAG] = tag | logged | headers[header, TAG] & LOGGED
            else:
                table[column + 2] = tag | logged
    return -1, 0, 0
