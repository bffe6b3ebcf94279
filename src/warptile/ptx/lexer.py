"""Splits PTX text into tokens with one compiled regular expression."""

from __future__ import annotations

import re
from bisect import bisect_right

from warptile.errors import PtxSyntaxError, SourceLocation

_TOKEN = re.compile(
    r"""
    (
    \.b8[ ][0-9]+(?:,[0-9]+)*(?=\s)
  | 0[fF][0-9a-fA-F]{8}(?![\w$])
  | 0[dD][0-9a-fA-F]{16}(?![\w$])
  | 0[xX][0-9a-fA-F]+U?(?![\w$])
  | 0[bB][01]+U?(?![\w$])
  | [0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?(?![\w$])
  | [0-9]+[eE][+-]?[0-9]+(?![\w$])
  | [0-9]+U?(?![\w$])
  | \.[A-Za-z_][\w$]*(?:::[\w$]+)*
  | %?[A-Za-z_$][\w$%]*(?:(?:\.|::)[\w$]+)*
  | "(?:[^"\\\n]|\\.)*"
  | <<|>>|<=|>=|==|!=|&&|\|\|
  | [-+*%~!&|^?:;,=<>@(){}\[\]]
  | /(?![/*])
    )
    [\s\0]*
  | [\s\0]+|//[^\n]*|/\*.*?\*/
    """,
    re.VERBOSE | re.DOTALL,
)

_STRING_ESCAPES = re.compile(r"\\(.)")


class Cursor:
    """The tokens of one PTX text, and a position among them.

    A line of bytes in a section of debug information, ``.b8 104,105,0``, is one token: there are more such bytes than
    tokens of instructions. The list ends with an empty token, so that looking at the current token is always legal.

    Raises:
        PtxSyntaxError: a character that begins no PTX token.
    """

    __slots__ = ("_newlines", "index", "starts", "text", "tokens")

    def __init__(self, text: str) -> None:
        self.text = text
        self.index = 0
        self._newlines: list[int] | None = None
        self.tokens: list[str] = []
        self.starts: list[int] = []
        add_token, add_start = self.tokens.append, self.starts.append
        end = 0
        for match in _TOKEN.finditer(text):
            start = match.start()
            if start != end:
                raise self._error_at(end, "no PTX token starts here")
            end = match.end()
            if match.lastindex:
                add_token(match[1])
                add_start(start)
        if end != len(text):
            raise self._error_at(end, "no PTX token starts here")
        add_token("")
        add_start(len(text))

    @property
    def current(self) -> str:
        """The token at the position; empty at the end of the text."""
        return self.tokens[self.index]

    def following(self, distance: int = 1) -> str:
        """The token ``distance`` further on; empty past the end."""
        place = self.index + distance
        return self.tokens[place] if place < len(self.tokens) else ""

    def take(self) -> str:
        """The current token; moves past it."""
        token = self.tokens[self.index]
        if not token:
            raise self.error("the text ends in the middle of a statement")
        self.index += 1
        return token

    def accept(self, token: str) -> bool:
        """Move past ``token`` if it is the current one, and say whether it was."""
        if self.tokens[self.index] == token:
            self.index += 1
            return True
        return False

    def expect(self, token: str) -> None:
        """Move past ``token``, which must be the current one."""
        if self.tokens[self.index] != token:
            raise self.error(f"expected {token!r}, got {self.current or 'the end of the text'!r}")
        self.index += 1

    def take_name(self, what: str) -> str:
        """The current token, which must be an identifier; ``what`` names it in the error."""
        token = self.tokens[self.index]
        if not token or not (token[0].isalpha() or token[0] in "_$%"):
            article = "an" if what[0] in "aeiou" else "a"
            raise self.error(f"expected the name of {article} {what}, got {token or 'the end of the text'!r}")
        self.index += 1
        return token

    def skip_block(self, opening: str = "{", closing: str = "}") -> None:
        """Move past a balanced block whose opening bracket is the current token."""
        start = self.index
        self.expect(opening)
        depth = 1
        while depth:
            token = self.tokens[self.index]
            if token == opening:
                depth += 1
            elif token == closing:
                depth -= 1
            elif not token:
                raise self.error(f"{opening!r} is never closed", start)
            self.index += 1

    def line(self, index: int | None = None) -> int:
        """Line number, from 1, of the token at ``index`` (of the current one)."""
        return self._line_of(self.starts[self.index if index is None else index])

    def error(self, message: str, index: int | None = None) -> PtxSyntaxError:
        """The error for the token at ``index`` (the current one), with its line and the text of that line."""
        return self._error_at(self.starts[self.index if index is None else index], message)

    def _line_of(self, offset: int) -> int:
        if self._newlines is None:
            self._newlines = [match.start() for match in re.finditer("\n", self.text)]
        return bisect_right(self._newlines, offset - 1) + 1

    def _error_at(self, offset: int, message: str) -> PtxSyntaxError:
        offset = min(offset, len(self.text.rstrip("\0\n\t ")))
        begin = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", offset)
        written = self.text[begin : end if end >= 0 else len(self.text)].strip()
        quoted = f"in {written[:200]!r}" if written else "at the end of the text"
        return PtxSyntaxError(f"{message}, {quoted}", location=SourceLocation(self._line_of(offset)))


def unquote(token: str) -> str:
    """The text of a string token, escapes resolved."""
    return _STRING_ESCAPES.sub(r"\1", token[1:-1])
