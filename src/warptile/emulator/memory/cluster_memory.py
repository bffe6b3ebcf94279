"""Shared memory of a cluster: which CTA owns an address, and whether that CTA is still running.

The shared memories of a cluster's CTAs are adjacent in one window, that of shared::cluster: a shared address has
the rank of its CTA from bit `RANK_SHIFT` on, as on the H200, and means the same CTA to every thread. The address of a
variable, and what `cvta` makes of one, has it too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.lanes import Active, Array
from warptile.errors import IllegalAddress, MisalignedAccess
from warptile.ptx.instruction import Instruction

if TYPE_CHECKING:
    from warptile.emulator.machine import LaunchGeometry

RANK_SHIFT = 24
OWN_BYTES = 1 << RANK_SHIFT
"""Every CTA's part of the shared::cluster window."""

Numbers = NDArray[np.int64]


class ClusterSharedMemory:
    """Resolves shared::cluster addresses to the CTAs of one wave.

    Args:
        geometry: names of CTAs and threads, and how many CTAs a cluster has.
        kernel: for messages.
        shared_bytes: shared memory of one CTA.
        shared_stride: how far the memories of two CTAs are apart.
    """

    def __init__(self, geometry: LaunchGeometry, *, kernel: str, shared_bytes: int, shared_stride: int) -> None:
        self._geometry = geometry
        self._kernel = kernel
        self._bytes = shared_bytes
        self._stride = shared_stride
        self._first_cta = 0
        self._live: NDArray[np.bool_] = np.zeros(geometry.lanes, dtype=np.bool_)

    def start_wave(self, first_cta: int, live: NDArray[np.bool_]) -> None:
        """Other CTAs from now on; ``live`` is kept up to date by the machine."""
        self._first_cta = first_cta
        self._live = live

    def name(self, cta: int) -> str:
        """A CTA of this wave by its indices in the grid."""
        return self._geometry.cta_name(self._first_cta + cta)

    def owners(self, lanes: NDArray[np.intp], addresses: Numbers) -> Numbers:
        """The CTA of this wave in whose memory each lane's shared address lies; -1 where there is none."""
        ctas = self._geometry.cluster_ctas
        own = self._own(lanes, addresses.ndim)
        ranks = addresses >> RANK_SHIFT
        return np.where((ranks < 0) | (ranks >= ctas), -1, own - own % ctas + ranks)

    def own(self, lanes: NDArray[np.intp], addresses: Numbers) -> NDArray[np.bool_]:
        """Whether each lane's shared address lies in the memory of its own CTA."""
        mine: NDArray[np.bool_] = self.owners(lanes, addresses) == self._own(lanes, addresses.ndim)
        return mine

    def ranks(self, instruction: Instruction, active: Active, addresses: Numbers) -> Numbers:
        """The rank in its cluster of the CTA in whose memory each shared address lies."""
        owners = self.owners(active.lanes, addresses)
        self._exist(instruction, active, addresses, owners)
        return owners % self._geometry.cluster_ctas

    def map(self, instruction: Instruction, active: Active, addresses: Numbers, ranks: Array) -> Numbers:
        """The same place in the shared memory of the CTA with the given rank, as a shared::cluster address."""
        ctas = self._geometry.cluster_ctas
        chosen = np.broadcast_to(ranks, active.count).astype(np.int64)
        if int(chosen.max()) >= ctas:
            bad = int(np.argmax(chosen >= ctas))
            raise IllegalAddress(
                f"{instruction.text}: {self._thread(active, bad)} asks for the memory of rank {chosen[bad]} of its "
                f"cluster, which has {ctas} CTA{'s' if ctas > 1 else ''}",
                fix="ask for ranks below the number of CTAs of the cluster, or launch larger clusters",
                **self._where(instruction),
            )
        self._exist(instruction, active, addresses, self.owners(active.lanes, addresses))
        return (addresses & (OWN_BYTES - 1)) | chosen << RANK_SHIFT

    def locate(self, instruction: Instruction, active: Active, addresses: Numbers, size: int) -> Numbers:
        """Offsets into the shared memory of all CTAs of shared addresses; checked."""
        owners = self.owners(active.lanes, addresses)
        self._exist(instruction, active, addresses, owners)
        offsets = addresses & (OWN_BYTES - 1)
        outside = offsets + size > self._bytes
        if outside.any():
            raise IllegalAddress(
                f"{instruction.text}: {self._thread(active, outside)} accesses bytes {_first(offsets, outside)}.."
                f"{_first(offsets, outside) + size - 1} of {self._bytes} bytes of shared memory of "
                f"{self.name(_first(owners, outside))}",
                **self._where(instruction),
            )
        misaligned = (offsets & (size - 1)) != 0
        if misaligned.any():
            raise MisalignedAccess(
                f"{instruction.text}: {self._thread(active, misaligned)} accesses byte {_first(offsets, misaligned)} "
                f"of the shared memory of {self.name(_first(owners, misaligned))}, which is not a multiple of {size}",
                **self._where(instruction),
            )
        foreign = owners != self._own(active.lanes, addresses.ndim)
        if foreign.any():
            self._reachable(instruction, active, owners, foreign)
        return offsets + owners * self._stride

    def _own(self, lanes: NDArray[np.intp], dimensions: int) -> Numbers:
        ctas: Numbers = (lanes // self._geometry.lanes_per_cta).astype(np.int64)
        return ctas.reshape(-1, *(1,) * (dimensions - 1))

    def _exist(self, instruction: Instruction, active: Active, addresses: Numbers, owners: Numbers) -> None:
        bad = owners < 0
        if bad.any():
            raise IllegalAddress(
                f"{instruction.text}: {self._thread(active, bad)} uses the shared address "
                f"{_first(addresses, bad):#x}, which belongs to no CTA of its cluster",
                **self._where(instruction),
            )

    def _reachable(self, instruction: Instruction, active: Active, owners: Numbers, foreign: NDArray[np.bool_]) -> None:
        """Another CTA's memory takes an instruction on shared::cluster, and the CTA must still be there."""
        words = instruction.modifiers
        if "shared::cluster" not in words and ("shared" in words or "shared::cta" in words):
            raise IllegalAddress(
                f"{instruction.text}: {self._thread(active, foreign)} accesses shared memory of "
                f"{self.name(_first(owners, foreign))}; another CTA's takes .shared::cluster or a generic address",
                **self._where(instruction),
            )
        alive = np.asarray(self._live.reshape(-1, self._geometry.lanes_per_cta).any(axis=1))
        gone = foreign & ~alive[owners]
        if gone.any():
            raise IllegalAddress(
                f"{instruction.text}: {self._thread(active, gone)} accesses shared memory of "
                f"{self.name(_first(owners, gone))}, which has exited: a CTA must stay until its peers are done "
                "with its shared memory (barrier.cluster.arrive and wait, or cluster.sync(), before it returns)",
                **self._where(instruction),
            )

    def _thread(self, active: Active, bad: NDArray[np.bool_] | int) -> str:
        row = bad if isinstance(bad, int) else int(np.argmax(bad.reshape(len(bad), -1).any(axis=1)))
        thread = self._first_cta * self._geometry.lanes_per_cta + int(active.lanes[row])
        return self._geometry.name(thread)

    def _where(self, instruction: Instruction) -> dict[str, Any]:
        return {"kernel": self._kernel, "location": instruction.location}


def _first(values: Numbers, chosen: NDArray[np.bool_]) -> int:
    return int(np.broadcast_to(values, chosen.shape)[chosen].flat[0])
