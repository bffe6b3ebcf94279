"""Fit `warptile.arch.WgmmaCosts` to what searches measured: ``python -m warptile.bench.fit_costs TABLE.jsonl ...``.

The table is what ``warptile tune`` keeps: for every problem the times of a dozen configurations. Constants are changed
one by one, by smaller and smaller factors, as long as that lowers the loss: how much slower than the best measured
configuration the predicted choice is (softly: close predictions share the choice), and a little how far predicted times
are off. Problems are dealt into halves by a hash of their names; constants fitted to one half are judged on the other.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, median

import msgspec

from warptile.arch import H200, WgmmaCosts
from warptile.dtypes import dtype
from warptile.problem import Problem
from warptile.rungs import wgmma_cost
from warptile.rungs.rung import Config
from warptile.tuned import Entry, ProblemClass

RUNG = "wgmma-final"
SHARPNESS = 40.0
"""How decidedly the softened choice takes the lowest prediction: 3 % of time is a factor of 3."""

ACCURACY_WEIGHT = 0.2
"""Of the mean distance of predicted times, as a logarithm, beside the loss of choices."""

FACTORS = (1.5, 1.2, 1.1, 1.05, 1.02)
KEPT = ("clock_hz", "dram_bytes_per_s", "watts")
"""What is not fitted: figures of the GPU, what all else scales with, and how sharply the slowest part decides. Left free,
they drift: sums of unlikely parts then describe the same runs a little better, and explain nothing."""

RANGE = 5.0
"""A constant may become so many times larger or smaller than it was: all of them are something that one can think of."""


Times = dict[tuple[tuple[str, int], ...], float]
"""Milliseconds of configurations."""


@dataclass(frozen=True)
class Measured:
    """One problem and its configurations with their milliseconds."""

    problem: Problem
    runs: tuple[tuple[Config, float], ...]

    @property
    def best(self) -> float:
        """Of the fastest one."""
        return min(time for _, time in self.runs)


def problem_of(of: ProblemClass) -> Problem:
    """A problem of the class, contiguous."""
    return Problem.dense(
        of.m, of.n, of.k, dtype(of.dtype), out=dtype(of.out), accumulator=dtype(of.accumulator),
        a_major=of.a_major, b_major=of.b_major, with_c=of.with_c, batch=of.batch,
    )  # fmt: skip


def load(paths: Iterable[Path]) -> list[Measured]:
    """All problems of tables, with the configurations that were timed.

    The first look at a configuration is short, on a chip that may be cooler than in the rounds that follow: looks are
    multiplied by what the rounds of those that came so far took more, in the median.
    """
    times: dict[ProblemClass, tuple[Times, Times]] = {}
    for path in paths:
        for line in path.read_bytes().splitlines():
            entry = msgspec.json.decode(line, type=Entry)
            if entry.search.rung == RUNG and entry.time_ms is not None:
                looks, rounds = times.setdefault(entry.search.problem, ({}, {}))
                (looks if entry.stage == 0 else rounds)[tuple(sorted(entry.config.items()))] = entry.time_ms
    found = []
    for of, (looks, rounds) in times.items():
        longer = median([rounds[config] / looks[config] for config in rounds if config in looks] or [1.0])
        runs = {config: time * longer for config, time in looks.items()} | rounds
        if len(runs) > 1:
            found.append(Measured(problem_of(of), tuple((dict(config), time) for config, time in runs.items())))
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


def main(arguments: Sequence[str]) -> None:
    """Print what is found."""
    data = load(map(Path, arguments))
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
    main(sys.argv[1:])
