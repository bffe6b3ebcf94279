"""Predicted time of wgmma-quantized, by the resources that it uses.

* dram: packed weights, activations and D once.
* l2: what all CTAs load, and partial accumulators, written and read.
* issue: instructions that dequantize, of the SM with the most K tiles.
* tensor: multiply-adds of whole tiles, likewise. Both add up: warps that wait to issue wgmmas do not dequantize.
* launch: the launch, the first loads and the last stores, and where K is split the rendezvous.
"""

from __future__ import annotations

from warptile.arch import H200
from warptile.problem import Problem
from warptile.quantization import BLOCK_K, BLOCK_ROWS, Quantization, k_blocks, row_blocks
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import ceil_div

L2_BYTES_PER_S = 6e12
"""From L2 to shared memory, all SMs together. An estimate, as is what follows."""

INSTRUCTIONS, OF_K_TILE = {4: 2.1, 8: 2.6}, 0.8
"""Of a thread for each weight, by bits of a code; and those of a K tile, for each weight of a warpgroup that has one
block of 64 rows. Counted in machine code."""

ISSUED_PER_CLOCK = 100
"""Of 128 threads' instructions that an SM can issue."""

OVERLAPPED = 0.95
"""Share of the time of both that is left where they overlap after all: from timings on an H200."""

TWO_STAGES = 1.25
"""How much longer a mainloop takes with two stages than with more. An estimate."""

LAUNCH_US, SPLIT_US, STREAM_US = 3.0, 2.0, 0.7
"""Of a launch; of the rendezvous of splits; and of each part of a tile that a CTA adds to its own with STREAM."""


def terms_us(problem: Problem, config: Config, sms: int) -> tuple[dict[str, float], float]:
    """Microseconds of each resource and of the whole kernel, for the problem as the user sees it."""
    packed = problem.b.quantized
    assert isinstance(packed, Quantization), problem
    bm, bn, splits = config["BM"], config["BN"], config["SPLIT_K"]
    blocks, k_tiles = row_blocks(problem.n), k_blocks(problem.k)
    tiles = ceil_div(problem.n, bm) * ceil_div(problem.m, bn)
    streams = config["STREAM"] > 0
    of_busiest = tiles * k_tiles / sms if streams else ceil_div(tiles * splits, sms) * ceil_div(k_tiles, splits)
    element_bytes = problem.a.dtype.bits // 8
    d_bytes = problem.m * problem.n * problem.d.dtype.bits // 8 * (2 if problem.reads_matrix_c else 1)
    once = blocks * k_tiles * packed.block_bytes + problem.m * problem.k * element_bytes + d_bytes
    loaded = tiles * k_tiles * (bm // BLOCK_ROWS * packed.block_bytes + bn * BLOCK_K * element_bytes)
    slots = sms if streams else tiles * splits if splits > 1 else 0
    instructions = INSTRUCTIONS[packed.bits] + OF_K_TILE * config["CONSUMERS"] * BLOCK_ROWS / bm
    clock_us = 1e6 / H200.clock_hz
    flop_per_clock = H200.wgmma_tflops["bfloat16"] * 1e12 / H200.multiprocessors / H200.clock_hz
    found = {
        "dram": once / H200.dram_bytes_per_s * 1e6,
        "l2": (loaded + 2 * slots * bm * bn * 4) / L2_BYTES_PER_S * 1e6,
        "issue": of_busiest * bm * BLOCK_K * instructions / ISSUED_PER_CLOCK * clock_us,
        "tensor": of_busiest * 2 * bm * bn * BLOCK_K / flop_per_clock * clock_us,
        "launch": LAUNCH_US + (SPLIT_US if splits > 1 else 0.0) + (streams * STREAM_US * (ceil_div(sms, tiles) + 1)),
    }
    busy = OVERLAPPED * (found["issue"] + found["tensor"])
    mainloop = max(found["dram"], found["l2"], busy) * (TWO_STAGES if config["STAGES"] == 2 else 1)
    return found, mainloop + found["launch"]
