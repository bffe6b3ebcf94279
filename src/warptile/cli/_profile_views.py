"""What `warptile profile` prints and writes: the table of lines, instructions below their lines, totals, timelines."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.markup import escape

from warptile.cli._files import write_file
from warptile.cli._tables import Column, console_of, said_of, show

if TYPE_CHECKING:
    from rich.console import Console

    from warptile.bench.profiling.replayed import Replayed
    from warptile.bench.profiling.source_lines import LineCounts

SOURCE_WIDTH = 20
"""A line of source is cut to no less; longer ones are shown where there is room."""

_HERE = "a wider terminal or --json has them"


def show_lines(console: Console, title: str, lines: Sequence[LineCounts], *, predicted: bool) -> list[str]:
    """Print the table of some lines, and below it their instructions, where they have some. Returns what is to be said
    below.

    Args:
        console: where to.
        title: above the table.
        lines: a row each.
        predicted: the time is the clock model's, not one of samples.
    """
    if not lines:
        console.print(title, markup=False, highlight=False, style="bold")
        console.print("no line was executed", markup=False, highlight=False)
        return []
    left_out = show(console, title, _columns(lines, predicted))
    for line in lines:
        if line.ptx is not None or line.sass is not None:
            _show_instructions(console, line)
    return said_of(left_out, _HERE)


def show_counters(
    console: Console, name: str, totals: Mapping[str, float], other: str | None, compared: Mapping[str, float]
) -> None:
    """Totals, of two kernels beside each other if there are two; those that are zero are left out."""
    counters = [each for each in sorted({*totals, *compared}) if totals.get(each) or compared.get(each)]
    columns = [
        Column("counter", counters, left=True),
        Column(name, [f"{totals.get(each, 0):,.2f}" for each in counters]),
    ]
    if other is not None:
        pairs = [(totals.get(each, 0.0), compared.get(each, 0.0)) for each in counters]
        columns.append(Column(other, [f"{theirs:,.2f}" for _, theirs in pairs]))
        columns.append(Column("ratio", [f"{mine / theirs:.2f}" if theirs else "" for mine, theirs in pairs]))
    show(console, "", columns)


def _columns(lines: Sequence[LineCounts], predicted: bool) -> list[Column]:
    """A row for each line of source."""
    ratios = [line.conflict_ratio for line in lines]
    shares = ["" if line.time_share is None else f"{100 * line.time_share:.1f} %" for line in lines]
    found = [
        Column("line", [escape(f"{line.file}:{line.line}") for line in lines], left=True),
        Column("source", [escape(line.text) for line in lines], rank=1, left=True, least=SOURCE_WIDTH, cut=True),
        Column("predicted\ntime" if predicted else "samples", shares),
        Column("stalled on", [_stalled(line) for line in lines], rank=5, left=True),
        Column("warp\ninstructions", [f"{line.warp_instructions:,}" for line in lines]),
        Column("tensor\ninstructions", [_shown(line.tensor_instructions) for line in lines], rank=8),
        Column("global\nsectors", [_shown(line.global_sectors) for line in lines], rank=3),
        Column("TMA\nsectors", [_shown(line.tma_sectors) for line in lines], rank=4),
        Column("shared\nwavefronts", [_shown(line.shared_wavefronts) for line in lines], rank=2),
        Column("ideal", [_shown(line.shared_wavefronts_ideal) for line in lines], rank=7),
        Column("bank\nconflicts", ["" if ratio is None else f"{ratio:.2f}" for ratio in ratios]),
    ]
    return [column for column in found if any(column.cells)]


def _stalled(line: LineCounts) -> str:
    """The most frequent reason for which warps waited at a line, and its share of the line's waiting samples."""
    if not line.stalls:
        return ""
    reason, most = next(iter(line.stalls.items()))
    return f"{reason} {100 * most / sum(line.stalls.values()):.0f} %"


def _shown(count: int) -> str:
    return f"{count:,}" if count else ""


def _show_instructions(console: Console, line: LineCounts) -> None:
    """A line of source and its instructions, folded to the width."""
    console.print()
    _folded(console, f"{line.file}:{line.line}  ", line.text)
    for kind, listed in (("PTX", line.ptx), ("SASS", line.sass)):
        if listed is not None and not listed:
            console.print(f"  {kind:<4} none", markup=False, highlight=False)
        for instruction in listed or ():
            at = f"{instruction.at:6}" if kind == "PTX" else f"{instruction.at:06x}"
            _folded(console, f"  {kind:<4} {at}  ", instruction.text)


def _folded(console: Console, head: str, text: str) -> None:
    """A text behind a head, its further lines below its first one."""
    room = max(console.width - len(head), SOURCE_WIDTH)
    folded = textwrap.wrap(text, room, break_on_hyphens=False) or [""]
    for number, part in enumerate(folded):
        start = head if number == 0 else " " * len(head)
        console.print(f"{start}{part}".rstrip(), markup=False, highlight=False, soft_wrap=True)


def write_timeline(found: Replayed, title: str, config: str, path: Path) -> None:
    """Write a timeline, and print what its warps spent their time on.

    Args:
        found: the replay.
        title: of what.
        config: in a few words how it was launched or configured.
        path: a page if it ends in ``.html``, else a trace for Perfetto.

    Raises:
        click.FileError: the file cannot be written.
    """
    from warptile.replay.timeline import KINDS

    timeline = found.timeline
    is_page = path.suffix.lower() in (".html", ".htm")
    write_file(path, _page(found, title, config) if is_page else _trace(found, title, config))
    console = console_of()
    warps = [track for track in timeline.tracks if " warp " in track]
    shares = [timeline.shares(track) for track in warps]
    kinds = sorted({kind for each in shares for kind in each}, key=KINDS.index)
    columns = [Column("warp", warps, left=True)]
    columns += [
        Column(kind, [f"{100 * each[kind]:.0f} %" if kind in each else "" for each in shares], rank=rank)
        for rank, kind in enumerate(kinds)
    ]
    clocks = (
        f"{timeline.clocks:,.0f} clocks, {timeline.clocks / timeline.clock_mhz:.2f} us at {timeline.clock_mhz:.0f} MHz"
    )
    left_out = show(console, f"{title}; {clocks}, by the clock model", columns)
    shown = [f"{unit} {100 * busy / timeline.clocks:.0f} %" for unit, busy in timeline.busy.items() if timeline.clocks]
    for said in (
        *said_of(left_out, "a wider terminal has them"),
        *(["busy: " + ", ".join(shown)] if shown else []),
        f"{path}: {len(timeline.spans)} spans; open it {'in a browser' if is_page else 'at ui.perfetto.dev'}",
    ):
        console.print(said, markup=False, highlight=False)


def _page(found: Replayed, title: str, config: str) -> bytes:
    """A replay as a page of its own."""
    from warptile.bench.profiling.timeline_figure import replayed_rows, timeline_figure
    from warptile.figures.assets import standalone_page

    timeline = found.timeline
    figure = timeline_figure(
        "timeline", "What each warp, unit and mbarrier does", config, replayed_rows(found), timeline.clocks,
        timeline.clock_mhz,
    )  # fmt: skip
    return standalone_page(title, [figure]).encode()


def _trace(found: Replayed, title: str, config: str) -> bytes:
    """A replay in the Trace Event Format."""
    from warptile.replay.timeline import trace_events

    about = {"kernel": title, "configuration": config, "CTAs": list(found.ctas)}
    return msgspec.json.encode(trace_events(found.timeline, about))
