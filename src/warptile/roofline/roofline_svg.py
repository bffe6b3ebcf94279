"""Draws a roofline as SVG: data in, text out. Nothing here knows of rungs, GPUs or records.

Colours are those of Okabe and Ito, which the colour-blind can tell apart; kinds also differ in shape, and predicted
points are hollow. The text takes the colour scheme of the reader.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from warptile.roofline.label_places import Box, Wanted, places, spread

WIDTH, HEIGHT = 920, 620
LEFT, RIGHT, TOP, BOTTOM = 64, 178, 56, 58
"""Pixels around the plot: the scale of y, the names of the roofs, the title, the scale of x."""

LETTER, LINE = 6.3, 13.0
"""Pixels of a letter and of a line of text at `FONT`: an upper estimate for common sans-serif fonts."""

FONT = 11
POINT = 4.5
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999")
"""One for each kind, in the order in which kinds first occur."""

_STYLE = """
    text { fill: #1f2328 } .soft { fill: #57606a } .halo { paint-order: stroke; stroke: #ffffff; stroke-width: 3px }
    .page { fill: #ffffff } .axis { stroke: #57606a } .grid { stroke: #d8dee4; stroke-width: .6 }
    .roof { fill: none; stroke: #1f2328; stroke-width: 2 }
    .ceiling { fill: none; stroke: #57606a; stroke-width: 1.2; stroke-dasharray: 6 4 }
    .guide { stroke: #57606a; stroke-width: 1; stroke-dasharray: 2 3 } .leader { stroke: #8c959f; stroke-width: .7 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 } .soft { fill: #9198a1 } .halo { stroke: #0d1117 } .page { fill: #0d1117 }
      .axis, .ceiling, .guide { stroke: #9198a1 } .grid { stroke: #30363d } .roof { stroke: #e6edf3 }
    }
"""


@dataclass(frozen=True)
class Roof:
    """A bandwidth and the peak that it ends at.

    Attributes:
        name: beside its end.
        terabytes_per_s: the bandwidth: at I FLOP per byte it allows I times as many TFLOP/s.
        peak_tflops: where it turns flat.
        slope_name: along the slope; empty for none.
        kind: of its line: a colour of its own, or None for that of the text.
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
        name: beside it.
        intensity: FLOP per byte.
        tflops: its speed.
        kind: what it has in common with others: their colour and shape.
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


class Scales:
    """Where values lie in the plot, on logarithmic scales that hold all of a picture."""

    def __init__(self, picture: Picture) -> None:
        ridges = [roof.peak_tflops / roof.terabytes_per_s for roof in picture.roofs]
        across = [mark.intensity for mark in picture.marks] + [guide.intensity for guide in picture.guides]
        speeds = [mark.tflops for mark in picture.marks] + [ceiling.tflops for ceiling in picture.ceilings]
        self.low_x, self.high_x = _bounds([*across, *ridges], 1.6)
        peaks = [roof.peak_tflops for roof in picture.roofs]
        lowest = [self.low_x * roof.terabytes_per_s for roof in picture.roofs]
        self.low_y, self.high_y = _bounds([*speeds, *peaks, *([] if speeds else lowest)], 1.45)
        self.area = Box(LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM)

    def x(self, intensity: float) -> float:
        """Pixels from the left."""
        part = math.log(intensity / self.low_x) / math.log(self.high_x / self.low_x)
        return self.area.left + (self.area.right - self.area.left) * part

    def y(self, tflops: float) -> float:
        """Pixels from the top."""
        part = math.log(tflops / self.low_y) / math.log(self.high_y / self.low_y)
        return self.area.bottom - (self.area.bottom - self.area.top) * part


def _bounds(values: Sequence[float], margin: float) -> tuple[float, float]:
    return min(values) / margin, max(values) * margin


def draw(picture: Picture) -> str:
    """The picture as SVG text."""
    scales = Scales(picture)
    kinds = list(dict.fromkeys(each.kind for each in (*picture.roofs, *picture.marks) if each.kind is not None))
    colours = {kind: COLOURS[index % len(COLOURS)] for index, kind in enumerate(kinds)}
    slopes = [_slope(roof, scales) for roof in picture.roofs]
    taken = [box for _, boxes in slopes for box in boxes] + _guide_boxes(picture.guides, scales)
    taken += _legend_boxes(picture, kinds, scales)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui, sans-serif" '
        f'font-size="{FONT}" role="img" aria-labelledby="title desc">',
        f'<title id="title">{escape(picture.title)}</title>',
        f'<desc id="desc">{escape(picture.description)}</desc>',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text x="{LEFT}" y="26" font-size="15" font-weight="600">{escape(picture.title)}</text>',
        *_axes(picture, scales),
        *_guides(picture.guides, scales),
        *_ceilings(picture, scales),
        *(_roof(roof, scales, colours) for roof in picture.roofs),
        *(text for text, _ in slopes if text),
        *_names(picture, scales, colours),
        *_marks(picture.marks, scales, colours, kinds, taken),
        *_legend(picture, kinds, colours, scales),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def label_boxes(picture: Picture) -> list[Box]:
    """Where the names of the points are written, in their order."""
    scales = Scales(picture)
    kinds = list(dict.fromkeys(each.kind for each in (*picture.roofs, *picture.marks) if each.kind is not None))
    taken = [box for roof in picture.roofs for box in _slope(roof, scales)[1]]
    taken += _guide_boxes(picture.guides, scales) + _legend_boxes(picture, kinds, scales)
    return _mark_boxes(picture.marks, scales, taken)


# -- scales ------------------------------------------------------------------------------------------------------------


def ticks(low: float, high: float, most: int = 12) -> list[float]:
    """Round numbers between two on a logarithmic scale: powers of 10, with 2 and 5 between them where there is room."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1,)):
        found = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
        if len(found) <= most:
            return found
    return found


def _axes(picture: Picture, scales: Scales) -> list[str]:
    area = scales.area
    parts = []
    for value in ticks(scales.low_x, scales.high_x):
        x = scales.x(value)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{area.top}" x2="{x:.1f}" y2="{area.bottom}"/>')
        parts.append(f'<text x="{x:.1f}" y="{area.bottom + 17}" text-anchor="middle">{value:g}</text>')
    for value in ticks(scales.low_y, scales.high_y):
        y = scales.y(value)
        parts.append(f'<line class="grid" x1="{area.left}" y1="{y:.1f}" x2="{area.right}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{area.left - 7}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    middle = (area.left + area.right) / 2
    parts.append(f'<path class="axis" fill="none" d="M{area.left} {area.top}V{area.bottom}H{area.right}"/>')
    parts.append(f'<text x="{middle:.1f}" y="{HEIGHT - 16}" text-anchor="middle">{escape(picture.x_name)}</text>')
    parts.append(f'<text x="{area.left - 7}" y="{area.top - 8}" text-anchor="end">TFLOP/s</text>')
    return parts


# -- roofs -------------------------------------------------------------------------------------------------------------


def _roof(roof: Roof, scales: Scales, colours: dict[str, str]) -> str:
    start = max(scales.low_x, scales.low_y / roof.terabytes_per_s)
    ridge = roof.peak_tflops / roof.terabytes_per_s
    path = (
        f"M{scales.x(start):.1f} {scales.y(start * roof.terabytes_per_s):.1f}"
        f"L{scales.x(ridge):.1f} {scales.y(roof.peak_tflops):.1f}H{scales.area.right:.1f}"
    )
    colour = f' style="stroke: {colours[roof.kind]}"' if roof.kind is not None else ""
    return f'<path class="roof"{colour} d="{path}"/>'


def _slope(roof: Roof, scales: Scales) -> tuple[str, list[Box]]:
    """The name along a slope, above it, and what it covers."""
    if not roof.slope_name:
        return "", []
    start = max(scales.low_x, scales.low_y / roof.terabytes_per_s)
    ridge = roof.peak_tflops / roof.terabytes_per_s
    x1, y1 = scales.x(start), scales.y(start * roof.terabytes_per_s)
    x2, y2 = scales.x(ridge), scales.y(roof.peak_tflops)
    length, angle = math.hypot(x2 - x1, y2 - y1), math.atan2(y2 - y1, x2 - x1)
    half = len(roof.slope_name) * LETTER / 2
    along = min(max(0.3 * length, half + 10), length - half)
    x, y = x1 + math.cos(angle) * along, y1 + math.sin(angle) * along
    x, y = x + 8 * math.sin(angle), y - 8 * math.cos(angle)
    turned = f"rotate({math.degrees(angle):.1f} {x:.1f} {y:.1f})"
    text = (
        f'<text class="halo" x="{x:.1f}" y="{y:.1f}" text-anchor="middle" font-weight="600" transform="{turned}">'
        f"{escape(roof.slope_name)}</text>"
    )
    steps = [half * (part / 6 - 1) for part in range(13)]
    covered = [(x + math.cos(angle) * step, y + math.sin(angle) * step) for step in steps]
    return text, [Box(at_x - 9, at_y - 13, at_x + 9, at_y + 5) for at_x, at_y in covered]


def _ceilings(picture: Picture, scales: Scales) -> list[str]:
    parts = []
    for ceiling in picture.ceilings:
        start = scales.x(ceiling.tflops / picture.roofs[0].terabytes_per_s)
        y = scales.y(ceiling.tflops)
        parts.append(f'<path class="ceiling" d="M{start:.1f} {y:.1f}H{scales.area.right:.1f}"/>')
    return parts


def _names(picture: Picture, scales: Scales, colours: dict[str, str]) -> list[str]:
    """Names of roofs and ceilings beside their ends, moved apart."""
    named = [(roof.name, scales.y(roof.peak_tflops), colours.get(roof.kind or "")) for roof in picture.roofs]
    named += [(ceiling.name, scales.y(ceiling.tflops), None) for ceiling in picture.ceilings]
    heights = spread([y for _, y, _ in named], LINE + 1)
    parts = []
    for (name, y, colour), height in zip(named, heights, strict=True):
        right = scales.area.right
        shade = f' style="stroke: {colour}"' if colour else ""
        parts.append(f'<path class="leader" fill="none"{shade} d="M{right} {y:.1f}L{right + 10} {height:.1f}"/>')
        parts.append(f'<text x="{right + 13}" y="{height + 4:.1f}">{escape(name)}</text>')
    return parts


def _guide_boxes(guides: Sequence[Guide], scales: Scales) -> list[Box]:
    """What the names of guides cover."""
    return [
        Box(x - 2, y - LINE + 2, x + len(guide.name) * LETTER + 8, y + 4)
        for guide, x, y in _guide_places(guides, scales)
    ]


def _guide_places(guides: Sequence[Guide], scales: Scales) -> list[tuple[Guide, float, float]]:
    """Names of guides stand right of them at the bottom, each higher than the one to its right."""
    ordered = sorted(guides, key=lambda guide: -guide.intensity)
    return [(guide, scales.x(guide.intensity), scales.area.bottom - 8 - 15 * at) for at, guide in enumerate(ordered)]


def _guides(guides: Sequence[Guide], scales: Scales) -> list[str]:
    parts = []
    for guide, x, y in _guide_places(guides, scales):
        area = scales.area
        parts.append(f'<line class="guide" x1="{x:.1f}" y1="{area.top}" x2="{x:.1f}" y2="{area.bottom}"/>')
        parts.append(f'<text class="halo" x="{x + 4:.1f}" y="{y:.1f}">{escape(guide.name)}</text>')
    return parts


# -- points ------------------------------------------------------------------------------------------------------------


def _mark_boxes(marks: Sequence[Mark], scales: Scales, taken: Sequence[Box]) -> list[Box]:
    wanted = [
        Wanted(scales.x(mark.intensity), scales.y(mark.tflops), len(mark.name) * LETTER, LINE) for mark in marks
    ]
    return places(wanted, scales.area, taken, POINT)


def _marks(
    marks: Sequence[Mark], scales: Scales, colours: dict[str, str], kinds: Sequence[str], taken: Sequence[Box]
) -> list[str]:
    """Leader lines first, then points, then names, so that no line covers a name."""
    leaders, points, names = [], [], []
    for mark, box in zip(marks, _mark_boxes(marks, scales, taken), strict=True):
        x, y = scales.x(mark.intensity), scales.y(mark.tflops)
        near_x, near_y = box.nearest(x, y)
        if math.hypot(near_x - x, near_y - y) > POINT + 4:
            leaders.append(f'<path class="leader" d="M{x:.1f} {y:.1f}L{near_x:.1f} {near_y:.1f}"/>')
        points.append(
            f"<g><title>{escape(mark.detail)}</title>"
            f"{shape(kinds.index(mark.kind), x, y, colours[mark.kind], hollow=mark.hollow)}</g>"
        )
        names.append(f'<text class="halo" x="{box.left:.1f}" y="{box.bottom - 3:.1f}">{escape(mark.name)}</text>')
    return [*leaders, *points, *names]


def shape(kind: int, x: float, y: float, colour: str, *, hollow: bool = False) -> str:
    """The shape of a kind: circle, square, triangle, diamond, in turns; hollow ones are filled with the page."""
    look = f'class="page" stroke="{colour}" stroke-width="1.8"' if hollow else f'fill="{colour}" stroke="{colour}"'
    r = POINT
    if kind % 4 == 0:
        return f'<circle {look} cx="{x:.1f}" cy="{y:.1f}" r="{r}"/>'
    corners = {
        1: ((-r, -r), (r, -r), (r, r), (-r, r)),
        2: ((0, -r * 1.2), (r * 1.2, r), (-r * 1.2, r)),
        3: ((0, -r * 1.35), (r * 1.35, 0), (0, r * 1.35), (-r * 1.35, 0)),
    }[kind % 4]
    path = "L".join(f"{x + dx:.1f} {y + dy:.1f}" for dx, dy in corners)
    return f'<path {look} d="M{path}Z"/>'


def _legend_rows(picture: Picture, kinds: Sequence[str]) -> list[tuple[str, int | None]]:
    marked = {mark.kind for mark in picture.marks}
    found: list[tuple[str, int | None]] = [(kind, index) for index, kind in enumerate(kinds) if kind in marked]
    return found + ([("hollow: bytes predicted", None)] if any(mark.hollow for mark in picture.marks) else [])


def _legend_boxes(picture: Picture, kinds: Sequence[str], scales: Scales) -> list[Box]:
    rows = _legend_rows(picture, kinds)
    if not rows:
        return []
    wide = max(len(name) for name, _ in rows) * LETTER + 30
    area = scales.area
    return [Box(area.left, area.top, area.left + wide, area.top + 8 + 16 * len(rows))]


def _legend(picture: Picture, kinds: Sequence[str], colours: dict[str, str], scales: Scales) -> list[str]:
    """Kinds of points, at the top on the left, where no kernel is."""
    parts = []
    for row, (name, kind) in enumerate(_legend_rows(picture, kinds)):
        x, y = scales.area.left + 16, scales.area.top + 14 + 16 * row
        if kind is not None:
            parts.append(shape(kind, x, y, colours[name]))
        parts.append(f'<text x="{x + 12}" y="{y + 4}">{escape(name)}</text>')
    return parts
