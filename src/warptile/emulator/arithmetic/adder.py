"""The tensor-core adder, compiled: aligns, truncates, adds and rounds products and accumulator.

A float64 holds everything that occurs exactly: a product and the power of two that it is aligned by, terms as whole
numbers of units of the last place that is kept, their sum, and what it is rounded to. Infinities and NaN take their
usual way through the arithmetic.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from warptile.emulator.arithmetic import octets

F16, F32 = 0, 1
"""Kinds of accumulator."""

_EXPONENT = 0x7FF << 52
_LOWEST_POWER = -1074
_POWERS = np.ldexp(1.0, np.arange(_LOWEST_POWER, 1024))
"""Every power of two that a float64 holds."""


@njit(cache=True)
def _power(exponent: int) -> Any:
    return _POWERS[exponent - _LOWEST_POWER]


@njit(cache=True)
def _alignment(value: float, least: float) -> float:
    """The power of two that a value is aligned by: its own, at least ``least``; 0 of what aligns nothing."""
    size = abs(value)
    own = octets.from_bits(octets.bits(size) & _EXPONENT)
    own = own if own > least else least
    return own if 0.0 < size < math.inf else 0.0


@njit(cache=True)
def decode(raw: Any, format_: Any, values: Any, powers: Any) -> None:
    """Raw bits to values, and to the power of two that each is aligned by.

    ``format_`` gives the exponent, fraction and ignored bits, and whether the largest exponent is that of infinity and
    NaN: else only its largest fraction is NaN.
    """
    exponent_bits, fraction_bits, ignored_bits, ieee = format_
    bias = (1 << (exponent_bits - 1)) - 1
    sign = 1 << (exponent_bits + fraction_bits)
    infinite = ((1 << exponent_bits) - 1) << fraction_bits if ieee else sign
    last = sign - 1 if not ieee else sign  # the only NaN of a format without infinities
    # The fields, moved to where a float64 has them, are the value but for the bias, of subnormal numbers too.
    left, unbiased, least = 52 - fraction_bits, _power(1023 - bias), _power(1 - bias)
    for i in range(len(raw)):
        word = np.int64(raw[i]) >> ignored_bits
        fields = word & (sign - 1)
        size = octets.from_bits(fields << left) * unbiased
        size = math.inf if fields == infinite else size
        size = math.nan if fields > infinite or fields == last else size
        value = -size if word & sign else size
        values[i] = value
        powers[i] = _alignment(value, least)


@njit(cache=True)
def _round(sums: Any, accumulator: int, lost_bits: int, values: Any, powers: Any) -> None:
    """Sums to values of the accumulator's type; what becomes zero is positive.

    f32 is cut toward zero, ``lost_bits`` earlier than its fraction ends; f16 is rounded to the nearest, ties to even.
    """
    kept = ~((1 << (29 + lost_bits)) - 1)
    finest = _power(149 - lost_bits)
    end, least = (_power(128), _power(-126)) if accumulator == F32 else (_power(16), _power(-14))
    for i in range(len(sums)):
        value = sums[i]
        if accumulator == F32:
            near = octets.from_bits(octets.bits(value) & kept)
            near = octets.trunc_one(value * finest) / finest if abs(value) < least else near
        else:
            # The last place of this number is ten places below the leading one of the value.
            much = _alignment(value, least) * (1.5 * _power(42))
            near = (value + much) - much
        near = math.copysign(math.inf, value) if abs(near) >= end else near
        near += 0.0
        values[i] = near
        powers[i] = _alignment(near, least)


@njit(cache=True)
def _encode(values: Any, accumulator: int, nan: int, raw: Any) -> None:
    """Values of the accumulator's type to raw bits."""
    for i in range(len(values)):
        value = values[i]
        if accumulator == F32:
            word = octets.bits_of_single(np.float32(value))
        else:
            word = octets.bits(abs(value) * _power(15 - 1023)) >> 42
            word = np.int64(0x7C00) if math.isinf(value) else word
            word |= (octets.bits(value) >> 48) & 0x8000
        raw[i] = word if value == value else nan  # a NaN equals nothing


@njit(cache=True)
def multiply(
    a: Any, b: Any, c: Any, chosen: Any, left: Any, right: Any, addend: Any, accumulator: int, terms: int, kept: int,
    smallest: int, lost_bits: int, nan: int, out: Any,
) -> None:  # fmt: skip
    """One instruction on a stack of matrices: (n, M, K), (n, K, N), (n, M, N) raw bits, N a multiple of eight.

    Args:
        a: matrices A.
        b: matrices B, as they are written: not transposed.
        c: matrices C.
        chosen: the place along B of each element of A: for each matrix and row, or one for all.
        left: the format of A, as `decode` takes it.
        right: of B.
        addend: of C.
        accumulator: F16 or F32.
        terms: products that one step adds.
        kept: fraction bits below the largest term's exponent.
        smallest: terms are aligned to this exponent at least.
        lost_bits: low fraction bits of an f32 result that are always zero.
        nan: what a NaN result looks like.
        out: matrices D.
    """
    count, rows, depth = a.shape
    length, columns = b.shape[1:]
    a_values, a_powers = np.empty(rows * depth), np.empty(rows * depth)
    b_values, b_powers = np.empty(length * columns), np.empty(length * columns)
    c_values, c_powers = np.empty(rows * columns), np.empty(rows * columns)
    sums = np.empty(rows * columns)
    unit, floor = octets.spread(_power(kept)), octets.spread(_power(smallest))
    for i in range(count):
        decode(a[i].ravel(), left, a_values, a_powers)
        decode(b[i].ravel(), right, b_values, b_powers)
        decode(c[i].ravel(), addend, c_values, c_powers)
        for start in range(0, depth, terms):
            stop = min(start + terms, depth)
            for row in range(rows):
                places = chosen[i % chosen.shape[0], row % chosen.shape[1]]
                for block in range(0, columns, octets.WIDTH):
                    here = row * columns + block
                    largest = octets.larger(octets.load(c_powers, here), floor)
                    for k in range(start, stop):
                        power = octets.spread(a_powers[row * depth + k])
                        product = octets.multiply(power, octets.load(b_powers, places[k] * columns + block))
                        largest = octets.larger(product, largest)
                    scale = octets.divide(unit, largest)
                    total = octets.trunc(octets.multiply(octets.load(c_values, here), scale))
                    for k in range(start, stop):
                        value = octets.spread(a_values[row * depth + k])
                        product = octets.multiply(value, octets.load(b_values, places[k] * columns + block))
                        total = octets.add(total, octets.trunc(octets.multiply(product, scale)))
                    octets.store(sums, here, octets.divide(total, scale))
            _round(sums, accumulator, lost_bits, c_values, c_powers)
        _encode(c_values, accumulator, nan, out[i].reshape(rows * columns))
