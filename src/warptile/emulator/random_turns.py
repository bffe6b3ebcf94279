"""Which warps run next under ``random:SEED``: some blocks or warps get ahead of others, for as long as a turn lasts.

Lanes of one warp always have their turns together, so that they reconverge as under the other schedules. So do those of
a warpgroup in programs with `wgmma`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.lanes import WARP, Active
from warptile.isa.wgmma import WARPS

LONGEST_TURN_BITS = 10
"""A turn takes 1 to 1024 steps, short ones as often as long ones."""


class RandomTurns:
    """The turns of one launch.

    Args:
        seed: the same one gives the same turns.
        lanes: of a full wave.
        lanes_per_cta: of a block.
        together: lanes that have their turns together where blocks do not: those of a warp, or of a warpgroup.

    Attributes:
        ends: the count of steps at which the turn is over.
    """

    def __init__(self, seed: int, lanes: int, lanes_per_cta: int, together: int = WARP) -> None:
        self._random = np.random.default_rng((seed, 1))  # another sequence than that of copies
        cta, within = np.divmod(np.arange(lanes), lanes_per_cta)
        self._units = (cta, cta * -(-lanes_per_cta // together) + within // together)
        self._chosen: NDArray[np.bool_] = np.ones(lanes, np.bool_)
        self.ends = 0

    def waves(self, firsts: list[int]) -> list[int]:
        """The sets of blocks that run one after the other, by their first blocks, in a random order."""
        return [int(first) for first in self._random.permutation(firsts)]

    def start_wave(self) -> None:
        """Everybody's turn."""
        self._chosen[:] = True
        self.ends = 0

    def next(self, waiting: list[Active], steps: int) -> None:
        """Choose some of the blocks, or some of the warps, of those lanes that wait for their turn."""
        units = self._units[int(self._random.integers(2))]
        present = np.unique(np.concatenate([units[active.index] for active in waiting]))
        count = round(len(present) ** self._random.random())  # as often few of many as many
        self._chosen = np.isin(units, self._random.permutation(present)[:count])
        self.ends = steps + int(2 ** self._random.uniform(0, LONGEST_TURN_BITS))

    def split(self, active: Active) -> tuple[Active, Active | None]:
        """Lanes whose turn it is, possibly none, and the others, or None for none."""
        mask = self._chosen[active.index]
        if mask.all():
            return active, None
        return active.where(mask), active.where(~mask)


def turns_of(schedule: str, lanes: int, lanes_per_cta: int, *, warpgroups: bool) -> RandomTurns | None:
    """The turns of ``random:SEED``; None for a schedule under which all run together.

    The warps of a warpgroup keep step in a program with `wgmma`, which they execute as one: its operands are no longer
    read when the first of them has waited.
    """
    kind, _, seed = schedule.partition(":")
    together = WARP * WARPS if warpgroups else WARP
    return RandomTurns(int(seed), lanes, lanes_per_cta, together) if kind == "random" else None
