"""Tables and figures as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

TableRow = Sequence[str]


def markdown(header: TableRow, rows: Iterable[TableRow], right: int = 1) -> str:
    """A table whose first ``right`` columns are aligned left and the others right."""
    marks = ["---" if column < right else "---:" for column in range(len(header))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, marks, *rows)) + "\n"


def number(value: float | None, digits: int = 1) -> str:
    """A number with a fixed count of digits, or a dash."""
    return "–" if value is None else f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    """A share as a percentage, or a dash."""
    return "–" if value is None else f"{100 * value:.1f} %"


def count(value: float | None) -> str:
    """A count with separators, or three digits of what is none; a dash for None."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value == int(value) else f"{value:.3f}"


def power(value: float) -> str:
    """A number as people write it: ``448``, ``65504``, ``3.4e+38``."""
    return f"{value:.0f}" if 1 <= value < 1e6 else f"{value:.2g}"
