"""Division, roots and transcendental functions (PTX ISA, "Floating Point Instructions").

The forms with a rounding modifier are exact and live in `float`. The ``.approx`` and ``.full`` forms are computed in
float64 and rounded once, so they are closer to the true value than the hardware need be. The bounds that PTX ISA gives,
and that a comparison with a GPU must allow:

====================  =================================================================================================
``div.approx``        2 ulp for divisors of magnitude 2**-126 to 2**126; larger divisors give 0 (NaN for infinity / it)
``div.full``          2 ulp
``rcp.approx``        1 ulp
``sqrt.approx``       relative error 2**-23
``rsqrt.approx``      relative error 2**-22.9
``sin``, ``cos``      absolute error 2**-20.5 in [-2 pi, 2 pi]
``lg2.approx``        absolute error 2**-22 for 0.5 to 2, else relative error 2**-22
``ex2.approx``        2 ulp (f32), relative error 2**-9.9 (f16), 2**-7 (bf16)
``tanh.approx``       relative error 2**-11 (f32), absolute error 2**-10.987 (f16), 2**-8 (bf16)
``rsqrt.approx.f64``  not stated; here within 1.5 ulp
``*.ftz.f64``         the upper 32 bits of an approximation from the upper 32 bits; the lower 32 bits are 0
====================  =================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from warptile.emulator.assembler import Assembler, Modifiers, Operation, unknown
from warptile.emulator.formats import F16, SMALL_FLOATS, canonical_f32
from warptile.emulator.lanes import Array
from warptile.emulator.ops.float import ROUNDINGS, correctly_rounded, with_effects
from warptile.emulator.ops.half import through_f32
from warptile.emulator.ops.typed import elementwise, typed
from warptile.ptx.instruction import Instruction

_UPPER = np.uint64(0xFFFFFFFF00000000)


def _reciprocal_root(a: Array) -> Array:
    return 1.0 / np.sqrt(a)


_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "rcp": lambda a: 1.0 / a,
    "sqrt": np.sqrt,
    "rsqrt": _reciprocal_root,
    "sin": np.sin,
    "cos": np.cos,
    "lg2": np.log2,
    "ex2": np.exp2,
    "tanh": np.tanh,
}


def _in_f64(function: Callable[..., Array]) -> Callable[..., Array]:
    """``function`` of float64 values, as one of float32 values that rounds once."""
    return lambda *values: canonical_f32(function(*[value.astype(np.float64) for value in values]).astype(np.float32))


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
        return elementwise(instruction, assembler, _upper_half(_FUNCTIONS[opcode]), np.float64, np.float64, quiet=True)
    if opcode == "tanh" and ftz:
        raise unknown(instruction, "tanh.approx.f32 has no .ftz")
    function = with_effects(_in_f64(_FUNCTIONS[opcode]), ftz=ftz)
    return elementwise(instruction, assembler, function, np.float32, np.float32, quiet=True)


def _upper_half(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """An approximation from and to the upper 32 bits of float64 values, subnormals flushed."""
    tiny = np.finfo(np.float64).smallest_normal

    def flushed(value: Array) -> Array:
        return np.where(np.abs(value) < tiny, np.copysign(0.0, value), value)

    def approximate(a: Array) -> Array:
        top = (a.view(np.uint64) & _UPPER).view(np.float64)
        top = np.where(np.isnan(a), a, top)
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
    function = _in_f64(np.divide)
    if kind == "approx":
        limit = np.float32(2.0**126)
        plain = function

        def function(a: Array, b: Array) -> Array:
            huge = (np.abs(b) > limit) & np.isfinite(b)
            beyond = np.where(np.isinf(a) | np.isnan(a), np.nan, np.copysign(0.0, a) * np.sign(b))
            return canonical_f32(np.where(huge, beyond.astype(np.float32), plain(a, b)))

    return elementwise(instruction, assembler, with_effects(function, ftz=ftz), *[np.float32] * 3, quiet=True)


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
    function = _in_f64(_FUNCTIONS[instruction.opcode])
    operation = through_f32(small, function, small.narrow, ftz=ftz)
    return elementwise(instruction, assembler, operation, small.storage, small.storage, quiet=True)
