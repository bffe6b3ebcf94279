"""How a tensor core adds, a second time: one output after the other, in exact fractions.

Written from the description in `warptile.isa.numerics`, without its code or that of the emulator.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

import ml_dtypes
import numpy as np

FLOAT_TYPES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip
SMALLEST_NORMAL = {"f16": -14, "bf16": -126, "tf32": -126, "f32": -126, "e4m3": -6, "e5m2": -14}


def exponent_of(value: float, element: str) -> int:
    """The exponent that the adder uses: the operand's own, of subnormals the smallest normal one."""
    return max(math.frexp(value)[1] - 1, SMALLEST_NORMAL[element])


def cut(value: Fraction, unit: Fraction) -> Fraction:
    """A multiple of ``unit``, toward zero."""
    return Fraction(math.trunc(value / unit)) * unit


def to_f32(total: Fraction, fraction_bits: int = 23) -> float:
    """Toward zero, keeping ``fraction_bits``; zero is positive."""
    if total == 0:
        return 0.0
    exponent = max(math.floor(math.log2(abs(total))) + 1, -126)
    while abs(total) < Fraction(2) ** exponent and exponent > -126:
        exponent -= 1
    if exponent > 127:
        return math.copysign(math.inf, total)
    return float(cut(total, Fraction(2) ** (exponent - fraction_bits)))


def to_f16(total: Fraction) -> float:
    """To nearest even; zero is positive."""
    with np.errstate(over="ignore"):
        return float(np.float16(float(total))) + 0.0  # exact in float64: the sum has few bits


def one_step(
    a: Sequence[float],
    b: Sequence[float],
    c: float,
    types: tuple[str, str, str],
    fraction_bits: int,
    kept_bits: int = 23,
) -> float:
    """One step of products and accumulator; ``types`` are those of A, B and the accumulator."""
    left, right, accumulator = types
    products = [float(x) * float(y) for x, y in zip(a, b, strict=True)]
    if not all(map(math.isfinite, (*products, c))):
        with np.errstate(invalid="ignore"):
            return float(np.sum(np.array([p for p in (*products, c) if not math.isfinite(p)])))
    terms = [
        (Fraction(float(x)) * Fraction(float(y)), exponent_of(x, left) + exponent_of(y, right))
        for x, y in zip(a, b, strict=True)
        if x != 0 and y != 0
    ]
    if c != 0:
        terms.append((Fraction(c), exponent_of(c, accumulator)))
    largest = max([exponent for _, exponent in terms] + [-133])
    unit = Fraction(2) ** (largest - fraction_bits)
    total = sum((cut(value, unit) for value, _ in terms), Fraction(0))
    return to_f32(total, kept_bits) if accumulator == "f32" else to_f16(total)


def dot(
    a: Sequence[float],
    b: Sequence[float],
    c: float,
    types: tuple[str, str, str],
    steps: Iterable[Sequence[int]],
    fraction_bits: int,
    kept_bits: int = 23,
) -> float:
    """One output: ``steps`` say which products are added together, one after the other."""
    total = c
    for step in steps:
        total = one_step([a[k] for k in step], [b[k] for k in step], total, types, fraction_bits, kept_bits)
    return total


def bits_of(values: np.ndarray, accumulator: str) -> np.ndarray:
    """Raw bits of f32 or f16 results, NaN as the hardware gives it."""
    word, nan = (np.uint16, 0x7FFF) if accumulator == "f16" else (np.uint32, 0x7FFFFFFF)
    with np.errstate(all="ignore"):
        held = np.asarray(values, FLOAT_TYPES[accumulator])
    return np.where(np.isnan(held), word(nan), held.view(word))
