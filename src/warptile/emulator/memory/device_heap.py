"""The heap of `malloc` and `free` in kernels (CUDA C++ Programming Guide, "Dynamic Global Memory Allocation")."""

from __future__ import annotations

from dataclasses import dataclass

from warptile.emulator.memory.spaces import GlobalBuffer, GlobalSpace
from warptile.errors import SourceLocation

HEAP_BYTES = 8 << 20
"""Most bytes that are allocated at the same time: ``cudaLimitMallocHeapSize``, as it is unless a program changes it."""

_ROOM_BYTES = 16 * HEAP_BYTES
"""Addresses that are reserved for a launch, because blocks have guard bands and freed ones are not reused at once."""


@dataclass(frozen=True)
class HeapBlock:
    """What one call of `malloc` has allocated.

    Attributes:
        buffer: its bytes.
        thread: who called, such as ``"thread (0, 0, 0) of block (0, 0, 0)"``.
        location: of the call.
    """

    buffer: GlobalBuffer
    thread: str
    location: SourceLocation


@dataclass(frozen=True)
class HeapSnapshot:
    """What `DeviceHeap.snapshot` keeps."""

    blocks: dict[int, HeapBlock]
    used_bytes: int
    count: int


class DeviceHeap:
    """Blocks that kernels have allocated in global memory. They outlive the launch until a kernel frees them.

    Attributes:
        limit_bytes: most bytes of all blocks together; `allocate` has no room beyond them.
        blocks: those that have not been freed, by their offset in global memory.
    """

    def __init__(self, space: GlobalSpace) -> None:
        self.limit_bytes = HEAP_BYTES
        self.blocks: dict[int, HeapBlock] = {}
        self._space = space
        self._used_bytes = 0
        self._count = 0

    def reserve(self) -> None:
        """Make room for the blocks of the next launch, as memory cannot move while a kernel runs."""
        self._space.reserve(_ROOM_BYTES)

    def allocate(self, size: int, alignment: int, thread: str, location: SourceLocation) -> GlobalBuffer | None:
        """A new block, which holds nothing; None if there is no room."""
        if self._used_bytes + size > self.limit_bytes:
            return None
        line = f" ({location.file}:{location.line})" if location.file and location.line else ""
        buffer = self._space.allocate_in_place(f"malloc {self._count + 1}{line}", size, alignment)
        if buffer is not None:
            self._count += 1
            self._used_bytes += size
            self.blocks[buffer.start] = HeapBlock(buffer, thread, location)
        return buffer

    def free(self, block: HeapBlock) -> None:
        """End a block: its bytes belong to nobody."""
        del self.blocks[block.buffer.start]
        self._used_bytes -= block.buffer.size
        self._space.free(block.buffer.name)

    def snapshot(self) -> HeapSnapshot:
        """Which blocks there are, for `restore`."""
        return HeapSnapshot(dict(self.blocks), self._used_bytes, self._count)

    def restore(self, snapshot: HeapSnapshot) -> None:
        """Undo what has been allocated and freed since."""
        self.blocks, self._used_bytes, self._count = dict(snapshot.blocks), snapshot.used_bytes, snapshot.count
