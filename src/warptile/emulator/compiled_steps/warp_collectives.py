"""Shuffles, votes, reductions and barriers of whole warps as machine code.

All 32 lanes of each warp execute the instruction together, and each names all of them in its mask: then nobody has to
be waited for. Whatever else there is, the interpreter does: it is looked at before anything changes.
"""

from __future__ import annotations

from warptile.emulator.compiled_steps import memory_state as m
from warptile.emulator.compiled_steps.access_counts import at
from warptile.emulator.compiled_steps.step_records import OPERANDS
from warptile.emulator.compiled_steps.word_code import (
    WordFunction,
    read_i32,
    read_u8,
    read_u32,
    write_8,
    write_32,
    write_64,
)
from warptile.emulator.lanes import WARP

(MODE, ORDERS, TARGET, SECOND_TARGET, SOURCE, SOURCE_WORD, MASK, MASK_WORD, WHERE, WHERE_WORD, CLAMP,
 CLAMP_WORD) = range(12)  # fmt: skip
"""Operands of a collective: which one it is; whether it orders the lanes of a warp for the race check; addresses of the
registers that it writes, or 0; then its sources, each by whether it is a register and by that one's address or its
value: what is exchanged (the predicate of a vote is 2 where it is negated), the mask of lanes, and of a shuffle the
lane and the bounds."""

COLLECTIVE_OPERANDS = CLAMP_WORD + 1

(UP, DOWN, BUTTERFLY, INDEXED, BALLOT, ALL, ANY, UNIFORM, ADD, AND, OR, XOR, MIN, MIN_SIGNED, MAX_SIGNED, MAX, ELECT,
 BARRIER) = range(18)  # fmt: skip

FULL_MASK = 0xFFFFFFFF

_OTHERS, _INSIDE, _RESULTS = 0, WARP, 2 * WARP
"""Places in the room for bank conflicts: of each lane of a warp the lane that it asks, whether that one is in range,
and its result, until all are known."""


def _word(record: int, number: int) -> int:
    return at(record, OPERANDS + number)


def _source(record: int, number: int, lane: int) -> int:
    """A source of 32 bits."""
    word = at(record, OPERANDS + number + 1)
    return read_u32(word + 4 * lane) if at(record, OPERANDS + number) else word & FULL_MASK


def _whole(first: int, count: int, lanes: int) -> int:
    """Whether some lanes are all lanes of some warps."""
    if count % WARP:
        return 0
    if lanes == 0:
        return first % WARP == 0
    for warp in range(count // WARP):
        lane = at(lanes, WARP * warp)
        if lane % WARP or at(lanes, WARP * warp + WARP - 1) != lane + WARP - 1:
            return 0
    return 1


def _masks_are_full(record: int, first: int, count: int, lanes: int) -> int:
    if _word(record, MASK) == 0:
        return _word(record, MASK_WORD) & FULL_MASK == FULL_MASK
    masks, every = _word(record, MASK_WORD), FULL_MASK
    if lanes == 0:
        for i in range(count):
            every &= read_u32(masks + 4 * (first + i))
    else:
        for i in range(count):
            every &= read_u32(masks + 4 * at(lanes, i))
    return every == FULL_MASK


def _join(state: int, first: int, count: int, lanes: int) -> int:
    """`VectorClocks.join_warps`; False where what lanes know of others has to be united."""
    clocks, floors, known = at(state, m.CLOCK), at(state, m.WARP_FLOOR), at(state, m.KNOWN)
    if at(state, m.KNOWLEDGE):
        for warp in range(count // WARP):
            start = first + WARP * warp if lanes == 0 else at(lanes, WARP * warp)
            table = read_i32(known + 4 * start)
            for lane in range(start, start + WARP):
                if read_i32(known + 4 * lane) != table:
                    return 0
    for warp in range(count // WARP):
        start = first + WARP * warp if lanes == 0 else at(lanes, WARP * warp)
        top = read_i32(clocks + 4 * start)
        for lane in range(start, start + WARP):
            top = max(top, read_i32(clocks + 4 * lane))
        for lane in range(start, start + WARP):
            write_32(clocks + 4 * lane, top + 1)
        write_32(floors + 4 * (start // WARP), top + 1)
    return 1


def _ask(record: int, start: int, mode: int, others: int, inside: int) -> int:
    """Note for each lane of a warp whom it asks, itself where that is out of range, and whether it is in range."""
    for lane in range(WARP):
        b, c = _source(record, WHERE, start + lane) & 31, _source(record, CLAMP, start + lane)
        segment = c >> 8 & 31
        lowest = lane & segment
        highest = lowest | (c & 31 & ~segment)
        if mode == UP:
            other = lane - b
            good = other >= highest
        else:
            other = lane + b if mode == DOWN else lane ^ b if mode == BUTTERFLY else lowest | (b & ~segment)
            good = other <= highest
        write_64(others + 8 * lane, other if good else lane)
        write_64(inside + 8 * lane, good)
    return 0


def _shuffle(record: int, start: int, others: int, inside: int, results: int) -> int:
    """Move values within a warp."""
    target, told = _word(record, TARGET), _word(record, SECOND_TARGET)
    if target:
        if _word(record, SOURCE):
            values = _word(record, SOURCE_WORD) + 4 * start
            for lane in range(WARP):
                write_64(results + 8 * lane, read_u32(values + 4 * at(others, lane)))
        else:
            for lane in range(WARP):
                write_64(results + 8 * lane, _word(record, SOURCE_WORD))
        for lane in range(WARP):
            write_32(target + 4 * (start + lane), at(results, lane))
    if told:
        for lane in range(WARP):
            write_8(told + start + lane, at(inside, lane))
    return 0


def _vote(record: int, start: int, mode: int) -> int:
    """Which lanes of a warp say yes, or what follows from that."""
    kind, word, target, yes = _word(record, SOURCE), _word(record, SOURCE_WORD), _word(record, TARGET), 0
    if kind == 0:
        yes = FULL_MASK if word else 0
    else:
        for lane in range(WARP):
            yes |= read_u8(word + start + lane) << lane
        if kind == 2:
            yes ^= FULL_MASK
    if mode == BALLOT:
        for lane in range(start, start + WARP):
            write_32(target + 4 * lane, yes)
        return 0
    holds = yes != 0
    if mode == ALL:
        holds = yes == FULL_MASK
    elif mode == UNIFORM:
        holds = yes == FULL_MASK or yes == 0
    for lane in range(start, start + WARP):
        write_8(target + lane, holds)
    return 0


def _reduce(record: int, start: int, mode: int) -> int:
    """`redux.sync` of whole numbers."""
    target, result = _word(record, TARGET), _source(record, SOURCE, start)
    sign = 1 << 31 if MIN_SIGNED <= mode <= MAX_SIGNED else 0  # the order of signed numbers, the bit inverted
    for lane in range(start + 1, start + WARP):
        value = _source(record, SOURCE, lane)
        if mode == ADD:
            result += value
        elif mode == AND:
            result &= value
        elif mode == OR:
            result |= value
        elif mode == XOR:
            result ^= value
        elif mode <= MIN_SIGNED:
            result = min(result ^ sign, value ^ sign) ^ sign
        else:
            result = max(result ^ sign, value ^ sign) ^ sign
    for lane in range(start, start + WARP):
        write_32(target + 4 * lane, result)
    return 0


def _elect(record: int, start: int) -> int:
    """`elect.sync`: the first lane of a whole warp."""
    leader, elected = _word(record, TARGET), _word(record, SECOND_TARGET)
    for lane in range(WARP):
        if leader:
            write_32(leader + 4 * (start + lane), 0)
        if elected:
            write_8(elected + start + lane, lane == 0)
    return 0


def collective(record: int, first: int, count: int, lanes: int, state: int) -> int:
    """A collective by ``count`` lanes; 1 where it is the interpreter's."""
    mode = _word(record, MODE)
    if not _whole(first, count, lanes) or not _masks_are_full(record, first, count, lanes):
        return 1
    if _word(record, ORDERS) and not _join(state, first, count, lanes):
        return 1
    if mode == BARRIER:
        return 0
    room = at(state, m.BANK_WORDS)
    others, inside, results = room + 8 * _OTHERS, room + 8 * _INSIDE, room + 8 * _RESULTS
    alike = _word(record, WHERE) == 0 and _word(record, CLAMP) == 0
    if alike and mode <= INDEXED:
        _ask(record, 0, mode, others, inside)
    for warp in range(count // WARP):
        start = first + WARP * warp if lanes == 0 else at(lanes, WARP * warp)
        if mode <= INDEXED:
            if not alike:
                _ask(record, start, mode, others, inside)
            _shuffle(record, start, others, inside, results)
        elif mode <= UNIFORM:
            _vote(record, start, mode)
        elif mode == ELECT:
            _elect(record, start)
        else:
            _reduce(record, start, mode)
    return 0


FUNCTIONS: tuple[WordFunction, ...] = (
    _word, _source, _whole, _masks_are_full, _join, _ask, _shuffle, _vote, _reduce, _elect, collective,
)  # fmt: skip
