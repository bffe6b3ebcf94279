"""Draws a roofline as lines of text. Roofs are drawn with Braille dots, or with ASCII where a terminal has no others;
each point is one character, its key."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass

from warptile.roofline.chart_data import Bounds, Mark, Picture, ticks

KEYS = string.digits[1:] + string.ascii_lowercase + string.ascii_uppercase
"""Keys of the points, in their order."""

SEVERAL = "*"
"""A place where points are that found no room beside it."""

NUDGE = 2
"""Characters by which a point may stand left or right of where it is, so that it does not cover another one."""

TICK_WIDTH = 6
"""Characters of the numbers of the vertical scale."""

LEAST_WIDTH = 24
"""Characters of the plot itself; a narrower terminal gets lines that are longer than it is."""

MOST_WIDTH = 110

TICK_DISTANCE = 8
"""Characters between the numbers of the horizontal scale."""

_DOTS_ACROSS, _DOTS_UP = 2, 4
_BRAILLE = 0x2800
_DOT_BITS = ((0x40, 0x80), (0x04, 0x20), (0x02, 0x10), (0x01, 0x08))
"""Of the dots of a Braille character, from the bottom up, left and right: Unicode 15, 21.1 "Braille Patterns"."""


@dataclass(frozen=True)
class Symbols:
    """Characters of lines."""

    across: str
    up: str
    corner: str
    guide: str
    dots: bool


UNICODE = Symbols("─", "│", "└", "┊", dots=True)
ASCII = Symbols("-", "|", "+", ":", dots=False)


def symbols_for(encoding: str | None) -> Symbols:
    """Unicode where an encoding has it, else ASCII."""
    try:
        (UNICODE.across + UNICODE.guide + chr(_BRAILLE)).encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return UNICODE


class _Grid:
    """The plot's characters, from the top, and where values lie in it."""

    def __init__(self, picture: Picture, width: int, height: int, symbols: Symbols) -> None:
        self.bounds = Bounds.of(picture)
        self.width, self.height = width, height
        self.symbols = symbols
        self.cells = [[" "] * width for _ in range(height)]

    def column(self, intensity: float) -> int:
        return min(self.width - 1, max(0, int(self.bounds.across(intensity) * self.width)))

    def row(self, tflops: float) -> int:
        return self.height - 1 - min(self.height - 1, max(0, int(self.bounds.up(tflops) * self.height)))

    def dot(self, across: float, up: float) -> None:
        """One of a line's dots, at parts of the width and the height."""
        if not (0 <= across < 1 and 0 <= up < 1):
            return
        x, y = int(across * self.width * _DOTS_ACROSS), int(up * self.height * _DOTS_UP)
        column, row = x // _DOTS_ACROSS, self.height - 1 - y // _DOTS_UP
        if not self.symbols.dots:
            return
        bit = _DOT_BITS[y % _DOTS_UP][x % _DOTS_ACROSS]
        code = ord(self.cells[row][column])
        before = code - _BRAILLE if _BRAILLE <= code < _BRAILLE + 256 else 0
        self.cells[row][column] = chr(_BRAILLE + (before | bit))


def text_chart(picture: Picture, width: int, height: int, symbols: Symbols) -> list[str]:
    """The chart's lines, none longer than ``width`` where that is at least `LEAST_WIDTH` and the scale.

    Args:
        picture: what is drawn; of names only the horizontal scale's is, so that callers list the others.
        width: characters of a line.
        height: lines of the plot itself.
        symbols: what the terminal can show.
    """
    grid = _Grid(picture, min(MOST_WIDTH, max(LEAST_WIDTH, width - TICK_WIDTH - 2)), height, symbols)
    for guide in picture.guides:
        column = grid.column(guide.intensity)
        for line in grid.cells:
            line[column] = symbols.guide
    for ceiling in picture.ceilings:
        _line(grid, picture.roofs[0].terabytes_per_s, ceiling.tflops, dashed=True)
    for roof in picture.roofs:
        _line(grid, roof.terabytes_per_s, roof.peak_tflops)
    _points(grid, picture.marks)
    return ["TFLOP/s", *_with_scale(grid), *_below(grid, picture.x_name)]


def keys(marks: Sequence[object]) -> list[str]:
    """The key of each point; points beyond the last key have that of places with several."""
    return [KEYS[index] if index < len(KEYS) else SEVERAL for index in range(len(marks))]


def _line(grid: _Grid, terabytes_per_s: float, peak: float, *, dashed: bool = False) -> None:
    """A roof: rising with the bandwidth, then flat; of a ceiling, which is dashed, the flat part alone."""
    bounds, symbols = grid.bounds, grid.symbols
    steps = grid.width * _DOTS_ACROSS
    for step in range(steps):
        part = (step + 0.5) / steps
        intensity = bounds.low_x * (bounds.high_x / bounds.low_x) ** part
        slope = intensity * terabytes_per_s < peak
        if dashed and (slope or step % 4 > 1):
            continue
        up = bounds.up(min(peak, intensity * terabytes_per_s))
        if symbols.dots:
            grid.dot(part, up)
        elif 0 <= up < 1:
            grid.cells[grid.row(min(peak, intensity * terabytes_per_s))][step // _DOTS_ACROSS] = (
                "/" if slope else "." if dashed else "-"
            )


def _points(grid: _Grid, marks: Sequence[Mark]) -> None:
    """Each point's key where it is, or up to `NUDGE` characters beside it; else the place says that there are several.

    The fastest come first: they are the ones that others are compared with.
    """
    taken: set[tuple[int, int]] = set()
    nudges = [0, *(sign * step for step in range(1, NUDGE + 1) for sign in (1, -1))]
    named = sorted(zip(marks, keys(marks), strict=True), key=lambda each: -each[0].tflops)
    for mark, key in named:
        column, row = grid.column(mark.intensity), grid.row(mark.tflops)
        free = [
            column + nudge
            for nudge in nudges
            if 0 <= column + nudge < grid.width and (row, column + nudge) not in taken
        ]
        if free:
            grid.cells[row][free[0]] = key
            taken.add((row, free[0]))
        else:
            grid.cells[row][column] = SEVERAL


def _with_scale(grid: _Grid) -> list[str]:
    """The plot's lines, with TFLOP/s on the left."""
    names: dict[int, str] = {}
    for value in ticks(grid.bounds.low_y, grid.bounds.high_y, grid.height // 2):
        names.setdefault(grid.row(value), f"{value:g}")
    return [
        f"{names.get(row, ''):>{TICK_WIDTH}} {grid.symbols.up}{''.join(cells).rstrip()}"
        for row, cells in enumerate(grid.cells)
    ]


def _below(grid: _Grid, name: str) -> list[str]:
    """The horizontal scale and what it counts."""
    numbers = [" "] * grid.width
    for value in ticks(grid.bounds.low_x, grid.bounds.high_x, grid.width // TICK_DISTANCE):
        text = f"{value:g}"
        start = max(0, min(grid.width - len(text), grid.column(value) - len(text) // 2))
        if all(cell == " " for cell in numbers[max(0, start - 1) : start + len(text) + 1]):
            numbers[start : start + len(text)] = text
    margin = " " * (TICK_WIDTH + 2)
    axis = " " * (TICK_WIDTH + 1) + grid.symbols.corner + grid.symbols.across * grid.width
    return [axis, margin + "".join(numbers).rstrip(), margin + name.center(grid.width).rstrip()]
