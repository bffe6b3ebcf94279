"""Rungs whose cost model ranks a short list of candidates."""

from __future__ import annotations

from warptile.device import REFERENCE, DeviceLimits
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.rung import Rung


class RankedRung(Rung):
    """A rung whose configurations are its `candidates`, in the order of `estimate_us`."""

    estimates = True

    def default_config(self, problem: Problem, device: DeviceLimits = REFERENCE) -> Config:
        """As `Rung.default_config`: the legal one of the least predicted time."""
        return self._default_of(self._ranked(problem, device), problem, device)

    def alternatives(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.alternatives`."""
        ranked = self._ranked(problem, device)
        own = self._default_of(ranked, problem, device)
        return tuple(config for config in ranked if config != own)

    def _default_of(self, ranked: list[Config], problem: Problem, device: DeviceLimits) -> Config:
        return next((config for config in ranked if self.illegal(problem, config, device) is None), ranked[0])

    def _ranked(self, problem: Problem, device: DeviceLimits) -> list[Config]:
        """Candidates, the one of the least predicted time first."""
        return sorted(self.candidates(problem, device), key=lambda config: self.estimate_us(problem, config, device))
