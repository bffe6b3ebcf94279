"""What Nsight Compute would count, per instruction and in total.

Rules for one warp-wide request (each has a test with the arithmetic beside it):

- *global*: one request a warp instruction; sectors are the distinct aligned 32-byte pieces that its lanes touch.
- *shared*: 32 banks of 4 bytes. A request of 4 bytes a lane or less is one pass of 32 lanes; 8 bytes, two passes of
  16 lanes; 16 bytes, four passes of 8 lanes. A pass takes as many wavefronts as the most distinct words that fall
  into one bank; lanes that read the same word share it. `ldmatrix` takes a pass for each 8x8 matrix.
- *ideal*: the wavefronts that the same request would take without any bank conflict, which is its passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from warptile.emulator.lanes import WARP, Active, Array
from warptile.ptx.instruction import Instruction

SECTOR_BYTES = 32
BANKS = 32

FIELDS = (
    "warp_instructions",
    "tensor_instructions",
    "tensor_flops",
    "global_load_requests",
    "global_load_sectors",
    "global_load_bytes",
    "global_store_requests",
    "global_store_sectors",
    "global_store_bytes",
    "shared_load_requests",
    "shared_load_wavefronts",
    "shared_load_wavefronts_ideal",
    "shared_store_requests",
    "shared_store_wavefronts",
    "shared_store_wavefronts_ideal",
    "barriers",
)
_COLUMN = {name: column for column, name in enumerate(FIELDS)}


@njit(cache=True)
def _count_sectors(addresses: Any, warps: Any, size: int) -> tuple[int, int]:
    """Requests and distinct sectors of accesses of ``size`` bytes whose lanes are grouped by warp."""
    requests = 0
    sectors = 0
    seen = np.empty(WARP * 4, dtype=np.int64)
    held = 0
    warp = -1
    for i in range(len(addresses)):
        if warps[i] != warp:
            warp = warps[i]
            requests += 1
            held = 0
        first = addresses[i] // SECTOR_BYTES
        last = (addresses[i] + size - 1) // SECTOR_BYTES
        for sector in range(first, last + 1):
            known = False
            for j in range(held - 1, -1, -1):
                if seen[j] == sector:
                    known = True
                    break
            if not known:
                if held < len(seen):
                    seen[held] = sector
                    held += 1
                sectors += 1
    return requests, sectors


@njit(cache=True)
def _count_wavefronts(addresses: Any, groups: Any, size: int) -> tuple[int, int]:
    """Passes and wavefronts of shared accesses; ``groups`` numbers the pass each lane belongs to, in order."""
    passes = 0
    wavefronts = 0
    words_per_lane = max(1, size // 4)
    words = np.empty((BANKS, WARP), dtype=np.int64)
    held = np.zeros(BANKS, dtype=np.int64)
    group = -1
    most = 0
    for i in range(len(addresses)):
        if groups[i] != group:
            wavefronts += most
            group = groups[i]
            passes += 1
            held[:] = 0
            most = 1
        first = addresses[i] // 4
        for word in range(first, first + words_per_lane):
            bank = word % BANKS
            known = False
            for j in range(held[bank]):
                if words[bank, j] == word:
                    known = True
                    break
            if not known:
                words[bank, held[bank]] = word
                held[bank] += 1
                most = max(most, held[bank])
    return passes, wavefronts + most


class Counters:
    """Counts per instruction slot of the program: a table with one row per instruction and one column per field."""

    def __init__(self, slots: int) -> None:
        self.table: NDArray[np.int64] = np.zeros((slots, len(FIELDS)), dtype=np.int64)
        self._slot: dict[int, int] = {}

    def place(self, instruction: Instruction, slot: int) -> None:
        """Remember the slot of an instruction (by identity: two alike stand in different lines)."""
        self._slot[id(instruction)] = slot

    def add(self, instruction: Instruction, field: str, amount: int) -> None:
        """Add to one field of one instruction."""
        self.table[self._slot[id(instruction)], _COLUMN[field]] += amount

    def access_global(
        self, instruction: Instruction, active: Active, addresses: Array, size: int, *, write: bool
    ) -> None:
        """One global request per warp: ``size`` bytes at one address for each active lane."""
        requests, sectors = _count_sectors(addresses.astype(np.int64), active.lanes // WARP, size)
        kind = "store" if write else "load"
        row = self.table[self._slot[id(instruction)]]
        row[_COLUMN[f"global_{kind}_requests"]] += requests
        row[_COLUMN[f"global_{kind}_sectors"]] += sectors
        row[_COLUMN[f"global_{kind}_bytes"]] += size * len(addresses)

    def access_shared(
        self, instruction: Instruction, active: Active, addresses: Array, size: int, *, write: bool, pass_lanes: int = 0
    ) -> None:
        """One shared request per warp: ``size`` bytes at one address for each active lane.

        ``pass_lanes`` is the number of neighbouring lanes that one pass serves; by default as many as fill 128 bytes.
        """
        lanes = active.lanes
        together = pass_lanes or WARP // max(1, size // 4)
        passes, wavefronts = _count_wavefronts(addresses.astype(np.int64), lanes // together, size)
        kind = "store" if write else "load"
        row = self.table[self._slot[id(instruction)]]
        row[_COLUMN[f"shared_{kind}_requests"]] += active.warp_count
        row[_COLUMN[f"shared_{kind}_wavefronts"]] += wavefronts
        row[_COLUMN[f"shared_{kind}_wavefronts_ideal"]] += passes

    def total(self) -> dict[str, float]:
        """Sums over the program, with the ratios of API names derived from them."""
        sums = {name: float(value) for name, value in zip(FIELDS, self.table.sum(axis=0), strict=True)}
        return with_ratios(sums)


def with_ratios(sums: dict[str, float]) -> dict[str, float]:
    """Add ``*_conflict_ratio`` (1.0 where there is no access) and keep everything else."""
    for kind in ("load", "store"):
        ideal = sums[f"shared_{kind}_wavefronts_ideal"]
        sums[f"shared_{kind}_conflict_ratio"] = sums[f"shared_{kind}_wavefronts"] / ideal if ideal else 1.0
    return sums


def columns(rows: Sequence[NDArray[np.int64]]) -> dict[str, float]:
    """The fields of some rows of the table, added up."""
    total = np.sum(np.stack(list(rows)), axis=0) if rows else np.zeros(len(FIELDS), dtype=np.int64)
    return with_ratios({name: float(value) for name, value in zip(FIELDS, total, strict=True)})
