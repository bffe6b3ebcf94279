"""Logic, shifts and bit fields (PTX ISA, "Logic and Shift Instructions" and the bit part of "Integer Arithmetic")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from warptile.emulator.builders import Assembler, Modifiers, Operation, builder, unknown
from warptile.emulator.lanes import Active, Array
from warptile.emulator.ops.typed import INTEGERS, elementwise, joined, pieces, typed
from warptile.ptx.instruction import Immediate, Instruction, Paired

_U32, _U64 = np.uint32, np.uint64
_LOGIC: dict[str, Callable[..., Array]] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


@typed("and or xor", "pred b16 b32 b64")
def logic(instruction: Instruction, assembler: Assembler) -> Operation:
    """``and``, ``or``, ``xor`` of bits or of predicates."""
    modifiers = Modifiers(instruction)
    kind = _bits(modifiers.last())
    modifiers.done()
    return elementwise(instruction, assembler, _LOGIC[instruction.opcode], kind, kind, kind)


@typed("not", "pred b16 b32 b64")
def complement(instruction: Instruction, assembler: Assembler) -> Operation:
    """``not``."""
    modifiers = Modifiers(instruction)
    kind = _bits(modifiers.last())
    modifiers.done()
    return elementwise(instruction, assembler, np.invert, kind, kind)


@typed("cnot", "b16 b32 b64")
def logical_not(instruction: Instruction, assembler: Assembler) -> Operation:
    """``cnot``: 1 for zero, else 0."""
    modifiers = Modifiers(instruction)
    kind = INTEGERS[modifiers.last()]
    modifiers.done()
    return elementwise(instruction, assembler, lambda a: (a == 0).astype(kind), kind, kind)


def _bits(name: str) -> np.dtype[Any]:
    return np.dtype(np.bool_) if name == "pred" else INTEGERS[name]


# -- lop3 ------------------------------------------------------------------------------------------------------------


def _of_two(table: int) -> Callable[[Array, Array], Array]:
    """The function of b and c whose value for bits (b, c) is bit ``2b + c`` of ``table``."""
    functions: tuple[Callable[..., Any], ...] = (
        lambda b, c: _U32(0),
        lambda b, c: ~(b | c),
        lambda b, c: ~b & c,
        lambda b, c: ~b,
        lambda b, c: b & ~c,
        lambda b, c: ~c,
        lambda b, c: b ^ c,
        lambda b, c: ~(b & c),
        lambda b, c: b & c,
        lambda b, c: ~(b ^ c),
        lambda b, c: c,
        lambda b, c: ~b | c,
        lambda b, c: b,
        lambda b, c: b | ~c,
        lambda b, c: b | c,
        lambda b, c: _U32(0xFFFFFFFF),
    )
    return functions[table]


def lookup(table: int) -> Callable[[Array, Array, Array], Array]:
    """The bitwise function of three values that ``lop3`` calls ``table``: bit ``4a + 2b + c`` of it is the result."""
    low, high = table & 15, table >> 4
    if_clear, if_set = _of_two(low), _of_two(high)
    if low == high:
        return lambda a, b, c: if_clear(b, c)
    if low == 0:
        return lambda a, b, c: a & if_set(b, c)
    if high == 15:
        return lambda a, b, c: a | if_clear(b, c)
    if high == low ^ 15:
        return lambda a, b, c: a ^ if_clear(b, c)
    if high == 0:
        return lambda a, b, c: ~a & if_clear(b, c)
    if low == 15:
        return lambda a, b, c: ~a | if_set(b, c)
    return lambda a, b, c: (a & if_set(b, c)) | (~a & if_clear(b, c))


@builder("lop3")
def three_way_logic(instruction: Instruction, assembler: Assembler) -> Operation:
    """``lop3.b32 d, a, b, c, table`` and ``lop3.or|and.b32 d|p, a, b, c, table, q``: p = (d != 0) op q."""
    modifiers = Modifiers(instruction)
    combine = modifiers.take("and", "or")
    modifiers.need("b32")
    modifiers.done()
    operands = instruction.operands
    target = operands[0]
    table = operands[4] if len(operands) > 4 else None
    if not isinstance(table, Immediate) or not isinstance(table.value, int) or not 0 <= table.value <= 255:
        raise unknown(instruction, "its table is a constant from 0 to 255")
    function = lookup(table.value)
    a, b, c = (assembler.source(operand, _U32) for operand in operands[1:4])
    if combine is None:
        if len(operands) != 5:
            raise unknown(instruction, f"takes 5 operands, got {len(operands)}")
        write = assembler.destination(target, _U32)
        return Operation(lambda active: write(active, function(a(active), b(active), c(active))))
    if not isinstance(target, Paired) or len(operands) != 6:
        raise unknown(instruction, "its destination is d|p and its last operand a predicate")
    combined = _LOGIC[combine]
    incoming = assembler.source(operands[5], np.bool_)
    writes = assembler.destination(target.first, _U32) if target.first else None
    write_predicate = assembler.destination(target.second, np.bool_) if target.second else None

    def run(active: Active) -> None:
        value = function(a(active), b(active), c(active))
        truth = combined(value != 0, incoming(active))
        if writes:
            writes(active, value)
        if write_predicate:
            write_predicate(active, truth)

    return Operation(run)


# -- shifts ------------------------------------------------------------------------------------------------------------


@typed("shl shr", "b16 b32 b64 u16 u32 u64 s16 s32 s64")
def shift(instruction: Instruction, assembler: Assembler) -> Operation:
    """``shl`` and ``shr``: an amount beyond the width shifts everything out (or leaves only signs)."""
    modifiers = Modifiers(instruction)
    kind = INTEGERS[modifiers.last()]
    modifiers.done()
    left = instruction.opcode == "shl"
    if left and instruction.modifiers[-1][0] != "b":
        raise unknown(instruction, "shl takes .b16, .b32 or .b64")
    operation: Callable[..., Array] = np.left_shift if left else np.right_shift
    width = 8 * kind.itemsize
    amount = instruction.operands[2]
    if isinstance(amount, Immediate):
        # NumPy shifts by the width or more as PTX does: zeros, or copies of the sign
        constant = kind.type(min(int(amount.value) & 0xFFFFFFFF, width))
        shortened = Instruction(
            instruction.opcode, instruction.modifiers, instruction.operands[:2], instruction.location, instruction.text
        )
        return elementwise(shortened, assembler, lambda a: operation(a, constant), kind, kind)
    limit = _U32(width)
    return elementwise(
        instruction, assembler, lambda a, b: operation(a, np.minimum(b, limit).astype(kind)), kind, kind, _U32
    )


@builder("shf")
def funnel_shift(instruction: Instruction, assembler: Assembler) -> Operation:
    """``shf.l|.r.clamp|.wrap.b32 d, a, b, c``: 32 bits of b:a shifted by c."""
    return elementwise(instruction, assembler, funnel_shifted(instruction), *[_U32] * 4)


def funnel_shifted(instruction: Instruction) -> Callable[[Array, Array, Array], Array]:
    """The function of a ``shf``."""
    modifiers = Modifiers(instruction)
    left = modifiers.need("l", "r") == "l"
    wrap = modifiers.need("clamp", "wrap") == "wrap"
    modifiers.need("b32")
    modifiers.done()

    def function(a: Array, b: Array, c: Array) -> Array:
        both = (b.astype(_U64) << _U64(32)) | a
        amount = (c & _U32(31) if wrap else np.minimum(c, _U32(32))).astype(_U64)
        return (((both << amount) >> _U64(32)) if left else (both >> amount)).astype(_U32)

    return function


@builder("prmt")
def permute(instruction: Instruction, assembler: Assembler) -> Operation:
    """``prmt.b32{.mode} d, a, b, c``: pick four of the eight bytes of b:a."""
    modifiers = Modifiers(instruction)
    mode = modifiers.take(*_BYTE_MODES)
    modifiers.need("b32")
    modifiers.done()
    selector = instruction.operands[3]
    if isinstance(selector, Immediate):
        control = int(selector.value) & 0xFFFFFFFF
        picks = [control >> (4 * i) & 15 for i in range(4)] if mode is None else _BYTE_MODES[mode][control & 3]
        fixed = _fixed_permutation(picks)
        return elementwise(instruction, assembler, fixed, *[_U32] * 4)
    tables = None if mode is None else np.array(_BYTE_MODES[mode], dtype=_U32)

    def chosen_at_run_time(a: Array, b: Array, c: Array) -> Array:
        both = _both(a, b)
        result = np.zeros(1, dtype=_U32)
        for i in range(4):
            pick = (c >> _U32(4 * i)) & _U32(15) if tables is None else tables[c & _U32(3), i]
            byte = ((both >> ((pick & _U32(7)) << _U32(3)).astype(_U64)) & _U64(255)).astype(_U32)
            sign = np.where(byte & _U32(128), _U32(255), _U32(0))
            result = result | (np.where(pick & _U32(8), sign, byte) << _U32(8 * i))
        return result

    return elementwise(instruction, assembler, chosen_at_run_time, *[_U32] * 4)


def _fixed_permutation(picks: list[int]) -> Callable[[Array, Array, Array], Array]:
    """Bytes that the selector fixes: every run of neighbours that move together is one shift and one mask."""
    if any(pick & 8 for pick in picks):
        order = [pick & 7 for pick in picks]
        signs = np.array([bool(pick & 8) for pick in picks])

        def replicated(a: Array, b: Array, c: Array) -> Array:
            chosen = pieces(_both(a, b), np.uint8)[:, order]
            return joined(np.where(signs, np.where(chosen & 0x80, np.uint8(255), np.uint8(0)), chosen), np.uint32)

        return replicated
    masks: dict[tuple[bool, int], int] = {}
    for place, pick in enumerate(picks):
        move = pick >= 4, 8 * (place - (pick & 3))
        masks[move] = masks.get(move, 0) | 0xFF << (8 * place)
    moves = [(second, shift, _U32(mask)) for (second, shift), mask in masks.items()]

    def moved(a: Array, b: Array, c: Array) -> Array:
        result: Any = None
        for second, shift, mask in moves:
            source = b if second else a
            part = (source << _U32(shift) if shift >= 0 else source >> _U32(-shift)) & mask
            result = part if result is None else result | part
        answer: Array = result
        return answer

    return moved


def _both(a: Array, b: Array) -> Array:
    return (b.astype(_U64) << _U64(32)) | a


_BYTE_MODES: dict[str, list[list[int]]] = {
    "f4e": [[n + i for i in range(4)] for n in range(4)],
    "b4e": [[(n - i) % 8 for i in range(4)] for n in range(4)],
    "rc8": [[n] * 4 for n in range(4)],
    "ecl": [[max(n, i) for i in range(4)] for n in range(4)],
    "ecr": [[min(n, i) for i in range(4)] for n in range(4)],
    "rc16": [[2 * (n & 1), 2 * (n & 1) + 1] * 2 for n in range(4)],
}
"""Byte numbers, lowest first, for the two selector bits of each mode of ``prmt``."""


# -- counting and searching --------------------------------------------------------------------------------------------


def highest_bit(value: Array) -> Array:
    """Number of the highest bit that is set, as int64; -1 where none is."""
    if value.dtype.itemsize < 8:
        return np.frexp(value.astype(np.float64))[1].astype(np.int64) - 1
    high = np.frexp((value >> _U64(32)).astype(np.float64))[1].astype(np.int64) + 31
    low = np.frexp((value & _U64(0xFFFFFFFF)).astype(np.float64))[1].astype(np.int64) - 1
    return np.where(high > 31, high, low)


@typed("popc clz", "b32 b64")
def count_bits(instruction: Instruction, assembler: Assembler) -> Operation:
    """``popc``: bits that are set; ``clz``: zeros above the highest of them."""
    modifiers = Modifiers(instruction)
    kind = INTEGERS[modifiers.last()]
    modifiers.done()
    top = 8 * kind.itemsize - 1
    if instruction.opcode == "popc":
        return elementwise(instruction, assembler, lambda a: np.bitwise_count(a).astype(_U32), _U32, kind)
    return elementwise(instruction, assembler, lambda a: (top - highest_bit(a)).astype(_U32), _U32, kind)


@typed("bfind", "u32 u64 s32 s64")
def find_bit(instruction: Instruction, assembler: Assembler) -> Operation:
    """``bfind{.shiftamt}``: the highest bit that differs from the sign, or 0xFFFFFFFF."""
    modifiers = Modifiers(instruction)
    kind = INTEGERS[modifiers.last()]
    amount = modifiers.flag("shiftamt")
    modifiers.done()
    unsigned = np.dtype(f"u{kind.itemsize}")
    top = 8 * kind.itemsize - 1

    def find(a: Array) -> Array:
        found = highest_bit((np.where(a < 0, ~a, a) if kind.kind == "i" else a).view(unsigned))
        if amount:
            found = np.where(found < 0, found, top - found)
        return found.astype(_U32)

    return elementwise(instruction, assembler, find, _U32, kind)


@builder("fns")
def find_nth(instruction: Instruction, assembler: Assembler) -> Operation:
    """``fns.b32 d, mask, base, offset``: the offset-th set bit from base upward (downward when negative)."""
    modifiers = Modifiers(instruction)
    modifiers.need("b32")
    modifiers.done()

    def find(mask: Array, base: Array, offset: Array) -> Array:
        mask, base, offset = np.broadcast_arrays(mask, base.astype(np.int64), offset.astype(np.int64))
        result = np.full(mask.shape, 0xFFFFFFFF, dtype=_U32)
        left = np.maximum(np.abs(offset), 1)
        step = np.where(offset < 0, -1, 1)
        for distance in range(32):
            place = base + distance * step
            inside = (place >= 0) & (place < 32) & ((offset != 0) | (distance == 0))
            hit = inside & ((mask >> np.where(inside, place, 0).astype(_U32)) & _U32(1)).astype(bool)
            left = left - hit
            result = np.where(hit & (left == 0), place.astype(_U32), result)
        return result

    return elementwise(instruction, assembler, find, _U32, _U32, _U32, np.int32)


@typed("brev", "b32 b64")
def reverse_bits(instruction: Instruction, assembler: Assembler) -> Operation:
    """``brev``: bit i goes to bit width-1-i."""
    modifiers = Modifiers(instruction)
    kind = INTEGERS[modifiers.last()]
    modifiers.done()
    steps = [
        (kind.type(shift_bits), kind.type(int.from_bytes(bytes([mask] * kind.itemsize), "little")))
        for shift_bits, mask in ((1, 0x55), (2, 0x33), (4, 0x0F))
    ]

    def reverse(a: Array) -> Array:
        for amount, mask in steps:
            a = ((a >> amount) & mask) | ((a & mask) << amount)
        return a.byteswap()

    return elementwise(instruction, assembler, reverse, kind, kind)


# -- fields ------------------------------------------------------------------------------------------------------------


def _field_place(instruction: Instruction, width: int) -> Callable[[Array], Array]:
    """What the hardware makes of a position or length in a register: at most ``width``, beyond which all are alike.

    PTX takes values of 0 to 255. Of larger ones the compiled code decides (SASS of sm_75, sm_80, sm_90a and sm_100a):
    32-bit fields go through PRMT, which cuts out the lowest byte, and then through shifts that clamp; 64-bit fields are
    made of shifts of all 32 bits (SHF without .W, as of shl.b64, which clamp), (1 << length) - 1 among them.

    Raises:
        UnknownInstruction: a constant above 255, which ptxas refuses.
    """
    for operand in instruction.operands[-2:]:
        if isinstance(operand, Immediate) and not 0 <= int(operand.value) <= 255:
            raise unknown(instruction, f"{operand.value} is no position or length; those are 0 to 255")
    limit = _U32(width)
    if width == 32:
        return lambda value: np.minimum(value & _U32(255), limit)
    return lambda value: np.minimum(value, limit)


@typed("bfe", "u32 u64 s32 s64")
def extract_field(instruction: Instruction, assembler: Assembler) -> Operation:
    """``bfe d, a, position, length``; beyond the top, and in the sign of a signed field, the sign is repeated."""
    modifiers = Modifiers(instruction)
    kind = INTEGERS[modifiers.last()]
    modifiers.done()
    unsigned = np.dtype(f"u{kind.itemsize}")
    width = 8 * kind.itemsize
    place = _field_place(instruction, width)
    one, all_ones = unsigned.type(1), unsigned.type(np.iinfo(unsigned).max)

    def extract(a: Array, position: Array, length: Array) -> Array:
        bits = a.view(unsigned)
        position, length = place(position), place(length)
        inside = np.minimum(length, _U32(width) - position)
        mask = (one << inside.astype(unsigned)) - one
        field = (bits >> position.astype(unsigned)) & mask
        if kind.kind == "i":
            sign_place = np.minimum(position + length - _U32(1), _U32(width - 1))
            sign = ((bits >> sign_place.astype(unsigned)) & one).astype(bool) & (length != 0)
            field = field | np.where(sign, all_ones ^ mask, unsigned.type(0))
        answer: Array = field.view(kind)
        return answer

    return elementwise(instruction, assembler, extract, kind, kind, _U32, _U32)


@typed("bfi", "b32 b64")
def insert_field(instruction: Instruction, assembler: Assembler) -> Operation:
    """``bfi f, a, b, position, length``: the low bits of a into b."""
    modifiers = Modifiers(instruction)
    kind = INTEGERS[modifiers.last()]
    modifiers.done()
    place = _field_place(instruction, 8 * kind.itemsize)
    one = kind.type(1)

    def insert(a: Array, b: Array, position: Array, length: Array) -> Array:
        position, length = place(position).astype(kind), place(length).astype(kind)
        mask = ((one << length) - one) << position
        answer: Array = (b & ~mask) | ((a << position) & mask)
        return answer

    return elementwise(instruction, assembler, insert, kind, kind, kind, _U32, _U32)


@builder("bmsk")
def bit_mask(instruction: Instruction, assembler: Assembler) -> Operation:
    """``bmsk.clamp|.wrap.b32 d, position, length``: a run of ones."""
    modifiers = Modifiers(instruction)
    wrap = modifiers.need("clamp", "wrap") == "wrap"
    modifiers.need("b32")
    modifiers.done()

    def mask(position: Array, length: Array) -> Array:
        limit: Callable[[Array], Array] = (
            (lambda value: value & _U32(31)) if wrap else (lambda value: np.minimum(value, _U32(32)))
        )
        ones = (_U64(1) << limit(length).astype(_U64)) - _U64(1)
        return (ones << limit(position).astype(_U64)).astype(_U32)

    return elementwise(instruction, assembler, mask, _U32, _U32, _U32)


@typed("szext", "u32 s32")
def extend(instruction: Instruction, assembler: Assembler) -> Operation:
    """``szext.clamp|.wrap d, a, n``: the low n bits of a, sign- or zero-extended."""
    modifiers = Modifiers(instruction)
    kind = INTEGERS[modifiers.last()]
    wrap = modifiers.need("clamp", "wrap") == "wrap"
    modifiers.done()

    def extended(a: Array, n: Array) -> Array:
        n = n & _U32(31) if wrap else np.minimum(n, _U32(32))
        up = (_U32(32) - n).astype(kind)
        answer: Array = (a << up) >> up
        return answer

    return elementwise(instruction, assembler, extended, kind, kind, _U32)
