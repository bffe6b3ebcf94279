"""Predicted time of wgmma-split, without the pass before it (`warptile.rungs.operand_split`).

* sm: what the SM with the most tiles multiplies: stages of 64 along K, and what a tile costs once, its part of D too.
* dram: slices once.
* power: what tiles multiply, at the rate that the GPU's power allows.
* splits: the rendezvous of CTAs that share K, and the reduction of their sums.
* launch: the launch, the first loads and the last stores.

The terms add up: so fits best. Constants are fitted to timings on an H200: of 90 problems in all layouts, two in three
of them batches, each with both tiles, and of the suite of float32; those of launches and splits to 40 small problems.
Predictions of the kernel are within 10 % on eight of ten (2026-11-29, no record).
"""

from __future__ import annotations

from warptile.arch import H200
from warptile.problem import Operand, Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import blocks, ceil_div
from warptile.rungs.wgmma.residue_classes import d_is_aligned

STAGE_CLOCKS, TILE_CLOCKS = {64: 824.0, 128: 1439.0}, {64: 4180.0, 128: 7070.0}
"""Of a stage, and of a tile beside its stages, by BN."""

WITHOUT_TMA = 1.55
"""How much longer the latter takes where TMA cannot store D."""

DRAM_BYTES_PER_S, SUSTAINED_FLOP_PER_S = 22.9e12, 2270e12
"""What is left of these times where SMs are busy: constants of a sum, not limits of the GPU."""

SPLIT_US, EACH_SPLIT_US = 1.3, 0.1
"""Of the rendezvous, and of each split that a CTA adds."""

LAUNCH_US, LAUNCH_AFTER_PASS_US = 3.0, 1.4
"""Of the launch, an estimate; and where it follows a pass, what `repacking_ms` does not count of the two launches."""

PRODUCTS = 3
"""Of slices, for one of elements."""


def terms_us(
    problem: Problem, config: Config, sms: int, *, interval: int, passes: bool
) -> tuple[dict[str, float], float]:
    """Microseconds of each term and of the whole kernel.

    Args:
        problem: as the user sees it.
        config: its tunables.
        sms: of the GPU.
        interval: K after which main products are promoted.
        passes: a splitting pass comes before.
    """
    bm, bn, splits = config["BM"], config["BN"], config["SPLIT_K"]
    unit = max(interval, config["BK"])  # K that one CTA has at least
    tiles, units = blocks(problem, config), ceil_div(problem.k, unit)
    stages = ceil_div(units, splits) * unit // config["BK"]
    of_busiest = ceil_div(tiles * splits, sms)
    slices = 4 * (_lines(problem.m, problem.a, problem) + _lines(problem.n, problem.b, problem)) * problem.k
    flop = 2 * PRODUCTS * tiles * bm * bn * ceil_div(problem.k, config["BK"]) * config["BK"]
    of_tile = TILE_CLOCKS[bn] * (1 if d_is_aligned(problem) else WITHOUT_TMA)
    clocks = of_busiest * (stages * STAGE_CLOCKS[bn] + of_tile) * bm / 128
    found = {
        "sm": clocks / H200.clock_hz * 1e6,
        "dram": slices / DRAM_BYTES_PER_S * 1e6,
        "power": flop / SUSTAINED_FLOP_PER_S * 1e6,
        "splits": SPLIT_US + EACH_SPLIT_US * splits if splits > 1 else 0.0,
        "launch": LAUNCH_AFTER_PASS_US if passes else LAUNCH_US,
    }
    return found, sum(found.values())


def _lines(lines: int, operand: Operand, problem: Problem) -> int:
    """Rows of A or columns of B of all matrices, once where a batch shares one."""
    return lines * (problem.batch if operand.batch_stride else 1)
