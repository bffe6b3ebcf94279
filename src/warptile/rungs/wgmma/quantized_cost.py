"""Predicted time of wgmma-quantized, by the resources that it uses.

* dram: packed weights, activations and D once.
* sm: what the SM with the most K tiles loads, at the rate of one SM.
* issue: instructions that dequantize, of that SM, and what each consumer does once for a K tile.
* tensor: multiply-adds of whole tiles, likewise. Both add up: warps that wait to issue wgmmas do not dequantize.
* power: what tiles multiply and dequantize, at the rates that the GPU's power allows.
* l2: partial accumulators, written and read.
* launch: the launch, the first loads and the last stores, and where K is split the rendezvous.

Constants are fitted to timings of 77 problems of 1 to 3,000 rows on an H200, with some 21 configurations each and small
scales, which one instruction applies (``SmallScale`` in kernels/tile/dequantization.cuh). The configuration that a plan
would take there needs 1.006 times as long as the fastest, and 1.05 times at most (2026-11-28, no record).
"""

from __future__ import annotations

from warptile.arch import H200
from warptile.problem import Problem
from warptile.quantization import BLOCK_K, BLOCK_ROWS, Quantization, k_blocks, row_blocks
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import ceil_div

DRAM_BYTES_PER_S, SM_BYTES_PER_S, L2_BYTES_PER_S = 4.58e12, 75.4e9, 6e12
"""From DRAM to all SMs, and to one; to L2 and back: an estimate."""

CLOCKS_OF_WEIGHT = {4: 0.0166, 8: 0.0190}
"""Clocks of an SM in which a weight is dequantized, by bits of a code."""

CLOCKS_OF_K_TILE = 34
"""Of each consumer, for a K tile: waiting, scales, descriptors."""

MULTIPLY_ADDS_PER_CLOCK, NARROWEST = 3035, 16
"""Of an SM's tensor cores with weights in registers; columns that a narrower tile takes as long as."""

SUSTAINED_FLOP_PER_S, SUSTAINED_WEIGHTS_PER_S = 1147e12, {4: 65.8e12, 8: 50.6e12}
"""What all SMs multiply, or dequantize, where nothing else takes power."""

SLOWER_WITH_STAGES = {2: 1.2, 3: 1.07}
"""How much longer a mainloop takes with so few stages."""

SMOOTHNESS = 3.45
"""Exponent of the norm of the resources' times: the larger, the better they overlap."""

LAUNCH_US, SPLIT_US, STREAM_US = 1.86, 2.04, 0.62
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
    stage_bytes = bm // BLOCK_ROWS * packed.block_bytes + bn * BLOCK_K * element_bytes
    slots = sms if streams else tiles * splits if splits > 1 else 0
    issue_clocks = bm * BLOCK_K * CLOCKS_OF_WEIGHT[packed.bits] + CLOCKS_OF_K_TILE * config["CONSUMERS"]
    tensor_clocks = bm * max(bn, NARROWEST) * BLOCK_K / MULTIPLY_ADDS_PER_CLOCK
    dequantized = tiles * bm * k_tiles * BLOCK_K
    clock_us = 1e6 / H200.clock_hz
    found = {
        "dram": once / DRAM_BYTES_PER_S * 1e6,
        "sm": of_busiest * stage_bytes / SM_BYTES_PER_S * 1e6,
        "issue": of_busiest * issue_clocks * clock_us,
        "tensor": of_busiest * tensor_clocks * clock_us,
        "power": (2 * bn / SUSTAINED_FLOP_PER_S + 1 / SUSTAINED_WEIGHTS_PER_S[packed.bits]) * dequantized * 1e6,
        "l2": 2 * slots * bm * bn * 4 / L2_BYTES_PER_S * 1e6,
        "launch": LAUNCH_US + (SPLIT_US if splits > 1 else 0.0) + (streams * STREAM_US * (ceil_div(sms, tiles) + 1)),
    }
    busy = (found["issue"] + found["tensor"]) * SLOWER_WITH_STAGES.get(config["STAGES"], 1)
    overlapping = found["dram"], found["sm"], busy, found["power"]
    mainloop = sum(each**SMOOTHNESS for each in overlapping) ** (1 / SMOOTHNESS)
    return found, mainloop + found["l2"] + found["launch"]
