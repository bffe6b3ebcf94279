"""Correct rounding in every direction, by the CPU where possible, otherwise from exact error terms.

The processor's rounding direction belongs to the thread; it is changed around single NumPy calls and put back.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from functools import cache

import numpy as np

from warptile.emulator.lanes import Array
from warptile.errors import UnsupportedError

_DIRECTIONS = {
    "x86_64": {"rn": 0, "rm": 0x400, "rp": 0x800, "rz": 0xC00},
    "aarch64": {"rn": 0, "rp": 0x400000, "rm": 0x800000, "rz": 0xC00000},
}
"""Arguments of C's ``fesetround`` (``FE_TONEAREST`` and so on) by processor."""

_ALIASES = {"AMD64": "x86_64", "arm64": "aarch64"}


def rounded(function: Callable[..., Array], direction: str | None) -> Callable[..., Array]:
    """``function``, whose float operations round in ``direction``: ``rn`` (or None), ``rz``, ``rm`` or ``rp``."""
    if direction is None or direction == "rn":
        return function
    set_direction, codes = _control()
    code, nearest = codes[direction], codes["rn"]

    def in_direction(*values: Array) -> Array:
        set_direction(code)
        try:
            return function(*values)
        finally:
            set_direction(nearest)

    return in_direction


@cache
def _control() -> tuple[Callable[[int], int], dict[str, int]]:
    """``fesetround`` and its arguments, once it was seen to have the effect."""
    machine = platform.machine()
    codes = _DIRECTIONS.get(_ALIASES.get(machine, machine))
    set_direction = getattr(ctypes.CDLL(None), "fesetround", None)
    if codes is None or set_direction is None:
        raise UnsupportedError(
            f"emulator: directed rounding (.rz, .rm, .rp) needs fesetround on x86-64 or ARM64; this is {machine}"
        )
    one, three = np.ones(1, dtype=np.float32), np.full(1, 3, dtype=np.float32)
    seen = []
    for direction in ("rm", "rp"):
        set_direction(codes[direction])
        seen.append(float((one / three)[0]))
        set_direction(codes["rn"])
    if not seen[0] < seen[1]:
        raise UnsupportedError("emulator: fesetround has no effect on NumPy here, so .rz, .rm and .rp cannot be exact")
    return set_direction, codes


def to_odd_sum(a: Array, b: Array) -> Array:
    """a + b in float64, rounded to odd: an inexact sum gets the neighbour whose last bit is 1.

    Rounding that once more, to at most 51 bits, is then the same as rounding the exact sum (Boldo and Melquiond, 2008).
    No intermediate may overflow.
    """
    total = a + b
    other = total - a
    error = (a - (total - other)) + (b - other)
    return _to_odd(total, error)


def to_odd_product_sum(a: Array, b: Array, c: Array) -> Array:
    """a * b + c rounded to odd in float64, for a and b of at most 26 bits each, so that a * b is exact."""
    return to_odd_sum(a * b, c)


def _to_odd(total: Array, error: Array) -> Array:
    bits = np.atleast_1d(total).view(np.int64)
    move = (error != 0) & ((bits & 1) == 0) & np.isfinite(error) & np.isfinite(total)
    away = (error > 0) == (total > 0)
    return np.where(move, np.where(away, bits + 1, bits - 1), bits).view(np.float64)


def to_odd_f32(value: Array) -> Array:
    """A float64 to float32, rounded to odd (to the largest finite number instead of infinity)."""
    near = value.astype(np.float32)
    back = near.astype(np.float64)
    bits = near.view(np.uint32)
    truncated = np.where(np.abs(back) > np.abs(value), bits - np.uint32(1), bits)
    return np.where(back == value, bits, truncated | np.uint32(1)).view(np.float32)


def to_grid(value: Array, precision: int, minimum_exponent: int, direction: str) -> Array:
    """Round float64 values to ``precision`` significant bits, fewer below ``2**minimum_exponent``; no upper limit.

    Args:
        value: exact, or rounded to odd.
        precision: bits with the leading one.
        minimum_exponent: of the smallest normal number.
        direction: ``rn``, ``rz``, ``rm``, ``rp``, or ``rna`` (nearest, ties away from zero).
    """
    exponent = np.frexp(value)[1]
    quantum = np.maximum(exponent - precision, minimum_exponent - precision + 1)
    answer: Array = np.ldexp(to_integral(np.ldexp(value, -quantum), direction), quantum)
    return answer


def to_integral(value: Array, direction: str) -> Array:
    """Round to an integer, as a float of the same type; the sign of zero stays."""
    if direction == "rna":
        whole = np.trunc(value)
        answer: Array = whole + np.copysign(np.abs(value - whole) >= 0.5, value)
        return answer
    return _INTEGRAL[direction](value)


_INTEGRAL: dict[str, Callable[[Array], Array]] = {"rn": np.rint, "rz": np.trunc, "rm": np.floor, "rp": np.ceil}
