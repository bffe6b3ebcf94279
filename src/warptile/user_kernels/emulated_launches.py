"""`emulated`: every kernel of `warptile.kernel` on the emulator for a while, with findings as errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from warptile.emulator import select_checks
from warptile.user_kernels.kernel_report import KernelReport


@dataclass(frozen=True)
class EmulatedLaunches:
    """What launches are emulated with, and what came of them. None means what each kernel says itself.

    Attributes:
        arch: architecture to compile for and to emulate.
        schedule: as of `warptile.kernel`.
        checks: that are made.
        raises: a launch with findings other than warnings raises the first.
        reports: of all launches so far, in order.
    """

    arch: str | None
    schedule: str | None
    checks: frozenset[str] | None
    raises: bool
    reports: list[KernelReport] = field(default_factory=list)

    def add(self, report: KernelReport) -> None:
        """Note a report down. Raises as `KernelReport.raise_if_found`."""
        self.reports.append(report)
        if self.raises:
            report.raise_if_found()


_CURRENT: ContextVar[EmulatedLaunches | None] = ContextVar("warptile_emulated", default=None)


def current() -> EmulatedLaunches | None:
    """What launches are emulated with at the moment; None outside of `emulated`."""
    return _CURRENT.get()


@contextmanager
def emulated(
    *,
    arch: str | None = None,
    schedule: str | None = None,
    checks: Iterable[str] | None = None,
    ignore: Iterable[str] = (),
    model: str = "ptx",
    raises: bool = True,
) -> Iterator[EmulatedLaunches]:
    """Emulate every launch of a `warptile.kernel` inside the block, whatever its ``backend`` says.

    Args:
        arch, schedule: instead of those of the kernels.
        checks, ignore, model: of all launches, as of `warptile.kernel`; by default each kernel's own.
        raises: a launch whose findings are more than warnings raises the first of them.

    Returns:
        An object whose ``reports`` has the report of each launch.

    Raises:
        UnsupportedError: an unknown check or model.

    Example:
        ``with wt.emulated(schedule="random:1") as launches: program()``
    """
    left_open = checks is None and not ignore and model == "ptx"
    chosen = (
        None if left_open else select_checks(("default",) if checks is None else checks, ignore=ignore, model=model)
    )
    launches = EmulatedLaunches(arch, schedule, chosen, raises)
    token = _CURRENT.set(launches)
    try:
        yield launches
    finally:
        _CURRENT.reset(token)
