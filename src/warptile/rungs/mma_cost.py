"""Predicted time of float64 on tensor cores: mma-split-k, and mma-final where they compete.

* sm: what the SM with the most CTAs does: the K tiles of all of them, and their stores. In each round of as many CTAs
  as it holds at a time, it also waits for first loads, last stores, and the latency of K tiles; where it has fewer than
  it holds, or a last round of fewer, its tensor cores are not busy.
* dram: operands and D once; of a large D all of its time, as no other tile's MMAs hide the stores of one.
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

from collections.abc import Iterable
from dataclasses import dataclass

from warptile.arch import H200
from warptile.problem import Operand, Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.launch_overlap import AT_END_US, MOST
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

UNHIDDEN_BYTES_PER_S, HIDDEN_BYTES = 4.0e12, 2e6
"""Of D beyond so many bytes: of 60 larger problems that the fit did not see, predictions without this were 20 % too
short in the mean and 70 % at most, with it and the next two constants 4 % in the mean (2026-11-30, no record)."""

AT_POWER_LIMIT, POWER_LIMIT_US = 0.2, 100.0
"""The share by which an SM is slower at the power limit, and how long it works until it is there."""

SPLIT_US, ELEMENT_US = 1.28, 0.0110
"""Of a CTA's arrival, and of each element of a thread for each part of K that the last CTA adds."""


@dataclass(frozen=True)
class Placement:
    """What of a problem counts in every configuration.

    Attributes:
        aligned_a, aligned_b, aligned_d: 16 bytes are moved at once.
        is_n_major: B is.
        moved_bytes: operands and D, once.
        d_bytes: D.
    """

    aligned_a: bool
    aligned_b: bool
    aligned_d: bool
    is_n_major: bool
    moved_bytes: int
    d_bytes: int

    @staticmethod
    def of(problem: Problem) -> Placement:
        """That of a problem."""
        m, n, k = problem.m, problem.n, problem.k
        moved = m * k + k * n + m * n * (2 if problem.reads_matrix_c else 1)
        return Placement(
            _aligned(problem.a, "row", k, m), _aligned(problem.b, "col", k, n), _aligned(problem.d, "col", m, n),
            problem.b.major == "row", moved * problem.batch * problem.a.dtype.bits // 8,
            m * n * problem.batch * problem.a.dtype.bits // 8,
        )  # fmt: skip


def fastest_first(problem: Problem, configs: Iterable[Config], sms: int) -> list[Config]:
    """Configurations in the order of their predicted times."""
    placement = Placement.of(problem)
    return sorted(configs, key=lambda config: terms_us(problem, config, sms, placement)[1])


def terms_us(
    problem: Problem, config: Config, sms: int, placement: Placement | None = None
) -> tuple[dict[str, float], float]:
    """Microseconds of each term and of the whole kernel; ``placement`` is the problem's, where it is known."""
    placed = placement or Placement.of(problem)
    bm, bn, bk, splits = config["BM"], config["BN"], config["BK"], config.get("SPLITS", 1)
    warp_elements = config["WM"] * config["WN"]
    warps = bm * bn // warp_elements
    k_tiles = ceil_div(ceil_div(problem.k, bk), splits)
    ctas = blocks(problem, config) * splits
    of_busiest, held = ceil_div(ctas, sms), max(min_blocks(problem, config), 1)
    copies = bk * (bm / (1 + placed.aligned_a) + bn / (1 + placed.aligned_b))
    narrow = 2 * copies / (bk * (bm + bn)) - 1

    tile, stored = KERNELS.get(
        tuple(config[size] for size in SIZES), (OTHER_MMA * bm * bn * bk / 128, OTHER_STORED)
    )  # fmt: skip
    tiles = k_tiles * tile * (1 + NARROW_COPIES * narrow + N_MAJOR * placed.is_n_major)
    slower = STORED_N_MAJOR * placed.is_n_major
    if not placed.aligned_d:
        slower += UNALIGNED_REGISTERS if warp_elements <= FROM_REGISTERS else UNALIGNED_D
    clocks = of_busiest * (tiles + bm * bn * stored * (1 + slower))
    of_round = K_TILE_CLOCKS * k_tiles + LAST_STORE * warp_elements
    if problem.k % bk:
        of_round += LAST_COPY * copies / (32 * warps)
    clocks += ceil_div(of_busiest, held) * of_round
    if of_busiest < held:
        clocks += tiles * EMPTY * (held - of_busiest) / held
    elif of_busiest % held:
        clocks += tiles * REST
    # Counting more for launches with many CTAs, as other models do, chooses worse (275 problems, no record).
    launch = LAUNCH_US - (AT_END_US if "SPLITS" in config and ctas <= MOST * sms else 0.0)
    sm_us = clocks / H200.clock_hz * 1e6
    found = {
        "sm": sm_us * (1 + AT_POWER_LIMIT * min(sm_us / POWER_LIMIT_US, 1.0)),
        "dram": (placed.moved_bytes / BYTES_PER_S + max(placed.d_bytes - HIDDEN_BYTES, 0.0) / UNHIDDEN_BYTES_PER_S)
        * 1e6,
        "splits": SPLIT_US + ELEMENT_US * splits * bm * bn / (32 * warps) if splits > 1 else 0.0,
        "launch": launch,
    }
    return found, max(sum(found.values()), placed.moved_bytes / DRAM_BYTES_PER_S * 1e6 + launch)


def _aligned(operand: Operand, along_lines: str, lines_extent: int, across: int) -> bool:
    """Whether copies move 16 bytes."""
    return operand.vector_elements == 2 and (lines_extent if operand.major == along_lines else across) % 2 == 0
