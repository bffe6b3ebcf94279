"""Keeps the accesses to a place that strong writes have displaced although later accesses may still race with them.

Atomics of several threads do not race with each other, so nothing orders them, and the last of them says nothing about
the others. A weak write is ordered after all accesses before it, or races, and stands for them from then on. A place
that strong writes have changed since has a *header*:

- the last weak write and two weak reads, which the first strong write was ordered after, but others may not be;
- a list of strong accesses for all threads (*wide*), which are looked at by weak accesses, and by strong ones of a
  narrower scope;
- a list of strong accesses for threads of a CTA or a cluster (*narrow*), which every thread of another CTA looks at.

Most words that atomics change are accessed by atomics alone. So strong writes for all threads are only logged, until an
access has to be compared with them; then all of them are entered into the lists of their places, each in constant time,
however many came before. An entry stands for lanes of one warp that have one clock. Once a list has doubled, lanes that
later entries have too are dropped from it, so that it is no longer than there are threads, and mostly warps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from warptile.emulator.checks.knowledge import first_unpublished
from warptile.emulator.lanes import WARP

WEAK, WITHIN_CTA, WITHIN_CLUSTER, ANYWHERE = range(4)
"""Strength of an access: plain, or atomic (volatile, relaxed, ...) for threads of the CTA, the cluster, or all."""

WIDE, NARROW, WIDE_LEFT, NARROW_LEFT, NARROW_CTA, STRICT, COPIES, TAG, WEAK_ACCESSES = range(9)
"""Words of a header: the last entry of each list; how many more each gets before it is looked through; the CTA of all
narrow entries, from 1 (0 is none, negative several); whether there are narrow entries or weak accesses; whether copies
have been displaced; the tag of the write that the place holds; columns of the place for weak accesses."""

HEADER_WORDS = WEAK_ACCESSES + 9

NEXT, WARP_NUMBER, CLOCK, ENTRY_TAG, LANES, KIND, ENTRY_WORDS = range(7)
"""Words of an entry: the one before it in its list, the warp in the grid, clock, tag, mask of lanes, and what it is."""

READ, UNFINISHED = 1, 2
"""Bits of the kind of an entry: a read; a copy that nobody has waited for."""

FRESH_HEADER, FREED_HEADER, FRESH_ENTRY, FREED_ENTRY = range(4)
"""Words that say what is in use: the first header that never was, and the last that is not any more; so for entries."""

FREE, FREE_FOR_LANE, RACES, UNSETTLED = range(4)
"""What an entry means for an access: nothing to it nor to others of its CTA that know the same; nothing to this one;
a race; or that cannot be told before what the lane knows is settled."""

_FEWEST = 32
"""Entries that a list gets at least before it is looked through."""


@dataclass
class Displaced:
    """The headers and entries of one history. Number 0 of either is none.

    Attributes:
        log: strong writes for all threads that are not entered yet, in the order in which they were made: tag, bytes,
            the thread in lane 0, and of each lane its number, the offset and its clock.
        logged: how many they are.
    """

    headers: NDArray[np.int32] = field(default_factory=lambda: np.zeros((1, HEADER_WORDS), dtype=np.int32))
    entries: NDArray[np.int32] = field(default_factory=lambda: np.zeros((1, ENTRY_WORDS), dtype=np.int32))
    used: NDArray[np.int64] = field(default_factory=lambda: np.array([1, 0, 1, 0]))
    log: list[tuple[int, int, int, NDArray[np.intp], NDArray[np.int64], NDArray[np.int32]]] = field(
        default_factory=list
    )
    logged: int = 0

    def keep(
        self,
        tag: int,
        size: int,
        first_thread: int,
        lanes: NDArray[np.intp],
        offsets: NDArray[np.int64],
        clock: NDArray[np.int32],
    ) -> None:
        """Log strong writes."""
        self.log.append((tag, size, first_thread, lanes, offsets, clock))
        self.logged += len(lanes)

    @property
    def arrays(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
        """Headers, entries, and what is in use of them."""
        return self.headers, self.entries, self.used

    def make_room(self, headers: int, entries: int) -> None:
        """Make room for so many more, whatever has been freed."""
        self.headers = _grown(self.headers, int(self.used[FRESH_HEADER]) + headers)
        self.entries = _grown(self.entries, int(self.used[FRESH_ENTRY]) + entries)


def _grown(table: NDArray[np.int32], length: int) -> NDArray[np.int32]:
    if length <= len(table):
        return table
    grown = np.zeros((2 * length, table.shape[1]), dtype=np.int32)
    grown[: len(table)] = table
    return grown


@numba.njit(cache=True)
def has_room(headers: Any, entries: Any, used: Any) -> bool:
    """Whether the accesses of one more place can be entered."""
    return bool(used[FRESH_HEADER] < len(headers) and used[FRESH_ENTRY] + 3 <= len(entries))


@numba.njit(cache=True)
def new_header(headers: Any, used: Any, tag: int) -> int:
    """The header of a place whose last write has ``tag``."""
    header: int = used[FREED_HEADER]
    if header:
        used[FREED_HEADER] = headers[header, WIDE]
    else:
        header = used[FRESH_HEADER]
        used[FRESH_HEADER] = header + 1
    for word in range(HEADER_WORDS):
        headers[header, word] = 0
    headers[header, WIDE_LEFT] = _FEWEST
    headers[header, NARROW_LEFT] = _FEWEST
    headers[header, TAG] = tag
    return header


@numba.njit(cache=True)
def free_header(headers: Any, entries: Any, used: Any, header: int) -> None:
    """Forget what a place has displaced."""
    free_list(entries, used, headers[header, WIDE])
    free_list(entries, used, headers[header, NARROW])
    headers[header, WIDE] = used[FREED_HEADER]
    used[FREED_HEADER] = header


@numba.njit(cache=True)
def free_list(entries: Any, used: Any, entry: int) -> None:
    """Forget a list."""
    while entry:
        following = entries[entry, NEXT]
        entries[entry, NEXT] = used[FREED_ENTRY]
        used[FREED_ENTRY] = entry
        entry = following


@numba.njit(cache=True)
def _new_entry(entries: Any, used: Any) -> int:
    entry: int = used[FREED_ENTRY]
    if entry:
        used[FREED_ENTRY] = entries[entry, NEXT]
    else:
        entry = used[FRESH_ENTRY]
        used[FRESH_ENTRY] = entry + 1
    return entry


@numba.njit(cache=True)
def enter(
    headers: Any, entries: Any, used: Any, header: int, thread: int, clock: int, tag: int, kind: int, lanes_per_cta: int
) -> None:  # fmt: skip
    """Enter a strong access of ``thread`` (from 0)."""
    chain = WIDE if tag & 3 == ANYWHERE else NARROW
    last, warp, lane = headers[header, chain], thread // WARP, 1 << thread % WARP
    if kind & UNFINISHED:
        headers[header, COPIES] = 1
    if (
        last
        and entries[last, WARP_NUMBER] == warp
        and entries[last, CLOCK] == clock
        and entries[last, ENTRY_TAG] == tag
        and entries[last, KIND] == kind
    ):
        entries[last, LANES] |= lane
        return
    if chain == NARROW:
        cta = thread // lanes_per_cta + 1
        headers[header, NARROW_CTA] = cta if headers[header, NARROW_CTA] in (0, cta) else -1
    entry = _new_entry(entries, used)
    entries[entry, NEXT] = last
    entries[entry, WARP_NUMBER] = warp
    entries[entry, CLOCK] = clock
    entries[entry, ENTRY_TAG] = tag
    entries[entry, LANES] = lane
    entries[entry, KIND] = kind
    headers[header, chain] = entry
    headers[header, chain + WIDE_LEFT] -= 1
    if headers[header, chain + WIDE_LEFT] == 0:
        headers[header, chain + WIDE_LEFT] = max(_FEWEST, _drop_repeated(entries, used, entry))


@numba.njit(cache=True)
def _drop_repeated(entries: Any, used: Any, entry: int) -> int:
    """Drop lanes of a list that a later entry of the same strength has; how many entries there are then.

    What is unordered with the earlier access of a thread is so with its later one.
    """
    count, each = 0, entry
    while each:
        count, each = count + 1, entries[each, NEXT]
    size = 4
    while size < 2 * count:
        size *= 2
    keys, masks = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    latest = np.zeros(size, dtype=np.int64)
    before, each = 0, entry
    while each:
        following = entries[each, NEXT]
        lanes = entries[each, LANES]
        if not entries[each, KIND] & UNFINISHED:
            key = 1 + entries[each, WARP_NUMBER] * 8 + (entries[each, ENTRY_TAG] & 3) * 2 + (entries[each, KIND] & READ)
            slot = (key * 0x9E3779B1 >> 8) & (size - 1)
            while keys[slot] != 0 and keys[slot] != key:
                slot = (slot + 1) & (size - 1)
            keys[slot] = key
            lanes &= ~masks[slot]
            masks[slot] |= lanes
            later = latest[slot]
            if (
                lanes
                and later
                and entries[later, CLOCK] == entries[each, CLOCK]
                and entries[later, ENTRY_TAG] == entries[each, ENTRY_TAG]
            ):
                entries[later, LANES] |= lanes
                lanes = 0
            if lanes:
                entries[each, LANES] = lanes
                latest[slot] = each
        if lanes == 0:  # never so of the last entry
            entries[before, NEXT] = following
            entries[each, NEXT] = used[FREED_ENTRY]
            used[FREED_ENTRY] = each
            each, count = before, count - 1
        before, each = each, following
    return count


@numba.njit(cache=True)
def copy_header(headers: Any, entries: Any, used: Any, header: int) -> int:
    """Another header that says the same."""
    new = new_header(headers, used, 0)
    headers[new] = headers[header]
    for chain in (WIDE, NARROW):
        end, each = 0, headers[header, chain]
        while each:
            entry = _new_entry(entries, used)
            entries[entry] = entries[each]
            entries[entry, NEXT] = 0
            if end:
                entries[end, NEXT] = entry
            else:
                headers[new, chain] = entry
            end, each = entry, entries[each, NEXT]
    return new


@numba.njit(cache=True)
def length(headers: Any, entries: Any, header: int) -> int:
    """Entries of both lists."""
    count = 0
    for chain in (WIDE, NARROW):
        each = headers[header, chain]
        while each:
            count, each = count + 1, entries[each, NEXT]
    return count


@numba.njit(cache=True)
def finish_copy(
    headers: Any, entries: Any, used: Any, header: int, thread: int, clock: int, tag: int, lanes_per_cta: int
) -> None:  # fmt: skip
    """A displaced copy of ``thread`` (from 0) is over."""
    chain = WIDE if tag & 3 == ANYWHERE else NARROW
    each, lane = headers[header, chain], thread % WARP
    while each:
        kind = entries[each, KIND]
        if (
            kind & UNFINISHED
            and entries[each, LANES] >> lane & 1
            and entries[each, WARP_NUMBER] == thread // WARP
            and entries[each, ENTRY_TAG] == tag
        ):
            entries[each, LANES] &= ~(1 << lane)
            enter(headers, entries, used, header, thread, clock, tag, kind & READ, lanes_per_cta)
            return
        each = entries[each, NEXT]


@numba.njit(cache=True)
def observes(tag: int, observers: Any) -> bool:
    """Whether an access is strong for all threads, and what it reads is waited for."""
    return bool(tag & 3 == ANYWHERE and tag >> 2 < len(observers) and observers[tag >> 2])


@numba.njit(cache=True)
def first_race(
    entries: Any, entry: int, me: int, reading: bool, strength: int, observers: Any, observed: bool, cta_first: int,
    cta_end: int, passed: int, warp_passed: int, table: int, shape: Any, starts: Any, keys: Any, values: Any,
) -> tuple[int, int, int]:  # fmt: skip
    """Of a list from ``entry`` on, what it means for an access of thread ``me`` (from 1), and of the first race its
    entry and thread (from 1; negative if it is an unfinished copy).

    Writes for all threads lie behind ``me`` if an atomic that comes after them does and is one of the ``observers``;
    ``observed``: a later read puts all of them there.
    """
    meaning = FREE
    while entry:
        each, entry = entry, entries[entry, NEXT]
        kind, lanes, warp = entries[each, KIND], entries[each, LANES], entries[each, WARP_NUMBER]
        if (reading and kind & READ) or lanes == 0:
            continue
        if observed and kind == 0 and entries[each, ENTRY_TAG] & 3 == ANYWHERE:
            meaning = FREE_FOR_LANE
            continue
        first = warp * WARP + 1
        near = cta_first <= first < cta_end and not kind & UNFINISHED
        allies = min(strength, entries[each, ENTRY_TAG] & 3)
        if allies == ANYWHERE or (allies and near):
            continue
        if allies == WITHIN_CLUSTER and (first - 1) // shape[2] == (me - 1) // shape[2]:
            continue
        if kind & UNFINISHED:
            lane = 0
            while not lanes >> lane & 1:
                lane += 1
            return RACES, each, -(first + lane)
        clock = entries[each, CLOCK]
        if near and clock < passed:
            observed = observed or (kind == 0 and observes(entries[each, ENTRY_TAG], observers))
            continue
        if warp == (me - 1) // WARP:
            meaning = FREE_FOR_LANE
            lanes &= ~(1 << (me - 1) % WARP)
            if lanes == 0 or clock < warp_passed:
                observed = observed or (kind == 0 and observes(entries[each, ENTRY_TAG], observers))
                continue
        if table < 0:
            return UNSETTLED, 0, 0
        lane = first_unpublished(warp, lanes, clock, table, shape, starts, keys, values)
        if lane >= 0:
            return RACES, each, first + lane
        observed = observed or (kind == 0 and observes(entries[each, ENTRY_TAG], observers))
    return meaning, 0, 0
