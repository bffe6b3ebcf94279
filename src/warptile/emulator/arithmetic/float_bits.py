"""Bits of floats in compiled code: reinterpretation, flushing, and conversion of 16-bit floats.

Functions for Numba: they are inlined into the loops that call them.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

_TINY = np.float32(2.0**-126)


def _inlined(function: Any) -> Any:
    """Numba's intrinsic, whose Python function has one argument more than its calls."""
    return intrinsic(function)


@_inlined
def bits_of(context: Any, value: Any) -> Any:
    """The bits of a float."""
    width = value.bitwidth

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(width))

    return (types.uint32 if width == 32 else types.uint64)(value), generate


@_inlined
def float_of(context: Any, bits: Any) -> Any:
    """The float with the given bits."""
    wide = bits.bitwidth == 64

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType() if wide else ir.FloatType())

    return (types.float64 if wide else types.float32)(bits), generate


@numba.njit(forceinline=True)
def flushed(a: Any) -> Any:
    """A float32 with a subnormal number made a zero of its sign."""
    bits: Any = bits_of(a)
    return float_of(np.uint32(bits & 0x80000000)) if abs(a) < _TINY else a


@numba.njit(forceinline=True)
def widened_f16(h: Any) -> Any:
    """float32 of f16 bits: the fields moved into place, the exponent biased anew. No branches: it vectorises."""
    magnitude = np.uint32(h & 0x7FFF) << np.uint32(13)
    # below the normal range there is no implicit one: as if there were, less that one
    small: Any = float_of(np.uint32(magnitude | np.uint32(0x38800000))) - np.float32(2.0**-14)
    bits = np.uint32(magnitude + np.uint32(0x38000000))
    bits = np.uint32(magnitude | np.uint32(0x7F800000)) if magnitude >= 0x0F800000 else bits
    bits = np.uint32(bits_of(small)) if magnitude < 0x00800000 else bits
    return float_of(np.uint32(bits | (np.uint32(h & 0x8000) << np.uint32(16))))


@numba.njit(forceinline=True)
def narrowed_f16(a: Any) -> Any:
    """f16 bits of a float32, to the nearest, ties to even. No branches: it vectorises."""
    bits: Any = np.uint32(bits_of(a))
    magnitude = np.uint32(bits & np.uint32(0x7FFFFFFF))
    # below 2**-14, a sum with 0.5 has its last place where the result has
    shifted: Any = bits_of(float_of(magnitude) + np.float32(0.5))
    small = np.uint32(np.uint32(shifted) - np.uint32(0x3F000000))
    tie = np.uint32((magnitude >> np.uint32(13)) & np.uint32(1))
    code = np.uint32(np.uint32(magnitude - np.uint32(0x37FFF001)) + tie) >> np.uint32(13)
    code = small if magnitude < np.uint32(0x38800000) else np.uint32(code)
    code = np.uint32(0x7C00) if magnitude >= np.uint32(0x477FF000) else code
    code = np.uint32(code | np.uint32((bits >> np.uint32(16)) & np.uint32(0x8000)))
    code = np.uint32(0x7FFF) if magnitude > np.uint32(0x7F800000) else code
    return np.uint16(code)


@numba.njit(forceinline=True)
def widened_bf16(h: Any) -> Any:
    """float32 of bf16 bits."""
    return float_of(np.uint32(np.uint32(h) << 16))


@numba.njit(forceinline=True)
def narrowed_bf16(a: Any) -> Any:
    """bf16 bits of a float32, to the nearest, ties to even."""
    bits: Any = bits_of(a)
    if a != a:
        return np.uint16(0x7FFF)
    return np.uint16((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
