"""`warptile bench --suite planning`: how long plans of new problems take, as a table or as a record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from warptile.cli._names import instead
from warptile.cli._saving import hand_over
from warptile.cli._tables import Column, console_of, show

if TYPE_CHECKING:
    from warptile.bench.protocol.planning_times import PlanningTimes


def run(*, only: Sequence[str], brief: bool, as_json: bool, saved: Path | None) -> int:
    """Measure and print; the exit status.

    Args:
        only: kinds of problems instead of all.
        brief: fewer problems.
        as_json: print a record, whose file name is said on standard error.
        saved: where to keep the record, or None.
    """
    from warptile.bench.protocol import planning_rounds
    from warptile.bench.protocol.environment import describe_processor, git_hash, now
    from warptile.bench.protocol.records import PlanningRecord

    kinds = list(planning_rounds.KINDS)
    unknown = [kind for kind in only if kind not in kinds]
    if unknown:
        raise click.BadParameter(instead(unknown[0], kinds), param_hint="'--only'")
    problems = planning_rounds.BRIEF_PROBLEMS if brief else planning_rounds.PROBLEMS
    groups = tuple(planning_rounds.measure(kind, problems=problems) for kind in only or kinds)
    words = "".join(f" --only '{kind}'" for kind in only) + " --brief" * brief
    record = PlanningRecord(
        date=now(), git_hash=git_hash(), command=f"warptile bench --suite planning --json{words}",
        environment=describe_processor(), groups=groups,
    )  # fmt: skip
    hand_over(record, as_json=as_json, saved=saved)
    if not as_json:
        draw(groups)
    return 0


def draw(groups: Sequence[PlanningTimes]) -> None:
    """Print the times of all kinds."""
    columns = [
        Column("problems", [each.kind for each in groups], left=True),
        Column("median", [f"{each.median_us:.0f}" for each in groups]),
        Column("a tenth below", [f"{each.quantile_us(1):.0f}" for each in groups]),
        Column("a tenth above", [f"{each.quantile_us(9):.0f}" for each in groups]),
        Column("first of its kind", [f"{each.first_us:.0f}" for each in groups], rank=1),
    ]
    show(console_of(), "Microseconds of host time to plan a problem", columns)
