"""`warptile bench --suite epilogues`: what epilogues cost a GEMM, as a table or as a record."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from warptile.cli._saving import hand_over
from warptile.cli._tables import Column, console_of, show

if TYPE_CHECKING:
    from warptile.bench.protocol.epilogue_times import EpilogueTimes


def run(*, brief: bool, as_json: bool, saved: Path | None) -> int:
    """Measure and print; the exit status.

    Args:
        brief: fewer rounds.
        as_json: print a record, whose file name is said on standard error.
        saved: where to keep the record, or None.

    Raises:
        NoDeviceError: there is no GPU.
    """
    from warptile.bench.protocol import epilogue_rounds
    from warptile.bench.protocol.environment import Sampler, describe, git_hash, now
    from warptile.bench.protocol.records import EpiloguesRecord
    from warptile.gpu import driver

    driver.enter()
    rounds = epilogue_rounds.BRIEF_ROUNDS if brief else epilogue_rounds.ROUNDS
    start_s = time.monotonic()
    groups = []
    with Sampler() as sampler:
        for shape in epilogue_rounds.SHAPES:
            click.echo(f"{shape}", err=True)
            groups.append(epilogue_rounds.measure(*shape, rounds=rounds))
    record = EpiloguesRecord(
        date=now(), git_hash=git_hash(), command=f"warptile bench --suite epilogues{' --brief' * brief}",
        environment=describe(sampler.since(start_s)), groups=tuple(groups),
    )  # fmt: skip
    hand_over(record, as_json=as_json, saved=saved)
    if not as_json:
        for group in groups:
            draw(group)
    return 0


def draw(group: EpilogueTimes) -> None:
    """Print the times at one shape."""
    times = sorted(group.times, key=lambda each: (len(each.computes), each.computes, each.median_us))
    columns = [
        Column("computes", [each.computes or "acc" for each in times], left=True),
        Column("by", [each.name for each in times], left=True),
        Column("us", [f"{each.median_us:.1f}" for each in times]),
        Column("all rounds", [f"{min(each.rounds_us):.1f}–{max(each.rounds_us):.1f}" for each in times], rank=1),
        Column("ratio", [f"{group.ratio(each):.3f}" for each in times]),
    ]
    show(console_of(), f"{group.m} x {group.n} x {group.k}, {group.dtype}, to warptile's GEMM alone", columns)
