"""simt-split-k: float32 and float64 on CUDA cores where D has too few tiles to fill the GPU, or operands lie in other
layouts than simt-warptile takes. Blocks share the K of a tile."""

from __future__ import annotations

from dataclasses import replace

from warptile.device import REFERENCE, DeviceLimits
from warptile.launch.params import Params, Pointer, Scalar
from warptile.launch.workspace import Workspace
from warptile.problem import Problem
from warptile.rungs import simt_cost
from warptile.rungs.kernel_spec import Config, KernelSpec, View, gemm_members
from warptile.rungs.legality import blocks, ceil_div, operand_reason
from warptile.rungs.orientation import SWAP, fewer_columns, seen, swap_reason, view
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

FEW_COLUMNS, LONG_K = 16, 200
"""D's transpose is computed where D has fewer columns than rows, if it has so few, or K is so long: sums take longer to
store transposed."""

PARTIALS, ARRIVALS = "partial sums", "arrivals"


class SimtSplitK(RankedRung, SimtWarptile):
    """simt-warptile with K split among blocks, or not, for D or its transpose."""

    name = "simt-split-k"
    idea = "simt-warptile for few tiles: blocks share the K of a tile, and the last one adds up"
    previous = "simt-warptile"
    dtypes = ("float32", "float64")
    keys = KEYS
    competes = True
    batch_invariant = False

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.candidates`: for each tile, as many parts as keep the GPU busy."""
        found, swap = [], fewer_columns(problem) & (problem.n <= FEW_COLUMNS or problem.k >= LONG_K)
        for values in FLOAT64_TILES if problem.accumulator.bits == 64 else TILES:
            config = dict(zip(WARPTILE_KEYS, values, strict=True))
            wanted = ceil_div(device.sms * THREADS_OF_SM, blocks(seen(problem, swap), config) * self.threads(config))
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
        reason = operand_reason(problem, self.dtypes, a_layouts=("row", "col")) or swap_reason(config, KEYS)
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
        if blocks(as_seen, config) * splits >= 2**31:
            return f"it has {blocks(as_seen, config)} tiles of {splits} blocks; a grid has fewer than 2**31"
        return None

    def view(self, problem: Problem, config: Config) -> View:
        """As `SimtRung.view`."""
        return view(problem, config[SWAP])

    def resolve(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
        """As `Rung.resolve`."""
        one = super().resolve(problem, config, device)
        tiles, splits = one.grid[0], config["SPLITS"]
        members = (
            *gemm_members(one.view),
            ("partials", Pointer(PARTIALS if splits > 1 else None)),
            ("arrivals", Pointer(ARRIVALS if splits > 1 else None)),
            ("splits", Scalar("s32", splits)),
        )
        workspaces = (
            Workspace(PARTIALS, tiles * splits * config["BM"] * config["BN"] * problem.accumulator.bits // 8),
            Workspace(ARRIVALS, tiles * 4, zero=True),
        )
        return replace(
            one,
            instance=replace(one.instance, values=_compiled(one.instance.values)),
            grid=(tiles * splits, 1, 1),
            waits=False,
            params=Params(members),
            kernel_workspaces=workspaces if splits > 1 else (),
        )


def _compiled(values: tuple[tuple[str, int | bool], ...]) -> tuple[tuple[str, int | bool], ...]:
    """Values that are known when the kernel is compiled: one kernel for any number of splits."""
    kept = {name: value for name, value in values if name != "SPLITS"}
    swap = kept.pop(SWAP)
    return (*kept.items(), ("D_COLUMN_MAJOR", bool(swap)))


SIMT_SPLIT_K = SimtSplitK()
"""float32 and float64 GEMMs with few rows or columns, or a long K."""
