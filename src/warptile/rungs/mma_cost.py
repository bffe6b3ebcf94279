"""Predicted time of float64 on tensor cores: mma-split-k, and mma-final where they compete.

* sm: what the SM with the most CTAs does. It issues the instructions of all their K tiles (multiply-adds, copies into
  shared memory, and what a warp does once) and stores their tiles. For as many CTAs as it holds at a time, it also
  waits for their first loads and last stores; and where it has fewer than it holds, for the tensor cores.
* dram: operands and D once.
* splits: where CTAs share K, the last one of a tile adds up all partial sums.
* launch: the launch.

The terms add up: so fits best. Constants are fitted to timings of 173 problems in all layouts, a fifth of them batches,
on an H200, with some eighteen configurations each. Of problems that the fit left out, the configuration that is
predicted to be the fastest needs 1.03 times as long as the fastest in the mean, and 1.22 times at most; predictions are
within 13 % on eight of ten (2026-11-29, no record).
"""

from __future__ import annotations

from warptile.arch import H200
from warptile.problem import Operand, Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import blocks, ceil_div
from warptile.rungs.mma_tiles import min_blocks

MMA_CLOCKS, COPY_CLOCKS, WARP_CLOCKS = 0.629, 3.27, 21.7
"""Of an SM, for a K tile: of multiply-adds, in clocks that they take at 128 a clock; of 32 copies into shared memory;
and of a warp."""

STORED_CLOCKS, N_MAJOR, UNALIGNED_D = 0.491, 0.213, 0.660
"""Of an SM, for an element of D; and the shares by which that is more where B is N-major, and where D is unaligned."""

FIRST_CLOCKS, FIRST_COPY, LAST_COPY, LAST_STORE = 17.0, 4.60, 23.3, 0.976
"""Of CTAs that run at the same time: for their first loads; for each copy that a thread makes of the first two K tiles,
and of one that reaches past K; and for each element that a warp stores."""

EMPTY, REST, REST_CLOCKS = 2.45, 1.44, 638.0
"""Multiples of the clocks of a warp's multiply-adds for which an SM waits, for each K tile: EMPTY in proportion to the
CTAs that it could hold and has not, REST for those that are left after rounds of as many as it holds, which take
REST_CLOCKS in any case."""

BYTES_PER_S, LAUNCH_US = 10.8e12, 1.92
"""Of operands and D: what is left of their time where SMs are busy, not a limit of the GPU. And of the launch."""

SPLIT_US, ELEMENT_US = 1.27, 0.0113
"""Of a CTA's arrival, and of each element of a thread for each part of K that the last CTA adds."""


def terms_us(problem: Problem, config: Config, sms: int) -> tuple[dict[str, float], float]:
    """Microseconds of each term and of the whole kernel."""
    bm, bn, bk, splits = config["BM"], config["BN"], config["BK"], config.get("SPLITS", 1)
    warps = bm // config["WM"] * (bn // config["WN"])
    k_tiles = ceil_div(ceil_div(problem.k, bk), splits)
    of_busiest, held = ceil_div(blocks(problem, config) * splits, sms), max(min_blocks(problem, config), 1)
    rounds = ceil_div(of_busiest, held)
    aligned_a = _aligned(problem.a, "row", problem.k, problem.m)
    aligned_b = _aligned(problem.b, "col", problem.k, problem.n)
    mma = bm * bn * bk / 128
    copies = (bm * bk / (1 + aligned_a) + bn * bk / (1 + aligned_b)) / 32
    stored = STORED_CLOCKS * (1 + N_MAJOR * (problem.b.major == "row"))
    stored += STORED_CLOCKS * UNALIGNED_D * (not _aligned(problem.d, "col", problem.m, problem.n))

    clocks = of_busiest * k_tiles * (mma * MMA_CLOCKS + copies * COPY_CLOCKS + warps * WARP_CLOCKS)
    clocks += of_busiest * bm * bn * stored
    first_and_last = FIRST_COPY * min(k_tiles, 2) + LAST_COPY * (problem.k % bk > 0)
    clocks += rounds * (FIRST_CLOCKS + (copies * first_and_last + bm * bn * LAST_STORE) / warps)
    if of_busiest < held:
        clocks += k_tiles * mma / warps * EMPTY * (held - of_busiest) / held
    elif of_busiest % held:
        clocks += k_tiles * mma / warps * REST + REST_CLOCKS

    moved = problem.m * problem.k + problem.k * problem.n + problem.m * problem.n * (2 if problem.reads_matrix_c else 1)
    moved *= problem.batch
    found = {
        "sm": clocks / H200.clock_hz * 1e6,
        "dram": moved * problem.a.dtype.bits // 8 / BYTES_PER_S * 1e6,
        "splits": SPLIT_US + ELEMENT_US * splits * bm * bn / (32 * warps) if splits > 1 else 0.0,
        "launch": LAUNCH_US,
    }
    return found, sum(found.values())


def _aligned(operand: Operand, along_lines: str, lines_extent: int, across: int) -> bool:
    """Whether copies move 16 bytes."""
    return operand.vector_elements == 2 and (lines_extent if operand.major == along_lines else across) % 2 == 0
