"""What an access adds to the counters: the rules of `counters.Counters`, with short ways for the common patterns."""

from __future__ import annotations

from warptile.emulator.compiled_steps.word_code import WordFunction, read_i64, write_64
from warptile.emulator.counters import BANKS, FIELDS, SECTOR_BYTES
from warptile.emulator.lanes import WARP

GLOBAL_LOADS, GLOBAL_STORES = (FIELDS.index(f"global_{kind}_requests") for kind in ("load", "store"))
SHARED_LOADS, SHARED_STORES = (FIELDS.index(f"shared_{kind}_requests") for kind in ("load", "store"))
"""First of the three counters of each kind of access: requests, sectors, bytes; or requests, wavefronts, ideal ones."""

SCATTERED, ALIKE, CONSECUTIVE = range(3)
"""Addresses of the lanes of a warp: any; all the same; each behind the one before."""


def at(array: int, index: int) -> int:
    """A word of an array."""
    return read_i64(array + 8 * index)


def _add(counters: int, column: int, amount: int) -> int:
    write_64(counters + 8 * column, read_i64(counters + 8 * column) + amount)
    return 0


def _pattern(offsets: int, count: int, size: int) -> int:
    first = at(offsets, 0)
    apart = astray = 0
    for i in range(count):
        offset = at(offsets, i)
        apart |= offset - first
        astray |= offset - first - size * i
    return ALIKE if apart == 0 else CONSECUTIVE if astray == 0 else SCATTERED


def _ascends(offsets: int, count: int) -> int:
    """Whether no offset is below the one before."""
    descends = 0
    for i in range(count - 1):
        descends |= at(offsets, i + 1) < at(offsets, i)
    return descends == 0


def group(offsets: int, numbers: int, count: int, size: int, groups: int) -> int:
    """Note where the lanes of each warp end, and the pattern of their addresses; how many warps they are."""
    found = start = 0
    while start < count:
        end = _warp_end(numbers, start, count)
        write_64(groups + 16 * found, end)
        write_64(groups + 16 * found + 8, _pattern(offsets + 8 * start, end - start, size))
        found += 1
        start = end
    return found


def _warp_end(numbers: int, start: int, count: int) -> int:
    """Where the lanes of the next warp start."""
    warp_end = (at(numbers, start) // WARP + 1) * WARP
    whole = start + WARP
    if whole <= count and at(numbers, whole - 1) == warp_end - 1:
        return whole
    end = start + 1
    while end < count and at(numbers, end) < warp_end:
        end += 1
    return end


def _repeats(offsets: int, start: int, before: int, count: int, period: int) -> int:
    """Whether some lanes access what those from ``before`` on do, moved by a multiple of ``period``, a power of two."""
    moved = at(offsets, start) - at(offsets, before)
    astray = moved & (period - 1)
    for i in range(count):
        astray |= at(offsets, start + i) - at(offsets, before + i) - moved
    return astray == 0


def count_global(counters: int, offsets: int, groups: int, warps: int, size: int, writes: int) -> int:
    """`Counters.access_global`, of the lanes of some warps (`group`)."""
    sectors = elements = start = 0
    before, lanes_before, elements_before, sectors_before = 0, 0, 0, 0  # a warp of the same pattern needs no look
    for number in range(warps):
        end, pattern = at(groups, 2 * number), at(groups, 2 * number + 1)
        first = at(offsets, start)
        if pattern == ALIKE:
            elements += 1
            sectors += (first + size - 1) // SECTOR_BYTES - first // SECTOR_BYTES + 1
        elif pattern == CONSECUTIVE:
            elements += end - start
            sectors += (first + size * (end - start) - 1) // SECTOR_BYTES - first // SECTOR_BYTES + 1
        elif lanes_before == end - start and _repeats(offsets, start, before, end - start, SECTOR_BYTES):
            elements += elements_before
            sectors += sectors_before
        else:
            elements_before, sectors_before = elements, sectors
            ascends = _ascends(offsets + 8 * start, end - start)
            for i in range(start, end):
                offset = at(offsets, i)
                sector = offset // SECTOR_BYTES  # an access is aligned, so it lies in one
                fresh = fresh_sector = True
                lowest = i - 1 if ascends and i > start else start
                for j in range(lowest, i):
                    fresh &= at(offsets, j) != offset
                    fresh_sector &= at(offsets, j) // SECTOR_BYTES != sector
                elements += fresh
                sectors += fresh_sector
            before, lanes_before = start, end - start
            elements_before, sectors_before = elements - elements_before, sectors - sectors_before
        start = end
    column = GLOBAL_STORES if writes else GLOBAL_LOADS
    _add(counters, column, warps)
    _add(counters, column + 1, sectors)
    _add(counters, column + 2, size * elements)
    return 0


def _pass_wavefronts(offsets: int, first: int, last: int, size: int, words: int, held: int) -> int:
    """`counters._pass_wavefronts`: the most distinct words in one bank."""
    for bank in range(BANKS):
        write_64(held + 8 * bank, 0)
    most = 1
    before = -1
    for i in range(first, last):
        offset = at(offsets, i)
        if offset == before:
            continue
        before = offset
        for part in range(max(1, size // 4)):
            word = offset // 4 + part
            bank = word % BANKS
            row = words + 8 * WARP * 4 * bank
            many = at(held, bank)
            known = False
            for j in range(many):
                known |= at(row, j) == word
            if not known:
                write_64(row + 8 * many, word)
                write_64(held + 8 * bank, many + 1)
                most = max(most, many + 1)
    return most


def _neighbours_agree(offsets: int, numbers: int, first: int, last: int, distance: int) -> int:
    """Whether every lane of a warp asks for the same as its neighbour, lane ^ distance, if that asks at all."""
    for i in range(first, last):
        lane = at(numbers, i)
        for j in range(max(first, i - distance), i):
            if at(numbers, j) == lane ^ distance and at(offsets, j) != at(offsets, i):
                return 0
    return 1


def count_shared(
    counters: int, offsets: int, numbers: int, groups: int, warps: int, size: int, writes: int, words: int, held: int
) -> int:
    """`Counters.access_shared`, of the lanes of some warps, with room for the words of each bank and how many they
    are."""
    wavefronts = ideal = start = 0
    pass_lanes = WARP // max(1, size // 4)
    joins = not writes and size > 4
    before, passes_before, found_before = -1, 0, 0  # a whole warp of the same pattern needs no look
    for number in range(warps):
        end, pattern = at(groups, 2 * number), at(groups, 2 * number + 1)
        if end - start != WARP:
            pattern = SCATTERED
        if pattern != SCATTERED:
            passes = WARP // pass_lanes
            if joins and pattern == ALIKE:
                passes //= 2
            found = passes
        elif end - start == WARP and before >= 0 and _repeats(offsets, start, before, WARP, BANKS * 4):
            passes, found = passes_before, found_before
        else:
            passes = found = 0
            joined = joins and (
                _neighbours_agree(offsets, numbers, start, end, 1) or _neighbours_agree(offsets, numbers, start, end, 2)
            )
            i = start
            while i < end:
                lane = at(numbers, i)
                wide = i
                while joined and wide < end and at(numbers, wide) // (2 * pass_lanes) == lane // (2 * pass_lanes):
                    wide += 1
                if joined and _pass_wavefronts(offsets, i, wide, size, words, held) == 1:
                    passes += 1
                    found += 1
                    i = wide
                    continue
                narrow = i
                while narrow < end and at(numbers, narrow) // pass_lanes == lane // pass_lanes:
                    narrow += 1
                passes += 1
                found += _pass_wavefronts(offsets, i, narrow, size, words, held)
                i = narrow
            if end - start == WARP:
                before, passes_before, found_before = start, passes, found
        wavefronts += found
        ideal += min(passes, ((end - start) * size + BANKS * 4 - 1) // (BANKS * 4))
        start = end
    column = SHARED_STORES if writes else SHARED_LOADS
    _add(counters, column, warps)
    _add(counters, column + 1, wavefronts)
    _add(counters, column + 2, ideal)
    return 0


FUNCTIONS: tuple[WordFunction, ...] = (
    at, _add, _pattern, _ascends, _warp_end, group, _repeats, count_global, _pass_wavefronts, _neighbours_agree,
    count_shared,
)  # fmt: skip
