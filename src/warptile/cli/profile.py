"""`warptile profile`: what each source line of a rung's kernel does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.markup import escape

from warptile.cli._names import BACKEND, DTYPE, RUNG
from warptile.cli._saving import SAVE, encoded, print_document, save
from warptile.cli._tables import Column, console_of, said_of, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warptile.bench.profiling.source_lines import LineCounts

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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with every line.")
@SAVE
def command(
    name: str,
    m: int | None,
    n: int | None,
    k: int | None,
    dtype: str | None,
    backend: str | None,
    top: int,
    as_json: bool,
    saved: Path | None,
) -> int:
    """Show what each source line of a rung's kernel costs.

    The counters come from Nsight Compute on a GPU, and from the emulator without one; they have the same names and
    meaning.

    \b
    Examples:
      warptile profile mma-swizzled
      warptile profile wgmma-final -m 256 -n 256 -k 128 --backend emulator
    """
    from warptile.bench.profiling.line_profile import emulated, under_ncu
    from warptile.bench.profiling.source_lines import busiest
    from warptile.ladder import plan_for
    from warptile.planning.plan import config_text, repack_text
    from warptile.rungs import rung
    from warptile.runtime.execute import EmulatorBackend, choose_backend

    place = choose_backend(backend)
    usual = LARGE_SIZE if place.name == "gpu" else SMALL_SIZE
    plan = plan_for(rung(name), (m or usual, n or usual, k or usual), place, dtype)
    found = emulated(plan, place) if isinstance(place, EmulatorBackend) else under_ncu(plan)
    if saved is not None:
        save(encoded(found), saved)
    if as_json:
        print_document(found)
        return 0
    problem = plan.problem
    title = f"{name}, {problem.m} x {problem.n} x {problem.k} {problem.a.dtype.name}, {config_text(plan.config)}"
    counted_by = "Nsight Compute" if place.name == "gpu" else "the emulator"
    console = console_of()
    left_out = show(console, f"{title}; counted by {counted_by}", _columns(busiest(found.lines, top)))
    console.print()
    for counter in sorted(found.counters):
        console.print(f"{counter:32} {found.counters[counter]:>16,.2f}", markup=False, highlight=False)
    for repack in plan.kernel.repacks:
        console.print(f"before it, not counted: {repack_text(repack)}", markup=False, highlight=False)
    for said in said_of(left_out, "a wider terminal or --json has them"):
        console.print(said, markup=False, highlight=False)
    return 0


def _columns(lines: Sequence[LineCounts]) -> list[Column]:
    """A row for each line of source."""
    ratios = [line.conflict_ratio for line in lines]
    found = [
        Column("line", [f"{line.file}:{line.line}" for line in lines], left=True),
        Column("source", [escape(line.text) for line in lines], rank=1, left=True, least=SOURCE_WIDTH, cut=True),
        Column("warp\ninstructions", [f"{line.warp_instructions:,}" for line in lines]),
        Column("global\nsectors", [f"{line.global_sectors:,}" for line in lines], rank=3),
        Column("shared\nwavefronts", [f"{line.shared_wavefronts:,}" for line in lines], rank=2),
        Column("ideal", [f"{line.shared_wavefronts_ideal:,}" for line in lines], rank=5),
        Column("bank\nconflicts", ["" if ratio is None else f"{ratio:.2f}" for ratio in ratios]),
    ]
    if any(line.samples for line in lines):
        found.append(Column("samples", [f"{line.samples:,}" for line in lines], rank=4))
    return found
