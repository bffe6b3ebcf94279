"""What a caller's epilogue adds to the predicted time of wgmma-final.

Threads of a consumer evaluate it, between a tile's mainloop and its store. Two warpgroups that take turns (ping-pong)
hide it behind each other's mainloops; in all other schedules it adds to the time of each tile, in an overlapped one
too, where a finished tile is computed before it waits in registers. The constants are from one H200, five expressions
at 4096^3 and 16384 x 3072 x 768 (docs/lab-notebook/2026-11-28.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from warptile.epilogue.epilogue_program import ACCUMULATOR, CAST, TENSOR, UNIFORM, is_block_scale
from warptile.epilogue.fused_epilogue import Fused, Layout, Partials
from warptile.problem import Problem
from warptile.rungs.rung import Extents
from warptile.rungs.wgmma.epilogue import staged_matrices
from warptile.rungs.wgmma.residue_classes import d_is_aligned
from warptile.rungs.wgmma.tile_shapes import cluster_tiles

INSTRUCTIONS = {
    "divide": 8, "sqrt": 6, "exp": 8, "log": 10, "tanh": 16, "erf": 16, "sigmoid": 4, "silu": 6, "gelu": 14,
    "gelu_tanh": 7, "minimum": 2, "maximum": 2, "where": 1, TENSOR: 1, CAST: 2, UNIFORM: 45,
}  # fmt: skip
"""Machine instructions of a step for an element; of all others one."""

PARTIALS_OF_ROWS, PARTIALS_OF_COLUMNS = 3, 7
"""Those of a reduction: shuffles, what combines two numbers, and a share of the store, counted in
kernels/epilogue/reductions.cuh; not measured."""

PER_CLOCK, STAGED_CLOCKS, TENSOR_CLOCKS = 36, 0.09, 0.19
"""Instructions of threads that an SM executes in a clock while two warpgroups evaluate an epilogue, and clocks for each
element of a matrix that is read or written beside D: by TMA (`tiles.stages_epilogue`), and by threads."""

VECTOR_CLOCKS = 500
"""Clocks for each operand that is a row or a column, of a tile whose epilogue nothing hides: it comes from L2, subtile
by subtile. From float8 at 4096^3 and 8192^3 with a scale for each row and column, before overlapped epilogues loaded
all columns at once where registers hold them: of these tiles it is too much."""

CLOCK_MHZ = 1755
"""Clock at which these were measured."""


class EpilogueWork(NamedTuple):
    """What evaluating an epilogue takes.

    Attributes:
        clocks: of an SM for each element of D, with two warpgroups.
        overlapped_clocks: the same where the next mainloop overlaps, and TMA moves no matrix of the epilogue.
        vectors: operands that are the same along rows, or along columns.
    """

    clocks: float
    overlapped_clocks: float
    vectors: int


def work_of(problem: Problem, fused: Fused) -> EpilogueWork:
    """What the epilogue of a problem takes."""
    instructions = sum(_instructions(fused))
    staged = staged_matrices(problem) if d_is_aligned(problem) else 0
    clocks, overlapped = (_clocks_per_element(fused, instructions, count) for count in (staged, 0))
    return EpilogueWork(clocks, overlapped, _vectors(fused))


def _clocks_per_element(fused: Fused, instructions: int, staged: int) -> float:
    """Clocks where TMA moves ``staged`` matrices."""
    written = [each for each in fused.outputs if isinstance(each, Layout)]
    scales = {name for name, _, _ in fused.program.block_scales.values()}
    read = [each for name, each in fused.tensors if name not in scales]
    matrices = sum(1 for each in read if each.row_stride and each.column_stride) + len(written)
    for each in fused.outputs:
        if isinstance(each, Partials):
            instructions += PARTIALS_OF_ROWS if each.over_columns else PARTIALS_OF_COLUMNS
    staged = min(staged, matrices)
    return instructions / PER_CLOCK + STAGED_CLOCKS * staged + TENSOR_CLOCKS * (matrices - staged)


def _instructions(fused: Fused) -> Iterator[int]:
    """Machine instructions of each step for an element. What is the same along rows or columns of D is loaded and
    computed for a few elements of a thread at a time and not counted; nor is the first factor of the accumulator, which
    takes the place of alpha."""
    axes: list[set[str]] = []
    for index, step in enumerate(fused.program.steps):
        varies = set[str]().union(*(axes[each] for each in step.arguments))
        layout = fused.layouts.get(step.value[0]) if isinstance(step.value, tuple) else None
        if step.name in (ACCUMULATOR, UNIFORM):
            varies = {"rows", "columns"}
        elif step.name == TENSOR and layout is not None:
            strides = (("rows", layout.row_stride), ("columns", layout.column_stride))
            varies = {axis for axis, stride in strides if stride}
        axes.append(varies)
        free = step.name == ACCUMULATOR or is_block_scale(step) or index == fused.program.factor_of_accumulator
        if len(varies) == 2 and not free:
            yield INSTRUCTIONS.get(step.name, 1)


def _vectors(fused: Fused) -> int:
    """Operands that are the same along rows, or along columns."""
    scales = {name for name, _, _ in fused.program.block_scales.values()}
    read = [each for name, each in fused.tensors if name not in scales]
    return sum(1 for each in read if (each.row_stride == 0) != (each.column_stride == 0))


def added_us(problem: Problem, config: Mapping[str, Any], times_us: Any) -> Any:
    """Microseconds that the epilogue adds to the predicted ``times_us`` of a configuration, or of an array of each
    tunable; 0 without an epilogue."""
    if problem.epilogue is None:
        return 0.0
    extents = problem.m, problem.n, problem.k, problem.batch
    return added_by(work_of(problem, problem.epilogue), extents, config, times_us)


def added_by(work: EpilogueWork, extents: Extents, config: Mapping[str, Any], times_us: Any) -> Any:
    """The same of an epilogue that takes so much, in a GEMM of these extents."""
    tiles = cluster_tiles(extents, config)
    waves = np.ceil(tiles / np.maximum(config["SMS"] // (config["CM"] * config["CN"]), 1))
    clocks = np.where(config["OVERLAP"], work.overlapped_clocks, work.clocks)
    of_tile_us = (config["BM"] * config["BN"] * clocks + VECTOR_CLOCKS * work.vectors) / CLOCK_MHZ
    alone_us = 2 * of_tile_us  # by one warpgroup
    turn_us = times_us / waves
    hidden = np.maximum(waves / 2 * (turn_us + alone_us) - waves * turn_us, 0.0) + alone_us
    straight = waves * np.where(config["CONSUMERS"] == 1, alone_us, of_tile_us)
    return np.where(config["PINGPONG"] > 0, hidden, np.where(config["SPLITS"] > 1, of_tile_us, straight))
