"""Parse a PTX file: module directives, variables, and functions."""

from __future__ import annotations

from warptile.errors import UnsupportedError
from warptile.ptx.body import FunctionBody
from warptile.ptx.debug import DebugLines
from warptile.ptx.expression import integer, starts_expression
from warptile.ptx.instruction import PtxFunction, PtxModule, Register, Symbol, Variable
from warptile.ptx.lexer import Cursor
from warptile.ptx.scope import Names, Scope
from warptile.ptx.variable import TYPE_BYTES, declaration

_LINKING = (".visible", ".weak", ".extern", ".common")
_VARIABLE_SPACES = (".global", ".const", ".shared", ".local")
_DIRECTIVES = {
    ".maxntid", ".reqntid", ".minnctapersm", ".maxnctapersm", ".maxnreg", ".reqnctapercluster", ".maxclusterrank",
    ".explicitcluster", ".blocksareclusters", ".noreturn", ".abi_preserve", ".abi_preserve_control",
}  # fmt: skip
"""Directives between the head of a function and its body."""


def parse(text: str | bytes) -> PtxModule:
    """Read a whole PTX file, as NVRTC, nvcc or Triton writes it.

    Names that scopes reuse (``{ .param .b32 param0; ... }``) are made unique: ``param0``, ``param0$1`` and so on.

    Raises:
        PtxSyntaxError: text that is not PTX 8 or 9, with its line.
        UnsupportedError: a module with 32-bit addresses.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="replace")
    return _ModuleParser(Cursor(text)).module()


class _ModuleParser:
    """The state while one module is read."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.scope = Scope()
        self.names = Names()
        self.debug = DebugLines.of(cursor)
        self.variables: dict[str, Variable] = {}
        self.functions: dict[str, PtxFunction] = {}
        self.version: tuple[int, int] | None = None
        self.target: str | None = None
        self.address_size = 32

    def module(self) -> PtxModule:
        """Read to the end of the text."""
        cursor = self.cursor
        while cursor.current:
            self._statement()
        if self.version is None or self.target is None:
            missing = ".version" if self.version is None else ".target"
            raise cursor.error(f"a PTX file starts with .version and .target; there is no {missing}")
        self._refuse_32_bit()
        return PtxModule(
            self.version,
            self.target,
            self.address_size,
            self.debug.files,
            tuple(self.variables.values()),
            self.functions,
        )

    def _statement(self) -> None:
        cursor = self.cursor
        place = cursor.index
        word = cursor.current
        if word == ".version":
            self._version()
        elif word == ".target":
            cursor.index += 1
            self.target = cursor.take_name("target such as sm_90")
            while cursor.accept(","):
                cursor.take_name("target option")
        elif word == ".address_size":
            cursor.index += 1
            self.address_size = integer(cursor, "the address size")
            self._refuse_32_bit()
        elif word == ".file":
            self.debug.skip_file(cursor)
        elif word == ".section":
            cursor.index += 2
            cursor.skip_block()
        elif word == ".pragma":
            while not cursor.accept(";"):
                cursor.take()
        elif word == ".alias":
            self._alias()
        elif word == ";":
            cursor.index += 1
        else:
            linking = set()
            while cursor.current in _LINKING:
                linking.add(cursor.take())
            word = cursor.current
            if word in (".entry", ".func"):
                self._function()
            elif word in _VARIABLE_SPACES:
                self._variables(extern=".extern" in linking)
            else:
                raise cursor.error(f"unknown statement {word or 'at the end of the text'!r} at module level", place)

    def _version(self) -> None:
        cursor = self.cursor
        cursor.index += 1
        major, dot, minor = cursor.take().partition(".")
        if not (major.isdigit() and dot and minor.isdigit()):
            raise cursor.error("expected a version such as 9.0", cursor.index - 1)
        self.version = int(major), int(minor)

    def _refuse_32_bit(self) -> None:
        if self.address_size != 64:
            raise UnsupportedError(
                f"PTX module: it has {self.address_size}-bit addresses (.address_size, 32 when absent); "
                "warptile takes .address_size 64"
            )

    def _alias(self) -> None:
        cursor = self.cursor
        cursor.index += 1
        alias = cursor.take_name("function")
        cursor.expect(",")
        place = cursor.index
        target = cursor.take_name("function")
        cursor.expect(";")
        if target not in self.functions:
            raise cursor.error(f"function {target!r} is not declared", place)
        self.functions[alias] = self.functions[target]
        self.scope.entities[alias] = Symbol(alias)

    def _variables(self, *, extern: bool) -> None:
        cursor = self.cursor
        place = cursor.index
        for variable in declaration(cursor, self.scope, extern=extern):
            earlier = self.variables.get(variable.name)
            if earlier is not None and not (earlier.extern or variable.extern):
                raise cursor.error(f"variable {variable.name!r} is declared twice", place)
            if earlier is None:
                self.names.unique(variable.name)
                self.scope.entities[variable.name] = Symbol(variable.name)
            if earlier is None or earlier.extern:
                self.variables[variable.name] = variable
        cursor.expect(";")

    def _function(self) -> None:
        cursor = self.cursor
        entry = cursor.take() == ".entry"
        while cursor.current == ".attribute":
            cursor.index += 1
            cursor.skip_block("(", ")")
        scope = Scope(self.scope)
        returns = self._parameters(scope) if cursor.current == "(" else []
        place = cursor.index
        name = cursor.take_name("function")
        self.scope.entities.setdefault(name, Symbol(name))
        parameters = self._parameters(scope) if cursor.current == "(" else []
        directives = self._directives()
        if cursor.accept(";"):
            self.functions.setdefault(
                name, PtxFunction(name, entry, tuple(parameters), tuple(returns), directives=directives)
            )
            return
        earlier = self.functions.get(name)
        if earlier is not None and earlier.body is not None:
            raise cursor.error(f"function {name!r} is defined twice", place)
        names = Names(self.names)
        spaces = {each.name: each.space for each in self.variables.values()}
        body = FunctionBody(cursor, scope, names, self.names, spaces, self.debug)
        returns = [body.parameter(parameter) for parameter in returns]
        parameters = [body.parameter(parameter) for parameter in parameters]
        body.read()
        # Variables in global and constant memory are the module's wherever they are declared.
        self.variables |= {each.name: each for each in body.variables if each.space in ("global", "const")}
        self.functions[name] = PtxFunction(
            name,
            entry,
            tuple(parameters),
            tuple(returns),
            body.registers,
            tuple(each for each in body.variables if each.space not in ("global", "const")),
            tuple(body.instructions),
            body.labels,
            body.branch_targets,
            directives,
        )

    def _parameters(self, scope: Scope) -> list[Variable | Register]:
        cursor = self.cursor
        cursor.expect("(")
        found: list[Variable | Register] = []
        while not cursor.accept(")"):
            if cursor.accept(".reg"):
                kind = cursor.take()[1:]
                if kind not in TYPE_BYTES and kind != "pred":
                    raise cursor.error(f"unknown register type .{kind}", cursor.index - 1)
                found.append(Register(cursor.take_name("register"), kind))
            else:
                found.extend(declaration(cursor, scope))
            if not cursor.accept(","):
                cursor.expect(")")
                break
        return found

    def _directives(self) -> dict[str, tuple[int, ...]]:
        cursor = self.cursor
        found: dict[str, tuple[int, ...]] = {}
        while cursor.current.startswith("."):
            word = cursor.take()
            if word == ".pragma":
                while not cursor.accept(";"):
                    cursor.take()
                continue
            if word not in _DIRECTIVES:
                raise cursor.error(f"unknown directive {word} of a function", cursor.index - 1)
            values = []
            if starts_expression(cursor.current):
                values.append(integer(cursor, word))
                while cursor.accept(","):
                    values.append(integer(cursor, word))
            found[word[1:]] = tuple(values)
        return found
