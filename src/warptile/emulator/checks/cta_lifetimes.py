"""Checks that shared memory of another CTA is used only between that CTA's start and its exit.

CTAs of a cluster start together, but not at once: who reaches into another CTA's memory must know that it has
started, by a wait for the cluster's barrier or by anything that a thread of that CTA has released. And a CTA may
exit only when one of its threads knows that all such accesses are over.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from warptile.emulator.checks.knowledge import published
from warptile.emulator.checks.vector_clocks import Lanes, VectorClocks, distinct


class CtaLifetimes:
    """Which lanes of a wave have used the shared memory of which other CTA.

    Args:
        clocks: of the wave.
        cluster_ctas: CTAs of a cluster.
        shared_stride: how far the shared memories of two CTAs are apart.
    """

    def __init__(self, clocks: VectorClocks, cluster_ctas: int, shared_stride: int) -> None:
        lanes = len(clocks.clock)
        self._clocks = clocks
        self._ctas = cluster_ctas
        self._stride = shared_stride
        self._met: NDArray[np.bool_] = np.zeros(lanes // clocks.lanes_per_cta, dtype=np.bool_)
        # By the rank of the CTA whose memory it was, and the lane that used it: when last, and by which instruction.
        self._when: NDArray[np.int32] = np.zeros((cluster_ctas, lanes), dtype=np.int32)
        self._what: NDArray[np.int32] = np.zeros((cluster_ctas, lanes), dtype=np.int32)

    def start_wave(self) -> None:
        """Other CTAs."""
        self._met.fill(False)
        self._when.fill(0)

    def met(self, lanes: Lanes) -> None:
        """Lanes that have waited for their cluster: all its CTAs have started."""
        self._met[np.unique(lanes // self._clocks.lanes_per_cta)] = True

    def use(self, lanes: Lanes, offsets: NDArray[np.int64], number: int, *, at_once: bool) -> tuple[int, int] | None:
        """Accesses with instruction ``number``; the first lane that uses one not known to have started, and it."""
        clocks = self._clocks
        users, owners = lanes // clocks.lanes_per_cta, offsets // self._stride
        foreign = owners != users
        if not foreign.any():
            return None
        lanes, users, owners = lanes[foreign], users[foreign], owners[foreign]
        for index in np.flatnonzero(~self._met[users]).tolist():
            lane, owner = int(lanes[index]), int(owners[index])
            clocks.settle(lanes[index : index + 1])
            started = np.array([clocks.first_thread + owner * clocks.lanes_per_cta])
            if self._unknown(started, np.zeros(1, dtype=np.int32), int(clocks.known[lane])) >= 0:
                return lane, owner
        if at_once:  # asynchronous ones end at an mbarrier, or by a wait of their thread
            self._when[owners % self._ctas, lanes] = clocks.clock[lanes]
            self._what[owners % self._ctas, lanes] = number
        return None

    def exit(self, cta: int) -> tuple[int, int] | None:
        """A CTA exits; the first lane, and its instruction's number, that it does not know to be done, or None."""
        clocks = self._clocks
        per_cluster = clocks.lanes_per_cta * self._ctas
        rank = cta % self._ctas
        start = cta // self._ctas * per_cluster
        users = start + np.flatnonzero(self._when[rank, start : start + per_cluster])
        if not len(users):
            return None
        own = np.arange(cta * clocks.lanes_per_cta, (cta + 1) * clocks.lanes_per_cta)
        clocks.settle(own)
        table = clocks.union(distinct(clocks.known[own]))
        found = self._unknown(clocks.first_thread + users, self._when[rank, users], table)
        return None if found < 0 else (int(users[found]), int(self._what[rank, users[found]]))

    def _unknown(self, threads: NDArray[Any], since: NDArray[np.int32], table: int) -> int:
        """The first thread that a table does not say to be past a clock, or -1."""
        clocks = self._clocks
        return int(_first_unknown(threads, since, table, clocks.shape, clocks.starts, clocks.keys, clocks.values))


@numba.njit(cache=True)
def _first_unknown(threads: Any, since: Any, table: int, shape: Any, starts: Any, keys: Any, values: Any) -> int:
    for i in range(len(threads)):
        if not published(threads[i], since[i], table, shape, starts, keys, values):
            return i
    return -1
