"""`warptile bench --suite` of the planner's choices: measure the rows, print and plot them."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from warptile.cli._files import write_file
from warptile.cli._saving import print_document, save
from warptile.cli._tables import Column, console_of, said_of, show

if TYPE_CHECKING:
    from warptile.bench.protocol.row_result import RowResult
    from warptile.bench.protocol.suites import SuiteRow

SCHEMA = "warptile.bench/2"

ROW_COLUMNS = ((0, 0), (0, 12), (0, 0), (1, 0), (2, 0), (4, 0), (3, 0))
"""For each column of `class_summary.ROW_HEADER`: its rank (0 always stays, the highest is left out first) and the least
width that its text is folded to. A failed row has its reason in the column of the rate."""

CLASS_COLUMNS = ((0, 24), (4, 0), (3, 0), (0, 0), (2, 20), (1, 0), (0, 0))
"""The same for `class_summary.CLASS_HEADER`."""

Widths = Sequence[tuple[int, int]]


def run(suite: str, *, only: tuple[str, ...], brief: bool, plot: Path | None, as_json: bool, saved: Path | None) -> int:
    """Measure the rows of a suite; the exit status is 1 when one of them failed."""
    from warptile.bench.campaign.ladder_sweep import Bench
    from warptile.bench.protocol import measure_rows, suites
    from warptile.bench.protocol.environment import Sampler, describe, git_hash, now
    from warptile.bench.protocol.records import SuitesRecord, encode
    from warptile.bench.report import chart, class_summary

    rows = suites.chosen(suite, only)
    if not rows:
        names = ", ".join(repr(row.name) for row in suites.SUITES[suite])
        raise click.UsageError(f"--only: got {', '.join(only)}; the rows of {suite} are {names}")
    start_s = time.monotonic()
    with Sampler() as sampler:
        bench = Bench(sampler)
        _compile(rows, measure_rows.GpuModel(bench.device.arch, bench.device.name))
        results = [measure_rows.measure_or_fail(bench, suite, _said(row), brief=brief) for row in rows]
        bench.close()
    by_row = dict(zip(rows, results, strict=True))
    found = class_summary.class_summaries(
        [class_summary.MeasuredRow(row, by_row.get(row)) for row in suites.SUITES[suite]]
    )
    if plot is not None:
        title = f"{suite} on {bench.device.name}: speedup over cuBLASLt, or over another GEMM of ours"
        write_file(plot, chart.svg(title, results))
    if saved is not None:
        words = "".join(f" --only {shlex.quote(each)}" for each in only) + (" --brief" if brief else "")
        record = SuitesRecord(
            date=now(), git_hash=git_hash(), command=f"warptile bench --suite {suite}{words}",
            environment=describe(sampler.since(start_s), bench.baseline_library), contests=tuple(results),
        )  # fmt: skip
        save(encode(record).decode(), saved)
    if as_json:
        document = {
            "schema": SCHEMA, "suite": suite, "gpu": bench.device.name, "library": bench.baseline_library,
            "brief": brief, "rows": [_row(each) for each in results], "classes": found,
        }  # fmt: skip
        print_document(document)
    else:
        console = console_of()
        title = f"{suite}, {bench.device.name}, {bench.baseline_library}"
        _draw(
            console, title, class_summary.ROW_HEADER, [class_summary.row_cells(each) for each in results], ROW_COLUMNS
        )
        lines = [class_summary.class_cells(each) for each in found]
        _draw(console, f"targets of the rows in {suite}", class_summary.CLASS_HEADER, lines, CLASS_COLUMNS)
    return 1 if any(result.failed for result in results) else 0


def _compile(rows: tuple[SuiteRow, ...], device: Any) -> None:
    """All kernels in parallel, before anything is timed; what does not compile fails in its row."""
    from warptile.bench.protocol.measure_rows import sources_of
    from warptile.tuning.search import compile_ahead

    sources = sources_of(rows, device)
    click.echo(f"{len(sources)} kernels", err=True)
    for _ in compile_ahead(sources, device.arch):
        pass


def _said(row: SuiteRow) -> SuiteRow:
    """The row, once its name was said."""
    click.echo(row.name, err=True)
    return row


def _row(result: RowResult) -> dict[str, Any]:
    """A row with its rounds and the figures derived from them, for JSON."""
    from warptile.bench.protocol.row_result import LIBRARY, NEIGHBOUR, TORCH
    from warptile.bench.report import class_summary

    shares = {participant: result.speedup_over(participant) for participant in (LIBRARY, TORCH, NEIGHBOUR)}
    shown = {
        participant: {**msgspec.structs.asdict(share), "verdict": share.verdict}
        for participant, share in shares.items()
        if share is not None
    }
    name = class_summary.row_cells(result)[0]
    figures = {"name": name, "tflops": result.tflops(), "speed_over": shown}
    return {**figures, "weight_tb_per_s": class_summary.weight_rate(result), **msgspec.structs.asdict(result)}


def _draw(console: Console, title: str, header: Sequence[str], lines: Sequence[Any], widths: Widths) -> None:
    """Print as many columns as fit."""
    columns = [
        Column(heading, [escape(line[place]) for line in lines], rank=rank, left=place == 0, least=least)
        for place, (heading, (rank, least)) in enumerate(zip(header, widths, strict=True))
    ]
    left_out = show(console, title, columns)
    for line in said_of(left_out, "a wider terminal or --json has them"):
        console.print(line, markup=False, highlight=False)
    console.print()
