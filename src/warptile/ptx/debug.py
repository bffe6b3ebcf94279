"""Source positions: the ``.file`` table, ``.loc`` directives and their inline chains."""

from __future__ import annotations

from dataclasses import dataclass, field

from warptile.ptx.expression import integer
from warptile.ptx.instruction import Inlined
from warptile.ptx.lexer import Cursor, unquote

_BYTES = ".b8 "
"""How a token of several bytes begins (`Cursor`)."""


@dataclass
class DebugLines:
    """The debug directives of a module.

    Attributes:
        files: number of each ``.file`` -> its name.
        strings: label in section ``.debug_str`` -> the bytes from there on.
        file: name of the file of the last ``.loc``, or None before the first of a function.
        line: its line.
        inlined: its inline chain, innermost first.
        callers: files and lines of that chain, where they are known.
    """

    files: dict[int, str]
    strings: dict[str, bytes]
    file: str | None = None
    line: int | None = None
    inlined: tuple[Inlined, ...] = ()
    callers: tuple[tuple[str, int], ...] = ()
    _chains: dict[tuple[int, int, int], tuple[Inlined, ...]] = field(default_factory=dict)

    @staticmethod
    def of(cursor: Cursor) -> DebugLines:
        """Look ahead: both tables stand at the end of a file, after the code that refers to them."""
        files: dict[int, str] = {}
        strings: dict[str, bytes] = {}
        tokens = cursor.tokens
        for place in _places(tokens, ".file"):
            number, name = tokens[place + 1], tokens[place + 2]
            if number.isdigit() and name.startswith('"'):
                files[int(number)] = unquote(name)
        for place in _places(tokens, ".section"):
            if tokens[place + 1] == ".debug_str":
                strings.update(_strings(cursor, place + 2))
        return DebugLines(files, strings)

    def enter_function(self) -> None:
        """Forget the position: each function starts without one."""
        self.file = self.line = None
        self.inlined = self.callers = ()

    def skip_file(self, cursor: Cursor) -> None:
        """Move past ``.file 1 "name"[, timestamp, size]``, read before."""
        cursor.expect(".file")
        integer(cursor, "the number of a file")
        if not cursor.take().startswith('"'):
            raise cursor.error("expected the name of a file in quotes", cursor.index - 1)
        while cursor.accept(","):
            integer(cursor, "a timestamp or a size")

    def location(self, cursor: Cursor) -> None:
        """Read ``.loc file line column [, function_name label [+ n], inlined_at file line column]``."""
        cursor.expect(".loc")
        position = _position(cursor)
        chain: tuple[Inlined, ...] = ()
        if cursor.current == "," and cursor.following() == "function_name":
            cursor.index += 2
            function = self._string(cursor)
            cursor.expect(",")
            cursor.expect("inlined_at")
            caller = _position(cursor)
            step = Inlined(function, self.files.get(caller[0], ""), caller[1])
            chain = (step, *self._chains.get(caller, ()))
        self._chains[position] = chain
        self.file = self.files.get(position[0])
        self.line = position[1] or None
        self.inlined = chain
        self.callers = tuple((step.file, step.line) for step in chain if step.file and step.line)

    def _string(self, cursor: Cursor) -> str:
        label = cursor.take_name("string in .debug_str")
        offset = integer(cursor, "an offset") if cursor.current == "+" else 0
        data = self.strings.get(label)
        return label if data is None else data[offset:].partition(b"\0")[0].decode("utf-8", errors="replace")


def _places(tokens: list[str], token: str) -> list[int]:
    places = []
    place = -1
    try:
        while True:
            place = tokens.index(token, place + 1)
            places.append(place)
    except ValueError:
        return places


def _position(cursor: Cursor) -> tuple[int, int, int]:
    values = []
    for _ in range(3):
        token = cursor.take()
        if not token.isdigit():
            raise cursor.error("expected a file number, a line and a column", cursor.index - 1)
        values.append(int(token))
    return values[0], values[1], values[2]


def _strings(cursor: Cursor, place: int) -> dict[str, bytes]:
    """Every label of a section of bytes, with the bytes from it to the end of the section."""
    tokens = cursor.tokens
    data = bytearray()
    starts: dict[str, int] = {".debug_str": 0}
    place += 1
    while tokens[place] not in ("}", ""):
        token = tokens[place]
        if token.startswith(_BYTES):
            data.extend(int(each) & 0xFF for each in token[len(_BYTES) :].split(","))
        elif token.isdigit():
            data.append(int(token) & 0xFF)
        elif token.startswith('"'):
            data.extend(unquote(token).encode() + b"\0")
        elif tokens[place + 1] == ":":
            starts[token] = len(data)
        place += 1
    whole = bytes(data)
    return {label: whole[start:] for label, start in starts.items()}
