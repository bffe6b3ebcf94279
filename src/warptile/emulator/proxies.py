"""The async proxy: what `fence.proxy.async` makes visible to bulk copies and `wgmma`.

Plain writes go through the generic proxy, bulk copies and `wgmma` through the async one. PTX ISA, "Memory Consistency
Model: Proxies": besides what orders the two threads, a proxy fence must lie on the way. Two places of it are known
here: in the thread that wrote, behind the write (and before what orders the threads), or in the thread that starts the
asynchronous operation, behind what ordered the write before it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.clocks import Clocks, Lanes
from warptile.emulator.history import knows
from warptile.emulator.lanes import WARP

SPACES = ("shared", "global")
"""What a fence is for: shared memory, or global."""


class Proxies:
    """The last proxy fences of every lane of a wave."""

    def __init__(self, clocks: Clocks) -> None:
        lanes = len(clocks.clock)
        self._clocks = clocks
        # Of the last two fences of each lane for each space, its clock then; -1 for none.
        self._fences: NDArray[np.int32] = np.full((2, 2, lanes), -1, dtype=np.int32)
        # Of the last one, also the floors of its block and warp and its knowledge then.
        self._seen: NDArray[np.int32] = np.zeros((2, 3, lanes), dtype=np.int32)

    def start_wave(self) -> None:
        """New threads, which have made no fence."""
        self._fences.fill(-1)
        self._seen.fill(0)

    def fence(self, lanes: Lanes, spaces: tuple[str, ...]) -> None:
        """`fence.proxy.async` by some lanes."""
        clocks = self._clocks
        for space in spaces:
            number = SPACES.index(space)
            self._fences[number, 1][lanes] = self._fences[number, 0][lanes]
            self._fences[number, 0][lanes] = clocks.clock[lanes]
            floors = clocks.block_floor[lanes // clocks.lanes_per_block], clocks.warp_floor[lanes // WARP]
            for row, values in zip(self._seen[number], (*floors, clocks.known[lanes]), strict=True):
                row[lanes] = values
        clocks.clock[lanes] += 1

    def missing(self, lane: int, space: str, thread: int, clock: int) -> bool:
        """Whether no fence stands between a write of ``thread`` (from 0) at ``clock`` and an operation of ``lane``."""
        clocks, number = self._clocks, SPACES.index(space)
        writer = thread - clocks.first_thread
        for fence in self._fences[number, :, writer].tolist() if 0 <= writer < len(clocks.clock) else []:
            if fence >= clock and (writer == lane or self._past(lane, thread, fence)):
                return False
        if writer == lane or self._fences[number, 0, lane] < 0:
            return True
        block_floor, warp_floor, known = self._seen[number, :, lane].tolist()
        return not knows(clocks, lane, thread, clock, block_floor, warp_floor, known)

    def _past(self, lane: int, thread: int, clock: int) -> bool:
        """Whether ``lane`` knows that a thread has come past ``clock``."""
        clocks = self._clocks
        floors = int(clocks.block_floor[lane // clocks.lanes_per_block]), int(clocks.warp_floor[lane // WARP])
        return knows(clocks, lane, thread, clock, *floors, int(clocks.known[lane]))
