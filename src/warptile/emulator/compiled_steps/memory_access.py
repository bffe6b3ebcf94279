"""Loads and stores of many lanes as machine code, with every check of the interpreter.

An access is looked at as a whole before anything changes: where it lies, whether it is aligned, mapped, initialized and
writable. What is not in order is refused, and the interpreter says why. Then the race check, the counters and the data
follow, as in `Memory.load`, `Memory.store` and `Counters`. Lanes of a warp that ask for one address, or for addresses
one behind the other, are taken together.
"""

from __future__ import annotations

from warptile.emulator.compiled_steps import memory_state as m
from warptile.emulator.compiled_steps.access_counts import at, count_global, count_shared
from warptile.emulator.compiled_steps.access_races import note
from warptile.emulator.compiled_steps.step_records import OPERANDS
from warptile.emulator.compiled_steps.word_code import (
    WordFunction,
    read_i8,
    read_i16,
    read_i32,
    read_i64,
    read_u8,
    read_u16,
    read_u32,
    write_8,
    write_16,
    write_32,
    write_64,
)
from warptile.emulator.memory.accesses import GLOBAL_BASE, LOCAL_WINDOW, SHARED_WINDOW, WINDOW_BYTES
from warptile.emulator.memory.spaces import INITIALISED, MAPPED, WRITTEN

(ADDRESS, ADDRESS_BYTES, OFFSET, SPACE, SIZE, ELEMENT_BYTES, ELEMENTS, COUNTERS, TAG, REGISTER_BYTES, SIGNED,
 REGISTERS) = range(12)  # fmt: skip
"""Operands of an access: address of the register that holds addresses, or 0; its bytes; what is added; the space; bytes
of a lane; of an element; how many; the address of the instruction's counters, or 0; its tag in histories; bytes of the
registers and whether loads extend the sign; then the address of the register of each element, 0 for none."""

MOST_ELEMENTS = 8
ACCESS_OPERANDS = REGISTERS + MOST_ELEMENTS

GLOBAL, SHARED, LOCAL, GENERIC = range(4)

HOLDS = MAPPED | INITIALISED | WRITTEN
FOUR_BYTES, EIGHT_BYTES = 0x01010101, 0x0101010101010101
CHANGING = 0xFF & ~WRITTEN
"""Shadow bits that a load looks at."""


def _operand(record: int, number: int) -> int:
    return at(record, OPERANDS + number)


def _resolve(record: int, first: int, count: int, lanes: int, state: int) -> int:
    """Note lanes and offsets into the space of their addresses; the space, or -1 where something is not in order."""
    offsets, numbers = at(state, m.OFFSETS), at(state, m.LANE_NUMBERS)
    register, wide, more = _operand(record, ADDRESS), _operand(record, ADDRESS_BYTES) == 8, _operand(record, OFFSET)
    size = _operand(record, SIZE)
    space = _operand(record, SPACE)
    lowest, highest, ends = 1 << 62, -(1 << 62), 0
    for i in range(count):
        lane = first + i if lanes == 0 else at(lanes, i)
        address = more
        if register != 0:
            address += read_i64(register + 8 * lane) if wide else read_u32(register + 4 * lane)
        write_64(numbers + 8 * i, lane)
        write_64(offsets + 8 * i, address)
        lowest, highest = min(lowest, address), max(highest, address)
        ends |= address
    if ends & (size - 1):
        return -1
    base = 0
    if space == GENERIC:
        if lowest >= GLOBAL_BASE:
            space = GLOBAL
        elif lowest >= SHARED_WINDOW and highest < SHARED_WINDOW + WINDOW_BYTES:
            space = SHARED
            base = SHARED_WINDOW
        elif lowest >= LOCAL_WINDOW and highest < LOCAL_WINDOW + WINDOW_BYTES:
            space = LOCAL
            base = LOCAL_WINDOW
        else:
            return -1
        if space != GLOBAL:
            lowest, highest = lowest - base, highest - base
            for i in range(count):
                write_64(offsets + 8 * i, at(offsets, i) - base)
    if space == GLOBAL:
        for i in range(count):
            write_64(offsets + 8 * i, at(offsets, i) - GLOBAL_BASE)
        return space
    words = m.SHARED_DATA if space == SHARED else m.LOCAL_DATA
    if lowest < 0 or highest + size > at(state, words + 2):
        return -1
    stride = at(state, words + 3)
    per_unit = at(state, m.LANES_PER_CTA) if space == SHARED else 1
    unit_end, origin = -1, 0
    for i in range(count):
        lane = at(numbers, i)
        if lane >= unit_end:
            unit = lane // per_unit
            unit_end, origin = (unit + 1) * per_unit, unit * stride
        write_64(offsets + 8 * i, at(offsets, i) + origin)
    return space


def _buffer(state: int, offsets: int, count: int, size: int) -> int:
    """The address of the words of the buffer in which all of an access lies, or 0."""
    lowest, highest = 1 << 62, -(1 << 62)
    for i in range(count):
        offset = at(offsets, i)
        lowest, highest = min(lowest, offset), max(highest, offset)
    low, high = 0, at(state, m.BUFFER_COUNT)
    buffers = at(state, m.BUFFERS)
    while low < high:
        middle = (low + high) >> 1
        if at(buffers + 8 * m.BUFFER_WORDS * middle, m.START) <= lowest:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return 0
    found = buffers + 8 * m.BUFFER_WORDS * (low - 1)
    return found if highest + size <= at(found, m.END) else 0


def _shadow_is(shadow: int, size: int, mask: int, want: int) -> int:
    """Whether the shadow of each of ``size`` bytes has exactly the bits ``want`` of ``mask``."""
    if size == 4:
        return read_u32(shadow) & mask * FOUR_BYTES == want * FOUR_BYTES
    if size == 8:
        return read_i64(shadow) & mask * EIGHT_BYTES == want * EIGHT_BYTES
    if size == 16:
        mask, want = mask * EIGHT_BYTES, want * EIGHT_BYTES
        return read_i64(shadow) & mask == want and read_i64(shadow + 8) & mask == want
    if size == 2:
        return read_u16(shadow) & mask * 0x0101 == want * 0x0101
    return read_u8(shadow) & mask == want


def _races(state: int, space: int, buffer: int, writes: int, count: int, size: int, tag: int) -> int:
    """The race check of an access to shared memory or to a buffer that may be written."""
    if at(state, m.RACES) == 0 or space == LOCAL:
        return 1
    if space == SHARED:
        return note(state, at(state, m.SHARED_HISTORY), writes, 0, count, size, tag)
    if at(buffer, m.WRITABLE) == 0:
        return 1
    return note(state, at(buffer, m.HISTORY), writes, at(buffer, m.START), count, size, tag)


# -- data --------------------------------------------------------------------------------------------------------------


def _load_element(
    data: int, offsets: int, numbers: int, count: int, size: int, target: int, width: int, sign: int
) -> int:
    """Move one element of ``size`` bytes of every lane into a register of ``width`` bytes."""
    if size == 4 and width == 4:
        for i in range(count):
            write_32(target + 4 * at(numbers, i), read_u32(data + at(offsets, i)))
    elif size == 8:
        for i in range(count):
            write_64(target + 8 * at(numbers, i), read_i64(data + at(offsets, i)))
    elif size == 2 and width == 2:
        for i in range(count):
            write_16(target + 2 * at(numbers, i), read_u16(data + at(offsets, i)))
    else:
        for i in range(count):
            place = data + at(offsets, i)
            if size == 1:
                value = read_i8(place) if sign else read_u8(place)
            elif size == 2:
                value = read_i16(place) if sign else read_u16(place)
            else:
                value = read_i32(place) if sign else read_u32(place)
            lane = at(numbers, i)
            if width == 1:
                write_8(target + lane, value)
            elif width == 2:
                write_16(target + 2 * lane, value)
            elif width == 4:
                write_32(target + 4 * lane, value)
            else:
                write_64(target + 8 * lane, value)
    return 0


def _store_element(data: int, offsets: int, numbers: int, count: int, size: int, source: int, width: int) -> int:
    """Move the low ``size`` bytes of a register of every lane to memory."""
    if size == 4:
        for i in range(count):
            write_32(data + at(offsets, i), read_u32(source + width * at(numbers, i)))
    elif size == 8:
        for i in range(count):
            write_64(data + at(offsets, i), read_i64(source + width * at(numbers, i)))
    elif size == 2:
        for i in range(count):
            write_16(data + at(offsets, i), read_u16(source + width * at(numbers, i)))
    else:
        for i in range(count):
            write_8(data + at(offsets, i), read_u8(source + width * at(numbers, i)))
    return 0


def _count(record: int, state: int, space: int, count: int, size: int, writes: int) -> int:
    counters = _operand(record, COUNTERS)
    if counters == 0 or space == LOCAL:
        return 0
    offsets, numbers = at(state, m.OFFSETS), at(state, m.LANE_NUMBERS)
    if space == SHARED:
        words, held = at(state, m.BANK_WORDS), at(state, m.BANK_COUNTS)
        count_shared(counters, offsets, numbers, count, size, writes, words, held)
    else:
        count_global(counters, offsets, numbers, count, size, writes)
    return 0


def load(record: int, first: int, count: int, lanes: int, state: int) -> int:
    """`ld` by ``count`` lanes; 1 where it is refused."""
    space = _resolve(record, first, count, lanes, state)
    if space < 0:
        return 1
    offsets, numbers, size = at(state, m.OFFSETS), at(state, m.LANE_NUMBERS), _operand(record, SIZE)
    buffer = 0
    words = m.SHARED_DATA if space == SHARED else m.LOCAL_DATA
    held = False
    if space == GLOBAL:
        words = m.GLOBAL_DATA
        buffer = _buffer(state, offsets, count, size)
        if buffer == 0:
            return 1
        held = at(buffer, m.INITIALISED) != 0
    data, shadow = at(state, words), at(state, words + 1)
    if not held:
        want = MAPPED | INITIALISED if at(state, m.MUST_HOLD) else MAPPED
        mask = CHANGING if at(state, m.MUST_HOLD) else CHANGING & ~INITIALISED
        for i in range(count):
            if not _shadow_is(shadow + at(offsets, i), size, mask, want):
                return 1
    if not _races(state, space, buffer, False, count, size, _operand(record, TAG)):
        return 1
    _count(record, state, space, count, size, False)
    element, width = _operand(record, ELEMENT_BYTES), _operand(record, REGISTER_BYTES)
    sign = _operand(record, SIGNED) != 0
    for number in range(_operand(record, ELEMENTS)):
        target = _operand(record, REGISTERS + number)
        if target != 0:
            _load_element(data + number * element, offsets, numbers, count, element, target, width, sign)
    return 0


def store(record: int, first: int, count: int, lanes: int, state: int) -> int:
    """`st` by ``count`` lanes; 1 where it is refused."""
    space = _resolve(record, first, count, lanes, state)
    if space < 0:
        return 1
    offsets, numbers, size = at(state, m.OFFSETS), at(state, m.LANE_NUMBERS), _operand(record, SIZE)
    buffer = writers = 0
    words = m.SHARED_DATA if space == SHARED else m.LOCAL_DATA
    if space == GLOBAL:
        words = m.GLOBAL_DATA
        buffer = _buffer(state, offsets, count, size)
        if buffer == 0 or at(buffer, m.WRITABLE) == 0:
            return 1
        writers = at(buffer, m.WRITERS)
    data, shadow = at(state, words), at(state, words + 1)
    mask = CHANGING & ~INITIALISED
    for i in range(count):
        if not _shadow_is(shadow + at(offsets, i), size, mask, MAPPED):
            return 1
    if writers != 0:
        start, thread = at(buffer, m.START), at(state, m.FIRST_THREAD)
        for i in range(count):
            before = at(writers, at(offsets, i) - start)
            if before >= 0 and before != thread + at(numbers, i):
                return 1
    if not _races(state, space, buffer, True, count, size, _operand(record, TAG)):
        return 1
    if writers != 0:
        start, thread = at(buffer, m.START), at(state, m.FIRST_THREAD)
        for i in range(count):
            write_64(writers + 8 * (at(offsets, i) - start), thread + at(numbers, i))
    _count(record, state, space, count, size, True)
    element, width = _operand(record, ELEMENT_BYTES), _operand(record, REGISTER_BYTES)
    for number in range(_operand(record, ELEMENTS)):
        _store_element(
            data + number * element, offsets, numbers, count, element, _operand(record, REGISTERS + number), width
        )
    _mark(shadow, offsets, count, size)
    return 0


def _mark(shadow: int, offsets: int, count: int, size: int) -> int:
    """Make each element one that has been written."""
    every = EIGHT_BYTES * HOLDS
    for i in range(count):
        place = shadow + at(offsets, i)
        if size == 4:
            write_32(place, every)
        elif size == 16:
            write_64(place, every)
            write_64(place + 8, every)
        elif size == 8:
            write_64(place, every)
        elif size == 2:
            write_16(place, every)
        else:
            write_8(place, every)
    return 0


FUNCTIONS: tuple[WordFunction, ...] = (
    _operand, _resolve, _buffer, _shadow_is, _races, _load_element, _store_element, _mark, _count, load, store,
)  # fmt: skip
