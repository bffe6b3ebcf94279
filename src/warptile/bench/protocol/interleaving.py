"""The protocol of a comparison: baseline, candidate, baseline, candidate, ..., and how much time it may take.

Each runs long enough in a round for the chip to stay at its power limit, and speed is the ratio of the two, round by
round: what one run does to the other's clock is then in both. The rounds themselves are `warptile.gpu.timing`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from warptile.bench.protocol.measurements import Round
from warptile.gpu.timing import COOL, Runner, Schedule, take_turns
from warptile.runtime.device_product import SLOW_MS

SWEEP = Schedule("sustained", rounds=3, turn_ms=400.0, warm_up_ms=200.0)
"""The regime that targets are stated in: the chip stays at its power limit. A sweep keeps it busy from cell to cell, so
the warm-up of one cell can be short."""

BRIEF = Schedule("sustained", rounds=3, turn_ms=100.0, warm_up_ms=100.0)
"""The same in less time, where many cells are compared with each other rather than with a target."""

SHORT_COOL = replace(COOL, bursts=2)
"""Bursts on a cool chip, as many as a sweep has time for."""

CELL_CAP_MS = 20_000.0
"""The most GPU time one candidate may take in a sweep."""


@dataclass(frozen=True)
class Comparison:
    """The rounds of one candidate and its baseline; ``note`` says why there are fewer than usual, or none."""

    rounds: tuple[Round, ...]
    launches: int = 0
    baseline_launches: int = 0
    method: str = "events"
    note: str | None = None


def compare(
    candidate: Runner,
    one_ms: float,
    baseline: Runner,
    baseline_ms: float,
    *,
    schedule: Schedule = SWEEP,
    cap_ms: float = CELL_CAP_MS,
    turns: Callable[..., dict[str, tuple[tuple[float, ...], int]]] = take_turns,
) -> Comparison:
    """Interleave the two. A candidate too slow for all rounds gets fewer; one whose launch is beyond the cap, none."""
    if one_ms > cap_ms:
        return Comparison((), note=f"one launch takes {one_ms / 1000:.1f} s; a cell has {cap_ms / 1000:.0f} s")
    rounds = schedule.rounds if one_ms <= schedule.turn_ms else max(1, min(schedule.rounds, int(cap_ms / one_ms)))
    note = (
        None if rounds == schedule.rounds else f"{rounds} of {schedule.rounds} rounds: a launch takes {one_ms:.0f} ms"
    )
    warm_up_ms = 0.0 if one_ms >= SLOW_MS else schedule.warm_up_ms
    measured = turns(
        {"baseline": baseline, "candidate": candidate},
        {"baseline": baseline_ms, "candidate": one_ms},
        replace(schedule, rounds=rounds, warm_up_ms=warm_up_ms),
    )
    times, launches = measured["candidate"]
    baseline_times, baseline_launches = measured["baseline"]
    pairs = tuple(Round(time, base) for time, base in zip(times, baseline_times, strict=True))
    return Comparison(pairs, launches, baseline_launches, candidate.method, note)
