"""Predicted time of mma-specialized.

* sm: what the SM with the most tiles does. In a round each of its consumers has one: a K tile takes the tensor cores'
  time for the consumers' tiles, and at least what one consumer alone needs for it; or the time of reading lines of L2,
  of which 128 bytes of a row touch two where rows do not begin at multiples of 128 bytes. Stores of other tiles run
  meanwhile, but take some time of the SM; those of the last tile are waited for, and so is something in each round.
  Long launches are slower, at the power limit.
* dram: operands and D once, what is left of it beside the work of the SMs.
* launch: the launch, and the first loads.

The terms add up, and no time is shorter than DRAM's. Constants are fitted to 762 timings of 201 aligned problems in all
layouts, a fifth of them batches, on an H200, with operands from DRAM. Predictions are within 12 % on nine of ten; of
four configurations, the one that is predicted to be the fastest needs 1.012 times as long as the fastest in the mean,
1.22 times at most (2026-11-30, no record).
"""

from __future__ import annotations

from warptile.problem import Operand, Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import blocks, ceil_div

CLOCK_HZ = 1.98e9
"""Of an H200 below its power limit."""

KERNELS: dict[tuple[int, int, int], tuple[float, float, float]] = {
    (64, 64, 2): (500.0, 628.0, 0.199),
    (64, 64, 3): (517.0, 791.0, 0.213),
    (64, 32, 3): (258.0, 379.0, 0.169),
    (32, 64, 3): (265.0, 375.0, 0.103),
}
"""By BM, BN and CONSUMERS: clocks of an SM for a K tile of one of several consumers, of the only one at work, and for
an element of D."""

OTHER_MMA, OTHER_ALONE, OTHER_STORED = 1.0, 1.3, 0.17
"""Of other configurations: multiples of the clocks for multiply-adds that take one at 128 a clock, and clocks for an
element of D."""

LAST_STORE, UNALIGNED_D = 0.517, 1.22
"""Clocks for each element of the tile that is stored last, and the share by which all stores take longer where D is
unaligned."""

LINE_BYTES, LINE_CLOCKS, LINE_CLOCKS_ALONE, SHARPNESS = 128, 1.82, 1.69, 7.23
"""Of L2: bytes of a line, and clocks for one, of several consumers and of the only one at work. Clocks for MMAs and for
lines are joined as the root of the sum of powers, with this exponent: about the larger of the two."""

ROUND_CLOCKS = 1210.0
"""Of a round, beside its K tiles."""

AT_POWER_LIMIT, POWER_LIMIT_US = 0.112, 400.0
"""The share by which an SM is slower at the power limit, and how long it works until it is there."""

BYTES_PER_S, DRAM_BYTES_PER_S, LAUNCH_US = 10.9e12, 4.3e12, 1.26
"""Of operands and D: what is left of their time where SMs are busy, and what DRAM delivers; and of the launch."""


def terms_us(problem: Problem, config: Config, sms: int) -> tuple[dict[str, float], float]:
    """Microseconds of each term and of the whole kernel."""
    bm, bn, consumers = config["BM"], config["BN"], config["CONSUMERS"]
    elements, k_tiles = bm * bn, ceil_div(problem.k, config["BK"])
    usual = elements * config["BK"] / 128
    together, alone, stored = KERNELS.get(
        (bm, bn, consumers), (OTHER_MMA * usual, OTHER_ALONE * usual, OTHER_STORED)
    )  # fmt: skip
    lines = bm * _lines(problem.a) + bn * _lines(problem.b)
    together, alone = _joined(together, LINE_CLOCKS * lines), _joined(alone, LINE_CLOCKS_ALONE * lines)
    tiles = ceil_div(blocks(problem, config), sms)
    rounds = ceil_div(tiles, consumers)
    in_last_round = tiles - (rounds - 1) * consumers
    multiplying = k_tiles * ((tiles - in_last_round) * together + max(in_last_round * together, alone))
    aligned = problem.d.vector_elements == 2 and (problem.n if problem.d.major == "row" else problem.m) % 2 == 0
    storing = (tiles * stored + LAST_STORE) * elements * (1 if aligned else 1 + UNALIGNED_D)
    us_per_clock = 1e6 / CLOCK_HZ
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


def _lines(operand: Operand) -> int:
    """Lines of L2 that 128 bytes of the operand's rows, or columns, touch."""
    return 1 if operand.leading_dimension * operand.dtype.bits // 8 % LINE_BYTES == 0 else 2


def _joined(clocks: float, others: float) -> float:
    return float((clocks**SHARPNESS + others**SHARPNESS) ** (1 / SHARPNESS))
