"""Sizes that follow from a WMMA configuration, and every constraint on one: the Python side of tile/wmma_stage.cuh."""

from __future__ import annotations

from dataclasses import dataclass

from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import grid_reason, keys_reason, operand_reason
from warptile.rungs.tensor_tiles import (
    VECTOR_BYTES,
    WARP_LANES,
    elements_per_unit,
    multiple_reason,
    output_width,
    packing_reason,
    register_limit,
    round_up,
    shape_reason,
    unit_bytes,
    width,
)

FRAGMENTS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "float16": ((16, 16, 16), (32, 8, 16), (8, 32, 16)),
    "bfloat16": ((16, 16, 16), (32, 8, 16), (8, 32, 16)),
    "int8": ((16, 16, 16), (32, 8, 16), (8, 32, 16)),
    "uint8": ((16, 16, 16), (32, 8, 16), (8, 32, 16)),
    "tfloat32": ((16, 16, 8),),
    "float64": ((8, 8, 4),),
    "int4": ((8, 8, 32),),
    "uint4": ((8, 8, 32),),
    "bit1": ((8, 8, 128),),
}
"""Fragment shapes (FM, FN, FK) of each operand type, the usual one first: PTX ISA, "Matrix Shape", wmma."""

ACCUMULATORS = ("float16", "float32", "float64", "int32")
"""Accumulator types of fragments. Integer sums wrap around, bits are multiplied by AND."""

CAPABILITY = {"float16": 70, "int8": 72, "uint8": 72, "int4": 75, "uint4": 75}
"""Compute capability times ten that the fragments of a type need; 80 for those not listed (bits: for AND)."""

MAY_BE_ZERO = ("PAD", "ZIGZAG")
SHARED_ALIGNMENT_BYTES = 128
OVERHEAD_REGISTERS = 48
"""Registers for addresses and loop state, in addition to accumulators and fragments: from compiled kernels."""

STREAMING_REGISTERS = 38
"""The same where fragments of A are loaded one by one and used at once."""

ROUNDING_REGISTERS = 16
"""Further registers where TF32 fragments are rounded as they are loaded, or in more than two k-blocks: from compiled
kernels."""

EMULATION_REGISTERS = 48
"""Further registers for 4-bit operands, which architectures from sm_90 on multiply as 8-bit ones."""

SYNCHRONOUS_REGISTERS = 16
"""Further registers where operands are aligned to less than cp.async needs, so that copies go through registers."""

MIN_ASYNC_BYTES = 4
DIVISION_REGISTERS = 4
"""Further registers where the number of threads is not a power of two and tile addresses take divisions."""


def capability(problem: Problem) -> int:
    """Compute capability times ten that WMMA needs for the operands' type, such as 80 for bfloat16."""
    return CAPABILITY.get(problem.a.dtype.name, 80)


@dataclass(frozen=True)
class WmmaResources:
    """What a CTA of one configuration takes of an SM for one problem.

    Attributes:
        problem: what is computed.
        config: the tunables; those that a rung does not have are as if they were PAD=0, STAGES=1.
        whole_rows: the epilogue stores a row of fragments at a time, not one fragment.
        fragment_sets: live sets of fragments: one, two (double-buffered), or (0) all of B and two of A.
    """

    problem: Problem
    config: Config
    whole_rows: bool = False
    fragment_sets: int = 1

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        config = self.config
        return (config["BM"] // config["WM"]) * (config["BN"] // config["WN"]) * WARP_LANES

    def _tile_bytes(self, rows: int, columns: int) -> int:
        """Bytes of a shared tile of ``rows`` x ``columns`` units: ``SharedTile``."""
        each = unit_bytes(self.problem)
        pad = self.config.get("PAD", 0) // elements_per_unit(self.problem)
        stride_bytes = round_up((columns + pad) * each, VECTOR_BYTES)
        return round_up(rows * stride_bytes, SHARED_ALIGNMENT_BYTES)

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage: ``Stage``."""
        config, k_units = self.config, self.config["BK"] // elements_per_unit(self.problem)
        b = (config["BN"], k_units) if self.problem.b.major == "col" else (k_units, config["BN"])
        return self._tile_bytes(config["BM"], k_units) + self._tile_bytes(*b)

    @property
    def patch_bytes(self) -> int:
        """Bytes of one warp's patch: ``Patch`` for one fragment, ``RowPatch`` for a row of them."""
        each = self.problem.accumulator.bits // 8
        row_bytes = self.config["FN"] * each
        if self.whole_rows:
            row_bytes = self.config["WN"] * each
            row_bytes += round_up(row_bytes, SHARED_ALIGNMENT_BYTES) // SHARED_ALIGNMENT_BYTES * VECTOR_BYTES
        return round_up(self.config["FM"] * row_bytes, SHARED_ALIGNMENT_BYTES)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA: ``BlockMemory``."""
        stages = self.config.get("STAGES", 1) * self.stage_bytes
        return max(stages, self.threads // WARP_LANES * self.patch_bytes)

    @property
    def registers(self) -> int:
        """Estimated registers of a thread: accumulators, fragments, and what addresses and the loop need."""
        config, problem = self.config, self.problem
        accumulators = config["WM"] * config["WN"] * problem.accumulator.bits
        if self.fragment_sets == 0:
            rows, spare = config["WN"] + 2 * config["FM"], STREAMING_REGISTERS
        else:
            rows, spare = (config["WM"] + config["WN"]) * self.fragment_sets, OVERHEAD_REGISTERS
        fragments = rows * config["FK"] * problem.a.dtype.bits
        rounded = problem.a.dtype.name == "tfloat32" and (self.fragment_sets == 0 or config["BK"] > 2 * config["FK"])
        extra = ROUNDING_REGISTERS if rounded else 0
        extra += EMULATION_REGISTERS if problem.a.dtype.bits == 4 else 0
        narrow = min(operand.alignment_bytes for operand in (problem.a, problem.b)) < MIN_ASYNC_BYTES
        extra += SYNCHRONOUS_REGISTERS if narrow and self.fragment_sets == 0 else 0
        extra += DIVISION_REGISTERS if self.threads & (self.threads - 1) else 0
        return (accumulators + fragments) // 32 // WARP_LANES + spare + extra

    @property
    def register_limit(self) -> int:
        """Registers that a thread may have with MIN_BLOCKS CTAs on an SM."""
        return register_limit(self.threads, self.config.get("MIN_BLOCKS", 1))


def type_reason(problem: Problem) -> str | None:
    """Why the operands cannot be taken by WMMA at all, or None."""
    accumulators = tuple(name for name in problem.a.dtype.accumulators if name in ACCUMULATORS)
    return operand_reason(problem, tuple(FRAGMENTS), accumulators) or packing_reason(problem)


def tiling_reason(config: Config) -> str | None:
    """Why the levels of tiling do not divide each other, or None."""
    return multiple_reason(config, (("BM", "WM"), ("BN", "WN"), ("WM", "FM"), ("WN", "FN"), ("BK", "FK")))


def sets_reason(config: Config) -> str | None:
    """Why there cannot be so many sets of fragments, or why two cannot be double-buffered, or None."""
    if config["SETS"] > 2:
        return f"SETS is {config['SETS']}; fragments come in one set or two"
    if config["SETS"] == 2 and config["BK"] % (2 * config["FK"]):
        return f"BK is {config['BK']}; with two sets of fragments it must be a multiple of {2 * config['FK']}"
    return None


def pad_reason(problem: Problem, config: Config) -> str | None:
    """Why rows of a stage would not start at multiples of 16 bytes, or None."""
    unit = VECTOR_BYTES * 8 // problem.a.dtype.bits
    if config["PAD"] % unit:
        return f"PAD is {config['PAD']} elements; rows must start at multiples of 16 bytes: a multiple of {unit}"
    return None


def vector_reason(problem: Problem, config: Config) -> str | None:
    """Why a row of a tile is no whole number of vectors, or None."""
    each, packed = unit_bytes(problem), elements_per_unit(problem)
    rows = {"BK": (config["BK"] // packed, problem.a)}
    rows["BK of B" if problem.b.major == "col" else "BN"] = (
        config["BK"] // packed if problem.b.major == "col" else config["BN"],
        problem.b,
    )
    for name, (units, operand) in rows.items():
        vector = width(operand, each)
        if units % vector:
            return f"{name} is {units * each} bytes; loads of {vector * each} bytes need a multiple of that"
    return None


def output_reason(problem: Problem, config: Config) -> str | None:
    """Why a warp's row of D is no whole number of vectors, or None."""
    vector = output_width(problem)
    if config["WN"] % vector:
        return f"WN is {config['WN']}; stores of {vector} elements need a multiple of that"
    return None


def common_reasons(problem: Problem, config: Config, keys: tuple[str, ...]) -> str | None:
    """The reasons that all rungs share, in the order in which they build on each other."""
    counted = {name: value + (name in MAY_BE_ZERO) for name, value in config.items()}
    return (
        type_reason(problem)
        or keys_reason(counted, keys)
        or shape_reason(FRAGMENTS, problem, config)
        or grid_reason(problem, config)
    )
