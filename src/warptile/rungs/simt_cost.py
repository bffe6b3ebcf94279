"""Predicted time of float32 kernels with register tiles on CUDA cores, simt-warptile and simt-split-k, where they
compete with others.

* sm: what the SM with the most blocks does, by what limits a K tile: the instructions of all its blocks (multiply-adds,
  copies into shared memory and what a warp does once), or the latency of as many blocks as it holds at a time; and
  storing their tiles.
* dram: operands and D once, at the bandwidth that such kernels reach.
* splits: where blocks share K, the last one of a tile adds up all partial sums.
* launch: the launch.

`warptile.planning.cost_bounds` says how fast a perfect schedule would be, which ranks configurations of one kernel,
and `warptile.expected` how long simt-warptile takes on large matrices. Constants are fitted to timings of 82 problems
in all layouts on an H200, with some eight configurations each. The configuration that is predicted to be the fastest
needs 1.017 times as long as the fastest, and 1.2 times at most; predictions are within 17 % on eight of ten
(2026-11-28, no record).
"""

from __future__ import annotations

from warptile.arch import H200
from warptile.problem import MAX_ALIGNMENT_BYTES, Operand, Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import blocks, ceil_div

FMA_CLOCKS, COPY_CLOCKS, WARP_CLOCKS = 0.99, 4.4, 8.3
"""Of the SM: of multiply-adds, in clocks that they take at 128 a clock; of 32 copies to shared memory; and of a warp
for each K tile."""

LATENCY_CLOCKS, WARP_LATENCY = 185.0, 5.55
"""Of a K tile of a block alone: whatever its size, and of the multiply-adds of one of its warps, in clocks that they
take at 128 a clock."""

STORED_CLOCKS = 0.26
"""Of an element of a tile, on its way to D."""

DRAM_BYTES_PER_S, LAUNCH_US = {1: 2.4e12, 4: 3.4e12}, 2.1
"""By how many elements one copy of B moves; of the launch."""

SPLIT_US, ELEMENT_US = 1.28, 0.0073
"""Of a block's arrival, and of each element of a thread for each part of K that the last block adds."""

BUSY_OR_WAITING, SM_OR_DRAM = 4.0, 8.9
"""Exponents of the norms of times that overlap: the larger, the better."""


def terms_us(problem: Problem, config: Config, sms: int) -> tuple[dict[str, float], float]:
    """Microseconds of each term and of the whole kernel."""
    bm, bn, bk, splits = config["BM"], config["BN"], config["BK"], config.get("SPLITS", 1)
    warps = bm // config["WM"] * (bn // config["WN"])
    k_tiles = ceil_div(ceil_div(problem.k, bk), splits)
    of_busiest = ceil_div(blocks(problem, config) * splits, sms)
    fma = bm * bn * bk / 128
    copies = (bm * bk / _elements_of_copy(problem.a, "col") + bn * bk / _elements_of_copy(problem.b, "row")) / 32
    busy = of_busiest * (fma * FMA_CLOCKS + copies * COPY_CLOCKS + warps * WARP_CLOCKS)
    waiting = ceil_div(of_busiest, config["MIN_BLOCKS"]) * (LATENCY_CLOCKS + WARP_LATENCY * fma / warps)
    clocks = k_tiles * overlapped(busy, waiting, BUSY_OR_WAITING) + of_busiest * bm * bn * STORED_CLOCKS
    element_bytes = problem.a.dtype.bits // 8
    moved = problem.m * problem.k + problem.k * problem.n + problem.m * problem.n * (2 if problem.reads_matrix_c else 1)
    found = {
        "sm": clocks / H200.clock_hz * 1e6,
        "dram": moved * problem.batch * element_bytes / DRAM_BYTES_PER_S[_elements_of_copy(problem.b, "row")] * 1e6,
        "splits": SPLIT_US + ELEMENT_US * splits * config["TM"] * config["TN"] if splits > 1 else 0.0,
        "launch": LAUNCH_US,
    }
    return found, overlapped(found["sm"], found["dram"], SM_OR_DRAM) + found["splits"] + found["launch"]


def _elements_of_copy(operand: Operand, in_vectors: str) -> int:
    """Elements that one copy into shared memory moves: four where the operand has the major that is copied as it lies,
    and is aligned; else one."""
    return 4 if operand.major == in_vectors and operand.alignment_bytes >= MAX_ALIGNMENT_BYTES else 1


def overlapped(one: float, other: float, exponent: float) -> float:
    """The time of two limits that overlap: the norm of their times, which is the larger one where one is far below."""
    return float((one**exponent + other**exponent) ** (1 / exponent))
