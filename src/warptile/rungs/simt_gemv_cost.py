"""Predicted time of simt-gemv.

* sm: what the SM with the most blocks does: the instructions of their warps, and storing their tiles; beside what
  blocks wait for their loads, those of an SM that do not fit at one time one after the other.
* dram: operands and D once, and what blocks load of B again, from L2.
* splits: where blocks share K, the last one of a tile adds up all partial sums.
* launch: the launch.

Constants are fitted to timings of 400 float32 problems in all layouts on an H200 and to the suites, all with operands
that came from DRAM, where this kernel came near the fastest (193 configurations); that of conversions to earlier ones
of bfloat16. The configuration that is predicted to be the fastest needs 1.03 times as long as the fastest, and 1.7
times at most; predictions of fast configurations are within 15 % on eight of ten (2026-11-30, no record). Launches and
steps that the end of K cuts short take less here than fits best, for tiny problems.
"""

from __future__ import annotations

from math import log2

from warptile.arch import H200
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.launch_overlap import saved_us
from warptile.rungs.legality import blocks, ceil_div
from warptile.rungs.simt_cost import overlapped

LANES, SCHEDULERS, WARPS_OF_SM, BLOCKS_OF_SM = 32, 4, 64, 32
"""Lanes of a warp; warps that an SM issues at once, and that it holds; and blocks: CUDA C++ Programming Guide,
"Technical specifications per compute capability"."""

FMA_CLOCKS, LOAD_CLOCKS, STRIDED_CLOCKS, CONVERT_CLOCKS, STEP_CLOCKS = 1.94, 4.21, 2.74, 0.93, 9.03
"""Of a warp in a step: of each 32 multiply-adds, twice that of 64 bits; of a load; more of one of A by lanes that are
neighbours along K, where rows are contiguous; of converting an element that is narrower than its sum; and others."""

SHUFFLE_CLOCKS, SUM_CLOCKS, STORED_CLOCKS, STORED_BY_COLUMNS = 0.592, 21.9, 0.444, 4.39
"""Of a warp: of a shuffle of four bytes of its sums, and of four bytes of these in shared memory. Of the SM: of an
element of a tile, on its way to D; and how many times that where D lies by columns."""

FIRST_WAIT, TWO_STEPS_WAIT, RAGGED_WAIT, SHUFFLE_WAIT = 247.0, 740.0, 605.0, 0.34
"""Clocks that a block alone waits: whatever it does; for the loads of two steps, which are in flight together; of a
step that is cut short by the end of K; and for a shuffle."""

DRAM_BYTES_PER_S, L2_BYTES_PER_S, LAUNCH_US, SPLIT_US, ELEMENT_US = 5.84e12, 25.3e12, 2.0, 1.31, 0.042
"""Of operands and D; of what blocks load of B again; of the launch; of a block's arrival, and of each element of a
thread that the last block adds, for each part of K."""

BUSY_OR_WAITING, SM_OR_DRAM = 1.98, 0.952
"""Exponents of the norms of times that overlap: the larger, the better."""


def terms_us(seen: Problem, config: Config, sms: int, *, a_width: int, b_width: int) -> tuple[dict[str, float], float]:
    """Microseconds of each term and of the whole kernel.

    Args:
        seen: the problem as the kernel sees it.
        config: its tunables.
        sms: of the GPU.
        a_width, b_width: elements of one load of A and of B.
    """
    bm, bn, bk, warps, splits = (config[key] for key in ("BM", "BN", "BK", "WARPS", "SPLITS"))
    k_major, element_bytes = seen.b.major == "col", seen.a.dtype.bits // 8
    words = max(seen.accumulator.bits // 32, 1)
    lanes = 1 if k_major else min(LANES, bn // b_width)
    depth, columns = bk * lanes // (LANES * warps), bn // lanes

    of_step = FMA_CLOCKS * bm * columns * depth * (2 if seen.accumulator.bits > 32 else 1) + STEP_CLOCKS
    of_step += LOAD_CLOCKS * depth * (columns / b_width + bm / a_width)
    if k_major and seen.a.major == "col":
        of_step += STRIDED_CLOCKS * depth * bm / a_width
    if seen.a.dtype.bits < seen.accumulator.bits:
        of_step += CONVERT_CLOCKS * depth * (bm + columns)
    shuffles = bm * columns * words * log2(LANES // lanes)
    of_sums = SHUFFLE_CLOCKS * shuffles + SUM_CLOCKS * bm * columns * words

    ctas = blocks(seen, config) * splits
    of_busiest = ceil_div(ctas, sms)
    stored = bm * bn * STORED_CLOCKS * (STORED_BY_COLUMNS if seen.d.major == "col" else 1)
    busy = of_busiest * (warps * (seen.k / (splits * bk) * of_step + of_sums) / SCHEDULERS + stored)
    steps = ceil_div(ceil_div(seen.k, bk), splits)
    whole = steps if splits > 1 else seen.k // bk
    waiting = FIRST_WAIT + ceil_div(whole, 2) * TWO_STEPS_WAIT + (RAGGED_WAIT if splits == 1 and seen.k % bk else 0)
    waiting += SHUFFLE_WAIT * shuffles
    waiting *= ceil_div(of_busiest, min(BLOCKS_OF_SM, WARPS_OF_SM // warps))

    again = (ceil_div(seen.m, bm) - 1) * seen.n * seen.k * seen.batch
    moved = ((seen.m + seen.n) * seen.k + seen.m * seen.n * (2 if seen.reads_matrix_c else 1)) * seen.batch
    found = {
        "sm": overlapped(busy, waiting, BUSY_OR_WAITING) / H200.clock_hz * 1e6,
        "dram": (moved / DRAM_BYTES_PER_S + again / L2_BYTES_PER_S) * element_bytes * 1e6,
        "splits": SPLIT_US + ELEMENT_US * splits * bm * bn / (LANES * warps) if splits > 1 else 0.0,
        "launch": LAUNCH_US - saved_us(ctas, LANES * warps, sms),
    }
    return found, overlapped(found["sm"], found["dram"], SM_OR_DRAM) + found["splits"] + found["launch"]
