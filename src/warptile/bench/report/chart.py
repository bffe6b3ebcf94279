"""Draws a suite as SVG: the speedup of each row over cuBLASLt, or over its neighbour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from warptile.bench.protocol.row_result import LIBRARY, NEIGHBOUR, RowResult, Speedup
from warptile.bench.protocol.suites import row_name

LINE, TEXT, PLOT, EDGE = 18, 300, 460, 30
"""Pixels: height of a row, width of its name, of the axis, and around everything."""

COLOURS = {"faster": "#1a7f37", "slower": "#c4432b", "equal": "#6e7781"}
TICKS = (0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0)
FEWEST_PIXELS = 26
"""Between the labels of two ticks."""


def svg(title: str, results: Sequence[RowResult]) -> str:
    """The picture as SVG text: a dot at the median, a line from the slowest round to the fastest, on a logarithmic
    axis; green and red where the rounds' 95 % interval leaves 1 out. Rows without a comparison are left out."""
    rows = [(result, *found) for result in results if (found := _share(result)) is not None]
    low = min([0.95, *(share.low for _, _, share in rows)]) / 1.02
    high = max([1.05, *(share.high for _, _, share in rows)]) * 1.02
    width, height = TEXT + PLOT + 2 * EDGE, 3 * EDGE + LINE * len(rows)

    def x(ratio: float) -> float:
        return EDGE + TEXT + PLOT * math.log(ratio / low) / math.log(high / low)

    top, bottom = 2 * EDGE, 2 * EDGE + LINE * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{EDGE}" y="{EDGE}" font-size="14">{escape(title)}</text>',
    ]
    for tick in _ticks(low, high, x):
        shade = "#24292f" if tick == 1.0 else "#d0d7de"
        parts.append(f'<line x1="{x(tick):.1f}" y1="{top}" x2="{x(tick):.1f}" y2="{bottom}" stroke="{shade}"/>')
        parts.append(f'<text x="{x(tick):.1f}" y="{bottom + 14}" text-anchor="middle">{tick:g}</text>')
    for place, (result, participant, share) in enumerate(rows):
        y = top + LINE * (place + 0.5)
        name = row_name(result.problem, result.offset, result.max_sms)
        name += f" / {row_name(result.beside)}" if participant == NEIGHBOUR and result.beside is not None else ""
        colour = COLOURS[share.verdict]
        said = f"{name}: {share.median:.3f} of {participant} ({share.low:.3f} to {share.high:.3f})"
        parts.append(
            f'<g stroke="{colour}" fill="{colour}"><title>{escape(said)}</title>'
            f'<line x1="{x(share.low):.1f}" y1="{y}" x2="{x(share.high):.1f}" y2="{y}" stroke-width="2"/>'
            f'<circle cx="{x(share.median):.1f}" cy="{y}" r="4"/></g>'
        )
        parts.append(f'<text x="{EDGE + TEXT - 8}" y="{y + 4}" text-anchor="end">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _share(result: RowResult) -> tuple[str, Speedup] | None:
    """The participant that a row is shown relative to, and the speedup: its neighbour, else cuBLASLt."""
    for participant in (NEIGHBOUR, LIBRARY):
        share = result.speedup_over(participant)
        if share is not None and not result.failed:
            return participant, share
    return None


def _ticks(low: float, high: float, x: object) -> list[float]:
    """Ratios that have a label: 1, and those that are far enough from the labels before."""
    assert callable(x)
    kept = [1.0]
    for tick in TICKS:
        if low <= tick <= high and all(abs(x(tick) - x(other)) >= FEWEST_PIXELS for other in kept):
            kept.append(tick)
    return sorted(kept)
