"""Conversions of C's ``printf``, as the host's C library makes them of what a kernel prints.

The GPU only hands the arguments over: on Linux, glibc formats them (CUDA C++ Programming Guide, "Formatted Output").
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

CONVERSION = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d*))?(hh|h|ll|l|j|z|t|L)?([diouxXeEfFgGaAcsp%])")
"""Flags, width, precision, length and kind."""

_LENGTHS = {"hh": 1, "h": 2, "l": 8, "ll": 8, "j": 8, "z": 8, "t": 8}


def integer_bytes(length: str | None) -> int:
    """Bytes of an integer argument; what is shorter than an int is passed as one."""
    return max(_LENGTHS.get(length or "", 4), 4)


def format_integer(value: int, kind: str, length: str | None, flags: str, width: int, precision: int | None) -> str:
    """``%d`` and the like of an argument's bits."""
    bits = 8 * _LENGTHS.get(length or "", 4)
    value &= (1 << bits) - 1
    if kind in "di" and value >> (bits - 1):
        value -= 1 << bits
    base = {"o": "o", "x": "x", "X": "X"}.get(kind, "d")
    digits = format(abs(value), base)
    if precision is not None:
        digits = "" if precision == 0 and value == 0 else digits.rjust(precision, "0")
    sign = _sign(value < 0, flags) if kind in "di" else ""
    if "#" in flags and kind == "o" and not digits.startswith("0"):
        digits = "0" + digits
    elif "#" in flags and kind in "xX" and value:
        sign = "0" + kind
    return _padded(sign, digits, flags, width, zeros=precision is None)


def format_float(value: float, kind: str, flags: str, width: int, precision: int | None) -> str:
    """``%e``, ``%f``, ``%g`` and ``%a``."""
    sign = _sign(math.copysign(1, value) < 0, flags)
    upper = kind.isupper()
    if not math.isfinite(value):
        word = "nan" if math.isnan(value) else "inf"
        return _padded(sign, word.upper() if upper else word, flags, width, zeros=False)
    if kind in "aA":
        digits = _hexadecimal(abs(value), precision, point="#" in flags)
        digits = digits.upper() if upper else digits
        return _padded(sign + digits[:2], digits[2:], flags, width)
    exact = "" if precision is None else f".{precision}"
    alternate = "#" if "#" in flags else ""
    return _padded(sign, f"%{alternate}{exact}{kind}" % abs(value), flags, width)


def format_pointer(value: int, flags: str, width: int) -> str:
    """``%p``."""
    if value == 0:
        return _padded("", "(nil)", flags, width, zeros=False)
    return format_integer(value, "x", "l", flags + "#", width, None)


def format_text(text: str, flags: str, width: int, precision: int | None) -> str:
    """``%s`` and ``%c``."""
    return _padded("", text if precision is None else text[:precision], flags, width, zeros=False)


def _sign(negative: bool, flags: str) -> str:
    return "-" if negative else "+" if "+" in flags else " " if " " in flags else ""


def _padded(sign: str, digits: str, flags: str, width: int, *, zeros: bool = True) -> str:
    missing = width - len(sign) - len(digits)
    if "-" in flags:
        return sign + digits + " " * missing
    if "0" in flags and zeros:
        return sign + "0" * missing + digits
    return " " * missing + sign + digits


def _hexadecimal(value: float, precision: int | None, *, point: bool) -> str:
    """A finite value that is not negative, as ``0x1.8p+3``: of a subnormal the first digit is 0."""
    fraction, exponent = math.frexp(value)
    if value == 0:
        lead, rest, exponent = 0, Fraction(0), 0
    elif value < 2.0**-1022:
        lead, rest, exponent = 0, Fraction(value) * 2**1022, -1022
    else:
        lead, rest, exponent = 1, Fraction(fraction) * 2 - 1, exponent - 1
    digits = 13 if precision is None else precision
    scaled = round((lead + rest) * 16**digits)  # to even, as C rounds
    lead, below = divmod(scaled, 16**digits)
    tail = format(below, f"0{digits}x") if digits else ""
    tail = tail.rstrip("0") if precision is None else tail
    return f"0x{lead}{'.' if tail or point else ''}{tail}p{exponent:+d}"
