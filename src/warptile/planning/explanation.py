"""How plans explain themselves: labelled lines of at most 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

WIDTH = 80
LABEL = 11
"""Columns of a label and the space behind it."""


def labelled(label: str, text: str) -> str:
    """A text behind its label, over as many lines as it takes; without one, a continuation of the line above."""
    return _wrapped(text, f"{label:<{LABEL}}", " " * LABEL)


def headline(text: str) -> str:
    """The first line of an explanation, which has no label."""
    return _wrapped(text, "", " " * LABEL)


def by_reason(reasons: Iterable[tuple[str, str]]) -> list[str]:
    """Names that share a reason together: ``a, b: reason``, in the order in which reasons occur first."""
    named: dict[str, list[str]] = {}
    for name, reason in reasons:
        named.setdefault(reason, []).append(name)
    return [f"{', '.join(names)}: {reason}" for reason, names in named.items()]


def listed(items: Iterable[str]) -> list[str]:
    """Items of a list, below a label."""
    return [_wrapped(each, "  ", "      ") for each in items]


def _wrapped(text: str, first: str, later: str) -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=first, subsequent_indent=later, break_long_words=False, break_on_hyphens=False
    )
