"""Sizes that follow from a configuration of the mma family, and every constraint on one: the Python side of
tile/panels.cuh and tile/mma_operation.cuh.

A warp's step is 16 x 8 of D for each fragment and 32 bytes of depth (8 or 16 doubles), whatever the type; a smaller
instruction is applied to parts of it. A stage is cut into *panels* with rows of at most 128 bytes, along
K where the operand is stored along K, else along M (N).
"""

from __future__ import annotations

from dataclasses import dataclass

from warptile.isa import mma
from warptile.problem import Operand, Problem
from warptile.rungs.legality import grid_reason, keys_reason, operand_reason
from warptile.rungs.rung import Config
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

SLAB = 16
"""Rows of A, or columns of B, that a warp loads together: `SlabReader`."""

PANEL_ROW_BYTES = (32, 64, 128)
"""Bytes that a row of a panel may have; wider lines are several panels of the widest."""


MAY_BE_ZERO = ("MIN_BLOCKS",)
"""MIN_BLOCKS is zero where the compiler is left to choose a number of registers."""

PATCH_ALIGNMENT_BYTES = 128
OVERHEAD_REGISTERS = 40
"""Registers of addresses and loop state beside accumulators and fragments, as compiled kernels show them."""

EMULATION_REGISTERS = {"int4": 48, "uint4": 48, "float8_e4m3": 48, "float8_e5m2": 48, "int32_xor": 48}
"""More of them for operands that sm_90 widens to 8-bit integers or float16, and for XOR, which it makes of AND."""


MANY_COPIES, COPY_REGISTERS = 16, 24
"""More of them where a thread has more than so many copies of a stage, as compiled kernels show."""

DIVISION_REGISTERS = 8
"""More of them where the number of threads is no power of two and places in a stage take divisions."""


def capability(problem: Problem, config: Config) -> int:
    """Compute capability times ten that the configuration's instruction needs, such as 89 for 8-bit floats."""
    name = "m{FM}n{FN}k{FK}".format(**config)
    shape = mma.find(name, problem.a.dtype.ptx)
    if shape is None:
        raise ValueError(f"isa.mma has no {name} for {problem.a.dtype.ptx}; INSTRUCTIONS lists shapes that it has")
    return max(shape.capability, dict(shape.operations).get("and", 0))


def step(problem: Problem, config: Config) -> int:
    """Elements of depth of a warp's step: 32 bytes; of doubles 8, or 16 where the instruction takes so many."""
    return max(8, config["FK"]) if problem.a.dtype.bits == 64 else 256 // problem.a.dtype.bits


def along_k(operand: Operand, *, is_a: bool) -> bool:
    """Whether neighbours in memory are neighbours along K: A stored as [M, K], B as [N, K]."""
    return operand.major == ("row" if is_a else "col")


def slab(operand: Operand, *, is_a: bool) -> int:
    """Rows (columns) that a warp loads together: two slabs where 16 bytes hold four elements along M (N)."""
    return 2 * SLAB if operand.dtype.bits == 32 and not along_k(operand, is_a=is_a) else SLAB


def patch_bytes(rows: int, columns: int, sum_bits: int) -> int:
    """Bytes of a warp's patch, ``MmaPatch``: after each row eight sums of nothing."""
    return round_up(rows * (columns + 8) * sum_bits // 8, PATCH_ALIGNMENT_BYTES)


@dataclass(frozen=True)
class Geometry:
    """Sizes of one configuration for one problem.

    Attributes:
        problem: what is computed.
        config: the tunables.
        stages: of shared memory.
        fragment_sets: sets of fragments that are alive at one time: one as a whole, two that take turns, or (0) two of
            B and only what is loaded together of A, twice.
    """

    problem: Problem
    config: Config
    stages: int = 1
    fragment_sets: int = 1

    @property
    def threads(self) -> int:
        """Threads of a block."""
        config = self.config
        return (config["BM"] // config["WM"]) * (config["BN"] // config["WN"]) * WARP_LANES

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage, whose panels have no gaps: ``MmaStage``."""
        depth = self.config["BK"] // elements_per_unit(self.problem)
        return (self.config["BM"] + self.config["BN"]) * depth * unit_bytes(self.problem)

    @property
    def patch_bytes(self) -> int:
        """Bytes of one warp's patch: ``MmaPatch``."""
        return patch_bytes(slab(self.problem.a, is_a=True), self.config["WN"], self.problem.accumulator.bits)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: stages while it multiplies, patches once it stores."""
        return max(self.stages * self.stage_bytes, self.threads // WARP_LANES * self.patch_bytes)

    @property
    def registers(self) -> int:
        """Estimated registers of a thread: accumulators, fragments, and what addresses and the loop need."""
        config, problem = self.config, self.problem
        accumulators = config["WM"] * config["WN"] * problem.accumulator.bits
        if self.fragment_sets == 0:
            rows = 2 * (config["WN"] + slab(problem.a, is_a=True))
        else:
            rows = (config["WM"] + config["WN"]) * self.fragment_sets
        fragments = rows * step(problem, config) * problem.a.dtype.bits
        extra = max(EMULATION_REGISTERS.get(each.name, 0) for each in (problem.a.dtype, problem.accumulator))
        extra += COPY_REGISTERS if self.stage_bytes > MANY_COPIES * VECTOR_BYTES * self.threads else 0
        extra += DIVISION_REGISTERS if self.threads & (self.threads - 1) else 0
        return (accumulators + fragments) // 32 // WARP_LANES + OVERHEAD_REGISTERS + extra

    @property
    def register_limit(self) -> int:
        """Registers a thread may have with MIN_BLOCKS blocks on a multiprocessor."""
        return register_limit(self.threads, max(self.config["MIN_BLOCKS"], 1))


def type_reason(problem: Problem) -> str | None:
    """Why the operands cannot be taken by the family at all, or None."""
    accumulators = tuple(name for name in problem.a.dtype.accumulators if name != "float32_fast")
    return operand_reason(problem, tuple(INSTRUCTIONS), accumulators, ("row", "col")) or packing_reason(problem)


def tiling_reason(problem: Problem, config: Config) -> str | None:
    """Why the levels of tiling do not divide each other, or None."""
    reason = multiple_reason(config, (("BM", "WM"), ("BN", "WN")))
    if reason is not None:
        return reason
    units = {
        "WM": (slab(problem.a, is_a=True), "rows of A are loaded {} at a time"),
        "WN": (slab(problem.b, is_a=False), "columns of B are loaded {} at a time"),
        "BK": (step(problem, config), "a step is {} deep"),
    }
    for key, (unit, why) in units.items():
        if config[key] % unit:
            return f"{key} is {config[key]}; {why.format(unit)}, so it must be a multiple of that"
    return None


def panel_reason(problem: Problem, config: Config) -> str | None:
    """Why an operand's stage is no whole number of panels, or a warp's part of a line none of theirs, or None."""
    widest = PANEL_ROW_BYTES[-1]
    for name, operand, block, warp in (("A", problem.a, "BM", "WM"), ("B", problem.b, "BN", "WN")):
        k_major = along_k(operand, is_a=name == "A")
        key = "BK" if k_major else block
        line_bytes = config[key] * operand.dtype.bits // 8
        if line_bytes not in PANEL_ROW_BYTES and line_bytes % widest:
            return (
                f"{key} is {config[key]}, {line_bytes} bytes in a line of {name}'s stage; panels have rows of "
                f"{', '.join(map(str, PANEL_ROW_BYTES))} bytes, wider lines are several of {widest}"
            )
        part_bytes = config[warp] * operand.dtype.bits // 8
        if not k_major and part_bytes % widest and widest % part_bytes:
            return (
                f"{warp} is {config[warp]}, {part_bytes} bytes of a line of {name}'s stage; it must divide {widest} or "
                "be a multiple of it"
            )
    return None


def sets_reason(problem: Problem, config: Config) -> str | None:
    """Why there cannot be so many sets of fragments, or why what they hold cannot take turns, or None."""
    if config["SETS"] > 2:
        return f"SETS is {config['SETS']}; fragments come in one set or two"
    turns = {"BK": (2 * step(problem, config), "steps")}
    if config["SETS"] == 1:
        if config["STAGES"] < 3:
            return f"STAGES is {config['STAGES']}; with one set of fragments two are read and one is filled: at least 3"
        turns["WM"] = (2 * slab(problem.a, is_a=True), "groups of rows")
    for key, (unit, what) in turns.items():
        if config[key] % unit:
            return f"{key} is {config[key]}; {what} take turns two by two, so it must be a multiple of {unit}"
    return None


def common_reasons(problem: Problem, config: Config, keys: tuple[str, ...]) -> str | None:
    """The reasons that all rungs share, in the order in which they build on each other."""
    counted = {name: value + (name in MAY_BE_ZERO) for name, value in config.items()}
    return (
        type_reason(problem)
        or keys_reason(counted, keys)
        or shape_reason(INSTRUCTIONS, problem, config)
        or tiling_reason(problem, config)
        or panel_reason(problem, config)
        or grid_reason(problem, config)
    )
