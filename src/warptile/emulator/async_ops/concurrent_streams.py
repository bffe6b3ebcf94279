"""Operations of streams beside a launch: copies from other GPUs, and flags, while the kernel runs.

Under the schedule ``latest`` an operation happens when the kernel can do nothing but spin, and of what could happen a
flag comes before a copy: so a flag that no copy stands before, and a kernel that does not wait, both meet memory that
is still in flight. ``earliest`` has all of them happen before the kernel begins, ``random`` some.

To the race check each stream is a thread of its own: setting a flag is a release, waiting for one an acquire, and a
copy reads and writes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from warptile.emulator.checks.race_reports import STREAM
from warptile.emulator.memory.spaces import IN_FLIGHT, INITIALISED, MAPPED, GlobalBuffer, GlobalSpace
from warptile.errors import IllegalAddress, SourceLocation
from warptile.launch.concurrent_stream import FLAG_BYTES, ConcurrentStream, StreamCopy, StreamFlag, StreamWait
from warptile.ptx.instruction import Instruction

if TYPE_CHECKING:
    from warptile.emulator.memory.accesses import Memory

_ORDER = {StreamCopy: (), StreamFlag: ("release", "sys"), StreamWait: ("acquire", "sys")}
"""Memory order of each, as modifiers."""


@dataclass(frozen=True)
class StreamPlace(SourceLocation):
    """Where an operation is: in a stream."""

    place: str = ""

    def __str__(self) -> str:
        return self.place


class ConcurrentStreams:
    """What the streams beside one launch have still to do.

    Args:
        memory: of the wave.
        streams: with the operations that are not ordered before the launch.
        schedule: as of `emulate`.
        first_lane: a lane of the race check for each stream, from this one on.
    """

    def __init__(self, memory: Memory, streams: Sequence[ConcurrentStream], schedule: str, first_lane: int) -> None:
        self._memory = memory
        self._space: GlobalSpace = memory.global_space
        self._names = [each.name for each in streams]
        self._left = [deque(each.operations) for each in streams]
        self._first_lane = first_lane
        self._schedule, _, seed = schedule.partition(":")
        self._random = np.random.default_rng((int(seed or 0), 2))  # another sequence than those of copies and turns
        self._instructions: dict[int, Instruction] = {}
        self._lanes = {id(op): lane for lane, each in enumerate(streams, first_lane) for op in each.operations}
        for each in streams:
            for number, operation in enumerate(each.operations):
                place = StreamPlace(0, place=f"operation {number} of stream {each.name!r}")
                self._instructions[id(operation)] = Instruction(
                    STREAM, _ORDER[type(operation)], (), place, f"{operation}"
                )
                if isinstance(operation, StreamCopy):
                    self._range(operation.source, operation.source_offset_bytes, operation.bytes)
                    self._mark(operation, IN_FLIGHT)

    def start(self) -> None:
        """The kernel begins."""
        count = {"latest": 0, "earliest": self._count()}.get(self._schedule)
        for _ in range(int(self._random.integers(self._count() + 1)) if count is None else count):
            self.advance()

    def advance(self) -> bool:
        """Let one operation happen; False if none can."""
        able = [number for number, left in enumerate(self._left) if left and self._can(left[0])]
        if not able:
            return False
        if self._schedule == "random":
            chosen = able[int(self._random.integers(len(able)))]
        else:
            chosen = min(able, key=lambda number: isinstance(self._left[number][0], StreamCopy))
        self._do(self._left[chosen].popleft())
        return True

    def finish(self) -> None:
        """The kernel is over: what is left happens."""
        while self.advance():
            pass

    @property
    def waiting(self) -> str:
        """What the streams have still to do, for messages."""
        left = [f"stream {name!r} at {ops[0]}" for name, ops in zip(self._names, self._left, strict=True) if ops]
        return ", ".join(left) or "the streams beside it have nothing left to do"

    def copy_into(self, offset: int) -> Instruction | None:
        """The copy that has not happened and will write a byte of global memory."""
        for left in self._left:
            for operation in left:
                if isinstance(operation, StreamCopy):
                    start = self._space.named(operation.target).start + operation.target_offset_bytes
                    if start <= offset < start + operation.bytes:
                        return self._instructions[id(operation)]
        return None

    # -- operations ----------------------------------------------------------------------------------------------

    def _can(self, operation: StreamCopy | StreamFlag | StreamWait) -> bool:
        if not isinstance(operation, StreamWait):
            return True
        start = self._flag(operation)
        return int.from_bytes(self._space.data[start : start + FLAG_BYTES].tobytes(), "little") >= operation.least

    def _do(self, operation: StreamCopy | StreamFlag | StreamWait) -> None:
        if isinstance(operation, StreamCopy):
            self._copy(operation)
        elif isinstance(operation, StreamFlag):
            start = self._flag(operation)
            self._access(operation, operation.flags, operation.offset_bytes, FLAG_BYTES, writes=True)
            self._space.touch(self._space.named(operation.flags))
            self._space.data[start : start + FLAG_BYTES] = np.frombuffer(
                operation.value.to_bytes(FLAG_BYTES, "little"), np.uint8
            )
            self._space.shadow[start : start + FLAG_BYTES] |= MAPPED | INITIALISED
        else:
            self._access(operation, operation.flags, operation.offset_bytes, FLAG_BYTES, writes=False)

    def _copy(self, operation: StreamCopy) -> None:
        self._access(operation, operation.source, operation.source_offset_bytes, operation.bytes, writes=False)
        self._access(operation, operation.target, operation.target_offset_bytes, operation.bytes, writes=True)
        source = self._range(operation.source, operation.source_offset_bytes, operation.bytes)
        target = self._range(operation.target, operation.target_offset_bytes, operation.bytes)
        self._space.data[target] = self._space.data[source].copy()
        self._mark(operation, 0)
        self._space.shadow[target] = self._space.shadow[source] & (MAPPED | INITIALISED)

    def _mark(self, operation: StreamCopy, flight: int) -> None:
        """Whether the bytes that a copy writes are on their way."""
        target = self._range(operation.target, operation.target_offset_bytes, operation.bytes)
        home = self._space.named(operation.target)
        self._space.touch(home)
        home.initialised = False
        self._space.shadow[target] = (self._space.shadow[target] & np.uint8(0xFF & ~IN_FLIGHT)) | flight

    def _flag(self, operation: StreamFlag | StreamWait) -> int:
        return int(self._range(operation.flags, operation.offset_bytes, FLAG_BYTES).start)

    def _range(self, name: str, offset: int, size: int) -> slice:
        home: GlobalBuffer = self._space.named(name)
        if offset < 0 or offset + size > home.size:
            raise IllegalAddress(f"{name} has {home.size} bytes; a stream uses bytes {offset} to {offset + size - 1}")
        return slice(home.start + offset, home.start + offset + size)

    def _access(
        self, operation: StreamCopy | StreamFlag | StreamWait, name: str, offset: int, size: int, *, writes: bool
    ) -> None:
        races = self._memory.races
        if races is not None:
            home, lane = self._space.named(name), self._lanes[id(operation)]
            races.by_stream(self._instructions[id(operation)], lane, home, offset, size, writes=writes)

    def _count(self) -> int:
        return sum(map(len, self._left))
