"""Draws a roofline as SVG: data in, text out. Nothing here knows of rungs, GPUs or records.

Points are numbered, and their names stand below the plot, in a column for each kind. Colors are those of Okabe and
Ito, which the color-blind can tell apart; kinds also differ in shape, and predicted points are hollow. The text takes
the color scheme of the reader.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from warptile.roofline.chart_data import Bounds, Guide, Picture, Roof, ticks
from warptile.roofline.label_places import Box, Wanted, places, spread

WIDTH = 920
LEFT, RIGHT, TOP, PLOT, SCALE = 64, 190, 60, 480, 62
"""Pixels of a picture's parts: left of the plot the scale of y, right of it the names of the roofs, above it the title,
the height of the plot itself, below it the scale of x; under that the names of the points."""

LETTER, LINE = 7.0, 13.0
"""Pixels of a letter and of a line of text at `FONT`: an upper estimate for common sans-serif fonts."""

KEY_ROW = 18
"""Pixels of a line of the names of points."""

FONT = 12
POINT = 4.5
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999")
"""One for each kind, in the order in which kinds first occur."""

ROOT = "wt-roofline"
"""The class of a picture: its rules hold for it alone, also where a page has several."""

_LIGHT = (
    ("text", "fill: #1f2328"), (".soft", "fill: #57606a"),
    (".halo", "paint-order: stroke; stroke: #ffffff; stroke-width: 3px"), (".page", "fill: #ffffff"),
    (".dot", "stroke: #ffffff"), (".axis", "fill: none; stroke: #57606a"),
    (".grid", "stroke: #d8dee4; stroke-width: .6"), (".roof", "fill: none; stroke: #1f2328; stroke-width: 2"),
    (".ceiling", "fill: none; stroke: #57606a; stroke-width: 1.2; stroke-dasharray: 6 4"),
    (".guide", "stroke: #57606a; stroke-width: 1; stroke-dasharray: 2 3"),
    (".leader", "fill: none; stroke: #6e7781; stroke-width: .9"),
)  # fmt: skip
_DARK = (
    ("text", "fill: #e6edf3"), (".soft", "fill: #9198a1"), (".halo", "stroke: #0d1117"), (".page", "fill: #0d1117"),
    (".dot", "stroke: #0d1117"), (".axis", "stroke: #9198a1"), (".ceiling", "stroke: #9198a1"),
    (".guide", "stroke: #9198a1"), (".grid", "stroke: #30363d"), (".roof", "stroke: #e6edf3"),
)  # fmt: skip
"""Selectors within a picture and their rules, in the reader's two color schemes."""


def _style() -> str:
    light, dark = (
        "\n".join(f".{ROOT} {selector} {{ {rules} }}" for selector, rules in scheme) for scheme in (_LIGHT, _DARK)
    )
    return f"<style>\n{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n</style>"


class Scales:
    """Where values lie in the plot, in pixels."""

    def __init__(self, picture: Picture) -> None:
        self.bounds = Bounds.of(picture)
        self.area = Box(LEFT, TOP, WIDTH - RIGHT, TOP + PLOT)

    def x(self, intensity: float) -> float:
        """Pixels from the left."""
        return self.area.left + (self.area.right - self.area.left) * self.bounds.across(intensity)

    def y(self, tflops: float) -> float:
        """Pixels from the top."""
        return self.area.bottom - (self.area.bottom - self.area.top) * self.bounds.up(tflops)


def draw(picture: Picture, name: str = "roofline") -> str:
    """The picture as SVG text.

    Args:
        picture: what is drawn.
        name: begins the identifiers in the text: different ones for pictures that one page has.
    """
    scales = Scales(picture)
    kinds = list(dict.fromkeys([*(roof.kind for roof in picture.roofs if roof.kind), *(m.kind for m in picture.marks)]))
    colors = {kind: COLORS[index % len(COLORS)] for index, kind in enumerate(kinds)}
    key = _key(picture, kinds, colors)
    height = TOP + PLOT + SCALE + KEY_ROW * max((len(rows) for rows in key), default=0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif" '
        f'font-size="{FONT}" class="{ROOT}" role="img" aria-labelledby="{name}-title {name}-desc">',
        f'<title id="{name}-title">{escape(picture.title)}</title>',
        f'<desc id="{name}-desc">{escape(picture.description)}</desc>',
        _style(),
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        f'<text x="{LEFT}" y="26" font-size="15" font-weight="600">{escape(picture.title)}</text>',
        *_axes(picture, scales),
        *_guides(picture.guides, scales),
        *_ceilings(picture, scales),
        *(_roof(roof, scales, colors) for roof in picture.roofs),
        *(_slope(roof, scales)[0] for roof in picture.roofs if roof.slope_name),
        *_names(picture, scales, colors),
        *_marks(picture, scales, colors, kinds),
        *(text for rows in key for text in rows),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def label_boxes(picture: Picture) -> list[Box]:
    """Where the numbers of the points are written, in their order."""
    return _mark_boxes(picture, Scales(picture))


# -- scales ------------------------------------------------------------------------------------------------------------


def _axes(picture: Picture, scales: Scales) -> list[str]:
    area = scales.area
    parts = []
    for value in ticks(scales.bounds.low_x, scales.bounds.high_x):
        x = scales.x(value)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{area.top}" x2="{x:.1f}" y2="{area.bottom}"/>')
        parts.append(f'<text x="{x:.1f}" y="{area.bottom + 17}" text-anchor="middle">{value:g}</text>')
    for value in ticks(scales.bounds.low_y, scales.bounds.high_y):
        y = scales.y(value)
        parts.append(f'<line class="grid" x1="{area.left}" y1="{y:.1f}" x2="{area.right}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{area.left - 7}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    middle = (area.left + area.right) / 2
    parts.append(f'<path class="axis" d="M{area.left} {area.top}V{area.bottom}H{area.right}"/>')
    parts.append(
        f'<text x="{middle:.1f}" y="{area.bottom + 40:.1f}" text-anchor="middle">{escape(picture.x_name)}</text>'
    )
    parts.append(f'<text x="{area.left - 7}" y="{area.top - 8}" text-anchor="end">TFLOP/s</text>')
    return parts


# -- roofs -------------------------------------------------------------------------------------------------------------


def _roof(roof: Roof, scales: Scales, colors: dict[str, str]) -> str:
    x1, y1, x2, y2 = _ends(roof, scales)
    path = f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}H{scales.area.right:.1f}"
    color = f' style="stroke: {colors[roof.kind]}"' if roof.kind is not None else ""
    return f'<path class="roof"{color} d="{path}"/>'


def _ends(roof: Roof, scales: Scales) -> tuple[float, float, float, float]:
    """Of a slope: x and y where it enters the plot, x and y of the ridge point."""
    start = max(scales.bounds.low_x, scales.bounds.low_y / roof.terabytes_per_s)
    ridge = roof.peak_tflops / roof.terabytes_per_s
    return (
        scales.x(start), scales.y(start * roof.terabytes_per_s), scales.x(ridge), scales.y(roof.peak_tflops),
    )  # fmt: skip


def _slope(roof: Roof, scales: Scales) -> tuple[str, list[Box]]:
    """The name along a slope, above it, and what the slope and the name cover."""
    x1, y1, x2, y2 = _ends(roof, scales)
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
    steps = [half * (part / 6 - 1) for part in range(13)] if roof.slope_name else []
    covered = [(x + math.cos(angle) * step, y + math.sin(angle) * step) for step in steps]
    parts = [part / 60 for part in range(61)]
    line = [(x1 + (x2 - x1) * part, y1 + (y2 - y1) * part) for part in parts]
    return text, [
        *(Box(at_x - 9, at_y - 13, at_x + 9, at_y + 5) for at_x, at_y in covered),
        *(Box(at_x - 6, at_y - 4, at_x + 6, at_y + 4) for at_x, at_y in line),
        Box(x2, y2 - 2, scales.area.right, y2 + 2),
    ]


def _ceilings(picture: Picture, scales: Scales) -> list[str]:
    parts = []
    for ceiling in picture.ceilings:
        start = scales.x(max(scales.bounds.low_x, ceiling.tflops / picture.roofs[0].terabytes_per_s))
        y = scales.y(ceiling.tflops)
        parts.append(f'<path class="ceiling" d="M{start:.1f} {y:.1f}H{scales.area.right:.1f}"/>')
    return parts


def _names(picture: Picture, scales: Scales, colors: dict[str, str]) -> list[str]:
    """Names of roofs and ceilings beside their ends, moved apart."""
    named = [(roof.name, scales.y(roof.peak_tflops), colors.get(roof.kind or "")) for roof in picture.roofs]
    named += [(ceiling.name, scales.y(ceiling.tflops), None) for ceiling in picture.ceilings]
    heights = spread([y for _, y, _ in named], LINE + 1)
    parts = []
    for (name, y, color), height in zip(named, heights, strict=True):
        right = scales.area.right
        shade = f' style="stroke: {color}"' if color else ""
        parts.append(f'<path class="leader"{shade} d="M{right} {y:.1f}L{right + 10} {height:.1f}"/>')
        parts.append(f'<text x="{right + 13}" y="{height + 4:.1f}">{escape(name)}</text>')
    return parts


def _guides(guides: Sequence[Guide], scales: Scales) -> list[str]:
    """Lines that end at their names at the bottom; each name is higher than the one to its left, so that no line
    crosses a name."""
    parts = []
    for at, guide in enumerate(sorted(guides, key=lambda guide: guide.intensity)):
        x, y = scales.x(guide.intensity), scales.area.bottom - 8 - 16 * at
        parts.append(f'<line class="guide" x1="{x:.1f}" y1="{scales.area.top}" x2="{x:.1f}" y2="{y + 2:.1f}"/>')
        parts.append(f'<text class="halo" x="{x + 4:.1f}" y="{y:.1f}">{escape(guide.name)}</text>')
    return parts


# -- points ------------------------------------------------------------------------------------------------------------


def _mark_boxes(picture: Picture, scales: Scales) -> list[Box]:
    wanted = [
        Wanted(scales.x(mark.intensity), scales.y(mark.tflops), len(str(number)) * LETTER + 2, LINE)
        for number, mark in enumerate(picture.marks, 1)
    ]
    taken = [box for roof in picture.roofs for box in _slope(roof, scales)[1]]
    return places(wanted, scales.area, taken, POINT)


def _marks(picture: Picture, scales: Scales, colors: dict[str, str], kinds: Sequence[str]) -> list[str]:
    """Leader lines first, then points, then numbers, so that no line covers a number."""
    leaders, points, numbers = [], [], []
    boxes = _mark_boxes(picture, scales)
    for number, (mark, box) in enumerate(zip(picture.marks, boxes, strict=True), 1):
        x, y = scales.x(mark.intensity), scales.y(mark.tflops)
        near_x, near_y = box.nearest(x, y)
        if math.hypot(near_x - x, near_y - y) > POINT + 4:
            leaders.append(f'<path class="leader" d="M{x:.1f} {y:.1f}L{near_x:.1f} {near_y:.1f}"/>')
        points.append(
            f"<g><title>{escape(mark.detail)}</title>"
            f"{shape(kinds.index(mark.kind), x, y, colors[mark.kind], hollow=mark.hollow)}</g>"
        )
        middle = (box.left + box.right) / 2
        numbers.append(
            f'<text class="halo" x="{middle:.1f}" y="{box.bottom - 2.5:.1f}" text-anchor="middle">{number}</text>'
        )
    return [*leaders, *points, *numbers]


def shape(kind: int, x: float, y: float, color: str, *, hollow: bool = False) -> str:
    """The shape of a kind: circle, square, triangle, diamond, in turns; hollow ones are filled with the page."""
    look = f'class="page" stroke="{color}" stroke-width="1.8"' if hollow else f'class="dot" fill="{color}"'
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


def _key(picture: Picture, kinds: Sequence[str], colors: dict[str, str]) -> list[list[str]]:
    """Columns below the plot: each kind with its shape, and the numbers and names of its points."""
    shown = [kind for kind in kinds if any(mark.kind == kind for mark in picture.marks)]
    columns: list[list[str]] = []
    for at, kind in enumerate(shown):
        x, y = LEFT + at * (WIDTH - LEFT) / len(shown), TOP + PLOT + SCALE
        rows = [
            shape(kinds.index(kind), x, y - 4, colors[kind])
            + f'<text x="{x + 14:.1f}" y="{y}" font-weight="600">{escape(kind)}</text>'
        ]
        for number, mark in enumerate(picture.marks, 1):
            if mark.kind == kind:
                y += KEY_ROW
                rows.append(
                    f'<text class="soft" x="{x + 8:.1f}" y="{y}" text-anchor="end">{number}</text>'
                    f'<text x="{x + 14:.1f}" y="{y}">{escape(mark.name)}</text>'
                )
        columns.append(rows)
    if any(mark.hollow for mark in picture.marks):
        x, y = WIDTH - RIGHT + 13, TOP + PLOT
        columns.append([f'<text class="soft" x="{x}" y="{y}">hollow: bytes predicted</text>'])
    return columns
