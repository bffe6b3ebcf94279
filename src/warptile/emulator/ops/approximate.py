"""Division, roots and transcendental functions (PTX ISA, "Floating Point Instructions").

The forms with a rounding modifier are exact and live in `float`. The ``.approx`` and ``.full`` forms are what ptxas
makes of them for sm_90: one instruction of the multi-function unit (`warptile.emulator.arithmetic.mufu`), with
multiplications
before and after (of ``rsqrt.approx.f64`` a step of iteration). They give the bits of an H200; docs/numerics.md has how
that was found, and how far the hardware is from the truth.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from warptile.emulator.arithmetic.formats import F16, SMALL_FLOATS, SmallFloat, canonical_f32, flush_subnormals
from warptile.emulator.arithmetic.fused import compiled
from warptile.emulator.arithmetic.mufu import FUNCTIONS, UPPER_HALVES
from warptile.emulator.builders import Assembler, Modifiers, Operation, unknown
from warptile.emulator.lanes import Array
from warptile.emulator.ops.float import ROUNDINGS, correctly_rounded
from warptile.emulator.ops.half import on_halves
from warptile.emulator.ops.typed import elementwise, typed
from warptile.ptx.instruction import Instruction

PtxFunction = Callable[..., Array]

_SMALLEST = np.float32(2.0**-126)
_LARGE = np.float32(2.0**126)

# -- single precision: what ptxas makes of each ------------------------------------------------------------------------


def _reciprocal(a: Array) -> Array:
    scale = np.where(np.abs(a) > _LARGE, np.float32(0.25), _up(a))
    return FUNCTIONS["rcp"](a * scale) * scale


def _up(a: Array) -> Array:
    """What lifts subnormal numbers to normal ones: 2**24, or 1 for the others."""
    return np.where(np.abs(a) < _SMALLEST, np.float32(2.0**24), np.float32(1))


def _lifted(name: str, undo: Callable[[Array], Array]) -> PtxFunction:
    def function(a: Array) -> Array:
        lift = _up(a)
        result = FUNCTIONS[name](a * lift)
        return np.where(lift > 1, undo(result), result)

    return function


def _exponential(a: Array) -> Array:
    low = a < -126
    root = FUNCTIONS["ex2"](np.where(low, a * np.float32(0.5), a))
    return np.where(low, root * root, root)


def _of_angle(name: str) -> PtxFunction:
    """Sine or cosine: radians become turns, rounded toward zero."""
    turn = np.float64(np.uint32(0x3E22F983).view(np.float32))

    def function(a: Array) -> Array:
        exact = a.astype(np.float64) * turn
        near = exact.astype(np.float32)
        down = near.view(np.uint32) - np.uint32(1)
        return FUNCTIONS[name](np.where(np.abs(near.astype(np.float64)) > np.abs(exact), down.view(np.float32), near))

    return function


_SINGLE: dict[str, PtxFunction] = {
    "rcp": _reciprocal,
    "sqrt": _lifted("sqrt", lambda y: y * np.float32(2.0**-12)),
    "rsqrt": _lifted("rsqrt", lambda y: y * np.float32(2.0**12)),
    "sin": _of_angle("sin"),
    "cos": _of_angle("cos"),
    "lg2": _lifted("lg2", lambda y: y - np.float32(24)),
    "ex2": _exponential,
    "tanh": FUNCTIONS["tanh"],
}
_FLUSHED: dict[str, PtxFunction] = {**FUNCTIONS, "sin": _of_angle("sin"), "cos": _of_angle("cos")}
"""With .ftz, MUFU alone."""


def _quotient(kind: str, *, ftz: bool) -> PtxFunction:
    """``div.approx`` or ``div.full``: both operands scaled where the divisor asks for it, then a * (1 / b)."""

    def function(a: Array, b: Array) -> Array:
        scale: Array = np.ones_like(b) if ftz else _up(b)
        if kind == "full":
            scale = np.where(np.abs(b) > _LARGE, np.float32(0.25), scale)
        if ftz:
            a, b = flush_subnormals(a), flush_subnormals(b)
        result = _scaled(a, scale, ftz=ftz) * FUNCTIONS["rcp"](_scaled(b, scale, ftz=ftz))
        return canonical_f32(flush_subnormals(result) if ftz else result)

    return function


def _scaled(a: Array, scale: Array, *, ftz: bool) -> Array:
    product: Array = a * scale
    return flush_subnormals(product) if ftz else product


def _double_reciprocal_root(a: Array) -> Array:
    """One step of iteration from the approximation of the upper half."""
    fma = compiled("fma", "f64")
    small = np.abs(a) < np.finfo(np.float64).smallest_normal
    lifted = np.where(small, a * 2.0**54, a)
    ordinary = np.isfinite(lifted) & (lifted > 0)
    x = np.where(ordinary, lifted, 1.0)
    y = UPPER_HALVES["rsqrt"](x)
    error = fma(-(y * y), x, np.ones_like(x))
    y = fma(fma(error, np.full_like(x, 0.375), np.full_like(x, 0.5)), y * error, y)
    return np.where(ordinary, np.where(small, y * 2.0**27, y), 1.0 / np.sqrt(a))


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
            return elementwise(instruction, assembler, _double_reciprocal_root, np.float64, np.float64, quiet=True)
        if not ftz or opcode == "sqrt":
            raise unknown(instruction, "of .f64 there are rcp.approx.ftz, rsqrt.approx and rsqrt.approx.ftz")
        return elementwise(instruction, assembler, UPPER_HALVES[opcode], np.float64, np.float64, quiet=True)
    if opcode == "tanh" and ftz:
        raise unknown(instruction, "tanh.approx.f32 has no .ftz")
    function = (_FLUSHED if ftz else _SINGLE)[opcode]
    return elementwise(instruction, assembler, lambda a: canonical_f32(function(a)), np.float32, np.float32, quiet=True)


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


def _cut_to_half(small: SmallFloat, opcode: str) -> PtxFunction:
    """MUFU's function of 16-bit registers."""
    infinity = np.uint32(0x7C00 if small.format is F16 else 0x7F80)

    def function(bits: Array) -> Array:
        value = FUNCTIONS[opcode](small.widen(bits)).astype(np.float64)
        code = small.format.encode(value, "rz")
        code = np.where(np.abs(value) > small.format.maximum, infinity, code)
        return np.where(np.isnan(value), np.uint32(0x7FFF), code).astype(np.uint16)

    return function
