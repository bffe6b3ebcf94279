"""One row of a suite as it was measured: several ways to the same product in the same rounds, and what they say.

Speeds are compared round by round, as one way's run heats the next one's, and the median of the rounds' ratios counts.
It is called more or less than 1 only when its 95 % interval leaves 1 out. The interval lies between two of the rounds:
each round falls below the true median with probability 1/2, so that all but k rounds at each end miss it as often as n
coins show at most k heads, twice. That assumes no normal distribution, which times at a power limit do not have: seven
rounds must agree, of nine one may stray at each end.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable

import msgspec

from warptile.bench.measurements import ProblemKey, Resources, Samples

OURS, LIBRARY, TORCH, BESIDE = "ours", "cuBLASLt", "torch", "beside"
"""Who takes part: warptile, the vendor library's best algorithm, torch, and warptile on another problem."""

MISSED = 0.05
"""How often an interval may miss the true median."""


class Turns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One participant: milliseconds of a launch in each round, launches timed, and how: ``"events"`` or ``"graph"``."""

    who: str
    rounds_ms: tuple[float, ...]
    launches: int
    method: str

    @property
    def time_ms(self) -> float:
        """Median of the rounds."""
        return statistics.median(self.rounds_ms)


class Share(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A speed over another's: median, smallest and largest of the rounds, and the 95 % interval of the median (from 0
    to infinity where there are fewer than six rounds)."""

    median: float
    low: float
    high: float
    least: float
    most: float

    @staticmethod
    def of(ratios: Iterable[float]) -> Share:
        """The share of at least one round."""
        each = sorted(ratios)
        assert each, "a share needs at least one round"
        assert all(ratio > 0 for ratio in each), "a ratio of times is positive"
        inside = outside(len(each))
        least, most = (0.0, math.inf) if inside is None else (each[inside], each[-1 - inside])
        return Share(statistics.median(each), each[0], each[-1], least, most)

    @property
    def verdict(self) -> str:
        """``"faster"``, ``"slower"`` or ``"equal"``, which means no difference beyond the rounds' spread."""
        if self.least > 1:
            return "faster"
        return "slower" if self.most < 1 else "equal"


def outside(rounds: int) -> int | None:
    """How many of so many rounds lie outside the median's interval at each end; None where all together are too few."""
    found, heads = None, 0
    for count in range(rounds):
        heads += math.comb(rounds, count)
        if 2 * heads > MISSED * 2**rounds:
            break
        found = count
    return found


class Contest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A product in the configuration that a plan takes, beside others.

    Attributes:
        suite: name of the suite.
        problem: what was computed.
        offset: elements from where memory is aligned to the beginning of each matrix.
        max_sms: the most multiprocessors that it was given, or None for all.
        rung: the kernel that the plan took.
        config: its tunables.
        origin: where these come from, in words: a search of this problem, of one nearby, or a prediction.
        turns: everybody's rounds, in the order of a round.
        near: rounds of what stands beside and of our product once more, where they had to be by themselves.
        sets: operand sets that are rotated, so that L2 does not keep them.
        regime: ``"sustained"``, with the milliseconds of one turn behind it.
        turn_ms: of everybody in each round.
        beside: the other product of ours, or None.
        beside_rung: its kernel.
        beside_config: its tunables.
        baseline: which algorithm of the vendor's library was the best, or None.
        first_heuristic: speed of the library's first choice over its best, from the search for the best, or None.
        no_baseline: why there is none.
        torch: what torch's product is called, or None.
        no_torch: why there is none.
        copied_bytes: read and written by launches before the product, which are part of its time.
        error_ratio: largest error over its bound, where it was compared; above 1 is wrong.
        resources: of the compiled kernel.
        samples: clocks and power while it was measured.
        failed: what went wrong, or None.
    """

    suite: str
    problem: ProblemKey
    offset: int = 0
    max_sms: int | None = None
    rung: str
    config: dict[str, int]
    origin: str = "predicted"
    turns: tuple[Turns, ...] = ()
    near: tuple[Turns, ...] = ()
    sets: int = 1
    regime: str = "sustained"
    turn_ms: float = 0.0
    beside: ProblemKey | None = None
    beside_rung: str = ""
    beside_config: dict[str, int] = {}
    baseline: str | None = None
    first_heuristic: float | None = None
    no_baseline: str = ""
    torch: str | None = None
    no_torch: str = ""
    copied_bytes: int = 0
    error_ratio: float | None = None
    resources: Resources | None = None
    samples: Samples | None = None
    failed: str | None = None

    @property
    def row(self) -> tuple[ProblemKey, int, int | None, ProblemKey | None]:
        """Which row of a suite it is."""
        return self.problem, self.offset, self.max_sms, self.beside

    def of(self, who: str) -> Turns | None:
        """The rounds of a participant, or None."""
        return next((each for each in (*self.turns, *self.near) if each.who == who and each.rounds_ms), None)

    def tflops(self, who: str = OURS) -> float | None:
        """TFLOP/s (TOP/s) of a participant's median round, zeros of a sparse operand counted."""
        found = self.of(who)
        key = self.beside if who == BESIDE else self.problem
        return None if found is None or key is None else key.tflops(found.time_ms)

    def share(self, who: str) -> Share | None:
        """Our operations a second over a participant's, round by round."""
        together = self.near if who == BESIDE and self.near else self.turns
        mine, other = (next((each for each in together if each.who == name), None) for name in (OURS, who))
        if mine is None or other is None or not mine.rounds_ms:
            return None
        work = self.problem.flops / self.beside.flops if who == BESIDE and self.beside is not None else 1.0
        pairs = zip(mine.rounds_ms, other.rounds_ms, strict=True)
        return Share.of(work * theirs / ours for ours, theirs in pairs)

    def weight_tb_per_s(self, element_bits: int) -> float | None:
        """TB/s at which B is read, if it is read once: bytes of one B over the time of one launch."""
        mine = self.of(OURS)
        if mine is None:
            return None
        return self.problem.batch * self.problem.n * self.problem.k * element_bits / 8 / mine.time_ms / 1e9
