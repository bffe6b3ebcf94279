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
def _add(
    a_values: Any, a_powers: Any, b_values: Any, b_powers: Any, c_values: Any, c_powers: Any, rows: Any, start: int,
    stop: int, kept: int, smallest: int, sums: Any,
) -> None:  # fmt: skip
    """Sums of C and of the products ``start`` to ``stop`` along k, of matrices as `decode` gives them.

    ``rows`` says, for each row of A, or for all, where the rows of B that it is multiplied by start.
    """
    unit, floor = octets.spread(_power(kept)), octets.spread(_power(smallest))
    depth, columns = a_values.shape[1], sums.shape[1]
    for row in range(len(a_values)):
        starts, first = rows[row % len(rows)], row * depth
        for block in range(0, columns, octets.WIDTH):
            here = row * columns + block
            largest = octets.larger(octets.load(c_powers, here), floor)
            for k in range(start, stop):
                power = octets.spread_at(a_powers, first + k)
                largest = octets.larger(octets.multiply(power, octets.load(b_powers, starts[k] + block)), largest)
            scale = octets.divide(unit, largest)
            total = octets.trunc(octets.multiply(octets.load(c_values, here), scale))
            for k in range(start, stop):
                value = octets.spread_at(a_values, first + k)
                product = octets.multiply(value, octets.load(b_values, starts[k] + block))
                total = octets.add(total, octets.trunc(octets.multiply(product, scale)))
            octets.store(sums, here, octets.divide(total, scale))


_SMALLEST = -100
"""Exponent that terms are aligned to at least in float32, whose powers of two end at 2^127."""

_OPERANDS, _ADDENDS = (2.0**-40, 2.0**40), (2.0**_SMALLEST, 2.0**80)
"""Powers of A and B, and of C, with which float32 and int32 hold what `_add` computes in float64."""


@njit(cache=True)
def _fits(terms: int, kept: int) -> Any:
    """Whether int32 holds the sum of C, less than 2^(kept + 1), and half of the products, each less than
    2^(kept + 2)."""
    return (((terms + 1) // 2) << (kept + 2)) + (1 << (kept + 1)) <= 1 << 31


@njit(cache=True)
def _in_range(values: Any, powers: Any, least: float, most: float) -> Any:
    """Whether values are finite, and zero or of a power within a range."""
    values, powers = values.ravel(), powers.ravel()
    outside = 0
    for i in range(len(values)):
        power = powers[i]
        outside += (values[i] - values[i] != 0.0) | ((power != 0.0) & ((power < least) | (power > most)))
    return outside == 0


@njit(cache=True)
def _add_in_range(
    a_values: Any, a_powers: Any, b_values: Any, b_powers: Any, c_values: Any, c_powers: Any, rows: Any, start: int,
    stop: int, kept: int, smallest: int, sums: Any,
) -> None:  # fmt: skip
    """As `_add`, of matrices that are `_in_range`, A and B in float32: their products are exact, as none has more than
    24 bits, and are aligned in int32."""
    unit = octets.spread_single(np.float32(_power(kept)))
    floor = octets.spread_single(np.float32(_power(max(smallest, _SMALLEST))))
    last_place, zero = octets.spread(_power(-kept)), octets.as_integers(octets.spread_single(np.float32(0)))
    depth, columns, half = a_values.shape[1], sums.shape[1], (start + stop) // 2
    for row in range(len(a_values)):
        starts, first = rows[row % len(rows)], row * depth
        for block in range(0, columns, octets.WIDTH):
            here = row * columns + block
            largest = octets.larger(octets.as_singles(octets.load(c_powers, here)), floor)
            for k in range(start, stop):
                power = octets.spread_at(a_powers, first + k)
                largest = octets.larger(octets.multiply(power, octets.load(b_powers, starts[k] + block)), largest)
            scale = octets.divide(unit, largest)
            total = octets.as_integers(octets.multiply(octets.as_singles(octets.load(c_values, here)), scale))
            rest = zero
            for k in range(start, half):
                value = octets.spread_at(a_values, first + k)
                product = octets.multiply(value, octets.load(b_values, starts[k] + block))
                total = octets.add_integers(total, octets.as_integers(octets.multiply(product, scale)))
            for k in range(half, stop):
                value = octets.spread_at(a_values, first + k)
                product = octets.multiply(value, octets.load(b_values, starts[k] + block))
                rest = octets.add_integers(rest, octets.as_integers(octets.multiply(product, scale)))
            exact = octets.add(octets.from_integers(total), octets.from_integers(rest))
            octets.store(sums, here, octets.multiply(exact, octets.multiply(octets.from_singles(largest), last_place)))


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
    a_values, a_powers = np.empty((rows, depth)), np.empty((rows, depth))
    b_values, b_powers = np.empty((length, columns)), np.empty((length, columns))
    c_values, c_powers = np.empty((rows, columns)), np.empty((rows, columns))
    sums = np.empty((rows, columns))
    fits = _fits(terms, kept)
    for i in range(count):
        decode(a[i].ravel(), left, a_values.ravel(), a_powers.ravel())
        decode(b[i].ravel(), right, b_values.ravel(), b_powers.ravel())
        decode(c[i].ravel(), addend, c_values.ravel(), c_powers.ravel())
        rows_of_b = chosen[i % chosen.shape[0]] * columns
        in_range = fits and _in_range(a_values, a_powers, *_OPERANDS) and _in_range(b_values, b_powers, *_OPERANDS)
        if in_range:
            a_narrow, a_narrow_powers = a_values.astype(np.float32), a_powers.astype(np.float32)
            b_narrow, b_narrow_powers = b_values.astype(np.float32), b_powers.astype(np.float32)
        for start in range(0, depth, terms):
            stop = min(start + terms, depth)
            if in_range and _in_range(c_values, c_powers, *_ADDENDS):
                _add_in_range(
                    a_narrow, a_narrow_powers, b_narrow, b_narrow_powers, c_values, c_powers, rows_of_b, start, stop,
                    kept, smallest, sums,
                )  # fmt: skip
            else:
                _add(
                    a_values, a_powers, b_values, b_powers, c_values, c_powers, rows_of_b, start, stop, kept, smallest,
                    sums,
                )  # fmt: skip
            _round(sums.ravel(), accumulator, lost_bits, c_values.ravel(), c_powers.ravel())
        _encode(c_values.ravel(), accumulator, nan, out[i].reshape(rows * columns))
