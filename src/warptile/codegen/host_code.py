"""Declarations of a CUDA C++ file, so that those of host code can be left out: NVRTC compiles device code alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<skipped>//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:[^\n\\]|\\.)*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<word>\w+)|(?P<mark>[{};=()]|\[\[|::)""",
    re.S | re.M | re.X,
)
_CONDITION = re.compile(r"[ \t]*#[ \t]*(if|el|endif)")
"""Directives that begin, go on with and end a condition: ``#ifdef`` and ``#else`` as well."""

_ENDS_MACRO = r"[ \t]*(?://[^\n]*)?(?:\Z|\n(?=\s*\Z|[ \t]*(?:\n|#|//|%s\b)))"
"""What follows the use of a macro of some name that is a declaration of its own, without a semicolon."""

_FOR_HOST_ALONE = re.compile(r"(?<!__device__ )\b__host__\b(?!\s+__device__\b)")
_DEVICE = frozenset(("__global__", "__device__", "__constant__", "__shared__", "__managed__"))


@dataclass(frozen=True)
class Declaration:
    """A declaration at namespace scope: a function with its body, a class, a variable, an alias.

    Attributes:
        start, end: in the text, without blanks before it.
        first_line, last_line: from 1 on.
        of_device: it says that it, or a part of it, is for the device.
    """

    start: int
    end: int
    first_line: int
    last_line: int
    of_device: bool


def declarations(text: str) -> Iterator[Declaration]:
    """The declarations of a file, those in namespaces each for itself."""
    start = body = -1
    words: list[str] = []
    depth = parentheses = 0
    conditions: list[tuple[int, int]] = []
    for token in _TOKEN.finditer(text):
        skipped = token["skipped"]
        if skipped is not None and not skipped.startswith(('"', "'")):
            # Only one of the branches counts: braces that each of them opens are opened once.
            directive = _CONDITION.match(skipped)
            if directive is None:
                continue
            if directive[1] == "if":
                conditions.append((depth, parentheses))
            elif conditions and directive[1] == "endif":
                conditions.pop()
            elif conditions:
                depth, parentheses = conditions[-1]
            continue
        mark = token["mark"]
        if start < 0:
            if mark == "}":  # of a namespace
                continue
            start, body, words = token.start(), -1, []
        if mark == "{":
            if depth == parentheses == 0:
                if _opens_scope(words):
                    start = -1
                    continue
                body = len(words) if body < 0 else body
            depth += 1
        elif mark == "}":
            depth -= 1
        elif mark in ("(", ")"):
            parentheses += 1 if mark == "(" else -1
        words.append(token[0])
        if depth or parentheses:
            continue
        if (
            mark == ";"
            or (mark == "}" and _is_function(words[:body]))
            or (mark == ")" and _is_macro(words, text, token))
        ):
            lines = text.count("\n", 0, start) + 1, text.count("\n", 0, token.end()) + 1
            yield Declaration(start, token.end(), *lines, not _DEVICE.isdisjoint(words))
            start = -1


def _is_macro(words: list[str], text: str, closing: re.Match[str]) -> bool:
    """Whether words that end with a parenthesis are the use of a macro that is a whole declaration."""
    name = words[0]
    return name.isupper() and words[1] == "(" and re.compile(_ENDS_MACRO % name).match(text, closing.end()) is not None


def _opens_scope(words: list[str]) -> bool:
    """Whether a brace after these words opens a namespace or a linkage specification."""
    return "namespace" in words or (len(words) == 2 and words[0] == "extern")


def _is_function(head: list[str]) -> bool:
    """Whether braces after these words are the body of a function, and no initializer or class."""
    return "(" in head and head[-1] != "="


def host_declarations(text: str, lines: Iterable[int]) -> list[Declaration]:
    """The declarations in which some lines stand, of those that do not say that they are for the device."""
    wanted = set(lines)
    return [
        each
        for each in declarations(text)
        if not each.of_device and not wanted.isdisjoint(range(each.first_line, each.last_line + 1))
    ]


def lines_with_scopes(text: str, scopes: Mapping[str, str]) -> dict[int, str]:
    """The lines of a text, comments aside, in which a name of ``scopes`` stands, each with its value: before ``::``, or
    behind it if the name is one of a namespace, such as ``at::Tensor``."""
    if not scopes:
        return {}
    names = (rf"{name}\b" if "::" in name else rf"{name}(?=\s*::)" for name in scopes)
    pattern = re.compile(rf"\b({'|'.join(names)})")
    numbered = enumerate((line.partition("//")[0] for line in text.split("\n")), 1)
    found = ((number, pattern.search(line)) for number, line in numbered)
    return {number: scopes[match[1]] for number, match in found if match is not None}


def without(text: str, left_out: Iterable[Declaration]) -> str:
    """A text with empty lines in the place of some declarations, so that the others keep their lines. Preprocessor
    directives stay."""
    for each in sorted(left_out, key=lambda one: one.start, reverse=True):
        lines = text[each.start : each.end].split("\n")
        kept = "\n".join(line if line.lstrip().startswith("#") else "" for line in lines)
        text = text[: each.start] + kept + text[each.end :]
    return text


def without_host_marks(text: str, lines: Iterable[int]) -> str:
    """A text in which functions of some lines say no more that they are for the host alone.

    Classes that the device uses have such members. NVRTC refuses the word; without it, they are device functions.
    """
    left = text.split("\n")
    for line in lines:
        left[line - 1] = _FOR_HOST_ALONE.sub(lambda found: " " * len(found[0]), left[line - 1])
    return "\n".join(left)
