"""Arithmetic as compiled ufuncs: one pass over the lanes, one rounding, canonical NaN.

NumPy has no fused multiply-add, needs a second pass for the NaN, and converts half precision one value at a time. Each
function here is compiled when first asked for. 16-bit floats come and go as raw bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numba.extending import intrinsic

from warptile.emulator.arithmetic.float_bits import (
    bits_of,
    float_of,
    flushed,
    narrowed_bf16,
    narrowed_f16,
    widened_bf16,
    widened_f16,
)
from warptile.emulator.lanes import Array

_NAN = np.uint32(0x7FFFFFFF).view(np.float32)
_TINY = np.float32(2.0**-126)
_UP = np.float32(2.0**64)
"""What lifts a subnormal sum to where it is rounded to 24 bits."""

_QUIET = np.uint64(1 << 51)
_NEW_NAN = np.uint64(0xFFF8 << 48)
_LETTERS = {"f32": "f4", "f64": "f8", "f16": "u2", "bf16": "u2"}
_SOURCES = {"fma": 3, "fma.ftz": 3, "odd fma": 3, "widen": 1, "narrow": 1}


@cache
def compiled(name: str, type_name: str) -> Callable[..., Array]:
    """The ufunc called ``name`` for values of type ``type_name``.

    Names are ``add``, ``sub``, ``mul`` and ``fma`` for f32, f64, f16 and bf16; the same with ``.ftz``, ``min`` and
    ``max`` for f32; ``widen`` (f16 to float32) and ``narrow`` (float32 to f16 or bf16, to the nearest).
    """
    if (name, type_name) == ("fma", "f16"):  # LLVM vectorises each half of it, but not both together
        narrow, odd = compiled("narrow", "f16"), compiled("odd fma", "f16")
        return lambda a, b, c: narrow(odd(a, b, c))
    letter = _LETTERS[type_name]
    shapes = {"widen": ("f4", "u2"), "narrow": ("u2", "f4"), "odd fma": ("f4", "u2")}
    result, source = shapes.get(name, (letter, letter))
    signature = f"{result}({', '.join([source] * _SOURCES.get(name, 2))})"
    found: Callable[..., Array] = numba.vectorize([signature], cache=True)(  # type: ignore[no-untyped-call]
        _FUNCTIONS[name, type_name]
    )
    return found


@intrinsic
def _fused(context: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once: LLVM's ``fma``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return a(a, b, c), generate


# -- single and double precision ---------------------------------------------------------------------------------------


def _add(a: Any, b: Any) -> Any:
    total = a + b
    return total if total == total else _NAN


def _subtract(a: Any, b: Any) -> Any:
    difference = a - b
    return difference if difference == difference else _NAN


def _multiply(a: Any, b: Any) -> Any:
    product = a * b
    return product if product == product else _NAN


def _multiply_add(a: Any, b: Any, c: Any) -> Any:
    result: Any = _fused(a, b, c)  # type: ignore[call-arg]
    return result if result == result else _NAN


@numba.njit(forceinline=True)
def _quiet_nan(a: Any, b: Any, c: Any) -> Any:
    """The NaN that a double-precision instruction gives: of b, else of c, else of a, made quiet; or a new one."""
    found = b if b != b else (c if c != c else a)
    bits: Any = bits_of(found)
    return float_of(np.uint64(bits | _QUIET)) if found != found else float_of(_NEW_NAN)


def _add_f64(a: Any, b: Any) -> Any:
    total = a + b
    return total if total == total else _quiet_nan(a, b, b)


def _subtract_f64(a: Any, b: Any) -> Any:
    difference = a - b
    return difference if difference == difference else _quiet_nan(a, b, b)


def _multiply_f64(a: Any, b: Any) -> Any:
    product = a * b
    return product if product == product else _quiet_nan(a, b, b)


def _multiply_add_f64(a: Any, b: Any, c: Any) -> Any:
    result: Any = _fused(a, b, c)  # type: ignore[call-arg]
    return result if result == result else _quiet_nan(a, b, c)


def _add_flushed(a: Any, b: Any) -> Any:
    total = flushed(flushed(a) + flushed(b))
    return total if total == total else _NAN


def _subtract_flushed(a: Any, b: Any) -> Any:
    difference = flushed(flushed(a) - flushed(b))
    return difference if difference == difference else _NAN


def _multiply_flushed(a: Any, b: Any) -> Any:
    a, b = flushed(a), flushed(b)
    product = flushed(a * b)
    if abs(product) == _TINY and abs((a * _UP) * b) < _TINY * _UP:
        return flushed(product * np.float32(0.5))  # it was rounded up to the smallest normal number
    return product if product == product else _NAN


def _multiply_add_flushed(a: Any, b: Any, c: Any) -> Any:
    a, b, c = flushed(a), flushed(b), flushed(c)
    result: Any = flushed(_fused(a, b, c))  # type: ignore[call-arg]
    if abs(result) == _TINY and abs(_fused(a * _UP, b, c * _UP)) < _TINY * _UP:
        return flushed(result * np.float32(0.5))
    return result if result == result else _NAN


def _minimum(a: Any, b: Any) -> Any:
    tie: Any = float_of(np.uint32(bits_of(a) | bits_of(b)))
    least = tie if a == b else (a if a < b or b != b else b)  # equal numbers differ at most in the sign of zero
    return least if least == least else _NAN


def _maximum(a: Any, b: Any) -> Any:
    tie: Any = float_of(np.uint32(bits_of(a) & bits_of(b)))
    most = tie if a == b else (a if a > b or b != b else b)
    return most if most == most else _NAN


# -- half precision ----------------------------------------------------------------------------------------------------


@numba.njit(forceinline=True)
def _to_odd_f32(a: Any) -> Any:
    """A float64 to float32, rounded to odd: rounding that once more is rounding the float64."""
    near = np.float32(a)
    back = np.float64(near)
    bits: Any = np.uint32(bits_of(near))
    cut = np.uint32(bits - np.uint32(1)) if abs(back) > abs(a) else bits
    return float_of(np.uint32(cut | np.uint32(1)) if abs(back - a) > 0 else bits)


@numba.njit(forceinline=True)
def _odd_multiply_add(a: Any, b: Any, c: Any) -> Any:
    """a * b + c of 16-bit floats, which multiply exactly in float64, rounded to odd there and then in float32."""
    product, addend = np.float64(a) * np.float64(b), np.float64(c)
    total = product + addend
    other = total - product
    error = (product - (total - other)) + (addend - other)
    bits: Any = bits_of(total)
    even = np.uint64(1) - (bits & np.uint64(1))
    if error > 0 or error < 0:
        bits = bits + even if (error > 0) == (total > 0) else bits - even
    return _to_odd_f32(float_of(np.uint64(bits)))


def _add_f16(a: Any, b: Any) -> Any:
    return narrowed_f16(widened_f16(a) + widened_f16(b))


def _subtract_f16(a: Any, b: Any) -> Any:
    return narrowed_f16(widened_f16(a) - widened_f16(b))


def _multiply_f16(a: Any, b: Any) -> Any:
    return narrowed_f16(widened_f16(a) * widened_f16(b))


def _odd_multiply_add_f16(a: Any, b: Any, c: Any) -> Any:
    """a * b + c of f16 bits, rounded to odd in float32."""
    # where float64 does not hold the sum, the product is too small to matter or the result overflows
    product = np.float64(widened_f16(a)) * np.float64(widened_f16(b))
    return _to_odd_f32(product + np.float64(widened_f16(c)))


def _add_bf16(a: Any, b: Any) -> Any:
    return narrowed_bf16(widened_bf16(a) + widened_bf16(b))


def _subtract_bf16(a: Any, b: Any) -> Any:
    return narrowed_bf16(widened_bf16(a) - widened_bf16(b))


def _multiply_bf16(a: Any, b: Any) -> Any:
    return narrowed_bf16(_to_odd_f32(np.float64(widened_bf16(a)) * np.float64(widened_bf16(b))))


def _multiply_add_bf16(a: Any, b: Any, c: Any) -> Any:
    return narrowed_bf16(_odd_multiply_add(widened_bf16(a), widened_bf16(b), widened_bf16(c)))


def _widen_f16_ufunc(h: Any) -> Any:
    return widened_f16(h)


def _narrow_f16_ufunc(a: Any) -> Any:
    return narrowed_f16(a)


def _narrow_bf16_ufunc(a: Any) -> Any:
    return narrowed_bf16(a)


_FUNCTIONS: dict[tuple[str, str], Callable[..., Any]] = {
    ("add", "f32"): _add, ("sub", "f32"): _subtract, ("mul", "f32"): _multiply, ("fma", "f32"): _multiply_add,
    ("add.ftz", "f32"): _add_flushed, ("sub.ftz", "f32"): _subtract_flushed, ("mul.ftz", "f32"): _multiply_flushed,
    ("fma.ftz", "f32"): _multiply_add_flushed, ("min", "f32"): _minimum, ("max", "f32"): _maximum,
    ("add", "f64"): _add_f64, ("sub", "f64"): _subtract_f64, ("mul", "f64"): _multiply_f64,
    ("fma", "f64"): _multiply_add_f64,
    ("add", "f16"): _add_f16, ("sub", "f16"): _subtract_f16, ("mul", "f16"): _multiply_f16,
    ("odd fma", "f16"): _odd_multiply_add_f16, ("widen", "f16"): _widen_f16_ufunc, ("narrow", "f16"): _narrow_f16_ufunc,
    ("add", "bf16"): _add_bf16, ("sub", "bf16"): _subtract_bf16, ("mul", "bf16"): _multiply_bf16,
    ("fma", "bf16"): _multiply_add_bf16, ("narrow", "bf16"): _narrow_bf16_ufunc,
}  # fmt: skip
