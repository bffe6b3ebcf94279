"""The plan of a GEMM whose A is gathered from ranks while it is multiplied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from warptile.device import DeviceLimits
from warptile.errors import UnsupportedError
from warptile.launch.spec import LaunchSpec
from warptile.planning.plan import Plan
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config, KernelSpec
from warptile.rungs.wgmma import gathered
from warptile.rungs.wgmma.final import WGMMA_FINAL
from warptile.rungs.wgmma.gathered import Shards


def whole_k(plain: Plan) -> bool:
    """Whether each element of D is added up by one thread of wgmma-final, in the order of K: then its bits depend on
    neither the tile nor the schedule."""
    return plain.rung is WGMMA_FINAL and not plain.config["STREAM"] and plain.config["SPLITS"] == 1


@dataclass(frozen=True)
class GatheredPlan:
    """A GEMM that waits for the shards of its A.

    Attributes:
        problem: the GEMM of all rows.
        shards: how its rows are divided.
        config: wgmma-final's tunables.
        device: the GPU, or the part of it that the launch may occupy.
    """

    problem: Problem
    shards: Shards
    config: tuple[tuple[str, int], ...]
    device: DeviceLimits

    @staticmethod
    def of(problem: Problem, shards: Shards, device: DeviceLimits, config: Config | None = None) -> GatheredPlan:
        """The plan in a configuration, by default the one of least predicted time.

        Raises:
            UnsupportedError: no configuration can gather A, or not this one.
        """
        chosen = gathered.config_for(problem, device) if config is None else config
        if chosen is None:
            raise UnsupportedError(
                f"a: no configuration of wgmma-final gathers A of {problem.a.dtype.name} on {device.name} while it "
                "multiplies; gather it first, then call matmul(a, b)"
            )
        reason = None if config is None else gathered.reason_against(problem, chosen, device)
        if reason is not None:
            raise UnsupportedError(f"config: got {dict(chosen)}; {reason}. Leave it out, or gather A first")
        return GatheredPlan(problem, shards, tuple(chosen.items()), device)

    @staticmethod
    def like(plain: Plan, shards: Shards) -> GatheredPlan | None:
        """A plan with the bits of the plain GEMM's, in its configuration if that can gather; None where the plain one
        splits K among CTAs, which changes the order of additions, or no configuration can gather."""
        if not whole_k(plain):
            return None
        usable = gathered.reason_against(plain.problem, plain.config, plain.device) is None
        config = plain.config if usable else gathered.config_for(plain.problem, plain.device)
        return None if config is None else GatheredPlan(plain.problem, shards, tuple(config.items()), plain.device)

    @property
    def arch(self) -> str:
        """Architecture to compile for."""
        return self.device.arch

    @cached_property
    def kernel(self) -> KernelSpec:
        """All that a launch needs."""
        return gathered.resolve(self.problem, self.shards, dict(self.config), self.device)

    def launch(
        self, entry: str, alpha: float = 1, beta: float = 0, numbers: Mapping[str, float] | None = None
    ) -> LaunchSpec:
        """The launch of the compiled kernel whose lowered symbol is ``entry``."""
        return self.kernel.launch(entry, alpha, beta, numbers)
