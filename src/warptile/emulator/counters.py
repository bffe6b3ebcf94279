"""Counts what Nsight Compute counts, per instruction and in total.

The rules for one warp-wide request were found with single-warp kernels under Nsight Compute on an H200; the table in
docs/counters.md shows the patterns and what was read. Each rule has a test with the arithmetic beside it.

- *Global.* One request a warp instruction; sectors are the distinct aligned 32-byte pieces that its lanes touch; bytes
  are counted once however many lanes ask for them.
- *Shared.* 32 banks of 4 bytes. Up to 4 bytes a lane, 32 lanes are one pass; 8 bytes, two passes of 16; 16 bytes,
  four passes of 8. A pass takes as many wavefronts as the most distinct words in one bank. Two neighbouring passes of
  a load become one when in the whole warp every lane i asks for what lane i ^ 1 asks for (or every lane for what
  lane i ^ 2 asks for) and the joint pass has no conflict. `ldmatrix` takes a pass for each 8x8 matrix.
- *`cp.async` bypassing L1* (.cg, 16 bytes). Data moves in 32-byte pieces: of one global sector into one aligned 32-byte
  block of shared memory. Sectors are the distinct pairs of global 128-byte line and shared block. For each half-warp,
  global line and shared 128-byte line, a wavefront can take each sector to one block and fill each block from one.
- *`cp.async` through L1* (.ca, 4 or 8 bytes). Lanes are distributed over as many rounds as banks conflict; each
  round takes a wavefront for every global line in it.
- *`wgmma`* reads what its descriptors name once for the four warps together, 128 bytes a wavefront: the eight chunks of
  16 bytes of a core matrix lie in 32 different banks under every swizzle, so there are no conflicts.
- *Bulk and tensor copies* move pieces of at most 128 bytes of a row (of a bulk copy, from its start on). Sectors are
  those that each piece touches: of loads in every destination CTA, inside the tensor or not; of stores and reductions
  inside the tensor only.
- *Ideal* wavefronts are the passes, or 128 bytes each of what the active lanes ask for if that is fewer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from warptile.emulator.lanes import WARP, Active, Array
from warptile.isa.swizzle import CHUNK_BYTES
from warptile.ptx.instruction import Instruction

SECTOR_BYTES = 32
LINE_BYTES = 128
BANKS = 32

FIELDS = (
    "warp_instructions",
    "tensor_instructions",
    "tensor_flops",
    "tensor_operand_wavefronts",
    "global_load_requests",
    "global_load_sectors",
    "global_load_bytes",
    "global_store_requests",
    "global_store_sectors",
    "global_store_bytes",
    "tma_load_sectors",
    "tma_zero_bytes",
    "tma_store_sectors",
    "tma_reduce_sectors",
    "shared_load_requests",
    "shared_load_wavefronts",
    "shared_load_wavefronts_ideal",
    "shared_store_requests",
    "shared_store_wavefronts",
    "shared_store_wavefronts_ideal",
    "shared_async_copy_requests",
    "shared_async_copy_wavefronts",
    "shared_async_copy_wavefronts_ideal",
    "barriers",
)
SHARED_KINDS = ("load", "store", "async_copy")
"""What accesses shared memory by its own counters: ``cp.async`` (LDGSTS) is no store (STS, STSM) to Nsight Compute."""

_COLUMN = {name: column for column, name in enumerate(FIELDS)}


def piece_sectors(places: NDArray[np.int64], row: int, inside: NDArray[np.bool_] | None = None) -> int:
    """Sectors of a bulk or tensor copy: of each piece of up to 128 bytes of a row, those that it touches.

    Args:
        places: of all chunks of 16 bytes in global memory, in the order of the box.
        row: chunks of one row of it.
        inside: which chunks count; of each row the first ones.
    """
    sectors = places // SECTOR_BYTES
    fresh = np.arange(len(places)) % row % (LINE_BYTES // CHUNK_BYTES) == 0
    fresh[1:] |= sectors[1:] != sectors[:-1]
    return int(np.count_nonzero(fresh if inside is None else fresh & inside))


@njit(cache=True)
def _count_sectors(addresses: Any, warps: Any, size: int) -> tuple[int, int, int]:
    """Requests, distinct sectors and distinct elements of accesses of ``size`` bytes, lanes in order of warps."""
    requests = 0
    sectors = 0
    elements = 0
    seen = np.empty(WARP * 2, dtype=np.int64)
    held = 0
    start = 0
    warp = -1
    for i in range(len(addresses)):
        if warps[i] != warp:
            warp = warps[i]
            requests += 1
            held = 0
            start = i
        fresh = True
        for j in range(i - 1, start - 1, -1):
            if addresses[j] == addresses[i]:
                fresh = False
                break
        if not fresh:
            continue
        elements += 1
        for sector in range(addresses[i] // SECTOR_BYTES, (addresses[i] + size - 1) // SECTOR_BYTES + 1):
            known = False
            for j in range(held - 1, -1, -1):
                if seen[j] == sector:
                    known = True
                    break
            if not known:
                seen[held] = sector
                held += 1
                sectors += 1
    return requests, sectors, elements


@njit(cache=True)
def _pass_wavefronts(addresses: Any, first: int, last: int, size: int, words: Any, held: Any) -> int:
    """Wavefronts of one pass, lanes ``first`` to ``last``: the most distinct words in one bank."""
    held[:] = 0
    most = 1
    for i in range(first, last):
        word = addresses[i] // 4
        for part in range(max(1, size // 4)):
            bank = (word + part) % BANKS
            known = False
            for j in range(held[bank]):
                if words[bank, j] == word + part:
                    known = True
                    break
            if not known:
                words[bank, held[bank]] = word + part
                held[bank] += 1
                most = max(most, held[bank])
    return most


@njit(cache=True)
def _neighbours_agree(addresses: Any, lanes: Any, first: int, last: int, distance: int) -> bool:
    """Whether every active lane of a warp asks for the same as its neighbour, lane ^ distance."""
    table = np.full(WARP, -1, dtype=np.int64)
    for i in range(first, last):
        table[lanes[i] % WARP] = addresses[i]
    for i in range(WARP):
        if table[i] >= 0 and table[i ^ distance] >= 0 and table[i] != table[i ^ distance]:
            return False
    return True


@njit(cache=True)
def _count_wavefronts(addresses: Any, lanes: Any, size: int, pass_lanes: int, joins: bool) -> tuple[int, int]:
    """Ideal and real wavefronts of shared accesses of ``size`` bytes, ``pass_lanes`` neighbouring lanes to a pass."""
    ideal = 0
    wavefronts = 0
    words = np.empty((BANKS, WARP * 4), dtype=np.int64)
    held = np.zeros(BANKS, dtype=np.int64)
    start = 0
    count = len(addresses)
    while start < count:
        end = start
        warp = lanes[start] // WARP
        while end < count and lanes[end] // WARP == warp:
            end += 1
        passes = 0
        joined = joins and (
            _neighbours_agree(addresses, lanes, start, end, 1) or _neighbours_agree(addresses, lanes, start, end, 2)
        )
        i = start
        while i < end:
            wide = i
            while joined and wide < end and lanes[wide] // (2 * pass_lanes) == lanes[i] // (2 * pass_lanes):
                wide += 1
            if joined and _pass_wavefronts(addresses, i, wide, size, words, held) == 1:
                passes += 1
                wavefronts += 1
                i = wide
                continue
            narrow = i
            while narrow < end and lanes[narrow] // pass_lanes == lanes[i] // pass_lanes:
                narrow += 1
            passes += 1
            wavefronts += _pass_wavefronts(addresses, i, narrow, size, words, held)
            i = narrow
        ideal += min(passes, ((end - start) * size + BANKS * 4 - 1) // (BANKS * 4))
        start = end
    return ideal, wavefronts


@njit(cache=True)
def _count_bypass(source: Any, target: Any, lanes: Any) -> tuple[int, int]:
    """Sectors and wavefronts of 16-byte copies that bypass L1."""
    sectors = 0
    wavefronts = 0
    count = len(source)
    counted = np.zeros(count, dtype=np.bool_)
    for i in range(count):
        fresh = True
        j = i - 1
        while j >= 0 and lanes[j] // WARP == lanes[i] // WARP:
            if (
                source[j] // LINE_BYTES == source[i] // LINE_BYTES
                and target[j] // SECTOR_BYTES == target[i] // SECTOR_BYTES
            ):
                fresh = False
                break
            j -= 1
        sectors += fresh
        if counted[i]:
            continue
        # All copies of this half-warp from the same global line into the same shared line.
        into = np.zeros((4, 4), dtype=np.bool_)
        j = i
        while j < count and lanes[j] // 16 == lanes[i] // 16:
            if (
                source[j] // LINE_BYTES == source[i] // LINE_BYTES
                and target[j] // LINE_BYTES == target[i] // LINE_BYTES
            ):
                counted[j] = True
                into[source[j] // SECTOR_BYTES % 4, target[j] // SECTOR_BYTES % 4] = True
            j += 1
        most = 1
        for sector in range(4):
            most = max(most, np.sum(into[sector]), np.sum(into[:, sector]))
        wavefronts += most
    return sectors, wavefronts


@njit(cache=True)
def _count_cached_copies(source: Any, target: Any, lanes: Any, size: int, pass_lanes: int) -> int:
    """Wavefronts of copies through L1: rounds by bank conflict, and in each round one for every global line."""
    wavefronts = 0
    count = len(source)
    rounds = np.zeros(count, dtype=np.int64)
    for i in range(count):
        j = i - 1
        while j >= 0 and lanes[j] // pass_lanes == lanes[i] // pass_lanes:
            for a in range(size // 4):
                for b in range(size // 4):
                    word, other = target[i] // 4 + a, target[j] // 4 + b
                    if word != other and word % BANKS == other % BANKS:
                        rounds[i] = max(rounds[i], rounds[j] + 1)
            j -= 1
        fresh = True
        j = i - 1
        while j >= 0 and lanes[j] // pass_lanes == lanes[i] // pass_lanes:
            if rounds[j] == rounds[i] and source[j] // LINE_BYTES == source[i] // LINE_BYTES:
                fresh = False
                break
            j -= 1
        wavefronts += fresh
    return wavefronts


def _pass_lanes(size: int) -> int:
    """Lanes of one pass: those that fill 128 bytes."""
    return WARP // max(1, size // 4)


class Counters:
    """Counts per instruction slot of the program: a table with one row per instruction and one column per field."""

    def __init__(self, slots: int) -> None:
        self.table: NDArray[np.int64] = np.zeros((slots, len(FIELDS)), dtype=np.int64)
        self._slot: dict[int, int] = {}

    def place(self, instructions: Iterable[Instruction], start: int) -> None:
        """Remember the slots of instructions that follow each other from slot ``start`` on (by identity: two alike
        stand in different lines)."""
        self._slot.update((id(instruction), slot) for slot, instruction in enumerate(instructions, start))

    def row(self, instruction: Instruction) -> NDArray[np.int64]:
        """The counters of one instruction: a view of its row of the table."""
        row: NDArray[np.int64] = self.table[self._slot[id(instruction)]]
        return row

    def add(self, instruction: Instruction, field: str, amount: int) -> None:
        """Add to one field of one instruction."""
        self.table[self._slot[id(instruction)], _COLUMN[field]] += amount

    def access_global(
        self, instruction: Instruction, active: Active, addresses: Array, size: int, *, write: bool
    ) -> None:
        """One global request per warp: ``size`` bytes at one address for each active lane."""
        requests, sectors, elements = _count_sectors(addresses.astype(np.int64), active.lanes // WARP, size)
        kind = "store" if write else "load"
        row = self.table[self._slot[id(instruction)]]
        row[_COLUMN[f"global_{kind}_requests"]] += requests
        row[_COLUMN[f"global_{kind}_sectors"]] += sectors
        row[_COLUMN[f"global_{kind}_bytes"]] += size * elements

    def access_shared(
        self, instruction: Instruction, active: Active, addresses: Array, size: int, *, write: bool, pass_lanes: int = 0
    ) -> None:
        """One shared request per warp: ``size`` bytes at one address for each active lane.

        ``pass_lanes`` is the number of neighbouring lanes that one pass serves; by default as many as fill 128 bytes.
        """
        together = pass_lanes or _pass_lanes(size)
        joins = not write and not pass_lanes and size > 4
        ideal, wavefronts = _count_wavefronts(addresses.astype(np.int64), active.lanes, size, together, joins)
        self._add_shared("store" if write else "load", instruction, active, ideal, wavefronts)

    def copy_async(
        self,
        instruction: Instruction,
        active: Active,
        source: Array,
        target: Array,
        size: int,
        *,
        reads: NDArray[np.bool_],
        bypasses_l1: bool,
    ) -> None:
        """One `cp.async` per warp: ``size`` bytes from a global to a shared address for each lane that reads.

        Lanes that read nothing write zeros, with the wavefronts of stores. Compilers split such copies in ways that
        PTX does not show, so the wavefronts of zero-filled edges are an estimate.
        """
        lanes, place = active.lanes, target.astype(np.int64)
        together = _pass_lanes(size)
        ideal, _ = _count_wavefronts(place, lanes, size, together, False)
        wavefronts = 0
        if not reads.all():
            _, wavefronts = _count_wavefronts(place[~reads], lanes[~reads], size, together, False)
            lanes, place, source = lanes[reads], place[reads], source[reads]
        if len(lanes):
            origin = source.astype(np.int64)
            requests, sectors, elements = _count_sectors(origin, lanes // WARP, size)
            if bypasses_l1:
                sectors, copied = _count_bypass(origin, place, lanes)
            else:
                copied = _count_cached_copies(origin, place, lanes, size, together)
            wavefronts += copied
            row = self.table[self._slot[id(instruction)]]
            row[_COLUMN["global_load_requests"]] += requests
            row[_COLUMN["global_load_sectors"]] += sectors
            row[_COLUMN["global_load_bytes"]] += size * elements
        self._add_shared("async_copy", instruction, active, ideal, wavefronts)

    def bulk_load(self, instruction: Instruction, size: int, sectors: int, ctas: int, zeros: int = 0) -> None:
        """A bulk copy of ``size`` bytes of global memory, and of ``zeros`` bytes from outside a tensor, into the shared
        memory of each of ``ctas`` CTAs.

        It bypasses L1, so it requests no sectors there.
        """
        self.add(instruction, "global_load_bytes", size)
        self.add(instruction, "tma_load_sectors", sectors * ctas)
        self.add(instruction, "tma_zero_bytes", zeros * ctas)

    def bulk_store(self, instruction: Instruction, size: int, sectors: int, *, reduces: bool) -> None:
        """A bulk copy of ``size`` bytes to global memory, or a reduction there."""
        self.add(instruction, "global_store_bytes", size)
        self.add(instruction, "tma_reduce_sectors" if reduces else "tma_store_sectors", sectors)

    def _add_shared(self, kind: str, instruction: Instruction, active: Active, ideal: int, wavefronts: int) -> None:
        row = self.table[self._slot[id(instruction)]]
        row[_COLUMN[f"shared_{kind}_requests"]] += active.warp_count
        row[_COLUMN[f"shared_{kind}_wavefronts"]] += wavefronts
        row[_COLUMN[f"shared_{kind}_wavefronts_ideal"]] += ideal

    def total(self) -> dict[str, float]:
        """Sums over the program, with the ratios of API names derived from them."""
        sums = {name: float(value) for name, value in zip(FIELDS, self.table.sum(axis=0), strict=True)}
        return with_ratios(sums)


def with_ratios(sums: dict[str, float]) -> dict[str, float]:
    """Add ``*_conflict_ratio`` (1.0 where there is no access) and keep everything else."""
    for kind in SHARED_KINDS:
        ideal = sums[f"shared_{kind}_wavefronts_ideal"]
        sums[f"shared_{kind}_conflict_ratio"] = sums[f"shared_{kind}_wavefronts"] / ideal if ideal else 1.0
    return sums


def columns(rows: NDArray[np.int64]) -> dict[str, float]:
    """The fields of some rows of the table, added up."""
    total = rows.sum(axis=0).astype(np.float64)
    return with_ratios(dict(zip(FIELDS, total.tolist(), strict=True)))
