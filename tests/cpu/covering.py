"""Which combinations of parameters a run takes.

A fault that shows where two values meet shows in any set of cases in which these two do: an ordinary run takes few
cases that have every two values of interest together. Where the environment has ``WARPTILE_TESTS=all``, every three
values meet: of up to three parameters that is the full product.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

ALL = os.environ.get("WARPTILE_TESTS") == "all"


def covering(*axes: Sequence[Any], pairs: Sequence[tuple[int, int]] | None = None) -> list[tuple[Any, ...]]:
    """Cases with one value of each axis.

    ``pairs`` are the axes, by number, every two values of which meet in an ordinary run: all by default. Of others
    every value is taken, about equally often. The choice is the same in every process: the next case is the one with
    the most that is still missing, then the one with the rarest values, then the first.
    """
    together = tuple(combinations(range(len(axes)), min(3 if ALL else 2, len(axes))))
    if pairs is not None and not ALL:
        together = tuple(pairs)
    chosen = _chosen(list(product(*(range(len(axis)) for axis in axes))), together)
    return [tuple(axis[value] for axis, value in zip(axes, case, strict=True)) for case in chosen]


def alternating(cases: Sequence[Any]) -> list[Any]:
    """Every second of the cases, or all of them."""
    return list(cases if ALL else cases[::2])


def _chosen(every: list[tuple[int, ...]], together: tuple[tuple[int, ...], ...]) -> list[tuple[int, ...]]:
    """Some of ``every`` case: each value of each axis, and of ``together``'s axes all values with each other."""

    def parts(case: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
        values = tuple(enumerate(case))
        return {(value,) for value in values} | {tuple(values[axis] for axis in axes) for axes in together}

    wanted = {case: parts(case) for case in every}
    missing = set().union(*wanted.values())
    uses = {value: 0 for case in every for value in enumerate(case)}
    taken = []
    while missing:
        case = min(
            every, key=lambda each: (-len(wanted[each] & missing), sum(uses[value] for value in enumerate(each)))
        )
        missing -= wanted[case]
        taken.append(case)
        for value in enumerate(case):
            uses[value] += 1
    return sorted(taken)
