"""The race check of weak accesses as machine code: `access_history._access` for many lanes.

Lanes of a warp that read one place are taken together. A place that has displaced accesses (its tag says so) is the
interpreter's.
"""

from __future__ import annotations

from warptile.emulator.checks.access_history import COLUMNS, FIRST_READ, LOGGED, LONGEST, OTHER_READ, PAGE, WRITE
from warptile.emulator.compiled_steps import memory_state as m
from warptile.emulator.compiled_steps.access_counts import at
from warptile.emulator.compiled_steps.word_code import WordFunction, read_i32, write_32, write_64
from warptile.emulator.lanes import WARP


def _search(keys: int, values: int, low: int, high: int, key: int) -> int:
    end = high
    while low < high:
        middle = (low + high) >> 1
        if at(keys, middle) < key:
            low = middle + 1
        else:
            high = middle
    if low < end and at(keys, low) == key:
        return read_i32(values + 4 * low)
    return 0


def _told(state: int, thread: int, clock: int, lane: int) -> int:
    """`access_history.published`, of what a lane knows."""
    table = read_i32(at(state, m.KNOWN) + 4 * lane)
    if table <= 0:
        return 0
    starts, keys, values = at(state, m.STARTS), at(state, m.KEYS), at(state, m.VALUES)
    per_cta = at(state, m.LANES_PER_CTA)
    low, high = at(starts, table), at(starts, table + 1)
    base, inner = thread // per_cta * at(state, m.KEY_STRIDE), thread % per_cta
    if clock < _search(keys, values, low, high, base):
        return 1
    if clock < _search(keys, values, low, high, base + 1 + inner // WARP):
        return 1
    return clock < _search(keys, values, low, high, base + 1 + per_cta // WARP + inner)


def _enter(place: int, thread: int, clock: int, tag: int) -> int:
    write_32(place, thread)
    write_32(place + 4, clock)
    write_32(place + 8, tag)
    return 0


def _refine(history: int, page: int, old: int, new: int) -> int:
    """`access_history._refine` of one page; False where something has been displaced."""
    if old == LONGEST and at(at(history, m.LONGEST_USED), 0) == 0:
        write_64(at(history, 0) + 8 * page, new)  # nothing is known of it
        return 1
    longer, shorter, parts = at(history, 1 + old), at(history, 1 + new), old - new
    for place in range(page << (PAGE - old), (page + 1) << (PAGE - old)):
        if read_i32(longer + 4 * COLUMNS * place + 8) < 0:
            return 0
    for place in range(page << (PAGE - new), (page + 1) << (PAGE - new)):
        for column in range(COLUMNS):
            known = read_i32(longer + 4 * COLUMNS * (place >> parts) + 4 * column)
            write_32(shorter + 4 * COLUMNS * place + 4 * column, known)
    write_64(at(history, 0) + 8 * page, new)
    return 1


def note(state: int, history: int, writes: int, base: int, count: int, size: int, tag: int) -> int:
    """Enter the access into a history, at offsets less ``base``; False where it may be a race, or cannot be entered.

    What has been entered by then is entered again by the interpreter, with the same result. Of reads by threads that
    know of others this would not be true, so they are looked at first.
    """
    offsets, numbers = at(state, m.OFFSETS), at(state, m.LANE_NUMBERS)
    shifts = at(history, 0)
    clocks, cta_floors, warp_floors = at(state, m.CLOCK), at(state, m.CTA_FLOOR), at(state, m.WARP_FLOOR)
    first_thread, per_cta = at(state, m.FIRST_THREAD), at(state, m.LANES_PER_CTA)
    warp_end = cta_end = -1
    cta_first = passed = warp_first = warp_passed = 0
    within_cta = 0
    if history == at(state, m.SHARED_HISTORY):
        within_cta = at(state, m.WITHIN_CTA)
    finest = 0
    while 1 << (finest + 1) <= size:
        finest += 1
    if shifts == 0 or at(history, 1 + finest) == 0:
        write_64(state + 8 * m.MISSING, history)
        write_64(state + 8 * m.MISSING_SHIFT, finest)
        return 0
    if finest == LONGEST:
        write_64(at(history, m.LONGEST_USED), 1)
    if not writes and at(state, m.KNOWLEDGE) and not _may_read(state, history, base, count, size, finest):
        return 0
    i = 0
    while i < count:
        lane, offset = at(numbers, i), at(offsets, i) - base
        me = first_thread + lane + 1
        if lane >= cta_end:
            cta = lane // per_cta
            cta_end = (cta + 1) * per_cta
            cta_first = first_thread + cta * per_cta + 1
            passed = read_i32(cta_floors + 4 * cta)
        if lane >= warp_end:
            warp = lane // WARP
            warp_end = (warp + 1) * WARP
            warp_first = first_thread + warp * WARP + 1
            warp_passed = read_i32(warp_floors + 4 * warp)
        last = i
        while not writes and last + 1 < count and at(offsets, last + 1) - base == offset:
            if at(numbers, last + 1) >= warp_end:
                break
            last += 1
        shift = at(shifts, offset >> PAGE)
        table = at(history, 1 + shift)
        if table == 0:
            write_64(state + 8 * m.MISSING, history)
            write_64(state + 8 * m.MISSING_SHIFT, finest)
            return 0
        if shift > finest:
            if not _refine(history, offset >> PAGE, shift, finest):
                return 0
            shift = finest
            table = at(history, 1 + finest)
        row = table + 4 * COLUMNS * (offset >> shift)
        end = table + 4 * COLUMNS * ((offset + size) >> shift)
        while row < end:
            held = read_i32(row + 8)
            if held < 0:
                return 0
            if held >= LOGGED:
                if within_cta == 0 or read_i32(row) <= 0 or read_i32(row + 4) >= passed:
                    return 0
                write_32(row + 8, held - LOGGED)  # a barrier has made up for what was displaced
            if writes:
                for column in (WRITE, FIRST_READ, OTHER_READ):
                    other = read_i32(row + 4 * column)
                    if other == 0 or other == me:
                        continue
                    since = read_i32(row + 4 * column + 4)
                    if cta_first <= other < cta_first + per_cta and (
                        since < passed or (since < warp_passed and warp_first <= other < warp_first + WARP)
                    ):
                        continue
                    if other < 0 or not _told(state, other - 1, since, lane):
                        return 0
                _enter(row, me, read_i32(clocks + 4 * lane), tag)
                write_32(row + 4 * FIRST_READ, 0)
                write_32(row + 4 * OTHER_READ, 0)
                row += 4 * COLUMNS
                continue
            other = read_i32(row)
            free = other == 0
            if not free:
                since = read_i32(row + 4)
                free = cta_first <= other < cta_first + per_cta and (
                    since < passed or (since < warp_passed and warp_first <= other < warp_first + WARP)
                )
            held = read_i32(row + 4 * FIRST_READ)
            behind = held == 0
            if not behind:
                since = read_i32(row + 4 * FIRST_READ + 4)
                behind = cta_first <= held < cta_first + per_cta and (
                    since < passed or (since < warp_passed and warp_first <= held < warp_first + WARP)
                )
            if free and (behind or _know_nothing(state, i, last)):
                # all lanes that ask for it at once: the first is remembered, and the last unless it pushes out another
                first_one, last_one, holder = i, last, -1
                mine = behind or warp_first <= held < warp_first + WARP
                if behind:
                    holder = first_one
                    first_one += 1
                elif mine:
                    for j in range(i, last + 1):
                        if first_thread + at(numbers, j) + 1 == held:
                            holder = j
                    if holder == last_one:
                        last_one -= 1
                    if holder == first_one:
                        first_one += 1
                if holder >= 0:
                    by = at(numbers, holder)
                    clock = read_i32(clocks + 4 * by)
                    _enter(row + 4 * FIRST_READ, first_thread + by + 1, clock, tag)
                if first_one <= last_one:
                    other = read_i32(row + 4 * OTHER_READ)
                    if not mine or other == 0 or warp_first <= other < warp_first + WARP:
                        by = at(numbers, last_one)
                        clock = read_i32(clocks + 4 * by)
                        _enter(row + 4 * OTHER_READ, first_thread + by + 1, clock, tag)
            else:
                for j in range(i, last + 1):
                    by = at(numbers, j)
                    me = first_thread + by + 1
                    if not _note_read(state, row, by, me, cta_first, passed, warp_first, warp_passed, tag):
                        return 0
            row += 4 * COLUMNS
        i = last + 1
    return 1


def _may_read(state: int, history: int, base: int, count: int, size: int, finest: int) -> int:
    """Whether every lane of a load may read: each is ordered after the last write of every place, of which nothing has
    been displaced, and has a table of what it knows."""
    offsets, numbers, shifts = at(state, m.OFFSETS), at(state, m.LANE_NUMBERS), at(history, 0)
    cta_floors, warp_floors = at(state, m.CTA_FLOOR), at(state, m.WARP_FLOOR)
    first_thread, per_cta = at(state, m.FIRST_THREAD), at(state, m.LANES_PER_CTA)
    for i in range(count):
        lane, offset = at(numbers, i), at(offsets, i) - base
        if read_i32(at(state, m.KNOWN) + 4 * lane) < 0:
            return 0
        cta, warp = lane // per_cta, lane // WARP
        cta_first, passed = first_thread + cta * per_cta + 1, read_i32(cta_floors + 4 * cta)
        warp_first, warp_passed = first_thread + warp * WARP + 1, read_i32(warp_floors + 4 * warp)
        shift = at(shifts, offset >> PAGE)
        if at(history, 1 + shift) == 0:
            return 0
        if shift > finest:
            if not _refine(history, offset >> PAGE, shift, finest):
                return 0
            shift = finest
        row = at(history, 1 + shift) + 4 * COLUMNS * (offset >> shift)
        end = at(history, 1 + shift) + 4 * COLUMNS * ((offset + size) >> shift)
        while row < end:
            other, since, held = read_i32(row), read_i32(row + 4), read_i32(row + 8)
            within = cta_first <= other < cta_first + per_cta
            if held < 0 or (held >= LOGGED and (other <= 0 or since >= passed)):
                return 0
            behind = within and (since < passed or (since < warp_passed and warp_first <= other < warp_first + WARP))
            free = other == 0 or other == first_thread + lane + 1 or behind
            if not free and (other < 0 or not _told(state, other - 1, since, lane)):
                return 0
            row += 4 * COLUMNS
    return 1


def _know_nothing(state: int, first: int, last: int) -> int:
    """Whether floors say all that some lanes of an access know of others."""
    if at(state, m.KNOWLEDGE) == 0:
        return 1
    known, numbers = at(state, m.KNOWN), at(state, m.LANE_NUMBERS)
    for i in range(first, last + 1):
        if read_i32(known + 4 * at(numbers, i)) != 0:
            return 0
    return 1


def _note_read(
    state: int, row: int, lane: int, me: int, cta_first: int, passed: int, warp_first: int, warp_passed: int, tag: int
) -> int:
    """Enter the read of one lane at one place."""
    if read_i32(at(state, m.KNOWN) + 4 * lane) < 0:
        return 0  # the table is not made yet
    per_cta = at(state, m.LANES_PER_CTA)
    other = read_i32(row)
    if other != 0 and other != me:
        since = read_i32(row + 4)
        behind = cta_first <= other < cta_first + per_cta and (
            since < passed or (since < warp_passed and warp_first <= other < warp_first + WARP)
        )
        if not behind and (other < 0 or not _told(state, other - 1, since, lane)):
            return 0
    column = FIRST_READ
    held = read_i32(row + 4 * FIRST_READ)
    if held != 0 and held != me:
        since = read_i32(row + 4 * FIRST_READ + 4)
        behind = cta_first <= held < cta_first + per_cta and (
            since < passed or (since < warp_passed and warp_first <= held < warp_first + WARP)
        )
        if not behind and (held < 0 or not _told(state, held - 1, since, lane)):
            column = OTHER_READ
            other = read_i32(row + 4 * OTHER_READ)
            mine = warp_first <= held < warp_first + WARP
            if mine and other != 0 and other != me and not warp_first <= other < warp_first + WARP:
                return 1
    _enter(row + 4 * column, me, read_i32(at(state, m.CLOCK) + 4 * lane), tag)
    return 1


FUNCTIONS: tuple[WordFunction, ...] = (_search, _told, _enter, _refine, _may_read, _know_nothing, note, _note_read)
