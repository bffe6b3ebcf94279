"""The state of one wave of CTAs: geometry, special registers, symbols, memory, registers, pending copies."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from warptile.arch import reserved_shared_bytes
from warptile.device import REFERENCE
from warptile.emulator.async_ops.bulk_copies import BulkCopies
from warptile.emulator.async_ops.cp_async import PendingAsyncCopies, check_schedule
from warptile.emulator.async_ops.remote_stores import RemoteStores
from warptile.emulator.async_ops.wgmma_groups import PendingWgmmas
from warptile.emulator.counters import Counters
from warptile.emulator.lanes import WARP, Array, RegisterFile
from warptile.emulator.memory.accesses import GLOBAL_BASE, LOCAL_WINDOW, SHARED_WINDOW, Memory
from warptile.emulator.memory.device_heap import DeviceHeap
from warptile.emulator.memory.spaces import GlobalSpace
from warptile.emulator.random_turns import turns_of
from warptile.emulator.special_registers import SpecialRegisters
from warptile.emulator.stack_memory import StackMemory
from warptile.emulator.sync.mbarriers import Mbarriers
from warptile.emulator.sync.register_pool import RegisterPool
from warptile.errors import UnknownInstruction
from warptile.isa.wgmma import WARPS
from warptile.launch.spec import Dim3

CLOCK_NAMES = ("clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi")
"""Special registers that change while a kernel runs."""


class LaunchGeometry:
    """Maps the lanes of a wave to threads and CTAs of the launch.

    CTAs are padded with lanes without threads: to whole warps, and where they have more than one warpgroup, to whole
    ones.

    CTAs are numbered cluster by cluster, and by their rank within one. Without clusters each is one of its own.

    Attributes:
        grid: CTAs in x, y, z.
        block: threads of a CTA in x, y, z.
        cluster: CTAs of a cluster in x, y, z.
        cluster_ctas: CTAs of a cluster.
        threads: threads of a CTA.
        lanes_per_cta: the same, padded.
        ctas: CTAs of a full wave.
        lanes: lanes of a full wave.
        exists: for each lane, whether there is a thread behind it (in a full wave).
    """

    def __init__(self, grid: Dim3, block: Dim3, ctas: int, cluster: Dim3 = (1, 1, 1)) -> None:
        self.grid: Dim3 = grid
        self.block: Dim3 = block
        self.cluster: Dim3 = cluster
        self.cluster_ctas = cluster[0] * cluster[1] * cluster[2]
        self.threads = block[0] * block[1] * block[2]
        unit = WARP if self.threads <= WARP * WARPS else WARP * WARPS
        self.lanes_per_cta = -(-self.threads // unit) * unit
        self.ctas = ctas
        self.lanes = ctas * self.lanes_per_cta
        self.exists: NDArray[np.bool_] = np.arange(self.lanes) % self.lanes_per_cta < self.threads

    def name(self, thread: int) -> str:
        """A thread of the grid by its indices; those of a CTA follow each other, and then its padding."""
        cta, inner = divmod(thread, self.lanes_per_cta)
        bx, by, _ = self.block
        place = (inner % bx, inner // bx % by, inner // (bx * by))
        return f"thread ({', '.join(map(str, place))}) of {self.cta_name(cta)}"

    def cta_name(self, number: int) -> str:
        """A CTA of the grid by its indices."""
        place = (int(index[0]) for index in self.cta_indices(np.array([number])))
        return f"block ({', '.join(map(str, place))})"

    def cluster_indices(self, ctas: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """The place of each CTA's cluster in the grid of clusters, in x, y, z."""
        numbers = ctas // self.cluster_ctas
        gx, gy, _ = (ctas // extent for ctas, extent in zip(self.grid, self.cluster, strict=True))
        return numbers % gx, numbers // gx % gy, numbers // (gx * gy)

    def cta_indices(self, ctas: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """The place of each CTA in the grid, in x, y, z."""
        ranks = ctas % self.cluster_ctas
        cx, cy, _ = self.cluster
        within = (ranks % cx, ranks // cx % cy, ranks // (cx * cy))
        clusters = self.cluster_indices(ctas)
        return tuple(c * n + r for c, n, r in zip(clusters, self.cluster, within, strict=True))

    @property
    def total_ctas(self) -> int:
        """CTAs of the whole grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]


class Machine:
    """The state that operations act on; one machine runs all waves of a launch, one after the other.

    While a function is being assembled, ``registers``, ``frame`` (offsets of its locals) and ``shifts`` (how far each
    lane's present activation has moved them, see `recursion`) are that function's.

    Attributes:
        stack: memory that `alloca` takes; None if no function does.
        cooperative: whether the launch is, so that its CTAs may wait for each other.
        why_trapped: what is known of the reason should the kernel execute `trap`, as the end of a message.
    """

    def __init__(
        self,
        geometry: LaunchGeometry,
        memory: Memory,
        counters: Counters,
        *,
        kernel: str,
        arch_capability: int,
        symbols: Mapping[str, int],
        shared: Collection[str],
        dynamic_shared_bytes: int,
        schedule: str,
        checks: frozenset[str] = frozenset(),
        multiprocessors: int = REFERENCE.multiprocessors,
        registers_per_thread: int | None = None,
        warpgroups: bool = False,
        heap: DeviceHeap | None = None,
        grid_workspace: int = 0,
        stack: tuple[int, int] | None = None,
    ) -> None:
        check_schedule(schedule)
        self.geometry = geometry
        self.memory = memory
        self.count = counters
        self.kernel = kernel
        self.arch_capability = arch_capability
        self.checks = checks
        self.symbols = dict(symbols)
        self.shared = frozenset(shared)
        self.frame: dict[str, int] = {}
        self.shifts: Mapping[str, NDArray[np.int64]] = {}
        self.multiprocessors = multiprocessors
        self.cooperative = grid_workspace != 0
        self.heap = heap if heap is not None else DeviceHeap(memory.global_space)
        self.stack = StackMemory(memory, *stack, geometry.lanes) if stack is not None else None
        self.registers = RegisterFile(geometry.lanes)
        self.mbarriers = Mbarriers(memory, schedule)
        self.pool = RegisterPool(memory, geometry, registers_per_thread)
        self.copies = PendingAsyncCopies(memory, schedule, geometry.lanes, self.mbarriers)
        self.bulk = BulkCopies(memory, self.mbarriers, schedule, geometry.lanes, check_exits="bulk-exit" in checks)
        self.remote_stores = RemoteStores(memory, self.mbarriers, schedule)
        self.products = PendingWgmmas(memory, schedule, geometry.lanes)
        self.turns = turns_of(schedule, geometry.lanes, geometry.lanes_per_cta, warpgroups=warpgroups)
        self.fenced_maps: set[int] = set()
        self.output: list[str] = []
        self.steps = 0
        self.last_effect = 0  # step of the last store, barrier, ...
        self.last_poll = 0  # step of the last strong read, or atomic that changed nothing
        self.live: NDArray[np.bool_] = geometry.exists.copy()
        self.why_trapped = ""
        reserved = reserved_shared_bytes(arch_capability)
        constants = {
            "envreg1": grid_workspace >> 32, "envreg2": grid_workspace & 0xFFFFFFFF,
            "dynamic_smem_size": dynamic_shared_bytes,
            "total_smem_size": memory.shared_bytes, "aggr_smem_size": memory.shared_bytes,
            "reserved_smem_offset_begin": 0, "reserved_smem_offset_end": reserved, "reserved_smem_offset_cap": reserved,
            "reserved_smem_offset_0": 0, "reserved_smem_offset_1": reserved // 2,
        }  # fmt: skip
        self._special = SpecialRegisters(geometry, multiprocessors, constants)

    @property
    def global_space(self) -> GlobalSpace:
        """Global memory, which outlives a wave."""
        return self.memory.global_space

    def start_wave(self, first_cta: int, ctas: int) -> None:
        """Put the CTAs ``first_cta ...`` on the machine; fewer than a full wave leaves the rest without threads."""
        geometry = self.geometry
        self._special.start_wave(first_cta)
        self.live = geometry.exists & (np.arange(geometry.lanes) < ctas * geometry.lanes_per_cta)
        if self.turns is not None:
            self.turns.start_wave()
        self.memory.new_wave()
        if self.stack is not None:
            self.stack.start_wave()
        self.memory.peers.start_wave(first_cta, self.live)
        self.copies.new_wave()
        self.products.new_wave()
        self.mbarriers.new_wave()
        self.pool.new_wave()
        self.bulk.new_wave()
        self.remote_stores.new_wave()
        if self.memory.races is not None:
            self.memory.races.start_wave(first_cta * geometry.lanes_per_cta, self.live)
        if self.memory.previous is not None:
            self.memory.previous.start_wave(self.live)
        self.memory.first_thread = first_cta * geometry.lanes_per_cta

    def special(self, name: str) -> Array:
        """A special register as one value per lane."""
        found = self._special.get(name)
        if name == "reserved_smem_offset_1" and found is not None:
            # Cooperative groups of several warps take their barriers there to be zero from sm_80 on.
            self.memory.zeroed_shared = slice(int(found[0]), reserved_shared_bytes(self.arch_capability))
        if name in ("envreg1", "envreg2") and found is not None and not self.cooperative:
            self.why_trapped = (
                "; grid.sync() of cooperative groups traps unless the launch is cooperative: "
                "warptile emulate --cooperative, LaunchSpec(cooperative=True)"
            )
        if found is None:
            raise UnknownInstruction(f"special register %{name} is not known to the emulator")
        return found

    def clock(self, name: str) -> Array:
        """The clock registers count emulated instructions, not time."""
        if name.endswith("_hi"):
            return np.array([self.steps >> 32], dtype=np.uint32)
        wide = name in ("clock64", "globaltimer")
        return np.array([self.steps if wide else self.steps & 0xFFFFFFFF], dtype=np.uint64 if wide else np.uint32)

    def address_of(self, symbol: str) -> int:
        """The address of a variable in its own state space."""
        found = self.frame.get(symbol, self.symbols.get(symbol))
        if found is None:
            raise UnknownInstruction(f"symbol {symbol} has no address")
        return found

    def addresses_of(self, symbol: str, offset: int = 0) -> Array:
        """The same and ``offset`` bytes more: one element, or of shared memory in a cluster, one for each lane.

        Those of variables that move (``shifts``) are what they are now.
        """
        place = np.array([self.address_of(symbol) + offset], dtype=np.int64)
        if symbol in self.shifts:
            return place + self.shifts[symbol]
        own = self.memory.clustered and symbol in self.shared and symbol not in self.frame
        return place + self.memory.shared_base if own else place


def window_base(space: str) -> int:
    """What `cvta` adds to an address of ``space`` to make it generic."""
    return {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(space, 0)


__all__ = ["CLOCK_NAMES", "GLOBAL_BASE", "LaunchGeometry", "Machine", "window_base"]
