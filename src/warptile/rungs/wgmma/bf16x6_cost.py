"""Predicted time of wgmma-bf16x6.

* sm: what the SM with the most CTAs does: the instructions that copy and split B and A and promote sums; or the latency
  of a stage, for as many CTAs as it holds at a time; and storing their tiles.
* dram: operands and D once, at the bandwidth that the kernel reaches.
* splits: where CTAs share K, the last one of a tile adds up all partial sums.
* launch: the launch.

Constants are fitted to timings of 270 problems with K from 48 on in all layouts on an H200, with some thirteen
configurations each, most of them with few columns. The configuration that is predicted to be the fastest needs 1.03
times as long as the fastest, and 1.6 times at most; predictions are within 11 % on eight of ten. The two constants of
unaligned lines of B are fitted to 35 such problems, and predictions are within 10 % on eight of ten of these
(2026-11-29, no record).
"""

from __future__ import annotations

from warptile.arch import H200
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import blocks, ceil_div
from warptile.rungs.simt_cost import overlapped

OF_B, OF_SHIFTED_B, OF_SCALAR_A, OF_SUM = 29.1, 8.0, 13.7, 12.6
"""Clocks of an SM for each stage: of 128 elements of B; more if lines of B are unaligned; of 128 elements of A if
they are loaded one by one; and of 128 sums."""

LATENCY_CLOCKS, LATENCY_OF_ROW, LATENCY_OF_SHIFTED_B, LATENCY_OF_A_BY_COLUMNS = 598.0, 19.5, 450.0, 204.0
"""Of a stage of a CTA alone: whatever its size; of each row; and more where lines of B are unaligned, and where A lies
by columns."""

STORED_CLOCKS = 0.398
"""Of an element of a tile, on its way to D."""

DRAM_BYTES_PER_S, STORED_BYTES_PER_S, LAUNCH_US = 3.29e12, 1.24e12, 1.67
"""Of operands, of D, and of the launch."""

SPLIT_US, ELEMENT_US = 1.41, 0.0086
"""Of a CTA's arrival, and of each element of a thread for each part of K that the last CTA adds."""

BUSY_OR_WAITING, SM_OR_DRAM = 3.0, 5.0
"""Exponents of the norms of times that overlap: the larger, the better."""


def terms_us(
    problem: Problem, config: Config, sms: int, *, a_in_vectors: bool, b_in_vectors: bool
) -> tuple[dict[str, float], float]:
    """Microseconds of each term and of the whole kernel.

    Args:
        problem: as the kernel sees it.
        config: its tunables.
        sms: of the GPU.
        a_in_vectors, b_in_vectors: elements are loaded four at a time.
    """
    bm, bn, bk, splits = config["BM"], config["BN"], config["BK"], config["SPLITS"]
    of_busiest = ceil_div(blocks(problem, config) * splits, sms)
    stages = ceil_div(ceil_div(problem.k, bk), splits)
    of_b = (OF_B + (0 if b_in_vectors else OF_SHIFTED_B)) * bn * bk / 128
    of_a = (0 if a_in_vectors else OF_SCALAR_A) * bm * bk / 128
    busy = of_busiest * (of_b + of_a + OF_SUM * bm * bn / 128)
    latency = LATENCY_CLOCKS + LATENCY_OF_ROW * bm
    latency += (0 if b_in_vectors else LATENCY_OF_SHIFTED_B) + LATENCY_OF_A_BY_COLUMNS * (problem.a.major == "col")
    waiting = ceil_div(of_busiest, config["MIN_BLOCKS"]) * latency
    clocks = stages * overlapped(busy, waiting, BUSY_OR_WAITING) + of_busiest * bm * bn * STORED_CLOCKS
    element_bytes = problem.a.dtype.bits // 8
    operand_bytes = (problem.m + problem.n) * problem.k * problem.batch * element_bytes
    d_bytes = problem.m * problem.n * problem.batch * element_bytes * (2 if problem.reads_matrix_c else 1)
    found = {
        "sm": clocks / H200.clock_hz * 1e6,
        "dram": (operand_bytes / DRAM_BYTES_PER_S + d_bytes / STORED_BYTES_PER_S) * 1e6,
        "splits": SPLIT_US + ELEMENT_US * splits * bm / 2 if splits > 1 else 0.0,
        "launch": LAUNCH_US,
    }
    return found, overlapped(found["sm"], found["dram"], SM_OR_DRAM) + found["splits"] + found["launch"]
