"""What a roofline chart shows, and its logarithmic scales: drawn as SVG (`warptile.roofline.roofline_svg`) and as text
(`warptile.roofline.text_chart`). Nothing here knows of rungs, GPUs or records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

ACROSS_MARGIN, UP_MARGIN = 1.6, 1.45
"""Factors by which the scales reach beyond the lowest and the highest value."""

LEAST_RANGE = 10.0
"""Of a scale, the least factor between its ends."""


@dataclass(frozen=True)
class Roof:
    """A bandwidth and the peak that it ends at.

    Attributes:
        name: beside its end.
        terabytes_per_s: the bandwidth: at I FLOP per byte it allows I times as many TFLOP/s.
        peak_tflops: where it turns flat.
        slope_name: along the slope; empty for none.
        kind: of its line: a color of its own, or None for that of the text.
    """

    name: str
    terabytes_per_s: float
    peak_tflops: float
    slope_name: str = ""
    kind: str | None = None


@dataclass(frozen=True)
class Ceiling:
    """A lower peak, of other units or of one instruction: flat, from the first roof's slope on."""

    name: str
    tflops: float


@dataclass(frozen=True)
class Guide:
    """A vertical line at some FLOP per byte."""

    name: str
    intensity: float


@dataclass(frozen=True)
class Mark:
    """A point.

    Attributes:
        name: in the list below the plot; its number in the list stands beside the point.
        intensity: FLOP per byte.
        tflops: its speed.
        kind: what it has in common with others: their color and shape.
        detail: shown when it is pointed at.
        hollow: its intensity is predicted.
    """

    name: str
    intensity: float
    tflops: float
    kind: str
    detail: str
    hollow: bool = False


@dataclass(frozen=True)
class Picture:
    """What is drawn.

    Attributes:
        title: above the plot.
        description: what it shows, for those who do not see it.
        x_name: of the horizontal scale.
        roofs: at least one.
        ceilings: of the first roof.
        guides: vertical lines.
        marks: the points.
    """

    title: str
    description: str
    x_name: str
    roofs: Sequence[Roof]
    ceilings: Sequence[Ceiling] = ()
    guides: Sequence[Guide] = ()
    marks: Sequence[Mark] = ()


@dataclass(frozen=True)
class Bounds:
    """Logarithmic scales that hold all of a picture: FLOP per byte across, TFLOP/s upwards."""

    low_x: float
    high_x: float
    low_y: float
    high_y: float

    @staticmethod
    def of(picture: Picture) -> Bounds:
        """The scales of a picture."""
        ridges = [roof.peak_tflops / roof.terabytes_per_s for roof in picture.roofs]
        across = [mark.intensity for mark in picture.marks] + [guide.intensity for guide in picture.guides]
        speeds = [mark.tflops for mark in picture.marks] + [ceiling.tflops for ceiling in picture.ceilings]
        low_x, high_x = _around([*across, *ridges], ACROSS_MARGIN)
        lowest = [] if speeds else [low_x * roof.terabytes_per_s for roof in picture.roofs]
        up = [*speeds, *lowest, *(roof.peak_tflops for roof in picture.roofs)]
        return Bounds(low_x, high_x, *_around(up, UP_MARGIN))

    def across(self, intensity: float) -> float:
        """How far from the left, 0 to 1."""
        return math.log(intensity / self.low_x) / math.log(self.high_x / self.low_x)

    def up(self, tflops: float) -> float:
        """How far from the bottom, 0 to 1."""
        return math.log(tflops / self.low_y) / math.log(self.high_y / self.low_y)


def _around(values: Sequence[float], margin: float) -> tuple[float, float]:
    """The ends of a scale of at least `LEAST_RANGE`."""
    low, high = min(values) / margin, max(values) * margin
    more = math.sqrt(max(1.0, LEAST_RANGE / (high / low)))
    return low / more, high * more


def ticks(low: float, high: float, most: int = 12) -> list[float]:
    """Round numbers between two on a logarithmic scale: powers of 10, with 2 and 5 between them where there is room."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1,)):
        found = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
        if len(found) <= most:
            return found
    return found
