"""Timelines of a rung beside those of the rung that it is compared with: what each warp does, by the clock model."""

from __future__ import annotations

from dataclasses import dataclass

from warptile.bench.profiling import shipped_timelines
from warptile.bench.profiling.timeline_figure import timeline_figure
from warptile.figures.figure import Figure

WATCH = {
    "mma-double-buffer": (
        "mma-swizzled stores a K tile to shared memory, waits at a barrier, multiplies, and waits at another one. "
        "mma-double-buffer issues the copies of the next K tile before it multiplies: it waits for data only once, at "
        "the start, and at one barrier a K tile."
    ),
    "wgmma-specialized": (
        "In wgmma-tma the warps that multiply a K tile also ask for the next one, so tensor cores are idle while TMA "
        "loads, and TMA while they multiply. In wgmma-specialized a producer warp keeps loads of all stages in "
        "flight, and the tensor cores work without a pause from the first K tile to the last."
    ),
    "wgmma-overlap": (
        "One CTA computes two tiles. In wgmma-store the tensor cores pause between the tiles, while the consumers "
        "convert and store the first one. In wgmma-overlap they go on: the first tile is stored beside the second "
        "tile's mainloop."
    ),
    "wgmma-dependent-launch": (
        "Two launches in a row. In wgmma-store the second one begins a launch gap after the first has ended. In "
        "wgmma-dependent-launch its warps begin while the first one stores, and wait for its end only before they load."
    ),
}
"""By the rung whose page shows them, what differs in its timelines."""


@dataclass(frozen=True)
class RungTimelines:
    """What a rung's page shows: a sentence or two, and the figures."""

    watch: str
    figures: tuple[Figure, ...]


def of_rung(name: str, view: str) -> RungTimelines | None:
    """The timelines of a rung's page, all on one scale; None where it has none.

    Args:
        name: of the rung.
        view: name of its page.
    """
    shown = [each for each in shipped_timelines.timelines().timelines if each.view == name]
    if not shown:
        return None
    axis = max(each.clocks for each in shown)
    figures = tuple(
        timeline_figure(f"{view}-timeline-{each.rung}", each.title, each.config, each.rows(), each.clocks,
                        each.clock_mhz, axis)
        for each in shown
    )  # fmt: skip
    return RungTimelines(WATCH[name], figures)


def shown_at(name: str) -> str | None:
    """The rung whose page has a timeline of a rung: its own, or the first one that is compared with it."""
    views = [each.view for each in shipped_timelines.timelines().timelines if each.rung == name]
    return name if name in views else next(iter(views), None)
