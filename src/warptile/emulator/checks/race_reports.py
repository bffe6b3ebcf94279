"""Words the report of a race: the two accesses, the address, and what would order them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warptile.emulator.checks.access_history import COPYING_FROM, WRITING
from warptile.emulator.lanes import WARP
from warptile.emulator.memory.accesses import Memory
from warptile.emulator.memory.allocations import Home
from warptile.errors import DataRace, RedundantStore
from warptile.launch.access import Rows
from warptile.ptx.instruction import Instruction

if TYPE_CHECKING:
    from warptile.emulator.machine import LaunchGeometry


@dataclass(frozen=True)
class Missing:
    """What would order two accesses, and how to change the kernel so that it does."""

    what: str
    fix: str


SYNCWARP = Missing(
    "no __syncwarp() (bar.warp.sync) or barrier between them, and lanes of a warp need not keep step",
    "put __syncwarp() between the two accesses",
)
SYNCTHREADS = Missing(
    "no barrier (__syncthreads()) between them, and no mbarrier's phase",
    "put __syncthreads() between the two accesses, where all threads of the block execute it",
)
CLUSTER_SYNC = Missing(
    "no barrier of their cluster between them (barrier.cluster.arrive, not .relaxed, and wait; cluster.sync())",
    "put cluster.sync() between the two accesses",
)
WIDER = {SYNCWARP.fix: (SYNCTHREADS, CLUSTER_SYNC), SYNCTHREADS.fix: (CLUSTER_SYNC,)}
"""For a fix that orders threads of a warp or of a CTA, what orders more of them too."""

GENERIC_TO_ASYNC = Missing(
    "the write went through the generic proxy, this goes through the async proxy, and no fence.proxy.async "
    "stands between them (behind the write, in the thread that wrote, before the barrier)",
    "execute fence.proxy.async after the write, in the thread that writes, before the barrier",
)

READ_TO_ASYNC = Missing(
    "the read went through the generic proxy, the copy goes through the async proxy, no fence.proxy.async stands "
    "between them, and the thread let the memory go without waiting for what it read: the copy may be faster",
    "execute fence.proxy.async after the read, in the thread that reads, before it arrives at the mbarrier",
)


@dataclass(frozen=True)
class RaceAccess:
    """One of the two accesses of a race: which thread did what with which instruction."""

    instruction: Instruction
    thread: int
    doing: int


STREAM = "stream"
"""Opcode of the instructions that stand for operations of streams beside the launch."""

_NOUN = ("read", "write", "read", "write")
_NOW = ("reads", "writes", "starts a copy from", "starts a copy into")
_BEFORE = ("read", "wrote", "started a copy from", "started a copy into")


class RaceReports:
    """Makes `DataRace` errors.

    Args:
        memory: names threads of the wave and CTAs.
        geometry: names threads of the grid.
        rows: of operands that are matrices, how their elements lie.
        shared: addresses of shared variables.
        reads_flag: whether a thread has read a flag without a fence behind it.
    """

    def __init__(
        self,
        memory: Memory,
        geometry: LaunchGeometry,
        rows: Mapping[str, Rows],
        shared: Mapping[str, int],
        reads_flag: Callable[[int], bool],
    ) -> None:
        self._memory = memory
        self._geometry = geometry
        self._clustered = geometry.cluster_ctas > 1
        self._rows = rows
        self._shared = sorted((address, name) for name, address in shared.items())
        self._reads_flag = reads_flag

    def race(
        self, home: Home, offset: int, first: RaceAccess, second: RaceAccess, missing: Missing | None = None
    ) -> DataRace:
        """Nothing orders two accesses; by default what is ``missing`` is worked out from the two."""
        kind = f"{_NOUN[first.doing]}-{_NOUN[second.doing]}"
        missing = missing or self.missing(first, second)
        return DataRace(
            f"{kind} race on {self._place(home, offset)}: {self._both(first, second)}, "
            f"and nothing orders the two: {missing.what}",
            kernel=self._memory.kernel,
            location=second.instruction.location,
            kind=kind,
            first=first.instruction.location,
            missing=missing.what,
            fix=missing.fix,
        )

    def redundant(self, home: Home, offset: int, first: RaceAccess, second: RaceAccess) -> RedundantStore:
        """Nothing orders two stores, which store the same value."""
        return RedundantStore(
            f"redundant store to {self._place(home, offset)}: {self._both(first, second)}, with the same value, and "
            "nothing orders the two",
            kernel=self._memory.kernel,
            location=second.instruction.location,
            first=first.instruction.location,
        )

    def _both(self, first: RaceAccess, second: RaceAccess) -> str:
        now = f"{self._who(second)} {_NOW[second.doing]} it with {second.instruction.text}"
        before = f"{self._who(first)} {_BEFORE[first.doing]} it with {first.instruction.text}"
        return f"{now}; {before} at {first.instruction.location}"

    def _who(self, access: RaceAccess) -> str:
        if access.instruction.opcode == STREAM:
            return f"{access.instruction.location}, beside the launch,"
        return self._geometry.name(access.thread)

    def too_early(self, instruction: Instruction, lane: int, cta: int) -> DataRace:
        """A lane uses shared memory of a CTA that may not be there yet."""
        memory = self._memory
        return DataRace(
            f"{instruction.text}: {memory.thread(lane)} accesses shared memory of {memory.peers.name(cta)}, which "
            "may not have started yet: barrier.cluster.arrive and wait (cluster.sync()) must come before",
            kernel=memory.kernel,
            location=instruction.location,
            kind="start-access",
            fix="put cluster.sync() before the access",
        )

    def too_late(self, instruction: Instruction, lane: int, cta: int) -> DataRace:
        """A lane used shared memory of a CTA that may have been gone."""
        memory = self._memory
        return DataRace(
            f"{instruction.text}: {memory.thread(lane)} accesses shared memory of {memory.peers.name(cta)}, which "
            "may have exited by then: nothing orders the access before the end of that CTA; "
            "barrier.cluster.arrive and wait (cluster.sync()) must stand between them",
            kernel=memory.kernel,
            location=instruction.location,
            kind="exit-access",
            first=instruction.location,
            fix="put cluster.sync() between the access and the end of the kernel",
        )

    def _place(self, home: Home, offset: int) -> str:
        if home.name != "shared":
            rows = self._rows.get(home.name)
            if rows is None:
                return f"{home.name}+{offset}"
            return f"{home.name}[{', '.join(map(str, rows.element(offset)))}]"
        cta, offset = divmod(offset, self._memory.shared_stride)
        owner = f" of {self._memory.peers.name(cta)}" if self._clustered else ""
        below = [(address, name) for address, name in self._shared if address <= offset]
        if not below:
            return f"shared memory{owner}, byte {offset}"
        address, name = below[-1]
        return f"shared memory{owner}, {unmangled(name)}+{offset - address}"

    def missing(self, first: RaceAccess, second: RaceAccess) -> Missing:
        """What would order the two."""
        per_cta = self._geometry.lanes_per_cta
        if first.instruction.opcode == STREAM:
            return Missing(
                "no flag that its stream sets behind it was read with acquire (ld.acquire.sys) before this access",
                "set a flag behind the copy, in its stream, and wait for that flag with ld.acquire.sys",
            )
        if second.instruction.opcode == STREAM:
            return Missing(
                "its stream has not waited for what the launch does with that memory",
                "have the stream wait for the launch, by an event or a flag",
            )
        if first.doing >= COPYING_FROM and "bulk" in first.instruction.modifiers:
            return Missing(
                "nobody has waited for the copy (the phase of its mbarrier, or cp.async.bulk.wait_group by the thread "
                "that started it, then a barrier)",
                "wait for the copy before the second access",
            )
        if first.doing >= COPYING_FROM and first.instruction.opcode == "wgmma":
            return Missing(
                "the multiplying warp has not waited for its product (wgmma.wait_group, then a barrier)",
                "execute wgmma.wait_group, then a barrier, before the second access",
            )
        if first.doing >= COPYING_FROM:
            if first.thread == second.thread:
                return Missing(
                    "the thread has not waited for its own copy (cp.async.wait_group or wait_all)",
                    "execute cp.async.wait_group (__pipeline_wait_prior()) before the second access",
                )
            return Missing(
                "the copying thread has not waited for its copy (cp.async.wait_group or wait_all, then a barrier)",
                "execute cp.async.wait_group (__pipeline_wait_prior()), then __syncthreads(), before the second access",
            )
        if self._reads_flag(second.thread):
            return Missing(
                "a flag was read, but no fence stands between that and this access (__threadfence(), or ld.acquire)",
                "put __threadfence() between reading the flag and the second access",
            )
        if first.thread // per_cta != second.thread // per_cta:
            per_cluster = per_cta * self._geometry.cluster_ctas
            if first.thread // per_cluster == second.thread // per_cluster:
                return CLUSTER_SYNC
            return Missing(
                "CTAs run in any order; a flag orders them if it is written behind a fence (or with release) and "
                "read before a fence (or with acquire), by strong accesses: atomic, volatile, relaxed",
                "use atomic operations, let each CTA write its own elements, or launch a second kernel",
            )
        if first.instruction.opcode == "cp" and first.doing == WRITING:
            return Missing(
                "the copying thread has waited for its copy, but no barrier between that wait and this access",
                "put __syncthreads() after the wait for the copy",
            )
        if first.thread // WARP == second.thread // WARP:
            return SYNCWARP
        return SYNCTHREADS


def unmangled(name: str) -> str:
    """The variable of a mangled name such as ``_ZZ6kernelPfE4tile``."""
    found = re.search(r"E(\d+)(\w+)$", name)
    return found.group(2)[: int(found.group(1))] if found else name
