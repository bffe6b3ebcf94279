"""Runs one launch under several schedules and lists what any of them shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from warptile.emulator.findings import DEFAULT_CHECKS, merged
from warptile.emulator.lanes import Array
from warptile.emulator.run_grid import EmulationReport, emulate
from warptile.launch.access import Access
from warptile.launch.spec import LaunchSpec
from warptile.ptx.instruction import PtxModule


def explore(
    module: PtxModule,
    spec: LaunchSpec,
    operands: Mapping[str, Array],
    *,
    accesses: Mapping[str, Access] | None = None,
    arch: str,
    schedule: str = "latest",
    checks: frozenset[str] = DEFAULT_CHECKS,
    seeds: int,
) -> EmulationReport:
    """Run one kernel under ``schedule`` and under ``random:1`` to ``random:SEEDS``, each from the same operands.

    The other arguments are those of `warptile.emulator.emulate`.

    Returns:
        The report under ``schedule``, whose findings are those of all runs. `EmulationFinding.schedule` is the first
        schedule that shows a finding; `emulate` with it shows it again.
    """
    reports = []
    for number in range(seeds, -1, -1):  # ``schedule`` last: what it computes is what the operands hold afterwards
        arrays = operands if number == 0 else {name: array.copy() for name, array in operands.items()}
        reports.append(
            emulate(
                module, spec, arrays, accesses=accesses, arch=arch, checks=checks, collect=True,
                schedule=f"random:{number}" if number else schedule,
            )
        )  # fmt: skip
    reports.reverse()
    return replace(reports[0], findings=merged(report.findings for report in reports))
