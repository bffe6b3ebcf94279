"""Kernels that compute D, or its transpose with swapped operands, D^T = B^T A^T: few columns are then few rows."""

from __future__ import annotations

from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config, View
from warptile.rungs.legality import keys_reason

SWAP = "SWAP"
"""Their tunable: 1 where a kernel computes the transpose, else 0."""


def fewer_columns(problem: Problem) -> int:
    """1 where D has fewer columns than rows, else 0."""
    return int(problem.n < problem.m)


def seen(problem: Problem, swap: int) -> Problem:
    """The problem as the kernel sees it."""
    return problem.swapped if swap else problem


def view(problem: Problem, swap: int) -> View:
    """The problem and the memory that the kernel is given."""
    return View(problem.swapped, "B", "A") if swap else View(problem)


def swap_reason(config: Config, keys: tuple[str, ...]) -> str | None:
    """As `keys_reason`, but for SWAP, which is 0 or 1."""
    swap = config.get(SWAP, 0)
    if swap not in (0, 1):
        return f"SWAP is {swap}; it is 1 where operands are swapped, else 0"
    return keys_reason({name: value + (name == SWAP) for name, value in config.items()}, keys)
