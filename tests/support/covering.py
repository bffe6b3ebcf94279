"""Which combinations of parameters a run takes.

A fault that shows where two values meet shows in any set of cases in which these two do: an ordinary run takes few
cases that have every two values of interest together. Where the environment has ``WARPTILE_TESTS=all``, every three
values meet: of up to three parameters that is the full product.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import reduce
from itertools import combinations, product
from operator import or_
from typing import Any

ALL = os.environ.get("WARPTILE_TESTS") == "all"


def covering(*axes: Sequence[Any], pairs: Sequence[tuple[int, int]] | None = None) -> list[tuple[Any, ...]]:
    """Cases with one value of each axis.

    ``pairs`` are the axes, by number, every two values of which meet in an ordinary run: all by default. Of others
    every value is taken, about equally often, and with as many of the rest as may be. The choice is the same in every
    process: the next case is the one with the most that is still missing, and of these the first.
    """
    groups = tuple(combinations(range(len(axes)), min(3 if ALL else 2, len(axes))))
    needed = groups if pairs is None or ALL else tuple(pairs)
    chosen = _chosen(list(product(*(range(len(axis)) for axis in axes))), needed, groups)
    return [tuple(axis[value] for axis, value in zip(axes, case, strict=True)) for case in chosen]


def alternating(cases: Sequence[Any]) -> list[Any]:
    """Every second of the cases, or all of them."""
    return list(cases if ALL else cases[::2])


def few(cases: Sequence[Any], count: int) -> list[Any]:
    """All cases, or in an ordinary run ``count`` of them: the first, and others as far from each other as may be."""
    return list(cases) if ALL or count >= len(cases) else [cases[at * len(cases) // count] for at in range(count)]


def of_each(cases: Sequence[Any], parts: Callable[[Any], Iterable[Hashable]]) -> list[Any]:
    """The cases, in their order: in an ordinary run few that together have every part which any of them has."""
    if ALL:
        return list(cases)
    of_case = [frozenset(parts(case)) for case in cases]
    missing, taken = frozenset[Hashable]().union(*of_case), []
    while missing:
        place = max(range(len(cases)), key=lambda at: len(of_case[at] & missing))
        taken.append(place)
        missing -= of_case[place]
    return [cases[place] for place in sorted(taken)]


def examples(count: int) -> int:
    """Examples of a property-based test: ``count``, or in an ordinary run a third of them, drawn anew each time."""
    return count if ALL else -(-count // 3)


def _chosen(
    every: list[tuple[int, ...]], needed: tuple[tuple[int, ...], ...], liked: tuple[tuple[int, ...], ...]
) -> list[tuple[int, ...]]:
    """Some of ``every`` case: each value of each axis, of the axes of a group in ``needed`` all values with each other,
    and many of those in ``liked``."""
    alone = tuple((axis,) for axis in range(len(every[0])))
    bits: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}

    def parts(case: tuple[int, ...], groups: tuple[tuple[int, ...], ...]) -> int:
        """What a case has of each group, a bit each."""
        found = 0
        for group in groups:
            found |= bits.setdefault((group, tuple([case[axis] for axis in group])), 1 << len(bits))
        return found

    wanted = [parts(case, alone + needed) for case in every]
    wished = [parts(case, liked) for case in every]
    missing, fresh = reduce(or_, wanted), reduce(or_, wished)
    uses = {value: 0 for case in every for value in enumerate(case)}
    taken = []
    while missing:
        most = max((has & missing).bit_count() for has in wanted)
        best = [place for place, has in enumerate(wanted) if (has & missing).bit_count() == most]
        place = min(best, key=lambda at: (sum(map(uses.get, enumerate(every[at]))), -(wished[at] & fresh).bit_count()))
        missing &= ~wanted[place]
        fresh &= ~wished[place]
        taken.append(every[place])
        for value in enumerate(every[place]):
            uses[value] += 1
    return sorted(taken)
