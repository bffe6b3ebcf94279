"""Predicted time of float64 on tensor cores: mma-split-k, and mma-final where they compete.

* sm: what the SM with the most blocks does, by what limits a K tile: the instructions of all its blocks (multiply-adds,
  copies into shared memory and what a warp does once), or how long a block's warps take to issue theirs, for as many
  blocks as it holds at a time; each block's first loads; and storing their tiles.
* dram: operands and D once.
* splits: where blocks share K, the last one of a tile adds up all partial sums.
* launch: the launch.

The terms add up: so fits best. Constants are fitted to timings of 110 problems in all layouts on an H200, with some ten
configurations each. The configuration that is predicted to be the fastest needs 1.01 times as long as the fastest, and
1.16 times at most; predictions are within 11 % on eight of ten (2026-11-29, no record).
"""

from __future__ import annotations

from warptile.arch import H200
from warptile.problem import Operand, Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import blocks, ceil_div
from warptile.rungs.simt_cost import overlapped

MMA_CLOCKS, COPY_CLOCKS, WARP_CLOCKS, RAGGED = 0.307, 0.992, 27.6, 0.66
"""Of the SM: of multiply-adds, in clocks that they take at 128 a clock; of 32 copies to shared memory; of a warp for
each K tile; and the share by which all of that is more where tiles reach past the end of D."""

MMA_OF_WARP, UNALIGNED_CLOCKS = 5.18, 489.0
"""Of a K tile of a block alone: of the multiply-adds of one of its warps, in the same units; and more where an operand
is not aligned to 16 bytes."""

FIRST_CLOCKS, STORED_CLOCKS = 1463.0, 0.676
"""Of a block's first loads; and of an element of a tile, on its way to D."""

BYTES_PER_S, LAUNCH_US = 8.6e12, 1.64
"""Of operands and D: what is left of their time where SMs are busy, not a limit of the GPU. And of the launch."""

SPLIT_US, ELEMENT_US = 1.19, 0.0113
"""Of a block's arrival, and of each element of a thread for each part of K that the last block adds."""

BUSY_OR_WAITING = 1.5
"""Exponent of the norm of times that overlap."""


def terms_us(problem: Problem, config: Config, sms: int) -> tuple[dict[str, float], float]:
    """Microseconds of each term and of the whole kernel."""
    bm, bn, bk, splits = config["BM"], config["BN"], config["BK"], config.get("SPLITS", 1)
    warps = bm // config["WM"] * (bn // config["WN"])
    k_tiles = ceil_div(ceil_div(problem.k, bk), splits)
    of_busiest = ceil_div(blocks(problem, config) * splits, sms)
    at_a_time = ceil_div(of_busiest, max(config["MIN_BLOCKS"], 1))
    aligned_a = _aligned(problem.a, "row", problem.k, problem.m)
    aligned_b = _aligned(problem.b, "col", problem.k, problem.n)
    mma = bm * bn * bk / 128
    copies = (bm * bk / (1 + aligned_a) + bn * bk / (1 + aligned_b)) / 32
    busy = of_busiest * (mma * MMA_CLOCKS + copies * COPY_CLOCKS + warps * WARP_CLOCKS)
    if problem.m % bm or problem.n % bn:
        busy *= 1 + RAGGED
    waiting = at_a_time * (mma / warps * MMA_OF_WARP + (0 if aligned_a and aligned_b else UNALIGNED_CLOCKS))
    clocks = k_tiles * overlapped(busy, waiting, BUSY_OR_WAITING)
    clocks += of_busiest * bm * bn * STORED_CLOCKS + at_a_time * FIRST_CLOCKS
    moved = problem.m * problem.k + problem.k * problem.n + problem.m * problem.n * (2 if problem.reads_matrix_c else 1)
    moved *= problem.batch
    found = {
        "sm": clocks / H200.clock_hz * 1e6,
        "dram": moved * problem.a.dtype.bits // 8 / BYTES_PER_S * 1e6,
        "splits": SPLIT_US + ELEMENT_US * splits * bm * bn / (32 * warps) if splits > 1 else 0.0,
        "launch": LAUNCH_US,
    }
    return found, sum(found.values())


def _aligned(operand: Operand, along_k: str, k: int, across: int) -> bool:
    """Whether copies move 16 bytes."""
    return operand.vector_elements == 2 and (k if operand.major == along_k else across) % 2 == 0
