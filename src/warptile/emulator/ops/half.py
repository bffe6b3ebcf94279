"""f16 and bf16, alone and in pairs (PTX ISA, "Half Precision Floating Point Instructions").

Sums and products are rounded once, to the nearest: by a compiled function, or, with modifiers, through float32 and
float64, where they are exact, rounded to odd, or far enough from the halfway points of the 16-bit format.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from warptile.emulator.arithmetic.formats import F16, SMALL_FLOATS, SmallFloat, flush_subnormals, rectify, saturate
from warptile.emulator.arithmetic.fused import compiled
from warptile.emulator.arithmetic.rounding import to_odd_product_sum
from warptile.emulator.async_ops.tensor_boxes import NAN_FILL
from warptile.emulator.builders import Assembler, Modifiers, Operation, unknown
from warptile.emulator.lanes import Array
from warptile.emulator.ops.float import extremum_modifiers
from warptile.emulator.ops.typed import elementwise, joined, pieces, typed
from warptile.ptx.instruction import Instruction

_TYPES = "f16 f16x2 bf16 bf16x2"


def through_f32(
    small: SmallFloat, function: Callable[..., Array], narrow: Callable[[Array], Array], *, ftz: bool = False
) -> Callable[..., Array]:
    """``function`` of float32 values, as one of 16-bit registers; .ftz flushes sources and result.

    A result is flushed if it is subnormal when rounded to the usual number of bits, were there no least exponent.
    """
    widen, tiny = small.widen, small.tiny
    if ftz:
        almost = tiny * np.float32(1 - 2.0 ** -(small.format.precision + 1))

        def flushed(*registers: Array) -> Array:
            values = [flush_subnormals(widen(register), tiny) for register in registers]
            return narrow(flush_subnormals(function(*values), almost))

        return flushed

    def plain(*registers: Array) -> Array:
        return narrow(function(*[widen(register) for register in registers]))

    return plain


def on_halves(function: Callable[..., Array]) -> Callable[..., Array]:
    """``function`` of 16-bit registers, as one of 32-bit registers that hold two."""

    def packed(*registers: Array) -> Array:
        return joined(function(*[pieces(register, np.uint16) for register in registers]), np.uint32)

    return packed


def _sum(small: SmallFloat) -> tuple[Callable[..., Array], Callable[[Array], Array]]:
    return np.add, small.narrow


def _difference(small: SmallFloat) -> tuple[Callable[..., Array], Callable[[Array], Array]]:
    return np.subtract, small.narrow


def _product(small: SmallFloat) -> tuple[Callable[..., Array], Callable[[Array], Array]]:
    if small.format is F16:  # 22 bits, far from the ends of float32
        return np.multiply, small.narrow
    return (lambda a, b: a.astype(np.float64) * b), small.narrow_exactly


def _product_sum(small: SmallFloat) -> tuple[Callable[..., Array], Callable[[Array], Array]]:
    def fused(a: Array, b: Array, c: Array) -> Array:
        return to_odd_product_sum(a.astype(np.float64), b.astype(np.float64), c.astype(np.float64))

    return fused, small.narrow_exactly


_OOB_NAN = np.uint16(NAN_FILL)
"""Of either sign, it makes a product zero in an ``fma.oob``: of all 65536 words an H100 takes only these two so."""


def zero_out_of_bounds(function: Callable[..., Array]) -> Callable[..., Array]:
    """``function`` of a, b and c as 16-bit registers, but +0 where a or b is the NaN that stands for out of bounds."""

    def guarded(a: Array, b: Array, c: Array) -> Array:
        outside = ((a & np.uint16(0x7FFF)) == _OOB_NAN) | ((b & np.uint16(0x7FFF)) == _OOB_NAN)
        return np.where(outside, np.uint16(0), function(a, b, c))

    return guarded


_ARITHMETIC = {"add": _sum, "sub": _difference, "mul": _product, "fma": _product_sum}


@typed("add sub mul fma", _TYPES)
def arithmetic(instruction: Instruction, assembler: Assembler) -> Operation:
    """``add``, ``sub``, ``mul``, ``fma``, to the nearest; .ftz and .sat for f16, .relu and .oob for fma."""
    modifiers = Modifiers(instruction)
    small = SMALL_FLOATS[modifiers.last()]
    single = SMALL_FLOATS[small.format.name]
    opcode = instruction.opcode
    if opcode == "fma":
        modifiers.need("rn")
    else:
        modifiers.take("rn")
    ftz, sat = modifiers.flag("ftz"), modifiers.flag("sat")
    relu = opcode == "fma" and modifiers.flag("relu")
    oob = opcode == "fma" and modifiers.flag("oob")
    modifiers.done()
    if oob and ftz:
        raise unknown(instruction, ".oob and .ftz do not go together")
    if (ftz or sat) and small.format is not F16:
        raise unknown(instruction, f".{'ftz' if ftz else 'sat'} is not for .{small.name}")
    count = 4 if opcode == "fma" else 3
    if ftz or sat or relu:
        function, narrow = _ARITHMETIC[opcode](single)
        if sat or relu:
            clamp = saturate if sat else rectify
            unclamped = function

            def function(*values: Array) -> Array:
                return clamp(unclamped(*values))

        operation = through_f32(single, function, narrow, ftz=ftz)
    else:
        operation = compiled(opcode, small.format.name)
    if oob:
        operation = zero_out_of_bounds(operation)
    return elementwise(
        instruction, assembler, on_halves(operation) if small.pair else operation, *[small.storage] * count, quiet=True
    )


@typed("neg abs", _TYPES)
def sign_change(instruction: Instruction, assembler: Assembler) -> Operation:
    """``neg`` and ``abs``: of the sign bits; a NaN becomes the usual one."""
    modifiers = Modifiers(instruction)
    small = SMALL_FLOATS[modifiers.last()]
    ftz = modifiers.flag("ftz")
    modifiers.done()
    if ftz and small.format is not F16:
        raise unknown(instruction, f".ftz is not for .{small.name}")
    opposite = instruction.opcode == "neg"
    infinity = np.uint16(0x7C00 if small.format is F16 else 0x7F80)

    def change(a: Array) -> Array:
        magnitude = a & np.uint16(0x7FFF)
        changed = a ^ np.uint16(0x8000) if opposite else magnitude
        return np.where(magnitude > infinity, np.uint16(0x7FFF), changed)

    if ftz:
        function = through_f32(small, np.negative if opposite else np.abs, small.narrow, ftz=True)
    else:
        function = on_halves(change) if small.pair else change
    return elementwise(instruction, assembler, function, small.storage, small.storage, quiet=True)


@typed("min max", _TYPES)
def minimum_or_maximum(instruction: Instruction, assembler: Assembler) -> Operation:
    """``min``, ``max`` with .ftz (f16), .NaN, .xorsign.abs."""
    modifiers = Modifiers(instruction)
    small = SMALL_FLOATS[modifiers.last()]
    ftz = modifiers.flag("ftz")
    function = extremum_modifiers(instruction, modifiers)
    modifiers.done()
    if ftz and small.format is not F16:
        raise unknown(instruction, f".ftz is not for .{small.name}")
    count = len(instruction.operands)
    return elementwise(
        instruction,
        assembler,
        through_f32(small, function, small.narrow, ftz=ftz),
        *[small.storage] * count,
        quiet=True,
    )
