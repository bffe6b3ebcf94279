"""A launch as its time depends on it: tiles, K tiles, CTAs that share an SM, and bytes that come from DRAM."""

from __future__ import annotations

from dataclasses import dataclass

from warptile.arch import L2_SHARE_FOR_OPERANDS, Device
from warptile.device import DeviceLimits
from warptile.expected.time_constants import KernelWork
from warptile.planning.cost_bounds import fragment_k, resident_ctas
from warptile.rungs.kernel_spec import KernelSpec
from warptile.rungs.legality import ceil_div
from warptile.rungs.rung import Rung

REGISTER_UNIT = 8
"""Registers of a thread are allocated in such units: CUDA C++ Programming Guide, "Hardware multithreading"."""

RESERVED_SHARED_BYTES = 1024
"""Of each CTA, for the system: the same guide, compute capability 9.0."""


@dataclass(frozen=True)
class LaunchShape:
    """What a launch is made of.

    Attributes:
        tiles: of D.
        k_tiles: of a tile.
        bk: elements of a K tile.
        resident: CTAs that an SM holds at a time.
        tiles_of_busiest: tiles of the SM that has most.
        operand_bytes: of A and B once.
        dram_bytes: to and from DRAM.
        repeated_bytes: of the operand that each row of tiles reads anew.
        flops: counted on whole tiles.
    """

    tiles: int
    k_tiles: int
    bk: int
    resident: int
    tiles_of_busiest: int
    operand_bytes: float
    dram_bytes: float
    repeated_bytes: float
    flops: float


def launch_shape(
    rung: Rung, kernel: KernelSpec, work: KernelWork | None, limits: DeviceLimits, rates: Device
) -> LaunchShape:
    """The shape of one launch; ``work`` says what the compiler gave the kernel, where that is known."""
    seen, config = kernel.view.problem, kernel.config
    bm, bn, bk = config["BM"], config["BN"], config.get("BK", fragment_k(rung, seen))
    down, across = ceil_div(seen.m, bm), ceil_div(seen.n, bn)
    tiles = down * across * seen.batch
    k_tiles = max(1, ceil_div(seen.k, bk))
    resident = _resident(kernel, work, limits) if work is not None else resident_ctas(rung, kernel, limits)
    density = 0.5 if seen.a.sparse else 1.0
    slices = 2 if kernel.view.splits else 1
    k_bytes = seen.k * seen.a.dtype.bytes * slices
    of_a, of_b = seen.operand_matrices
    once = (seen.m * density * of_a + seen.n * of_b) * k_bytes
    wave = max(1, min(tiles, limits.multiprocessors * resident))
    if once <= rates.l2_bytes * L2_SHARE_FOR_OPERANDS:
        loaded = once
    else:
        rows = min(config.get("GROUP", max(1.0, wave / across)), down)
        columns = min(max(1.0, wave / rows), across)
        loaded = max(once, ceil_div(tiles, wave) * (rows * bm * density + columns * bn) * k_bytes)
    d_bytes = seen.m * seen.n * seen.batch * seen.d.dtype.bytes * (2 if seen.reads_matrix_c else 1)
    return LaunchShape(
        tiles=tiles, k_tiles=k_tiles, bk=bk, resident=resident,
        tiles_of_busiest=ceil_div(tiles, min(limits.multiprocessors, config.get("SMS", limits.multiprocessors))),
        operand_bytes=once, dram_bytes=loaded + d_bytes, repeated_bytes=seen.n * of_b * k_bytes,
        flops=2.0 * tiles * bm * bn * k_tiles * bk,
    )  # fmt: skip


def _resident(kernel: KernelSpec, work: KernelWork, limits: DeviceLimits) -> int:
    """CTAs of a compiled kernel that an SM holds: its limits of warps, CTAs, shared memory and registers."""
    arch = limits.generation
    registers = ceil_div(work.registers, REGISTER_UNIT) * REGISTER_UNIT
    return max(
        1,
        min(
            arch.max_blocks_per_sm,
            arch.max_warps_per_sm * 32 // kernel.threads,
            arch.shared_bytes_per_sm // (work.shared_bytes + RESERVED_SHARED_BYTES),
            arch.registers_per_sm // (registers * kernel.threads),
        ),
    )
