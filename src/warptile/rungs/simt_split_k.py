"""simt-split-k: float32 and float64 on CUDA cores where D has too few tiles to fill the GPU, or operands lie in other
layouts than simt-warptile takes. Blocks share the K of a tile."""

from __future__ import annotations

from warptile.device import REFERENCE, DeviceLimits
from warptile.problem import Problem
from warptile.rungs import simt_cost
from warptile.rungs.kernel_spec import Config, KernelSpec, View
from warptile.rungs.legality import blocks, ceil_div, operand_reason
from warptile.rungs.orientation import SWAP, fewer_columns, seen, swap_reason, view
from warptile.rungs.parts_of_k import parts_reason, shared_by_blocks
from warptile.rungs.ranked import RankedRung
from warptile.rungs.simt import WARPTILE_KEYS, SimtWarptile
from warptile.rungs.simt_gemv import SIMT_GEMV

KEYS = (*WARPTILE_KEYS, "SPLITS", SWAP)

TILES = (
    (8, 128, 16, 8, 64, 4, 4, 3, 6, 8),
    (16, 64, 16, 16, 32, 4, 4, 3, 8, 8),
    (32, 32, 16, 16, 32, 4, 4, 3, 8, 8),
    (32, 64, 16, 32, 32, 8, 4, 3, 8, 8),
    (32, 128, 16, 32, 64, 8, 8, 3, 4, 8),
    (64, 64, 16, 32, 32, 8, 4, 3, 4, 8),
    (64, 128, 16, 32, 64, 8, 8, 3, 3, 8),
    (128, 128, 16, 64, 64, 16, 8, 3, 2, 8),
)
"""Tiles of float32 from few rows, or columns with SWAP, to many; values in the order of `WARPTILE_KEYS`."""

FLOAT64_TILES = (
    (8, 64, 16, 8, 32, 2, 4, 3, 8, 8),
    (16, 64, 16, 16, 32, 4, 4, 3, 6, 8),
    (32, 32, 16, 16, 32, 4, 4, 3, 6, 8),
    (32, 64, 16, 32, 32, 8, 4, 3, 4, 8),
)
"""The same of float64, whose large tiles are for tensor cores."""

THREADS_OF_SM = 512
"""Threads that an SM is given at once, blocks of several tiles and parts together. An estimate, as is what follows."""

MOST_SPLITS, LEAST_STAGES = 16, 4
"""Parts of K at most, and tiles along K that each has at least."""

LEAST_ROWS = 16
"""Tiles with more rows are left out where half of them or more would lie outside D."""

FEW_COLUMNS, LONG_K = 16, 200
"""D's transpose is computed where D has fewer columns than rows, if it has so few, or K is so long: sums take longer to
store transposed."""


class SimtSplitK(RankedRung, SimtWarptile):
    """simt-warptile with K split among blocks, or not, for D or its transpose."""

    name = "simt-split-k"
    idea = "simt-warptile for few tiles: blocks share the K of a tile, and the last one adds up"
    previous = "simt-warptile"
    dtypes = ("float32", "float64")
    keys = KEYS
    not_compiled = ("SPLITS", SWAP)  # one kernel for any number of splits
    competes = True
    batch_invariant = False
    batches = True

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.candidates`: for each tile, as many parts as keep the GPU busy."""
        found, swap = [], fewer_columns(problem) & (problem.n <= FEW_COLUMNS or problem.k >= LONG_K)
        as_seen = seen(problem, swap)
        for values in FLOAT64_TILES if problem.accumulator.bits == 64 else TILES:
            config = dict(zip(WARPTILE_KEYS, values, strict=True))
            if config["BM"] > LEAST_ROWS and config["BM"] >= 2 * as_seen.m:
                continue
            wanted = ceil_div(device.sms * THREADS_OF_SM, blocks(as_seen, config) * self.threads(config))
            most = 1 if problem.ieee else ceil_div(problem.k, config["BK"] * LEAST_STAGES)
            found.append({**config, "SPLITS": max(1, min(wanted, most, MOST_SPLITS)), SWAP: swap})
        return tuple(found)

    def estimate_us(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> float:
        """As `Rung.estimate_us`."""
        return self.estimate_terms_us(problem, config, device)[1]

    def estimate_terms_us(
        self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE
    ) -> tuple[dict[str, float], float]:
        """As `Rung.estimate_terms_us`."""
        return simt_cost.terms_us(self.view(problem, config).problem, config, device.sms)

    def unsuitable(self, problem: Problem, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.unsuitable`."""
        return SIMT_GEMV.preferred(problem)

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        reason = operand_reason(problem, self.dtypes, a_layouts=("row", "col"), batches=True)
        reason = reason or swap_reason(config, KEYS)
        if reason is not None:
            return reason
        as_seen, splits = seen(problem, config[SWAP]), config["SPLITS"]
        reason = self.tiles_reason(as_seen, config)
        if reason is not None:
            return reason
        if problem.ieee and splits > 1:
            return f"SPLITS is {splits}; precision is 'ieee', one chain of multiply-adds along K: take SPLITS=1"
        if splits > 1 and problem.k < splits * config["BK"]:
            return f"K is {problem.k}; {splits} parts of whole tiles need {splits * config['BK']}"
        return parts_reason(blocks(as_seen, config), splits)

    def view(self, problem: Problem, config: Config) -> View:
        """As `SimtRung.view`."""
        return view(problem, config[SWAP])

    def widths(self, problem: Problem, config: Config) -> tuple[tuple[str, int], ...]:
        """As `SimtRung.widths`."""
        return *super().widths(problem, config), ("D_COLUMN_MAJOR", problem.d.major == "col")

    def resolve(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
        """As `Rung.resolve`."""
        one = super().resolve(problem, config, device)
        tile_bytes = config["BM"] * config["BN"] * problem.accumulator.bits // 8
        return shared_by_blocks(one, config["SPLITS"], tile_bytes, device, spreads=True)


SIMT_SPLIT_K = SimtSplitK()
"""float32 and float64 GEMMs with few rows or columns, or a long K."""
