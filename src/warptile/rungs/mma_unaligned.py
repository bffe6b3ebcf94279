"""mma-unaligned: 16-bit products at any alignment in one launch, of many small matrices above all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from warptile.arch import arch
from warptile.device import HOPPER, REFERENCE, DeviceLimits
from warptile.launch.params import Params, Scalar
from warptile.problem import Problem
from warptile.rungs import mma_unaligned_cost
from warptile.rungs.batch import batch_members, with_batch
from warptile.rungs.kernel_spec import Config, Instance, KernelSpec, View, gemm_members, with_epilogue
from warptile.rungs.launch_overlap import MOST, spread
from warptile.rungs.legality import blocks, ceil_div, grid_reason, keys_reason, operand_reason
from warptile.rungs.mma import SIZE_KEYS, SWIZZLED, MmaRung, access_type, operation_type, tile_type
from warptile.rungs.mma_tiles import (
    INSTRUCTIONS,
    MmaResources,
    tiling_reason,
    type_reason,
)
from warptile.rungs.mma_unaligned_cost import Sizes
from warptile.rungs.ranked import RankedRung
from warptile.rungs.tensor_tiles import (
    MAX_DYNAMIC_SHARED_BYTES,
    VECTOR_BYTES,
    resource_reason,
    shape_reason,
)

TYPES = ("float16", "bfloat16")
KEYS = (*SIZE_KEYS, "STAGES", "TILES", "MIN_BLOCKS")

SHAPE = (16, 8, 16)
"""The instruction."""

SIZES = (
    (16, 16, 16, 16, 16, 2, 4, 6),
    (16, 16, 32, 16, 16, 2, 4, 6),
    (32, 32, 32, 16, 32, 3, 1, 4),
    (32, 32, 48, 16, 16, 2, 1, 6),
    (32, 32, 64, 16, 16, 2, 1, 6),
    (48, 48, 48, 16, 48, 2, 1, 3),
    (16, 64, 64, 16, 16, 2, 1, 6),
    (64, 32, 64, 32, 16, 2, 1, 4),
    (32, 64, 32, 16, 32, 3, 1, 4),
    (64, 64, 32, 32, 32, 3, 1, 3),
    (64, 64, 64, 32, 32, 2, 1, 3),
    (80, 80, 80, 16, 80, 2, 1, 1),
    (32, 128, 32, 32, 32, 3, 1, 3),
    (128, 32, 32, 32, 32, 3, 1, 3),
    (96, 64, 32, 48, 32, 3, 1, 2),
    (128, 64, 32, 64, 32, 3, 1, 2),
    (64, 128, 32, 32, 64, 3, 1, 2),
    (64, 128, 64, 32, 64, 2, 1, 2),
    (128, 128, 32, 64, 64, 3, 1, 1),
)
"""Rows, columns and K of tiles, rows and columns of a warp's, stages for a K of several tiles, tiles of a CTA, and CTAs
of an SM: of 41 that were timed with 171 problems on an H200, some twelve with each, those without which the fastest
would be missing most often. The fastest of these is within 0.8 % of the fastest of all in the mean, with what was not
timed as the cost model predicts it (2026-11-30, no record)."""

MOST_PRODUCTS = 2**27
"""Multiply-adds of a matrix beyond which wgmma, after a pass that aligns operands, is faster than `mma.sync`."""

MOST_ELEMENTS = 3 * 2**19
"""Elements of a single D: about as many as the largest one had that the cost model is fitted to."""

OTHERS_TAKE_ALIGNED, OTHERS_TAKE = 1.05, 1.16
"""How much longer wgmma-final takes than predicted, in the mean of 171 problems for which this rung competes with it,
aligned ones and others (2026-11-30, no record)."""

REGISTER_ELEMENTS = 256
"""Elements of the largest tile of D that is stored from registers."""

LARGE = max(max(bm // 2, bn // 2, bk) for bm, bn, bk, *_ in SIZES) + 1
"""An M, N or K for which every size is a candidate, with all its stages."""


@dataclass(frozen=True)
class UnalignedResources(MmaResources):
    """What a CTA of a configuration takes of an SM."""

    @property
    def threads(self) -> int:
        """As `MmaResources.threads`."""
        return super().threads * self.config["TILES"]

    @property
    def shared_bytes(self) -> int:
        """As `MmaResources.shared_bytes`."""
        return int(shared_bytes(self.problem, self.config))


def shared_bytes(problem: Problem, sizes: Sizes) -> Any:
    """Shared memory of a CTA: the stages of each of its tiles, whose lines are 16 bytes longer than what they hold
    (``LineTile``), which what D is stored from replaces (``StoredLines``)."""
    bm, bn, bk, stages = (sizes[key] for key in ("BM", "BN", "BK", "STAGES"))

    def tile(k_major: bool, extent: Any) -> Any:
        line, lines = (bk, extent) if k_major else (extent, bk)
        return lines * (2 * line + VECTOR_BYTES)

    staged = stages * (tile(problem.a.major == "row", bm) + tile(problem.b.major == "col", bn))
    stored = bm * (bn * problem.d.dtype.bits // 8 + VECTOR_BYTES)
    return sizes["TILES"] * np.maximum(staged, np.where(stores_registers(sizes), 0, stored))


def stores_registers(sizes: Sizes) -> Any:
    """Whether D is stored from registers: each lane has so few elements of the smallest tile that their way through
    shared memory would take longer."""
    return sizes["BM"] * sizes["BN"] <= REGISTER_ELEMENTS


class MmaUnaligned(RankedRung, MmaRung):
    """One CTA for a tile of D, or for several that a warp owns each."""

    dtypes = TYPES
    competes = True
    batches = True
    eight_bits = True

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.candidates`: tiles of which less than half would always lie outside D."""
        return _candidates(*_usual(problem))

    def estimate_us(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> float:
        """As `Rung.estimate_us`."""
        return self.estimate_terms_us(problem, config, device)[1]

    def compared_us(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> float | None:
        """As `Rung.compared_us`: less, because predictions of other kernels are too short for such problems."""
        return self.estimate_us(problem, config, device) / (
            OTHERS_TAKE_ALIGNED if _is_aligned(problem) else OTHERS_TAKE
        )

    def estimate_terms_us(
        self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE
    ) -> tuple[dict[str, float], float]:
        """As `Rung.estimate_terms_us`."""
        terms, whole = _terms_us(problem, config, device)
        return {name: float(us) for name, us in terms.items()}, float(whole)

    def _ranked(self, problem: Problem, device: DeviceLimits) -> list[Config]:
        configs, sizes = self.candidates(problem, device), _sizes(*_usual(problem))
        times = _terms_us(problem, sizes, device)[1]
        return [configs[number] for number in np.argsort(times, kind="stable")]

    def unsuitable(self, problem: Problem, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.unsuitable`."""
        if arch(device.arch).capability != HOPPER:
            return f"its cost model is fitted to Hopper, and the GPU is {device.arch}; name the rung to use it"
        products = problem.m * problem.n * problem.k
        if products > MOST_PRODUCTS:
            return f"matrices have {products} multiply-adds; with more than {MOST_PRODUCTS} an aligned copy pays"
        if problem.batch == 1 and problem.m * problem.n > MOST_ELEMENTS:
            return f"D has {problem.m * problem.n} elements; of one matrix it takes up to {MOST_ELEMENTS}"
        if problem.batch == 1 and _is_aligned(problem):
            return "there is one matrix, whose operands are aligned; TMA reads them faster"
        return None

    def resources(self, problem: Problem, config: Config) -> UnalignedResources:
        """As `MmaRung.resources`."""
        return UnalignedResources(problem, config, stages=config["STAGES"])

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        return (
            operand_reason(problem, self.dtypes, None, ("row", "col"), batches=True, eight_bits=True)
            or type_reason(problem, eight_bits=True, batches=True)
            or keys_reason(config, KEYS)
            or shape_reason(INSTRUCTIONS, problem, config)
            or tiling_reason(problem, config)
            or grid_reason(problem, config)
            or _tiles_reason(problem, config)
            or resource_reason(self.resources(problem, config), MAX_DYNAMIC_SHARED_BYTES)
        )

    def resolve(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
        """As `Rung.resolve`."""
        view, resources, tiles = View(problem), self.resources(problem, config), blocks(problem, config)
        ctas = ceil_div(tiles, config["TILES"])
        types = (
            ("OPERATION", with_epilogue(operation_type(problem, config), problem)),
            ("TILE", tile_type(problem, config)),
            ("ACCESS", access_type(problem)),
        )
        values = (
            *((key, config[key]) for key in KEYS if key not in SIZE_KEYS),
            ("STORES_REGISTERS", bool(stores_registers(config))),
            ("PREPARES", config["STAGES"] == 1 and ctas <= MOST * device.multiprocessors),
        )
        members = (*gemm_members(view), ("tiles", Scalar("u32", tiles)), *batch_members(problem))
        one = KernelSpec(
            problem,
            config,
            view,
            with_batch(Instance(self.file, self.template, types, values), problem),
            grid=(ctas, 1, 1),
            block=(resources.threads // config["TILES"], config["TILES"], 1),
            params=Params(members),
            dynamic_shared_bytes=resources.shared_bytes,
            capability=self.min_arch,
            overlaps_previous=device.overlaps_launches,
        )
        return spread(one, device)


def _terms_us(problem: Problem, sizes: Sizes, device: DeviceLimits) -> tuple[dict[str, Any], Any]:
    return mma_unaligned_cost.terms_us(
        problem, sizes, device.sms, shared_bytes(problem, sizes), stores_registers(sizes)
    )


def _tiles_reason(problem: Problem, config: Config) -> str | None:
    """Why there cannot be so many stages, or tiles of a CTA, or None."""
    if config["STAGES"] == 1 and problem.k > config["BK"]:
        return f"STAGES is 1, and K of {problem.k} is more than one tile of {config['BK']}; it must be at least 2"
    if config["TILES"] > 1 and (config["BM"], config["BN"]) != (config["WM"], config["WN"]):
        return f"TILES is {config['TILES']}; a CTA has several tiles where each is a warp's: take WM=BM, WN=BN"
    return None


def _is_aligned(problem: Problem) -> bool:
    return all(operand.alignment_bytes >= VECTOR_BYTES for operand in (problem.a, problem.b, problem.d))


def _usual(problem: Problem) -> tuple[int, int, int]:
    """M, N and K; `LARGE` stands for all larger ones."""
    return min(problem.m, LARGE), min(problem.n, LARGE), min(problem.k, LARGE)


@lru_cache(maxsize=256)
def _candidates(m: int, n: int, k: int) -> tuple[Config, ...]:
    def config(bm: int, bn: int, bk: int, wm: int, wn: int, stages: int, tiles: int, least: int) -> Config:
        values = (bm, bn, bk, wm, wn, *SHAPE, 1 if k <= bk else stages, tiles, least)
        return dict(zip(KEYS, values, strict=True))

    return tuple(config(*size) for size in SIZES if size[0] < 2 * max(m, 16) and size[1] < 2 * max(n, 16))


@lru_cache(maxsize=256)
def _sizes(m: int, n: int, k: int) -> Sizes:
    """The candidates' tunables as arrays."""
    configs = _candidates(m, n, k)
    return {key: np.array([config[key] for config in configs]) for key in KEYS}


MMA_UNALIGNED = MmaUnaligned(
    "mma-unaligned",
    "lines are copied as they lie and fragments read around their shift: any alignment in one launch",
    "mma-final",
    keys=KEYS,
    dynamic=True,
    mechanism=replace(SWIZZLED, swizzled=False),
)
"""Batches of small matrices, and unaligned operands, of 16-bit types."""
