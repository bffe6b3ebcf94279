"""Predicted time of float64 on tensor cores: mma-split-k, and mma-final where they compete.

* sm: what the SM with the most CTAs does: the K tiles of all of them, and their stores. In each round of as many CTAs
  as it holds at a time, it also waits for first loads, last stores, and the latency of K tiles; where it has fewer than
  it holds, or a last round of fewer, its tensor cores are not busy.
* dram: operands and D once.
* splits: where CTAs share K, the last one of a tile adds up all partial sums.
* launch: the launch.

The terms add up: so fits best. Each kernel has two constants of its own (`KERNELS`), as each has its own mix of
instructions; those of a kernel that was seldom timed are those of one with another number of CTAs or other warps.
Constants are fitted to timings of 179 problems in all layouts on an H200, with some fifteen configurations each, whose
operands came from DRAM. Of the configurations that were timed, the one that is predicted to be the fastest needs 1.02
times as long as the fastest in the mean, 1.22 times at most, and 1.03 times for problems that a fit left out;
predictions are within 12 % on eight of ten (2026-11-30, no record).
"""

from __future__ import annotations

from warptile.arch import H200
from warptile.problem import Operand, Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import blocks, ceil_div
from warptile.rungs.mma_tiles import min_blocks

SIZES = ("BM", "BN", "WM", "WN", "BK", "STAGES", "MIN_BLOCKS")
"""What tells kernels apart."""

KERNELS: dict[tuple[int, ...], tuple[float, float]] = {
    (16, 64, 16, 16, 32, 3, 3): (347, 0.486),
    (32, 32, 16, 16, 16, 4, 4): (138, 0.425),
    (32, 32, 16, 16, 32, 3, 4): (305, 0.465),
    (32, 32, 16, 16, 32, 5, 2): (305, 0.465),
    (32, 64, 16, 32, 16, 4, 3): (234, 0.421),
    (32, 64, 32, 16, 32, 4, 2): (507, 0.442),
    (64, 16, 16, 16, 32, 3, 3): (362, 0.466),
    (64, 32, 32, 16, 16, 3, 4): (265, 0.370),
    (64, 32, 32, 16, 32, 3, 3): (519, 0.424),
    (64, 64, 32, 16, 16, 3, 2): (513, 0.420),
    (64, 64, 32, 32, 16, 3, 3): (476, 0.383),
    (64, 64, 32, 32, 16, 4, 2): (433, 0.386),
    (64, 64, 32, 32, 32, 3, 2): (974, 0.453),
}
"""By `SIZES`: clocks of an SM for a K tile of a CTA, and for an element of D."""

OTHER_MMA, OTHER_STORED = 0.96, 0.48
"""Of other kernels: clocks for multiply-adds that take one at 128 a clock, and for an element of D."""

NARROW_COPIES, N_MAJOR = 0.221, 0.0254
"""The shares by which a K tile takes longer where all copies move 8 bytes, and where B is N-major."""

STORED_N_MAJOR, UNALIGNED_D, UNALIGNED_REGISTERS = 0.159, 0.765, 1.11
"""The shares by which an element of D takes longer where B is N-major, where D is unaligned, and where it is and warps
store from registers."""

FROM_REGISTERS = 256
"""Elements of a warp's tile up to which it does (tile/mma_epilogue.cuh)."""

K_TILE_CLOCKS, LAST_COPY, LAST_STORE = 146.0, 9.73, 1.59
"""Of a round of CTAs: for each K tile; for each copy of a thread where the last K tile reaches past K; and for
each element that a warp stores."""

EMPTY, REST = 0.828, 0.147
"""Multiples of the clocks of a CTA's K tiles for which an SM waits: EMPTY in proportion to the CTAs that it could hold
and has not, REST where some are left after rounds of as many as it holds."""

BYTES_PER_S, LAUNCH_US = 22.4e12, 2.20
"""Of operands and D: what is left of their time where SMs are busy, not a limit of the GPU. And of the launch."""

DRAM_BYTES_PER_S = 4.3e12
"""What DRAM delivers: no prediction is shorter."""

SPLIT_US, ELEMENT_US = 1.28, 0.0110
"""Of a CTA's arrival, and of each element of a thread for each part of K that the last CTA adds."""


def terms_us(problem: Problem, config: Config, sms: int) -> tuple[dict[str, float], float]:
    """Microseconds of each term and of the whole kernel."""
    bm, bn, bk, splits = config["BM"], config["BN"], config["BK"], config.get("SPLITS", 1)
    warp_elements = config["WM"] * config["WN"]
    warps = bm * bn // warp_elements
    k_tiles = ceil_div(ceil_div(problem.k, bk), splits)
    of_busiest, held = ceil_div(blocks(problem, config) * splits, sms), max(min_blocks(problem, config), 1)
    aligned_a = _aligned(problem.a, "row", problem.k, problem.m)
    aligned_b = _aligned(problem.b, "col", problem.k, problem.n)
    is_n_major = problem.b.major == "row"
    copies = bk * (bm / (1 + aligned_a) + bn / (1 + aligned_b))
    narrow = 2 * copies / (bk * (bm + bn)) - 1

    tile, stored = KERNELS.get(
        tuple(config[size] for size in SIZES), (OTHER_MMA * bm * bn * bk / 128, OTHER_STORED)
    )  # fmt: skip
    tiles = k_tiles * tile * (1 + NARROW_COPIES * narrow + N_MAJOR * is_n_major)
    slower = STORED_N_MAJOR * is_n_major
    if not _aligned(problem.d, "col", problem.m, problem.n):
        slower += UNALIGNED_REGISTERS if warp_elements <= FROM_REGISTERS else UNALIGNED_D
    clocks = of_busiest * (tiles + bm * bn * stored * (1 + slower))
    clocks += ceil_div(of_busiest, held) * (
        K_TILE_CLOCKS * k_tiles + LAST_COPY * copies / (32 * warps) * (problem.k % bk > 0) + LAST_STORE * warp_elements
    )
    if of_busiest < held:
        clocks += tiles * EMPTY * (held - of_busiest) / held
    elif of_busiest % held:
        clocks += tiles * REST

    moved = problem.m * problem.k + problem.k * problem.n + problem.m * problem.n * (2 if problem.reads_matrix_c else 1)
    moved_bytes = moved * problem.batch * problem.a.dtype.bits // 8
    found = {
        "sm": clocks / H200.clock_hz * 1e6,
        "dram": moved_bytes / BYTES_PER_S * 1e6,
        "splits": SPLIT_US + ELEMENT_US * splits * bm * bn / (32 * warps) if splits > 1 else 0.0,
        "launch": LAUNCH_US,
    }
    return found, max(sum(found.values()), moved_bytes / DRAM_BYTES_PER_S * 1e6 + LAUNCH_US)


def _aligned(operand: Operand, along_lines: str, lines_extent: int, across: int) -> bool:
    """Whether copies move 16 bytes."""
    return operand.vector_elements == 2 and (lines_extent if operand.major == along_lines else across) % 2 == 0
