"""Declarations of variables and their initialisers (PTX ISA, "State Spaces, Types, and Variables")."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from warptile.ptx.expression import constant, integer, starts_expression
from warptile.ptx.instruction import Immediate, Symbol, Variable
from warptile.ptx.lexer import Cursor, unquote
from warptile.ptx.scope import Scope

TYPE_BYTES = {
    "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2,
    "b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4,
    "b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16,
}  # fmt: skip
"""Bytes of every fundamental type that a variable or a register may have (``pred`` apart)."""

SPACES = ("global", "const", "shared", "local", "param")
_VECTORS = {".v2": 2, ".v4": 4, ".v8": 8}
_FLOAT_FORMATS = {"f32": "<f", "f64": "<d"}
_POINTER_BYTES = 8


@dataclass(frozen=True)
class _Reference:
    """The address of a symbol inside an initialiser; ``mask`` picks one byte of it."""

    symbol: str
    addend: int
    mask: int | None
    place: int


_Element = Immediate | _Reference
_Tree = _Element | list["_Tree"]


def declaration(cursor: Cursor, scope: Scope, *, extern: bool = False) -> list[Variable]:
    """Read ``.space [.align n] .type name[dims] [= value], ...`` and stop before its ``;``, ``,`` or ``)``.

    The names are as written: the caller makes them unique and enters them in a scope.

    Raises:
        PtxSyntaxError: an unknown type, an array without a size, an initialiser that does not fit.
    """
    space = cursor.take()[1:].partition("::")[0]
    if space not in SPACES:
        raise cursor.error(f"unknown state space .{space}", cursor.index - 1)
    alignment: int | None = None
    pointer = False
    vector = 1
    element: str | None = None
    while cursor.current.startswith("."):
        place = cursor.index
        word = cursor.take()
        if word == ".align":
            value = integer(cursor, "an alignment")
            if value <= 0 or value & (value - 1):
                raise cursor.error(f"an alignment is a power of two, got {value}", place)
            if not pointer:
                alignment = value
        elif word == ".ptr":
            pointer = True
        elif word == ".attribute":
            cursor.skip_block("(", ")")
        elif word in _VECTORS:
            vector = _VECTORS[word]
        elif word[1:] in TYPE_BYTES and element is None:
            element = word[1:]
        elif not (pointer and word[1:] in SPACES):
            raise cursor.error(f"unknown type or attribute {word} of a variable", place)
    if element is None:
        raise cursor.error("a variable needs a type, such as .b32")
    size = TYPE_BYTES[element] * vector
    found = []
    while True:
        found.append(_declarator(cursor, scope, space, element, vector, alignment or size, extern))
        if space == "param" or not cursor.accept(","):
            return found


def _declarator(
    cursor: Cursor, scope: Scope, space: str, element: str, vector: int, alignment: int, extern: bool
) -> Variable:
    place = cursor.index
    name = cursor.take_name("variable")
    dimensions: list[int | None] = []
    while cursor.accept("["):
        if cursor.accept("]"):
            dimensions.append(None)
            continue
        dimensions.append(integer(cursor, "an array size"))
        cursor.expect("]")
    tree = _tree(cursor, scope, element) if cursor.accept("=") else None
    if None in dimensions[1:]:
        raise cursor.error(f"only the first dimension of {name} may be left open", place)
    if dimensions and dimensions[0] is None:
        if isinstance(tree, list):
            inner = math.prod(d for d in dimensions[1:] if d is not None)
            dimensions[0] = -(-len(tree) // (1 if len(dimensions) > 1 else vector)) if inner else 0
        elif extern or space == "param":
            dimensions[0] = 0
        else:
            raise cursor.error(f"array {name} has neither a size nor an initialiser, and is not .extern", place)
    shape = [d for d in dimensions if d is not None]
    if any(d < 0 for d in shape):
        raise cursor.error(f"an array size cannot be negative, got {shape}", place)
    size = TYPE_BYTES[element] * vector * math.prod(shape)
    data: bytes | None = None
    relocations: tuple[tuple[int, str, int], ...] = ()
    if tree is not None:
        if vector > 1:
            shape.append(vector)
        data, relocations = _Initialiser(cursor, name, element, size).fill(tree, shape, place)
    return Variable(name, space, element, alignment, size, extern, data, relocations)


def _tree(cursor: Cursor, scope: Scope, element: str) -> _Tree:
    """An initialiser as nested lists; a string is the list of its bytes and a final zero is not added."""
    if cursor.accept("{"):
        items: list[_Tree] = []
        while not cursor.accept("}"):
            items.append(_tree(cursor, scope, element))
            if not cursor.accept(","):
                cursor.expect("}")
                break
        return items
    token = cursor.current
    if token.startswith('"'):
        if TYPE_BYTES[element] != 1:
            raise cursor.error(f"a string initialises an array of bytes, not of .{element}")
        return [Immediate(byte) for byte in unquote(cursor.take()).encode()]
    if cursor.following() == "(" and "0" <= token[:1] <= "9":
        mask = _literal_mask(cursor)
        cursor.expect("(")
        reference = _reference(cursor, scope, mask)
        cursor.expect(")")
        return reference
    if starts_expression(token):
        return constant(cursor)
    return _reference(cursor, scope, None)


def _literal_mask(cursor: Cursor) -> int:
    place = cursor.index
    text = cursor.take().removesuffix("U")
    mask = int(text, 0) if text[:2].lower() == "0x" else int(text)
    if mask not in [0xFF << shift for shift in range(0, 64, 8)]:
        raise cursor.error(f"a mask picks one byte of an address (0xFF, 0xFF00, ...), got {text}", place)
    return mask


def _reference(cursor: Cursor, scope: Scope, mask: int | None) -> _Reference:
    place = cursor.index
    generic = cursor.current == "generic" and cursor.following() == "("
    if generic:
        cursor.index += 2
    name = cursor.take_name("symbol or a constant")
    found = scope.find(name)
    if not isinstance(found, Symbol):
        raise cursor.error(f"{name!r} is not declared", place)
    addend = integer(cursor, "an offset") if cursor.current in ("+", "-") else 0
    if generic:
        cursor.expect(")")
        if cursor.current in ("+", "-"):
            addend += integer(cursor, "an offset")
    return _Reference(found.name, addend + found.offset, mask, place)


class _Initialiser:
    """The bytes of one variable while its tree is written into them."""

    def __init__(self, cursor: Cursor, name: str, element: str, size: int) -> None:
        self.cursor = cursor
        self.name = name
        self.element = element
        self.element_bytes = TYPE_BYTES[element]
        self.data = bytearray(size)
        self.relocations: list[tuple[int, str, int]] = []
        self.masked: dict[int, _Reference] = {}

    def fill(self, tree: _Tree, shape: list[int], place: int) -> tuple[bytes, tuple[tuple[int, str, int], ...]]:
        """The bytes and the relocations; elements that are not given are zero."""
        if shape and not isinstance(tree, list):
            raise self.cursor.error(f"array {self.name} needs an initialiser in braces", place)
        if not shape and isinstance(tree, list):
            if len(tree) != 1:
                raise self.cursor.error(f"{self.name} is no array: it takes one value, got {len(tree)}", place)
            tree = tree[0]
        self._fill(tree, shape, 0, place)
        self._join_masked_bytes()
        return bytes(self.data), tuple(self.relocations)

    def _fill(self, tree: _Tree, shape: list[int], offset: int, place: int) -> None:
        if not isinstance(tree, list):
            self._store(tree, offset, place)
            return
        if not shape:
            raise self.cursor.error(f"too many nested braces for {self.name}", place)
        if not any(isinstance(item, list) for item in tree):
            shape = [math.prod(shape)]
        inner = shape[1:]
        stride = self.element_bytes * math.prod(inner)
        if len(tree) > shape[0]:
            raise self.cursor.error(f"{self.name} takes {shape[0]} values here, got {len(tree)}", place)
        for index, item in enumerate(tree):
            self._fill(item, inner, offset + index * stride, place)

    def _store(self, value: _Element, offset: int, place: int) -> None:
        size = self.element_bytes
        if isinstance(value, _Reference):
            if value.mask is not None:
                if size != 1:
                    raise self.cursor.error("a masked address initialises one byte", value.place)
                self.masked[offset] = value
            elif size == _POINTER_BYTES:
                self.relocations.append((offset, value.symbol, value.addend))
            else:
                raise self.cursor.error(
                    f"an address has {_POINTER_BYTES} bytes; {self.name} has elements of {size}", value.place
                )
            return
        if value.bits is not None and value.width == 8 * size:
            bits = value.bits
        elif self.element in _FLOAT_FORMATS:
            try:
                self.data[offset : offset + size] = struct.pack(_FLOAT_FORMATS[self.element], value.value)
            except (OverflowError, struct.error):
                raise self.cursor.error(f"{value.value} does not fit .{self.element}", place) from None
            return
        elif isinstance(value.value, int):
            bits = value.value
        else:
            raise self.cursor.error(f"{self.name} holds .{self.element}, got the float {value.value}", place)
        self.data[offset : offset + size] = (bits & ((1 << (8 * size)) - 1)).to_bytes(size, "little")

    def _join_masked_bytes(self) -> None:
        """Eight bytes ``0xFF(s), 0xFF00(s), ...`` in a row are the address of ``s``."""
        offsets = sorted(self.masked)
        for start in range(0, len(offsets), _POINTER_BYTES):
            first = self.masked[offsets[start]]
            for index in range(_POINTER_BYTES):
                byte = self.masked.get(offsets[start] + index)
                if (
                    byte is None
                    or byte.mask != 0xFF << (8 * index)
                    or (byte.symbol, byte.addend) != (first.symbol, first.addend)
                ):
                    raise self.cursor.error(
                        f"the bytes of an address stand in a row, 0xFF(s) to 0xFF00000000000000(s); in {self.name} the "
                        f"one at {offsets[start]} does not begin such a row",
                        first.place,
                    )
            self.relocations.append((offsets[start], first.symbol, first.addend))
