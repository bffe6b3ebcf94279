"""What calls cost the host, as data: microseconds of participants that took turns."""

from __future__ import annotations

import statistics

import msgspec

MATMUL, CHAIN = "matmul", "mlp"
"""Workloads of a `HostCosts`: calls of square GEMMs, and chains of layers."""


class CallCost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Microseconds of one call.

    Attributes:
        name: the participant, such as ``"warptile.matmul"``.
        arrays: whose arrays it takes, such as ``"torch"``.
        rounds_us: of each round, over its calls.
        beside: the participant that it is compared with, or None.
    """

    name: str
    arrays: str
    rounds_us: tuple[float, ...]
    beside: str | None = None

    @property
    def median_us(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.rounds_us)


class HostCosts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Participants that did the same work in interleaved rounds.

    Attributes:
        workload: `MATMUL`: a GEMM of ``size`` x ``size`` x ``size``, timed from call to return; `CHAIN`: layers of
            ``size`` x ``size`` at one row, timed until the GPU has finished.
        size: extent.
        calls: of each participant in a round.
        costs: the participants'.
        layers: of a chain.
    """

    workload: str
    size: int
    calls: int
    costs: tuple[CallCost, ...]
    layers: int = 1

    def cost(self, name: str) -> CallCost | None:
        """The cost of one participant, None if it did not take part."""
        return next((each for each in self.costs if each.name == name), None)

    def ratio(self, cost: CallCost) -> float | None:
        """The median over rounds of a participant's cost over that of the one it is compared with."""
        other = self.cost(cost.beside) if cost.beside else None
        if other is None:
            return None
        return statistics.median(mine / its for mine, its in zip(cost.rounds_us, other.rounds_us, strict=True))
