"""Single and double precision (PTX ISA, "Floating Point Instructions"), rounded as IEEE 754 says in every direction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from warptile.emulator.arithmetic.formats import TINY_F32, canonical_f32, flush_subnormals, quiet_f64, saturate
from warptile.emulator.arithmetic.fused import compiled
from warptile.emulator.arithmetic.rounding import rounded
from warptile.emulator.builders import Assembler, Modifiers, Operation, builder, unknown
from warptile.emulator.lanes import Array
from warptile.emulator.ops.typed import FLOATS, elementwise, joined, pieces, typed
from warptile.ptx.instruction import Instruction

ROUNDINGS = ("rn", "rz", "rm", "rp")


def with_effects(function: Callable[..., Array], *, ftz: bool = False, sat: bool = False) -> Callable[..., Array]:
    """``function`` of float32 values, its arguments and result flushed for .ftz, its result clamped for .sat."""
    if ftz:

        def flushed(*values: Array) -> Array:
            return flush_subnormals(function(*[flush_subnormals(value) for value in values]))

        return with_effects(flushed, sat=sat)
    if sat:
        return lambda *values: saturate(function(*values))
    return function


def on_f32_pairs(function: Callable[..., Array]) -> Callable[..., Array]:
    """``function`` of float32 values, as a function of 64-bit registers that hold two."""
    return lambda *values: joined(function(*[pieces(value, np.float32) for value in values]), np.uint64)


@typed("add sub mul fma", "f32 f64 f32x2")
@typed("mad", "f32 f64")
def arithmetic(instruction: Instruction, assembler: Assembler) -> Operation:
    """``add``, ``sub``, ``mul``, ``fma`` and ``mad`` (the same as fma) with .rn|.rz|.rm|.rp, .ftz and .sat."""
    modifiers = Modifiers(instruction)
    name = modifiers.last()
    opcode = "fma" if instruction.opcode == "mad" else instruction.opcode
    direction = modifiers.need(*ROUNDINGS) if instruction.opcode == "fma" else modifiers.take(*ROUNDINGS)
    ftz, sat = _effects(instruction, modifiers, name)
    modifiers.done()
    scalar = "f32" if name == "f32x2" else name
    if ftz and direction in (None, "rn"):
        function = with_effects(compiled(f"{opcode}.ftz", scalar), sat=sat)
    else:
        function = with_effects(rounded(compiled(opcode, scalar), direction), ftz=ftz, sat=sat)
    kind: Any = FLOATS.get(name, np.dtype(np.uint64))
    if name == "f32x2":
        function = on_f32_pairs(function)
    return elementwise(instruction, assembler, function, *[kind] * (4 if opcode == "fma" else 3), quiet=True)


def _effects(instruction: Instruction, modifiers: Modifiers, name: str) -> tuple[bool, bool]:
    ftz, sat = modifiers.flag("ftz"), modifiers.flag("sat")
    if (ftz and name == "f64") or (sat and name != "f32"):
        raise unknown(instruction, f".{'ftz' if ftz and name == 'f64' else 'sat'} is not for .{name}")
    return ftz, sat


@typed("neg abs", "f32 f64")
def sign_change(instruction: Instruction, assembler: Assembler) -> Operation:
    """``neg`` and ``abs``. Of NaN, f32 gives the usual one and f64 the operand made quiet: additions do the work."""
    modifiers = Modifiers(instruction)
    name = modifiers.last()
    ftz, _ = _effects(instruction, modifiers, name)
    modifiers.done()
    kind = FLOATS[name]
    bits = np.dtype(f"u{kind.itemsize}")
    sign = bits.type(1 << (8 * kind.itemsize - 1))
    opposite = instruction.opcode == "neg"

    def change(a: Array) -> Array:
        changed = ((a.view(bits) ^ sign) if opposite else (a.view(bits) & ~sign)).view(kind)
        return canonical_f32(changed) if name == "f32" else np.where(np.isnan(a), quiet_f64(a), changed)

    return elementwise(instruction, assembler, with_effects(change, ftz=ftz), kind, kind, quiet=True)


@builder("copysign")
def copy_sign(instruction: Instruction, assembler: Assembler) -> Operation:
    """``copysign d, a, b``: b with the sign of a."""
    modifiers = Modifiers(instruction)
    name = modifiers.last()
    modifiers.done()
    if name not in FLOATS:
        raise unknown(instruction, f"type .{name}")
    kind = FLOATS[name]
    return elementwise(instruction, assembler, lambda a, b: np.copysign(b, a), kind, kind, kind)


@builder("testp")
def test_property(instruction: Instruction, assembler: Assembler) -> Operation:
    """``testp.finite|infinite|number|notanumber|normal|subnormal p, a``. Zero is normal, as PTX has it."""
    modifiers = Modifiers(instruction)
    name = modifiers.last()
    test = modifiers.need("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    modifiers.done()
    if name not in FLOATS:
        raise unknown(instruction, f"type .{name}")
    kind = FLOATS[name]
    tiny = np.finfo(kind).smallest_normal
    tests: dict[str, Callable[[Array], Array]] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & ((np.abs(a) >= tiny) | (a == 0)),
        "subnormal": lambda a: (np.abs(a) < tiny) & (a != 0),
    }
    return elementwise(instruction, assembler, tests[test], np.bool_, kind, quiet=True)


# -- minimum and maximum -----------------------------------------------------------------------------------------------


def extremum(opcode: str, *, nan: bool, xorsign: bool) -> Callable[..., Array]:
    """``min`` or ``max`` of float32 or float64 values.

    A NaN loses against a number unless ``nan`` (then it wins); -0 is less than +0; ``xorsign`` compares magnitudes and
    gives the result the product of the signs.
    """
    lowest = opcode == "min"
    first_wins: Callable[[Array, Array], Array] = np.less if lowest else np.greater

    def extreme(a: Array, b: Array) -> Array:
        if xorsign:
            negative = np.signbit(a) != np.signbit(b)
            a, b = np.abs(a), np.abs(b)
        bits = np.dtype(f"u{a.dtype.itemsize}")
        # equal numbers differ at most in the sign of zero: its bit decides
        tie = (a.view(bits) | b.view(bits)) if lowest else (a.view(bits) & b.view(bits))
        found = np.where(a == b, tie.view(a.dtype), np.where(first_wins(a, b) | np.isnan(b), a, b))
        if nan:
            found = np.where(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), found)
        if xorsign:
            found = np.copysign(found, np.where(negative, -1, 1).astype(a.dtype))
        return canonical_f32(found) if a.dtype == np.float32 else np.where(np.isnan(found), quiet_f64(b), found)

    return extreme


def extremum_modifiers(instruction: Instruction, modifiers: Modifiers) -> Callable[..., Array]:
    """Take .NaN and .xorsign.abs; the function for two or three operands."""
    nan, xorsign = modifiers.flag("NaN"), modifiers.flag("xorsign")
    if modifiers.flag("abs") != xorsign:
        raise unknown(instruction, ".xorsign and .abs go together")
    two = extremum(instruction.opcode, nan=nan, xorsign=xorsign)
    if len(instruction.operands) == 4:
        if xorsign:
            raise unknown(instruction, ".xorsign.abs takes two sources")
        return lambda a, b, c: two(two(a, b), c)
    return two


@typed("min max", "f32 f64")
def minimum_or_maximum(instruction: Instruction, assembler: Assembler) -> Operation:
    """``min``, ``max`` with .ftz, .NaN, .xorsign.abs; of three numbers too."""
    modifiers = Modifiers(instruction)
    name = modifiers.last()
    ftz, sat = _effects(instruction, modifiers, name)
    function = extremum_modifiers(instruction, modifiers)
    modifiers.done()
    if sat or (name == "f64" and len(instruction.modifiers) > 1):
        raise unknown(instruction, f"modifier of {instruction.opcode}.{name}")
    kind = FLOATS[name]
    count = len(instruction.operands)
    if instruction.modifiers == ("f32",) and count == 3:
        function = compiled(instruction.opcode, "f32")
    return elementwise(instruction, assembler, with_effects(function, ftz=ftz), *[kind] * count, quiet=True)


# -- quotients and roots, correctly rounded ----------------------------------------------------------------------------


def exact_quotient(opcode: str, name: str) -> Callable[..., Array]:
    """``div``, ``rcp`` or ``sqrt`` before rounding modes: IEEE's own operations."""
    kind = FLOATS[name]
    one = np.ones(1, dtype=kind)
    functions: dict[str, Callable[..., Array]] = {
        "div": np.divide,
        "rcp": lambda a: np.divide(one, a),
        "sqrt": np.sqrt,
    }
    function = functions[opcode]
    return (lambda *values: canonical_f32(function(*values))) if name == "f32" else function


def _flushed_before_rounding(function: Callable[..., Array], cut: Callable[..., Array]) -> Callable[..., Array]:
    """``function``, but zero where the result cut toward zero is flushed: rounding away does not save it."""

    def flushed(*values: Array) -> Array:
        result, least = function(*values), cut(*values)
        return np.where(least == 0, least, result)

    return flushed


def correctly_rounded(instruction: Instruction, assembler: Assembler, name: str, direction: str) -> Operation:
    """``div``, ``rcp`` and ``sqrt`` with a rounding modifier."""
    modifiers = Modifiers(instruction)
    modifiers.last()
    modifiers.need(direction)
    ftz, sat = _effects(instruction, modifiers, name)
    modifiers.done()
    if sat:
        raise unknown(instruction, ".sat is not for it")
    exact = exact_quotient(instruction.opcode, name)
    function = with_effects(rounded(exact, direction), ftz=ftz)
    if ftz and direction in ("rm", "rp"):
        function = _flushed_before_rounding(function, with_effects(rounded(exact, "rz"), ftz=True))
    count = len(instruction.operands)
    if count != (3 if instruction.opcode == "div" else 2):
        raise unknown(instruction, f"got {count} operands")
    return elementwise(instruction, assembler, function, *[FLOATS[name]] * count, quiet=True)


__all__ = ["ROUNDINGS", "TINY_F32", "arithmetic", "correctly_rounded", "extremum", "with_effects"]
