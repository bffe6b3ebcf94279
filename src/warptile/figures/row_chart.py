"""A chart of rows that share one axis: bars, dots, intervals and marks, each row with its name and its figure.

Everything is HTML whose places are percentages, so that text keeps its size on a narrow screen and bars take what is
left. What a row shows is also said in words, for screen readers, and is in the table below the chart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from warptile.figures.figure import Cell, DataTable, Figure, joined, percentage

Shape = Literal["bar", "dot", "tick", "diamond", "line"]
"""How values of a series look: they differ in form, not in color alone."""

COLORS = 6
"""Colors that the stylesheet has for groups of rows."""

NAME_CHARACTER_REM, WIDEST_NAMES_REM = 0.56, 24.0
"""Room for a character of a name, and the most that names are given; the stylesheet cuts longer ones."""

TICK_PLACES = 400
"""Places of a row at which a tick may be: many problems have one, closer together than a tick is wide."""

MOST_TICKS = 7
LOG_STEPS = (1.0, 1.1, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
"""Figures that may have a label on a logarithmic axis, between one power of ten and the next."""


@dataclass(frozen=True)
class Point:
    """A value, and the interval around it where there is one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """What the points of one kind mean, and how they look."""

    name: str
    shape: Shape


@dataclass(frozen=True)
class ChartRow:
    """One row.

    Attributes:
        label: its name.
        points: for each series of the chart, its values; none where there are none.
        shown: the figure at the end of the row.
        link: where the name leads, or None.
        color: which of the chart's groups it belongs to.
        words: what a screen reader says of it.
    """

    label: str
    points: tuple[tuple[Point, ...], ...]
    shown: str
    link: str | None = None
    color: int = 0
    words: str = ""


@dataclass(frozen=True)
class RowChart:
    """A chart.

    Attributes:
        name: of the figure.
        title: its caption.
        unit: what the axis counts.
        series: what is drawn, the lowest first.
        rows: from top to bottom.
        table: the same facts.
        groups: names of the rows' colors; no legend of them where there are fewer than two.
        logarithmic: the axis is; otherwise it starts at 0.
        reference: a value at which a line runs through all rows, and its name.
        notes: sentences below.
    """

    name: str
    title: str
    unit: str
    series: tuple[Series, ...]
    rows: tuple[ChartRow, ...]
    table: DataTable
    groups: tuple[str, ...] = ()
    logarithmic: bool = False
    reference: tuple[float, str] | None = None
    notes: tuple[Cell, ...] = ()

    def __post_init__(self) -> None:
        if len(self.groups) > COLORS:
            raise ValueError(f"{len(self.groups)} groups: there are {COLORS} colors")
        for row in self.rows:
            if len(row.points) != len(self.series):
                raise ValueError(f"{row.label}: points of {len(row.points)} series, the chart has {len(self.series)}")

    def figure(self) -> Figure:
        """The chart as a figure."""
        axis = _Axis.of(self)
        drawn = [
            *([(self.reference[0], "var(--wt-ink)")] if self.reference else []),
            *((tick, "var(--wt-rule)") for tick in axis.ticks),
        ]
        lines = ", ".join(
            f"linear-gradient({color}, {color}) {percentage(axis.place(value))} 0 / 1px 100% no-repeat"
            for value, color in drawn
        )
        ticks = joined(
            Markup('<i style="left:{}">{}</i>').format(percentage(axis.place(tick)), f"{tick:g}") for tick in axis.ticks
        )
        rows = joined((_row(row, self.series, axis) for row in self.rows), "\n")
        picture = Markup(
            '{}<div style="--wt-names:{}rem"><ul class="wt-chart" style="--wt-lines:{}">\n{}\n</ul>\n'
            '<div class="wt-axis" aria-hidden="true"><span class="wt-ticks">{}</span><span>{}</span></div></div>'
        ).format(self._legend(), self._names_rem(), lines, rows, ticks, self.unit)
        return Figure(self.name, self.title, picture, self.table, self.notes)

    def _names_rem(self) -> str:
        """Width of the column of names."""
        return f"{min(WIDEST_NAMES_REM, NAME_CHARACTER_REM * max((len(row.label) for row in self.rows), default=0)):g}"

    def _legend(self) -> Markup:
        drawn = [each for place, each in enumerate(self.series) if any(row.points[place] for row in self.rows)]
        shapes = [Markup('<li><i class="wt-key wt-{}"></i>{}</li>').format(each.shape, each.name) for each in drawn]
        colors = [
            Markup('<li class="wt-color-{}"><i class="wt-key wt-bar"></i>{}</li>').format(index, group)
            for index, group in enumerate(self.groups)
        ]
        reference = (
            [Markup('<li><i class="wt-key wt-reference"></i>{}</li>').format(self.reference[1])]
            if self.reference
            else []
        )
        shown = [*(shapes if len(shapes) > 1 else []), *(colors if len(self.groups) > 1 else []), *reference]
        return Markup('<ul class="wt-legend">{}</ul>\n').format(joined(shown)) if shown else Markup("")


def _row(row: ChartRow, series: Sequence[Series], axis: _Axis) -> Markup:
    named = '<a class="wt-label" href="{link}">{label}</a>' if row.link else '<span class="wt-label">{label}</span>'
    every = (
        _mark(each.shape, point, axis) for each, points in zip(series, row.points, strict=True) for point in points
    )
    marks = joined(dict.fromkeys(every))  # those at one place are one
    words = Markup('<span class="wt-hidden"> {}</span>').format(row.words) if row.words else ""
    return Markup(
        '<li class="wt-color-{}">{}<span class="wt-plot">{}</span><span class="wt-shown">{}</span>{}</li>'
    ).format(row.color, Markup(named).format(link=row.link, label=row.label), marks, row.shown, words)


def _mark(shape: Shape, point: Point, axis: _Axis) -> Markup:
    place = axis.place(point.value)
    at = percentage(round(place * TICK_PLACES) / TICK_PLACES if shape == "tick" else place)
    if shape == "bar":
        return Markup('<i class="wt-bar" style="width:{}"></i>').format(at)
    interval = Markup("")
    if point.low is not None and point.high is not None:
        low, high = axis.place(point.low), axis.place(point.high)
        interval = Markup('<i class="wt-interval" style="left:{};width:{}"></i>').format(
            percentage(low), percentage(high - low)
        )
    return interval + Markup('<i class="wt-{}" style="left:{}"></i>').format(shape, at)


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    ticks: tuple[float, ...]
    logarithmic: bool

    @staticmethod
    def of(chart: RowChart) -> _Axis:
        every = [
            value
            for row in chart.rows
            for points in row.points
            for point in points
            for value in (point.value, point.low, point.high)
            if value is not None and math.isfinite(value)
        ]
        every += [chart.reference[0]] if chart.reference else []
        if chart.logarithmic:
            low, high = (min(every, default=1.0) / 1.04, max(every, default=1.0) * 1.04)
            return _Axis(low, high, _log_ticks(low, high), True)
        high = max([value for value in every if value > 0], default=1.0)
        step = linear_step(high)
        ticks = tuple(step * count for count in range(math.floor(high / step + 1e-9) + 1))
        return _Axis(0.0, max(high, ticks[-1]) * 1.02, ticks, False)

    def place(self, value: float) -> float:
        """Where a value lies, from 0 to 1."""
        if self.logarithmic:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = value / self.high
        return min(1.0, max(0.0, share))


def linear_step(high: float) -> float:
    """The distance between ticks: 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(high / 2))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0, 20.0) if high / (step * power) < MOST_TICKS)


def _log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Round figures between two values, no two of which are closer than a label is wide."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found: list[float] = []
    nearest = math.log(high / low) / MOST_TICKS
    wanted = sorted((10.0**power * step for power in powers for step in LOG_STEPS), key=_plainness)
    for tick in wanted:
        if low <= tick <= high and all(abs(math.log(tick / other)) >= nearest for other in found):
            found.append(tick)
    return tuple(sorted(found))


def _plainness(tick: float) -> int:
    """The order in which figures get a label: powers of ten, then 2 and 5 times these, then the others."""
    first = tick / 10.0 ** math.floor(math.log10(tick) + 1e-9)
    if math.isclose(first, 1.0):
        return 0
    return 1 if math.isclose(first, 2.0) or math.isclose(first, 5.0) else 2
