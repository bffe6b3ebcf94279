"""Finds the memory of an access: shared memory of all CTAs, or a writable allocation of global memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from warptile.emulator.async_ops.cp_async import CopyBatch
from warptile.emulator.checks.access_history import COPYING_FROM, COPYING_TO
from warptile.emulator.checks.vector_clocks import Lanes
from warptile.emulator.memory.accesses import Memory
from warptile.emulator.memory.spaces import GlobalSpace, Offsets, Space
from warptile.isa.swizzle import CHUNK_BYTES

if TYPE_CHECKING:
    from warptile.emulator.async_ops.bulk_copies import BulkTransfer


@dataclass(frozen=True)
class Home:
    """Memory with a history of its own: shared memory of all CTAs, or an allocation."""

    name: str
    size: int


def shared_home(memory: Memory) -> Home:
    """Shared memory of all CTAs of the wave."""
    return Home("shared", len(memory.shared_space.data))


def parts(
    memory: Memory, lanes: Lanes, where: Space, offsets: Offsets, size: int
) -> Iterator[tuple[Home, Lanes, Offsets]]:
    """Accesses by what they lie in, with offsets into that; without those to memory that nobody may write."""
    if where is memory.shared_space:
        yield shared_home(memory), lanes, offsets
        return
    if not isinstance(where, GlobalSpace) or not offsets.size:
        return
    lowest, highest = int(offsets.min()), int(offsets.max())
    first, last = where.around(lowest), where.around(highest)
    assert first is not None
    assert last is not None
    if first is last:
        if first.writable:
            yield Home(first.name, first.size), lanes, offsets - first.start
        return
    for home in where.allocations:
        inside = (offsets >= home.start) & (offsets < home.start + home.size)
        if home.writable and inside.any():
            yield Home(home.name, home.size), lanes[inside], offsets[inside] - home.start


def bulk_parts(
    memory: Memory, transfer: BulkTransfer, places: tuple[Space, Offsets]
) -> Iterator[tuple[Home, Lanes, Offsets]]:
    """Chunks of one end of a bulk copy; of a tensor, those that lie in it at least in part."""
    where, offsets = places
    if where is not memory.shared_space and transfer.fill is not None:
        offsets = offsets[transfer.fill[1] > 0]
    yield from parts(memory, np.full(len(offsets), transfer.lane, dtype=np.intp), where, offsets, CHUNK_BYTES)


def copy_parts(memory: Memory, batch: CopyBatch) -> Iterator[tuple[int, Home, Lanes, Offsets, int]]:
    """What a batch reads (copies of whole size, and single bytes of the others) and what it writes."""
    whole = batch.source_bytes >= batch.size
    space = memory.global_space
    for home, lanes, places in parts(memory, batch.lanes[whole], space, batch.source[whole], batch.size):
        yield COPYING_FROM, home, lanes, places, batch.size
    for byte in range(int(batch.source_bytes[~whole].max(initial=0))):
        part = ~whole & (batch.source_bytes > byte)
        for home, lanes, places in parts(memory, batch.lanes[part], space, batch.source[part] + byte, 1):
            yield COPYING_FROM, home, lanes, places, 1
    yield COPYING_TO, shared_home(memory), batch.lanes, batch.target, batch.size
