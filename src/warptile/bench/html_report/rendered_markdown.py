"""warptile's Markdown as HTML: the tables that are made from records, and the pages of the rungs.

Nothing in a text becomes markup but Markdown itself: HTML is escaped, except for the folds (``details``) that
`RecordLookup.origins` writes, which are made anew. Links lead to views of the page, or become text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup

from warptile.figures.figure import aligned, joined, scrolling

_FOLD = re.compile(r"<details><summary>(.*?)</summary>\n\n(.*?)\n\n</details>", re.DOTALL)
_GENERATED = re.compile(r"<!-- (table|measured):[\w-]+ -->\n.*?<!-- /\1 -->", re.DOTALL)
_SHARE, _EXPONENT = re.compile(r"(\d) %"), re.compile(r"(\de)-(\d)")
_RUNG_PAGE = re.compile(r"^(?:\.\./|docs/)?(?:rungs/)?((?:simt|wmma|mma|wgmma)-[\w-]+)\.md(?:#.*)?$")
_GLOSSARY = re.compile(r"^(?:\.\./|docs/)?glossary\.md#(.+)$")


def rung_view(name: str) -> str:
    """The name of a rung's view."""
    return f"rung-{name}"


def glossary_anchor(heading: str) -> str:
    """The name of a term's place on the page."""
    slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
    return f"term-{slug}"


def view_of_link(target: str) -> str | None:
    """The place on the page that a link of a document stands for, or None where the page has none."""
    if rung := _RUNG_PAGE.match(target):
        return f"#{rung_view(rung[1])}"
    if term := _GLOSSARY.match(target):
        return f"#term-{term[1]}"
    return None


class _Renderer(RendererHTML):
    """HTML as the page wants it: tables in boxes that scroll, headings one level lower, links that stay on the page."""

    def table_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        heads = [token for token in tokens[idx : _closing(tokens, idx, "thead_close")] if token.type == "th_open"]
        left = sum("right" not in str(token.attrGet("style") or "") for token in heads)
        return Markup(
            '<div class="wt-scroll" tabindex="0" role="group" aria-label="{}"><table class="wt-table wt-wrapped{}">\n'
        ).format(env["label"], aligned(left, len(heads)))

    def table_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return "</table></div>\n"

    def th_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return "<th>" if tokens[idx + 1].content else "<td>"  # an empty heading is none

    def th_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return "</th>" if tokens[idx - 1].content else "</td>"

    def td_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return "<td>"

    def heading_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        level = int(tokens[idx].tag[1]) + env["lower"]
        name = Markup(' id="{}"').format(glossary_anchor(tokens[idx + 1].content)) if env["terms"] else ""
        return f"<h{level}{name}>"

    def heading_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f"</h{int(tokens[idx].tag[1]) + env['lower']}>\n"

    def link_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        target = str(tokens[idx].attrGet("href") or "")
        if target.startswith("https://"):
            return Markup('<a href="{}" rel="noreferrer">').format(target)
        inside = f"#{glossary_anchor(target[1:])}" if env["terms"] and target.startswith("#") else view_of_link(target)
        known = inside is not None and inside[1:] in env["known"]
        return Markup('<a href="{}">').format(inside) if known else '<span class="elsewhere">'

    def link_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        opened = next(i for i in range(idx - 1, -1, -1) if tokens[i].type == "link_open")
        return "</a>" if self.link_open(tokens, opened, options, env).startswith("<a") else "</span>"

    def image(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return ""  # the page draws its own

    def fence(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return str(scrolling(Markup("<pre><code>{}</code></pre>").format(tokens[idx].content), "code")) + "\n"

    def code_block(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return self.fence(tokens, idx, options, env)


def _closing(tokens: Sequence[Token], start: int, kind: str) -> int:
    return next(place for place in range(start, len(tokens)) if tokens[place].type == kind)


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}, renderer_cls=_Renderer).enable("table")


def rendered(
    text: str, label: str, known: frozenset[str] = frozenset(), *, lower: int = 0, terms: bool = False
) -> Markup:
    """A Markdown text as HTML.

    Args:
        text: the Markdown.
        label: names its tables for screen readers.
        known: names of the page's places that links may lead to.
        lower: how many levels below its own a heading is put.
        terms: headings are terms of the glossary, which links name.
    """
    env = {"label": label, "known": known, "lower": lower, "terms": terms}
    unbroken = _EXPONENT.sub("\\1\N{NON-BREAKING HYPHEN}\\2", _SHARE.sub("\\1\N{NO-BREAK SPACE}%", text))
    pieces = _FOLD.split(unbroken)
    parts = []
    for place in range(0, len(pieces), 3):
        parts.append(Markup(_parser().render(pieces[place], dict(env))))
        if place + 1 < len(pieces):
            folded = Markup(_parser().render(pieces[place + 2], dict(env)))
            parts.append(
                Markup('<details class="fold"><summary>{}</summary>\n{}</details>\n').format(pieces[place + 1], folded)
            )
    return joined(parts)


def without_generated(text: str) -> str:
    """A document without what is written into it from records, and without its title."""
    return re.sub(r"\A# .*\n", "", _GENERATED.sub("", text))
