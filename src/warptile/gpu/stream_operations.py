"""Queues what a stream does beside a launch: copies, and flags by stream memory operations. No SM takes part."""

from __future__ import annotations

from collections.abc import Mapping

from warptile.gpu import driver
from warptile.launch.concurrent_stream import ConcurrentStream, StreamCopy, StreamFlag


def enqueue(stream: ConcurrentStream, pointers: Mapping[str, int], handle: int) -> None:
    """Queue the operations of a stream.

    Args:
        stream: what it does.
        pointers: address of each operand, also of other GPUs' memory that this one can access, or of pinned memory.
        handle: the CUDA stream.

    Raises:
        DeviceError: the driver refuses one. Stream memory operations are refused in a stream that is captured.
    """
    for each in stream.operations:
        if isinstance(each, StreamCopy):
            source = pointers[each.source] + each.source_offset_bytes
            driver.copy_between(pointers[each.target] + each.target_offset_bytes, source, each.bytes, handle)
        elif isinstance(each, StreamFlag):
            driver.write_value(pointers[each.flags] + each.offset_bytes, each.value, handle)
        else:
            driver.wait_for_value(pointers[each.flags] + each.offset_bytes, each.least, handle)
