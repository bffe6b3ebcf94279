"""Who did what when: a row for each warp, unit or mbarrier, bars over clocks.

A row's bars are a few SVG paths, one for each look, of horizontal strokes: a launch has thousands of bars. Kinds differ
in color, in the height of the stroke and in its dashes. What a bar is called and where it is in the source are in the
chart's list of texts, from which the script tells them of the bar under the pointer or chosen with the arrow keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from warptile.figures.figure import Cell, DataTable, Figure, joined, percentage
from warptile.figures.row_chart import linear_step
from warptile.figures.timeline_bars import MIXED, TimelineBar, TimelineRow, lanes, shortest_bar

ROW_PX, LANE_PX, HEADING_PX = 20, 6, 26
"""Height of a row; of a lane of a row with several, which is as high as its lanes; and of a group's heading."""

LAST = 0.94
"""From this share of the axis on a tick's label is left of it, and not cut."""

ZOOMS = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Look:
    """How some kinds look: the stylesheet has ``wt-t-NAME`` for it.

    Attributes:
        name: of the class.
        words: in the legend.
        kinds: that have it.
    """

    name: str
    words: str
    kinds: tuple[str, ...]


LOOKS = (
    Look("tensor", "tensor cores (mma, wgmma)", ("tensor", "wgmma")),
    Look("math", "arithmetic", ("math",)),
    Look("memory", "loads, stores, copies", ("shared", "global", "copy", "store", "transfer")),
    Look("address", "addresses and control", ("integer", "branch", "sync")),
    Look(MIXED, "several, each too short to draw", (MIXED,)),
    Look("product", "waits for wgmma", ("wgmma wait",)),
    Look("wait", "waits for data or a launch", ("wait",)),
    Look("barrier", "waits at a barrier", ("barrier",)),
    Look("phase", "phases of an mbarrier, by number", ("phase",)),
)
"""Looks in the order of the legend."""

KINDS = tuple(kind for look in LOOKS for kind in look.kinds)
_LOOK = {kind: look for look in LOOKS for kind in look.kinds}


def timeline_chart(
    name: str,
    title: str,
    rows: Sequence[TimelineRow],
    clocks: float,
    notes: tuple[Cell, ...] = (),
    axis: float | None = None,
) -> Figure:
    """Rows over one axis of clocks.

    Args:
        name: of the figure.
        title: its caption.
        rows: from top to bottom, under the headings of their groups; `joined_rows` makes them small.
        clocks: the whole time, of which the table has shares.
        notes: sentences below.
        axis: where the axis ends, if later than ``clocks``.

    Raises:
        ValueError: a bar has an unknown kind or ends after ``clocks``.
    """
    for row in rows:
        for bar in row.bars:
            if bar.kind not in _LOOK:
                raise ValueError(f"{row.label}: a bar of kind {bar.kind!r}: kinds are {', '.join(KINDS)}")
            if bar.end > clocks * (1 + 1e-9):
                raise ValueError(f"{row.label}: a bar ends at {bar.end}, after {clocks} clocks")
    end = max(clocks, axis or clocks, 1.0)
    texts = _Texts()
    names, plots = [], []
    for group, members in groupby(rows, key=lambda row: row.group):
        names.append(Markup('<b style="height:{}px">{}</b>\n').format(HEADING_PX, group))
        plots.append(Markup('<p style="height:{}px"></p>\n').format(HEADING_PX))
        for row in members:
            height = _height(row)
            names.append(Markup('<span style="height:{}px">{}</span>\n').format(height, row.label))
            plots.append(_plot(row, height, end, texts))
    picture = Markup(
        '{}<div class="wt-timeline" data-wt="timeline" data-clocks="{}" data-texts="{}">\n'
        '<p class="wt-steps" hidden>{}</p>\n'
        '<div class="wt-frame"><div class="wt-tracks">{}<i>clocks</i></div>\n'
        '<div class="wt-window" tabindex="0" role="group" aria-label="{}"><div class="wt-plots">'
        '<div class="wt-clocks" aria-hidden="true">{}</div>\n{}</div></div></div>\n'
        '<p class="wt-readout" aria-live="polite"></p></div>'
    ).format(
        _legend(rows), round(end), texts.attribute(), _zooms(), joined(names), f"{title}: bars", _ticks(end),
        joined(plots),
    )  # fmt: skip
    said = _notes(rows, clocks)
    return Figure(name, title, picture, _table(rows, clocks), (*notes, said) if said else notes,
                  "Share of the time by kind")  # fmt: skip


class _Texts:
    """What bars are called, each once."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def place(self, bar: TimelineBar) -> int:
        text = f"{bar.text or bar.kind}\t{bar.line}"
        return self._places.setdefault(text, len(self._places))

    def attribute(self) -> str:
        """All of them, a line each: the words, a tab, and the line of the source."""
        return "\n".join(self._places)


def _height(row: TimelineRow) -> int:
    return max(ROW_PX, LANE_PX * len(lanes(row.bars)) + 4)


def _plot(row: TimelineRow, height: int, clocks: float, texts: _Texts) -> Markup:
    """One row: a path for each look, each with the places of its bars' texts."""
    dealt = lanes(row.bars)
    middles = [round(height * (lane + 0.5) / len(dealt)) for lane in range(len(dealt))]
    placed: dict[str, list[tuple[TimelineBar, int]]] = {}
    for lane, middle in zip(dealt, middles, strict=True):
        for place, bar in enumerate(lane):
            look = _LOOK[bar.kind].name
            placed.setdefault(f"{look}-odd" if look == "phase" and place % 2 else look, []).append((bar, middle))
    thin = " wt-thin" if len(dealt) > 1 else ""
    paths = joined(
        Markup('<path class="wt-t-{}" d="{}" data-t="{}"/>').format(
            look, _strokes(bars), " ".join(str(texts.place(bar)) for bar, _ in bars)
        )
        for look, bars in placed.items()
    )
    labels = joined(
        Markup('<b style="left:{};width:{}">{}</b>').format(
            percentage(bar.start / clocks), percentage((bar.end - bar.start) / clocks), bar.label
        )
        for bar in row.bars
        if bar.label
    )
    return Markup(
        '<div class="wt-track{}" style="height:{}px" data-of="{}"><svg viewBox="0 0 {} {}" preserveAspectRatio="none" '
        'aria-hidden="true">{}</svg>{}</div>\n'
    ).format(thin, height, row.label, round(clocks), height, paths, labels)


def _strokes(bars: Sequence[tuple[TimelineBar, int]]) -> str:
    """Path data: for each bar a move relative to the end of the last one, and a horizontal line, in whole clocks."""
    found = []
    x = y = 0
    for bar, middle in bars:
        start = round(bar.start)
        length = max(1, round(bar.end) - start)
        found.append(f"m{start - x} {middle - y}h{length}")
        x, y = start + length, middle
    return "".join(found)


def _ticks(clocks: float) -> Markup:
    step = linear_step(clocks)
    return joined(
        Markup('<i style="left:{}"{}><span>{}</span></i>').format(
            percentage(step * count / clocks),
            Markup(' class="wt-last"' if step * count > LAST * clocks else ""),
            f"{step * count:,.0f}",
        )
        for count in range(int(clocks / step) + 1)
    )


def _zooms() -> Markup:
    return joined(
        Markup('<button type="button" data-zoom="{}" aria-pressed="{}">{}</button>').format(
            zoom, "false" if zoom > 1 else "true", "whole" if zoom == 1 else f"{zoom}×"
        )
        for zoom in ZOOMS
    )


def _legend(rows: Sequence[TimelineRow]) -> Markup:
    used = {_LOOK[bar.kind].name for row in rows for bar in row.bars}
    return Markup('<ul class="wt-legend">{}</ul>\n').format(
        joined(
            Markup(
                '<li><svg class="wt-stroke" width="24" height="16" aria-hidden="true">'
                '<path class="wt-t-{}" d="M0 8h24"/></svg>{}</li>'
            ).format(look.name, look.words)
            for look in LOOKS
            if look.name in used
        )
    )


def _notes(rows: Sequence[TimelineRow], clocks: float) -> str:
    """What the picture leaves out."""
    found = []
    before, after = sum(bar.spans for row in rows for bar in row.bars), sum(len(row.bars) for row in rows)
    if after < before:
        found.append(
            f"Spans shorter than {shortest_bar(clocks):.1f} clocks are drawn with their neighbors: {after:,} bars of "
            f"{before:,} spans. The table counts all of them."
        )
    folds = [row for row in rows if row.rows > 1]
    if folds:
        found.append(
            f"Rows that stand for several show the first one; the others are of another kind in at most "
            f"{100 * max(row.differs for row in folds):.1f}\u00a0% of their time."
        )
    return " ".join(found)


def _table(rows: Sequence[TimelineRow], clocks: float) -> DataTable:
    """Share of the time by kind; of what overlaps, such as copies in flight, more than 100 % in all."""
    totals = [row.clocks_by_kind for row in rows]
    kinds = [kind for kind in KINDS if any(kind in each for each in totals)]
    lines = tuple(
        (
            row.label, row.group, *(_share(each.get(kind, 0.0), clocks) for kind in kinds),
            _share(clocks - row.covered, clocks),
        )
        for row, each in zip(rows, totals, strict=True)
    )  # fmt: skip
    return DataTable(("row", "of", *kinds, "nothing"), lines, left=2)


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if part > 1e-9 and whole else ""
