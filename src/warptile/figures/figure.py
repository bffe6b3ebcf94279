"""What a figure is: a picture, and the same facts as a table.

Markup is made with `markupsafe.Markup`, whose ``format`` escapes whatever is not markup already. Templates that escape
by default (Jinja's) leave it as it is. A page has tens of thousands of cells: end tags that HTML lets one leave out are
left out, and so is ``scope`` where it follows from the place of a ``th``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

Cell = str | Markup
"""The content of a table's cell: text, which is escaped, or markup."""


MOST_LEFT = 10
"""Columns of text that the stylesheet allows before those of figures."""


@dataclass(frozen=True)
class DataTable:
    """A table of data.

    Attributes:
        header: one heading for each column.
        rows: each with as many cells. The first of each is its heading.
        left: how many columns, from the first, are aligned to the left; the others hold figures.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    left: int = 1

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(f"a row of {len(row)} cells below {len(self.header)} headings: {row}")

    def html(self, label: str) -> Markup:
        """The table in a box that scrolls where it is wider than the page; ``label`` names it for screen readers."""
        head = Markup("<th>{}")
        heads = joined(map(head.format, self.header))
        line = Markup("<tr><th>{}{}\n")
        cell = Markup("<td>{}")
        lines = joined(line.format(row[0], joined(map(cell.format, row[1:]))) for row in self.rows)
        table = Markup('<table class="wt-table{}"><thead><tr>{}</thead><tbody>\n{}</tbody></table>')
        return scrolling(table.format(aligned(self.left, len(self.header)), heads, lines), label)


def aligned(left: int, columns: int) -> str:
    """The class of a table whose first columns are aligned to the left and the others to the right, after a space."""
    if left >= columns:
        return ""
    if left > MOST_LEFT:
        raise ValueError(f"{left} columns aligned to the left: the stylesheet has at most {MOST_LEFT} before figures")
    return f" wt-left-{left}"


@dataclass(frozen=True)
class Figure:
    """A picture that can be shown alone.

    Attributes:
        name: unique on its page; letters, digits, dots and hyphens.
        title: its caption.
        picture: the markup.
        table: the same facts.
        notes: sentences below the picture.
        table_title: what the fold of the table is called.
        open: the table belongs to the picture and is not folded.
    """

    name: str
    title: str
    picture: Markup
    table: DataTable
    notes: tuple[Cell, ...] = ()
    table_title: str = "Table"
    open: bool = False

    def __html__(self) -> Markup:
        return self.html()

    def html(self) -> Markup:
        """The figure with its table."""
        notes = joined(Markup('<p class="wt-note">{}</p>').format(note) for note in self.notes)
        return Markup(
            '<figure class="wt-figure" id="{}"><figcaption>{}</figcaption>\n{}{}\n'
            '<details class="wt-data"{}><summary>{}</summary>\n{}</details></figure>\n'
        ).format(
            self.name, self.title, self.picture, notes, Markup(" open" if self.open else ""), self.table_title,
            self.table.html(f"{self.table_title}: {self.title}"),
        )  # fmt: skip


def joined(parts: Iterable[Cell], separator: str = "") -> Markup:
    """Parts one after the other; text among them is escaped."""
    return Markup(separator).join(parts)


def scrolling(content: Markup, label: str) -> Markup:
    """Content in a box that scrolls sideways by itself, so that the page never does; the keyboard reaches it."""
    return Markup('<div class="wt-scroll" tabindex="0" role="group" aria-label="{}">{}</div>').format(label, content)


def percentage(share: float) -> str:
    """A share of the width as CSS takes it, with no more digits than a screen shows."""
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + "%"


def texts(cells: Sequence[object]) -> tuple[str, ...]:
    """Anything as text cells."""
    return tuple(str(cell) for cell in cells)
