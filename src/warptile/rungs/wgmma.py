"""The Hopper rungs: what each takes, its tunables, and its launch."""

from __future__ import annotations

from warptile.launch import Argument, Dim3
from warptile.problem import Problem
from warptile.rungs import wgmma_tiles as tiles
from warptile.rungs.legality import ceil_div
from warptile.rungs.rung import Config, Rung
from warptile.rungs.tensor_tiles import MAX_DYNAMIC_SHARED_BYTES
from warptile.rungs.wgmma_tiles import WARPGROUP, accumulator_registers, common_reasons, stage_bytes

FINAL_KEYS = (
    "BM", "BN", "BK", "STAGES", "CONSUMERS", "PINGPONG", "CM", "CN", "GROUP", "ALONG_N", "OVERLAP", "STREAM", "SWAP", "SMS",
)  # fmt: skip
FLAGS = ("PINGPONG", "ALONG_N", "OVERLAP", "STREAM", "SWAP")
"""Keys that are 0 or 1."""


def _final_default(problem: Problem) -> Config:
    return {
        "BM": 128, "BN": 256, "BK": 128 * 8 // problem.a.dtype.bits, "STAGES": 4, "CONSUMERS": 2, "PINGPONG": 0, "CM": 1,
        "CN": 1, "GROUP": 8, "ALONG_N": 0, "OVERLAP": 0, "STREAM": 0, "SWAP": 0, "SMS": 132,
    }  # fmt: skip


def _final_shared(problem: Problem, config: Config) -> int:
    output = config["CONSUMERS"] * tiles.OUTPUT_BUFFERS * tiles.BUFFER_BYTES
    return tiles.shared_bytes(config["STAGES"], stage_bytes(tiles.view(problem, config).problem, config), output)


def _final_illegal(problem: Problem, config: Config) -> str | None:
    reason = common_reasons(problem, config, FINAL_KEYS, FLAGS)
    if reason is not None:
        return reason
    shared = _final_shared(problem, config)
    if shared > MAX_DYNAMIC_SHARED_BYTES:
        return f"the block needs {shared} bytes of shared memory; at most {MAX_DYNAMIC_SHARED_BYTES}: fewer stages"
    return None


def _final_name(problem: Problem, config: Config) -> str:
    seen = tiles.view(problem, config).problem

    def flag(key: str) -> str:
        return "true" if config[key] else "false"

    values = [config["STAGES"], config["CONSUMERS"], config["PINGPONG"], config["CM"], config["CN"], config["GROUP"]]
    chosen = f"warptile::WgmmaConfig<{', '.join(map(str, values))}, {flag('ALONG_N')}, {flag('OVERLAP')}, {flag('STREAM')}>"
    store = f"{'true' if tiles.by_tma(seen) else 'false'}, {tiles.store_width(seen)}"
    return f"warptile::wgmma_final<{tiles.operation_type(seen)}, {tiles.tile_type(seen, config)}, {chosen}, {store}>"


def _teams(problem: Problem, config: Config) -> int:
    seen = tiles.view(problem, config).problem
    count = ceil_div(seen.m, config["BM"] * config["CM"]) * ceil_div(seen.n, config["BN"] * config["CN"])
    return min(count, max(config["SMS"] // (config["CM"] * config["CN"]), 1))


def _final_grid(problem: Problem, config: Config) -> Dim3:
    return (_teams(problem, config) * config["CM"] * config["CN"], 1, 1)


def _final_parameters(problem: Problem, config: Config) -> tuple[Argument, ...]:
    return tiles.maps(tiles.view(problem, config), config)


WGMMA_FINAL = Rung(
    name="wgmma-final",
    family="wgmma",
    idea="one kernel for every type, layout and schedule, tuned",
    file="wgmma/final.cuh",
    previous="mma-final",
    min_arch=90,
    dtypes=tiles.DTYPES,
    default_config=_final_default,
    candidates=lambda problem: (_final_default(problem),),
    illegal=_final_illegal,
    name_expression=_final_name,
    grid=_final_grid,
    threads=lambda problem, config: (WARPGROUP * (config["CONSUMERS"] + 1), 1, 1),
    dynamic_shared_bytes=_final_shared,
    capability=lambda problem, config: 90,
    cluster=lambda problem, config: (config["CM"] * config["CN"], 1, 1),
    view=tiles.view,
    parameters=_final_parameters,
    instructions=lambda problem, config: (tiles.instruction(problem, config),),
)

WGMMA_RUNGS = (WGMMA_FINAL,)
