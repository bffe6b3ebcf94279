"""Configurations that are tried for a problem in a running program, in turns, and which of them is settled on.

**Rounds.** In each round every configuration is launched once, in random order, so that drifting clocks, other work on
the GPU and the place of a call in the program fall on all alike. What is compared are differences of samples of about
the same time: where two configurations are equally fast, each difference is as likely positive as negative.

**Samples.** A sample is the time between two events around a launch. Where the stream still had other work when all
three were in its queue, that is the GPU's time alone. Where the stream was idle it also contains the host's time from
one driver call to the next, which varies by microseconds. Only samples of one kind are compared, and only those without
the host's time where there are enough of them. The first launch of a configuration may load code and does not count.

**Rule.** After the rounds `LOOKS` the differences are looked at:

* Another configuration replaces the planned one if it is faster at a significance of `CHANCE_OF_NONE` (one-sided
  Wilcoxon signed-rank test, `warptile.runtime.signed_rank`), and if the median difference is more than the least gain
  that counts: `WORTH_LEAVING_PLANNED` of the planned one's time, and `RESOLUTION_MS`. Of several the fastest does.
* One that gains less than that, at a significance of `CHANCE_OF_WORTH`, is tried no more.
* What is still undecided after the last round is left as it was planned, and counts as uncertain.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from statistics import median

from warptile.planning.accumulation_order import same_bits
from warptile.planning.plan import Plan, unlaunchable
from warptile.rungs.kernel_spec import Config
from warptile.rungs.wgmma import candidates
from warptile.rungs.wgmma.final import WGMMA_FINAL, illegal_on
from warptile.runtime.signed_rank import chance_above_zero

MOST_TRIALS, LOOKED_AT = 6, 128
"""Configurations that are tried for a problem, and of how many best predictions they are taken."""

LOOKS = (6, 12, 24, 48, 80)
"""Rounds after which samples are looked at. Few looks, each with about twice the samples of the one before: every look
is another chance to be wrong."""

ENOUGH_QUEUED = 12
"""Pairs of samples without the host's time from which on all others are left out."""

CHANCE_OF_NONE, CHANCE_OF_WORTH = 0.0005, 0.02
"""Chances to be wrong at one look about one configuration: that it is faster, and that it is not worth leaving the
planned one. With five others and five looks, equal configurations replace the planned one once in a hundred problems at
most; tests simulate it."""

WORTH_LEAVING_PLANNED = 0.03
"""Least gain that counts, as a share of the planned configuration's time: chosen, not measured. Less is not worth a
kernel of its own."""

RESOLUTION_MS = 0.001
"""Least gain that counts: events have a resolution of about 0.5 us (CUDA Driver API, ``cuEventElapsedTime``), and a
difference of two times has two such errors."""

_log = logging.getLogger("warptile")


@dataclass(frozen=True)
class TimedLaunch:
    """A time.

    Attributes:
        elapsed_ms: between the events.
        queued: the stream had other work until both events and the launch were in its queue.
    """

    elapsed_ms: float
    queued: bool


@dataclass
class Trial:
    """One configuration.

    Attributes:
        plan: with this configuration.
        launches: how often it was launched between events.
        samples: times that were taken, in order.
        alive: it can be launched.
        worth_it: it may still be worth leaving the planned one.
    """

    plan: Plan
    launches: int = 0
    samples: list[TimedLaunch] = field(default_factory=list)
    alive: bool = True
    worth_it: bool = True

    def take(self, elapsed_ms: float, *, queued: bool) -> None:
        """Note a time, unless its events were out of order."""
        if elapsed_ms > 0:
            self.samples.append(TimedLaunch(elapsed_ms, queued))

    def drop(self, why: object) -> None:
        """It cannot be launched."""
        self.alive = False
        _log.info("not tried any more: %s: %s", self.plan.config, why)


class Trials:
    """The configurations of one problem, the planned one first.

    Attributes:
        tried: the configurations.
        round: the present one; the first launches are in round 0.
        best: number of the one to run; the planned one until another has replaced it.
        over: nothing is left to try.
        certain: the samples decided it, rather than the end of the rounds.
    """

    def __init__(self, plan: Plan) -> None:
        self.tried = [Trial(plan)]
        self.round, self.best, self.over, self.certain = 0, 0, False, False
        self._order: list[int] | None = None
        self._random = random.Random(0)

    def add_others(self, *, any_order: bool) -> None:
        """Add those of the least predicted times; without ``any_order`` only those whose results have the same bits."""
        plan = self.tried[0].plan
        plans = (replace(plan, config=config, origin="tried") for config in _ranked(plan) if config != plan.config)
        kept = (each for each in plans if any_order or same_bits(plan, each))
        legal = (each for each in kept if unlaunchable(each.kernel, each.device) is None)
        self.tried += map(Trial, islice(legal, MOST_TRIALS - 1))

    def next(self, available: Collection[int], *, waiting: bool) -> int | None:
        """The configuration to launch next; None where there is none now, or any more (`over`).

        Args:
            available: numbers of those that can be launched.
            waiting: times of launches are still to come.
        """
        while not self.over:
            while self._order:
                number = self._order.pop()
                if self.tried[number].alive and number in available:
                    return number
            if self.round in LOOKS and waiting:
                return None
            self._next_round()
        return None

    def _next_round(self) -> None:
        if self.round in LOOKS:
            self._look()
        others = [number for number in self._others if self.tried[number].worth_it]
        if not others or self.best or self.round == LOOKS[-1]:
            self.over = True
            self.certain = self.certain or not others
            return
        self.round += self._order is not None
        self._order = [0, *others]
        self._random.shuffle(self._order)

    @property
    def _others(self) -> list[int]:
        return [number for number, trial in enumerate(self.tried) if number and trial.alive]

    def _look(self) -> None:
        gains_ms = {number: self._gains_ms(number) for number in self._others if self.tried[number].worth_it}
        faster = []
        for number, gained_ms in gains_ms.items():
            trial = self.tried[number]
            if not gained_ms:
                if not (trial.samples and self.tried[0].samples):
                    trial.drop("no times could be taken")
                continue
            least_ms = max(WORTH_LEAVING_PLANNED * self.time_ms(0), RESOLUTION_MS)
            if median(gained_ms) > least_ms and chance_above_zero(gained_ms) < CHANCE_OF_NONE:
                faster.append(number)
            elif chance_above_zero([least_ms - each for each in gained_ms]) < CHANCE_OF_WORTH:
                trial.worth_it = False
        left = [number for number, gained_ms in gains_ms.items() if gained_ms and self.tried[number].worth_it]
        fastest = max(left, key=lambda number: median(gains_ms[number]), default=None)
        if fastest in faster or (faster and self.round == LOOKS[-1]):
            self.best, self.certain = max(faster, key=lambda number: median(gains_ms[number])), True

    def _gains_ms(self, number: int) -> list[float]:
        """By how much a configuration was faster than the planned one: the difference of the first samples, of the
        second, and so on; samples with the host's time and those without are counted apart."""

        def gains_ms(*, queued: bool) -> list[float]:
            planned, other = (
                [each.elapsed_ms for each in self.tried[place].samples if each.queued == queued]
                for place in (0, number)
            )
            return [one - another for one, another in zip(planned, other, strict=False)]

        without_host = gains_ms(queued=True)
        return without_host if len(without_host) >= ENOUGH_QUEUED else without_host + gains_ms(queued=False)

    @property
    def measured(self) -> list[int]:
        """Numbers of those whose times can be compared."""
        return [number for number, trial in enumerate(self.tried) if trial.alive and self._gains_ms(number)]

    def time_ms(self, number: int) -> float:
        """Of one that was measured, in the rounds of all: the planned one's median sample less the median difference.
        Medians of its own samples would be of its rounds, and rounds drift."""
        return median(each.elapsed_ms for each in self.tried[0].samples) - median(self._gains_ms(number))


def _ranked(plan: Plan) -> Iterable[Config]:
    """Configurations for the plan's problem, those of the least predicted times first."""
    if plan.rung is WGMMA_FINAL:  # a plan chooses from a few of them
        return islice(candidates.ranked(plan.problem, illegal_on(plan.device), plan.device), LOOKED_AT)
    return plan.rung.alternatives(plan.problem, plan.device)
