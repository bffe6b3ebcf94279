"""`warptile bench --suite calls`: what a call costs the host, as a table or as a record."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from warptile.cli._saving import hand_over
from warptile.cli._tables import Column, console_of, show

if TYPE_CHECKING:
    from warptile.bench.protocol.host_cost import HostCosts

SIZE = 64
"""Extents of the GEMM unless others are asked for: so small that the GPU never keeps the host waiting."""


def run(sizes: tuple[int, ...], *, brief: bool, as_json: bool, saved: Path | None) -> int:
    """Measure and print; the exit status.

    Args:
        sizes: extents of the GEMM, and widths of the chain, instead of the usual ones.
        brief: fewer rounds.
        as_json: print a record, whose file name is said on standard error.
        saved: where to keep the record, or None.

    Raises:
        NoDeviceError: there is no GPU.
    """
    from warptile.bench.protocol import call_chains, call_cost
    from warptile.bench.protocol.environment import describe, git_hash, now
    from warptile.bench.protocol.host_cost import CHAIN, MATMUL, HostCosts
    from warptile.bench.protocol.records import CallsRecord
    from warptile.gpu import driver

    driver.enter()
    rounds = call_cost.BRIEF_ROUNDS if brief else call_cost.ROUNDS
    groups = []
    # No clocks and power are sampled meanwhile: a second thread would cost the calls time.
    for size in sizes or (SIZE,):
        found = call_cost.measure(list(call_cost.participants_of(size)), driver.synchronize, rounds=rounds)
        groups.append(HostCosts(workload=MATMUL, size=size, calls=call_cost.CALLS, costs=found))
    for width in sizes or call_chains.WIDTHS:
        chains = list(call_chains.participants_of(width))
        if not chains:
            break
        found = call_cost.measure(
            chains, driver.synchronize, rounds=rounds, calls=call_chains.CHAINS, finished=True
        )  # fmt: skip
        groups.append(
            HostCosts(
                workload=CHAIN, size=width, calls=call_chains.CHAINS, costs=found, layers=call_chains.LAYERS
            )
        )  # fmt: skip
    words = "".join(f" --size {size}" for size in sizes) + (" --brief" if brief else "")
    record = CallsRecord(
        date=now(), git_hash=git_hash(), command=f"warptile bench --suite calls --json{words}",
        environment=describe(None), groups=tuple(groups),
    )  # fmt: skip
    hand_over(record, as_json=as_json, saved=saved, in_report=True)
    if not as_json:
        for group in groups:
            draw(group)
    return 0


def title_of(group: HostCosts) -> str:
    """What was measured, in one line."""
    if group.layers == 1:
        return f"one call of {group.size} x {group.size} x {group.size}, from call to return"
    return f"{group.layers} layers relu(x @ w) of width {group.size} at M = 1, bf16, until the GPU has finished"


def draw(group: HostCosts) -> None:
    """Print the costs of one workload, a section for each kind of arrays."""
    costs = group.costs
    ratios = [group.ratio(each) for each in costs]
    columns = [
        Column("arrays", [each.arrays for each in costs], rank=3, left=True),
        Column("call", [each.name for each in costs], left=True),
        Column("us", [f"{each.median_us:.1f}" for each in costs]),
        Column("all rounds", [f"{min(each.rounds_us):.1f}–{max(each.rounds_us):.1f}" for each in costs], rank=1),
        Column("ratio", ["–" if ratio is None else f"{ratio:.2f}" for ratio in ratios]),
        Column("to", [each.beside or "" for each in costs], rank=2, left=True),
    ]
    last = [i for i, (one, other) in enumerate(pairwise(costs)) if one.arrays != other.arrays]
    show(console_of(), title_of(group), columns, sections=last)
