"""Tables that fit the terminal: numbers are never cut, and where columns do not fit the least important ones go."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

FILE_WIDTH = 160
"""Columns of a table that is not written to a terminal."""

GAP = 2
"""Blanks between columns, one of them the table's own line."""


def console_of(file_width: int = FILE_WIDTH) -> Console:
    """Standard output, as wide as the terminal, or as ``COLUMNS`` says; else ``file_width``."""
    said = os.environ.get("COLUMNS", "").isdecimal() and int(os.environ["COLUMNS"]) > 0
    return Console(width=shutil.get_terminal_size().columns if sys.stdout.isatty() or said else file_width)


@dataclass(frozen=True, eq=False)
class Column:
    """One column.

    Attributes:
        heading: its lines are set below each other.
        cells: one a row, Rich markup.
        rank: 0 is always shown; of the others that of the highest rank goes first.
        left: aligned to the left, as names are; numbers are aligned to the right.
        least: of prose, the fewest characters that it is folded to; 0 for figures, which stay whole.
        cut: prose is cut at its end instead.
    """

    heading: str
    cells: Sequence[str]
    rank: int = 0
    left: bool = False
    least: int = 0
    cut: bool = False

    @cached_property
    def whole(self) -> int:
        """Characters of its longest line."""
        return max(Text.from_markup(line).cell_len for each in (self.heading, *self.cells) for line in _lines(each))

    @property
    def width(self) -> int:
        """Characters that it needs."""
        return min(self.whole, self.least) if self.least else self.whole

    @property
    def name(self) -> str:
        """The heading in one line."""
        return " ".join(_lines(self.heading)).replace("/ ", "/").strip()


def _lines(text: str) -> list[str]:
    return text.split("\n")


def _total(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + GAP * (len(columns) - 1)


def fitting(columns: Sequence[Column], width: int) -> tuple[list[Column], list[Column]]:
    """The columns that fit ``width`` characters, and those that were left out."""
    shown = list(columns)
    while _total(shown) > width:
        last = max(shown, key=lambda column: column.rank)
        if last.rank == 0:
            break
        shown.remove(last)
    return shown, [column for column in columns if column not in shown]


def _widths(shown: Sequence[Column], width: int) -> list[int]:
    """Characters of each column: what it needs, and of those that are left what makes prose whole, or evenly less."""
    found = [column.width for column in shown]
    for _ in range(width - _total(shown)):
        growing = [place for place, column in enumerate(shown) if found[place] < column.whole]
        if not growing:
            break
        found[min(growing, key=lambda place: found[place] / shown[place].whole)] += 1
    return found


def show(console: Console, title: str, columns: Sequence[Column], *, sections: Iterable[int] = ()) -> list[Column]:
    """Print the columns that fit and return those that do not. A terminal that is too narrow even for the names and
    figures that are always shown gets lines that are longer than it is.

    Args:
        console: where to.
        title: above the table.
        columns: of equally many cells.
        sections: rows that have a line below them.
    """
    shown, left_out = fitting(columns, console.width)
    widths = _widths(shown, console.width)
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, GAP - 1, 0, 0), show_edge=False)
    for column, width in zip(shown, widths, strict=True):
        made.add_column(
            column.heading, justify="left" if column.left else "right", no_wrap=column.cut or not column.least,
            width=width, overflow="ellipsis" if column.cut else "fold",
        )  # fmt: skip
    below = set(sections)
    for index, cells in enumerate(zip(*(column.cells for column in shown), strict=True)):
        made.add_row(*cells, end_section=index in below)
    if title:
        console.print(Text(title, style="bold"))
    width = console.width
    console.width = max(width, _total(shown))
    console.print(made, crop=False)
    console.width = width
    return left_out


def said_of(left_out: Sequence[Column], where: str) -> list[str]:
    """The line that says which columns are missing; ``where`` they are found."""
    named = [column.name for column in left_out if column.name]
    return [f"Not shown in this width: {', '.join(named)}; {where}."] if named else []
