"""mma-split-k: float64 on tensor cores where D has too few tiles to fill the GPU; blocks share the K of a tile."""

from __future__ import annotations

from dataclasses import replace

from warptile.device import REFERENCE, DeviceLimits
from warptile.problem import Problem
from warptile.rungs import mma_cost
from warptile.rungs.kernel_spec import Config, KernelSpec
from warptile.rungs.legality import blocks, ceil_div, operand_reason
from warptile.rungs.mma import FINAL_KEYS, SWIZZLED, MmaFinal, ranked, shape_of_doubles
from warptile.rungs.parts_of_k import parts_reason, shared_by_blocks
from warptile.rungs.ranked import RankedRung
from warptile.rungs.simt_gemv import SIMT_GEMV

KEYS = (*FINAL_KEYS, "SPLITS")

SIZES = (
    (32, 32, 32, 16, 16, 3, 4),
    (32, 32, 32, 16, 16, 5, 2),
    (16, 64, 32, 16, 16, 3, 3),
    (64, 16, 32, 16, 16, 3, 3),
    (32, 64, 32, 32, 16, 4, 2),
    (64, 32, 32, 32, 16, 3, 3),
    (64, 64, 16, 32, 32, 4, 2),
    (32, 32, 16, 16, 16, 4, 4),
    (64, 32, 16, 32, 16, 3, 4),
    (32, 64, 16, 16, 32, 4, 3),
    (64, 64, 16, 32, 32, 3, 3),
    (64, 64, 16, 32, 16, 3, 2),
)
"""Rows and columns of tiles, K of a stage, rows and columns of warps' tiles, stages, and CTAs of an SM: of 22 that were
timed with 179 problems on an H200, those without which the fastest would be missing most often. The fastest of these is
within 0.3 % of the fastest of all in the mean (2026-11-30, no record)."""

CTAS_OF_SM = (1, 2, 4)
"""Into how many parts K is split, if it is: as many as give an SM so many CTAs."""

MOST_SPLITS, LEAST_STAGES = 64, 2
"""Parts of K at most, and stages that each has at least."""


class MmaSplitK(RankedRung, MmaFinal):
    """mma-final with K split among blocks."""

    dtypes = ("float64",)
    competes = True
    batch_invariant = False

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.candidates`: each tile with as many parts of K as keep the GPU busy, and whole unless mma-final has
        it."""
        found = []
        elsewhere, shape = ranked(problem, device), shape_of_doubles(device)
        for bm, bn, bk, wm, wn, stages, least in SIZES:
            sizes = dict(zip(FINAL_KEYS, (bm, bn, bk, wm, wn, *shape, stages, 2, 8, least), strict=True))
            count = max(blocks(problem, sizes), 1)
            most = max(min(MOST_SPLITS, problem.k // (bk * LEAST_STAGES)), 1)
            splits = {1} | {max(min(device.sms * ctas // count, most), 1) for ctas in CTAS_OF_SM}
            if sizes in elsewhere:
                splits.remove(1)
            found += [{**sizes, "SPLITS": each} for each in sorted(splits)]
        return tuple(found)

    def estimate_us(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> float:
        """As `Rung.estimate_us`."""
        return self.estimate_terms_us(problem, config, device)[1]

    def estimate_terms_us(
        self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE
    ) -> tuple[dict[str, float], float]:
        """As `Rung.estimate_terms_us`."""
        return mma_cost.terms_us(problem, config, device.sms)

    def _ranked(self, problem: Problem, device: DeviceLimits) -> list[Config]:
        return mma_cost.fastest_first(problem, self.candidates(problem, device), device.sms)

    def unsuitable(self, problem: Problem, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.unsuitable`."""
        return SIMT_GEMV.preferred(problem)

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        reason = operand_reason(problem, self.dtypes, a_layouts=("row", "col"), batches=True)
        reason = reason or super().illegal(problem, config, device)
        if reason is not None:
            return reason
        splits, stages = config["SPLITS"], ceil_div(problem.k, config["BK"])
        if splits > max(stages, 1):
            return f"SPLITS is {splits}; K of {problem.k} has {stages} stages of {config['BK']}"
        return parts_reason(blocks(problem, config), splits)

    def resolve(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
        """As `Rung.resolve`."""
        one = super().resolve(problem, config, device)
        # One kernel for any number of splits.
        values = tuple(each for each in one.instance.values if each[0] != "SPLITS")
        one = replace(one, instance=replace(one.instance, values=values))
        tile_bytes = config["BM"] * config["BN"] * problem.accumulator.bits // 8
        return shared_by_blocks(one, config["SPLITS"], tile_bytes, device)


MMA_SPLIT_K = MmaSplitK(
    "mma-split-k",
    "mma-final for few tiles: blocks share the K of a tile, and the last one adds up",
    "mma-final",
    keys=KEYS,
    dynamic=True,
    mechanism=SWIZZLED,
)
"""float64 GEMMs."""
