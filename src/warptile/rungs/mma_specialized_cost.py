"""Predicted time of mma-specialized.

* sm: what the SM with the most tiles does. In a round each of its consumers has one: a K tile takes the tensor cores'
  time for the consumers' tiles, and at least what one consumer alone needs for it. Stores of other tiles run meanwhile,
  but take some time of the SM; those of the last tile are waited for. Long launches are slower, at the power limit.
* dram: operands and D once, what is left of it beside the work of the SMs.
* launch: the launch, and the first loads.

The terms add up, and no time is shorter than DRAM's. Constants are fitted to timings of 113 aligned problems in all
layouts, a fifth of them batches, in each of the four configurations on an H200, with operands from DRAM. Predictions
are within 18 % on nine of ten; of the four, the one that is predicted to be the fastest needs 1.025 times as long as
the fastest in the mean, 1.38 times at most (2026-11-30, no record).
"""

from __future__ import annotations

from warptile.arch import H200
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import blocks, ceil_div

KERNELS: dict[tuple[int, int, int], tuple[float, float, float]] = {
    (64, 64, 2): (517.0, 635.0, 0.318),
    (64, 64, 3): (530.0, 799.0, 0.288),
    (64, 32, 3): (326.0, 388.0, 0.269),
    (32, 64, 3): (314.0, 379.0, 0.245),
}
"""By BM, BN and CONSUMERS: clocks of an SM for a K tile of one of several consumers, of the only one at work, and for
an element of D."""

OTHER_MMA, OTHER_ALONE, OTHER_STORED = 1.05, 1.3, 0.3
"""Of other configurations: multiples of the clocks for multiply-adds that take one at 128 a clock, and clocks for an
element of D."""

LAST_STORE = 0.378
"""Clocks for each element of the tile that is stored last."""

AT_POWER_LIMIT, POWER_LIMIT_US = 0.121, 400.0
"""The share by which an SM is slower at the power limit, and how long it multiplies until it is there."""

BYTES_PER_S, DRAM_BYTES_PER_S, LAUNCH_US = 9.47e12, 4.3e12, 1.84
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
    in_last_round = tiles - (ceil_div(tiles, consumers) - 1) * consumers
    multiplying = k_tiles * ((tiles - in_last_round) * together + max(in_last_round * together, alone))
    storing = (tiles * stored + LAST_STORE) * elements
    us_per_clock = 1e6 / H200.clock_hz
    slower = 1 + AT_POWER_LIMIT * min(multiplying * us_per_clock / POWER_LIMIT_US, 1.0)
    m, n, k = problem.m, problem.n, problem.k
    matrices = m * k + k * n + m * n * (2 if problem.reads_matrix_c else 1)
    moved_bytes = matrices * problem.batch * problem.a.dtype.bits // 8
    found = {
        "sm": (multiplying + storing) * us_per_clock * slower,
        "dram": moved_bytes / BYTES_PER_S * 1e6,
        "launch": LAUNCH_US,
    }
    return found, max(sum(found.values()), moved_bytes / DRAM_BYTES_PER_S * 1e6 + LAUNCH_US)
