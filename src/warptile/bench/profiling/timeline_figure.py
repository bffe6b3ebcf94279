"""A replayed launch as a figure."""

from __future__ import annotations

from collections.abc import Sequence

from warptile.bench.profiling.replayed import Replayed
from warptile.bench.profiling.timeline_rows import timeline_rows
from warptile.figures.figure import Figure
from warptile.figures.timeline_bars import TimelineRow, joined_rows
from warptile.figures.timeline_chart import timeline_chart
from warptile.planning.plan import Plan


def timeline_figure(
    name: str,
    title: str,
    config: str,
    rows: Sequence[TimelineRow],
    clocks: float,
    clock_mhz: float,
    axis: float | None = None,
) -> Figure:
    """Rows of a replay, with what their times are.

    Args:
        name: of the figure.
        title: its caption.
        config: the rung's tunables.
        rows: joined ones, as `replayed_rows` makes them.
        clocks: the end of the last one.
        clock_mhz: of the SM.
        axis: where the axis ends, if later: figures that are compared have the same.
    """
    said = (
        f"{config}. {clocks:,.0f} clocks, {clocks / clock_mhz:.2f} us at {clock_mhz:.0f} MHz, by the clock model: not "
        f"measured."
    )
    return timeline_chart(name, title, rows, clocks, (said,), axis)


def replayed_rows(replay: Replayed) -> list[TimelineRow]:
    """The rows of a replay, as few as show the same."""
    timeline = replay.timeline
    return joined_rows(timeline_rows(timeline), timeline.clocks)


def timeline_title(plan: Plan, launches: int) -> str:
    """``wgmma-store, 256 x 128 x 512 bfloat16, 2 launches in a row``."""
    problem = plan.problem
    several = f", {launches} launches in a row" if launches > 1 else ""
    return f"{plan.rung.name}, {problem.m} x {problem.n} x {problem.k} {problem.a.dtype.name}{several}"
