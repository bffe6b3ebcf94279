"""The stylesheet and the script that all figures share, and a page that has nothing but figures."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from markupsafe import Markup

from warptile.figures.figure import Figure, joined

_FOLDER = Path(__file__).resolve().parent

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)
"""The Content-Security-Policy of a page with figures: what is in the page runs, and nothing is loaded."""


@cache
def stylesheet() -> Markup:
    """The CSS, for a ``style`` element."""
    return Markup(_without_indentation("figures.css"))


@cache
def script() -> Markup:
    """The JavaScript, for a ``script`` element at the end of the body."""
    return Markup(_without_indentation("figures.js"))


def _without_indentation(name: str) -> str:
    """A file's lines without indentation, and without those that are comments alone. No literal runs over lines."""
    lines = (line.lstrip() for line in (_FOLDER / name).read_text("utf-8").splitlines())
    return "".join(f"{line}\n" for line in lines if not line.startswith("//"))


def document(title: str, body: Markup) -> str:
    """A whole document around ``body``, in one file that loads nothing."""
    return str(
        Markup(
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta http-equiv="Content-Security-Policy" content="{}">\n'
            '<title>{}</title>\n<link rel="icon" href="data:,">\n<style>\n{}</style>\n</head>\n'
            '<body class="wt-page">\n<main>\n{}</main>\n<script>\n{}</script>\n</body>\n</html>\n'
        ).format(POLICY, title, stylesheet(), body, script())
    )


def standalone_page(title: str, figures: Iterable[Figure], lead: str = "") -> str:
    """A whole document that shows some figures, in one file that loads nothing."""
    said = Markup("<p>{}</p>\n").format(lead) if lead else ""
    shown = joined(figure.html() for figure in figures)
    return document(title, Markup("<h1>{}</h1>\n{}{}").format(title, said, shown))
