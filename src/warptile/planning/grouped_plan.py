"""The plan of a grouped GEMM: one kernel, whose configuration follows from how many rows groups have on average."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from warptile.device import DeviceLimits
from warptile.errors import UnsupportedError
from warptile.launch.spec import LaunchSpec
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config, KernelSpec
from warptile.rungs.wgmma import grouped
from warptile.rungs.wgmma.grouped import GroupedProblem


@dataclass(frozen=True)
class GroupedPlan:
    """A grouped GEMM on a device.

    Attributes:
        grouped: what is computed.
        config: the kernel's tunables.
        device: the GPU, or the part of it that the launch may occupy.
    """

    grouped: GroupedProblem
    config: tuple[tuple[str, int], ...]
    device: DeviceLimits

    @staticmethod
    def of(problem: GroupedProblem, device: DeviceLimits, config: tuple[tuple[str, int], ...] | None) -> GroupedPlan:
        """The plan in a configuration, by default the one for such groups.

        Raises:
            UnsupportedError: the kernel does not run in that configuration.
        """
        usual = grouped.config_for(problem)
        reason = None if config is None else grouped.reason_against(problem, dict(config))
        if config is not None and reason is not None:
            raise UnsupportedError(
                f"config: got {dict(config)}; {reason}. Leave it out, or give one such as config={dict(usual)}"
            )
        return GroupedPlan(problem, tuple(usual.items()) if config is None else config, device)

    @property
    def arch(self) -> str:
        """Architecture to compile for."""
        return self.device.arch

    @property
    def problem(self) -> Problem:
        """The GEMM as the kernel sees it, all groups together."""
        return self.grouped.view.problem

    @property
    def writes_all_of_d(self) -> bool:
        """Whether every element of D is in a group: rows behind the last group's are not."""
        return self.grouped.along == "k"

    @cached_property
    def kernel(self) -> KernelSpec:
        """All that a launch needs."""
        config: Config = dict(self.config)
        return grouped.resolve(self.grouped, config, self.device)

    def launch(
        self, entry: str, alpha: float = 1, beta: float = 0, numbers: Mapping[str, float] | None = None
    ) -> LaunchSpec:
        """The launch of the compiled kernel whose lowered symbol is ``entry``."""
        return self.kernel.launch(entry, alpha, beta, numbers)
