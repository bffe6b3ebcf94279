"""D = A B + C on many small matrices at once, as tensor cores compute it (see `warptile.isa.numerics`).

Everything here works on whole stacks: A is (n, M, K), B is (n, N, K) (transposed, so that both run along k), C and D
are (n, M, N). Floating-point matrices come and go as raw bits.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from warptile.emulator.formats import canonical_f32
from warptile.emulator.fused import compiled
from warptile.emulator.lanes import Array
from warptile.emulator.rounding import rounded
from warptile.isa.numerics import FLOAT8, FORMATS, NAN_BITS, Accumulation

BLOCK = 8
"""Columns that are computed side by side; every instruction has a multiple of it."""

_LOWEST_POWER = -1074
_POWERS = np.ldexp(1.0, np.arange(_LOWEST_POWER, 1024))
"""Every power of two that a float64 holds."""

_F32_END = 2.0**128
_F16_END = 65520.0
"""The smallest magnitudes that become infinity: of f32 rounded toward zero, and of f16 rounded to the nearest."""


@intrinsic
def _trunc_intrinsic(typing_context: Any, x: Any) -> Any:
    """x without its fraction, infinities and NaN as they are."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.call(builder.module.declare_intrinsic("llvm.trunc", [ir.DoubleType()]), arguments)

    return types.float64(types.float64), generate


_trunc: Any = _trunc_intrinsic  # its stub counts the typing context as an argument


@njit(cache=True)
def _decode(raw: Any, format_: Any, values: Any, powers: Any) -> None:
    """Raw bits to values, and to the power of two that each is aligned by: 0 of what aligns nothing.

    ``format_`` gives the exponent, fraction and ignored bits, and whether the largest exponent is that of infinity and
    NaN: else only its largest fraction is NaN.
    """
    exponent_bits, fraction_bits, ignored_bits, ieee = format_
    bias = (1 << (exponent_bits - 1)) - 1
    top = (1 << exponent_bits) - 1
    for i in range(len(raw)):
        word = np.int64(raw[i]) >> ignored_bits
        fraction: Any = word & ((1 << fraction_bits) - 1)
        field = (word >> fraction_bits) & top
        exponent = max(field, 1) - bias
        power = _POWERS[exponent - _LOWEST_POWER]
        if field != 0:
            fraction |= 1 << fraction_bits
        size = np.float64(fraction) * _POWERS[exponent - fraction_bits - _LOWEST_POWER]
        if field == top and (ieee or fraction == (2 << fraction_bits) - 1):
            size = math.inf if ieee and fraction == 1 << fraction_bits else math.nan
            power = 0.0
        if fraction == 0:
            power = 0.0
        values[i] = -size if (word >> (fraction_bits + exponent_bits)) & 1 else size
        powers[i] = power


@njit(cache=True)
def _round_to_f32(values: Any, singles: Any, words: Any, lost_bits: int, nan: int, bits: Any) -> None:
    """Bits of f32 values, cut toward zero to all but ``lost_bits`` of the fraction; zero is positive.

    ``singles`` is room for one float32 a value and ``words`` the same memory as integers.
    """
    for j in range(BLOCK):
        singles[j] = np.float32(values[j])
    for j in range(BLOCK):
        size = abs(values[j])
        away = abs(np.float64(singles[j])) > size and size < _F32_END  # rounded to the nearest, which was too large
        word = words[j] - np.uint32(1) if away else words[j]
        if lost_bits and size < _F32_END:
            word &= ~np.uint32((1 << lost_bits) - 1)
        if word == np.uint32(0x80000000):  # what is cut to zero is positive
            word = np.uint32(0)
        bits[j] = word if size == size else np.uint32(nan)  # a NaN equals nothing


@njit(cache=True)
def _round_to_f16(value: float, nan: int) -> int:
    """Bits of a value as an f16, rounded to nearest even; too large becomes infinity, zero is positive."""
    size = abs(value)
    if math.isnan(size):
        return nan
    sign = 0x8000 if value < 0 else 0
    if size >= _F16_END:
        return sign | 0x7C00
    exponent = max(math.frexp(size)[1] - 1, -14)
    units = int(np.rint(size * _POWERS[10 - exponent - _LOWEST_POWER]))
    # Of a normal number, units has bit 10 set, which adds one to the exponent field; a carry does so once more.
    return sign | (((exponent + 14) << 10) + units) if units else 0


@njit(cache=True)
def _multiply(
    a: Any, b: Any, c: Any, chosen: Any, left: Any, right: Any, accumulator: Any, terms: int, kept: int, smallest: int,
    lost_bits: int, nan: int, out: Any,
) -> None:  # fmt: skip
    """The steps of one instruction, for a stack of matrices.

    A float64 holds everything exactly: a product and its power of two, the terms as integers of units of the last
    place that is kept, and their sum. Infinities and NaN take their usual way through it.

    ``chosen`` gives the place along B of each element of A: for each matrix and row, or one for all.
    ``left``, ``right`` and ``accumulator`` are the formats of A, B and C as `_decode` takes them; an accumulator with 5
    exponent bits is f16, else f32.
    """
    count, rows, depth = a.shape
    columns, length = b.shape[1:]
    half = accumulator[0] == 5
    a_values = np.empty(rows * depth)
    a_powers = np.empty(rows * depth)
    b_values = np.empty(length * columns)
    b_powers = np.empty(length * columns)
    b_turned = np.empty(length * columns, b.dtype)
    c_values = np.empty(BLOCK)
    c_powers = np.empty(BLOCK)
    largest = np.empty(BLOCK)
    scale = np.empty(BLOCK)
    total = np.empty(BLOCK)
    bits = np.empty(BLOCK, np.uint32)
    singles = np.empty(BLOCK, np.float32)
    words = singles.view(np.uint32)
    unit = _POWERS[kept - _LOWEST_POWER]
    floor = _POWERS[smallest - _LOWEST_POWER]
    for i in range(count):
        _decode(a[i].ravel(), left, a_values, a_powers)
        for column in range(columns):
            for k in range(length):
                b_turned[k * columns + column] = b[i, column, k]
        _decode(b_turned, right, b_values, b_powers)
        for row in range(rows):
            places = chosen[i % chosen.shape[0], row % chosen.shape[1]]
            for block in range(0, columns, BLOCK):
                for j in range(BLOCK):
                    bits[j] = c[i, row, block + j]
                for start in range(0, depth, terms):
                    stop = min(start + terms, depth)
                    _decode(bits, accumulator, c_values, c_powers)
                    for j in range(BLOCK):
                        largest[j] = max(floor, c_powers[j])
                    for k in range(start, stop):
                        power = a_powers[row * depth + k]
                        first = places[k] * columns + block
                        for j in range(BLOCK):
                            product = power * b_powers[first + j]
                            largest[j] = product if product > largest[j] else largest[j]
                    for j in range(BLOCK):
                        scale[j] = unit / largest[j]
                        total[j] = 0.0 + _trunc(c_values[j] * scale[j])  # a sum of nothing but -0 is +0
                    for k in range(start, stop):
                        value = a_values[row * depth + k]
                        first = places[k] * columns + block
                        for j in range(BLOCK):
                            total[j] += _trunc(value * b_values[first + j] * scale[j])
                    for j in range(BLOCK):
                        total[j] /= scale[j]
                    if half:
                        for j in range(BLOCK):
                            bits[j] = _round_to_f16(total[j], nan)
                    else:
                        _round_to_f32(total, singles, words, lost_bits, nan, bits)
                for j in range(BLOCK):
                    out[i, row, block + j] = bits[j]


def _shape_of(element: str) -> tuple[int, int, int, bool]:
    format_ = FORMATS[element]
    return format_.exponent_bits, format_.fraction_bits, format_.ignored_bits, format_.specials == "ieee"


def _places(depth: int, chosen: NDArray[np.int64] | None) -> NDArray[np.int64]:
    return np.arange(depth).reshape(1, 1, depth) if chosen is None else np.ascontiguousarray(chosen)


def multiply_float(
    a: Array,
    b: Array,
    c: Array,
    element: str,
    accumulator: str,
    model: Accumulation,
    *,
    right: str | None = None,
    chosen: NDArray[np.int64] | None = None,
) -> Array:
    """Floating-point operands as raw bits; C and D are of type ``accumulator``, f16 or f32.

    Args:
        a: (n, M, K) bits.
        b: (n, N, K) bits.
        c: (n, M, N) bits.
        element: type of A, and of B unless ``right`` says otherwise.
        accumulator: type of C and of the result.
        model: the adder.
        right: type of B.
        chosen: of a sparse A, whose K is that of its stored elements: (n, M, K) places along k of B.
    """
    missing = -b.shape[1] % BLOCK
    if missing:  # of no instruction
        b = np.concatenate([b, np.zeros((len(b), missing, b.shape[2]), b.dtype)], axis=1)
        c = np.concatenate([c, np.zeros((*c.shape[:2], missing), c.dtype)], axis=2)
    out: Array = np.empty(c.shape, dtype=np.uint32)
    _multiply(
        np.ascontiguousarray(a, np.uint32), np.ascontiguousarray(b, np.uint32), np.ascontiguousarray(c, np.uint32),
        _places(a.shape[2], chosen), _shape_of(element), _shape_of(right or element), _shape_of(accumulator),
        model.terms, model.fraction_bits, model.smallest_exponent, model.lost_bits, NAN_BITS[accumulator], out,
    )  # fmt: skip
    return out[:, :, : out.shape[2] - missing].astype(c.dtype, copy=False)


@cache
def _as_f16() -> dict[str, Array]:
    """Of every eight-bit float, the bits of the f16 of the same value."""
    raw = np.arange(256, dtype=np.uint32)
    tables = {}
    for element in FLOAT8:
        values, powers = np.empty(256), np.empty(256)
        _decode(raw, _shape_of(element), values, powers)
        tables[element] = np.where(np.isnan(values), NAN_BITS["f16"], values.astype(np.float16).view(np.uint16))
    return tables


def multiply_float8(
    a: Array,
    b: Array,
    c: Array,
    element: str,
    accumulator: str,
    model: Accumulation,
    *,
    right: str | None = None,
    chosen: NDArray[np.int64] | None = None,
) -> Array:
    """The same of eight-bit floats where the adder is that of f16: see `warptile.isa.numerics.unpacks_float8`."""
    tables = _as_f16()
    a, b = tables[element][a], tables[right or element][b]
    places: NDArray[np.int64] = np.broadcast_to(_places(a.shape[2], chosen), a.shape)
    total: Array = np.zeros_like(c)
    for first in (0, 2):
        part = np.flatnonzero(np.arange(a.shape[2]) % 4 // 2 * 2 == first)
        total = multiply_float(
            a.take(part, axis=2), b, total, "f16", accumulator, model, chosen=places.take(part, axis=2)
        )
    word, kind = (np.uint16, np.float16) if accumulator == "f16" else (np.uint32, np.float32)
    with np.errstate(all="ignore"):
        added: Array = total.astype(word).view(kind) + c.astype(word).view(kind)
    bits: Array = np.where(np.isnan(added), word(NAN_BITS[accumulator]), added.view(word))
    return bits.astype(c.dtype, copy=False)


def multiply_quads(a: Array, b: Array, c: Array, accumulator: str) -> Array:
    """f16 operands with K = 4 where no tensor core takes them (see `warptile.isa.numerics.has_quad_pairs`)."""
    x, y = (matrices.astype(np.uint16).view(np.float16).astype(np.float32) for matrices in (a, b))
    factors = [(x[:, :, None, k], y[:, None, :, k]) for k in range(4)]
    fma = compiled("fma", "f32")
    with np.errstate(all="ignore"):
        if accumulator == "f32":
            total: Array = np.zeros(c.shape, np.float32)
            for left, right in factors:
                total = fma(left, right, total)
            return canonical_f32(c.view(np.float32) + total).view(np.uint32)
        first, last = (fma(*factors[k + 1], factors[k][0] * factors[k][1]) for k in (0, 2))
        total = c.astype(np.uint16).view(np.float16).astype(np.float32) + first + last
        return np.where(np.isnan(total), np.uint16(NAN_BITS["f16"]), total.astype(np.float16).view(np.uint16))


@njit(cache=True)
def _multiply_integer(a: Any, b: Any, c: Any, chosen: Any, saturate: bool, out: Any) -> None:
    count, rows, depth = a.shape
    columns = b.shape[1]
    for i in range(count):
        for row in range(rows):
            places = chosen[i % chosen.shape[0], row % chosen.shape[1]]
            for column in range(columns):
                total: Any = np.int64(c[i, row, column])
                for k in range(depth):
                    total += np.int64(a[i, row, k]) * np.int64(b[i, column, places[k]])
                if saturate:
                    total = min(max(total, -(1 << 31)), (1 << 31) - 1)
                out[i, row, column] = total & 0xFFFFFFFF


def multiply_integer(
    a: Array, b: Array, c: NDArray[np.int32], *, saturate: bool, chosen: NDArray[np.int64] | None = None
) -> NDArray[np.int32]:
    """Integer operands; the sum is exact and then wraps, or is held at the limits of int32."""
    out = np.empty(c.shape, dtype=np.uint32)
    _multiply_integer(
        np.ascontiguousarray(a, np.int32), np.ascontiguousarray(b, np.int32), np.ascontiguousarray(c),
        _places(a.shape[2], chosen), saturate, out,
    )  # fmt: skip
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


def multiply_double(
    a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64], rounding: str
) -> NDArray[np.float64]:
    """f64 operands: a chain of fused multiply-adds in order of k, each rounded ``rn``, ``rz``, ``rm`` or ``rp``."""
    fma = rounded(compiled("fma", "f64"), rounding)
    total: Array = c
    with np.errstate(all="ignore"):
        for k in range(a.shape[2]):
            total = fma(a[:, :, None, k], b[:, None, :, k], total)
    return total
