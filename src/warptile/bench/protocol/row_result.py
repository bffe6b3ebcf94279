"""One measured row of a suite: every participant's rounds, and warptile's speedup over each.

Speeds are compared round by round, because one participant heats the chip for the next; the median of the ratios
counts. It is called more or less than 1 only when its 95 % confidence interval excludes 1. The ends of the interval are
two of the rounds: each round is below the true median with probability 1/2, so leaving out k rounds at each end misses
the median as often as n coins show at most k heads, twice. No normal distribution is assumed, because times at a power
limit do not have one: seven rounds must agree; of nine, one at each end may differ.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable

import msgspec

from warptile.bench.protocol.measurements import ProblemKey, RecordedResources, Samples

OURS, LIBRARY, TORCH, NEIGHBOUR = "ours", "cuBLASLt", "torch", "beside"
"""Participants, as records name them: warptile, cuBLASLt's fastest algorithm, torch, and warptile on the neighbour."""

MISS_PROBABILITY = 0.05
"""Probability that a confidence interval misses the true median."""


class ParticipantRounds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One participant's rounds: milliseconds a launch in each, launches timed, and how (``"events"``, ``"graph"``)."""

    who: str
    rounds_ms: tuple[float, ...]
    launches: int
    method: str

    @property
    def time_ms(self) -> float:
        """Median of the rounds."""
        return statistics.median(self.rounds_ms)


class Speedup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A speedup over another participant: median, smallest and largest of the rounds, and the 95 % confidence interval
    of the median (0 to infinity with fewer than six rounds)."""

    median: float
    low: float
    high: float
    least: float
    most: float

    @staticmethod
    def of(ratios: Iterable[float]) -> Speedup:
        """The speedup from the ratios of at least one round."""
        each = sorted(ratios)
        assert each, "a speedup needs at least one round"
        assert all(ratio > 0 for ratio in each), "a ratio of times is positive"
        inside = rounds_outside_interval(len(each))
        least, most = (0.0, math.inf) if inside is None else (each[inside], each[-1 - inside])
        return Speedup(statistics.median(each), each[0], each[-1], least, most)

    @property
    def verdict(self) -> str:
        """``"faster"``, ``"slower"`` or ``"equal"``, which means no difference beyond the rounds' spread."""
        if self.least > 1:
            return "faster"
        return "slower" if self.most < 1 else "equal"


def rounds_outside_interval(rounds: int) -> int | None:
    """Rounds at each end that are outside the confidence interval of the median; None with too few rounds for one."""
    found, heads = None, 0
    for count in range(rounds):
        heads += math.comb(rounds, count)
        if 2 * heads > MISS_PROBABILITY * 2**rounds:
            break
        found = count
    return found


class RowResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of a suite as measured: warptile as planned, and the participants it is compared with.

    Attributes:
        suite: name of the suite.
        problem: what was computed.
        offset: elements from where memory is aligned to the beginning of each matrix.
        max_sms: the most SMs that it was given, or None for all.
        rung: the kernel that the plan took.
        config: its tunables.
        origin: where these come from, in words: a search of this problem, of one nearby, or a prediction.
        turns: rounds of every participant, in the order in which they run.
        near: rounds of the neighbour and of warptile without the others, where those let the chip cool.
        sets: operand sets that are rotated, so that L2 does not keep them.
        regime: ``"sustained"``, with the milliseconds of one turn behind it.
        turn_ms: how long each participant runs in a round.
        beside: the neighbour, another GEMM that warptile runs for comparison, or None.
        beside_rung: kernel of the neighbour.
        beside_config: tunables of the neighbour.
        baseline: which algorithm of the vendor's library was the best, or None.
        first_heuristic: speed of the library's first choice over its best, from the search for the best, or None.
        no_baseline: why cuBLASLt did not take part.
        torch: the torch function that was called, or None.
        no_torch: why torch did not take part.
        copied_bytes: read and written by repacking passes, whose time is included.
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
    turns: tuple[ParticipantRounds, ...] = ()
    near: tuple[ParticipantRounds, ...] = ()
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
    resources: RecordedResources | None = None
    samples: Samples | None = None
    failed: str | None = None

    @property
    def row(self) -> tuple[ProblemKey, int, int | None, ProblemKey | None]:
        """Which row of a suite it is."""
        return self.problem, self.offset, self.max_sms, self.beside

    def rounds_of(self, participant: str) -> ParticipantRounds | None:
        """The rounds of a participant, or None."""
        return next((each for each in (*self.turns, *self.near) if each.who == participant and each.rounds_ms), None)

    def tflops(self, participant: str = OURS) -> float | None:
        """TFLOP/s (TOP/s) of a participant's median round, zeros of a sparse operand counted."""
        found = self.rounds_of(participant)
        key = self.beside if participant == NEIGHBOUR else self.problem
        return None if found is None or key is None else key.tflops(found.time_ms)

    def speedup_over(self, participant: str) -> Speedup | None:
        """warptile's FLOP/s over those of another participant, round by round."""
        together = self.near if participant == NEIGHBOUR and self.near else self.turns
        mine, other = (next((each for each in together if each.who == name), None) for name in (OURS, participant))
        if mine is None or other is None or not mine.rounds_ms:
            return None
        work = self.problem.flops / self.beside.flops if participant == NEIGHBOUR and self.beside is not None else 1.0
        pairs = zip(mine.rounds_ms, other.rounds_ms, strict=True)
        return Speedup.of(work * theirs / ours for ours, theirs in pairs)

    def weight_tb_per_s(self, element_bits: int) -> float | None:
        """TB/s at which B is read, if it is read once: bytes of one B over the time of one launch."""
        mine = self.rounds_of(OURS)
        if mine is None:
            return None
        return self.problem.batch * self.problem.n * self.problem.k * element_bits / 8 / mine.time_ms / 1e9
