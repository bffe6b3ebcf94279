"""`warptile profile`: what each source line of a kernel does, of a rung or of any file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from warptile.cli._files import FILE_TO_WRITE
from warptile.cli._folding import tell
from warptile.cli._kernel_launch import KERNEL_FILE, file_launch, launch_options
from warptile.cli._names import BACKEND, DTYPE, RUNG
from warptile.cli._profile_views import show_counters, show_lines, write_timeline
from warptile.cli._saving import SAVE, encoded, print_document, save
from warptile.cli._tables import console_of
from warptile.errors import EmulationError

if TYPE_CHECKING:
    from warptile.bench.profiling.line_profile import LineProfile
    from warptile.planning.plan import Plan

SMALL_SIZE = 128
LARGE_SIZE = 2048
SHOWN_LINES = 24

OF_RUNGS = ("m", "n", "k", "dtype", "other", "saved")
"""Options that go with a rung."""

OF_FILES = (
    "entry", "arch", "grid", "block", "cluster", "cooperative", "smem", "given", "include_folders", "defines",
    "standard", "schedule", "checks", "ignore", "model", "volatile",
)  # fmt: skip
"""Options that go with a file."""

_TIMELINE = click.option(
    "--timeline", "timeline_file", metavar="FILE", type=FILE_TO_WRITE,
    help="Write what each warp of one CTA does when: a page if FILE ends in .html, else a trace for ui.perfetto.dev.",
)  # fmt: skip


@click.command("profile")
@click.argument("name", metavar="[RUNG]", type=RUNG, required=False)
@click.option("--file", type=KERNEL_FILE, metavar="FILE", help="A kernel of a CUDA C++ or PTX file instead of a rung.")
@click.option("-m", type=click.IntRange(1), help="Rows of A and D.")
@click.option("-n", type=click.IntRange(1), help="Columns of B and D.")
@click.option("-k", type=click.IntRange(1), help="Columns of A, rows of B.")
@click.option("--dtype", type=DTYPE, help="Type of A and B, such as f16.")
@click.option("--compare", "other", metavar="RUNG", type=RUNG, help="Another rung's counters beside them.")
@launch_options
@click.option("--backend", type=BACKEND, help="What counts; auto takes the GPU if there is one.  [auto]")
@click.option("--top", default=SHOWN_LINES, show_default=True, type=click.IntRange(1), help="Lines that are printed.")
@click.option("--ptx", "with_ptx", is_flag=True, help="The PTX of each line below it.")
@click.option("--sass", "with_sass", is_flag=True, help="The machine instructions of each line below it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with every line.")
@SAVE
@_TIMELINE
@click.option("--launches", default=1, show_default=True, type=click.IntRange(1, 8), help="With --timeline: in a row.")
def command(name: str | None, file: Path | None, timeline_file: Path | None, launches: int, **options: Any) -> int:
    """Show what each source line of a kernel costs.

    The kernel is a rung's, or with --file one of any CUDA C++ or PTX file. The counters come from Nsight Compute on a
    GPU, and from the emulator without one; they have the same names and meaning. The time of a line is the share of its
    samples on a GPU, and predicted without one: the warps of a CTA are replayed with clocks.

    A kernel of a file is launched as by `warptile emulate`, whose help says what --arg takes. What it writes is not
    kept.

    With --timeline the kernel is emulated, and the CTA (or cluster) that does most is replayed with clocks: what each
    warp does and waits for, the tensor cores, the copies, and the phases of the mbarriers.

    \b
    Examples:
      warptile profile mma-swizzled --compare mma-vectorized
      warptile profile wgmma-specialized -k 512 --timeline timeline.html
      warptile profile wgmma-final -m 256 -n 256 -k 128 --backend emulator
      warptile profile --file add.cu --block 256 --ptx \\
        --arg random:f32:256 --arg zeros:f32:256 --arg i32:256
    """
    from warptile.runtime.execute import choose_backend

    if (name is None) == (file is None):
        raise click.UsageError(
            "give a rung or a file, and not both, such as warptile profile mma-swizzled or warptile profile "
            "--file add.cu --block 256 --arg in:a.npy"
        )
    _refuse(OF_FILES if file is None else OF_RUNGS, "--file FILE" if file is None else "a rung")
    backend = options.pop("backend")
    place = choose_backend("emulator" if timeline_file is not None and backend is None else backend)
    if timeline_file is not None and place.name == "gpu":
        raise click.UsageError("--timeline replays what the emulator executes: --backend emulator")
    if timeline_file is not None and options["as_json"]:
        raise click.UsageError("--json prints counters by line; leave it out, or run again without --timeline")
    if timeline_file is None and launches > 1:
        raise click.UsageError("--launches goes with --timeline, such as --launches 2 --timeline trace.json")
    if file is not None:
        return _of_file(file, place, timeline_file, launches, **options)
    assert name is not None
    return _of_rung(name, place, timeline_file, launches, **options)


def _refuse(names: tuple[str, ...], what: str) -> None:
    """Options that were given and do not go with what is profiled.

    Raises:
        click.UsageError: there is one.
    """
    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") is not ParameterSource.DEFAULT
        if parameter.name in names and given:
            raise click.UsageError(f"{parameter.opts[0]} goes with {what}; leave it out")


def _of_rung(
    name: str,
    place: Any,
    timeline_file: Path | None,
    launches: int,
    *,
    m: int | None,
    n: int | None,
    k: int | None,
    dtype: str | None,
    other: str | None,
    top: int,
    with_ptx: bool,
    with_sass: bool,
    as_json: bool,
    saved: Path | None,
    **_: Any,
) -> int:
    """Profile a rung; the exit status."""
    from warptile.bench.profiling.source_lines import busiest
    from warptile.ladder import plan_for
    from warptile.planning.plan import config_text, copy_text
    from warptile.rungs import rung

    usual = LARGE_SIZE if place.name == "gpu" else SMALL_SIZE
    extents = (m or usual, n or usual, k or usual)
    plan = plan_for(rung(name), extents, place, dtype)
    if timeline_file is not None:
        from warptile.bench.profiling.replayed import replayed
        from warptile.bench.profiling.timeline_figure import timeline_title

        title = timeline_title(plan, launches)
        write_timeline(replayed(plan, place, launches), title, config_text(plan.config), timeline_file)
        return 0
    found = _profiled(plan, place, with_ptx, with_sass)
    if saved is not None:
        save(encoded(found), saved)
    if as_json:
        print_document(found)
        return 0
    problem = plan.problem
    title = f"{name}, {problem.m} x {problem.n} x {problem.k} {problem.a.dtype.name}, {config_text(plan.config)}"
    console = console_of()
    below = show_lines(
        console, f"{title}; counted by {_counter(place)}", busiest(found.lines, top), predicted=place.name != "gpu"
    )
    console.print()
    compared = {} if other is None else _profiled(plan_for(rung(other), extents, place, dtype), place).counters
    show_counters(console, name, found.counters, other, compared)
    copies = (f"before it, not counted: {copy_text(copy)}" for copy in plan.kernel.copies)
    for said in (*copies, *below):
        console.print(said, markup=False, highlight=False)
    return 0


def _profiled(plan: Plan, place: Any, with_ptx: bool = False, with_sass: bool = False) -> LineProfile:
    """Lines and totals of one launch of a rung."""
    from warptile.bench.profiling.line_profile import emulated, under_ncu

    if place.name == "gpu":
        return under_ncu(plan, with_ptx=with_ptx, with_sass=with_sass)
    return emulated(plan, place, with_ptx=with_ptx, with_sass=with_sass)


def _counter(place: Any) -> str:
    return "Nsight Compute" if place.name == "gpu" else "the emulator"


def _of_file(
    file: Path,
    place: Any,
    timeline_file: Path | None,
    launches: int,
    *,
    top: int,
    with_ptx: bool,
    with_sass: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Profile a kernel of a file; the exit status."""
    from warptile.bench.profiling.file_profile import emulated_file, file_under_ncu, replayed_file
    from warptile.bench.profiling.source_lines import busiest
    from warptile.emulator import ALL_CHECKS

    options = {name: options[name] for name in OF_FILES}
    on_gpu = place.name == "gpu"
    if on_gpu and click.get_current_context().get_parameter_source("arch") is ParameterSource.DEFAULT:
        options["arch"] = place.arch
    launch = file_launch(file, **options, machine_code=on_gpu or with_sass)
    spec = launch.spec
    size = f"grid {_extent(spec.grid)}, block {_extent(spec.block)}"
    size += f", cluster {_extent(spec.cluster)}" if spec.cluster != (1, 1, 1) else ""
    named = options["entry"] or launch.kernel.name
    name = launch.kernel.name if named == launch.kernel.entry else named
    title = f"{file.name}, {name}, {size}"
    profiled = file_under_ncu if on_gpu else emulated_file
    try:
        if timeline_file is not None:
            title += f", {launches} launches in a row" if launches > 1 else ""
            write_timeline(replayed_file(launch, launches), title, size, timeline_file)
            return 0
        found = profiled(launch, with_ptx=with_ptx, with_sass=with_sass)
    except EmulationError as error:
        if error.check in ALL_CHECKS:
            tell(f"{file}: a check failed and nothing was counted; --check '' counts without checks")
        raise
    if as_json:
        print_document(found)
        return 0
    if found.output:
        click.echo(found.output, nl=not found.output.endswith("\n"))
    console = console_of()
    below = show_lines(
        console, f"{title}; counted by {_counter(place)}", busiest(found.lines, top), predicted=not on_gpu
    )
    console.print()
    show_counters(console, name, found.counters, None, {})
    for said in below:
        console.print(said, markup=False, highlight=False)
    return 0


def _extent(extents: tuple[int, int, int]) -> str:
    """``4``, ``4 x 2`` or ``4 x 2 x 3``."""
    shown = extents[: 3 if extents[2] > 1 else 2 if extents[1] > 1 else 1]
    return " x ".join(map(str, shown))
