"""How limits come together, and which one is named."""

from __future__ import annotations

from collections.abc import Mapping


def overlapped(one: float, other: float, norm: float) -> float:
    """Clocks (or times) of two that hide each other, but not wholly: their norm, above the larger one."""
    most, least = max(one, other), min(one, other)
    return most * (1 + (least / most) ** norm) ** (1 / norm) if most > 0 else 0.0


def largest(terms: Mapping[str, float]) -> str:
    """The name of the largest term."""
    return max(terms, key=lambda name: terms[name])
