"""Fit `warptile.arch.WgmmaCosts` to the records of searches: ``python -m warptile.bench.fit_costs``.

A search has, for every problem, the times of a dozen configurations and more. Constants are changed one by one, by
smaller and smaller factors, as long as that lowers the loss: how much slower than the best measured configuration the
predicted choice is (softly: close predictions share the choice), and a little how far predicted times are off. Problems
are dealt into halves by a hash of their names; constants fitted to one half are judged on the other.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, median

from warptile.arch import H200, WgmmaCosts
from warptile.bench.records import AnyRecord, SearchesRecord, committed, latest
from warptile.bench.shipping import values_of
from warptile.problem import Problem
from warptile.rungs import wgmma_cost
from warptile.rungs.rung import Config

RUNG = "wgmma-final"
SHARPNESS = 40.0
"""How decidedly the softened choice takes the lowest prediction: 3 % of time is a factor of 3."""

ACCURACY_WEIGHT = 0.2
"""Of the mean distance of predicted times, as a logarithm, beside the loss of choices."""

FACTORS = (1.5, 1.2, 1.1, 1.05, 1.02)
KEPT = ("clock_hz", "dram_bytes_per_s", "watts")
"""What is not fitted: figures of the GPU, and what all else scales with."""

RANGE = 5.0
"""A constant may become so many times larger or smaller. Without limits they drift: sums of unlikely parts describe the
same runs a little better, and explain nothing."""


@dataclass(frozen=True)
class Measured:
    """One problem and its configurations with their milliseconds."""

    problem: Problem
    runs: tuple[tuple[Config, float], ...]

    @property
    def best(self) -> float:
        """Of the fastest one."""
        return min(time for _, time in self.runs)


def measured_in(records: Iterable[AnyRecord]) -> list[Measured]:
    """All problems that searches of the rung were over, the newest of each, with the configurations that were timed.

    The brief look at a configuration finds a chip that may be cooler than in the rounds that follow: looks are
    multiplied by what the rounds of those that came so far took more, in the median.
    """
    searches = latest(
        (each for each in records if isinstance(each, SearchesRecord)),
        lambda record: [each for each in record.searches if each.rung == RUNG],
        lambda searched: searched.problem,
    )
    found = []
    for _, searched in searches.values():
        timed = [each for each in searched.tried if each.brief_ms is not None]
        longer = median([median(each.rounds_ms) / each.brief_ms for each in timed if each.rounds_ms] or [1.0])
        runs = tuple(
            (values_of(each.config), median(each.rounds_ms) if each.rounds_ms else each.brief_ms * longer)
            for each in timed
        )
        if len(runs) > 1:
            found.append(Measured(searched.problem.problem(), runs))
    return found


def predictions(measured: Measured, costs: WgmmaCosts) -> list[float]:
    """Milliseconds of each configuration."""
    return [
        wgmma_cost.total(wgmma_cost.terms(measured.problem, config, costs), costs) / 1e3 for config, _ in measured.runs
    ]


def share_of_best(measured: Measured, costs: WgmmaCosts) -> float:
    """Speed of the configuration that is predicted to be fastest, of the best one's."""
    found = predictions(measured, costs)
    return measured.best / measured.runs[found.index(min(found))][1]


def loss(data: Sequence[Measured], costs: WgmmaCosts) -> float:
    """What the text above says, lower is better."""
    total = 0.0
    for each in data:
        found = predictions(each, costs)
        least = min(found)
        weights = [(least / time) ** SHARPNESS for time in found]
        chosen = sum(w * math.log(time / each.best) for w, (_, time) in zip(weights, each.runs, strict=True))
        off = fmean(abs(math.log(p / time)) for p, (_, time) in zip(found, each.runs, strict=True))
        total += chosen / sum(weights) + ACCURACY_WEIGHT * off
    return total / len(data)


def fit(data: Sequence[Measured], start: WgmmaCosts) -> WgmmaCosts:
    """The constants that a search from ``start`` ends at."""
    best, least = start, loss(data, start)
    names = [name for name in asdict(start) if name not in KEPT]
    for factor in FACTORS:
        improved = True
        while improved:
            improved = False
            for name in names:
                for change in (factor, 1 / factor):
                    value = getattr(best, name) * change
                    if not 1 / RANGE < value / getattr(start, name) < RANGE:
                        continue
                    tried = replace(best, **{name: value})
                    found = loss(data, tried)
                    if found < least - 1e-6:
                        best, least, improved = tried, found, True
    return best


def halves(data: Sequence[Measured]) -> tuple[list[Measured], list[Measured]]:
    """Problems dealt by a hash of their names."""

    def first(each: Measured) -> bool:
        return hashlib.sha256(repr(each.problem).encode()).digest()[0] % 2 == 0

    return [each for each in data if first(each)], [each for each in data if not first(each)]


def geomean(data: Sequence[Measured], costs: WgmmaCosts) -> float:
    """Of `share_of_best`."""
    return math.exp(fmean(math.log(share_of_best(each, costs)) for each in data))


def main() -> None:
    """Print what is found."""
    data = measured_in(committed())
    costs = H200.wgmma_costs
    print(f"{len(data)} problems, {sum(len(each.runs) for each in data)} runs; as it is: {geomean(data, costs):.4f}")
    for train, test in (halves(data), halves(data)[::-1]):
        fitted = fit(train, costs)
        print(
            f"fitted to {len(train)}: {geomean(train, fitted):.4f}; on the other {len(test)}: "
            f"{geomean(test, fitted):.4f}, worst {min(share_of_best(each, fitted) for each in test):.3f}",
            flush=True,
        )
    fitted = fit(data, costs)
    print(f"fitted to all: {geomean(data, fitted):.4f}")
    for name, value in asdict(fitted).items():
        print(f"        {name}={value:.4g},")


if __name__ == "__main__":
    main()
