"""mma-specialized: float64 on Hopper. A producer warp feeds each of several consumer warpgroups by TMA. Consumers have
a tile of D each: while one stores, the tensor cores work for another."""

from __future__ import annotations

from warptile.device import REFERENCE, DeviceLimits
from warptile.launch.params import Params, Scalar
from warptile.problem import Problem
from warptile.rungs import mma_specialized_cost
from warptile.rungs.batch import batch_members, with_batch
from warptile.rungs.kernel_spec import Config, Instance, KernelSpec, gemm_members, with_epilogue
from warptile.rungs.legality import blocks, operand_reason
from warptile.rungs.mechanism import Mechanism
from warptile.rungs.mma import SIZE_KEYS, MmaRung, operation_type, tile_type
from warptile.rungs.mma_tiles import MmaResources, capability, common_reasons
from warptile.rungs.mma_tma import box_reason, tensor_maps, view
from warptile.rungs.ranked import RankedRung
from warptile.rungs.simt_gemv import SIMT_GEMV
from warptile.rungs.tensor_tiles import (
    MAX_DYNAMIC_SHARED_BYTES,
    WARP_LANES,
    output_width,
    resource_reason,
    round_up,
    stages_reason,
)
from warptile.rungs.tma import MBARRIER_BYTES

KEYS = (*SIZE_KEYS, "STAGES", "CONSUMERS", "GROUP")

SHAPE = (16, 8, 8)
"""The instruction."""

BK, GROUP = 16, 8
"""K of a stage, whose rows along K have 128 bytes, and rows of tiles that follow each other."""

SIZES = ((64, 64, 32, 32, 4, 2), (64, 64, 32, 32, 3, 3), (64, 32, 32, 16, 5, 3), (32, 64, 32, 16, 5, 3))
"""Rows and columns of a consumer's tile and of its warps', stages, and consumers."""

WARPGROUP = 128
CONSUMER_REGISTERS = {2: 232, 3: 160}
"""Registers of a consumer's thread, by the number of consumers: what ``setmaxnreg`` gives it."""

OTHER_REGISTERS = 56
"""Of a thread beside accumulators and fragments, addresses of the epilogue among them: from compiled kernels."""


class MmaSpecializedResources(MmaResources):
    """What a CTA takes: stages and patches of each consumer, and its mbarriers."""

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA."""
        of_one = self.stages * self.stage_bytes + self.threads // WARP_LANES * self.patch_bytes
        barriers = round_up(2 * self.stages * self.config["CONSUMERS"] * MBARRIER_BYTES, 16)
        return self.config["CONSUMERS"] * of_one + barriers

    @property
    def registers(self) -> int:
        """Estimated registers of a consumer's thread: two fragments of A, and of B a k-block."""
        of_warp = self.config["WM"] * self.config["WN"] + 8 * (2 * 16 + self.config["WN"])
        return 2 * of_warp // WARP_LANES + OTHER_REGISTERS

    @property
    def register_limit(self) -> int:
        """Registers that it has."""
        return CONSUMER_REGISTERS[self.config["CONSUMERS"]]


class MmaSpecialized(RankedRung, MmaRung):
    """Persistent CTAs, one for each SM, with a producer warp and four multiplying warps for each consumer."""

    dtypes = ("float64",)
    min_arch = 90
    only_arch = "sm_90a"
    competes = True
    batches = True
    persistent = True

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """As `Rung.candidates`."""
        return tuple(
            dict(zip(KEYS, (bm, bn, BK, wm, wn, *SHAPE, stages, consumers, GROUP), strict=True))
            for bm, bn, wm, wn, stages, consumers in SIZES
        )

    def estimate_us(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> float:
        """As `Rung.estimate_us`."""
        return self.estimate_terms_us(problem, config, device)[1]

    def estimate_terms_us(
        self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE
    ) -> tuple[dict[str, float], float]:
        """As `Rung.estimate_terms_us`."""
        return mma_specialized_cost.terms_us(problem, config, device.sms)

    def unsuitable(self, problem: Problem, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.unsuitable`."""
        return SIMT_GEMV.preferred(problem)

    def resources(self, problem: Problem, config: Config) -> MmaResources:
        """What a CTA of a configuration takes of an SM."""
        return MmaSpecializedResources(problem, config, stages=config["STAGES"])

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        return (
            operand_reason(problem, self.dtypes, a_layouts=("row", "col"), batches=True)
            or common_reasons(problem, config, self.keys, batches=True)
            or stages_reason(config)
            or _consumers_reason(config)
            or box_reason(problem, config)
            or resource_reason(self.resources(problem, config), MAX_DYNAMIC_SHARED_BYTES)
        )

    def resolve(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
        """As `Rung.resolve`."""
        found, resources = view(problem), self.resources(problem, config)
        seen = found.problem
        map_a, map_b = tensor_maps(found, config, swizzled=True)
        types = (
            ("OPERATION", with_epilogue(operation_type(problem, config), problem)),
            ("TILE", tile_type(problem, config)),
        )
        values = (
            *((key, config[key]) for key in self.keys if key not in SIZE_KEYS),
            ("D_BYTES", output_width(problem) * problem.d.dtype.bits // 8),
            ("VECTORS_AT_ONCE", 1 if config["CONSUMERS"] > 2 else 2),  # registers suffice for no more
        )
        strides = (*batch_members(seen), ("batch", Scalar("s32", seen.batch)))
        return KernelSpec(
            problem,
            config,
            found,
            # In some layouts a thread keeps a few words of its tile's position in local memory.
            with_batch(Instance(self.file, self.template, types, values, may_spill=True), seen),
            grid=(min(blocks(problem, config), device.sms), 1, 1),
            block=(config["CONSUMERS"] * resources.threads + WARPGROUP, 1, 1),
            params=Params((*gemm_members(found), ("map_a", map_a), ("map_b", map_b), *strides)),
            dynamic_shared_bytes=resources.shared_bytes,
            capability=max(capability(problem, config), self.min_arch),
            overlaps_previous=device.overlaps_launches,
        )


def _consumers_reason(config: Config) -> str | None:
    """Why consumers cannot share a CTA so, or None."""
    shape = tuple(config[key] for key in ("FM", "FN", "FK"))
    if shape != SHAPE:
        return f"FM, FN, FK are {', '.join(map(str, shape))}; it takes {', '.join(map(str, SHAPE))}"
    if config["BK"] != BK:
        return f"BK is {config['BK']}; fragments are loaded from rows of 128 bytes, {BK} doubles"
    if config["CONSUMERS"] not in CONSUMER_REGISTERS:
        return f"CONSUMERS is {config['CONSUMERS']}; a CTA has two or three"
    warps = (config["BM"] // config["WM"]) * (config["BN"] // config["WN"])
    if warps * WARP_LANES != WARPGROUP:
        return f"a consumer's tile is {warps} warps' tiles; it is a warpgroup, four"
    if config["WM"] % 32:
        return f"WM is {config['WM']}; fragments of A alternate, so it must be a multiple of 32"
    return None


MMA_SPECIALIZED = MmaSpecialized(
    "mma-specialized",
    "float64 by warp specialization: a producer warp and TMA for each of several consumers, which have a tile each",
    "mma-final",
    keys=KEYS,
    dynamic=True,
    mechanism=Mechanism(narrow_rows=True, swizzled=True, by_tma=True, overlaps_stages=True),
)
"""float64 GEMMs on sm_90a."""
