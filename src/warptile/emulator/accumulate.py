"""D = A B + C on many small matrices at once, as tensor cores compute it (see `warptile.isa.numerics`).

Everything here works on whole stacks: A is (n, M, K), B is (n, N, K) (transposed, so that both run along k), C and D
are (n, M, N). Floating-point matrices come and go as raw bits.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numba import njit
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from warptile.emulator.lanes import Array
from warptile.isa.numerics import FORMATS, NAN_BITS, Accumulation, FloatFormat

FINITE, INFINITE, NOT_A_NUMBER = 0, 1, 2
ZERO_EXPONENT = -10000
"""Exponent of a zero: it aligns nothing."""


@njit(cache=True)
def _decode(
    raw: Any, exponent_bits: int, fraction_bits: int, ignored_bits: int, significands: Any, exponents: Any, kinds: Any
) -> bool:
    """Split values into signed significands (with ``fraction_bits`` fraction bits) and exponents; any special ones?"""
    special = False
    bias = (1 << (exponent_bits - 1)) - 1
    top = (1 << exponent_bits) - 1
    for i in range(len(raw)):
        value: Any = np.int64(raw[i]) >> ignored_bits
        fraction: Any = value & ((1 << fraction_bits) - 1)
        field = (value >> fraction_bits) & top
        kinds[i] = FINITE
        if field == top:
            special = True
            kinds[i] = INFINITE if fraction == 0 else NOT_A_NUMBER
            fraction, exponent = 1, 0
        elif field == 0:
            exponent = 1 - bias
        else:
            fraction |= 1 << fraction_bits
            exponent = field - bias
        if fraction == 0:
            exponent = ZERO_EXPONENT
        significands[i] = -fraction if (value >> (fraction_bits + exponent_bits)) & 1 else fraction
        exponents[i] = exponent
    return special


@njit(cache=True)
def _cut(significand: int, left: int) -> int:
    """significand * 2**left, cut toward zero."""
    if left >= 0:
        return significand << left
    if left < -62:
        return 0
    return significand >> -left if significand >= 0 else -((-significand) >> -left)


@njit(cache=True)
def _round_to_f32(total: int, exponent: int) -> int:
    """Bits of total * 2**exponent as an f32, cut toward zero; too large becomes infinity."""
    if total == 0:
        return 0
    sign = 0x80000000 if total < 0 else 0
    size = abs(total)
    leading = math.frexp(float(size))[1] - 1 + exponent
    if leading > 127:
        return sign | 0x7F800000
    lowest = max(leading, -126) - 23
    fraction = _cut(size, exponent - lowest)
    if leading < -126:
        return sign | fraction
    return sign | ((leading + 127) << 23) | (fraction & 0x7FFFFF)


@njit(cache=True)
def _round_to_f16(total: int, exponent: int) -> int:
    """Bits of total * 2**exponent as an f16, rounded to nearest even; too large becomes infinity, zero is positive."""
    if total == 0:
        return 0
    sign = 0x8000 if total < 0 else 0
    size = abs(total)
    leading = math.frexp(float(size))[1] - 1 + exponent
    lowest = max(leading, -14) - 10
    drop = lowest - exponent
    if drop <= 0:
        fraction = size << -drop
    elif drop > 62:
        fraction = 0
    else:
        fraction = size >> drop
        half = 1 << (drop - 1)
        remainder = size & ((1 << drop) - 1)
        if remainder > half or (remainder == half and fraction & 1):
            fraction += 1
    if fraction == 0:
        return 0
    if leading < -14:
        return sign | fraction  # a carry into bit 10 is the smallest normal number
    result = ((leading + 15) << 10) + (fraction - 1024)
    return sign | (result if result < 0x7C00 else 0x7C00)


@njit(cache=True)
def _special_sum(sa: Any, ka: Any, sb: Any, kb: Any, sc: int, kc: int) -> tuple[int, bool]:
    """Of one step with special values: kind of the sum (FINITE if none matter) and its sign."""
    positive = kc == INFINITE and sc > 0
    negative = kc == INFINITE and sc < 0
    if kc == NOT_A_NUMBER:
        return NOT_A_NUMBER, False
    for k in range(len(sa)):
        if ka[k] == NOT_A_NUMBER or kb[k] == NOT_A_NUMBER:
            return NOT_A_NUMBER, False
        if ka[k] == INFINITE or kb[k] == INFINITE:
            if sa[k] == 0 or sb[k] == 0:
                return NOT_A_NUMBER, False
            if (sa[k] < 0) != (sb[k] < 0):
                negative = True
            else:
                positive = True
    if positive and negative:
        return NOT_A_NUMBER, False
    return (INFINITE, negative) if positive or negative else (FINITE, False)


@njit(cache=True)
def _add_products(sa: Any, ea: Any, sb: Any, eb: Any, sc: Any, ec: Any, point: int, floor: int, kept: int) -> Any:
    """One step without special values: the sum of cut terms, and the exponent they are aligned to.

    All operands are int32 and the loops are straight, so that the compiler turns them into vector instructions.
    """
    largest = np.int32(floor)
    for k in range(len(sa)):
        largest = max(largest, ea[k] + eb[k])
    largest = max(largest, ec)
    total = np.int64(0)
    for k in range(len(sa)):
        down = min(largest - ea[k] - eb[k], np.int32(31))
        term = np.int32(sa[k] * sb[k]) << np.int32(point)
        # Arithmetic shifts round down; adding ones below the cut to negative terms makes that toward zero.
        term += (term >> np.int32(31)) & ((np.int32(1) << down) - np.int32(1))
        total += np.int32(term) >> down
    return total + _cut(sc, kept - (largest - ec)), largest


@njit(cache=True)
def _multiply(
    a: Any, b: Any, c: Any, operand: Any, accumulator: Any, terms: int, kept: int, smallest: int, nan: int, out: Any
) -> None:
    """The steps of one instruction, for a stack of matrices.

    ``operand`` and ``accumulator`` give (exponent, fraction, ignored) bits of the two formats; an accumulator with 5
    exponent bits is f16, else f32.
    """
    count, rows, depth = a.shape
    columns = b.shape[1]
    half = accumulator[0] == 5
    sa = np.empty(rows * depth, np.int32)
    ea = np.empty(rows * depth, np.int32)
    ka = np.empty(rows * depth, np.uint8)
    sb = np.empty(columns * depth, np.int32)
    eb = np.empty(columns * depth, np.int32)
    kb = np.empty(columns * depth, np.uint8)
    sc = np.empty(1, np.int32)
    ec = np.empty(1, np.int32)
    kc = np.empty(1, np.uint8)
    value = np.empty(1, np.uint32)
    point = kept - 2 * operand[1]
    for i in range(count):
        special_a = _decode(a[i].ravel(), operand[0], operand[1], operand[2], sa, ea, ka)
        special_b = _decode(b[i].ravel(), operand[0], operand[1], operand[2], sb, eb, kb)
        for row in range(rows):
            for column in range(columns):
                value[0] = c[i, row, column]
                for start in range(0, depth, terms):
                    stop = min(start + terms, depth)
                    x, y = (
                        slice(row * depth + start, row * depth + stop),
                        slice(column * depth + start, column * depth + stop),
                    )
                    special_c = _decode(value, accumulator[0], accumulator[1], accumulator[2], sc, ec, kc)
                    if special_a or special_b or special_c:
                        kind, below = _special_sum(sa[x], ka[x], sb[y], kb[y], sc[0], kc[0])
                        if kind == NOT_A_NUMBER:
                            value[0] = nan
                            break
                        if kind == INFINITE:
                            value[0] = (0xFC00 if below else 0x7C00) if half else (0xFF800000 if below else 0x7F800000)
                            continue
                    total, largest = _add_products(
                        sa[x], ea[x], sb[y], eb[y], sc[0], ec[0], point, smallest, kept - accumulator[1]
                    )
                    if half:
                        value[0] = _round_to_f16(total, largest - kept)
                    else:
                        value[0] = _round_to_f32(total, largest - kept)
                out[i, row, column] = value[0]


def _shape_of(format_: FloatFormat) -> tuple[int, int, int]:
    return format_.exponent_bits, format_.fraction_bits, format_.ignored_bits


def multiply_float(a: Array, b: Array, c: Array, element: str, accumulator: str, model: Accumulation) -> Array:
    """Floating-point operands as raw bits (uint16 or uint32); C and D are of type ``accumulator``, f16 or f32.

    Args:
        a: (n, M, K) bits.
        b: (n, N, K) bits.
        c: (n, M, N) bits.
        element: type of A and B.
        accumulator: type of C and of the result.
        model: the adder.
    """
    out = np.empty(c.shape, dtype=c.dtype)
    _multiply(
        np.ascontiguousarray(a), np.ascontiguousarray(b), np.ascontiguousarray(c), _shape_of(FORMATS[element]),
        _shape_of(FORMATS[accumulator]), model.terms, model.fraction_bits, model.smallest_exponent,
        NAN_BITS[accumulator], out,
    )  # fmt: skip
    return out


@njit(cache=True)
def _multiply_integer(a: Any, b: Any, c: Any, saturate: bool, out: Any) -> None:
    count, rows, depth = a.shape
    columns = b.shape[1]
    for i in range(count):
        for row in range(rows):
            for column in range(columns):
                total: Any = np.int64(c[i, row, column])
                for k in range(depth):
                    total += np.int64(a[i, row, k]) * np.int64(b[i, column, k])
                if saturate:
                    total = min(max(total, -(1 << 31)), (1 << 31) - 1)
                out[i, row, column] = total & 0xFFFFFFFF


def multiply_integer(a: Array, b: Array, c: NDArray[np.int32], *, saturate: bool) -> NDArray[np.int32]:
    """Integer operands (int8 or uint8); the sum is exact and then wraps, or is held at the limits of int32."""
    out = np.empty(c.shape, dtype=np.uint32)
    _multiply_integer(np.ascontiguousarray(a), np.ascontiguousarray(b), np.ascontiguousarray(c), saturate, out)
    return out.view(np.int32)


@njit(cache=True)
def _multiply_bits(a: Any, b: Any, c: Any, exclusive: bool, out: Any) -> None:
    count, rows, words = a.shape
    columns = b.shape[1]
    for i in range(count):
        for row in range(rows):
            for column in range(columns):
                total: Any = np.int64(c[i, row, column])
                for k in range(words):
                    bits = a[i, row, k] ^ b[i, column, k] if exclusive else a[i, row, k] & b[i, column, k]
                    while bits:
                        bits &= bits - np.uint32(1)
                        total += 1
                out[i, row, column] = total & 0xFFFFFFFF


def multiply_bits(a: Array, b: Array, c: NDArray[np.int32], *, exclusive: bool) -> NDArray[np.int32]:
    """Single-bit operands, 32 along k in each uint32: the ones of XOR (``exclusive``) or AND are counted."""
    out = np.empty(c.shape, dtype=np.uint32)
    _multiply_bits(np.ascontiguousarray(a), np.ascontiguousarray(b), np.ascontiguousarray(c), exclusive, out)
    return out.view(np.int32)


@intrinsic
def _fused(typing_context: Any, x: Any, y: Any, z: Any) -> Any:
    """x * y + z, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), generate


_fma: Any = _fused  # its stub counts the typing context as an argument


@njit(cache=True)
def _multiply_double(a: Any, b: Any, c: Any, out: Any) -> None:
    count, rows, depth = a.shape
    columns = b.shape[1]
    for i in range(count):
        for row in range(rows):
            for column in range(columns):
                total = c[i, row, column]
                for k in range(depth):
                    total = _fma(a[i, row, k], b[i, column, k], total)
                out[i, row, column] = total


def multiply_double(
    a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64], rounding: str
) -> NDArray[np.float64]:
    """f64 operands: a chain of fused multiply-adds in order of k, each rounded ``rn``, ``rz``, ``rm`` or ``rp``."""
    out = np.empty(c.shape, dtype=np.float64)
    if rounding == "rn":
        _multiply_double(np.ascontiguousarray(a), np.ascontiguousarray(b), np.ascontiguousarray(c), out)
        return out
    for place in np.ndindex(c.shape):
        total = float(c[place])
        for x, y in zip(a[place[0], place[1]], b[place[0], place[2]], strict=True):
            total = _directed_fma(float(x), float(y), total, rounding)
        out[place] = total
    return out


def _directed_fma(x: float, y: float, z: float, rounding: str) -> float:
    """x * y + z rounded toward zero (rz), down (rm) or up (rp): exact arithmetic, then one neighbour at most."""
    if not (np.isfinite(x) and np.isfinite(y) and np.isfinite(z)):
        with np.errstate(all="ignore"):
            return float(np.float64(x) * np.float64(y) + np.float64(z))
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if exact == 0:
        product_negative = bool(np.signbit(x)) != bool(np.signbit(y))
        same_sign = (x == 0 or y == 0) and product_negative == bool(np.signbit(z)) and z == 0
        negative = product_negative if same_sign else rounding == "rm"
        return -0.0 if negative else 0.0
    up = rounding == "rp" or (rounding == "rz" and exact < 0)
    limit = float(np.finfo(np.float64).max)
    if abs(exact) > Fraction(limit):
        size = np.inf if up == (exact > 0) else limit
        return float(np.copysign(size, 1 if exact > 0 else -1))
    nearest = float(exact)  # Python divides big integers correctly rounded
    if nearest == 0:
        nearest = float(np.copysign(0.0, 1 if exact > 0 else -1))
    if up and Fraction(nearest) < exact:
        return float(np.nextafter(nearest, np.inf))
    if not up and Fraction(nearest) > exact:
        return float(np.nextafter(nearest, -np.inf))
    return nearest
