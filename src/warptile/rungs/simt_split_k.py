"""simt-split-k: float32 on CUDA cores where D has too few tiles to fill the GPU; blocks share the K of a tile."""

from __future__ import annotations

from dataclasses import replace

from warptile.device import REFERENCE, DeviceLimits
from warptile.launch.params import Params, Pointer, Scalar
from warptile.launch.workspace import Workspace
from warptile.problem import Problem
from warptile.rungs import simt_cost
from warptile.rungs.kernel_spec import Config, KernelSpec, gemm_members
from warptile.rungs.legality import blocks, ceil_div, operand_reason
from warptile.rungs.ranked import RankedRung
from warptile.rungs.simt import WARPTILE_KEYS, SimtWarptile
from warptile.rungs.simt_gemv import SIMT_GEMV

KEYS = (*WARPTILE_KEYS, "SPLITS")

TILES = (
    (8, 128, 16, 8, 64, 4, 4, 3, 6, 8),
    (16, 64, 16, 16, 32, 4, 4, 3, 8, 8),
    (32, 32, 16, 16, 32, 4, 4, 3, 8, 8),
    (32, 64, 16, 32, 32, 8, 4, 3, 8, 8),
    (32, 128, 16, 32, 64, 8, 8, 3, 4, 8),
    (64, 64, 16, 32, 32, 8, 4, 3, 4, 8),
    (64, 128, 16, 32, 64, 8, 8, 3, 4, 8),
)
"""Tiles from few rows to many, values in the order of `WARPTILE_KEYS`."""

THREADS_OF_SM = 512
"""Threads that an SM is given at once, blocks of several tiles and parts together. An estimate, as is what follows."""

MOST_SPLITS, LEAST_STAGES = 16, 4
"""Parts of K at most, and tiles along K that each has at least."""

PARTIALS, ARRIVALS = "partial sums", "arrivals"


class SimtSplitK(RankedRung, SimtWarptile):
    """simt-warptile with K split among blocks."""

    name = "simt-split-k"
    idea = "simt-warptile for few tiles: blocks share the K of a tile, and the last one adds up"
    previous = "simt-warptile"
    dtypes = ("float32",)
    keys = KEYS
    a_layouts = ("row", "col")
    competes = True
    batch_invariant = False

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.candidates`: for each tile, as many parts as keep the GPU busy."""
        found = []
        for values in TILES:
            config = dict(zip(WARPTILE_KEYS, values, strict=True))
            wanted = ceil_div(device.sms * THREADS_OF_SM, blocks(problem, config) * self.threads(config))
            most = ceil_div(problem.k, config["BK"] * LEAST_STAGES)
            found.append({**config, "SPLITS": max(2, min(wanted, most, MOST_SPLITS))})
        return tuple(found)

    def estimate_us(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> float:
        """As `Rung.estimate_us`."""
        return simt_cost.terms_us(problem, config, device.sms)[1]

    def estimate_terms_us(
        self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE
    ) -> tuple[dict[str, float], float]:
        """As `Rung.estimate_terms_us`."""
        return simt_cost.terms_us(problem, config, device.sms)

    def unsuitable(self, problem: Problem, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.unsuitable`."""
        if problem.a.major == "row" and SIMT_GEMV.unsuitable(problem, device) is None:
            return f"D has {problem.m} row{'s' if problem.m > 1 else ''}; simt-gemv reads such a B faster"
        return None

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        splits = config.get("SPLITS", 0)
        other_keys = {key: value for key, value in config.items() if key != "SPLITS"}
        reason = operand_reason(problem, self.dtypes, a_layouts=self.a_layouts) or super().illegal(
            problem, other_keys, device
        )
        if reason is not None:
            return reason
        if problem.ieee:
            return "precision is 'ieee', which asks for one chain of multiply-adds along K; leave it out"
        if splits < 2:
            return f"SPLITS is {splits}; blocks share a tile from 2 on"
        if problem.k < splits * config["BK"]:
            return f"K is {problem.k}; {splits} parts of whole tiles need {splits * config['BK']}"
        if blocks(problem, config) * splits >= 2**31:
            return f"it has {blocks(problem, config)} tiles of {splits} blocks; a grid has fewer than 2**31"
        return None

    def resolve(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
        """As `Rung.resolve`."""
        one = super().resolve(problem, config, device)
        tiles, splits = blocks(problem, config), config["SPLITS"]
        members = (
            *gemm_members(one.view), ("partials", Pointer(PARTIALS)), ("arrivals", Pointer(ARRIVALS)),
            ("splits", Scalar("s32", splits)),
        )  # fmt: skip
        return replace(
            one,
            # One kernel for any number of splits.
            instance=replace(one.instance, values=tuple(each for each in one.instance.values if each[0] != "SPLITS")),
            grid=(tiles * splits, 1, 1),
            waits=False,
            params=Params(members),
            kernel_workspaces=(
                Workspace(PARTIALS, tiles * splits * config["BM"] * config["BN"] * problem.accumulator.bits // 8),
                Workspace(ARRIVALS, tiles * 4, zero=True),
            ),
        )


SIMT_SPLIT_K = SimtSplitK()
"""float32 GEMMs with few rows or a long K."""
