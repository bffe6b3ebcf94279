"""Configurations that are tried for a problem in a running program, in turns, and which of them is the fastest.

The time of a configuration is the least of its samples: whatever disturbs a launch (other streams, a lower clock, a
first launch that loads code) adds time, so the least is the best estimate of the undisturbed one (Chen and Revels,
"Robust benchmarking in noisy environments", arXiv:1608.04295). Configurations take turns, as the state of the chip
drifts. A pair of events out of order does not count. Another configuration replaces the planned one if it is faster by
more than `WORTH_LEAVING_PLANNED` of its time and by more than `RESOLUTION_MS`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from itertools import islice

from warptile.planning.accumulation_order import same_bits
from warptile.planning.plan import Plan, unlaunchable
from warptile.rungs.wgmma import candidates
from warptile.rungs.wgmma.final import illegal_on

MOST_TRIALS, LOOKED_AT = 6, 128
"""Configurations that are tried for a problem, and of how many best predictions they are taken."""

SAMPLES, MOST_LAUNCHES = 3, 6
"""Times that are taken of each configuration, and the most launches for them."""

WORTH_LEAVING_PLANNED = 0.03
"""Least share of its time by which another configuration must be faster than the planned one: chosen, not measured, so
that what a single launch varies by does not replace a prediction."""

RESOLUTION_MS = 0.001
"""Least difference that counts: events have a resolution of about 0.5 us (CUDA Driver API, ``cuEventElapsedTime``), and
a difference of two times has two such errors."""

_log = logging.getLogger("warptile")


@dataclass
class Trial:
    """One configuration.

    Attributes:
        plan: with this configuration.
        launches: how often it was launched between events.
        samples_ms: times that were taken.
        alive: it is still tried.
    """

    plan: Plan
    launches: int = 0
    samples_ms: list[float] = field(default_factory=list)
    alive: bool = True

    @property
    def time_ms(self) -> float:
        """The least sample."""
        return min(self.samples_ms)

    def take(self, elapsed_ms: float) -> None:
        """Note a time, unless its events were out of order."""
        if elapsed_ms > 0:
            self.samples_ms.append(elapsed_ms)

    def drop(self, why: object) -> None:
        """Try it no more."""
        self.alive = False
        _log.info("not tried any more: %s: %s", self.plan.config, why)


class Trials:
    """The configurations of one problem, the planned one first."""

    def __init__(self, plan: Plan) -> None:
        self.tried = [Trial(plan)]

    def add_others(self, *, any_order: bool) -> None:
        """Add those of the least predicted times; without ``any_order`` only those whose results have the same bits."""
        plan = self.tried[0].plan
        ranked = islice(candidates.ranked(plan.problem, illegal_on(plan.device), plan.device), LOOKED_AT)
        plans = (replace(plan, config=config, origin="tried") for config in ranked if config != plan.config)
        kept = (each for each in plans if any_order or same_bits(plan, each))
        legal = (each for each in kept if unlaunchable(each.kernel, each.device) is None)
        self.tried += map(Trial, islice(legal, MOST_TRIALS - 1))

    def next(self, available: Collection[int], under_way: list[Trial]) -> int | None:
        """Of the configurations that lack times, the one that was launched least; None where there is none.

        Args:
            available: numbers of those that can be launched.
            under_way: those of launches whose times are still to come.
        """
        if sum(trial.alive for trial in self.tried) == 1:
            return None
        lacking = [
            (trial.launches, number)
            for number, trial in enumerate(self.tried)
            if trial.alive and number in available and trial.launches < MOST_LAUNCHES
            and len(trial.samples_ms) + sum(each is trial for each in under_way) < SAMPLES
        ]  # fmt: skip
        return min(lacking)[1] if lacking else None

    @property
    def measured(self) -> list[Trial]:
        """Those that have times."""
        return [trial for trial in self.tried if trial.alive and trial.samples_ms]

    def best(self) -> Trial:
        """The one to settle on."""
        planned = self.tried[0]
        if not planned.samples_ms:
            return planned
        fastest = min(self.measured, key=lambda trial: trial.time_ms)
        gained_ms = planned.time_ms - fastest.time_ms
        return fastest if gained_ms > max(WORTH_LEAVING_PLANNED * planned.time_ms, RESOLUTION_MS) else planned
