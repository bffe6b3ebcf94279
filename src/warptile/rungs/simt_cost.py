"""Predicted time of kernels with register tiles on CUDA cores, simt-warptile and simt-split-k, of float32 and float64,
where they compete with others.

* sm: what the SM with the most blocks does, by what limits a K tile: the instructions of all its blocks (multiply-adds,
  copies into shared memory and what a warp does once), or how long a block's warps take to issue theirs, for as many
  blocks as it holds at a time; and storing their tiles.
* dram: operands and D once, at the bandwidth that such kernels reach.
* splits: where blocks share K, the last one of a tile adds up all partial sums.
* launch: the launch.

`warptile.planning.cost_bounds` says how fast a perfect schedule would be, which ranks configurations of one kernel,
and `warptile.expected` how long simt-warptile takes on large matrices. Constants are fitted to timings of 349 float32
problems in all layouts on an H200, with eight configurations each, split along K and not: half of them with fewer than
256 rows or columns, a third small. The configuration that is predicted to be the fastest needs 1.03 times as long as
the fastest, and 2.3 times for one problem; predictions of fast configurations are within 9 % on eight of ten
(2026-11-29, no record). The launch is 0.2 us longer than that fit, as 400 other problems whose operands came from DRAM
want it (2026-11-30, no record).
"""

from __future__ import annotations

from math import gcd

from warptile.arch import H200
from warptile.problem import Operand, Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.launch_overlap import saved_us
from warptile.rungs.legality import blocks, ceil_div

FMA_CLOCKS, COPY_CLOCKS, TRANSPOSING, WARP_CLOCKS = 0.862, 7.24, 0.516, 8.59
"""Of the SM: of multiply-adds, in clocks that they take at its full rate; of 32 copies to shared memory, and the share
of that of copies which transpose; and of a warp for each K tile."""

FMA_OF_WARP, COPY_OF_WARP = 3.98, 16.8
"""Of a K tile of a block alone: of the multiply-adds of one of its warps, and of its copies, in the same units."""

STORED_CLOCKS, EXCHANGED_CLOCKS = 0.189, 0.312
"""Of four bytes of a tile, on their way to D, in vectors or by way of shared memory."""

DRAM_BYTES_PER_S, STORED_BYTES_PER_S, LAUNCH_US = {True: 3.33e12, False: 2.5e12}, 2.35e12, 2.05
"""Of operands, by whether copies of B have 16 bytes; of D; and of the launch."""

SPLIT_US, ELEMENT_US = 1.26, 0.0056
"""Of a block's arrival, and of each four bytes of a thread for each part of K that the last block adds."""

BUSY_OR_WAITING, SM_OR_DRAM = 1.69, 4.33
"""Exponents of the norms of times that overlap: the larger, the better."""

FMA_A_CLOCK = {1: 128, 2: 64}
"""Multiply-adds of an SM by words of an accumulator: CUDA C++ Programming Guide, "Throughput of native arithmetic
instructions"."""


def terms_us(seen: Problem, config: Config, sms: int) -> tuple[dict[str, float], float]:
    """Microseconds of each term and of the whole kernel, for the problem as the kernel sees it."""
    bm, bn, bk, splits = config["BM"], config["BN"], config["BK"], config.get("SPLITS", 1)
    warps = bm // config["WM"] * (bn // config["WN"])
    k_tiles = ceil_div(ceil_div(seen.k, bk), splits)
    ctas = blocks(seen, config) * splits
    of_busiest = ceil_div(ctas, sms)
    at_a_time = ceil_div(of_busiest, config["MIN_BLOCKS"])
    words = max(seen.accumulator.bits // 32, 1)
    fma = bm * bn * bk / FMA_A_CLOCK[words]
    most_a = max(1, bm * bk // (32 * warps))
    of_a, of_b = _elements_of_copy(seen.a, "col", seen.m, most_a), _elements_of_copy(seen.b, "row", seen.n)
    copies = bm * bk / of_a / 32 * (1.0 if seen.a.major == "col" else TRANSPOSING)
    copies += bn * bk / of_b / 32 * (1.0 if seen.b.major == "row" else TRANSPOSING)
    busy = of_busiest * (fma * FMA_CLOCKS + copies * COPY_CLOCKS + warps * WARP_CLOCKS)
    waiting = at_a_time * (fma * FMA_OF_WARP + copies * COPY_OF_WARP) / warps
    vector = 4 // words  # elements of 16 bytes
    in_vectors = seen.d.major == "row" and _elements_of_copy(seen.d, "row", seen.n) == vector
    stored = of_busiest * bm * bn * words * (STORED_CLOCKS if in_vectors else EXCHANGED_CLOCKS)
    clocks = k_tiles * overlapped(busy, waiting, BUSY_OR_WAITING) + stored
    operand_bytes = (seen.m + seen.n) * seen.k * seen.batch * seen.a.dtype.bits // 8
    d_bytes = seen.m * seen.n * seen.batch * seen.d.dtype.bits // 8 * (2 if seen.reads_matrix_c else 1)
    launch = LAUNCH_US - (saved_us(ctas, 32 * warps, sms, spreads=True) if "SPLITS" in config else 0.0)
    found = {
        "sm": clocks / H200.clock_hz * 1e6,
        "dram": (operand_bytes / DRAM_BYTES_PER_S[of_b == vector] + d_bytes / STORED_BYTES_PER_S) * 1e6,
        "splits": SPLIT_US + ELEMENT_US * splits * config["TM"] * config["TN"] * words if splits > 1 else 0.0,
        "launch": launch,
    }
    return found, overlapped(found["sm"], found["dram"], SM_OR_DRAM) + found["splits"] + found["launch"]


def _elements_of_copy(operand: Operand, in_vectors: str, extent: int, most: int = 4) -> int:
    """Elements that one copy moves: where the operand has the major that is copied as it lies, what its alignment
    allows and divides its extent along that, and ``most``; else one."""
    if operand.major != in_vectors:
        return 1
    return gcd(operand.vector_elements, extent, 1 << (min(most, 4).bit_length() - 1))


def overlapped(one: float, other: float, exponent: float) -> float:
    """The time of two limits that overlap: the norm of their times, which is the larger one where one is far below."""
    return float((one**exponent + other**exponent) ** (1 / exponent))
