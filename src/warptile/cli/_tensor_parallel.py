"""`warptile bench --suite tp`: tensor-parallel GEMMs on the ranks that torchrun started, as a table or as a record."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from warptile.cli._saving import hand_over
from warptile.cli._tables import Column, console_of, show

if TYPE_CHECKING:
    from warptile.bench.protocol.feature_times import FeatureTimes


def run(*, only: tuple[str, ...], brief: bool, as_json: bool, saved: Path | None) -> int:
    """Measure on all ranks and print on the first; the exit status.

    Args:
        only: words of the rows' names, instead of all rows.
        brief: fewer rounds.
        as_json: print a record, whose file name is said on standard error.
        saved: where to keep the record, or None.

    Raises:
        NoDeviceError: there is no GPU.
        UnsupportedError: torch is not installed, or the process was not started by torchrun.
    """
    from warptile.bench.feature_suites import tensor_parallel
    from warptile.bench.protocol.environment import Sampler, describe, git_hash, now
    from warptile.bench.protocol.records import FeaturesRecord
    from warptile.gpu import driver

    rows = [row for row in tensor_parallel.ROWS if not only or any(each in row.name for each in only)]
    if not rows:
        names = ", ".join(repr(row.name) for row in tensor_parallel.ROWS)
        raise click.UsageError(f"--only: got {', '.join(only)}; the rows of tp are {names}")
    driver.enter()
    ranks = tensor_parallel.here()
    first = ranks.group.rank() == 0
    rounds = tensor_parallel.BRIEF_ROUNDS if brief else tensor_parallel.ROUNDS
    results = []
    with Sampler() as sampler:
        start_s = time.monotonic()
        for row in rows:
            if first:
                click.echo(row.name, err=True)
            results.append(tensor_parallel.measure(ranks, row, rounds=rounds))
        environment = describe(sampler.since(start_s), f"torch {ranks.torch.__version__}, {ranks.size} GPUs")
    size = ranks.size
    ranks.torch.distributed.destroy_process_group()
    if not first:
        return 0
    words = "".join(f" --only {shlex.quote(each)}" for each in only) + " --brief" * brief
    record = FeaturesRecord(
        date=now(), git_hash=git_hash(), environment=environment, suite=f"{tensor_parallel.SUITE}{size}",
        command=f"torchrun --nproc-per-node {size} -m warptile.cli.main bench --suite tp{words}",
        rows=tuple(results),
    )  # fmt: skip
    hand_over(record, as_json=as_json, saved=saved)
    if not as_json:
        for each in results:
            draw(each)
    return 0


def draw(row: FeatureTimes) -> None:
    """Print the times of a row."""
    from warptile.bench.feature_suites.tensor_parallel import ALONE

    alone = next((each.median_us for each in row.times if each.name == ALONE), None)
    columns = [
        Column("", [each.name for each in row.times], left=True),
        Column("us", ["–" if each.median_us is None else f"{each.median_us:.1f}" for each in row.times]),
        Column("of the GEMM alone", [
            "–" if each.median_us is None or alone is None else f"{each.median_us / alone:.3f}" for each in row.times
        ]),
        Column("not run because", [each.failed for each in row.times], left=True, rank=1),
    ]  # fmt: skip
    show(console_of(), f"{row.row}, bf16", columns)
