"""Sizes that follow from a configuration of the mma family, and every constraint on one: the Python side of
tile/panels.cuh and tile/mma_operation.cuh.

A warp's step is 16 x 8 of D for each fragment and 32 bytes of depth (16 doubles for float64), whatever the type; an
instruction with a smaller FM or FK is a split of it. A stage is cut into *panels* with rows of at most 128 bytes, along
K where the operand is stored along K, else along M (N).
"""

from __future__ import annotations

from dataclasses import dataclass

from warptile.isa import mma
from warptile.problem import Operand, Problem
from warptile.rungs.legality import grid_reason, keys_reason, operand_reason
from warptile.rungs.rung import Config
from warptile.rungs.tensor_tiles import (
    WARP_LANES,
    elements_per_unit,
    multiple_reason,
    packing_reason,
    register_limit,
    shape_reason,
    unit_bytes,
)

INSTRUCTIONS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "float16": ((16, 8, 16), (16, 8, 8)),
    "bfloat16": ((16, 8, 16), (16, 8, 8)),
    "tfloat32": ((16, 8, 8), (16, 8, 4)),
    "float64": ((16, 8, 16), (16, 8, 8), (16, 8, 4), (8, 8, 4)),
    "int8": ((16, 8, 32), (16, 8, 16)),
    "uint8": ((16, 8, 32), (16, 8, 16)),
    "int4": ((16, 8, 64), (16, 8, 32)),
    "uint4": ((16, 8, 64), (16, 8, 32)),
    "bit1": ((16, 8, 256), (16, 8, 128), (8, 8, 128)),
    "float8_e4m3": ((16, 8, 32), (16, 8, 16)),
    "float8_e5m2": ((16, 8, 32), (16, 8, 16)),
}
"""Instruction shapes (FM, FN, FK) that the kernels use for each operand type, the usual one first."""

FRAGMENT_ROWS, FRAGMENT_COLUMNS = 16, 8
PANEL_ROW_BYTES = (32, 64, 128)
"""Bytes that a row of a panel may have; wider stages are several panels of the widest."""


def capability(problem: Problem, config: Config) -> int:
    """Compute capability times ten that the configuration's instruction needs, such as 89 for 8-bit floats."""
    name = "m{FM}n{FN}k{FK}".format(**config)
    shape = mma.find(name, problem.a.dtype.ptx)
    if shape is None:
        raise ValueError(f"isa.mma has no {name} for {problem.a.dtype.ptx}; INSTRUCTIONS lists shapes that it has")
    return max(shape.capability, dict(shape.operations).get("and", 0))


def step(problem: Problem) -> int:
    """Elements of depth of a warp's step: 32 bytes, or 16 doubles."""
    return 16 if problem.a.dtype.bits == 64 else 256 // problem.a.dtype.bits


def along_k(operand: Operand, *, is_a: bool) -> bool:
    """Whether neighbours in memory are neighbours along K: A stored as [M, K], B as [N, K]."""
    return operand.major == ("row" if is_a else "col")


@dataclass(frozen=True)
class Geometry:
    """Sizes of one configuration for one problem.

    Attributes:
        problem: what is computed.
        config: the tunables; those that a rung does not have are as if they were 1.
        stages: of the ring in shared memory.
        fragment_sets: sets of fragments that are alive at one time.
        overhead_registers: registers of addresses and loop state, as compiled kernels show them.
    """

    problem: Problem
    config: Config
    stages: int = 1
    fragment_sets: int = 1
    overhead_registers: int = 48

    @property
    def threads(self) -> int:
        """Threads of a block."""
        config = self.config
        return (config["BM"] // config["WM"]) * (config["BN"] // config["WN"]) * WARP_LANES

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage; panels have no gaps."""
        depth = self.config["BK"] // elements_per_unit(self.problem)
        return (self.config["BM"] + self.config["BN"]) * depth * unit_bytes(self.problem)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return self.stages * self.stage_bytes

    @property
    def registers(self) -> int:
        """Estimated registers of a thread: accumulators, fragments, and what addresses and the loop need."""
        config, problem = self.config, self.problem
        accumulators = config["WM"] * config["WN"] * problem.accumulator.bits
        fragments = (config["WM"] + config["WN"]) * step(problem) * problem.a.dtype.bits * self.fragment_sets
        return (accumulators + fragments) // 32 // WARP_LANES + self.overhead_registers

    @property
    def register_limit(self) -> int:
        """Registers a thread may have with MIN_BLOCKS blocks on a multiprocessor."""
        return register_limit(self.threads, self.config.get("MIN_BLOCKS", 1))


def type_reason(problem: Problem) -> str | None:
    """Why the operands cannot be taken by the family at all, or None."""
    accumulators = problem.a.dtype.accumulators
    return operand_reason(problem, tuple(INSTRUCTIONS), accumulators, ("row", "col")) or packing_reason(problem)


def tiling_reason(problem: Problem, config: Config) -> str | None:
    """Why the levels of tiling do not divide each other, or None."""
    depth = step(problem)
    fragments = {**config, "a fragment's rows": FRAGMENT_ROWS, "a fragment's columns": FRAGMENT_COLUMNS,
                 "a step's depth": depth}  # fmt: skip
    pairs = (("BM", "WM"), ("BN", "WN"), ("WM", "a fragment's rows"), ("WN", "a fragment's columns"),
             ("BK", "a step's depth"))  # fmt: skip
    return multiple_reason(fragments, pairs)


def panel_reason(problem: Problem, config: Config) -> str | None:
    """Why an operand's stage is no whole number of panels, or None."""
    widest = PANEL_ROW_BYTES[-1]
    for name, operand, extent in (("A", problem.a, "BM"), ("B", problem.b, "BN")):
        key = "BK" if along_k(operand, is_a=name == "A") else extent
        row_bytes = config[key] * problem.a.dtype.bits // 8
        if row_bytes not in PANEL_ROW_BYTES and row_bytes % widest:
            return (
                f"{key} is {config[key]}, rows of {row_bytes} bytes in {name}'s stage; panels have rows of "
                f"{', '.join(map(str, PANEL_ROW_BYTES))} bytes, wider stages are several of {widest}"
            )
    return None


def common_reasons(problem: Problem, config: Config, keys: tuple[str, ...]) -> str | None:
    """The reasons that all rungs share, in the order in which they build on each other."""
    return (
        type_reason(problem)
        or keys_reason(config, keys)
        or shape_reason(INSTRUCTIONS, problem, config)
        or tiling_reason(problem, config)
        or panel_reason(problem, config)
        or grid_reason(problem, config)
    )
