"""Streams whose operations run while a kernel does: copies between GPUs, and flags that tell the kernel of them.

A copy is `cudaMemcpyAsync`; setting a flag and waiting for one are stream memory operations (`cuStreamWriteValue32`,
`cuStreamWaitValue32`). Operations of one stream are ordered; nothing else is.
"""

from __future__ import annotations

from dataclasses import dataclass

FLAG_BYTES = 4
"""Of a flag."""


@dataclass(frozen=True)
class StreamCopy:
    """Copies ``bytes`` bytes from one operand to another, by no kernel.

    Attributes:
        source, target: operands, on whichever GPU they are.
        bytes: how many.
        source_offset_bytes, target_offset_bytes: where they begin.
    """

    source: str
    target: str
    bytes: int
    source_offset_bytes: int = 0
    target_offset_bytes: int = 0

    def __str__(self) -> str:
        return f"copy of {self.bytes} bytes of {self.source} to {self.target}+{self.target_offset_bytes}"


@dataclass(frozen=True)
class StreamFlag:
    """Sets a flag, behind everything before it in its stream.

    Attributes:
        flags: the operand that has it.
        offset_bytes: where.
        value: what it is then.
    """

    flags: str
    offset_bytes: int = 0
    value: int = 1

    def __str__(self) -> str:
        return f"write of {self.value} to {self.flags}+{self.offset_bytes}"


@dataclass(frozen=True)
class StreamWait:
    """Holds its stream until a flag has at least some value, unsigned.

    Attributes:
        flags, offset_bytes: as of `StreamFlag`.
        least: the value.
    """

    flags: str
    offset_bytes: int = 0
    least: int = 1

    def __str__(self) -> str:
        return f"wait for {self.flags}+{self.offset_bytes} to be {self.least}"


@dataclass(frozen=True)
class ConcurrentStream:
    """A stream beside that of a launch.

    Attributes:
        name: in messages, such as ``"GPU 1 to GPU 0"``.
        operations: in order. Those before the launch that it does not wait for are among them.
    """

    name: str
    operations: tuple[StreamCopy | StreamFlag | StreamWait, ...]

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the memory that its operations use."""
        found: dict[str, None] = {}
        for each in self.operations:
            found |= dict.fromkeys((each.source, each.target) if isinstance(each, StreamCopy) else (each.flags,))
        return tuple(found)
