"""How limits come together, and which one is named."""

from __future__ import annotations

from collections.abc import Mapping


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


def largest(terms: Mapping[str, float]) -> str:
    """The name of the largest term."""
    return max(terms, key=lambda name: terms[name])
