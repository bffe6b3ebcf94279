"""`warptile bench --suite emulator`: how fast the emulator is, as a table or as a record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from warptile.cli._names import instead
from warptile.cli._saving import hand_over
from warptile.cli._tables import Column, console_of, show

if TYPE_CHECKING:
    from warptile.bench.protocol.emulator_rates import EmulatorTimes


def run(*, only: Sequence[str], brief: bool, as_json: bool, saved: Path | None) -> int:
    """Measure and print; the exit status.

    Args:
        only: names of kernels instead of all.
        brief: fewer rounds.
        as_json: print a record, whose file name is said on standard error.
        saved: where to keep the record, or None.
    """
    from warptile.bench.emulator_suite import emulator_rounds
    from warptile.bench.emulator_suite.emulated_kernels import names
    from warptile.bench.protocol.environment import describe_processor, git_hash, now
    from warptile.bench.protocol.records import EmulatorRecord

    unknown = [name for name in only if name not in names()]
    if unknown:
        raise click.BadParameter(instead(unknown[0], names()), param_hint="'--only'")
    groups = []
    for name in only or names():
        click.echo(name, err=True)
        rounds = emulator_rounds.BRIEF_ROUNDS if brief else emulator_rounds.ROUNDS
        groups.append(emulator_rounds.measure(name, rounds=rounds))
    words = "".join(f" --only {name}" for name in only) + " --brief" * brief
    record = EmulatorRecord(
        date=now(), git_hash=git_hash(), command=f"warptile bench --suite emulator --json{words}",
        environment=describe_processor(), groups=tuple(groups),
    )  # fmt: skip
    hand_over(record, as_json=as_json, saved=saved)
    if not as_json:
        draw(groups)
    return 0


def draw(groups: Sequence[EmulatorTimes]) -> None:
    """Print the rates of all kernels."""
    from warptile.bench.protocol.emulator_rates import COMPILED, INTERPRETED

    def rates(way: str, *, checks: bool) -> list[str]:
        return [f"{each.rate(way, checks=checks) / 1e6:.0f}" for each in groups]

    columns = [
        Column("kernel", [each.kernel for each in groups], left=True),
        Column("interpreted", rates(INTERPRETED, checks=True)),
        Column("compiled", rates(COMPILED, checks=True)),
        Column("ratio", [f"{each.speedup(checks=True):.1f}" for each in groups]),
        Column("no checks: interpreted", rates(INTERPRETED, checks=False), rank=1),
        Column("compiled", rates(COMPILED, checks=False), rank=1),
        Column("ratio", [f"{each.speedup(checks=False):.1f}" for each in groups], rank=1),
    ]
    show(console_of(), "Emulator, millions of thread instructions a processor second, all checks", columns)
