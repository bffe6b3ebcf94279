"""`warptile bench --suite` of quantized weights, scales, groups and batch invariance: tables, or a record."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape

from warptile.cli._saving import hand_over
from warptile.cli._tables import Column, console_of, said_of, show
from warptile.errors import WarptileError

if TYPE_CHECKING:
    from warptile.bench.feature_suites.feature_suites import FeatureSuite
    from warptile.bench.protocol.feature_times import FeatureTimes


def run(name: str, *, only: tuple[str, ...], brief: bool, as_json: bool, saved: Path | None) -> int:
    """Measure and print; the exit status is 1 when a row failed.

    Args:
        name: of the suite.
        only: words of the rows' names, instead of all rows.
        brief: fewer rounds.
        as_json: print a record, whose file name is said on standard error.
        saved: where to keep the record, or None.

    Raises:
        NoDeviceError: there is no GPU.
        UnsupportedError: torch is not installed, or sees no GPU.
    """
    from warptile.bench.feature_suites import feature_rounds
    from warptile.bench.feature_suites.feature_suites import FEATURE_SUITES
    from warptile.bench.protocol.environment import Sampler, describe, git_hash, now
    from warptile.bench.protocol.records import FeaturesRecord
    from warptile.gpu import driver

    suite = FEATURE_SUITES[name]
    rows = suite.chosen(only)
    if not rows:
        names = ", ".join(repr(row.name) for row in suite.rows)
        raise click.UsageError(f"--only: got {', '.join(only)}; the rows of {name} are {names}")
    driver.enter()
    maker = feature_rounds.here()
    rounds = feature_rounds.BRIEF_ROUNDS if brief else feature_rounds.ROUNDS
    results = []
    with feature_rounds.compiled_first(), Sampler() as sampler:
        click.echo(f"{len(rows)} rows: kernels are compiled", err=True)
        try:
            feature_rounds.compile_all(maker, rows)
        except WarptileError as error:
            click.echo(f"not ahead of time, because of {type(error).__name__}: {error}", err=True)
        start_s = time.monotonic()
        for row in rows:
            click.echo(row.name, err=True)
            results.append(feature_rounds.measure(maker, row, rounds=rounds))
    words = "".join(f" --only {shlex.quote(each)}" for each in only) + " --brief" * brief
    record = FeaturesRecord(
        date=now(), git_hash=git_hash(), command=f"warptile bench --suite {name}{words}",
        environment=describe(sampler.since(start_s), f"torch {maker.torch.__version__}"), suite=name,
        rows=tuple(results), failures=tuple(f"{row.row}: {row.failed}" for row in results if row.failed),
    )  # fmt: skip
    hand_over(record, as_json=as_json, saved=saved)
    if not as_json:
        draw(suite, results)
    return 1 if record.failures else 0


def draw(suite: FeatureSuite, results: list[FeatureTimes]) -> None:
    """Print the rows, and the goals of the suite."""
    from warptile.bench.report import feature_tables

    cells = [feature_tables.row_cells(suite, row) for row in results]
    _draw(suite.title, feature_tables.row_header(suite), cells)
    for line in feature_tables.failures(results):
        click.echo(f"failed: {line}", err=True)
    found = {row.row: row for row in results}
    _draw(f"goals of {suite.name}", feature_tables.GOAL_HEADER, feature_tables.goal_cells(suite, found))


def _draw(title: str, header: Any, lines: Any) -> None:
    columns = [
        Column(heading, [escape(line[place]) for line in lines], left=place == 0, rank=max(0, place - 2), least=16)
        for place, heading in enumerate(header)
    ]
    console = console_of()
    for line in said_of(show(console, title, columns), "a wider terminal or --json has them"):
        console.print(line, markup=False, highlight=False)
    console.print()
