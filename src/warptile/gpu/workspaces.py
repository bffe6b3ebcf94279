"""Memory that launches need beside their operands, kept for each stream: made once, used by one launch after the other.

cuBLAS keeps its workspace in the same way, for the same reason: work in one stream is in order, so one piece of
memory serves all of it, and a captured graph finds the memory where it was when it was captured. For that reason two
graphs that were captured from one stream must not run at the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from warptile.gpu import driver
from warptile.launch.workspace import Workspace

ALIGNMENT_BYTES = 256
"""Alignment of every workspace, as of memory that the driver allocates."""

UNKNOWN = 0xFF
"""What `Workspaces.spoil` writes: NaN in every floating-point type, -1 in integers."""


class _Arena:
    """Memory that every launch divides into its workspaces. When it grows, the old memory is kept: graphs may use
    it."""

    def __init__(self, *, zero: bool) -> None:
        self._zero = zero
        self._pieces: list[driver.Allocation] = []

    @property
    def newest(self) -> driver.Allocation | None:
        """The memory that the next launch is given."""
        return self._pieces[-1] if self._pieces else None

    def addresses(self, wanted: Sequence[Workspace]) -> dict[str, int]:
        """Device address of each workspace."""
        starts, top = {}, 0
        for each in wanted:
            starts[each.name] = top
            top += -(-each.bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        if not top:
            return {}
        newest = self.newest
        if newest is None or newest.size_bytes < top:
            newest = self._grown(max(top, 2 * newest.size_bytes if newest is not None else 0))
        return {name: newest.address + start for name, start in starts.items()}

    def _grown(self, size_bytes: int) -> driver.Allocation:
        with driver.outside_captures():
            made = driver.Allocation(size_bytes)
            if self._zero:
                with driver.Stream() as apart:
                    made.fill(0, apart.handle)
        self._pieces.append(made)
        return made

    def close(self) -> None:
        for each in self._pieces:
            each.close()
        self._pieces.clear()


class Workspaces:
    """The workspaces of one stream. Hold ``lock`` from asking for pointers until all launches that use them are queued:
    launches of another thread in between would overwrite a copied operand."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._unknown, self._zeros = _Arena(zero=False), _Arena(zero=True)

    def pointers(self, wanted: Sequence[Workspace]) -> dict[str, int]:
        """Device addresses by name, in the current context. Memory is allocated only if there was never as much; then
        too while a stream is being captured."""
        found = self._unknown.addresses([each for each in wanted if not each.zero])
        return found | self._zeros.addresses([each for each in wanted if each.zero])

    def spoil(self) -> None:
        """Fill what may hold anything, so that a kernel that relies on it goes wrong. Waits for the GPU."""
        if self._unknown.newest is not None:
            self._unknown.newest.fill(UNKNOWN)

    def leftovers(self) -> int:
        """Bytes that kernels should have left zero and did not; they are cleared. Waits for the GPU."""
        newest = self._zeros.newest
        if newest is None:
            return 0
        found = int(np.count_nonzero(newest.to_host(np.empty(newest.size_bytes, np.uint8))))
        if found:
            newest.fill(0)
        return found

    def close(self) -> None:
        """Give the memory back; launches and graphs that use it must have ended."""
        self._unknown.close()
        self._zeros.close()


_OF_STREAM: dict[tuple[int, int], Workspaces] = {}
_MAKING = threading.Lock()


def of_stream(ordinal: int, stream: int) -> Workspaces:
    """The workspaces of one stream (by its handle) of one GPU, for as long as the process lives."""
    with _MAKING:
        return _OF_STREAM.setdefault((ordinal, stream), Workspaces())
