"""Sizes that follow from a configuration of the mma family, and every constraint on one: the Python side of
tile/mma_stage.cuh and tile/mma_operation.cuh.

An MMA-K block is 32 bytes of K (8 or 16 doubles), whatever the type; a smaller instruction is applied to parts of it. A
stage is split into smem tiles with rows of at most 128 bytes, along K for K-major operands, else along M (N).
"""

from __future__ import annotations

from dataclasses import dataclass

from warptile.isa import mma
from warptile.problem import Operand, Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import grid_reason, keys_reason, operand_reason
from warptile.rungs.tensor_tiles import (
    VECTOR_BYTES,
    WARP_LANES,
    elements_per_unit,
    multiple_reason,
    packing_reason,
    register_limit,
    round_up,
    shape_reason,
    unit_bytes,
)

INSTRUCTIONS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "float16": ((16, 8, 16), (16, 8, 8)),
    "bfloat16": ((16, 8, 16), (16, 8, 8)),
    "tfloat32": ((16, 8, 8), (16, 8, 4)),
    "float64": ((16, 8, 8), (16, 8, 16), (16, 8, 4), (8, 8, 4)),
    "int8": ((16, 8, 32), (16, 8, 16)),
    "uint8": ((16, 8, 32), (16, 8, 16)),
    "int4": ((16, 8, 64), (16, 8, 32)),
    "uint4": ((16, 8, 64), (16, 8, 32)),
    "bit1": ((16, 8, 256), (16, 8, 128), (8, 8, 128)),
    "float8_e4m3": ((16, 8, 32), (16, 8, 16)),
    "float8_e5m2": ((16, 8, 32), (16, 8, 16)),
}
"""Instruction shapes (FM, FN, FK) that the kernels use for each operand type, the usual one first."""

LOADED_ROWS = 16
"""Rows of A, or columns of B, that a warp loads together: ``FragmentLoader``."""

SMEM_ROW_BYTES = (32, 64, 128)
"""Bytes that a row of a smem tile may have; wider lines are split into several tiles of the widest."""


MAY_BE_ZERO = ("MIN_BLOCKS",)
"""MIN_BLOCKS is zero where the compiler is left to choose a number of registers."""

PATCH_ALIGNMENT_BYTES = 128
OVERHEAD_REGISTERS = 40
"""Registers for addresses and loop state, in addition to accumulators and fragments: from compiled kernels."""

EMULATION_REGISTERS = {"int4": 48, "uint4": 48, "float8_e4m3": 48, "float8_e5m2": 48, "int32_xor": 48}
"""Further registers for operands that sm_90 widens to 8-bit integers or float16, and for XOR, which it makes of AND."""


MANY_COPIES, COPY_REGISTERS = 16, 24
"""Further registers where a thread copies more than MANY_COPIES chunks of a stage: from compiled kernels."""

MOST_NARROW_COPIES = 24
"""Copies of 8 bytes of a stage of doubles for which a thread's registers suffice: from compiled kernels."""

DIVISION_REGISTERS = 8
"""Further registers where the number of threads is not a power of two and stage addresses take divisions."""


def capability(problem: Problem, config: Config) -> int:
    """Compute capability times ten that the configuration's instruction needs, such as 89 for 8-bit floats."""
    name = "m{FM}n{FN}k{FK}".format(**config)
    shape = mma.find(name, problem.a.dtype.ptx)
    if shape is None:
        raise ValueError(f"isa.mma has no {name} for {problem.a.dtype.ptx}; INSTRUCTIONS lists shapes that it has")
    return max(shape.capability, dict(shape.operations).get("and", 0))


def mma_k(problem: Problem, config: Config) -> int:
    """Elements of an MMA-K block: 32 bytes; of doubles 8, or 16 where the instruction takes as many."""
    return max(8, config["FK"]) if problem.a.dtype.bits == 64 else 256 // problem.a.dtype.bits


def k_major(operand: Operand, *, is_a: bool) -> bool:
    """Whether the operand is contiguous along K: A stored as [M, K], B as [N, K]."""
    return operand.major == ("row" if is_a else "col")


def loaded_rows(operand: Operand, *, is_a: bool) -> int:
    """Rows (columns) that a warp loads together: twice as many where 16 bytes hold four elements along M (N)."""
    return 2 * LOADED_ROWS if operand.dtype.bits == 32 and not k_major(operand, is_a=is_a) else LOADED_ROWS


def patch_bytes(rows: int, columns: int, sum_bits: int) -> int:
    """Bytes of a warp's patch, ``MmaPatch``: each row is padded by eight accumulators."""
    return round_up(rows * (columns + 8) * sum_bits // 8, PATCH_ALIGNMENT_BYTES)


@dataclass(frozen=True)
class MmaResources:
    """What a CTA of one configuration takes of an SM for one problem.

    Attributes:
        problem: what is computed.
        config: the tunables.
        stages: of shared memory.
        fragment_sets: live sets of fragments: one, two (double-buffered), or (0) two of B and two of the rows of A
            that are loaded together.
    """

    problem: Problem
    config: Config
    stages: int = 1
    fragment_sets: int = 1

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        config = self.config
        return (config["BM"] // config["WM"]) * (config["BN"] // config["WN"]) * WARP_LANES

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage, whose smem tiles have no gaps: ``MmaStage``."""
        k_units = self.config["BK"] // elements_per_unit(self.problem)
        return (self.config["BM"] + self.config["BN"]) * k_units * unit_bytes(self.problem)

    @property
    def patch_bytes(self) -> int:
        """Bytes of one warp's patch: ``MmaPatch``."""
        return patch_bytes(loaded_rows(self.problem.a, is_a=True), self.config["WN"], self.problem.accumulator.bits)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA: stages during the mainloop, patches during the epilogue."""
        return max(self.stages * self.stage_bytes, self.threads // WARP_LANES * self.patch_bytes)

    @property
    def registers(self) -> int:
        """Estimated registers of a thread: accumulators, fragments, and what addresses and the loop need."""
        config, problem = self.config, self.problem
        accumulators = config["WM"] * config["WN"] * problem.accumulator.bits
        if self.fragment_sets == 0:
            rows = 2 * (config["WN"] + loaded_rows(problem.a, is_a=True))
        else:
            rows = (config["WM"] + config["WN"]) * self.fragment_sets
        fragments = rows * mma_k(problem, config) * problem.a.dtype.bits
        extra = max(EMULATION_REGISTERS.get(each.name, 0) for each in (problem.a.dtype, problem.accumulator))
        extra += COPY_REGISTERS if self.stage_bytes > MANY_COPIES * VECTOR_BYTES * self.threads else 0
        extra += DIVISION_REGISTERS if self.threads & (self.threads - 1) else 0
        return (accumulators + fragments) // 32 // WARP_LANES + OVERHEAD_REGISTERS + extra

    @property
    def register_limit(self) -> int:
        """Registers that a thread may have with MIN_BLOCKS CTAs on an SM."""
        return register_limit(self.threads, max(self.config["MIN_BLOCKS"], 1))


def min_blocks(problem: Problem, config: Config) -> int:
    """CTAs per SM for which the kernel is compiled; 0 leaves the number of registers to the compiler.

    Copies narrower than 16 bytes need more addresses at a time, and an epilogue needs its operands: there is one CTA of
    doubles less. The compiler, left to itself, still keeps to 128 registers, and some kernels with narrow copies spill:
    they are offered all registers of an SM.
    """
    aligned = min(problem.a.alignment_bytes, problem.b.alignment_bytes) >= VECTOR_BYTES
    fewer = problem.a.dtype.bits == 64 and not (aligned and problem.epilogue is None)
    if aligned and not fewer:
        return config["MIN_BLOCKS"]
    return max(config["MIN_BLOCKS"] - fewer, 1)


def type_reason(problem: Problem, *, eight_bits: bool = False, batches: bool = False) -> str | None:
    """Why the operands cannot be taken by the family at all, or None. ``eight_bits``, ``batches``: as of
    `operand_reason`."""
    accumulators = tuple(name for name in problem.a.dtype.accumulators if name != "float32_fast")
    layouts = ("row", "col")
    reason = operand_reason(problem, tuple(INSTRUCTIONS), accumulators, layouts, eight_bits=eight_bits, batches=batches)
    return reason or packing_reason(problem)


def tiling_reason(problem: Problem, config: Config) -> str | None:
    """Why the levels of tiling do not divide each other, or None."""
    reason = multiple_reason(config, (("BM", "WM"), ("BN", "WN")))
    if reason is not None:
        return reason
    units = {
        "WM": (loaded_rows(problem.a, is_a=True), "rows of A are loaded {} at a time"),
        "WN": (loaded_rows(problem.b, is_a=False), "columns of B are loaded {} at a time"),
        "BK": (mma_k(problem, config), "an MMA-K block is {} elements"),
    }
    for key, (unit, why) in units.items():
        if config[key] % unit:
            return f"{key} is {config[key]}; {why.format(unit)}, so it must be a multiple of that"
    return None


def smem_row_reason(problem: Problem, config: Config) -> str | None:
    """Why a line of a stage, or a warp's part of it, does not split into rows of smem tiles, or None."""
    widest = SMEM_ROW_BYTES[-1]
    for name, operand, block, warp in (("A", problem.a, "BM", "WM"), ("B", problem.b, "BN", "WN")):
        along_k = k_major(operand, is_a=name == "A")
        key = "BK" if along_k else block
        line_bytes = config[key] * operand.dtype.bits // 8
        if line_bytes not in SMEM_ROW_BYTES and line_bytes % widest:
            return (
                f"{key} is {config[key]}, {line_bytes} bytes in a line of {name}'s stage; smem tiles have rows of "
                f"{', '.join(map(str, SMEM_ROW_BYTES))} bytes or multiples of {widest}"
            )
        part_bytes = config[warp] * operand.dtype.bits // 8
        if not along_k and part_bytes % widest and widest % part_bytes:
            return (
                f"{warp} is {config[warp]}, {part_bytes} bytes of a line of {name}'s stage; it must divide {widest} or "
                "be a multiple of it"
            )
    return None


def sets_reason(problem: Problem, config: Config) -> str | None:
    """Why there cannot be so many sets of fragments, or why they cannot be double-buffered, or None."""
    if config["SETS"] > 2:
        return f"SETS is {config['SETS']}; fragments come in one set or two"
    units = {"BK": (2 * mma_k(problem, config), "MMA-K blocks")}
    if config["SETS"] == 1:
        if config["STAGES"] < 3:
            return (
                f"STAGES is {config['STAGES']}; with one set of fragments it must be at least 3: two read, one filled"
            )
        units["WM"] = (2 * loaded_rows(problem.a, is_a=True), "groups of rows")
    for key, (unit, what) in units.items():
        if config[key] % unit:
            return f"{key} is {config[key]}; {what} are double-buffered, so it must be a multiple of {unit}"
    return None


def copies_reason(problem: Problem, config: Config, resources: MmaResources) -> str | None:
    """Why a thread's registers do not suffice for its copies of doubles that are aligned to 8 bytes, or None."""
    narrow = min(problem.a.alignment_bytes, problem.b.alignment_bytes)
    if problem.a.dtype.bits < 64 or narrow >= VECTOR_BYTES:
        return None
    copies = resources.stage_bytes // (8 * resources.threads)
    if copies <= MOST_NARROW_COPIES:
        return None
    return (
        f"BM, BN, BK are {config['BM']}, {config['BN']}, {config['BK']}: a thread copies {copies} elements of a stage "
        f"one by one, as operands are aligned to 8 bytes; registers suffice for {MOST_NARROW_COPIES}"
    )


def common_reasons(
    problem: Problem, config: Config, keys: tuple[str, ...], *, eight_bits: bool = False, batches: bool = False
) -> str | None:
    """The reasons that all rungs share, in the order in which they build on each other."""
    counted = {name: value + (name in MAY_BE_ZERO) for name, value in config.items()}
    return (
        type_reason(problem, eight_bits=eight_bits, batches=batches)
        or keys_reason(counted, keys)
        or shape_reason(INSTRUCTIONS, problem, config)
        or tiling_reason(problem, config)
        or smem_row_reason(problem, config)
        or grid_reason(problem, config)
    )
