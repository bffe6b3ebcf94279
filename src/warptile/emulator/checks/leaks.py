"""Finds memory that a kernel has allocated by `malloc` and no kernel can free any more."""

from __future__ import annotations

from warptile.emulator.findings import Findings
from warptile.emulator.memory.device_heap import DeviceHeap, HeapBlock
from warptile.errors import MemoryLeak, SourceLocation


def report_leaks(heap: DeviceHeap, findings: Findings, kernel: str) -> None:
    """Report the blocks that are left of a heap whose memory ends now, those of each `malloc` together."""
    by_call: dict[SourceLocation, list[HeapBlock]] = {}
    for block in heap.blocks.values():
        by_call.setdefault(block.location, []).append(block)
    for location, blocks in by_call.items():
        size = sum(block.buffer.size for block in blocks)
        what = f"{len(blocks)} blocks, {size} bytes in all, are" if len(blocks) > 1 else f"{size} bytes are"
        error = MemoryLeak(
            f"{what} never freed: {blocks[0].thread} allocated {'the first of them' if len(blocks) > 1 else 'them'}",
            kernel=kernel,
            location=location,
        )
        findings.report(error, count=len(blocks))
