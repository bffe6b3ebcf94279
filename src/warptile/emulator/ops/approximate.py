"""Division, roots and transcendental functions (PTX ISA, "Floating Point Instructions").

The forms with a rounding modifier are exact and live in `float`. The ``.approx`` and ``.full`` forms are what ptxas
makes of them: one instruction of the multi-function unit (MUFU) with multiplications before and after. MUFU itself
interpolates in tables that are not published; here it is the true function of what it makes of its operand, rounded
once. docs/numerics.md has the bounds: measured on an H200 over every input, and how far it and this are apart.

What MUFU makes of its operand was read from its results, all of them:

- Subnormal operands and results are flushed (tanh has none: it returns small operands as they are).
- ``ex2`` cuts its operand to 23 fraction bits and, unless it is whole, takes the middle of what is cut to the same.
  ``sin`` and ``cos`` cut theirs, which counts turns, to 25, and take both from a quarter of a sine wave.
- The 16-bit ``ex2`` and ``tanh`` are the 32-bit ones cut to 16 bits, except that too large becomes infinity. These are
  equal to the hardware's for every operand.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from warptile.emulator.assembler import Assembler, Modifiers, Operation, unknown
from warptile.emulator.formats import F16, SMALL_FLOATS, SmallFloat, canonical_f32, flush_subnormals
from warptile.emulator.lanes import Array
from warptile.emulator.ops.float import ROUNDINGS, correctly_rounded
from warptile.emulator.ops.half import on_halves
from warptile.emulator.ops.typed import elementwise, typed
from warptile.ptx.instruction import Instruction

Function = Callable[..., Array]

_UPPER = np.uint64(0xFFFFFFFF00000000)
_SMALLEST = np.float32(2.0**-126)
_LARGE = np.float32(2.0**126)

# -- the multi-function unit -------------------------------------------------------------------------------------------


def _reciprocal_root(a: Array) -> Array:
    return 1.0 / np.sqrt(a)


def _power(a: Array) -> Array:
    steps = np.trunc(np.ldexp(a, 23))
    middle = np.where(np.mod(steps, 1 << 23) != 0, np.copysign(0.5, a), 0.0)
    answer: Array = np.exp2(np.ldexp(steps + middle, -23))
    return answer


_QUARTER = 1 << 23
"""Steps of a quarter of a turn."""

_TANH_IS_ITS_OPERAND = float(np.uint32(0x3B810000).view(np.float32))
_TANH_IS_ONE = 8.0
_TANH_ERROR = 1.2e-5
_TANH_ABOVE = (0x29C6, 0x2C95, 0x2C96, 0x2E39, 0x2E9D, 0x3064, 0x323F, 0x32FF, 0x355B, 0x372D, 0x3824, 0x399A, 0x3CC9,
               0x3DE3, 0x3ED6, 0x4080)  # fmt: skip
_TANH_BELOW = (0x2D3F, 0x39F8, 0x3C8E, 0x3C9D, 0x3DB8, 0x3E23, 0x3EAB, 0x4429)
"""f16 operands whose tanh is so near to an f16 (once: a bf16) that the error of MUFU's decides which way it is cut."""


def _wave(shift: int) -> Function:
    """The sine of turns, ``shift`` quarters ahead."""

    def wave(turns: Array) -> Array:
        finite = np.isfinite(turns)
        steps = np.trunc(np.where(finite, np.abs(turns), 0.0) * (4.0 * _QUARTER))
        place = np.mod(steps, 4.0 * _QUARTER).astype(np.int64)
        quarter, rest = place // _QUARTER + shift, place % _QUARTER
        size = np.sin(np.pi / 2 / _QUARTER * np.where(quarter % 2 == 1, _QUARTER - 1 - rest, rest))
        below = (quarter % 4 >= 2) != (np.signbit(turns) if shift == 0 else False)
        return np.where(finite, np.where(below, -size, size), np.nan)

    return wave


def _tangent(a: Array) -> Array:
    size = np.abs(a)
    above, below = (np.isin(size, np.array(codes, np.uint16).view(np.float16)) for codes in (_TANH_ABOVE, _TANH_BELOW))
    inside = np.tanh(a) * (1 + _TANH_ERROR * (above.astype(np.float64) - below))
    inside = np.where(size < _TANH_IS_ITS_OPERAND, a, inside)
    return np.where(size >= _TANH_IS_ONE, np.copysign(1.0, a), inside)


def _flushing(function: Function) -> Function:
    """An instruction of MUFU: ``function`` of float64 values as one of float32 values, subnormals flushed."""
    return lambda a: flush_subnormals(_nearest(function)(flush_subnormals(a)))


def _nearest(function: Function) -> Function:
    return lambda a: canonical_f32(function(a.astype(np.float64)).astype(np.float32))


_MUFU: dict[str, Function] = {
    "rcp": _flushing(lambda a: 1.0 / a),
    "sqrt": _flushing(np.sqrt),
    "rsqrt": _flushing(_reciprocal_root),
    "sin": _flushing(_wave(0)),
    "cos": _flushing(_wave(1)),
    "lg2": _flushing(np.log2),
    "ex2": _flushing(_power),
    "tanh": _nearest(_tangent),
}

# -- single precision: what ptxas makes of each ------------------------------------------------------------------------


def _reciprocal(a: Array) -> Array:
    scale = np.where(np.abs(a) > _LARGE, np.float32(0.25), _up(a))
    return _MUFU["rcp"](a * scale) * scale


def _up(a: Array) -> Array:
    """What lifts subnormal numbers to normal ones: 2**24, or 1 for the others."""
    return np.where(np.abs(a) < _SMALLEST, np.float32(2.0**24), np.float32(1))


def _lifted(name: str, undo: Callable[[Array], Array]) -> Function:
    def function(a: Array) -> Array:
        lift = _up(a)
        result = _MUFU[name](a * lift)
        return np.where(lift > 1, undo(result), result)

    return function


def _exponential(a: Array) -> Array:
    low = a < -126
    root = _MUFU["ex2"](np.where(low, a * np.float32(0.5), a))
    return np.where(low, root * root, root)


def _of_angle(name: str) -> Function:
    """Sine or cosine: radians become turns, rounded toward zero."""
    turn = np.float64(np.uint32(0x3E22F983).view(np.float32))

    def function(a: Array) -> Array:
        exact = a.astype(np.float64) * turn
        near = exact.astype(np.float32)
        down = near.view(np.uint32) - np.uint32(1)
        return _MUFU[name](np.where(np.abs(near.astype(np.float64)) > np.abs(exact), down.view(np.float32), near))

    return function


_SINGLE: dict[str, Function] = {
    "rcp": _reciprocal,
    "sqrt": _lifted("sqrt", lambda y: y * np.float32(2.0**-12)),
    "rsqrt": _lifted("rsqrt", lambda y: y * np.float32(2.0**12)),
    "sin": _of_angle("sin"),
    "cos": _of_angle("cos"),
    "lg2": _lifted("lg2", lambda y: y - np.float32(24)),
    "ex2": _exponential,
    "tanh": _MUFU["tanh"],
}
_FLUSHED: dict[str, Function] = {**_MUFU, "sin": _of_angle("sin"), "cos": _of_angle("cos")}
"""With .ftz, MUFU alone."""


def _quotient(kind: str, *, ftz: bool) -> Function:
    """``div.approx`` or ``div.full``: both operands scaled where the divisor asks for it, then a * (1 / b)."""

    def function(a: Array, b: Array) -> Array:
        scale: Array = np.ones_like(b) if ftz else _up(b)
        if kind == "full":
            scale = np.where(np.abs(b) > _LARGE, np.float32(0.25), scale)
        if ftz:
            a, b = flush_subnormals(a), flush_subnormals(b)
        result = _scaled(a, scale, ftz=ftz) * _MUFU["rcp"](_scaled(b, scale, ftz=ftz))
        return canonical_f32(flush_subnormals(result) if ftz else result)

    return function


def _scaled(a: Array, scale: Array, *, ftz: bool) -> Array:
    product: Array = a * scale
    return flush_subnormals(product) if ftz else product


@typed("rcp sqrt rsqrt", "f32 f64")
@typed("sin cos lg2 ex2 tanh", "f32")
def function_of_one(instruction: Instruction, assembler: Assembler) -> Operation:
    """``rcp``, ``sqrt``, ``rsqrt``, ``sin``, ``cos``, ``lg2``, ``ex2``, ``tanh``; ``.rn`` and the like are exact."""
    direction = next((m for m in instruction.modifiers if m in ROUNDINGS), None)
    opcode = instruction.opcode
    modifiers = Modifiers(instruction)
    name = modifiers.last()
    if direction is not None and opcode in ("rcp", "sqrt"):
        return correctly_rounded(instruction, assembler, name, direction)
    modifiers.need("approx")
    ftz = modifiers.flag("ftz")
    modifiers.done()
    if name == "f64":
        if opcode == "rsqrt" and not ftz:
            return elementwise(instruction, assembler, _reciprocal_root, np.float64, np.float64, quiet=True)
        if not ftz or opcode == "sqrt":
            raise unknown(instruction, "of .f64 there are rcp.approx.ftz, rsqrt.approx and rsqrt.approx.ftz")
        function = _upper_half(_reciprocal_root if opcode == "rsqrt" else lambda a: 1.0 / a)
        return elementwise(instruction, assembler, function, np.float64, np.float64, quiet=True)
    if opcode == "tanh" and ftz:
        raise unknown(instruction, "tanh.approx.f32 has no .ftz")
    function = (_FLUSHED if ftz else _SINGLE)[opcode]
    return elementwise(instruction, assembler, lambda a: canonical_f32(function(a)), np.float32, np.float32, quiet=True)


def _upper_half(function: Function) -> Function:
    """An approximation from and to the upper 32 bits of float64 values, subnormals flushed; the lower are not seen."""
    tiny = np.finfo(np.float64).smallest_normal

    def flushed(value: Array) -> Array:
        return np.where(np.abs(value) < tiny, np.copysign(0.0, value), value)

    def approximate(a: Array) -> Array:
        top = (a.view(np.uint64) & _UPPER).view(np.float64)
        result = flushed(function(flushed(top)))
        kept = (result.view(np.uint64) & _UPPER).view(np.float64)
        return np.where(np.isnan(result), np.uint64(0x7FFFFFFF00000000).view(np.float64), kept)

    return approximate


@typed("div", "f32 f64")
def quotient(instruction: Instruction, assembler: Assembler) -> Operation:
    """``div.rn|.rz|.rm|.rp``, exact; ``div.approx{.ftz}.f32`` and ``div.full{.ftz}.f32``."""
    direction = next((m for m in instruction.modifiers if m in ROUNDINGS), None)
    modifiers = Modifiers(instruction)
    name = modifiers.last()
    if direction is not None:
        return correctly_rounded(instruction, assembler, name, direction)
    kind = modifiers.need("approx", "full")
    ftz = modifiers.flag("ftz")
    modifiers.done()
    if name != "f32":
        raise unknown(instruction, "div.f64 needs a rounding such as .rn")
    return elementwise(instruction, assembler, _quotient(kind, ftz=ftz), *[np.float32] * 3, quiet=True)


# -- half precision ----------------------------------------------------------------------------------------------------


@typed("ex2 tanh", "f16 f16x2 bf16 bf16x2")
def half_function(instruction: Instruction, assembler: Assembler) -> Operation:
    """``ex2.approx`` and ``tanh.approx`` of 16-bit floats; for bf16, ex2 has .ftz (and flushes)."""
    modifiers = Modifiers(instruction)
    small = SMALL_FLOATS[modifiers.last()]
    modifiers.need("approx")
    ftz = modifiers.flag("ftz")
    modifiers.done()
    if ftz != (instruction.opcode == "ex2" and small.format is not F16):
        raise unknown(instruction, f".ftz {'is not for' if ftz else 'is missing from'} it")
    single = SMALL_FLOATS["f16" if small.format is F16 else "bf16"]
    function = _cut_to_half(single, instruction.opcode)
    return elementwise(
        instruction,
        assembler,
        on_halves(function) if small.pair else function,
        small.storage,
        small.storage,
        quiet=True,
    )


def _cut_to_half(small: SmallFloat, opcode: str) -> Function:
    """MUFU's function of 16-bit registers."""
    infinity = np.uint32(0x7C00 if small.format is F16 else 0x7F80)

    def function(bits: Array) -> Array:
        value = _MUFU[opcode](small.widen(bits)).astype(np.float64)
        code = small.format.encode(value, "rz")
        code = np.where(np.abs(value) > small.format.maximum, infinity, code)
        return np.where(np.isnan(value), np.uint32(0x7FFF), code).astype(np.uint16)

    return function
