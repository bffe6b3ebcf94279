"""`warptile bench`: products and rungs beside the vendor's library, in interleaved rounds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console
from rich.table import Table

from warptile.cli import _suites

if TYPE_CHECKING:
    from warptile.bench.measurements import BaselineTime, Cell

BASELINES = ("cublaslt", "torch")
LADDERS = {"ladder": (4096,), "sizes": (1024, 2048, 4096, 8192, 16384)}
"""Suites of rungs -> extents of their square products."""

SUITES = ("squares", "llm", "ragged", "small", "types")
"""Suites of products as plans take them: `warptile.bench.suites`."""


def baseline_names(context: click.Context, parameter: click.Parameter, text: str) -> tuple[str, ...]:
    """The baselines of ``--baseline``."""
    names = tuple(part.strip() for part in text.split(","))
    unknown = [name for name in names if name not in BASELINES]
    if unknown:
        raise click.BadParameter(f"got {unknown[0]!r}; it takes {', '.join(BASELINES)}, such as cublaslt,torch")
    return names


@click.command("bench")
@click.option("--suite", type=click.Choice((*LADDERS, *SUITES)), default="ladder", show_default=True)
@click.option("--size", "sizes", multiple=True, type=click.IntRange(1), help="ladder, sizes: these extents instead.")
@click.option("--rung", "names", multiple=True, metavar="NAME", help="ladder, sizes: only this rung; may be repeated.")
@click.option("--baseline", "baselines", default="cublaslt", show_default=True, callback=baseline_names,
              help="ladder, sizes: which to show.")  # fmt: skip
@click.option("--only", multiple=True, metavar="TEXT", help="Other suites: only rows named so, such as '4096^3 bf16'.")
@click.option("--brief", is_flag=True, help="Other suites: short rounds, a look in two minutes.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Other suites: write an SVG picture.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with every round.")
def command(
    suite: str,
    sizes: tuple[int, ...],
    names: tuple[str, ...],
    baselines: tuple[str, ...],
    only: tuple[str, ...],
    brief: bool,
    plot: Path | None,
    as_json: bool,
) -> int:
    """Time products beside cuBLASLt's best algorithm: sustained, interleaved, operands beyond L2, with spread.

    ladder and sizes compare rungs; a rung is called faster or slower only when every round says so. The other suites
    compare what warptile.matmul runs, with torch beside it, against the targets of the project; faster and slower mean
    that the 95 % interval of the rounds' median leaves equality out.
    """
    if suite in SUITES:
        return _suites.run(suite, only=only, brief=brief, plot=plot, as_json=as_json)
    from warptile.bench.environment import Sampler
    from warptile.bench.sweep import Bench, plan_cells
    from warptile.rungs import RUNGS, rung

    chosen = tuple(rung(name) for name in names) if names else tuple(RUNGS.values())
    results: list[tuple[BaselineTime, list[Cell]]] = []
    with Sampler() as sampler:
        bench = Bench(sampler)
        for key, taking in plan_cells(chosen, bench.device.arch, sizes or LADDERS[suite]):
            click.echo(f"{key.shape} {key.dtype}, accumulated in {key.accumulator}: cuBLASLt", err=True)
            base = bench.baseline(key)
            cells = []
            for each in taking:
                click.echo(f"  {each.name}", err=True)
                cells.append(bench.cell(each, key, base))
            results.append((base, cells))
        bench.close()
    if as_json:
        document = {
            "schema": "warptile.bench/1", "gpu": bench.device.name, "library": bench.baseline_library,
            "baselines": [base for base, _ in results], "cells": [cell for _, cells in results for cell in cells],
        }  # fmt: skip
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
    else:
        console = Console() if sys.stdout.isatty() else Console(width=140)
        for base, cells in results:
            console.print(table(base, cells, with_torch="torch" in baselines))
    return 1 if any(cell.failed for _, cells in results for cell in cells) else 0


def verdict(cell: Cell) -> str:
    """What the rounds agree on."""
    ratio = cell.ratio
    if cell.failed:
        return cell.failed
    if ratio is None:
        return cell.note or "not measured"
    if ratio.low > 1:
        return "faster"
    return "slower" if ratio.high < 1 else "no difference beyond the spread"


def table(base: BaselineTime, cells: list[Cell], *, with_torch: bool) -> Table:
    """Rungs of one problem, the baseline's own rows last."""
    key = base.problem
    made = Table(title=f"{key.shape} {key.dtype}, accumulated in {key.accumulator}; {base.best}")
    made.add_column("rung")
    for heading in ("ms", "TFLOP/s", "of cuBLASLt", "spread"):
        made.add_column(heading, justify="right")
    made.add_column("")
    for cell in cells:
        ratio = cell.ratio
        if ratio is None or cell.time_ms is None or cell.tflops is None:
            made.add_row(cell.rung, "–", "–", "–", "–", verdict(cell))
            continue
        spread = f"{100 * ratio.low:.1f}–{100 * ratio.high:.1f} %"
        made.add_row(
            cell.rung, f"{cell.time_ms:.4f}", f"{cell.tflops:.1f}", f"{100 * ratio.median:.1f} %", spread, verdict(cell)
        )
    made.add_section()
    rows = [("cuBLASLt, best", base.best_ms), ("cuBLASLt, first", base.first_ms)]
    rows += [("torch.matmul", base.torch_ms)] if with_torch else []
    for label, time_ms in rows:
        if time_ms is None:
            made.add_row(label, "–", "–", "–", "", "not measured")
            continue
        share = f"{100 * base.best_ms / time_ms:.1f} %"
        made.add_row(label, f"{time_ms:.4f}", f"{key.tflops(time_ms):.1f}", share, "", "")
    return made
