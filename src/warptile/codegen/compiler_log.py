"""What NVRTC's log says of the errors of a source: file, line, column and text of each."""

from __future__ import annotations

import re
from dataclasses import dataclass

from warptile.codegen.nvrtc import NAME_MAP

_ERROR = re.compile(
    r"^(?P<file>.*)\((?P<line>\d+)\): (?:catastrophic )?error[^:\n]*: (?P<text>.*)$"
    r"(?:\n  (?P<source>.*)\n(?P<before>[ \t]*)\^[ \t]*$)?",
    re.M,
)
"""A message, and below it the line, indented by two blanks, and a mark below a character of that. Tabs stay tabs."""

_NO_SCOPE = 'name followed by "::" must be a class or namespace name'
_NO_MEMBER = re.compile(r'namespace "([\w:]+)" has no member "(\w+)"')
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class CompilerMessage:
    """An error in NVRTC's log.

    Attributes:
        file: as the log names it.
        line: from 1 on.
        column: of the character, from 1 on; 0 where the log marks none.
        text: of the message.
        source: the line, without the blanks around it; nothing where the log does not show it.
        of_name: it is of the name of a kernel that was asked for, which stands in no file.
        no_scope: the name before ``::`` that is no class and no namespace, or the name of a namespace with that of a
            member that it lacks, ``at::Tensor``; nothing in other messages.
    """

    file: str
    line: int
    column: int
    text: str
    source: str
    of_name: bool
    no_scope: str = ""


def compiler_errors(log: str) -> list[CompilerMessage]:
    """All errors of a log, in order."""
    return [
        CompilerMessage(
            found["file"], int(found["line"]), _column(found["source"], found["before"]), found["text"].strip(),
            (found["source"] or "").strip(), found["file"].startswith(NAME_MAP),
            _no_scope(found),
        )
        for found in _ERROR.finditer(log)
    ]  # fmt: skip


def _column(source: str | None, before: str | None) -> int:
    """The column of a mark, for which NVRTC counts bytes."""
    if source is None or before is None:
        return 0
    return len(source.encode()[: max(len(before) - 2, 0)].decode(errors="ignore")) + 1


def _no_scope(error: re.Match[str]) -> str:
    lacking = _NO_MEMBER.search(error["text"])
    if lacking is not None:
        return f"{lacking[1]}::{lacking[2]}"
    return _name_at(error["source"], _column(error["source"], error["before"])) if _NO_SCOPE in error["text"] else ""


def _name_at(source: str | None, column: int) -> str:
    found = _NAME.match(source or "", column - 1) if column else None
    return found[0] if found else ""
