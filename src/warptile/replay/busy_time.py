"""The stretches of time in which a unit works."""

from __future__ import annotations

from bisect import bisect_right


class BusyTime:
    """Stretches of time that do not overlap.

    The replay knows how much a unit has to do by some time, and lets the instructions of a basic block share it. What
    the unit does when is found here: each piece of work has its own stretch.
    """

    def __init__(self) -> None:
        self._starts: list[float] = []
        self._ends: list[float] = []

    def add(self, not_before: float, clocks: float) -> float:
        """Take the first gap of so many clocks that begins at a time or later; when the work in it begins."""
        starts, ends = self._starts, self._ends
        place = bisect_right(starts, not_before)
        begin = max(not_before, ends[place - 1]) if place else not_before
        while place < len(starts) and starts[place] < begin + clocks:
            begin = max(begin, ends[place])
            place += 1
        before = place > 0 and ends[place - 1] == begin
        after = place < len(starts) and starts[place] == begin + clocks
        if before and after:
            ends[place - 1] = ends[place]
            del starts[place], ends[place]
        elif before:
            ends[place - 1] = begin + clocks
        elif after:
            starts[place] = begin
        else:
            starts.insert(place, begin)
            ends.insert(place, begin + clocks)
        return begin
