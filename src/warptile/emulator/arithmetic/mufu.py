"""The multi-function unit (MUFU) of sm_90: reciprocal, roots, logarithm, power, sine, cosine, tanh, bit for bit.

All functions are made the same way. The upper bits of a 23-bit operand choose a row of a table, the lower ones, x, are
interpolated:

    row[0] + row[1] * x + row[2] * square(x)

in integers, and the lowest bits are cut off. The square is one of 17 bits that adds up only its upper columns. The
tables (``mufu.json``) are the integers that give an H200's results for all operands: docs/numerics.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.arithmetic.formats import canonical_f32, flush_subnormals
from warptile.emulator.lanes import Array

PtxFunction = Callable[[Array], Array]

_UPPER = np.uint64(0xFFFFFFFF00000000)
_FRACTION = (1 << 23) - 1
_QUARTER = 1 << 23
"""Steps of a quarter of a turn."""

_LOW_BITS = 17
_LOW_MASK = (1 << _LOW_BITS) - 1
_COLUMN = 19
"""The lowest column of the square that is added up."""


@cache
def _table(name: str) -> NDArray[np.int64]:
    path = Path(__file__).with_name("mufu.json")
    return np.array(json.loads(path.read_text("utf-8"))[name], dtype=np.int64)


@cache
def _squares() -> NDArray[np.int64]:
    """Of every x: products of pairs of its bits that fall below the lowest column are left out."""
    x = np.arange(1 << _LOW_BITS, dtype=np.int64)
    bits = [x >> i & 1 for i in range(_LOW_BITS)]
    total = np.zeros_like(x)
    for i in range(_LOW_BITS):
        for j in range(i + 1):
            column = i + j + (i != j)  # twice the product of two different bits
            if column >= _COLUMN:
                total += (bits[i] & bits[j]) << column
    return total >> _COLUMN


def exponential_tables() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows of ``ex2``, three numbers each, and the squares; both live as long as the process."""
    return _table("ex2"), _squares()


def _interpolated(name: str, operand: Array, first_row: Array | int = 0) -> Array:
    """The function in fixed point, of 23-bit operands whose upper six choose the row."""
    return _rows(name, (operand >> _LOW_BITS) + first_row, operand & _LOW_MASK)


def _rows(name: str, row: Array, low: Array) -> Array:
    rows = _table(name)[row]
    answer: Array = rows[..., 0] + rows[..., 1] * low + rows[..., 2] * _squares()[low]
    return answer


def _split(a: Array) -> tuple[Array, Array]:
    """Exponent and fraction."""
    bits = a.view(np.uint32).astype(np.int64)
    return (bits >> 23 & 255) - 127, bits & _FRACTION


def _scaled(units: Array, exponent: Array) -> Array:
    answer: Array = np.ldexp(units.astype(np.float64), exponent)
    return answer


def _cut(units: Array, point: int) -> Array:
    """units * 2**-point with the upper 24 bits of units."""
    bits = units.astype(np.float64).view(np.uint64) & np.uint64(0xFFFFFFFFE0000000)
    answer: Array = np.ldexp(bits.view(np.float64), -point)
    return answer


def _reciprocal(exponent: Array, fraction: Array) -> Array:
    return _scaled(_rows("rcp", fraction >> 16, fraction << 1 & _LOW_MASK) >> 16, -24 - exponent)


def _reciprocal_root(exponent: Array, fraction: Array) -> Array:
    units = _interpolated("rsqrt", fraction, (exponent & 1) * 64) >> 16
    units = np.where((fraction == 0) & (exponent & 1 == 0), 1 << 24, units)
    return _scaled(units, -24 - (exponent >> 1))


def _root(a: Array) -> Array:
    exponent, fraction = _split(a)
    units = _interpolated("sqrt", fraction, (exponent & 1) * 64) >> 17
    return _scaled(units, -23 + (exponent >> 1))


def _power(a: Array) -> Array:
    """Of operands cut to 23 fraction bits; a negative one that is not whole is complemented instead of negated."""
    size = np.trunc(np.ldexp(np.minimum(np.abs(a).astype(np.float64), 1024.0), 23)).astype(np.int64)
    below = np.where(size & _FRACTION == 0, -size, ~size)
    steps = np.where(np.signbit(a), below, size)
    units = _interpolated("ex2", steps & _FRACTION) >> 15
    return _scaled(units, -23 + (steps >> 23))


def _logarithm(a: Array) -> Array:
    """In 36 fraction bits; a negative sum is complemented, then cut to 24 bits."""
    exponent, fraction = _split(a)
    total = (exponent << 36) + (_interpolated("lg2", fraction) >> 2)
    one = (exponent == 0) & (fraction == 0)
    size = np.where(one, 0.0, _cut(np.where(total < 0, ~total, total), 36))
    return np.where(total < 0, -size, size)


def _wave(ahead: int) -> PtxFunction:
    """The sine of turns, ``ahead`` quarters later. Turns are cut to 25 fraction bits; falling quarters are mirrored."""

    def wave(turns: Array) -> Array:
        steps = np.mod(np.trunc(np.ldexp(np.abs(turns).astype(np.float64), 25)), 4 * _QUARTER).astype(np.int64)
        quarter, rest = steps // _QUARTER + ahead, steps % _QUARTER
        place = np.where(quarter % 2 == 1, _QUARTER - 1 - rest, rest)
        size = _cut(_interpolated("sin", place) >> 1, 37)
        below = (quarter % 4 >= 2) != (np.signbit(turns) if ahead == 0 else False)
        return np.where(below, -size, size)

    return wave


_TANH_ROW_BITS = (0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3)
"""Of each binade from 2**-8 to 2**2."""

_TANH_IS_ITS_OPERAND = np.float32(2.0**-8)
_TANH_IS_ONE = np.float32(8)
_BELOW_ONE = np.nextafter(_TANH_IS_ONE, np.float32(0))


def _tangent(a: Array) -> Array:
    """Seventeen bits below those that choose the row, whichever binade: further ones are not seen."""
    size = np.abs(a)
    exponent, fraction = _split(np.fmax(np.fmin(size, _BELOW_ONE), _TANH_IS_ITS_OPERAND))
    row_bits = np.array(_TANH_ROW_BITS)
    first_rows = np.cumsum(1 << row_bits) - (1 << row_bits)
    bits, first_row = row_bits[exponent + 8], first_rows[exponent + 8]
    units = _rows("tanh", first_row + (fraction >> (23 - bits)), fraction >> (23 - _LOW_BITS - bits) & _LOW_MASK)
    found = np.where(size < _TANH_IS_ITS_OPERAND, size, _cut(units, 43))
    return np.copysign(np.where(size >= _TANH_IS_ONE, 1.0, found), a)


def _instruction(function: PtxFunction, exact: PtxFunction) -> PtxFunction:
    """A function of float32 values: special operands as ``exact`` has them, subnormal operands and results flushed."""

    def instruction(a: Array) -> Array:
        a = flush_subnormals(a)
        limit = exact(a.astype(np.float64))
        ordinary = np.isfinite(a) & (a != 0) & np.isfinite(limit)
        found = np.where(ordinary, function(np.where(ordinary, a, np.float32(1))), limit)
        return canonical_f32(flush_subnormals(found.astype(np.float32)))

    return instruction


def _wave_of_zero(ahead: int) -> PtxFunction:
    return lambda a: np.where(np.isfinite(a), a if ahead == 0 else 1.0, np.nan)


FUNCTIONS: dict[str, PtxFunction] = {
    "rcp": _instruction(lambda a: np.copysign(_reciprocal(*_split(a)), a), lambda a: 1.0 / a),
    "sqrt": _instruction(_root, np.sqrt),
    "rsqrt": _instruction(lambda a: _reciprocal_root(*_split(a)), lambda a: 1.0 / np.sqrt(a)),
    "ex2": _instruction(_power, np.exp2),
    "lg2": _instruction(_logarithm, np.log2),
    "sin": _instruction(_wave(0), _wave_of_zero(0)),
    "cos": _instruction(_wave(1), _wave_of_zero(1)),
    "tanh": lambda a: canonical_f32(np.where(np.isnan(a), a, _tangent(a).astype(np.float32))),
}
"""By the name of the PTX instruction; sines are of turns."""


def _of_upper_halves(function: Callable[[Array, Array], Array], exact: PtxFunction) -> PtxFunction:
    tiny = np.finfo(np.float64).smallest_normal

    def flushed(value: Array) -> Array:
        return np.where(np.abs(value) < tiny, np.copysign(0.0, value), value)

    def approximate(a: Array) -> Array:
        upper = a.view(np.uint64) >> np.uint64(32)
        a = flushed((upper << np.uint64(32)).view(np.float64))
        limit = exact(a)
        word = upper.astype(np.int64)
        found = np.copysign(function((word >> 20 & 2047) - 1023, (word & 0xFFFFF) << 3), a)
        result = flushed(np.where(np.isfinite(a) & (a != 0) & np.isfinite(limit), found, limit))
        kept = (result.view(np.uint64) & _UPPER).view(np.float64)
        return np.where(np.isnan(result), np.uint64(0x7FFFFFFF00000000).view(np.float64), kept)

    return approximate


UPPER_HALVES: dict[str, PtxFunction] = {
    "rcp": _of_upper_halves(_reciprocal, lambda a: 1.0 / a),
    "rsqrt": _of_upper_halves(_reciprocal_root, lambda a: 1.0 / np.sqrt(a)),
}
"""From and to the upper 32 bits of float64 values; the lower ones are not seen."""
