"""Times of a feature beside what it is compared with, as data: microseconds of calls that took turns."""

from __future__ import annotations

import statistics

import msgspec


class CallTime(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One participant of a row.

    Attributes:
        name: such as ``"torch._scaled_mm"``.
        rounds_us: microseconds of a call in each round; empty where it failed.
        config: warptile's kernel and configuration as text, or empty.
        sets: operand sets that calls rotated through.
        error: largest error of an element over what is allowed; None where nothing was compared.
        failed: why it has no times, or empty.
    """

    name: str
    rounds_us: tuple[float, ...] = ()
    config: str = ""
    sets: int = 1
    error: float | None = None
    failed: str = ""

    @property
    def median_us(self) -> float | None:
        """The median of the rounds."""
        return statistics.median(self.rounds_us) if self.rounds_us else None


class FeatureTimes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of a suite: participants in interleaved rounds.

    Attributes:
        row: the row's name, such as ``"4 bits, 16x8192x8192"``.
        times: the participants', warptile's first; empty where none could be made.
        read_bytes: of weights in a call, where the row is held to their rate; else 0.
        failed: why there is no comparison, or empty.
    """

    row: str
    times: tuple[CallTime, ...] = ()
    read_bytes: int = 0
    failed: str = ""

    @property
    def ours(self) -> CallTime | None:
        """What the row is about; None where it failed."""
        return self.times[0] if self.times and not self.failed and self.times[0].rounds_us else None

    def speedup_over(self, name: str) -> float | None:
        """The median over rounds of a participant's time over that of the first one; None where one has no times."""
        ours, other = self.ours, next((each for each in self.times[1:] if each.name == name), None)
        if ours is None or other is None or not other.rounds_us:
            return None
        return statistics.median(its / mine for mine, its in zip(ours.rounds_us, other.rounds_us, strict=True))

    @property
    def tb_per_s(self) -> float | None:
        """The rate of reading weights, where the row is held to one."""
        median_us = None if self.ours is None else self.ours.median_us
        return self.read_bytes / median_us / 1e6 if median_us and self.read_bytes else None
