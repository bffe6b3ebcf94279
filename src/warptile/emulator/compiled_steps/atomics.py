"""Atomics of many lanes as machine code: those that release and acquire nothing, with every check of the interpreter.

Like loads and stores they are looked at as a whole before anything changes. An atomic that changes no word of memory is
the interpreter's too: that one takes it for a wait. What the race check logs of the others is handed over when the run
is over (`MemoryState.hand_over_log`).
"""

from __future__ import annotations

from warptile.emulator.arithmetic import memory_updates as u
from warptile.emulator.checks.access_history import COLUMNS, FIRST_READ, LOGGED, OTHER_READ, PAGE
from warptile.emulator.compiled_steps import memory_access as a
from warptile.emulator.compiled_steps import memory_state as m
from warptile.emulator.compiled_steps.access_counts import at
from warptile.emulator.compiled_steps.access_races import _enter, _refine
from warptile.emulator.compiled_steps.memory_access import (
    CHANGING,
    GLOBAL,
    LOCAL,
    _buffer,
    _count,
    _mark,
    _operand,
    _resolve,
    _shadows_are,
)
from warptile.emulator.compiled_steps.word_code import (
    WordFunction,
    add_f32,
    read_i32,
    read_i64,
    read_u32,
    write_32,
    write_64,
)
from warptile.emulator.lanes import WARP
from warptile.emulator.memory.spaces import INITIALISED, MAPPED

(TARGET, OPERATION, FLOATING, ORDER, GIVEN, GIVEN_WORD, SWAPPED, SWAPPED_WORD) = range(a.REGISTERS, a.REGISTERS + 8)
"""Operands behind those that atomics have in common with loads (`memory_access`): the register that gets the old value,
or 0; the number of the operation; whether it is one of f32; what makes the order of its numbers that of signed words,
by exclusive or; then the value, and what a compare-and-swap stores: if it is a register, and its address or bits."""

ATOMIC_OPERANDS = SWAPPED_WORD + 1

WORD_BITS = 0xFFFFFFFF
ANYWHERE = 3
"""Strength of an atomic, which all other atomics are ordered with."""


def _given(record: int, number: int, lane: int, size: int) -> int:
    word = _operand(record, number + 1)
    if _operand(record, number) == 0:
        return word & WORD_BITS if size == 4 else word
    return read_u32(word + 4 * lane) if size == 4 else read_i64(word + 8 * lane)


def _flushed(bits: int) -> int:
    """An f32, zero where it is subnormal."""
    return bits & 0x80000000 if bits & 0x7F800000 == 0 else bits


def _sum_of_singles(old: int, given: int, flushes: int) -> int:
    """`memory_updates._sum`, of f32."""
    total = _flushed(add_f32(_flushed(old), _flushed(given))) if flushes else add_f32(old, given)
    return 0x7FFFFFFF if total & 0x7FFFFFFF > 0x7F800000 else total


def _updated(record: int, old: int, given: int, lane: int, size: int, flushes: int) -> int:
    """`memory_updates._updated`: what an operation makes of a word."""
    operation = _operand(record, OPERATION)
    if operation == u.ADD:
        return _sum_of_singles(old, given, flushes) if _operand(record, FLOATING) else old + given
    if operation == u.CAS:
        return _given(record, SWAPPED, lane, size) if old == given else old
    if operation == u.EXCH:
        return given
    if operation == u.AND:
        return old & given
    if operation == u.OR:
        return old | given
    if operation == u.XOR:
        return old ^ given
    if operation == u.INC:
        return 0 if old >= given else old + 1
    if operation == u.DEC:
        return given if old == 0 or old > given else old - 1
    order = _operand(record, ORDER)
    less = old ^ order < given ^ order
    return old if less == (operation == u.MIN) else given


def _update(record: int, state: int, data: int, count: int, size: int, flushes: int) -> int:
    """Update one word after the other, and note what each was; whether any is not what some lane has found."""
    offsets, numbers, found = at(state, m.OFFSETS), at(state, m.LANE_NUMBERS), at(state, m.FOUND)
    for i in range(count):
        lane, place = at(numbers, i), data + at(offsets, i)
        old = read_u32(place) if size == 4 else read_i64(place)
        write_64(found + 8 * i, old)
        new = _updated(record, old, _given(record, GIVEN, lane, size), lane, size, flushes)
        if size == 4:
            write_32(place, new)
        else:
            write_64(place, new)
    for i in range(count):
        place = data + at(offsets, i)
        if (read_u32(place) if size == 4 else read_i64(place)) != at(found, i):
            return 1
    return 0


def _may_enter(state: int, history: int, base: int, count: int, size: int) -> int:
    """Whether `_enter_all` does what the interpreter would: no place was read since it was last written, nothing is
    displaced, and what was no atomic lies behind a barrier of the CTA that alone has it."""
    offsets, numbers, shifts = at(state, m.OFFSETS), at(state, m.LANE_NUMBERS), at(history, 0)
    first_thread, per_cta, floors = at(state, m.FIRST_THREAD), at(state, m.LANES_PER_CTA), at(state, m.CTA_FLOOR)
    finest = 2 if size == 4 else 3
    if shifts == 0 or at(history, 1 + finest) == 0:
        write_64(state + 8 * m.MISSING, history)
        write_64(state + 8 * m.MISSING_SHIFT, finest)
        return 0
    within_cta = history == at(state, m.SHARED_HISTORY) and at(state, m.WITHIN_CTA)
    for i in range(count):
        offset = at(offsets, i) - base
        shift = at(shifts, offset >> PAGE)
        if shift > finest:
            if at(history, 1 + shift) == 0 or not _refine(history, offset >> PAGE, shift, finest):
                return 0
            shift = finest
        row = at(history, 1 + shift) + 4 * COLUMNS * (offset >> shift)
        end = at(history, 1 + shift) + 4 * COLUMNS * ((offset + size) >> shift)
        cta = at(numbers, i) // per_cta
        cta_first, passed = first_thread + cta * per_cta + 1, read_i32(floors + 4 * cta)
        while row < end:
            other, since, held = read_i32(row), read_i32(row + 4), read_i32(row + 8)
            if other < 0 or held < 0 or read_i32(row + 4 * FIRST_READ) or read_i32(row + 4 * OTHER_READ):
                return 0
            behind = within_cta and since < passed and cta_first <= other < cta_first + per_cta
            if other != 0 and held & 3 != ANYWHERE and not behind:
                return 0
            row += 4 * COLUMNS
    return 1


def _enter_all(state: int, history: int, base: int, count: int, size: int, tag: int) -> int:
    """Enter the atomics of all lanes, one after the other, and log them."""
    offsets, numbers, shifts = at(state, m.OFFSETS), at(state, m.LANE_NUMBERS), at(history, 0)
    first_thread, per_cta, floors = at(state, m.FIRST_THREAD), at(state, m.LANES_PER_CTA), at(state, m.CTA_FLOOR)
    clocks, warp_floors = at(state, m.CLOCK), at(state, m.WARP_FLOOR)
    within_cta = history == at(state, m.SHARED_HISTORY) and at(state, m.WITHIN_CTA)
    logged = at(state, m.LOG_LENGTH)
    log_lanes, log_offsets, log_clocks = at(state, m.LOG_LANES), at(state, m.LOG_OFFSETS), at(state, m.LOG_CLOCKS)
    for i in range(count):
        lane, offset = at(numbers, i), at(offsets, i) - base
        me, now = first_thread + lane + 1, read_i32(clocks + 4 * lane)
        write_64(log_lanes + 8 * (logged + i), lane)
        write_64(log_offsets + 8 * (logged + i), offset)
        write_32(log_clocks + 4 * (logged + i), now)
        cta, warp = lane // per_cta, lane // WARP
        cta_first, warp_first = first_thread + cta * per_cta + 1, first_thread + warp * WARP + 1
        passed, warp_passed = read_i32(floors + 4 * cta), read_i32(warp_floors + 4 * warp)
        shift = at(shifts, offset >> PAGE)
        row = at(history, 1 + shift) + 4 * COLUMNS * (offset >> shift)
        end = at(history, 1 + shift) + 4 * COLUMNS * ((offset + size) >> shift)
        while row < end:
            other, since, held = read_i32(row), read_i32(row + 4), read_i32(row + 8)
            if held >= LOGGED and within_cta and since < passed:
                held -= LOGGED  # a barrier has made up for what was displaced
            if other != 0 and held & 3 == ANYWHERE:
                behind = cta_first <= other < cta_first + per_cta and (
                    since < passed or (since < warp_passed and warp_first <= other < warp_first + WARP)
                )
                if other != me and not behind:
                    held |= LOGGED
            _enter(row, me, now, tag | (held & LOGGED))
            row += 4 * COLUMNS
    entry = at(state, m.LOG) + 32 * at(state, m.LOG_ENTRIES)
    write_64(entry, history)
    write_64(entry + 8, tag)
    write_64(entry + 16, size)
    write_64(entry + 24, count)
    write_64(state + 8 * m.LOG_ENTRIES, at(state, m.LOG_ENTRIES) + 1)
    write_64(state + 8 * m.LOG_LENGTH, logged + count)
    return 0


def atomic(record: int, first: int, count: int, lanes: int, state: int) -> int:
    """`atom` or `red` by ``count`` lanes; 1 where it is refused."""
    space = _resolve(record, first, count, lanes, state)
    if space < 0 or space == LOCAL:
        return 1
    offsets, size = at(state, m.OFFSETS), _operand(record, a.SIZE)
    words, buffer, history, base = m.SHARED_DATA, 0, at(state, m.SHARED_HISTORY), 0
    held = False
    if space == GLOBAL:
        words = m.GLOBAL_DATA
        buffer = _buffer(state, size)
        if buffer == 0 or at(buffer, m.WRITABLE) == 0:
            return 1
        if at(buffer, m.TOUCHED) == 0:
            write_64(state + 8 * m.UNTOUCHED, buffer)
            return 1
        held = at(buffer, m.INITIALISED) != 0
        history, base = at(buffer, m.HISTORY), at(buffer, m.START)
    data, shadow = at(state, words), at(state, words + 1)
    if not held and not _shadows_are(shadow, state, size, CHANGING, MAPPED | INITIALISED):
        return 1
    races = at(state, m.RACES)
    if races and (
        at(state, m.QUIET) == 0
        or at(state, m.LOG_LENGTH) + count > at(state, m.LOG_ROOM)
        or not _may_enter(state, history, base, count, size)
    ):
        return 1
    if not _update(record, state, data, count, size, space == GLOBAL):
        return 1
    if races:
        _enter_all(state, history, base, count, size, _operand(record, a.TAG) | ANYWHERE)
    if space == GLOBAL:
        _count(record, state, space, size, True)
    target = _operand(record, TARGET)
    if target:
        numbers, found = at(state, m.LANE_NUMBERS), at(state, m.FOUND)
        for i in range(count):
            if size == 4:
                write_32(target + 4 * at(numbers, i), at(found, i))
            else:
                write_64(target + 8 * at(numbers, i), at(found, i))
    _mark(shadow, offsets, count, size)
    return 0


FUNCTIONS: tuple[WordFunction, ...] = (
    _given, _flushed, _sum_of_singles, _updated, _update, _may_enter, _enter_all, atomic,
)  # fmt: skip
