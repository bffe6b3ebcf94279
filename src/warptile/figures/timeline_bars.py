"""Rows of bars over time, and fewer of them: short bars joined, rows that do the same drawn once.

Nothing is lost on the way: what a row's bars add up to, by kind, stays what it was (`TimelineRow.clocks_by_kind`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

MIXED = "mixed"
"""The kind of a bar of which no kind has most of the time."""

DRAWN = 2000
"""Bars shorter than this part of the whole time are joined: half a pixel of a chart that is 1000 wide."""

MOST_OF_A_BAR = 0.75
"""Share of a joined bar's time from which on it has the kind of its largest part."""


@dataclass(frozen=True)
class TimelineBar:
    """A stretch of time.

    Attributes:
        start, end: clocks.
        kind: what it is; one of `warptile.figures.timeline_chart.LOOKS`.
        text: the same in a few words.
        line: of the source, or nothing.
        label: shown on the bar, such as the number of a phase. A bar with a label is never joined with others.
        parts: clocks by kind of a bar that was joined of several; empty for a single one.
        spans: how many it was joined of.
    """

    start: float
    end: float
    kind: str
    text: str = ""
    line: str = ""
    label: str = ""
    parts: tuple[tuple[str, float], ...] = ()
    spans: int = 1

    def __post_init__(self) -> None:
        if not self.end > self.start >= 0:
            raise ValueError(f"a bar from {self.start} to {self.end} clocks: it ends after it starts, at 0 or later")

    @property
    def clocks_by_kind(self) -> Mapping[str, float]:
        """Its clocks, of each kind."""
        return dict(self.parts) if self.parts else {self.kind: self.end - self.start}


@dataclass(frozen=True)
class TimelineRow:
    """What one thing does over time: a warp, a unit, an mbarrier.

    Attributes:
        label: its name.
        group: the heading that it stands under; rows of a group follow each other.
        bars: in order of their start. They may overlap, as copies in flight do.
        rows: how many rows it stands for, itself among them.
        differs: the largest `difference` of one of them from the row that is drawn.
    """

    label: str
    group: str
    bars: tuple[TimelineBar, ...]
    rows: int = 1
    differs: float = 0.0

    @property
    def clocks_by_kind(self) -> dict[str, float]:
        """Clocks of all bars, of each kind."""
        found: dict[str, float] = {}
        for bar in self.bars:
            for kind, clocks in bar.clocks_by_kind.items():
                found[kind] = found.get(kind, 0.0) + clocks
        return found

    @property
    def covered(self) -> float:
        """Clocks during which there is a bar; gaps in joined bars do not count, where the row has one lane."""
        if len(lanes(self.bars)) <= 1:
            return sum(self.clocks_by_kind.values())
        total = end = 0.0
        for bar in self.bars:
            total += max(0.0, bar.end - max(bar.start, end))
            end = max(end, bar.end)
        return total


def lanes(bars: Sequence[TimelineBar]) -> tuple[tuple[TimelineBar, ...], ...]:
    """Bars dealt out to as few lanes as there are at a time; those of a lane do not overlap by a clock or more."""
    found: list[list[TimelineBar]] = []
    for bar in sorted(bars, key=lambda each: (each.start, each.end)):
        lane = next((each for each in found if bar.start > each[-1].end - 1), None)
        if lane is None:
            found.append([bar])
        else:
            lane.append(bar)
    return tuple(map(tuple, found))


# --- short bars ------------------------------------------------------------------------------------------------------


def shortest_bar(clocks: float) -> float:
    """Clocks from which on a bar is drawn by itself, of so many in all."""
    return clocks / DRAWN


def joined_rows(rows: Sequence[TimelineRow], clocks: float) -> list[TimelineRow]:
    """Rows whose bars shorter than `shortest_bar` are joined with their neighbors.

    A bar takes in what follows it within ``shortest`` clocks until it has taken in as much as that; then another
    begins. So no edge of a bar moves by more.
    """
    return [_joined_row(row, shortest_bar(clocks)) for row in rows]


def _joined_row(row: TimelineRow, shortest: float) -> TimelineRow:
    made = [bar for lane in lanes(row.bars) for bar in _joined_lane(lane, shortest)]
    return replace(row, bars=tuple(sorted(made, key=lambda each: (each.start, each.end))))


def _joined_lane(bars: Sequence[TimelineBar], shortest: float) -> list[TimelineBar]:
    found: list[TimelineBar] = []
    run: list[TimelineBar] = []
    taken = 0.0
    for bar in bars:
        short = bar.end - bar.start < shortest and not bar.label
        if run and short and not run[-1].label and bar.start - run[-1].end < shortest:
            more = bar.end - run[-1].end
            if taken + more <= shortest:
                run.append(bar)
                taken += more
                continue
        found += [_joined(run)] if run else []
        run, taken = [bar], (bar.end - bar.start if short else 0.0)
    return found + ([_joined(run)] if run else [])


def _joined(bars: Sequence[TimelineBar]) -> TimelineBar:
    """Bars that follow each other as one."""
    if len(bars) == 1:
        return bars[0]
    parts: dict[str, float] = {}
    for bar in bars:
        for kind, clocks in bar.clocks_by_kind.items():
            parts[kind] = parts.get(kind, 0.0) + clocks
    by_size = sorted(parts.items(), key=lambda each: -each[1])
    longest = max(bars, key=lambda each: each.end - each.start)
    start, end = bars[0].start, max(bar.end for bar in bars)
    spans = sum(bar.spans for bar in bars)
    if by_size[0][1] >= MOST_OF_A_BAR * (end - start):
        kind = by_size[0][0]
        first = max((bar for bar in bars if kind in bar.clocks_by_kind), key=lambda each: each.end - each.start)
        return TimelineBar(start, end, kind, first.text, first.line, "", tuple(by_size), spans)
    text = "short spans: " + ", ".join(kind for kind, _ in by_size)
    return TimelineBar(start, end, MIXED, text, longest.line, "", tuple(by_size), spans)


# --- rows that do the same -------------------------------------------------------------------------------------------


def difference(one: TimelineRow, other: TimelineRow) -> float:
    """The share of the time that the longer of two rows has bars in which they are of different kinds, or only one of
    them has a bar.

    Rows with overlapping bars, or with labels, are compared by their bars instead: 0 where all are equal, else 1.
    """
    if _is_plain(one) and _is_plain(other):
        longer = max(one.covered, other.covered)
        return min(1.0, _time_apart(one.bars, other.bars) / longer) if longer else 0.0
    return 0.0 if one.bars == other.bars else 1.0


def _is_plain(row: TimelineRow) -> bool:
    return len(lanes(row.bars)) <= 1 and not any(bar.label for bar in row.bars)


def _time_apart(one: Sequence[TimelineBar], other: Sequence[TimelineBar]) -> float:
    edges = sorted({0.0} | {edge for bar in (*one, *other) for edge in (bar.start, bar.end)})
    apart, at_one, at_other = 0.0, 0, 0
    for low, high in pairwise(edges):
        while at_one < len(one) and one[at_one].end <= low:
            at_one += 1
        while at_other < len(other) and other[at_other].end <= low:
            at_other += 1
        if _kind_at(one, at_one, low) != _kind_at(other, at_other, low):
            apart += high - low
    return apart


def _kind_at(bars: Sequence[TimelineBar], place: int, time: float) -> str:
    return bars[place].kind if place < len(bars) and bars[place].start <= time else ""


def folded_rows(rows: Sequence[TimelineRow], names: Mapping[str, str], tolerance: float) -> list[TimelineRow]:
    """Rows with those that do nearly the same as the first of a run of them drawn as one row.

    Args:
        rows: as they are drawn.
        names: by label, what a row may be folded with: rows of one group that follow each other and have one name here.
        tolerance: the largest `difference` from the first one of the run; 0 folds only rows that are equal.
    """
    found: list[TimelineRow] = []
    run: list[TimelineRow] = []
    differs = 0.0
    for row in rows:
        first = run[0] if run else None
        fits = first is not None and first.group == row.group and names.get(first.label) == names.get(row.label)
        if first is not None and fits and names.get(row.label) is not None:
            apart = difference(first, row)
            if apart <= tolerance:
                run.append(row)
                differs = max(differs, apart)
                continue
        found += [_folded(run, differs)] if run else []
        run, differs = [row], 0.0
    return found + ([_folded(run, differs)] if run else [])


def _folded(run: Sequence[TimelineRow], differs: float) -> TimelineRow:
    """The first of some rows, with a label for all: ``warps 4-7`` of ``warp 4`` to ``warp 7``."""
    if len(run) == 1:
        return run[0]
    (name, first), (_, last) = (row.label.rsplit(" ", 1) for row in (run[0], run[-1]))
    return replace(run[0], label=f"{name}s {first}–{last}", rows=len(run), differs=differs)
