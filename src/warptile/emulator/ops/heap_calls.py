"""`malloc` and `free` in kernels, and what ``new``, ``delete`` and ``__nv_aligned_device_malloc`` become."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from warptile.emulator.builders import Source
from warptile.emulator.lanes import Active, Array
from warptile.emulator.machine import Machine
from warptile.emulator.memory.accesses import GLOBAL_BASE
from warptile.emulator.memory.spaces import GlobalSpace
from warptile.errors import IllegalAddress
from warptile.ptx.instruction import Instruction

MALLOC_ALIGNMENT_BYTES = 16
"""CUDA C++ Programming Guide, "Dynamic Global Memory Allocation": malloc returns multiples of it."""


def allocation(
    instruction: Instruction,
    machine: Machine,
    reads: Sequence[Source],
    store: Callable[[Active, Array], None] | None,
) -> Callable[[Active], None]:
    """`malloc(size)`, or with a second argument its alignment. Where there is no room the result is null."""
    heap = machine.heap

    def allocate(active: Active) -> None:
        machine.last_effect = machine.steps
        sizes = np.broadcast_to(reads[0](active), active.count).tolist()
        alignments = [MALLOC_ALIGNMENT_BYTES] * active.count
        if len(reads) > 1:
            alignments = np.broadcast_to(reads[1](active), active.count).tolist()
        addresses = np.zeros(active.count, dtype=np.uint64)
        for row, lane in enumerate(active.lanes.tolist()):
            made = None
            if alignments[row] and not alignments[row] & (alignments[row] - 1):  # a power of two
                made = heap.allocate(sizes[row], alignments[row], machine.memory.thread(lane), instruction.location)
            addresses[row] = made.start + GLOBAL_BASE if made is not None else 0
        if store is not None:
            store(active, addresses)

    return allocate


def release(instruction: Instruction, machine: Machine, read: Source) -> Callable[[Active], None]:
    """`free(pointer)` by each lane; a null pointer is none."""
    heap, space = machine.heap, machine.global_space

    def free(active: Active) -> None:
        machine.last_effect = machine.steps
        addresses = np.broadcast_to(read(active), active.count).astype(np.int64)
        for lane, address in zip(active.lanes.tolist(), addresses.tolist(), strict=True):
            if not address:
                continue
            offset = address - GLOBAL_BASE
            block = heap.blocks.get(offset)
            if block is None:
                raise IllegalAddress(
                    f"{instruction.text}: {machine.memory.thread(lane)} frees {address:#x}, {_said(space, offset)}",
                    kernel=machine.kernel,
                    location=instruction.location,
                    fix="free each block once, by the pointer that malloc gave",
                )
            if machine.memory.races is not None:
                machine.memory.races.freed(instruction, lane, block.buffer)
            heap.free(block)

    return free


def _said(space: GlobalSpace, offset: int) -> str:
    """What lies where `free` has been given no block."""
    gone, home = space.freed_around(offset), space.around(offset)
    if gone is not None and gone.start == offset:
        return f"but {gone.name} has been freed already"
    if home is not None and home.start <= offset < home.start + home.size:
        return f"byte {offset - home.start} of {home.name}; it takes what malloc has returned"
    return "which malloc has not returned"
