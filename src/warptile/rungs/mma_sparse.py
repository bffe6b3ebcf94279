"""mma-sparse, for 2:4 sparse weights: what it takes, its tunables, and its launch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

from warptile.arrays.sparse import STEP_BYTES, group_width, packed_rows
from warptile.device import REFERENCE, DeviceLimits
from warptile.isa import mma_sp as instructions
from warptile.launch.params import Params, Pointer
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config, Instance, KernelSpec, View, gemm_members, with_epilogue
from warptile.rungs.legality import blocks, grid_reason, keys_reason, operand_reason
from warptile.rungs.mechanism import Mechanism
from warptile.rungs.mma import access_type, operation_type, tile_type
from warptile.rungs.mma_tiles import LOADED_ROWS, k_major, loaded_rows, patch_bytes, smem_row_reason
from warptile.rungs.rung import Rung
from warptile.rungs.tensor_tiles import (
    MAX_DYNAMIC_SHARED_BYTES,
    WARP_LANES,
    multiple_reason,
    output_width,
    register_limit,
    resource_reason,
    shape_reason,
    stages_reason,
)

INSTRUCTIONS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "float16": ((16, 8, 32),),
    "bfloat16": ((16, 8, 32),),
    "tfloat32": ((16, 8, 16),),
    "int8": ((16, 8, 64),),
    "uint8": ((16, 8, 64),),
    "float8_e4m3": ((16, 8, 64),),
    "float8_e5m2": ((16, 8, 64),),
}
"""Instruction shape (FM, FN, FK) of each operand type: the one whose A fills four registers."""

KEYS = ("BM", "BN", "BK", "WM", "WN", "FM", "FN", "FK", "STAGES", "GROUP", "MIN_BLOCKS")
OVERHEAD_REGISTERS = 40
"""Registers for addresses and loop state, in addition to accumulators and fragments: from compiled kernels."""

ACROSS_REGISTERS = 20
"""Further registers where B is not K-major."""

NARROW_REGISTERS = 54
"""Further registers where operands are aligned to less than 8 bytes: many small copies, each with its address."""

UNPACKING_REGISTERS = 14
"""Further registers for each instruction of a stage with 8-bit floats, which sm_90 unpacks to float16."""


@dataclass(frozen=True)
class SparseMmaResources:
    """What a CTA of one configuration takes of an SM for one problem: as ``SparseStage`` and ``MmaPatch``.

    Attributes:
        problem: what is computed.
        config: the tunables.
    """

    problem: Problem
    config: Config

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        config = self.config
        return (config["BM"] // config["WM"]) * (config["BN"] // config["WN"]) * WARP_LANES

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage: half of A, B, and a word of metadata for each lane, group of rows and MMA-K block."""
        config, element = self.config, self.problem.a.dtype
        k_bytes = config["BK"] * element.bits // 8
        groups = config["BM"] // packed_rows(element)
        metadata = k_bytes // STEP_BYTES * groups * WARP_LANES * 4
        return config["BM"] * k_bytes // 2 + config["BN"] * k_bytes + metadata

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA: stages during the mainloop, a row of fragments of each warp during the epilogue."""
        patch = patch_bytes(LOADED_ROWS, self.config["WN"], self.problem.accumulator.bits)
        return max(self.config["STAGES"] * self.stage_bytes, self.threads // WARP_LANES * patch)

    @property
    def registers(self) -> int:
        """Estimated registers of a thread."""
        config, problem = self.config, self.problem
        element = problem.a.dtype
        accumulators = config["WM"] * config["WN"] * problem.accumulator.bits // 32 // WARP_LANES
        a = config["WM"] // LOADED_ROWS * 4 + config["WM"] // packed_rows(element)
        strips = 2 * loaded_rows(problem.b, is_a=False) // 8 * 4
        extra = 0 if k_major(problem.b, is_a=False) else ACROSS_REGISTERS
        extra += NARROW_REGISTERS if min(each.alignment_bytes for each in (problem.a, problem.b)) < 8 else 0
        if element.name.startswith("float8"):
            extra += UNPACKING_REGISTERS * (config["WM"] // 16) * (config["WN"] // 8) * _mma_k_blocks(problem, config)
        return accumulators + a + strips + OVERHEAD_REGISTERS + extra

    @property
    def register_limit(self) -> int:
        """Registers that a thread may have with MIN_BLOCKS CTAs on an SM."""
        return register_limit(self.threads, self.config["MIN_BLOCKS"])


def _mma_k_blocks(problem: Problem, config: Config) -> int:
    """MMA-K blocks of a stage."""
    return config["BK"] * problem.a.dtype.bits // 8 // STEP_BYTES


# --- legality -----------------------------------------------------------------------------------------------------


def _type_reason(problem: Problem) -> str | None:
    """Why the operands cannot be taken at all, or None."""
    accumulators = problem.a.dtype.accumulators
    if problem.a.dtype.name.startswith("float8"):
        accumulators = ("float32",)  # with a float16 accumulator the instruction needs sm_120
    reason = operand_reason(problem, tuple(INSTRUCTIONS), accumulators, sparse=True)
    width = group_width(problem.a.dtype)
    if reason is None and problem.k % width:
        return (
            f"K is {problem.k}; a group of {problem.a.dtype.name} is {width} along K, so it must be a multiple of that"
        )
    return reason


def _tiling_reason(problem: Problem, config: Config) -> str | None:
    """Why the levels of tiling do not divide each other, or None."""
    reason = multiple_reason(config, (("BM", "WM"), ("BN", "WN")))
    if reason is not None:
        return reason
    strip = loaded_rows(problem.b, is_a=False)
    units = {
        "WM": (packed_rows(problem.a.dtype), "metadata comes for {} rows"),
        "WN": (strip, "columns of B are loaded {} at a time"),
        "BK": (STEP_BYTES * 8 // problem.a.dtype.bits, "an MMA-K block is {} elements"),
    }
    for key, (unit, why) in units.items():
        if config[key] % unit:
            return f"{key} is {config[key]}; {why.format(unit)}, so it must be a multiple of that"
    if _mma_k_blocks(problem, config) * (config["WN"] // strip) % 2:
        return (
            f"BK and WN are {config['BK']} and {config['WN']}; strips of B of {strip} columns and one MMA-K block are "
            "double-buffered, so their number must be even"
        )
    return None


def _output_reason(problem: Problem, config: Config) -> str | None:
    """Why a warp's row of D is no whole number of vectors, or None."""
    vector = output_width(problem)
    return (
        f"WN is {config['WN']}; stores of {vector} elements need a multiple of that" if config["WN"] % vector else None
    )


def _capability(problem: Problem, config: Config) -> int:
    shape = instructions.find("m{FM}n{FN}k{FK}".format(**config), problem.a.dtype.ptx)
    return 80 if shape is None else shape.capability


# --- configurations -----------------------------------------------------------------------------------------------

SIZES = (
    (256, 128, 64, 64, 256, 3),
    (256, 128, 64, 64, 128, 5),
    (192, 192, 96, 48, 128, 5),
    (128, 256, 64, 64, 128, 4),
    (128, 128, 64, 64, 256, 3),
    (128, 128, 64, 32, 128, 5),
    (128, 64, 32, 32, 128, 5),
    (64, 64, 32, 32, 128, 5),
    (128, 64, 32, 32, 64, 5),
    (64, 64, 32, 32, 64, 5),
    (64, 64, 16, 32, 64, 5),
)
"""Sizes that are always tried: BM, BN, WM, WN, dense bytes of K (128: 64 halves), STAGES."""

DEFAULT_CHOICES = {0: 0.75, 1: 0.75, 4: 0.75, 5: 0.45, 6: 0.45, 7: 0.0, 8: 0.45, 9: 0.0, 10: 0.0}
"""Default choices among them, best first, each with the share of the SMs that its tiles must keep busy."""


def _sized(problem: Problem, bm: int, bn: int, wm: int, wn: int, k_bytes: int, stages: int) -> dict[str, int]:
    fm, fn, fk = INSTRUCTIONS.get(problem.a.dtype.name, INSTRUCTIONS["float16"])[0]
    bk = k_bytes * 8 // problem.a.dtype.bits
    shape = {"BM": bm, "BN": bn, "BK": bk, "WM": wm, "WN": wn, "FM": fm, "FN": fn, "FK": fk}
    return {**shape, "STAGES": stages, "GROUP": 8, "MIN_BLOCKS": 1}


# --- the rung -----------------------------------------------------------------------------------------------------


class MmaSparse(Rung):
    """2:4 weights on mma.sp."""

    name = "mma-sparse"
    family: ClassVar[str] = "mma"
    idea = "2:4 sparsity: compressed A plus metadata, twice the K extent per mma.sp"
    previous = "mma-final"
    min_arch = 80
    dtypes = tuple(INSTRUCTIONS)
    sparse = True
    mechanism = Mechanism(narrow_rows=True, swizzled=True, a_density=0.5, overlaps_stages=True)

    def default_config(self, problem: Problem, device: DeviceLimits = REFERENCE) -> Config:
        """The first of the default choices that is legal and keeps enough SMs busy."""
        for index, share in DEFAULT_CHOICES.items():
            config = _sized(problem, *SIZES[index])
            if blocks(problem, config) >= share * device.sms and self.illegal(problem, config, device) is None:
                return config
        return _sized(problem, *SIZES[-1])

    def candidates(self, problem: Problem, device: DeviceLimits = REFERENCE) -> tuple[Config, ...]:
        """The usual sizes, then every tile, K extent and number of stages that is legal, then other groups."""
        if _type_reason(problem) is not None:
            return ()
        found = [_sized(problem, *sizes) for sizes in SIZES]
        extents, warps = (64, 128, 192, 256), (16, 32, 48, 64, 96, 128)
        for bm, bn, wm, wn, k_bytes, stages in product(extents, extents, warps, warps, (64, 128, 256), (3, 4, 5, 6)):
            if bm % wm == 0 and bn % wn == 0 and 2 <= bm * bn // (wm * wn) <= 16:
                found.append(_sized(problem, bm, bn, wm, wn, k_bytes, stages))
        unique = list({tuple(config.items()): config for config in found}.values())

        def legal(configs: Iterable[Config]) -> list[Config]:
            return [config for config in configs if self.illegal(problem, config, device) is None]

        alone = legal(unique)
        # Two CTAs on an SM leave each thread no more registers than one does.
        pairs = legal([{**config, "MIN_BLOCKS": 2} for config in alone])
        return (*alone, *pairs, *legal([{**_sized(problem, *SIZES[0]), "GROUP": group} for group in (1, 4, 16)]))

    def illegal(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> str | None:
        """As `Rung.illegal`."""
        return (
            _type_reason(problem)
            or keys_reason(config, KEYS)
            or shape_reason(INSTRUCTIONS, problem, config)
            or _tiling_reason(problem, config)
            or smem_row_reason(problem, {**config, "BK": config["BK"] // 2})
            or smem_row_reason(problem, config)
            or stages_reason(config)
            or _output_reason(problem, config)
            or grid_reason(problem, config)
            or resource_reason(SparseMmaResources(problem, config), MAX_DYNAMIC_SHARED_BYTES)
        )

    def resolve(self, problem: Problem, config: Config, device: DeviceLimits = REFERENCE) -> KernelSpec:
        """As `Rung.resolve`."""
        view, resources = View(problem), SparseMmaResources(problem, config)
        # The dense operation whose fragments of A have the same registers covers half of K.
        types = (
            ("OPERATION", with_epilogue(operation_type(problem, {**config, "FK": config["FK"] // 2}), problem)),
            ("TILE", tile_type(problem, config)),
            ("ACCESS", access_type(problem)),
        )
        return KernelSpec(
            problem,
            config,
            view,
            Instance(
                self.file, self.template, types, tuple((key, config[key]) for key in ("STAGES", "GROUP", "MIN_BLOCKS"))
            ),
            grid=(blocks(problem, config), 1, 1),
            block=(resources.threads, 1, 1),
            params=Params((*gemm_members(view), ("metadata", Pointer("E")))),
            dynamic_shared_bytes=resources.shared_bytes,
            capability=_capability(problem, config),
        )


MMA_SPARSE = MmaSparse()
"""2:4 weights."""
