"""How long plans take, as data: host time of problems that were never planned before."""

from __future__ import annotations

import statistics

import msgspec


class PlanningTimes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Plans of one kind of problem, each made once.

    Attributes:
        kind: types, layouts and whatever else plans of a kind share.
        first_us: microseconds of the kind's first plan in a process.
        each_us: microseconds of each later one, once the machine code of cost models is made.
    """

    kind: str
    first_us: float
    each_us: tuple[float, ...]

    @property
    def median_us(self) -> float:
        """The median of the later plans."""
        return statistics.median(self.each_us)

    def quantile_us(self, tenth: int) -> float:
        """So many tenths of the later plans take less."""
        return statistics.quantiles(self.each_us, n=10)[tenth - 1]
