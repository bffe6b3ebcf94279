"""`warptile profile`: what each source line of a rung's kernel does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.markup import escape

from warptile.cli._names import BACKEND, DTYPE, RUNG
from warptile.cli._saving import SAVE, encoded, print_document, save
from warptile.cli._tables import Column, console_of, said_of, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from warptile.bench.profiling.line_profile import LineProfile
    from warptile.bench.profiling.replayed import Replayed
    from warptile.bench.profiling.source_lines import LineCounts
    from warptile.planning.plan import Plan

SMALL_SIZE = 128
LARGE_SIZE = 2048
SHOWN_LINES = 24
SOURCE_WIDTH = 20
"""A line of source is cut to no less; longer ones are shown where there is room."""


@click.command("profile")
@click.argument("name", metavar="RUNG", type=RUNG)
@click.option("-m", type=click.IntRange(1), help="Rows of A and D.")
@click.option("-n", type=click.IntRange(1), help="Columns of B and D.")
@click.option("-k", type=click.IntRange(1), help="Columns of A, rows of B.")
@click.option("--dtype", type=DTYPE, help="Type of A and B, such as f16.")
@click.option("--backend", type=BACKEND, help="What counts; auto takes the GPU if there is one.  [auto]")
@click.option("--top", default=SHOWN_LINES, show_default=True, type=click.IntRange(1), help="Lines that are printed.")
@click.option("--compare", "other", metavar="RUNG", type=RUNG, help="Another rung's counters beside them.")
@click.option("--ptx", "with_ptx", is_flag=True, help="The PTX of each line that is printed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with every line.")
@SAVE
@click.option(
    "--timeline", "timeline_file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
    help="Write what each warp of one CTA does when: a page if FILE ends in .html, else a trace for ui.perfetto.dev.",
)  # fmt: skip
@click.option("--launches", default=1, show_default=True, type=click.IntRange(1, 8), help="With --timeline: in a row.")
def command(
    name: str,
    m: int | None,
    n: int | None,
    k: int | None,
    dtype: str | None,
    backend: str | None,
    top: int,
    other: str | None,
    with_ptx: bool,
    as_json: bool,
    saved: Path | None,
    timeline_file: Path | None,
    launches: int,
) -> int:
    """Show what each source line of a rung's kernel costs.

    The counters come from Nsight Compute on a GPU, and from the emulator without one; they have the same names and
    meaning. The time of a line is the share of its samples on a GPU, and predicted without one: the warps of a CTA are
    replayed with clocks.

    With --timeline the kernel is emulated, and the CTA (or cluster) that does most is replayed with clocks: what each
    warp does and waits for, the tensor cores, the copies, and the phases of the mbarriers.

    \b
    Examples:
      warptile profile mma-swizzled --compare mma-vectorized
      warptile profile wgmma-specialized -k 512 --timeline timeline.html
      warptile profile wgmma-specialized -k 512 --timeline trace.json
      warptile profile wgmma-final -m 256 -n 256 -k 128 --backend emulator
    """
    from warptile.bench.profiling.source_lines import busiest
    from warptile.ladder import plan_for
    from warptile.planning.plan import config_text, repack_text
    from warptile.rungs import rung
    from warptile.runtime.execute import choose_backend

    place = choose_backend("emulator" if timeline_file is not None and backend is None else backend)
    if timeline_file is not None and place.name == "gpu":
        raise click.UsageError("--timeline replays what the emulator executes: --backend emulator")
    if timeline_file is None and launches > 1:
        raise click.UsageError("--launches goes with --timeline, such as --launches 2 --timeline trace.json")
    usual = LARGE_SIZE if place.name == "gpu" else SMALL_SIZE
    extents = (m or usual, n or usual, k or usual)
    plan = plan_for(rung(name), extents, place, dtype)
    if timeline_file is not None:
        return _timeline(plan, place, timeline_file, launches)
    found = _profiled(plan, place)
    if saved is not None:
        save(encoded(found), saved)
    if as_json:
        print_document(found)
        return 0
    problem = plan.problem
    title = f"{name}, {problem.m} x {problem.n} x {problem.k} {problem.a.dtype.name}, {config_text(plan.config)}"
    counted_by = "Nsight Compute" if place.name == "gpu" else "the emulator"
    console, shown = console_of(), busiest(found.lines, top)
    left_out = show(console, f"{title}; counted by {counted_by}", _columns(shown, place.name != "gpu"))
    if with_ptx:
        _show_ptx(console, plan, shown)
    console.print()
    compared = {} if other is None else _profiled(plan_for(rung(other), extents, place, dtype), place).counters
    _show_counters(console, name, found.counters, other, compared)
    for repack in plan.kernel.repacks:
        console.print(f"before it, not counted: {repack_text(repack)}", markup=False, highlight=False)
    for said in said_of(left_out, "a wider terminal or --json has them"):
        console.print(said, markup=False, highlight=False)
    return 0


def _profiled(plan: Plan, place: Any) -> LineProfile:
    """Lines and totals of one launch."""
    from warptile.bench.profiling.line_profile import emulated, under_ncu

    return under_ncu(plan) if place.name == "gpu" else emulated(plan, place)


def _show_counters(
    console: Console, name: str, totals: dict[str, float], other: str | None, compared: dict[str, float]
) -> None:
    """Totals, of two rungs beside each other if there are two; those that are zero are left out."""
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


def _show_ptx(console: Console, plan: Plan, lines: Sequence[LineCounts]) -> None:
    """The PTX of some lines of source, in the order of the PTX file."""
    from warptile.bench.profiling.source_lines import place_of
    from warptile.codegen.translation_unit import translation_unit
    from warptile.ptx import parse
    from warptile.runtime.execute import KERNELS

    kernel = KERNELS.ptx(translation_unit(plan.kernel), plan.arch)
    by_place: dict[tuple[str, int], list[str]] = {}
    for instruction in parse(kernel.ptx).functions[kernel.entry].body or ():
        if instruction.location is not None:
            text = f"{instruction.location.ptx_line:6}  {instruction.text}"
            by_place.setdefault(place_of(instruction.location), []).append(text)
    for line in lines:
        console.print(f"\n{line.file}:{line.line}  {line.text}", markup=False, highlight=False)
        for text in by_place.get((line.file, line.line), []):
            console.print(text, markup=False, highlight=False, soft_wrap=True)


def _columns(lines: Sequence[LineCounts], predicted: bool) -> list[Column]:
    """A row for each line of source."""
    ratios = [line.conflict_ratio for line in lines]
    shares = ["" if line.time_share is None else f"{100 * line.time_share:.1f} %" for line in lines]
    found = [
        Column("line", [f"{line.file}:{line.line}" for line in lines], left=True),
        Column("source", [escape(line.text) for line in lines], rank=1, left=True, least=SOURCE_WIDTH, cut=True),
        Column("predicted\ntime" if predicted else "samples", shares),
        Column("warp\ninstructions", [f"{line.warp_instructions:,}" for line in lines]),
        Column("tensor\ninstructions", [_shown(line.tensor_instructions) for line in lines], rank=6),
        Column("global\nsectors", [_shown(line.global_sectors) for line in lines], rank=3),
        Column("TMA\nsectors", [_shown(line.tma_sectors) for line in lines], rank=4),
        Column("shared\nwavefronts", [_shown(line.shared_wavefronts) for line in lines], rank=2),
        Column("ideal", [_shown(line.shared_wavefronts_ideal) for line in lines], rank=5),
        Column("bank\nconflicts", ["" if ratio is None else f"{ratio:.2f}" for ratio in ratios]),
    ]
    return [column for column in found if any(column.cells)]


def _shown(count: int) -> str:
    return f"{count:,}" if count else ""


def _timeline(plan: Plan, place: Any, path: Path, launches: int) -> int:
    """Replay a launch, write its timeline, and print what its warps spent their time on."""
    from warptile.bench.profiling.replayed import replayed
    from warptile.bench.profiling.timeline_figure import timeline_title
    from warptile.replay.timeline import KINDS

    found = replayed(plan, place, launches)
    timeline, title = found.timeline, timeline_title(plan, launches)
    is_page = path.suffix.lower() in (".html", ".htm")
    try:
        path.write_bytes(_page(plan, found, title) if is_page else _trace(plan, found, title))
    except OSError as error:
        raise click.UsageError(f"--timeline {path}: {error.strerror}; give a file in a folder that exists") from error
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
    for said in (
        *said_of(left_out, "a wider terminal has them"),
        "busy: " + ", ".join(f"{unit} {100 * busy / timeline.clocks:.0f} %" for unit, busy in timeline.busy.items()),
        f"{path}: {len(timeline.spans)} spans; open it {'in a browser' if is_page else 'at ui.perfetto.dev'}",
    ):
        console.print(said, markup=False, highlight=False)
    return 0


def _page(plan: Plan, found: Replayed, title: str) -> bytes:
    """A replay as a page of its own."""
    from warptile.bench.profiling.timeline_figure import replayed_rows, timeline_figure
    from warptile.figures.assets import standalone_page
    from warptile.planning.plan import config_text

    timeline = found.timeline
    figure = timeline_figure(
        "timeline", "What each warp, unit and mbarrier does", config_text(plan.config), replayed_rows(found),
        timeline.clocks, timeline.clock_mhz,
    )  # fmt: skip
    return standalone_page(title, [figure]).encode()


def _trace(plan: Plan, found: Replayed, title: str) -> bytes:
    """A replay in the Trace Event Format."""
    from warptile.planning.plan import config_text
    from warptile.replay.timeline import trace_events

    about = {"kernel": title, "configuration": config_text(plan.config), "CTAs": list(found.ctas)}
    return msgspec.json.encode(trace_events(found.timeline, about))
