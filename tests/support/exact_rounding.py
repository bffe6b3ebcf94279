"""IEEE arithmetic in exact fractions: the oracle of the emulator's floating point, independent of NumPy."""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from math import isqrt

from hypothesis import strategies as st

FORMATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52), "tf32": (8, 10), "e5m2": (5, 2)}
"""Exponent and fraction bits."""

NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF}
"""The NaN that instructions give; None stands for any NaN of f64."""


def decode(bits: int, name: str) -> float:
    """The value of a bit pattern, as a Python float (all the formats fit)."""
    exponent_bits, fraction_bits = FORMATS[name]
    sign = -1.0 if bits >> (exponent_bits + fraction_bits) & 1 else 1.0
    biased = bits >> fraction_bits & ((1 << exponent_bits) - 1)
    fraction = bits & ((1 << fraction_bits) - 1)
    if biased == (1 << exponent_bits) - 1:
        return math.nan if fraction else sign * math.inf
    bias = (1 << (exponent_bits - 1)) - 1
    if biased == 0:
        return sign * math.ldexp(fraction, 1 - bias - fraction_bits)
    return sign * math.ldexp(fraction + (1 << fraction_bits), biased - bias - fraction_bits)


def sign_bit(name: str) -> int:
    return 1 << sum(FORMATS[name])


def rounded(value: Fraction, name: str, mode: str, *, negative_zero: bool = False) -> int:
    """The bits of an exact value in format ``name``, rounded in ``mode`` (rn, rz, rm, rp, rna)."""
    exponent_bits, fraction_bits = FORMATS[name]
    if value == 0:
        return sign_bit(name) if negative_zero else 0
    negative, magnitude = value < 0, abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    lowest = 2 - (1 << (exponent_bits - 1))
    exponent = max(exponent, lowest)
    scaled = magnitude / Fraction(2) ** (exponent - fraction_bits)
    whole = scaled.numerator // scaled.denominator
    rest = scaled - whole
    up = {
        "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1),
        "rna": rest >= Fraction(1, 2),
        "rz": False,
        "rm": negative and rest > 0,
        "rp": not negative and rest > 0,
    }[mode]
    code = ((exponent - lowest) << fraction_bits) + whole + up
    infinity = ((1 << exponent_bits) - 1) << fraction_bits
    if code >= infinity:
        to_infinity = mode in ("rn", "rna") or (mode == "rp" and not negative) or (mode == "rm" and negative)
        code = infinity if to_infinity else infinity - 1
    return code | (sign_bit(name) if negative else 0)


def encode_special(value: float, name: str) -> int | None:
    """The bits of an infinity or of the NaN (None for f64, whose NaN PTX leaves open)."""
    if math.isnan(value):
        return NAN.get(name)
    exponent_bits, fraction_bits = FORMATS[name]
    return (((1 << exponent_bits) - 1) << fraction_bits) | (sign_bit(name) if value < 0 else 0)


def is_nan(bits: int, name: str) -> bool:
    return math.isnan(decode(bits, name))


def negative(value: float) -> bool:
    return math.copysign(1.0, value) < 0


def fused(a: float, b: float, c: float, name: str, mode: str = "rn") -> int | None:
    """a * b + c with one rounding."""
    if any(not math.isfinite(x) for x in (a, b, c)):
        product = math.nan if math.isnan(a) or math.isnan(b) else _special_product(a, b)
        return encode_special(product + c if not math.isfinite(c) or not math.isfinite(product) else math.nan, name)
    product_negative = negative(a) != negative(b)
    total = Fraction(a) * Fraction(b) + Fraction(c)
    same = product_negative == negative(c)
    return rounded(total, name, mode, negative_zero=product_negative if same else mode == "rm")


def _special_product(a: float, b: float) -> float:
    if math.isinf(a) or math.isinf(b):
        if a == 0 or b == 0:
            return math.nan
        return math.copysign(math.inf, -1.0 if negative(a) != negative(b) else 1.0)
    return 0.0  # finite: only its being finite matters


def added(a: float, b: float, name: str, mode: str = "rn") -> int | None:
    if not (math.isfinite(a) and math.isfinite(b)):
        return encode_special(a + b, name)
    same = negative(a) == negative(b)
    return rounded(Fraction(a) + Fraction(b), name, mode, negative_zero=negative(a) if same else mode == "rm")


def multiplied(a: float, b: float, name: str, mode: str = "rn") -> int | None:
    if not (math.isfinite(a) and math.isfinite(b)):
        return encode_special(math.nan if math.isnan(a) or math.isnan(b) else _special_product(a, b), name)
    return rounded(Fraction(a) * Fraction(b), name, mode, negative_zero=negative(a) != negative(b))


def divided(a: float, b: float, name: str, mode: str = "rn") -> int | None:
    sign = -1.0 if negative(a) != negative(b) else 1.0
    if math.isnan(a) or math.isnan(b) or (math.isinf(a) and math.isinf(b)) or (a == 0 and b == 0):
        return encode_special(math.nan, name)
    if math.isinf(a) or b == 0:
        return encode_special(sign * math.inf, name)
    if math.isinf(b):
        return rounded(Fraction(0), name, mode, negative_zero=sign < 0)
    return rounded(Fraction(a) / Fraction(b), name, mode, negative_zero=sign < 0)


def root(a: float, name: str, mode: str = "rn") -> int | None:
    if math.isnan(a) or a < 0:
        return encode_special(math.nan, name)
    if math.isinf(a):
        return encode_special(a, name)
    if a == 0:
        return rounded(Fraction(0), name, mode, negative_zero=negative(a))
    scale = 700  # far more bits than any format keeps
    shifted = Fraction(a) * Fraction(4) ** scale
    floor = isqrt(shifted.numerator // shifted.denominator)
    exact = Fraction(floor) ** 2 == shifted
    between = Fraction(floor) if exact else Fraction(2 * floor + 1, 2)
    return rounded(between / Fraction(2) ** scale, name, mode)


def bits_of(name: str) -> st.SearchStrategy[int]:
    """Bit patterns: any, near one (so that sums cancel), and the special ones with their neighbours."""
    exponent_bits, fraction_bits = FORMATS[name]
    width = exponent_bits + fraction_bits + 1
    infinity = ((1 << exponent_bits) - 1) << fraction_bits
    one = ((1 << (exponent_bits - 1)) - 1) << fraction_bits
    edges = [0, 1, (1 << fraction_bits) - 1, 1 << fraction_bits, one, infinity - 1, infinity, infinity + 1]
    special = [code | sign for code in edges for sign in (0, 1 << (width - 1))]
    spread = 3 << fraction_bits
    near = st.integers(max(one - spread, 0), one + spread).flatmap(
        lambda code: st.sampled_from([code, code | 1 << (width - 1)])
    )
    few_bits = st.tuples(st.integers(0, (1 << exponent_bits) - 1), st.integers(0, 7), st.booleans()).map(
        lambda t: t[0] << fraction_bits | t[1] << max(fraction_bits - 3, 0) | t[2] << (width - 1)
    )
    return st.one_of(st.integers(0, (1 << width) - 1), near, few_bits, st.sampled_from(special))


def f32_bits(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def matches(got: int, expected: int | None, name: str) -> bool:
    """Equal bits; where PTX leaves the NaN open, any NaN."""
    return is_nan(got, name) if expected is None else got == expected
