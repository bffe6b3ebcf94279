"""Computes D = A B + C of many small matrices with the bits of a tensor core (see `warptile.isa.numerics`).

Everything here works on whole stacks: A is (n, M, K), B is (n, N, K) (transposed, so that both run along k), C and D
are (n, M, N). Floating-point matrices come and go as raw bits.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from warptile.emulator.arithmetic import adder, octets
from warptile.emulator.arithmetic.formats import canonical_f32
from warptile.emulator.arithmetic.fused import compiled
from warptile.emulator.arithmetic.rounding import rounded
from warptile.emulator.lanes import Array
from warptile.isa.numerics import FLOAT8, FORMATS, NAN_BITS, Accumulation


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
    missing = -b.shape[1] % octets.WIDTH
    if missing:  # of no instruction
        b = np.concatenate([b, np.zeros((len(b), missing, b.shape[2]), b.dtype)], axis=1)
        c = np.concatenate([c, np.zeros((*c.shape[:2], missing), c.dtype)], axis=2)
    out: Array = np.empty(c.shape, dtype=np.uint32)
    adder.multiply(
        np.ascontiguousarray(a, np.uint32), np.ascontiguousarray(b.swapaxes(1, 2), np.uint32),
        np.ascontiguousarray(c, np.uint32), _places(a.shape[2], chosen),
        _shape_of(element), _shape_of(right or element), _shape_of(accumulator),
        adder.F16 if accumulator == "f16" else adder.F32,
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
        adder.decode(raw, _shape_of(element), values, powers)
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
