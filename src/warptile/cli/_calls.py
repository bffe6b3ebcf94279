"""`warptile bench --suite calls`: what a call costs the host, as a table or JSON."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from warptile.cli._tables import Column, console_of, show

if TYPE_CHECKING:
    from warptile.bench.protocol.call_cost import CallCost

SCHEMA = "warptile.calls/1"
SIZE = 64
"""Extents of the product unless others are asked for: so small that the GPU never keeps the host waiting."""


def run(sizes: tuple[int, ...], *, brief: bool, as_json: bool) -> int:
    """Measure and print; the exit status.

    Raises:
        NoDeviceError: there is no GPU.
    """
    from warptile.bench.protocol import call_cost
    from warptile.bench.protocol.environment import describe, git_hash, now
    from warptile.gpu import driver

    driver.enter()
    rounds = call_cost.BRIEF_ROUNDS if brief else call_cost.ROUNDS
    # No clocks and power are sampled meanwhile: a second thread would cost the calls time.
    found = {
        size: call_cost.measure(list(call_cost.participants_of(size)), driver.synchronize, rounds=rounds)
        for size in sizes or (SIZE,)
    }
    if as_json:
        document = {
            "schema": SCHEMA, "date": now(), "git_hash": git_hash(), "environment": describe(None),
            "calls": call_cost.CALLS, "sizes": [{"size": size, "costs": costs} for size, costs in found.items()],
        }  # fmt: skip
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
    else:
        for size, costs in found.items():
            draw(size, costs)
    return 0


def draw(size: int, costs: list[CallCost]) -> None:
    """Print the costs for one size."""
    console = console_of()
    ratios = [each.median_ratio for each in costs]
    columns = [
        Column("call", [each.name for each in costs], left=True),
        Column("host us", [f"{each.median_us:.2f}" for each in costs]),
        Column("all rounds", [f"{min(each.rounds_us):.2f}–{max(each.rounds_us):.2f}" for each in costs], rank=1),
        Column("ratio", ["–" if ratio is None else f"{ratio:.2f}" for ratio in ratios]),
        Column("to", [each.beside or "" for each in costs], rank=2, left=True),
    ]
    show(console, f"host microseconds of a call, {size} x {size} x {size}", columns)
