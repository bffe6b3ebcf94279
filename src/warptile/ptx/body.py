"""Parses the body of a function: scopes, declarations, labels and instructions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from warptile.errors import SourceLocation
from warptile.ptx.debug import DebugLines
from warptile.ptx.expression import literal
from warptile.ptx.instruction import Address, Instruction, Label, Operand, Register, Symbol, Variable, Vector
from warptile.ptx.lexer import Cursor
from warptile.ptx.operand import arguments, operand, register
from warptile.ptx.scope import Entity, Names, Scope
from warptile.ptx.variable import TYPE_BYTES, declaration

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_SPACE_DIRECTIVES = (".param", ".local", ".shared", ".global", ".const")
_ACCESSES = frozenset({"ld", "st", "atom", "red"})
_SPACES = frozenset({"global", "const", "shared", "shared::cta", "shared::cluster", "local", "param", "param::entry",
                     "param::func"})  # fmt: skip
_ELEMENTS = {".v2": "xy", ".v4": "xyzw", ".v8": "01234567"}
"""What the registers of a vector are called."""
_VECTORS = tuple(width[1:] for width in _ELEMENTS)
_LABELLED = (".callprototype", ".branchtargets", ".calltargets")


class FunctionBody:
    """One function body while it is read; afterwards its parts, in one flat namespace.

    Attributes:
        registers: every register by its unique name.
        variables: those declared in the body.
        instructions: in order.
        labels: unique name -> index into `instructions`.
        branch_targets: unique name of a list -> its labels (or functions).
    """

    def __init__(
        self, cursor: Cursor, scope: Scope, names: Names, module_names: Names, spaces: Mapping[str, str],
        debug: DebugLines,
    ) -> None:  # fmt: skip
        """``spaces`` are those of the module's variables."""
        self.cursor = cursor
        self.scope = scope
        self.names = names
        self.module_names = module_names
        self.debug = debug
        self.registers: dict[str, Register] = {}
        self.variables: list[Variable] = []
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.branch_targets: dict[str, tuple[str, ...]] = {}
        self._opcodes: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._spaces = dict(spaces)

    def parameter(self, parameter: Variable | Register) -> Variable | Register:
        """Enter a parameter of the function, under a unique name."""
        if isinstance(parameter, Register):
            return self._register(parameter.name, parameter.type)
        return self._variable(parameter)

    def read(self) -> None:
        """Read from the opening to the closing brace."""
        cursor = self.cursor
        self.debug.enter_function()
        opening = cursor.index
        cursor.expect("{")
        labels = _labels_by_scope(cursor, opening)
        outermost = self.scope
        self._declare_labels(labels.get(opening, ()))
        tokens = cursor.tokens
        while True:
            token = tokens[cursor.index]
            first = token[:1]
            if first == ".":
                self._directive(token)
            elif token == "{":
                self.scope = Scope(self.scope)
                self._declare_labels(labels.get(cursor.index, ()))
                cursor.index += 1
            elif token == "}":
                cursor.index += 1
                if self.scope is outermost:
                    return
                assert self.scope.parent is not None
                self.scope = self.scope.parent
            elif token == ";":
                cursor.index += 1
            elif tokens[cursor.index + 1 : cursor.index + 2] == [":"]:
                self._label()
            elif token:
                self._instruction()
            else:
                raise cursor.error("the body of the function is never closed", opening)

    def _enter(self, name: str, entity: Entity) -> None:
        if name in self.scope.entities:
            raise self.cursor.error(f"{name!r} is declared twice in this scope", self.cursor.index - 1)
        self.scope.entities[name] = entity

    def _register(self, name: str, kind: str) -> Register:
        found = Register(self.names.unique(name), kind)
        self._enter(name, found)
        self.registers[found.name] = found
        return found

    def _variable(self, variable: Variable) -> Variable:
        unique = self.module_names.unique(variable.name)
        while self.names.own(unique):
            unique = self.module_names.unique(variable.name)
        self._enter(variable.name, Symbol(unique))
        self._spaces[unique] = variable.space
        return variable if unique == variable.name else replace(variable, name=unique)

    def _declare_labels(self, names: tuple[str, ...] | list[str]) -> None:
        for name in names:
            self._enter(name, Label(self.names.unique(name)))

    def _directive(self, word: str) -> None:
        cursor = self.cursor
        if word == ".loc":
            self.debug.location(cursor)
        elif word == ".reg":
            self._registers()
        elif word in _SPACE_DIRECTIVES or word == ".extern":
            extern = cursor.accept(".extern")
            self.variables += [self._variable(v) for v in declaration(cursor, self.scope, extern=extern)]
            cursor.expect(";")
        elif word == ".pragma":
            while not cursor.accept(";"):
                cursor.take()
        elif word == ".file":
            self.debug.skip_file(cursor)
        elif word == ".section":
            cursor.index += 2
            cursor.skip_block()
        else:
            raise cursor.error(f"unknown directive {word} in a function body")

    def _registers(self) -> None:
        """``.reg .b32 %r<10>, a, b;``, or ``.reg .v4 .f32 v;``, whose elements are registers of their own."""
        cursor = self.cursor
        cursor.expect(".reg")
        elements = _ELEMENTS.get(cursor.current, "")
        if elements:
            cursor.index += 1
        place = cursor.index
        kind = cursor.take()[1:]
        if kind not in TYPE_BYTES and kind != "pred":
            raise cursor.error(f"unknown register type .{kind}", place)
        while True:
            name = cursor.take_name("register")
            if cursor.accept("<"):
                count = _register_count(cursor)
                cursor.expect(">")
                for number in range(count):
                    self._declare_register(f"{name}{number}", kind, elements)
            else:
                self._declare_register(name, kind, elements)
            if not cursor.accept(","):
                cursor.expect(";")
                return

    def _declare_register(self, name: str, kind: str, elements: str) -> None:
        if not elements:
            self._register(name, kind)
            return
        parts = [Register(self.names.unique(f"{name}.{element}"), kind) for element in elements]
        self.registers |= {part.name: part for part in parts}
        self._enter(name, Vector(tuple(parts)))

    def _label(self) -> None:
        cursor = self.cursor
        found = self.scope.entities[cursor.current]
        assert isinstance(found, Label)
        cursor.index += 2
        directive = cursor.current
        if directive not in _LABELLED:
            self.labels[found.name] = len(self.instructions)
            return
        cursor.index += 1
        if directive == ".callprototype":
            while not cursor.accept(";"):
                cursor.take()
            return
        targets = []
        while True:
            place = cursor.index
            name = cursor.take_name("branch target")
            target = self.scope.find(name)
            if not isinstance(target, Label if directive == ".branchtargets" else Symbol):
                raise cursor.error(f"branch target {name!r} is not declared", place)
            targets.append(target.name)
            if not cursor.accept(","):
                cursor.expect(";")
                break
        self.branch_targets[found.name] = tuple(targets)

    def _instruction(self) -> None:
        cursor = self.cursor
        tokens = cursor.tokens
        start = cursor.index
        predicate: Register | None = None
        negated = False
        if cursor.accept("@"):
            negated = cursor.accept("!")
            predicate = register(cursor, self.scope)
            if predicate.type != "pred":
                raise cursor.error(f"the guard {predicate.name} is a .{predicate.type}, not a .pred", start)
        opcode, modifiers = self._opcode()
        operands: list[Operand] = []
        scope = self.scope
        if not cursor.accept(";"):
            while True:
                if opcode == "call" and tokens[cursor.index] == "(":
                    operands.append(arguments(cursor, scope))
                else:
                    operands.append(operand(cursor, scope))
                if tokens[cursor.index] == ",":
                    cursor.index += 1
                else:
                    cursor.expect(";")
                    break
        if opcode in _ACCESSES and _SPACES.isdisjoint(modifiers):
            modifiers = self._space(operands) + modifiers
        begin, end = cursor.starts[start], cursor.starts[cursor.index - 1]
        written = cursor.text[begin:end]
        if "//" in written or "/*" in written:
            written = _COMMENT.sub(" ", written)
        debug = self.debug
        location = SourceLocation(cursor.line(start), debug.file, debug.line, debug.callers)
        read = Instruction(
            opcode,
            modifiers,
            tuple(operands),
            location,
            " ".join(written.split()),
            predicate,
            negated,
            debug.inlined,
        )
        self.instructions += self._moves(read) if opcode == "mov" and modifiers[0] in _VECTORS else (read,)

    def _space(self, operands: list[Operand]) -> tuple[str, ...]:
        """The state space that an access to a variable by its name means where it says none."""
        bases = [each.base for each in operands if isinstance(each, Address)]
        return tuple(
            self._spaces[base.name] for base in bases if isinstance(base, Symbol) and base.name in self._spaces
        )

    def _moves(self, instruction: Instruction) -> list[Instruction]:
        """``mov.v4.b32`` of a vector to another one as moves of its elements, all of which are read before any is
        written."""
        width, kind = instruction.modifiers[0], instruction.modifiers[-1]
        sides = [each.elements for each in instruction.operands if isinstance(each, Vector)]
        if len(sides) != 2 or len(sides[0]) != len(sides[1]) or len(sides[0]) != int(width[1:]):
            raise self.cursor.error(f"mov.{width} takes two vectors of {width[1:]} elements", self.cursor.index - 1)
        pairs = [(target, source) for target, source in zip(*sides, strict=True) if target is not None]
        if not {target for target, _ in pairs}.isdisjoint(source for _, source in pairs):
            held = [Register(self.names.unique("moved"), kind) for _ in pairs]
            self.registers |= {each.name: each for each in held}
            pairs = [
                *zip(held, [source for _, source in pairs], strict=True),
                *zip([target for target, _ in pairs], held, strict=True),
            ]
        return [replace(instruction, modifiers=(kind,), operands=pair) for pair in pairs]

    def _opcode(self) -> tuple[str, tuple[str, ...]]:
        cursor = self.cursor
        word = cursor.take_name("instruction")
        while cursor.current.startswith("."):
            word += cursor.take()
        found = self._opcodes.get(word)
        if found is None:
            opcode, *modifiers = word.split(".")
            found = self._opcodes[word] = opcode, tuple(modifiers)
        return found


def _register_count(cursor: Cursor) -> int:
    """The count in ``%r<count>``: a literal, because ``>`` would be taken for an operator."""
    place = cursor.index
    token = cursor.take()
    if not token.isdigit():
        raise cursor.error(f"expected the number of registers, got {token!r}", place)
    return int(token)


def _labels_by_scope(cursor: Cursor, opening: int) -> dict[int, list[str]]:
    """Labels of every scope of the body that opens at token ``opening``: place of its brace -> names.

    A label may be used before it stands, so they are all known before the first instruction is read.
    """
    tokens = cursor.tokens
    found: dict[int, list[str]] = {}
    braces = []
    for place in range(opening, len(tokens)):
        token = tokens[place]
        if token == "{":
            braces.append(place)
        elif token == "}":
            braces.pop()
            if not braces:
                return found
        elif token == ":" and not literal(tokens[place - 1]) and tokens[place - 1] not in (")", "]"):
            found.setdefault(braces[-1], []).append(tokens[place - 1])
    return found
