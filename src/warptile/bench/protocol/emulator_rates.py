"""How fast the emulator executes kernels, as data: processor seconds of launches that took turns."""

from __future__ import annotations

import statistics

import msgspec

INTERPRETED, COMPILED = "interpreted", "compiled"
"""Every instruction by the interpreter; or as `warptile.emulator.emulate` executes it by default."""


class EmulatorTime(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times of one way to emulate a launch.

    Attributes:
        way: `INTERPRETED` or `COMPILED`.
        checks: whether all default checks were made, or none.
        rounds_s: processor seconds of each round, all threads together.
    """

    way: str
    checks: bool
    rounds_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.rounds_s)


class EmulatorTimes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One launch, emulated in every way in interleaved rounds.

    Attributes:
        kernel: what is emulated.
        thread_instructions: that it executes: 32 for each instruction of a warp.
        times: of each way.
    """

    kernel: str
    thread_instructions: int
    times: tuple[EmulatorTime, ...]

    def time(self, way: str, *, checks: bool) -> EmulatorTime:
        """The times of one way."""
        return next(each for each in self.times if each.way == way and each.checks == checks)

    def rate(self, way: str, *, checks: bool) -> float:
        """Thread instructions a second, in the median round."""
        return self.thread_instructions / self.time(way, checks=checks).median_s

    def speedup(self, *, checks: bool) -> float:
        """Interpreted to compiled: the median over the rounds of the ratio of their times."""
        pairs = zip(
            self.time(INTERPRETED, checks=checks).rounds_s, self.time(COMPILED, checks=checks).rounds_s, strict=True
        )
        return statistics.median(slow / fast for slow, fast in pairs)
