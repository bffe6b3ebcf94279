"""`warptile bench` of products as plans take them: measured, printed, written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from warptile.bench.contest import Contest
    from warptile.bench.suites import Row

SCHEMA = "warptile.bench/2"


def run(suite: str, *, only: tuple[str, ...], brief: bool, plot: Path | None, as_json: bool) -> int:
    """Measure the rows of a suite; the exit status is 1 when one of them failed."""
    from warptile.bench import chart, comparison, standing, suites
    from warptile.bench.environment import Sampler
    from warptile.bench.sweep import Bench

    rows = suites.chosen(suite, only)
    if not rows:
        names = ", ".join(repr(row.name) for row in suites.SUITES[suite])
        raise click.UsageError(f"--only: got {', '.join(only)}; the rows of {suite} are {names}")
    with Sampler() as sampler:
        bench = Bench(sampler)
        _compile(rows, comparison.Device(bench.device.arch, bench.device.name))
        contests = [comparison.attempt(bench, suite, _said(row), brief=brief) for row in rows]
        bench.close()
    by_row = dict(zip(rows, contests, strict=True))
    found = standing.standings([standing.Measured(row, by_row.get(row)) for row in suites.SUITES[suite]])
    if plot is not None:
        title = f"{suite} on {bench.device.name}: speed over cuBLASLt's best, or the row beside"
        plot.write_text(chart.svg(title, contests))
    if as_json:
        document = {
            "schema": SCHEMA, "suite": suite, "gpu": bench.device.name, "library": bench.baseline_library,
            "brief": brief, "rows": [_row(each) for each in contests], "classes": found,
        }  # fmt: skip
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
    else:
        console = Console() if sys.stdout.isatty() else Console(width=160)
        title = f"{suite}, {bench.device.name}, {bench.baseline_library}"
        console.print(_table(title, standing.HEADER, [standing.line(each) for each in contests]))
        console.print(
            _table(
                f"targets of the rows in {suite}", standing.CLASS_HEADER, [standing.class_line(each) for each in found]
            )
        )
    return 1 if any(contest.failed for contest in contests) else 0


def _compile(rows: tuple[Row, ...], device: Any) -> None:
    """All kernels in parallel, before anything is timed; what does not compile fails in its row."""
    from warptile.bench.comparison import sources_of
    from warptile.tune import compile_ahead

    sources = sources_of(rows, device)
    click.echo(f"{len(sources)} kernels", err=True)
    for _ in compile_ahead(sources, device.arch):
        pass


def _said(row: Row) -> Row:
    """The row, once its name was said."""
    click.echo(row.name, err=True)
    return row


def _row(contest: Contest) -> dict[str, Any]:
    """A row with its figures beside its rounds."""
    from warptile.bench import standing
    from warptile.bench.contest import BESIDE, LIBRARY, TORCH

    shares = {who: contest.share(who) for who in (LIBRARY, TORCH, BESIDE)}
    shown = {
        who: {**msgspec.structs.asdict(share), "verdict": share.verdict}
        for who, share in shares.items()
        if share is not None
    }
    name = standing.line(contest)[0]
    figures = {"name": name, "tflops": contest.tflops(), "speed_over": shown}
    return {**figures, "weight_tb_per_s": standing.weight_rate(contest), **msgspec.structs.asdict(contest)}


def _table(title: str, header: Any, lines: Any) -> Table:
    made = Table(title=title)
    for place, heading in enumerate(header):
        made.add_column(heading, justify="left" if place == 0 else "right")
    for line in lines:
        made.add_row(*line)
    return made
