"""Tells stores that leave bytes as they are: several lanes, or several warps, that store the same value."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.checks.vector_clocks import Lanes
from warptile.emulator.lanes import Array
from warptile.emulator.memory.spaces import Offsets, Space


class RepeatedStores:
    """One store instruction, executed by some lanes at a time in the order of the lanes.

    Args:
        lanes: that execute it, in order.
        where: the memory, as it is before the store.
        offsets: of each lane.
        size: bytes that each lane stores.
        words: that they store.
    """

    def __init__(self, lanes: Lanes, where: Space, offsets: Offsets, size: int, words: Array) -> None:
        self._lanes = lanes
        self._where = where
        self._offsets = offsets
        self._size = size
        self._words = words

    def same(self, lane: int) -> bool:
        """Whether a lane stores what is there already: from before, or from a lower lane."""
        return bool(self._same[np.searchsorted(self._lanes, lane)])

    def duplicates(self, lanes: Lanes) -> NDArray[np.bool_]:
        """Which of these lanes store what a lower lane has just stored to the same place."""
        found: NDArray[np.bool_] = (self._same & (self._before >= 0))[np.searchsorted(self._lanes, lanes)]
        return found

    @cached_property
    def _before(self) -> NDArray[np.intp]:
        """For each lane, the number of the next lower one with the same place, or -1."""
        order = np.argsort(self._offsets, kind="stable")
        repeated = self._offsets[order][1:] == self._offsets[order][:-1]
        before = np.full(len(order), -1, dtype=np.intp)
        before[order[1:][repeated]] = order[:-1][repeated]
        return before

    @cached_property
    def _same(self) -> NDArray[np.bool_]:
        given = _bytes(self._words, self._size)
        held = _bytes(self._where.gather(self._offsets, self._size), self._size)
        again = self._before >= 0
        held[again] = given[self._before[again]]
        same: NDArray[np.bool_] = (given == held).all(axis=1)
        return same


def _bytes(words: Array, size: int) -> NDArray[np.uint8]:
    """The bytes of each word, as a new table: NaN equals itself there."""
    return np.array(words).view(np.uint8).reshape(-1, size)
