"""The state of one wave of blocks: geometry, special registers, symbols, memory, registers, pending copies."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.copies import PendingCopies
from warptile.emulator.counters import Counters
from warptile.emulator.lanes import WARP, Array, RegisterFile
from warptile.emulator.memory import GLOBAL_BASE, LOCAL_WINDOW, SHARED_WINDOW, GlobalSpace, Memory
from warptile.errors import UnknownInstruction
from warptile.launch import Dim3

SHARED_RESERVED_BYTES = 1024
"""The first bytes of a block's shared memory belong to the system (sm_80 on); variables start behind them."""

CLOCK_NAMES = ("clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi")
"""Special registers that change while a kernel runs."""


class Geometry:
    """Which thread of which block every lane of a wave is; blocks are padded to whole warps with lanes without threads.

    Attributes:
        grid: blocks in x, y, z.
        block: threads in x, y, z.
        threads: threads of a block.
        lanes_per_block: the same, rounded up to whole warps.
        blocks: blocks of a full wave.
        lanes: lanes of a full wave.
        exists: for each lane, whether there is a thread behind it (in a full wave).
    """

    def __init__(self, grid: Dim3, block: Dim3, blocks: int) -> None:
        self.grid = grid
        self.block = block
        self.threads = block[0] * block[1] * block[2]
        self.lanes_per_block = -(-self.threads // WARP) * WARP
        self.blocks = blocks
        self.lanes = blocks * self.lanes_per_block
        self.exists: NDArray[np.bool_] = np.arange(self.lanes) % self.lanes_per_block < self.threads

    def name(self, thread: int) -> str:
        """A thread of the grid by its indices; those of a block follow each other, padded to whole warps."""
        block, inner = divmod(thread, self.lanes_per_block)
        bx, by, _ = self.block
        gx, gy, _ = self.grid
        place = (inner % bx, inner // bx % by, inner // (bx * by))
        where = (block % gx, block // gx % gy, block // (gx * gy))
        return f"thread ({', '.join(map(str, place))}) of block ({', '.join(map(str, where))})"

    @property
    def total_blocks(self) -> int:
        """Blocks of the whole grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]


class Machine:
    """What operations act on. One machine serves all waves of a launch, one after the other.

    While a function is being assembled, ``registers`` and ``frame`` (offsets of its locals) are that function's.
    """

    def __init__(
        self,
        geometry: Geometry,
        memory: Memory,
        counters: Counters,
        *,
        kernel: str,
        arch_capability: int,
        symbols: Mapping[str, int],
        dynamic_shared_bytes: int,
        schedule: str,
        checks: frozenset[str] = frozenset(),
        multiprocessors: int = 132,
    ) -> None:
        self.geometry = geometry
        self.memory = memory
        self.count = counters
        self.kernel = kernel
        self.arch_capability = arch_capability
        self.checks = checks
        self.symbols = dict(symbols)
        self.frame: dict[str, int] = {}
        self.multiprocessors = multiprocessors
        self.registers = RegisterFile(geometry.lanes)
        self.copies = PendingCopies(memory, schedule, geometry.lanes)
        self.output: list[str] = []
        self.steps = 0
        self.last_effect = 0
        self.live: NDArray[np.bool_] = geometry.exists.copy()
        self._special = self._fixed_special(dynamic_shared_bytes)

    @property
    def global_space(self) -> GlobalSpace:
        """Global memory, which outlives a wave."""
        return self.memory.global_space

    def start_wave(self, first_block: int, blocks: int) -> None:
        """Put the blocks ``first_block ...`` on the machine; fewer than a full wave leaves the rest without threads."""
        geometry = self.geometry
        ids = first_block + np.arange(geometry.lanes) // geometry.lanes_per_block
        gx, gy, _ = geometry.grid
        for name, value in (("ctaid.x", ids % gx), ("ctaid.y", ids // gx % gy), ("ctaid.z", ids // (gx * gy))):
            self._special[name][:] = value
        self._special["smid"][:] = ids % self.multiprocessors
        self.live = geometry.exists & (np.arange(geometry.lanes) < blocks * geometry.lanes_per_block)
        self.memory.new_wave()
        self.copies.new_wave()
        if self.memory.races is not None:
            self.memory.races.start_wave(first_block * geometry.lanes_per_block, self.live)
        self.memory.first_thread = first_block * geometry.lanes_per_block

    def special(self, name: str) -> Array:
        """A special register as one value per lane."""
        found = self._special.get(name)
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

    def _fixed_special(self, dynamic_shared_bytes: int) -> dict[str, Array]:
        geometry = self.geometry
        lanes = geometry.lanes
        thread = np.arange(lanes) % geometry.lanes_per_block
        bx, by, bz = geometry.block
        lane = np.arange(lanes) % WARP
        bit = np.uint64(1) << lane.astype(np.uint64)

        def full(value: int, dtype: type = np.uint32) -> Array:
            return np.full(lanes, value, dtype=dtype)

        values: dict[str, Array] = {
            "tid.x": thread % bx, "tid.y": thread // bx % by, "tid.z": thread // (bx * by),
            "laneid": lane, "warpid": thread // WARP,
            "lanemask_eq": bit, "lanemask_lt": bit - np.uint64(1), "lanemask_le": 2 * bit - np.uint64(1),
            "lanemask_gt": ~(2 * bit - np.uint64(1)), "lanemask_ge": ~(bit - np.uint64(1)),
        }  # fmt: skip
        special = {name: value.astype(np.uint32) for name, value in values.items()}
        gx, gy, gz = geometry.grid
        constants = {
            "ntid.x": bx, "ntid.y": by, "ntid.z": bz, "nctaid.x": gx, "nctaid.y": gy, "nctaid.z": gz,
            "tid.w": 0, "ntid.w": 1, "ctaid.w": 0, "nctaid.w": 1,
            "ctaid.x": 0, "ctaid.y": 0, "ctaid.z": 0, "smid": 0, "nsmid": self.multiprocessors,
            "nwarpid": geometry.lanes_per_block // WARP, "envreg0": 0,
            "dynamic_smem_size": dynamic_shared_bytes,
            "total_smem_size": self.memory.shared_bytes, "aggr_smem_size": self.memory.shared_bytes,
            "reserved_smem_offset_begin": 0, "reserved_smem_offset_end": SHARED_RESERVED_BYTES,
            "reserved_smem_offset_cap": 0,
            "nclusterid.x": gx, "nclusterid.y": gy, "nclusterid.z": gz,
            "cluster_ctaid.x": 0, "cluster_ctaid.y": 0, "cluster_ctaid.z": 0, "cluster_ctarank": 0,
            "cluster_nctaid.x": 1, "cluster_nctaid.y": 1, "cluster_nctaid.z": 1, "cluster_nctarank": 1,
        }  # fmt: skip
        special.update({name: full(value) for name, value in constants.items()})
        special["gridid"] = full(1, np.uint64)
        for axis in "xyz":  # without clusters, every block is a cluster of its own
            special[f"clusterid.{axis}"] = special[f"ctaid.{axis}"]
        return special


def window_base(space: str) -> int:
    """What `cvta` adds to an address of ``space`` to make it generic."""
    return {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(space, 0)


__all__ = ["CLOCK_NAMES", "GLOBAL_BASE", "SHARED_RESERVED_BYTES", "Geometry", "Machine", "window_base"]
