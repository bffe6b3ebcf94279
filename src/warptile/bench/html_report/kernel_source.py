"""CUDA sources as numbered lines with simple highlighting, and which files a rung's kernel consists of."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from markupsafe import Markup
from pygments.lexers.c_like import CudaLexer
from pygments.token import Token

from warptile.codegen.headers import KERNELS
from warptile.codegen.inputs import includes_of
from warptile.figures.figure import joined
from warptile.rungs import RUNGS

_KINDS = (
    (Token.Comment.Preproc, "preprocessor"), (Token.Comment.PreprocFile, "preprocessor"), (Token.Comment, "comment"),
    (Token.Keyword, "keyword"),
)  # fmt: skip
"""What is colored, by the first that fits."""

_ELEMENTS = {
    "": Markup("{}"), "comment": Markup("<i>{}</i>"), "keyword": Markup("<b>{}</b>"),
    "preprocessor": Markup('<b class="p">{}</b>'),
}  # fmt: skip
"""Short elements: there are thousands of them."""


@cache
def reached(file: str) -> tuple[str, ...]:
    """A kernel file, and warptile's own headers that it includes, directly or through others."""
    found = {file: None}
    waiting = [file]
    while waiting:
        content = (KERNELS / waiting.pop()).read_bytes()
        for quoted, name in includes_of(content):
            if quoted and name not in found and (KERNELS / name).is_file():
                found[name] = None
                waiting.append(name)
    return tuple(found)


def own_files(rung: str) -> tuple[str, ...]:
    """The files that are a rung's alone: its kernel, and of the last one its roles."""
    file = RUNGS[rung].file
    folder = file.removesuffix(".cuh") + "/"
    return (file, *sorted(name for name in reached(file) if name.startswith(folder)))


def shared_files(rungs: tuple[str, ...]) -> tuple[str, ...]:
    """Every other file that some rungs reach."""
    own = {name for rung in RUNGS for name in own_files(rung)}
    every = {name for rung in rungs for name in reached(RUNGS[rung].file)}
    return tuple(sorted(every - own))


def line_name(file: str, line: int) -> str:
    """The name of a line's place on the page."""
    return f"{source_name(file)}-l{line}"


def source_name(file: str) -> str:
    """The name of a file's place on the page."""
    return "source-" + file.removesuffix(".cuh").replace("/", "-").replace("_", "-")


def listing(file: str, heat: Mapping[int, tuple[float, str]] | None = None) -> Markup:
    """A file as a numbered list of lines.

    Args:
        file: its path below ``kernels/``.
        heat: of some lines: their share of what is counted, from 0 to 1, and words on it. Those have a place to link
            to.
    """
    marks = heat or {}
    lines = []
    for number, line in enumerate(_highlighted(file), 1):
        if number in marks:
            share, words = marks[number]
            lines.append(
                Markup('<li id="{}" class="hot" style="--share:{}" title="{}">{}').format(
                    line_name(file, number), f"{share:.3f}", words, line
                )
            )
        else:
            lines.append(Markup("<li>") + line)
    # HTML lets text have a > as it is, and an & before a space or another one; the page shows tabs as INDENT spaces.
    # There are thousands of each.
    text = str(Markup('<ol class="code">{}</ol>').format(joined(lines, "")))
    text = text.replace("&gt;", ">").replace("&amp; ", "& ").replace("&amp;&amp;", "&&")
    return Markup(_INDENTED.sub(lambda found: found[1] + "\t" * (len(found[2]) // INDENT), text))


@cache
def _highlighted(file: str) -> tuple[Markup, ...]:
    """The lines of a file, each with its own spans."""
    lines: list[list[tuple[str, str]]] = [[]]
    for kind, text in CudaLexer(ensurenl=False).get_tokens((KERNELS / file).read_text("utf-8").rstrip("\n")):
        name = next((name for group, name in _KINDS if kind in group), "")
        for place, part in enumerate(text.split("\n")):
            if place:
                lines.append([])
            if not part:
                continue
            if lines[-1] and (lines[-1][-1][0] == name or not part.strip()):
                before = lines[-1].pop()
                lines[-1].append((before[0], before[1] + part))
            else:
                lines[-1].append((name, part))
    return tuple(joined(_span(name, text) for name, text in line) for line in lines)


INDENT = 4
"""Spaces of a tab, as page.css has it."""

_INDENTED = re.compile(rf"(<li[^>]*>)((?: {{{INDENT}}})+)")
_INCLUDE = re.compile(r'^(#include\s+)"([^"]+)"(.*)$', re.DOTALL)


def _span(name: str, text: str) -> Markup:
    """A piece of a line; what it includes of ours is a link to that file."""
    included = _INCLUDE.match(text) if name == "preprocessor" else None
    if included and (KERNELS / included[2]).is_file():
        link = Markup('<a href="#{}">{}</a>').format(source_name(included[2]), included[2])
        return _ELEMENTS[name].format(Markup('{}"{}"{}').format(included[1], link, included[3]))
    return _ELEMENTS[name].format(text)
