"""`barrier.cluster`: the barrier of all threads of a cluster, split into arrive and wait.

A phase ends when every living thread of the cluster has arrived. A thread arrives, waits, and only then arrives again:
so no thread is more than one phase ahead of another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.lanes import WARP, Active
from warptile.emulator.machine import Machine
from warptile.emulator.ops.cluster import ClusterBarrierInstruction
from warptile.emulator.program import ProgramStep
from warptile.errors import ClusterMisuse, DivergentCollective

Lanes = NDArray[np.intp]

NOWHERE = -1


@dataclass
class _Cluster:
    """The barrier of one cluster.

    Attributes:
        phase: number of the current phase.
        tables: what the arrivals of the current phase have released, for the check of races.
        released: what waiting for the phase before acquires.
        waiting: position and lanes of those who wait for the current phase.
    """

    phase: int = 0
    tables: list[int] = field(default_factory=list)
    released: int = 0
    waiting: list[tuple[int, Lanes]] = field(default_factory=list)


class ClusterBarriers:
    """The barriers of all clusters of a wave.

    Args:
        machine: whose threads they hold.
        steps: the program, for messages.
        wake: what to do with lanes that go on: the position behind their wait, and the lanes.
    """

    def __init__(self, machine: Machine, steps: list[ProgramStep], wake: Callable[[int, Active], None]) -> None:
        geometry = machine.geometry
        self._machine = machine
        self._steps = steps
        self._wake = wake
        self._lanes = geometry.lanes_per_cta * geometry.cluster_ctas
        self._exists = geometry.exists
        self._clusters: dict[int, _Cluster] = {}
        # Of every lane: the phase that it has arrived at without having waited, and where; or NOWHERE.
        self._arrived: NDArray[np.int64] = np.full(geometry.lanes, NOWHERE, dtype=np.int64)
        self._place: NDArray[np.int64] = np.full(geometry.lanes, NOWHERE, dtype=np.int64)

    def execute(self, step: ProgramStep, position: int, active: Active) -> tuple[int, Active] | None:
        """`barrier.cluster.arrive` or `.wait` by some lanes: where to go on with whom, or None."""
        barrier = step.detail
        assert isinstance(barrier, ClusterBarrierInstruction)
        self._check_use(step, barrier, active)
        groups = active.lanes // self._lanes
        if barrier.waits:
            going = np.ones(active.count, dtype=np.bool_)
            for number in np.unique(groups).tolist():
                mine = groups == number
                lanes = active.lanes[mine]
                cluster = self._clusters[number]
                early = self._arrived[lanes] == cluster.phase
                if early.any():
                    cluster.waiting.append((position, lanes[early]))
                    going[mine] = ~early
                self._pass(cluster, lanes[~early])
            return (position + 1, active.where(going)) if going.any() else None
        for number in np.unique(groups).tolist():
            lanes = active.lanes[groups == number]
            cluster = self._clusters.setdefault(number, _Cluster())
            self._arrived[lanes] = cluster.phase
            self._place[lanes] = position
            if barrier.orders:
                self._release(cluster, lanes)
            elif self._machine.memory.races is not None:
                cluster.tables.append(self._machine.memory.races.release_fenced(lanes))
            self._complete_if_due(number)
        return position + 1, active

    def exited(self, lanes: Lanes) -> None:
        """The end of a thread counts as its arrival at every phase to come."""
        if self._clusters:
            for number in np.unique(lanes // self._lanes).tolist():
                if number in self._clusters:
                    self._complete_if_due(number)

    def stuck(self) -> list[tuple[int, Lanes, str]]:
        """Who waits where, and for whom."""
        found = []
        for number, cluster in self._clusters.items():
            if not cluster.waiting:
                continue
            missing = self._missing(number)
            first = self._machine.memory.thread(missing[0])
            why = f"waiting for {len(missing)} threads of its cluster to arrive, first {first}"
            found += [(position, lanes, why) for position, lanes in cluster.waiting]
        return found

    def _missing(self, number: int) -> Lanes:
        """Living lanes of a cluster that have not arrived at its current phase."""
        start = number * self._lanes
        part = slice(start, start + self._lanes)
        there = self._arrived[part] == self._clusters[number].phase
        return start + np.flatnonzero(self._machine.live[part] & ~there)

    def _complete_if_due(self, number: int) -> None:
        cluster = self._clusters[number]
        start = number * self._lanes
        if len(self._missing(number)) or not (self._arrived[start : start + self._lanes] == cluster.phase).any():
            return
        self._check_aligned(np.arange(start, start + self._lanes), self._place, cluster.phase)
        races = self._machine.memory.races
        if races is not None:
            exists, live = (each[start : start + self._lanes] for each in (self._exists, self._machine.live))
            self._release(cluster, start + np.flatnonzero(exists & ~live))
            cluster.released = races.union(cluster.tables)
        cluster.tables = []
        cluster.phase += 1
        waiting, cluster.waiting = cluster.waiting, []
        for position, lanes in waiting:
            self._pass(cluster, lanes)
            self._wake(position + 1, Active.of(lanes))

    def _release(self, cluster: _Cluster, lanes: Lanes) -> None:
        races = self._machine.memory.races
        if races is None:
            return
        ctas = lanes // self._machine.geometry.lanes_per_cta
        cluster.tables += [races.release(lanes[ctas == cta]) for cta in np.unique(ctas)]

    def _pass(self, cluster: _Cluster, lanes: Lanes) -> None:
        """These lanes are behind the phase that they had arrived at."""
        self._arrived[lanes] = NOWHERE
        races = self._machine.memory.races
        if races is not None and len(lanes):
            races.met(lanes)
            races.acquire(lanes, cluster.released)

    # -- wrong use -------------------------------------------------------------------------------------------------

    def _check_use(self, step: ProgramStep, barrier: ClusterBarrierInstruction, active: Active) -> None:
        """Arrivals and waits take turns."""
        wrong = (self._arrived[active.index] == NOWHERE) == barrier.waits
        if not wrong.any():
            return
        lane = int(active.lanes[np.argmax(wrong)])
        why = (
            "waits for its cluster without having arrived: barrier.cluster.arrive must come first, once for each wait"
            if barrier.waits
            else "arrives a second time without having waited (barrier.cluster.wait) since its arrival with "
            f"{self._at(int(self._place[lane]))}"
        )
        raise ClusterMisuse(f"{step.instruction}: {self._machine.memory.thread(lane)} {why}", **self._where(step))

    def _check_aligned(self, lanes: Lanes, places: NDArray[np.int64], phase: int) -> None:
        """Lanes of a warp must have arrived through one instruction, if one of theirs is `.aligned`."""
        there = self._arrived[lanes] == phase
        rows = np.where(there, places[lanes], -1).reshape(-1, WARP)
        highest = rows.max(axis=1)
        lowest = np.where(rows < 0, highest[:, None], rows).min(axis=1)
        for warp in np.flatnonzero(lowest != highest).tolist():
            met = [self._steps[int(row)] for row in np.unique(rows[warp]) if row >= 0]
            if any(isinstance(step.detail, ClusterBarrierInstruction) and step.detail.aligned for step in met):
                thread = self._machine.memory.thread(lanes[warp * WARP])
                raise DivergentCollective(
                    f"lanes of the warp of {thread} arrived at their cluster's barrier from {len(met)} places, "
                    + " and ".join(f"{step.instruction} [{step.location}]" for step in met)
                    + ": with .aligned all lanes of a warp execute the same one",
                    **self._where(met[-1]),
                )

    def _at(self, position: int) -> str:
        step = self._steps[position]
        return f"{step.instruction} [{step.location}]"

    def _where(self, step: ProgramStep) -> dict[str, Any]:
        return {"kernel": self._machine.kernel, "location": step.location}
