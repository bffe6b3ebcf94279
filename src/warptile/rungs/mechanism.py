"""How a rung moves operands from global memory to its math instructions: what predicted counts follow from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mechanism:
    """Facts of a rung's source.

    Attributes:
        staged: operands go through shared memory.
        vector: global loads and shared stores move 16 bytes where alignment allows.
        asynchronous: ``cp.async`` copies without registers: one instruction instead of a load and a store.
        by_tma: TMA copies: no instruction of the warps, and its bytes cross the data path of shared memory once.
        pad_elements: elements added to each row of a shared tile.
        swizzled: rows of a shared tile are at most 128 bytes, with the XOR swizzle of 16-byte chunks: fragment loads
            have no bank conflicts and no padding.
        narrow_rows: rows of a shared tile are at most 128 bytes; wider tiles are several side by side.
        a_density: stored share of A: half of a 2:4 sparse one.
        stages: buffers in shared memory, where the configuration does not say.
        interleaved: fragment loads are 16 bytes, in a lane order whose wavefronts serve two quarters of a warp.
        packed: multiply-adds of a lane in one instruction: 2 for half2.
        loads_in_flight: where a thread stages through registers, how many of its loads are in flight at a time, with
            float32 and with float16 accumulators; read off the machine code, whose registers limit it.
        unrolled_k: of a kernel that does not stage, K tiles whose loads are in flight together; read off the machine
            code.
        overlaps_stages: fragments of the next stage are loaded during the last MMAs of this one, so that shared memory
            and tensor cores work at the same time.
    """

    staged: bool = True
    vector: bool = True
    asynchronous: bool = True
    by_tma: bool = False
    pad_elements: int = 0
    swizzled: bool = False
    narrow_rows: bool = False
    a_density: float = 1.0
    stages: int = 1
    interleaved: bool = False
    packed: int = 1
    loads_in_flight: tuple[int, int] = (8, 8)
    unrolled_k: int = 1
    overlaps_stages: bool = False
