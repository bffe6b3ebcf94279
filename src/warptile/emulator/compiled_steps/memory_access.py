"""Loads and stores of many lanes as machine code, with every check of the interpreter.

An access is looked at as a whole before anything changes: where it lies, whether it is aligned, mapped, initialized and
writable. What is not in order is refused, and the interpreter says why. Then the race check, the counters and the data
follow, as in `Memory.load`, `Memory.store` and `Counters`. Lanes of a warp that ask for one address, or for addresses
one behind the other, are taken together.
"""

from __future__ import annotations

from warptile.emulator.compiled_steps import memory_state as m
from warptile.emulator.compiled_steps.access_counts import ALIKE, CONSECUTIVE, at, count_global, count_shared, group
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
from warptile.emulator.memory.spaces import IN_FLIGHT, INITIALISED, MAPPED, MBARRIER, WRITTEN

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
CHANGING = MAPPED | INITIALISED | IN_FLIGHT | MBARRIER
"""Shadow bits that a load looks at."""


def _operand(record: int, number: int) -> int:
    return at(record, OPERANDS + number)


def _addresses(record: int, first: int, count: int, lanes: int, state: int) -> int:
    """Note lanes and addresses."""
    offsets, numbers = at(state, m.OFFSETS), at(state, m.LANE_NUMBERS)
    register, wide, more = _operand(record, ADDRESS), _operand(record, ADDRESS_BYTES) == 8, _operand(record, OFFSET)
    if lanes == 0:
        for i in range(count):
            write_64(numbers + 8 * i, first + i)
    else:
        for i in range(count):
            write_64(numbers + 8 * i, at(lanes, i))
    if register == 0:
        for i in range(count):
            write_64(offsets + 8 * i, more)
    elif wide and lanes == 0:
        source = register + 8 * first
        for i in range(count):
            write_64(offsets + 8 * i, read_i64(source + 8 * i) + more)
    elif wide:
        for i in range(count):
            write_64(offsets + 8 * i, read_i64(register + 8 * at(lanes, i)) + more)
    elif lanes == 0:
        source = register + 4 * first
        for i in range(count):
            write_64(offsets + 8 * i, read_u32(source + 4 * i) + more)
    else:
        for i in range(count):
            write_64(offsets + 8 * i, read_u32(register + 4 * at(lanes, i)) + more)
    return 0


def _resolve(record: int, first: int, count: int, lanes: int, state: int) -> int:
    """Note lanes, offsets into the space of their addresses, the least and the largest of these, and the patterns of
    warps; the space, or -1 where something is not in order."""
    _addresses(record, first, count, lanes, state)
    offsets, numbers = at(state, m.OFFSETS), at(state, m.LANE_NUMBERS)
    size = _operand(record, SIZE)
    space = _operand(record, SPACE)
    lowest, highest, ends = 1 << 62, -(1 << 62), 0
    for i in range(count):
        address = at(offsets, i)
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
    if space == GLOBAL:
        for i in range(count):
            write_64(offsets + 8 * i, at(offsets, i) - GLOBAL_BASE)
        write_64(state + 8 * m.LOWEST, lowest - GLOBAL_BASE)
        write_64(state + 8 * m.HIGHEST, highest - GLOBAL_BASE)
    else:
        words = m.SHARED_DATA if space == SHARED else m.LOCAL_DATA
        if lowest < base or highest - base + size > at(state, words + 2):
            return -1
        per_unit = at(state, m.LANES_PER_CTA) if space == SHARED else 1
        _place(offsets, numbers, count, per_unit, at(state, words + 3), base)
    write_64(state + 8 * m.WARPS, group(offsets, numbers, count, size, at(state, m.GROUPS)))
    return space


def _place(offsets: int, numbers: int, count: int, per_unit: int, stride: int, base: int) -> int:
    """Make addresses in the memory of a CTA or lane offsets into that of all."""
    i = 0
    while i < count:
        unit = at(numbers, i) // per_unit
        end = i + 1
        if at(numbers, count - 1) - at(numbers, i) == count - 1 - i:
            end = min(count, i + (unit + 1) * per_unit - at(numbers, i))
        for j in range(i, end):
            write_64(offsets + 8 * j, at(offsets, j) + unit * stride - base)
        i = end
    return 0


def _buffer(state: int, size: int) -> int:
    """The address of the words of the buffer in which all of an access lies, or 0."""
    lowest, highest = at(state, m.LOWEST), at(state, m.HIGHEST)
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


def _shadows_are(shadow: int, state: int, size: int, mask: int, want: int) -> int:
    """Whether the shadow of every byte of an access has exactly the bits ``want`` of ``mask``."""
    offsets, groups, start = at(state, m.OFFSETS), at(state, m.GROUPS), 0
    for number in range(at(state, m.WARPS)):
        end, pattern = at(groups, 2 * number), at(groups, 2 * number + 1)
        first = at(offsets, start)
        if pattern == CONSECUTIVE and (first | size * (end - start)) % 8 == 0:
            bytes_, bad = shadow + first, 0
            for i in range(size * (end - start) // 8):
                bad |= (read_i64(bytes_ + 8 * i) & mask * EIGHT_BYTES) ^ (want * EIGHT_BYTES)
            if bad:
                return 0
        elif _differing(shadow, offsets, start, start + 1 if pattern == ALIKE else end, size, mask, want):
            return 0
        start = end
    return 1


def _differing(shadow: int, offsets: int, start: int, end: int, size: int, mask: int, want: int) -> int:
    """Bits in which the shadows of some lanes differ from ``want``, of those in ``mask``."""
    differ = 0
    if size == 4:
        mask, want = mask * FOUR_BYTES, want * FOUR_BYTES
        for i in range(start, end):
            differ |= (read_u32(shadow + at(offsets, i)) & mask) ^ want
    elif size >= 8:
        mask, want = mask * EIGHT_BYTES, want * EIGHT_BYTES
        for i in range(start, end):
            differ |= (read_i64(shadow + at(offsets, i)) & mask) ^ want
        if size == 16:
            for i in range(start, end):
                differ |= (read_i64(shadow + 8 + at(offsets, i)) & mask) ^ want
    elif size == 2:
        mask, want = mask * 0x0101, want * 0x0101
        for i in range(start, end):
            differ |= (read_u16(shadow + at(offsets, i)) & mask) ^ want
    else:
        for i in range(start, end):
            differ |= (read_u8(shadow + at(offsets, i)) & mask) ^ want
    return differ


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


def _load_words(state: int, data: int, whole: int, target: int) -> int:
    """Move an element of four bytes of every lane into a register; ``whole`` is 1 where it is all of the access."""
    offsets, numbers, groups = at(state, m.OFFSETS), at(state, m.LANE_NUMBERS), at(state, m.GROUPS)
    start = 0
    for number in range(at(state, m.WARPS)):
        end, pattern = at(groups, 2 * number), at(groups, 2 * number + 1)
        count, to, source = end - start, target + 4 * at(numbers, start), data + at(offsets, start)
        if at(numbers, end - 1) - at(numbers, start) != count - 1:
            for i in range(start, end):
                write_32(target + 4 * at(numbers, i), read_u32(data + at(offsets, i)))
        elif pattern == ALIKE:
            value = read_u32(source)
            for i in range(count):
                write_32(to + 4 * i, value)
        elif pattern == CONSECUTIVE and whole:
            for i in range(count):
                write_32(to + 4 * i, read_u32(source + 4 * i))
        else:
            for i in range(count):
                write_32(to + 4 * i, read_u32(data + at(offsets, start + i)))
        start = end
    return 0


def _load_element(
    data: int, offsets: int, numbers: int, count: int, size: int, target: int, width: int, sign: int
) -> int:
    """Move one element of ``size`` bytes of every lane into a register of ``width`` bytes."""
    if size == 8:
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


def _count(record: int, state: int, space: int, size: int, writes: int) -> int:
    counters = _operand(record, COUNTERS)
    if counters == 0 or space == LOCAL:
        return 0
    offsets, numbers = at(state, m.OFFSETS), at(state, m.LANE_NUMBERS)
    groups, warps = at(state, m.GROUPS), at(state, m.WARPS)
    if space == SHARED:
        words, held = at(state, m.BANK_WORDS), at(state, m.BANK_COUNTS)
        count_shared(counters, offsets, numbers, groups, warps, size, writes, words, held)
    else:
        count_global(counters, offsets, groups, warps, size, writes)
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
        buffer = _buffer(state, size)
        if buffer == 0:
            return 1
        held = at(buffer, m.INITIALISED) != 0
    data, shadow = at(state, words), at(state, words + 1)
    if not held:
        want = MAPPED | INITIALISED if at(state, m.MUST_HOLD) else MAPPED
        mask = CHANGING if at(state, m.MUST_HOLD) else CHANGING & ~INITIALISED
        if not _shadows_are(shadow, state, size, mask, want):
            return 1
    if not _races(state, space, buffer, False, count, size, _operand(record, TAG)):
        return 1
    _count(record, state, space, size, False)
    element, width = _operand(record, ELEMENT_BYTES), _operand(record, REGISTER_BYTES)
    sign = _operand(record, SIGNED) != 0
    for number in range(_operand(record, ELEMENTS)):
        target = _operand(record, REGISTERS + number)
        if target == 0:
            continue
        if element == 4 and width == 4:
            _load_words(state, data + 4 * number, size == 4, target)
        else:
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
        buffer = _buffer(state, size)
        if buffer == 0 or at(buffer, m.WRITABLE) == 0:
            return 1
        if at(buffer, m.TOUCHED) == 0:
            write_64(state + 8 * m.UNTOUCHED, buffer)
            return 1
        writers = at(buffer, m.WRITERS)
    data, shadow = at(state, words), at(state, words + 1)
    mask = CHANGING & ~INITIALISED
    if not _shadows_are(shadow, state, size, mask, MAPPED):
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
    _count(record, state, space, size, True)
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
    _operand, _addresses, _resolve, _place, _buffer, _differing, _shadows_are, _races, _load_words, _load_element,
    _store_element, _mark, _count, load, store,
)  # fmt: skip
