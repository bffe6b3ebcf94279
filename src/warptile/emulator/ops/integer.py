"""Integer arithmetic (PTX ISA, "Integer Arithmetic Instructions" and "Extended-Precision Integer Arithmetic").

Division by zero is unspecified in PTX. Here, as on the hardware, the quotient has all bits set and the remainder is the
dividend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from warptile.emulator.builders import Assembler, Modifiers, Operation, builder, unknown
from warptile.emulator.lanes import Active, Array
from warptile.emulator.ops.typed import INTEGERS, elementwise, joined, pieces, typed
from warptile.ptx.instruction import Instruction, Register

CARRY = Register("%cc", "pred")
"""The carry flag CC.CF, one bit a lane: the carry-out of an adder. A subtraction adds the complement, as machine code
does, so that it leaves (and ``subc`` expects) 1 where nothing is borrowed; ``addc`` after ``sub.cc`` shows it."""

_SCALARS = "u16 u32 u64 s16 s32 s64"
_PAIRS = {"u16x2": np.dtype(np.uint16), "s16x2": np.dtype(np.int16)}
_WIDER = {2: 4, 4: 8}
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def _double(kind: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"{kind.kind}{_WIDER[kind.itemsize]}")


def _signed(kind: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"i{kind.itemsize}")


def _unsigned(kind: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"u{kind.itemsize}")


def on_pairs(function: Callable[..., Array], part: np.dtype[Any]) -> Callable[..., Array]:
    """``function`` of 16-bit values, as a function of 32-bit registers that hold two."""

    def packed(*values: Array) -> Array:
        return joined(function(*[pieces(value, part) for value in values]), np.uint32)

    return packed


def _clip_s32(wide: Array) -> Array:
    return np.clip(wide, -(2**31), 2**31 - 1).astype(np.int32)


# -- sums ------------------------------------------------------------------------------------------------------------


@typed("add sub", _SCALARS)
def sum_or_difference(instruction: Instruction, assembler: Assembler) -> Operation:
    """``add{.sat|.cc}`` and ``sub``: wraps, or saturates for .sat.s32; .cc also writes the carry flag."""
    modifiers = Modifiers(instruction)
    carry, saturate = modifiers.flag("cc"), modifiers.flag("sat")
    name = modifiers.last()
    modifiers.done()
    function: Callable[..., Array] = np.add if instruction.opcode == "add" else np.subtract
    if carry:
        return _with_carry(instruction, assembler, name, reads=False, writes=True)
    if not saturate:
        return elementwise(instruction, assembler, function, *[INTEGERS[name]] * 3)
    if name != "s32":
        raise unknown(instruction, ".sat is for .s32 only")

    def saturated(a: Array, b: Array) -> Array:
        return _clip_s32(function(a.astype(np.int64), b.astype(np.int64)))

    return elementwise(instruction, assembler, saturated, *[INTEGERS[name]] * 3)


@typed("add sub", "u16x2 s16x2")
def packed_sum(instruction: Instruction, assembler: Assembler) -> Operation:
    """``add.u16x2`` and the like: two sums that do not carry into each other."""
    modifiers = Modifiers(instruction)
    part = _PAIRS[modifiers.last()]
    modifiers.done()
    function = on_pairs(np.add if instruction.opcode == "add" else np.subtract, part)
    return elementwise(instruction, assembler, function, *[np.uint32] * 3)


@typed("addc subc", "u32 s32 u64 s64")
def carried_sum(instruction: Instruction, assembler: Assembler) -> Operation:
    """``addc{.cc}`` and ``subc{.cc}``: with the carry flag, which is 0 after a borrow."""
    modifiers = Modifiers(instruction)
    writes = modifiers.flag("cc")
    name = modifiers.last()
    modifiers.done()
    return _with_carry(instruction, assembler, name, reads=True, writes=writes)


def _with_carry(instruction: Instruction, assembler: Assembler, name: str, *, reads: bool, writes: bool) -> Operation:
    kind = _unsigned(INTEGERS[name])
    subtract = instruction.opcode.startswith("sub")
    flag = assembler.machine.registers.array(CARRY)
    write = assembler.destination(instruction.operands[0], kind)
    a, b = (assembler.source(operand, kind) for operand in instruction.operands[1:])

    def run(active: Active) -> None:
        left, right = a(active), b(active)
        incoming = flag[active.index].astype(kind) if reads else kind.type(subtract)
        if subtract:
            right = ~right
        partial = left + right
        total = partial + incoming
        outgoing = (partial < left) | (total < partial)
        write(active, total)
        if writes:
            flag[active.index] = outgoing

    return Operation(run)


# -- products --------------------------------------------------------------------------------------------------------


def _high(kind: np.dtype[Any]) -> Callable[[Array, Array], Array]:
    """The upper half of the exact product."""
    if kind.itemsize < 8:
        wide, shift = _double(kind), np.array(8 * kind.itemsize, dtype=_double(kind))
        return lambda a, b: ((a.astype(wide) * b.astype(wide)) >> shift).astype(kind)

    def high64(a: Array, b: Array) -> Array:
        ua, ub = a.view(np.uint64), b.view(np.uint64)
        a0, a1, b0, b1 = ua & _LOW, ua >> _32, ub & _LOW, ub >> _32
        middle = a1 * b0 + (a0 * b0 >> _32)
        other = a0 * b1 + (middle & _LOW)
        high = a1 * b1 + (middle >> _32) + (other >> _32)
        if kind.kind == "i":
            high = high - np.where(a < 0, ub, np.uint64(0)) - np.where(b < 0, ua, np.uint64(0))
        answer: Array = high.view(kind)
        return answer

    return high64


def _product(part: str, kind: np.dtype[Any]) -> tuple[Callable[[Array, Array], Array], np.dtype[Any]]:
    """Function and result type of ``mul.lo``, ``.hi`` or ``.wide``."""
    if part == "lo":
        return np.multiply, kind
    if part == "hi":
        return _high(kind), kind
    wide = _double(kind)

    def widened(a: Array, b: Array) -> Array:
        return np.multiply(a, b, dtype=wide)

    return widened, wide


def _part_and_type(instruction: Instruction, modifiers: Modifiers) -> tuple[str, str]:
    name = modifiers.last()
    part = modifiers.need("lo", "hi", "wide")
    if part == "wide" and name.endswith("64"):
        raise unknown(instruction, "there is no 128-bit product")
    return part, name


@typed("mul", _SCALARS)
def product(instruction: Instruction, assembler: Assembler) -> Operation:
    """``mul.lo|.hi|.wide``."""
    modifiers = Modifiers(instruction)
    part, name = _part_and_type(instruction, modifiers)
    modifiers.done()
    function, result = _product(part, INTEGERS[name])
    return elementwise(instruction, assembler, function, result, INTEGERS[name], INTEGERS[name])


@typed("mad", _SCALARS)
def product_sum(instruction: Instruction, assembler: Assembler) -> Operation:
    """``mad.lo|.hi|.wide``, ``mad.hi.sat.s32``, ``mad.lo|.hi.cc``."""
    modifiers = Modifiers(instruction)
    part, name = _part_and_type(instruction, modifiers)
    saturate, carry = modifiers.flag("sat"), modifiers.flag("cc")
    modifiers.done()
    if carry:
        return _product_sum_with_carry(instruction, assembler, part, name, reads=False, writes=True)
    kind = INTEGERS[name]
    multiply, result = _product(part, kind)
    if saturate:
        if (part, name) != ("hi", "s32"):
            raise unknown(instruction, ".sat is for mad.hi.s32 only")

        def saturated(a: Array, b: Array, c: Array) -> Array:
            return _clip_s32(multiply(a, b).astype(np.int64) + c)

        return elementwise(instruction, assembler, saturated, kind, kind, kind, kind)
    return elementwise(instruction, assembler, lambda a, b, c: multiply(a, b) + c, result, kind, kind, result)


@typed("madc", "u32 s32 u64 s64")
def carried_product_sum(instruction: Instruction, assembler: Assembler) -> Operation:
    """``madc.lo|.hi{.cc}``: the carry flag is added as well."""
    modifiers = Modifiers(instruction)
    writes = modifiers.flag("cc")
    part, name = _part_and_type(instruction, modifiers)
    modifiers.done()
    return _product_sum_with_carry(instruction, assembler, part, name, reads=True, writes=writes)


def _product_sum_with_carry(
    instruction: Instruction, assembler: Assembler, part: str, name: str, *, reads: bool, writes: bool
) -> Operation:
    if part == "wide":
        raise unknown(instruction, ".wide takes no carry")
    kind = INTEGERS[name]
    multiply, _ = _product(part, kind)
    unsigned = _unsigned(kind)
    flag = assembler.machine.registers.array(CARRY)
    write = assembler.destination(instruction.operands[0], unsigned)
    a, b, c = (assembler.source(operand, kind) for operand in instruction.operands[1:])

    def run(active: Active) -> None:
        top, addend = multiply(a(active), b(active)).view(unsigned), c(active).view(unsigned)
        incoming = flag[active.index].astype(unsigned) if reads else unsigned.type(0)
        partial = top + addend
        total = partial + incoming
        outgoing = (partial < top) | (total < partial)
        write(active, total)
        if writes:
            flag[active.index] = outgoing

    return Operation(run)


@typed("mul24 mad24", "u32 s32")
def product_of_24_bits(instruction: Instruction, assembler: Assembler) -> Operation:
    """``mul24`` and ``mad24``: the low 32 bits, or bits 47..16, of a product of 24-bit numbers."""
    modifiers = Modifiers(instruction)
    kind = INTEGERS[modifiers.last()]
    high = modifiers.need("lo", "hi") == "hi"
    saturate = modifiers.flag("sat")
    modifiers.done()
    wide = _double(kind)
    if saturate and not (instruction.opcode == "mad24" and high and kind.kind == "i"):
        raise unknown(instruction, ".sat is for mad24.hi.s32 only")

    def low24(value: Array) -> Array:
        shifted = (value.view(np.uint32) << np.uint32(8)).view(kind)
        answer: Array = (shifted >> kind.type(8)).astype(wide)
        return answer

    def multiply(a: Array, b: Array) -> Array:
        whole = low24(a) * low24(b)
        return (whole >> wide.type(16) if high else whole).astype(kind)

    if instruction.opcode == "mul24":
        return elementwise(instruction, assembler, multiply, kind, kind, kind)
    if saturate:
        return elementwise(
            instruction, assembler, lambda a, b, c: _clip_s32(multiply(a, b).astype(np.int64) + c), *[kind] * 4
        )
    return elementwise(instruction, assembler, lambda a, b, c: multiply(a, b) + c, *[kind] * 4)


# -- quotients, magnitudes, order --------------------------------------------------------------------------------------


@typed("div rem", _SCALARS)
def quotient(instruction: Instruction, assembler: Assembler) -> Operation:
    """``div`` and ``rem``: toward zero; the remainder has the sign of the dividend."""
    modifiers = Modifiers(instruction)
    kind = INTEGERS[modifiers.last()]
    modifiers.done()
    unsigned = _unsigned(kind)
    one, ones = unsigned.type(1), unsigned.type(np.iinfo(unsigned).max)
    remainder = instruction.opcode == "rem"

    def divide(a: Array, b: Array) -> Array:
        zero = b == 0
        top, bottom = _magnitude(a).view(unsigned), np.where(zero, one, _magnitude(b).view(unsigned))
        if remainder:
            part = np.where(zero, top, top % bottom)
            return np.where(a < 0, -part, part).view(kind) if kind.kind == "i" else part
        part = top // bottom
        if kind.kind == "i":
            part = np.where((a < 0) != (b < 0), -part, part)
        return np.where(zero, ones, part).view(kind)

    return elementwise(instruction, assembler, divide, kind, kind, kind)


def _magnitude(value: Array) -> Array:
    """|value|, wrapped for the most negative one."""
    return np.where(value < 0, -value, value) if value.dtype.kind == "i" else value


@typed("abs neg", "s16 s32 s64")
def magnitude_or_opposite(instruction: Instruction, assembler: Assembler) -> Operation:
    """``abs`` and ``neg``; the most negative number stays itself."""
    modifiers = Modifiers(instruction)
    kind = INTEGERS[modifiers.last()]
    modifiers.done()
    function = _magnitude if instruction.opcode == "abs" else np.negative
    return elementwise(instruction, assembler, function, kind, kind)


@typed("sad", _SCALARS)
def sum_of_absolute_difference(instruction: Instruction, assembler: Assembler) -> Operation:
    """``sad``: c + |a - b|."""
    modifiers = Modifiers(instruction)
    kind = INTEGERS[modifiers.last()]
    modifiers.done()
    return elementwise(
        instruction, assembler, lambda a, b, c: c + np.where(a < b, b - a, a - b), kind, kind, kind, kind
    )


@typed("min max", _SCALARS + " u16x2 s16x2")
def extremum(instruction: Instruction, assembler: Assembler) -> Operation:
    """``min`` and ``max``, scalar or in pairs; .relu then takes nothing below zero."""
    modifiers = Modifiers(instruction)
    relu = modifiers.flag("relu")  # before the type, or behind it as NVRTC writes it
    name = modifiers.last()
    modifiers.done()
    if relu and name not in ("s32", "s16x2"):
        raise unknown(instruction, ".relu is for .s32 and .s16x2 only")
    part = _PAIRS.get(name) or INTEGERS[name]
    choose: Callable[..., Array] = np.minimum if instruction.opcode == "min" else np.maximum

    def rectified(a: Array, b: Array) -> Array:
        return np.maximum(choose(a, b), part.type(0))

    function = rectified if relu else choose
    if name in _PAIRS:
        return elementwise(instruction, assembler, on_pairs(function, part), *[np.uint32] * 3)
    return elementwise(instruction, assembler, function, part, part, part)


# -- dot products ------------------------------------------------------------------------------------------------------


@builder("dp4a", "dp2a")
def dot_product(instruction: Instruction, assembler: Assembler) -> Operation:
    """``dp4a``: four products of bytes; ``dp2a.lo|.hi``: two of a half-word and a byte; added to c, wrapping."""
    modifiers = Modifiers(instruction)
    second, first = modifiers.last(), modifiers.last()
    part = modifiers.need("lo", "hi") if instruction.opcode == "dp2a" else None
    modifiers.done()
    if {first, second} - {"u32", "s32"}:
        raise unknown(instruction, "takes .u32 and .s32")
    size = 1 if part is None else 2
    left = np.dtype(f"{INTEGERS[first].kind}{size}")
    right = np.dtype(f"{INTEGERS[second].kind}1")
    start = 2 if part == "hi" else 0
    stop = 4 if part in (None, "hi") else 2

    def dot(a: Array, b: Array, c: Array) -> Array:
        factors = pieces(a, left).astype(np.int64), pieces(b, right)[:, start:stop].astype(np.int64)
        answer: Array = ((factors[0] * factors[1]).sum(axis=1) + c).astype(np.uint32)
        return answer

    return elementwise(instruction, assembler, dot, *[np.uint32] * 4)
