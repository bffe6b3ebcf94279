"""What epilogues cost a GEMM, as data: microseconds of participants that took turns."""

from __future__ import annotations

import statistics

import msgspec

PLAIN = "warptile, no epilogue"
"""The participant that all are compared with."""


class EpilogueTime(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Microseconds of one participant.

    Attributes:
        name: such as ``"torch.compile, max-autotune"``.
        computes: the expression of acc = A @ B, as text; empty for the GEMM alone.
        rounds_us: of each round, over its launches.
        config: warptile's configuration as text, or empty.
    """

    name: str
    computes: str
    rounds_us: tuple[float, ...]
    config: str = ""

    @property
    def median_us(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.rounds_us)


class EpilogueTimes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Participants on the same operands in interleaved rounds.

    Attributes:
        m, n, k: extents; A is [M, K], B stored as [N, K] (the layout of a linear layer).
        dtype: of all operands.
        times: the participants'.
    """

    m: int
    n: int
    k: int
    dtype: str
    times: tuple[EpilogueTime, ...]

    def ratio(self, time: EpilogueTime) -> float:
        """The median over rounds of a participant's time over that of warptile's GEMM alone."""
        plain = next(each for each in self.times if each.name == PLAIN)
        return statistics.median(mine / its for mine, its in zip(time.rounds_us, plain.rounds_us, strict=True))
