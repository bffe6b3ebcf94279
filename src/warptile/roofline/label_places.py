"""Places for the labels of points, so that no label covers another, a point or an area that is taken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import cos, hypot, pi, sin

STEP = 7.0
"""Pixels between the places that are tried."""

FARTHEST = 320.0
"""Pixels from a point within which a place is looked for."""

SIDES = 16
"""Directions in which places are tried, the nearest first."""


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels, y downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        """Whether two rectangles have any area in common."""
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def within(self, other: Box) -> bool:
        """Whether it lies in another one."""
        return (
            other.left <= self.left
            and self.right <= other.right
            and other.top <= self.top
            and self.bottom <= other.bottom
        )

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """The point of it that is nearest to another point."""
        return min(max(x, self.left), self.right), min(max(y, self.top), self.bottom)


@dataclass(frozen=True)
class Wanted:
    """A label of some size and the point that it names."""

    x: float
    y: float
    width: float
    height: float


def places(wanted: Sequence[Wanted], area: Box, taken: Iterable[Box] = (), point_radius: float = 5.0) -> list[Box]:
    """A box for every label, in the order given.

    Each label takes the nearest free place around its point, those with the fewest free places first; where there is
    none within `FARTHEST` pixels it takes the nearest place of all, and covers something.
    """
    points = [
        Box(each.x - point_radius, each.y - point_radius, each.x + point_radius, each.y + point_radius)
        for each in wanted
    ]
    blocked = [*taken, *points]
    found: dict[int, Box] = {}
    crowded = sorted(range(len(wanted)), key=lambda index: (-_neighbors(wanted, index), index))
    for index in crowded:
        boxes = [*blocked, *found.values()]
        tried = _around(wanted[index], point_radius)
        free = (box for box in tried if box.within(area) and not any(box.overlaps(other) for other in boxes))
        found[index] = next(free, None) or next(_around(wanted[index], point_radius))
    return [found[index] for index in range(len(wanted))]


def spread(heights: Sequence[float], distance: float) -> list[float]:
    """Positions on one line, in the order given, moved apart until neighbors have at least a distance."""
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    moved = list(heights)
    for _ in range(200):
        still = True
        for above, below in pairwise(order):
            lack = distance - (moved[below] - moved[above])
            if lack > 1e-6:
                moved[above] -= lack / 2
                moved[below] += lack / 2
                still = False
        if still:
            break
    return moved


def _neighbors(wanted: Sequence[Wanted], index: int) -> int:
    """Points so near that their labels compete."""
    mine = wanted[index]
    return sum(hypot(each.x - mine.x, each.y - mine.y) < mine.width for each in wanted)


def _around(label: Wanted, point_radius: float) -> Iterator[Box]:
    """Boxes around a point, the nearest first: right, left, below and above of it, then on growing circles."""
    gap = point_radius + 2
    width, height = label.width, label.height
    corners = (
        (label.x + gap, label.y - height / 2),
        (label.x - gap - width, label.y - height / 2),
        (label.x - width / 2, label.y + gap),
        (label.x - width / 2, label.y - gap - height),
    )
    for left, top in corners:
        yield Box(left, top, left + width, top + height)
    distance = gap + STEP
    while distance <= FARTHEST:
        for side in range(SIDES):
            angle = 2 * pi * side / SIDES
            middle_x = label.x + cos(angle) * (distance + width / 2)
            middle_y = label.y + sin(angle) * (distance + height / 2)
            yield Box(middle_x - width / 2, middle_y - height / 2, middle_x + width / 2, middle_y + height / 2)
        distance += STEP
