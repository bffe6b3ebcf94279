"""How limits come together, and which one is named."""

from __future__ import annotations

import math
from collections.abc import Mapping

STEPS = 100
"""Of the iteration for the share that a cache keeps: it comes from below, and is slow only near one."""


def overlapped(one: float, other: float, norm: float) -> float:
    """Clocks (or times) of two that hide each other, but not wholly: their norm, above the larger one."""
    most, least = max(one, other), min(one, other)
    return most * (1 + (least / most) ** norm) ** (1 / norm) if most > 0 else 0.0


def shared_unit_clocks(chain: float, service: float, chains: int, queueing: float) -> float:
    """Clocks from one completion to the next of several equal chains that share a unit.

    A closed queueing network with one queue, by mean value analysis (M. Reiser and S. S. Lavenberg, JACM 27(2), 1980):
    a chain that joins others waits for the share of those that are at the unit then. One chain alone takes ``chain``,
    many take ``service`` each.

    Args:
        chain: clocks of one alone, ``service`` included.
        service: of them, on the unit.
        chains: how many there are.
        queueing: of what a newcomer would wait for with random service times, what it does: 0 if the chains keep out
            of each other's way, 1 if they are independent.
    """
    elsewhere, waiting, interval = max(chain - service, 0.0), 0.0, 0.0
    for number in range(1, chains + 1):
        at_unit = service * (1 + queueing * waiting)
        interval = (elsewhere + at_unit) / number
        waiting = at_unit / interval if interval > 0 else 0.0
    return max(interval, service)


def share_kept(data: float, cache: float) -> float:
    """The share of data, read again and again in the same order, that a cache with random replacement still holds.

    Between two reads of a line the rest misses, and each miss replaces any line alike: h = exp(-(1 - h) data / cache).
    With least recently used replacement it would be nothing as soon as the data are larger than the cache.

    Args:
        data: bytes read in each round.
        cache: its bytes.
    """
    if data <= cache:
        return 1.0
    kept = 0.0
    for _ in range(STEPS):
        kept = math.exp((kept - 1) * data / cache)
    return kept


def largest(terms: Mapping[str, float]) -> str:
    """The name of the largest term."""
    return max(terms, key=lambda name: terms[name])
