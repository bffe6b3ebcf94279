"""Predicted time of mma-specialized.

* sm: what the SM with the most tiles does. In a round each of its consumers has one: a K tile takes the tensor cores'
  time for the consumers' tiles, and at least what one consumer alone needs for it. Stores of other tiles run meanwhile,
  but take some time of the SM; those of the last tile are waited for, and so is something in each round. Long launches
  are slower, at the power limit.
* dram: operands and D once, what is left of it beside the work of the SMs.
* launch: the launch, and the first loads.

The terms add up, and no time is shorter than DRAM's. Constants are fitted to 762 timings of 201 aligned problems in all
layouts, a fifth of them batches, on an H200, with operands from DRAM. Predictions are within 16 % on nine of ten; of
four configurations, the one that is predicted to be the fastest needs 1.018 times as long as the fastest in the mean,
1.38 times at most (2026-11-30, no record).
"""

from __future__ import annotations

from warptile.arch import H200
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import blocks, ceil_div

KERNELS: dict[tuple[int, int, int], tuple[float, float, float]] = {
    (64, 64, 2): (521.0, 628.0, 0.136),
    (64, 64, 3): (534.0, 788.0, 0.164),
    (64, 32, 3): (314.0, 386.0, 0.098),
    (32, 64, 3): (308.0, 381.0, 0.053),
}
"""By BM, BN and CONSUMERS: clocks of an SM for a K tile of one of several consumers, of the only one at work, and for
an element of D."""

OTHER_MMA, OTHER_ALONE, OTHER_STORED = 1.05, 1.3, 0.12
"""Of other configurations: multiples of the clocks for multiply-adds that take one at 128 a clock, and clocks for an
element of D."""

LAST_STORE, UNALIGNED_D = 0.58, 1.28
"""Clocks for each element of the tile that is stored last, and the share by which all stores take longer where D is
unaligned."""

ROUND_CLOCKS = 1580.0
"""Of a round, beside its K tiles."""

AT_POWER_LIMIT, POWER_LIMIT_US = 0.104, 400.0
"""The share by which an SM is slower at the power limit, and how long it works until it is there."""

BYTES_PER_S, DRAM_BYTES_PER_S, LAUNCH_US = 9.59e12, 4.3e12, 1.04
"""Of operands and D: what is left of their time where SMs are busy, and what DRAM delivers; and of the launch."""


def terms_us(problem: Problem, config: Config, sms: int) -> tuple[dict[str, float], float]:
    """Microseconds of each term and of the whole kernel."""
    bm, bn, consumers = config["BM"], config["BN"], config["CONSUMERS"]
    elements, k_tiles = bm * bn, ceil_div(problem.k, config["BK"])
    usual = elements * config["BK"] / 128
    together, alone, stored = KERNELS.get(
        (bm, bn, consumers), (OTHER_MMA * usual, OTHER_ALONE * usual, OTHER_STORED)
    )  # fmt: skip
    tiles = ceil_div(blocks(problem, config), sms)
    rounds = ceil_div(tiles, consumers)
    in_last_round = tiles - (rounds - 1) * consumers
    multiplying = k_tiles * ((tiles - in_last_round) * together + max(in_last_round * together, alone))
    aligned = problem.d.vector_elements == 2 and (problem.n if problem.d.major == "row" else problem.m) % 2 == 0
    storing = (tiles * stored + LAST_STORE) * elements * (1 if aligned else 1 + UNALIGNED_D)
    us_per_clock = 1e6 / H200.clock_hz
    slower = 1 + AT_POWER_LIMIT * min(multiplying * us_per_clock / POWER_LIMIT_US, 1.0)
    m, n, k = problem.m, problem.n, problem.k
    matrices = m * k + k * n + m * n * (2 if problem.reads_matrix_c else 1)
    moved_bytes = matrices * problem.batch * problem.a.dtype.bits // 8
    found = {
        "sm": (multiplying + storing + rounds * ROUND_CLOCKS) * us_per_clock * slower,
        "dram": moved_bytes / BYTES_PER_S * 1e6,
        "launch": LAUNCH_US,
    }
    return found, max(sum(found.values()), moved_bytes / DRAM_BYTES_PER_S * 1e6 + LAUNCH_US)
