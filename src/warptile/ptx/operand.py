"""Operands of instructions (PTX ISA, "Instruction Operands")."""

from __future__ import annotations

from warptile.ptx.expression import constant, integer, starts_expression
from warptile.ptx.instruction import (
    Address,
    CallArguments,
    Label,
    Negated,
    Operand,
    Paired,
    Register,
    Selected,
    Sink,
    SpecialRegister,
    Symbol,
    TensorAddress,
    Vector,
)
from warptile.ptx.lexer import Cursor
from warptile.ptx.scope import SPECIAL_REGISTERS, Scope

_SPECIAL = {f"%{name}": SpecialRegister(name) for name in SPECIAL_REGISTERS}
_SINK = Sink()
_PARTS = frozenset({"b0", "b1", "b2", "b3", "h0", "h1"})


def operand(cursor: Cursor, scope: Scope) -> Operand:
    """Read one operand.

    Raises:
        PtxSyntaxError: an undeclared name, or a form that PTX does not have.
    """
    token = cursor.tokens[cursor.index]
    if token == "{":
        return vector(cursor, scope)
    if token == "[":
        return _address(cursor, scope)
    if token == "_":
        cursor.index += 1
        return Paired(None, _predicate(cursor, scope)) if cursor.accept("|") else _SINK
    if token == "!" and not starts_expression(cursor.following()):
        cursor.index += 1
        return Negated(register(cursor, scope))
    if starts_expression(token):
        return constant(cursor)
    selected = _selected(token, scope)
    if selected is not None:
        cursor.index += 1
        return selected
    found = _named(cursor, scope)
    following = cursor.tokens[cursor.index]
    if following == "|" and isinstance(found, Register):
        cursor.index += 1
        return Paired(found, _predicate(cursor, scope))
    if following in ("+", "-") and isinstance(found, Symbol):
        return Symbol(found.name, found.offset + integer(cursor, "an offset"))
    return found


def vector(cursor: Cursor, scope: Scope) -> Vector:
    """Read ``{a, b, _, 3}``."""
    cursor.expect("{")
    elements: list[Operand | None] = []
    while not cursor.accept("}"):
        if cursor.accept("_"):
            elements.append(None)
        else:
            elements.append(operand(cursor, scope))
        if not cursor.accept(","):
            cursor.expect("}")
            break
    return Vector(tuple(elements))


def arguments(cursor: Cursor, scope: Scope) -> CallArguments:
    """Read ``(a, b)`` of a call."""
    cursor.expect("(")
    elements: list[Operand] = []
    while not cursor.accept(")"):
        elements.append(operand(cursor, scope))
        if not cursor.accept(","):
            cursor.expect(")")
            break
    return CallArguments(tuple(elements))


def register(cursor: Cursor, scope: Scope) -> Register:
    """Read the name of a declared register."""
    place = cursor.index
    name = cursor.take_name("register")
    found = scope.find(name)
    if not isinstance(found, Register):
        raise cursor.error(f"register {name!r} is not declared", place)
    return found


def _predicate(cursor: Cursor, scope: Scope) -> Register | None:
    return None if cursor.accept("_") else register(cursor, scope)


def _named(cursor: Cursor, scope: Scope) -> Register | SpecialRegister | Symbol | Label | Vector:
    place = cursor.index
    name = cursor.tokens[place]
    found = scope.find(name) or _SPECIAL.get(name)
    if found is None:
        cursor.take_name("register, variable or label")
        raise cursor.error(f"{name!r} is not declared", place)
    cursor.index += 1
    return found


def _selected(token: str, scope: Scope) -> Selected | None:
    """A part of a register that is declared, unless the whole token is a name."""
    name, dot, part = token.rpartition(".")
    if not dot or part not in _PARTS:
        return None
    found = None if scope.find(token) else scope.find(name)
    return Selected(found, part) if isinstance(found, Register) else None


def _address(cursor: Cursor, scope: Scope) -> Address | TensorAddress:
    cursor.expect("[")
    place = cursor.index
    base: Register | Symbol | None = None
    offset = 0
    if starts_expression(cursor.current):
        offset = integer(cursor, "an address")
    else:
        found = _named(cursor, scope)
        if not isinstance(found, Register | Symbol):
            raise cursor.error("an address starts with a register, a variable or an integer", place)
        base = found
        if cursor.current in ("+", "-"):
            if not starts_expression(cursor.following()):
                raise cursor.error("an address is [register + integer] or [variable + integer]", place)
            offset = integer(cursor, "the offset of an address")
    if cursor.accept(","):
        coordinates = vector(cursor, scope)
        cursor.expect("]")
        return TensorAddress(Address(base, offset), coordinates)
    cursor.expect("]")
    return Address(base, offset)
