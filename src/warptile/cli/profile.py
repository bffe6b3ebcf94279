"""`warptile profile`: what each source line of a rung's kernel does."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from warptile.bench.lines import LineCounts
    from warptile.plan import Plan

SMALL_SIZE = 128
LARGE_SIZE = 2048
SHOWN_LINES = 24
SOURCE_WIDTH = 64


@click.command("profile")
@click.argument("name", metavar="RUNG")
@click.option("-m", type=click.IntRange(1), help="Rows of A and D.")
@click.option("-n", type=click.IntRange(1), help="Columns of B and D.")
@click.option("-k", type=click.IntRange(1), help="Columns of A, rows of B.")
@click.option("--dtype", help="Operand type, such as float16.")
@click.option("--backend", type=click.Choice(["auto", "gpu", "emulator"]), help="What counts. [auto]")
@click.option("--top", default=SHOWN_LINES, show_default=True, type=click.IntRange(1), help="Lines that are printed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with every line.")
def command(
    name: str,
    m: int | None,
    n: int | None,
    k: int | None,
    dtype: str | None,
    backend: str | None,
    top: int,
    as_json: bool,
) -> int:
    """Counters per source line of a product's launch: Nsight Compute's on a GPU, else the emulator's; one table."""
    from warptile.bench.lines import busiest
    from warptile.execute import choose_backend
    from warptile.ladder import plan_for
    from warptile.plan import config_text, copy_text
    from warptile.rungs import rung

    place = choose_backend(backend)
    usual = LARGE_SIZE if place.name == "gpu" else SMALL_SIZE
    plan = plan_for(rung(name), (m or usual, n or usual, k or usual), place, dtype)
    lines, totals = _on_gpu(plan) if place.name == "gpu" else _emulated(plan, place)
    problem = plan.problem
    if as_json:
        document = {
            "schema": "warptile.profile/1", "backend": place.name, "rung": name, "config": dict(plan.config),
            "problem": {"m": problem.m, "n": problem.n, "k": problem.k, "dtype": problem.a.dtype.name},
            "counters": totals, "copy_bytes": sum(copy.moved_bytes for copy in plan.copies), "lines": lines,
        }  # fmt: skip
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
        return 0
    title = f"{name}, {problem.m} x {problem.n} x {problem.k} {problem.a.dtype.name}, {config_text(plan.config)}"
    sampled = any(line.samples for line in lines)
    table = Table(title=f"{title}; counted by {'Nsight Compute' if place.name == 'gpu' else 'the emulator'}")
    table.add_column("line", no_wrap=True)
    table.add_column("source", overflow="ellipsis", no_wrap=True, max_width=SOURCE_WIDTH)
    headings = ("warp\ninstructions", "global\nsectors", "shared\nwavefronts", "ideal", "ratio")
    for heading in (*headings, "samples") if sampled else headings:
        table.add_column(heading, justify="right", no_wrap=True)

    def row(line: LineCounts) -> list[str]:
        ratio = line.conflict_ratio
        cells = [f"{line.file}:{line.line}", line.text, f"{line.warp_instructions:,}", f"{line.global_sectors:,}",
                 f"{line.shared_wavefronts:,}", f"{line.shared_wavefronts_ideal:,}",
                 "" if ratio is None else f"{ratio:.2f}"]  # fmt: skip
        return [*cells, f"{line.samples:,}"] if sampled else cells

    for line in busiest(lines, top):
        table.add_row(*row(line))
    console = Console() if sys.stdout.isatty() else Console(width=160)
    console.print(table)
    for counter in sorted(totals):
        console.print(f"{counter:32} {totals[counter]:>16,.2f}", markup=False, highlight=False)
    for copy in plan.copies:
        console.print(f"before it, not counted: {copy_text(copy)}", markup=False, highlight=False)
    return 0


def _emulated(plan: Plan, place: Any) -> tuple[tuple[LineCounts, ...], dict[str, float]]:
    """Counters of one emulated launch."""
    from warptile.bench.lines import from_emulator
    from warptile.device_product import host_operands
    from warptile.execute import compiled

    report = place.emulate(plan, compiled(plan), host_operands(plan.problem), 1.0, 0.0)
    return from_emulator(report.lines), dict(report.counters)


def _on_gpu(plan: Plan) -> tuple[tuple[LineCounts, ...], dict[str, float]]:
    """Counters of one launch under Nsight Compute.

    Raises:
        ProfileError: it did not count.
    """
    from warptile.bench.lines import from_ncu
    from warptile.bench.ncu import ProfileError
    from warptile.bench.profile import LaunchRequest, profile
    from warptile.bench.workloads import to_key

    found = profile([LaunchRequest(plan.rung.name, to_key(plan.problem), dict(plan.config))], with_lines=True)
    one = found.profiles[0]
    if one.failed is not None:
        raise ProfileError(f"profile {plan.rung.name}: {one.failed}")
    return from_ncu(found.lines[0] if found.lines else ()), one.counters
