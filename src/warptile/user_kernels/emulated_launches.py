"""Users' kernels on the emulator, and `emulated`: for a while every one of them, with findings as errors."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial

from warptile.bench.profiling.source_files import files_of
from warptile.codegen.kernel_names import instance_name
from warptile.emulator import emulate, select_checks
from warptile.emulator import explore as emulate_all
from warptile.emulator.async_ops.cp_async import check_schedule
from warptile.errors import ArgumentError
from warptile.launch.access import NOTHING, Access
from warptile.launch.spec import LaunchSpec
from warptile.runtime.kernel_file import KernelFile
from warptile.user_kernels.array_memory import Regions
from warptile.user_kernels.kernel_report import KernelReport

_log = logging.getLogger("warptile")


@dataclass(frozen=True)
class EmulatedLaunches:
    """What launches are emulated with, and what came of them. None means what each kernel says itself.

    Attributes:
        arch: architecture to compile for and to emulate.
        schedule: as of `warptile.kernel`.
        explore: under how many random schedules each launch runs again.
        checks: that are made.
        raises: a launch with findings other than warnings raises the first.
        reports: of all launches so far, in order.
    """

    arch: str | None
    schedule: str | None
    explore: int | None
    checks: frozenset[str] | None
    raises: bool
    reports: list[KernelReport] = field(default_factory=list)

    def add(self, report: KernelReport) -> None:
        """Note a report down. Raises as `KernelReport.raise_if_found`."""
        self.reports.append(report)
        if self.raises:
            report.raise_if_found()


def checks_of(checks: Iterable[str], *, ignore: Iterable[str], model: str, volatile: str) -> frozenset[str]:
    """As `warptile.emulator.select_checks`; several names may also be one string, with commas between them."""
    given = [each.replace(",", " ").split() if isinstance(each, str) else list(each) for each in (checks, ignore)]
    return select_checks(given[0], ignore=given[1], model=model, volatile=volatile)


def seeds_of(explore: int) -> int:
    """Under how many random schedules a launch runs again.

    Raises:
        ArgumentError: no whole number from 0.
    """
    if isinstance(explore, bool) or not isinstance(explore, int) or explore < 0:
        raise ArgumentError(f"explore: got {explore!r}; it takes a whole number from 0, such as explore=16")
    return explore


def emulate_launch(
    kernel: KernelFile,
    spec: LaunchSpec,
    regions: Regions,
    *,
    arch: str,
    schedule: str,
    explore: int,
    checks: frozenset[str],
    unwritten: Collection[str] = (),
) -> KernelReport:
    """Emulate a launch on arrays in host memory, which are written in place.

    Args:
        kernel: the kernel and its file.
        spec: the launch.
        regions: the memory of its operands.
        arch, schedule, checks: as of `warptile.emulator.emulate`; inside `emulated`, schedule and checks are its own.
        explore: as of `warptile.kernel`, likewise.
        unwritten: operands that hold nothing before the launch.

    Raises:
        EmulationError: what the emulator cannot run; or inside `emulated`, what the checks have found.
    """
    asked = current()
    schedule = (asked and asked.schedule) or schedule
    seeds = explore if asked is None or asked.explore is None else asked.explore
    run = partial(emulate_all, seeds=seeds) if seeds else partial(emulate, collect=True)
    found = run(
        kernel.module, spec, {region.name: region.host_bytes() for region in regions.all}, arch=arch,
        accesses={
            region.name: Access(
                writes=not region.read_only,
                lead_bytes=region.lead,
                holds=NOTHING if region.name in unwritten else None,
            )
            for region in regions.all
        },
        schedule=schedule,
        checks=checks if asked is None or asked.checks is None else asked.checks,
    )  # fmt: skip
    report = KernelReport(instance_name(kernel.entry), spec, arch, schedule, found, files_of(kernel))
    if asked is not None:
        asked.add(report)
    elif not report.ok:
        _log.warning(
            "%s: findings: %s; print(report) shows them, report.raise_if_found() raises", report.name, report.verdict
        )
    return report


_CURRENT: ContextVar[EmulatedLaunches | None] = ContextVar("warptile_emulated", default=None)


def current() -> EmulatedLaunches | None:
    """What launches are emulated with at the moment; None outside of `emulated`."""
    return _CURRENT.get()


@contextmanager
def emulated(
    *,
    arch: str | None = None,
    schedule: str | None = None,
    explore: int | None = None,
    checks: Iterable[str] | None = None,
    ignore: Iterable[str] = (),
    model: str = "ptx",
    volatile: str = "strong",
    raises: bool = True,
) -> Iterator[EmulatedLaunches]:
    """Emulate every launch of a `warptile.kernel` inside the block, whatever its ``backend`` says.

    Args:
        arch, schedule, explore: instead of those of the kernels.
        checks, ignore, model, volatile: of all launches, as of `warptile.kernel`; by default each kernel's own.
        raises: a launch whose findings are more than warnings raises the first of them.

    Returns:
        An object whose ``reports`` has the report of each launch.

    Raises:
        UnsupportedError: an unknown check, model or schedule.
        ArgumentError: ``explore`` is no whole number from 0.

    Example:
        ``with wt.emulated(schedule="random:1") as launches: program()``
    """
    chosen = None
    if checks is not None or ignore or (model, volatile) != ("ptx", "strong"):
        chosen = checks_of(("default",) if checks is None else checks, ignore=ignore, model=model, volatile=volatile)
    seeds = None if explore is None else seeds_of(explore)
    if schedule is not None:
        check_schedule(schedule)
    launches = EmulatedLaunches(arch, schedule, seeds, chosen, raises)
    token = _CURRENT.set(launches)
    try:
        yield launches
    finally:
        _CURRENT.reset(token)
