"""Literals and constant expressions of PTX (PTX ISA, "Constants" and "Constant Expressions")."""

from __future__ import annotations

import struct
from collections.abc import Callable

from warptile.ptx.instruction import Immediate
from warptile.ptx.lexer import Cursor

_BINARY: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"||": lambda a, b: int(bool(a) or bool(b))},
    {"&&": lambda a, b: int(bool(a) and bool(b))},
    {"|": lambda a, b: a | b},
    {"^": lambda a, b: a ^ b},
    {"&": lambda a, b: a & b},
    {"==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b)},
    {
        "<": lambda a, b: int(a < b),
        ">": lambda a, b: int(a > b),
        "<=": lambda a, b: int(a <= b),
        ">=": lambda a, b: int(a >= b),
    },
    {"<<": lambda a, b: a << b, ">>": lambda a, b: a >> b},
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
    {
        "*": lambda a, b: a * b,
        "/": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
        "%": lambda a, b: abs(a) % abs(b) * (1 if a >= 0 else -1),
    },
)
_WRAP = 1 << 64
_UNARY = "-+~!("


def literal(token: str) -> Immediate | None:
    """The literal that a token is, or None if it is none.

    ``0f`` and ``0d`` literals keep their bits; ``1.5`` is a double; a leading zero means octal.
    """
    first = token[:1]
    if not "0" <= first <= "9":
        return Immediate(32) if token == "WARP_SZ" else None
    if len(token) == 1:
        return Immediate(int(token))
    kind = token[1]
    if first == "0" and kind in "fF":
        bits = int(token[2:], 16)
        return Immediate(struct.unpack("<f", struct.pack("<I", bits))[0], bits, 32)
    if first == "0" and kind in "dD":
        bits = int(token[2:], 16)
        return Immediate(struct.unpack("<d", struct.pack("<Q", bits))[0], bits, 64)
    body = token.removesuffix("U")
    if first == "0" and kind in "xX":
        return Immediate(int(body, 16))
    if first == "0" and kind in "bB":
        return Immediate(int(body, 2))
    if "." in body or "e" in body or "E" in body:
        return Immediate(float(body))
    return Immediate(int(body, 8 if first == "0" and len(body) > 1 else 10))


def starts_expression(token: str) -> bool:
    """Whether a constant expression can start with ``token``."""
    return token == "WARP_SZ" or (bool(token) and (token[0] in _UNARY or "0" <= token[0] <= "9"))


def constant(cursor: Cursor) -> Immediate:
    """Read a constant: a literal, or an expression of literals (integers are then 64-bit two's complement)."""
    token = cursor.current
    if cursor.following() in (",", ";", "]", "}", ")", ""):
        found = literal(token)
        if found is not None:
            cursor.index += 1
            return found
    if token in ("-", "+") and cursor.following(2) in (",", ";", "]", "}", ")", ""):
        found = literal(cursor.following())
        if found is not None and found.bits is None:
            cursor.index += 2
            return Immediate(-found.value) if token == "-" else found
    return Immediate(_conditional(cursor))


def integer(cursor: Cursor, what: str) -> int:
    """Read a constant that must be an integer; ``what`` names it in the error."""
    start = cursor.index
    value = constant(cursor)
    if not isinstance(value.value, int):
        raise cursor.error(f"{what} must be an integer, got {value.value}", start)
    return value.value


def _conditional(cursor: Cursor) -> int:
    value = _binary(cursor, 0)
    if cursor.accept("?"):
        yes = _conditional(cursor)
        cursor.expect(":")
        no = _conditional(cursor)
        return yes if value else no
    return value


def _binary(cursor: Cursor, level: int) -> int:
    if level == len(_BINARY):
        return _unary(cursor)
    value = _binary(cursor, level + 1)
    operators = _BINARY[level]
    while cursor.current in operators:
        place = cursor.index
        operator = operators[cursor.take()]
        right = _binary(cursor, level + 1)
        try:
            value = operator(value, right)
        except (ZeroDivisionError, ValueError, OverflowError):
            raise cursor.error(f"constant expression divides or shifts by {right}", place) from None
        if not -(_WRAP >> 1) <= value < _WRAP:
            value %= _WRAP
    return value


def _unary(cursor: Cursor) -> int:
    place = cursor.index
    token = cursor.take()
    if token == "-":
        return -_unary(cursor)
    if token == "+":
        return _unary(cursor)
    if token == "~":
        return ~_unary(cursor)
    if token == "!":
        return int(not _unary(cursor))
    if token == "(":
        if cursor.current in (".s64", ".u64"):
            signed = cursor.take() == ".s64"
            cursor.expect(")")
            value = _unary(cursor) % _WRAP
            return value - _WRAP if signed and value >= _WRAP >> 1 else value
        value = _conditional(cursor)
        cursor.expect(")")
        return value
    found = literal(token)
    if found is None:
        raise cursor.error(f"expected a constant, got {token!r}", place)
    if not isinstance(found.value, int):
        raise cursor.error(f"a constant expression takes integers only, got {token}", place)
    return found.value
