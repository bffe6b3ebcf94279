"""`warptile bench`: time GEMMs and rungs against cuBLASLt in interleaved rounds."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape

from warptile.bench.feature_suites.feature_suites import FEATURE_SUITES
from warptile.bench.protocol.suites import SUITES
from warptile.cli import _calls, _emulator, _epilogues, _features, _planning, _suites, _tensor_parallel
from warptile.cli._files import FILE_TO_WRITE
from warptile.cli._gpu import timed_on_gpu
from warptile.cli._names import RUNG, instead, one_of
from warptile.cli._saving import SAVE, print_document, save
from warptile.cli._tables import Column, console_of, said_of, show

if TYPE_CHECKING:
    from warptile.bench.protocol.measurements import BaselineTime, LadderCell

BASELINES = ("cublaslt", "torch")
LADDERS = {"ladder": (4096,), "sizes": (1024, 2048, 4096, 8192, 16384)}
"""Suites of rungs -> extents of their square problems."""
CALLS = "calls"
"""The suite of host costs."""
EMULATOR = "emulator"
"""The suite of how fast the emulator is."""
PLANNING = "planning"
"""The suite of how long plans take."""
EPILOGUES = "epilogues"
"""The suite of what epilogues add to a GEMM."""
TP = "tp"
"""The suite of tensor-parallel GEMMs, for torchrun."""
NAMES = (*LADDERS, CALLS, PLANNING, EPILOGUES, EMULATOR, TP, *FEATURE_SUITES, *SUITES)
"""All suites."""


def baseline_names(context: click.Context, parameter: click.Parameter, text: str) -> tuple[str, ...]:
    """The baselines of ``--baseline``."""
    names = tuple(part.strip() for part in text.split(","))
    unknown = [name for name in names if name not in BASELINES]
    if unknown:
        raise click.BadParameter(f"{instead(unknown[0], BASELINES)}")
    return names


@click.command("bench")
@click.option("--suite", type=one_of(*NAMES), default="ladder", metavar="NAME", show_default=True,
              help=f"What is measured: {', '.join(NAMES)}.")  # fmt: skip
@click.option(
    "--size", "sizes", multiple=True, type=click.IntRange(1), help="ladder, sizes, calls: these extents instead."
)
@click.option("--rung", "names", multiple=True, metavar="NAME", type=RUNG,
              help="ladder, sizes: only this rung; may be repeated.")  # fmt: skip
@click.option("--baseline", "baselines", default="cublaslt", show_default=True, callback=baseline_names,
              help="ladder, sizes: which to show.")  # fmt: skip
@click.option("--only", multiple=True, metavar="TEXT", help="Other suites: only rows named so, such as '4096^3 bf16'.")
@click.option("--brief", is_flag=True, help="All but ladder and sizes: short rounds, a look in two minutes.")
@click.option("--plot", type=FILE_TO_WRITE, help="Other suites: write an SVG picture.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with every round.")
@SAVE
@timed_on_gpu("bench", "`warptile bench --suite planning` times plans, and `warptile bench --suite emulator` emulation")
def command(
    suite: str,
    sizes: tuple[int, ...],
    names: tuple[str, ...],
    baselines: tuple[str, ...],
    only: tuple[str, ...],
    brief: bool,
    plot: Path | None,
    as_json: bool,
    saved: Path | None,
) -> int:
    """Time GEMMs against cuBLASLt's fastest algorithm. Needs a GPU, but for emulator and planning.

    Rounds are interleaved, sustained, and over operands that L2 cannot hold.

    calls: host microseconds of a call, and of chains of small GEMMs, beside torch and whatever else is installed. With
    --json it prints a record. What --save keeps is a record of every suite.

    planning: host microseconds to plan a problem that was never planned before, by types and layouts.

    epilogues: GEMMs with fused epilogues beside the GEMM alone, torch.compile and cuBLASLt's own.

    quantized, scales, grouped, invariance: weights of 4 and 8 bits, float8 with scales in GPU memory, grouped GEMMs and
    batch-invariant ones, each beside torch or another GEMM of warptile, and with the project's goals. They need torch.

    emulator: millions of thread instructions a second that the emulator executes, of kernels of different kinds.

    tp: tensor-parallel GEMMs on several GPUs, beside NCCL and torch's fused operators; start it with
    torchrun --nproc-per-node 2 -m warptile.cli.main bench --suite tp.

    ladder and sizes compare rungs; a rung is called faster or slower only when every round says so. The other suites
    compare what warptile.matmul runs with cuBLASLt and torch, and with the project's targets; faster and slower mean
    that the 95 % confidence interval of the median excludes equality.

    \b
    Examples:
      warptile bench --rung wgmma-final --size 4096
      warptile bench --suite squares --brief
      warptile bench --suite calls
      warptile bench --suite grouped --only ragged
      warptile bench --suite emulator --brief --only softmax
      warptile bench --suite llm --save llm.json
    """
    if suite == CALLS:
        return _calls.run(sizes, brief=brief, as_json=as_json, saved=saved)
    if suite == EMULATOR:
        return _emulator.run(only=only, brief=brief, as_json=as_json, saved=saved)
    if suite == PLANNING:
        return _planning.run(only=only, brief=brief, as_json=as_json, saved=saved)
    if suite == EPILOGUES:
        return _epilogues.run(brief=brief, as_json=as_json, saved=saved)
    if suite == TP:
        return _tensor_parallel.run(only=only, brief=brief, as_json=as_json, saved=saved)
    if suite in FEATURE_SUITES:
        return _features.run(suite, only=only, brief=brief, as_json=as_json, saved=saved)
    if suite in SUITES:
        return _suites.run(suite, only=only, brief=brief, plot=plot, as_json=as_json, saved=saved)
    from warptile.bench.campaign.ladder_sweep import Bench, plan_cells
    from warptile.bench.protocol.environment import Sampler, describe, git_hash, now
    from warptile.bench.protocol.records import LadderRecord, encode
    from warptile.rungs import RUNGS, rung

    chosen = tuple(rung(name) for name in names) if names else tuple(RUNGS.values())
    results: list[tuple[BaselineTime, list[LadderCell]]] = []
    start_s = time.monotonic()
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
    if saved is not None:
        words = [*(f" --size {size}" for size in sizes), *(f" --rung {name}" for name in names)]
        record = LadderRecord(
            date=now(), git_hash=git_hash(), command=f"warptile bench --suite {suite}{''.join(words)}",
            environment=describe(sampler.since(start_s), bench.baseline_library), regime="sustained",
            cells=tuple(cell for _, cells in results for cell in cells), baselines=tuple(base for base, _ in results),
        )  # fmt: skip
        save(encode(record).decode(), saved)
    if as_json:
        document = {
            "schema": "warptile.bench/1", "gpu": bench.device.name, "library": bench.baseline_library,
            "baselines": [base for base, _ in results], "cells": [cell for _, cells in results for cell in cells],
        }  # fmt: skip
        print_document(document)
    else:
        console = console_of()
        for base, cells in results:
            draw(console, base, cells, with_torch="torch" in baselines)
    return 1 if any(cell.failed for _, cells in results for cell in cells) else 0


def verdict(cell: LadderCell) -> str:
    """What the rounds agree on."""
    ratio = cell.ratio
    if cell.failed:
        return cell.failed
    if ratio is None:
        return cell.note or "not measured"
    if ratio.low > 1:
        return "faster"
    return "slower" if ratio.high < 1 else "no difference beyond the spread"


def draw(console: Console, base: BaselineTime, cells: list[LadderCell], *, with_torch: bool) -> None:
    """Print the rungs of one problem, the baseline's own rows last."""
    key = base.problem
    rows = [row(cell) for cell in cells]
    library = [("cuBLASLt, best", base.best_ms), ("cuBLASLt, first", base.first_ms)]
    library += [("torch.matmul", base.torch_ms)] if with_torch else []
    for label, time_ms in library:
        if time_ms is None:
            rows.append((label, "–", "–", "–", "", "not measured"))
        else:
            share = f"{base.best_ms / time_ms:.3f}x"
            rows.append((label, f"{time_ms:.4f}", f"{key.tflops(time_ms):.1f}", share, "", ""))
    names, times, rates, shares, rounds, said = zip(*rows, strict=True)
    columns = [
        Column("rung", names, left=True),
        Column("ms", times, rank=2),
        Column("TFLOP/s", rates),
        Column("speedup over\ncuBLASLt", shares),
        Column("of all rounds", rounds, rank=1),
        Column("", [escape(each) for each in said], left=True, least=20),
    ]
    title = f"{key.shape} {key.dtype}, accumulated in {key.accumulator}; {base.best}"
    left_out = show(console, title, columns, sections=[len(cells) - 1])
    for line in said_of(left_out, "a wider terminal or --json has them"):
        console.print(line, markup=False, highlight=False)
    console.print()


def row(cell: LadderCell) -> tuple[str, str, str, str, str, str]:
    """The cells of one rung."""
    ratio = cell.ratio
    if ratio is None or cell.time_ms is None or cell.tflops is None:
        return (cell.rung, "–", "–", "–", "–", verdict(cell))
    spread = f"{ratio.low:.3f}–{ratio.high:.3f}"
    return (cell.rung, f"{cell.time_ms:.4f}", f"{cell.tflops:.1f}", f"{ratio.median:.3f}x", spread, verdict(cell))
