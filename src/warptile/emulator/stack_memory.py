"""Memory that threads take by `alloca`: behind their local variables, until the function returns that has taken it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.lanes import POISON_BYTE, Active
from warptile.emulator.memory.accesses import Memory
from warptile.emulator.memory.spaces import MAPPED
from warptile.errors import UnsupportedError


class StackMemory:
    """A stack for each lane, in its local memory.

    Args:
        memory: with the local memory of all lanes.
        start: where the stacks begin in it.
        end: where they end.
        lanes: of a wave.
    """

    def __init__(self, memory: Memory, start: int, end: int, lanes: int) -> None:
        self._memory = memory
        self._start, self._end = start, end
        self.top: NDArray[np.int64] = np.full(lanes, start, dtype=np.int64)
        self._depth: dict[int, NDArray[np.int64]] = {}
        self._saved: dict[int, list[NDArray[np.int64]]] = {}

    def start_wave(self) -> None:
        """No thread has taken anything."""
        self.top[:] = self._start
        self._depth.clear()

    def enter(self, routine: int, active: Active) -> None:
        """Lanes enter the function that starts at a position."""
        index = active.index
        depth = self._depth.setdefault(routine, np.zeros_like(self.top))
        saved = self._saved.setdefault(routine, [])
        for level in np.unique(depth[index]).tolist():
            if level == len(saved):
                saved.append(np.zeros_like(self.top))
            lanes = active.lanes[depth[index] == level]
            saved[level][lanes] = self.top[lanes]
        depth[index] += 1

    def leave(self, routine: int, active: Active) -> None:
        """Lanes return from it: what they have taken since is free."""
        index, depth = active.index, self._depth[routine]
        depth[index] -= 1
        for level in np.unique(depth[index]).tolist():
            lanes = active.lanes[depth[index] == level]
            self.top[lanes] = self._saved[routine][level][lanes]

    def take(self, active: Active, sizes: NDArray[np.int64], alignment: int) -> NDArray[np.int64]:
        """Addresses in local memory of so many bytes for each lane, which hold nothing.

        Raises:
            UnsupportedError: a lane has taken more than there is.
        """
        begins = -(-self.top[active.index] // alignment) * alignment
        ends = begins + sizes
        if int(sizes.min()) < 0 or int(ends.max()) > self._end:
            raise UnsupportedError(
                f"alloca takes {int(sizes.max())} bytes; a thread has {self._end - self._start} for all that it takes"
            )
        self.top[active.index] = ends
        space = self._memory.local_space
        first = np.repeat(self._memory.local_origin[active.index] + begins, sizes)
        places = first + np.arange(len(first)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        space.data[places], space.shadow[places] = POISON_BYTE, MAPPED
        return begins
