"""Scales of blocks of A and B, which wgmma-final applies as it promotes sums: the Python side of
tile/block_scale_factors.cuh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warptile.epilogue.epilogue_program import BLOCKS_OF_A, BLOCKS_OF_B
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.wgmma import tiles
from warptile.rungs.wgmma.tiles import ROWS

REGISTERS_OF_SCALE = 5
"""Registers of a thread for a scale that is loaded two intervals ahead: its address, two values, and a factor."""

REGISTERS_OF_STATE = 6
"""For distances between scales along K, and how many are left."""

MOST_SINGLE_COLUMNS = 64
"""Columns of a tile up to which scales of single columns of the kernel's B are cheap. Operands are swapped, which makes
them of those of rows of A, for no more."""


Lines = tuple[int, int]


def lines(seen: Problem) -> Lines:
    """Rows of the kernel's A, and columns of its B, that share a scale; 0 of an operand without scales of blocks."""
    if seen.epilogue is None:
        return 0, 0
    scales = seen.epilogue.program.block_scales
    of_a, of_b = scales.get(BLOCKS_OF_A, ("", 0, 0))[1], scales.get(BLOCKS_OF_B, ("", 0, 0))[2]
    return (of_b, of_a) if seen.epilogue.swapped else (of_a, of_b)


def reason(seen: Problem, config: Config) -> str | None:
    """Why scales of blocks cannot be applied so, or None."""
    of_a, of_b = lines(seen)
    if of_a == of_b == 0:
        return None
    if not tiles.two_level(seen):
        return (
            f"blocks of A or B have scales, which are applied as sums of 8-bit floats are promoted to float32; "
            f"operands are {seen.a.dtype.name} and accumulate in {seen.accumulator.name}: leave accumulate out"
        )
    bn = tiles.columns_per_warpgroup(config)
    if of_b > 1 and of_b % bn and of_b - (bn & -bn) + bn > 2 * of_b:
        return (
            f"BN is {config['BN']}; where {of_b} columns of B share a scale, the {bn} columns of a warpgroup have a "
            "part of two such blocks at most"
        )
    if config["SWAP"] and of_b == 1 and bn > MOST_SINGLE_COLUMNS:
        return (
            f"SWAP is 1 and BN is {bn}; it makes scales of rows of A those of columns, of which at most "
            f"{MOST_SINGLE_COLUMNS} are cheap"
        )
    return None


def registers(seen: Problem, config: Mapping[str, Any]) -> Any:
    """Registers of a thread for scales of blocks: ``BlockFactors::REGISTERS``. Tunables may be arrays."""
    return registers_of(lines(seen), config)


def registers_of(found: Lines, config: Mapping[str, Any]) -> Any:
    """The same where `lines` are known."""
    of_a, of_b = found
    if of_a == of_b == 0:
        return 0
    blocks_of_64, bn = tiles.rows_per_warpgroup(config) // ROWS, tiles.columns_per_warpgroup(config)
    scales = {0: 0, 1: 2 * blocks_of_64}.get(of_a, blocks_of_64)
    scales += 1 + (of_b % bn > 0) if of_b > 1 else 0
    columns = bn // 4 if of_b == 1 else 0
    return REGISTERS_OF_STATE + REGISTERS_OF_SCALE * scales + columns
