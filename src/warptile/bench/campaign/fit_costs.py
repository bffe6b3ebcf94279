"""Fit `warptile.arch.WgmmaCosts` to records of searches: ``python -m warptile.bench.campaign.fit_costs [RECORD ...]``.

Without names, to those that the constants in `warptile.arch` are fitted to. Whoever changes the constants names the
records there: `warptile.arch.WGMMA_COSTS_RECORDS`.

A search has, for every problem, the times of a dozen configurations and more. Constants are changed one by one, by
smaller and smaller factors, as long as that lowers the loss: how much slower than the best measured configuration the
predicted choice is (softly: close predictions share the choice), and a little how far predicted times are off. Problems
are dealt into halves by a hash of their names; constants fitted to one half are judged on the other.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, median

from warptile.arch import WGMMA_COSTS_RECORDS, WgmmaCosts
from warptile.bench.campaign.ship_table import values_of
from warptile.bench.protocol.records import AnyRecord, SearchesRecord, committed, latest
from warptile.device import KNOWN, REFERENCE, DeviceLimits
from warptile.errors import UnsupportedError
from warptile.planning.rates import rates_of
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.wgmma import cost

RUNG = "wgmma-final"
SHARPNESS = 40.0
"""Exponent of the softened choice: a prediction 3 % slower has a third of the weight."""

ACCURACY_WEIGHT = 0.2
"""Weight of the mean |log| error of predicted times, relative to the loss of choices."""

FACTORS = (1.5, 1.2, 1.1, 1.05, 1.02)
KEPT = ("clock_hz", "dram_bytes_per_s", "watts")
"""What is not fitted: figures of the GPU, and what all else scales with."""

RANGE = 5.0
"""A constant may become so many times larger or smaller. Without limits they drift: sums of unlikely parts describe the
same runs a little better, and explain nothing."""


@dataclass(frozen=True)
class SearchTimes:
    """Milliseconds of each configuration that a search timed on one problem, and the GPU that it ran on."""

    problem: Problem
    runs: tuple[tuple[Config, float], ...]
    device: DeviceLimits = REFERENCE

    @property
    def best(self) -> float:
        """Milliseconds of the fastest configuration."""
        return min(time for _, time in self.runs)


def named(names: Sequence[str], among: Iterable[AnyRecord]) -> list[SearchesRecord]:
    """The records of searches called ``names``, oldest first.

    Raises:
        UnsupportedError: there is none of a name.
    """
    known = {record.id: record for record in among if isinstance(record, SearchesRecord)}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UnsupportedError(
            f"record {unknown[0]}: no search among the records is called so; there are {', '.join(known) or 'none'}"
        )
    return [record for name, record in known.items() if name in names]


def measured_in(records: Iterable[AnyRecord]) -> list[SearchTimes]:
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
    for record, searched in searches.values():
        timed = [each for each in searched.tried if each.brief_ms is not None]
        longer = median([median(each.rounds_ms) / each.brief_ms for each in timed if each.rounds_ms] or [1.0])
        runs = tuple(
            (values_of(each.config), median(each.rounds_ms) if each.rounds_ms else each.brief_ms * longer)
            for each in timed
        )
        if len(runs) > 1:
            found.append(SearchTimes(searched.problem.problem(), runs, KNOWN.get(record.environment.gpu, REFERENCE)))
    return found


def predictions(measured: SearchTimes, costs: WgmmaCosts) -> list[float]:
    """Milliseconds of each configuration."""
    terms = (cost.terms(measured.problem, config, measured.device, costs) for config, _ in measured.runs)
    return [cost.total(each, costs) / 1e3 for each in terms]


def share_of_best(measured: SearchTimes, costs: WgmmaCosts) -> float:
    """Speed of the configuration that is predicted to be fastest, of the best one's."""
    found = predictions(measured, costs)
    return measured.best / measured.runs[found.index(min(found))][1]


def loss(data: Sequence[SearchTimes], costs: WgmmaCosts) -> float:
    """What `fit` minimizes: how much slower the softened choices are than the best measured configurations,
    plus a share of the error of predicted times."""
    total = 0.0
    for each in data:
        found = predictions(each, costs)
        least = min(found)
        weights = [(least / time) ** SHARPNESS for time in found]
        chosen = sum(w * math.log(time / each.best) for w, (_, time) in zip(weights, each.runs, strict=True))
        off = fmean(abs(math.log(p / time)) for p, (_, time) in zip(found, each.runs, strict=True))
        total += chosen / sum(weights) + ACCURACY_WEIGHT * off
    return total / len(data)


def fit(data: Sequence[SearchTimes], start: WgmmaCosts) -> WgmmaCosts:
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


def halves(data: Sequence[SearchTimes]) -> tuple[list[SearchTimes], list[SearchTimes]]:
    """Problems dealt by a hash of their names."""

    def first(each: SearchTimes) -> bool:
        return hashlib.sha256(repr(each.problem).encode()).digest()[0] % 2 == 0

    return [each for each in data if first(each)], [each for each in data if not first(each)]


def geomean(data: Sequence[SearchTimes], costs: WgmmaCosts) -> float:
    """The geometric mean of `share_of_best`."""
    return math.exp(fmean(math.log(share_of_best(each, costs)) for each in data))


def main(names: Sequence[str] = WGMMA_COSTS_RECORDS) -> None:
    """Fit the constants to the records called ``names``, and print them with how well they choose."""
    data = measured_in(named(names, committed()))
    costs = rates_of(REFERENCE).wgmma_costs
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
    main(sys.argv[1:] or WGMMA_COSTS_RECORDS)
