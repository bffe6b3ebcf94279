"""Predicted time of wgmma-bf16x6.

* sm: what the SM with the most CTAs does: the instructions that copy and split B and A and promote sums; or the latency
  of a stage, for as many CTAs as it holds at a time; and storing their tiles.
* dram: operands and D once, at the bandwidth that the kernel reaches.
* splits: where CTAs share K, the last one of a tile adds up all partial sums.
* launch: the launch.

Constants are fitted to timings of 400 problems in all layouts on an H200, with some six configurations each: a third
of them with a K of at most 260, half with at most 110 rows or columns, all with operands that came from DRAM. The
configuration that is predicted to be the fastest needs 1.02 times as long as the fastest, and 1.5 times at most;
predictions are within 8 % on eight of ten (2026-11-30, no record).
"""

from __future__ import annotations

from warptile.arch import H200
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.launch_overlap import saved_us
from warptile.rungs.legality import blocks, ceil_div
from warptile.rungs.simt_cost import overlapped

OF_B, OF_SCALAR_A, OF_SUM = 24.6, 10.2, 11.0
"""Clocks of an SM for each stage: of 128 elements of B; of 128 elements of A if they are loaded one by one; and of
128 sums."""

FIRST_CLOCKS = 952.0
"""Of a CTA's first loads."""

LATENCY_CLOCKS, LATENCY_OF_ROW, LATENCY_OF_SHIFTED_B, LATENCY_OF_A_BY_COLUMNS = 578.0, 13.1, 195.0, 272.0
"""Of a stage of a CTA alone: whatever its size; of each row; and more where lines of B are unaligned, and where A lies
by columns."""

STORED_CLOCKS = 0.277
"""Of an element of a tile, on its way to D."""

DRAM_BYTES_PER_S, STORED_BYTES_PER_S, LAUNCH_US = 5.87e12, 2.37e12, 1.75
"""Of operands, of D, and of the launch."""

SPLIT_US, ELEMENT_US = 1.21, 0.0109
"""Of a CTA's arrival, and of each element of a thread for each part of K that the last CTA adds."""

BUSY_OR_WAITING, SM_OR_DRAM = 1.75, 2.10
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
    ctas = blocks(problem, config) * splits
    of_busiest = ceil_div(ctas, sms)
    stages = ceil_div(ceil_div(problem.k, bk), splits)
    of_b = OF_B * bn * bk / 128
    of_a = (0 if a_in_vectors else OF_SCALAR_A) * bm * bk / 128
    busy = of_busiest * (of_b + of_a + OF_SUM * bm * bn / 128)
    latency = LATENCY_CLOCKS + LATENCY_OF_ROW * bm
    latency += (0 if b_in_vectors else LATENCY_OF_SHIFTED_B) + LATENCY_OF_A_BY_COLUMNS * (problem.a.major == "col")
    at_a_time = ceil_div(of_busiest, config["MIN_BLOCKS"])
    clocks = stages * overlapped(busy, at_a_time * latency, BUSY_OR_WAITING)
    clocks += of_busiest * bm * bn * STORED_CLOCKS + at_a_time * FIRST_CLOCKS
    element_bytes = problem.a.dtype.bits // 8
    operand_bytes = (problem.m + problem.n) * problem.k * problem.batch * element_bytes
    d_bytes = problem.m * problem.n * problem.batch * element_bytes * (2 if problem.reads_matrix_c else 1)
    found = {
        "sm": clocks / H200.clock_hz * 1e6,
        "dram": (operand_bytes / DRAM_BYTES_PER_S + d_bytes / STORED_BYTES_PER_S) * 1e6,
        "splits": SPLIT_US + ELEMENT_US * splits * bm / 2 if splits > 1 else 0.0,
        "launch": LAUNCH_US - saved_us(ctas, 2 * bn, sms),
    }
    return found, overlapped(found["sm"], found["dram"], SM_OR_DRAM) + found["splits"] + found["launch"]
