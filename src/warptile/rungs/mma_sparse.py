"""The rung that multiplies 2:4 weights: what it takes, its tunables, and its launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

from warptile.isa import sparse as instructions
from warptile.launch import Dim3
from warptile.problem import Problem
from warptile.rungs.legality import blocks, grid_reason, keys_reason, operand_reason
from warptile.rungs.mma import access_type, operation_type, tile_type
from warptile.rungs.mma_tiles import SLAB, along_k, panel_reason, patch_bytes, slab
from warptile.rungs.rung import Config, Rung
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
from warptile.sparse import STEP_BYTES, group_width, packed_rows

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
"""Registers of addresses and loop state beside accumulators and fragments, as compiled kernels show them."""

ACROSS_REGISTERS = 20
"""More of them where B is not stored along K: its addresses move by rows."""

NARROW_REGISTERS = 54
"""More of them where operands are aligned to less than 8 bytes: many small copies, each with its address."""

UNPACKING_REGISTERS = 14
"""More of them, for each instruction of a stage, for 8-bit floats: sm_90 unpacks them to float16 and moves A between
lanes, for many instructions at once."""


@dataclass(frozen=True)
class Geometry:
    """Sizes of one configuration for one problem: the Python side of ``SparseStage`` and ``MmaPatch``.

    Attributes:
        problem: what is computed.
        config: the tunables.
    """

    problem: Problem
    config: Config

    @property
    def threads(self) -> int:
        """Threads of a block."""
        config = self.config
        return (config["BM"] // config["WM"]) * (config["BN"] // config["WN"]) * WARP_LANES

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage: half of A, B, and a word of metadata for each lane, group of rows and step."""
        config, element = self.config, self.problem.a.dtype
        depth_bytes = config["BK"] * element.bits // 8
        groups = config["BM"] // packed_rows(element)
        metadata = depth_bytes // STEP_BYTES * groups * WARP_LANES * 4
        return config["BM"] * depth_bytes // 2 + config["BN"] * depth_bytes + metadata

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: the ring while it multiplies, a row of fragments of each warp once it stores."""
        patch = patch_bytes(SLAB, self.config["WN"], self.problem.accumulator.bits)
        return max(self.config["STAGES"] * self.stage_bytes, self.threads // WARP_LANES * patch)

    @property
    def registers(self) -> int:
        """Estimated registers of a thread."""
        config, problem = self.config, self.problem
        element = problem.a.dtype
        accumulators = config["WM"] * config["WN"] * problem.accumulator.bits // 32 // WARP_LANES
        a = config["WM"] // SLAB * 4 + config["WM"] // packed_rows(element)
        strips = 2 * slab(problem.b, is_a=False) // 8 * 4
        extra = 0 if along_k(problem.b, is_a=False) else ACROSS_REGISTERS
        extra += NARROW_REGISTERS if min(each.alignment_bytes for each in (problem.a, problem.b)) < 8 else 0
        if element.name.startswith("float8"):
            extra += UNPACKING_REGISTERS * (config["WM"] // 16) * (config["WN"] // 8) * _steps(problem, config)
        return accumulators + a + strips + OVERHEAD_REGISTERS + extra

    @property
    def register_limit(self) -> int:
        """Registers a thread may have with MIN_BLOCKS blocks on a multiprocessor."""
        return register_limit(self.threads, self.config["MIN_BLOCKS"])


def _steps(problem: Problem, config: Config) -> int:
    """Steps of a stage: instructions along K."""
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
    strip = slab(problem.b, is_a=False)
    units = {
        "WM": (packed_rows(problem.a.dtype), "metadata comes for {} rows"),
        "WN": (strip, "columns of B are loaded {} at a time"),
        "BK": (STEP_BYTES * 8 // problem.a.dtype.bits, "a step is {} deep"),
    }
    for key, (unit, why) in units.items():
        if config[key] % unit:
            return f"{key} is {config[key]}; {why.format(unit)}, so it must be a multiple of that"
    if _steps(problem, config) * (config["WN"] // strip) % 2:
        return (
            f"BK and WN are {config['BK']} and {config['WN']}; strips of B, {strip} columns and one step deep, take "
            "turns in two sets, so their number must be even"
        )
    return None


def _output_reason(problem: Problem, config: Config) -> str | None:
    """Why a warp's row of D is no whole number of vectors, or None."""
    vector = output_width(problem)
    return (
        f"WN is {config['WN']}; stores of {vector} elements need a multiple of that" if config["WN"] % vector else None
    )


def _illegal(problem: Problem, config: Config) -> str | None:
    return (
        _type_reason(problem)
        or keys_reason(config, KEYS)
        or shape_reason(INSTRUCTIONS, problem, config)
        or _tiling_reason(problem, config)
        or panel_reason(problem, {**config, "BK": config["BK"] // 2})
        or panel_reason(problem, config)
        or stages_reason(config)
        or _output_reason(problem, config)
        or grid_reason(problem, config)
        or resource_reason(Geometry(problem, config), MAX_DYNAMIC_SHARED_BYTES)
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
"""Sizes that are always tried: BM, BN, WM, WN, dense bytes of depth (128 are 64 halves), STAGES."""

ENOUGH_BLOCKS = {0: 100, 1: 100, 4: 100, 5: 60, 6: 60, 7: 0, 8: 60, 9: 0, 10: 0}
"""Default choices among them, best first, each with the number of blocks from which a large GPU is kept busy."""


def _sized(problem: Problem, bm: int, bn: int, wm: int, wn: int, depth_bytes: int, stages: int) -> dict[str, int]:
    fm, fn, fk = INSTRUCTIONS.get(problem.a.dtype.name, INSTRUCTIONS["float16"])[0]
    depth = depth_bytes * 8 // problem.a.dtype.bits
    shape = {"BM": bm, "BN": bn, "BK": depth, "WM": wm, "WN": wn, "FM": fm, "FN": fn, "FK": fk}
    return {**shape, "STAGES": stages, "GROUP": 8, "MIN_BLOCKS": 1}


def _default(problem: Problem) -> Config:
    """The first of the default choices that is legal and has enough blocks."""
    for index, enough in ENOUGH_BLOCKS.items():
        config = _sized(problem, *SIZES[index])
        if blocks(problem, config) >= enough and _illegal(problem, config) is None:
            return config
    return _sized(problem, *SIZES[-1])


def _candidates(problem: Problem) -> tuple[Config, ...]:
    """The usual sizes, then every tile, depth and number of stages that is legal, then other groups."""
    found = [_sized(problem, *sizes) for sizes in SIZES]
    extents, warps = (64, 128, 192, 256), (16, 32, 48, 64, 96, 128)
    for bm, bn, wm, wn, depth, stages in product(extents, extents, warps, warps, (64, 128, 256), (3, 4, 5, 6)):
        if 2 <= bm * bn // (wm * wn) <= 16:
            found.append(_sized(problem, bm, bn, wm, wn, depth, stages))
    found += [{**config, "MIN_BLOCKS": 2} for config in list(found)]
    found += [{**_sized(problem, *SIZES[0]), "GROUP": group} for group in (1, 4, 16)]
    unique = {tuple(config.items()): config for config in found}
    return tuple(config for config in unique.values() if _illegal(problem, config) is None)


# --- the rung -----------------------------------------------------------------------------------------------------


def _name(problem: Problem, config: Config) -> str:
    """The dense operation whose fragments of A have the same registers covers half the depth."""
    arguments = [
        operation_type(problem, {**config, "FK": config["FK"] // 2}),
        tile_type(problem, config),
        access_type(problem),
        *(str(config[key]) for key in ("STAGES", "GROUP", "MIN_BLOCKS")),
    ]
    return f"warptile::mma_sparse<{', '.join(arguments)}>"


def _grid(problem: Problem, config: Config) -> Dim3:
    return (blocks(problem, config), 1, 1)


def _of_geometry(attribute: str) -> Callable[[Problem, Config], int]:
    return lambda problem, config: int(getattr(Geometry(problem, config), attribute))


MMA_SPARSE = Rung(
    name="mma-sparse",
    family="mma",
    idea="2:4 sparsity: A at half its size and metadata, twice the depth in one mma.sp",
    file="mma/sparse.cuh",
    previous="mma-final",
    min_arch=80,
    dtypes=tuple(INSTRUCTIONS),
    default_config=_default,
    candidates=_candidates,
    illegal=_illegal,
    name_expression=_name,
    grid=_grid,
    threads=lambda problem, config: (Geometry(problem, config).threads, 1, 1),
    dynamic_shared_bytes=_of_geometry("shared_bytes"),
    capability=_capability,
    sparse=True,
)
