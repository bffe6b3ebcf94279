"""A view: one part of the report, reached by its name after the ``#`` of the address."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

_FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True)
class PageView:
    """One part of the page.

    Attributes:
        name: of its place: letters, digits and hyphens.
        title: its heading.
        body: what is below the heading.
        group: the heading of the navigation that it is listed under; "" for the main list.
        label: its name in the navigation, where that is shorter.
    """

    name: str
    title: str
    body: Markup
    group: str = ""
    label: str = ""

    @property
    def listed(self) -> str:
        """Its name in the navigation."""
        return self.label or self.title


@cache
def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip


def filled(template: str, **values: Any) -> Markup:
    """A template of this folder with values, which are escaped unless they are markup."""
    return Markup(_templates().get_template(template).render(**values))


def asset(name: str) -> Markup:
    """A stylesheet or script of this folder."""
    return Markup((_FOLDER / name).read_text("utf-8"))
