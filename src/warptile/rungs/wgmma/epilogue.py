"""How wgmma-final's consumers store their tiles: the Python side of tile/wgmma_epilogue.cuh and
wgmma/final/config.cuh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warptile.device import DeviceLimits
from warptile.epilogue.fused_epilogue import STAGED_BITS
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config, stored_d
from warptile.rungs.tma import MBARRIER_BYTES
from warptile.rungs.wgmma import tiles
from warptile.rungs.wgmma.tiles import ROWS, WARPGROUP

D_POSITION_BYTES = 16
"""Row and column of D that go with each buffer of an epilogue subtile, for the warp that stores it."""

HELD_BYTES = 2
"""Of an element in registers, at least: pairs of narrower ones take one each."""

HELD_REGISTERS = 192
"""Registers of a thread for accumulators and held results of the previous tile: ``HELD_REGISTERS`` in
tile/wgmma_held_subtiles.cuh."""


def consumer_bytes(seen: Problem, config: Config, device: DeviceLimits) -> int:
    """Shared memory of a consumer warpgroup: `buffer_bytes` of its epilogue subtiles."""
    subtile = tiles.EpilogueSubtiles.of(seen, config, device)
    return buffer_bytes(subtile, staged_sets(seen))


def staging_bytes(seen: Problem, config: Config, device: DeviceLimits) -> int:
    """Shared memory of a consumer warpgroup's epilogue subtiles, with the mbarriers by which TMA says that operands
    are there: of kernels in which that is all that the epilogue needs."""
    subtile = tiles.EpilogueSubtiles.of(seen, config, device)
    if not subtile.in_pairs:
        return subtile.buffers * subtile.bytes
    return subtile.buffers * (staged_sets(seen) * subtile.bytes + 2 * MBARRIER_BYTES)


def buffer_bytes(subtile: tiles.EpilogueSubtiles, sets: int) -> int:
    """Shared memory of a consumer warpgroup: buffers of epilogue subtiles, each with two mbarriers and its position in
    D, and the mbarrier by which warpgroups take turns. ``sets``: `staged_sets`; what the kernel does not stage takes
    none."""
    beside = sets if subtile.in_pairs else 1
    return subtile.buffers * (beside * subtile.bytes + 2 * MBARRIER_BYTES + D_POSITION_BYTES) + MBARRIER_BYTES


def staged_sets(seen: Problem) -> int:
    """Sets of buffers where the kernel stages the epilogue (`tiles.stages_epilogue`): as many as operands that are laid
    out as D is, or as outputs. ``WgmmaEpilogue::SETS``; 0 if no kernel stages it."""
    if seen.epilogue is None or seen.d.dtype.bits != STAGED_BITS:
        return 0
    operands, kept = _alike(seen)
    return max(operands, 1 + kept)


def staged_matrices(seen: Problem) -> int:
    """How many matrices of the epilogue the kernel then stages."""
    return sum(_alike(seen))


def _alike(seen: Problem) -> tuple[int, int]:
    """Operands, and further outputs, that are laid out as D is."""
    if seen.epilogue is None:
        return 0, 0
    d = stored_d(seen)
    return len(seen.epilogue.staged(d)), int(seen.epilogue.kept(d) is not None)


def accumulator_registers(seen: Problem, config: Mapping[str, Any]) -> Any:
    """Accumulator registers of a thread, with those of the first level of two-level accumulation:
    ``TwoLevelAccumulation``."""
    rows, columns = tiles.rows_per_warpgroup(config), tiles.columns_per_warpgroup(config)
    each = tiles.accumulator_registers(seen, rows, columns)
    return each * (1 + config["BK"] // tiles.TWO_LEVEL_K if tiles.two_level(seen) else 1)


def subtiles(seen: Problem, config: Config, device: DeviceLimits) -> tuple[int, int, int]:
    """Epilogue subtiles of a warpgroup's part of a tile, how many of them can wait in registers for the next tile's
    mainloop, and registers of a thread for each."""
    return held_subtiles(tiles.EpilogueSubtiles.of(seen, config, device), seen, config)


def held_subtiles(subtile: tiles.EpilogueSubtiles, seen: Problem, config: Config) -> tuple[int, int, int]:
    """As `subtiles`, where the subtiles are known."""
    line, lines = subtile.box
    words = line * lines * max(subtile.element_bytes, HELD_BYTES) // 4 // WARPGROUP
    count = tiles.rows_per_warpgroup(config) // ROWS * subtile.count
    held = min(count, max(HELD_REGISTERS - accumulator_registers(seen, config), 0) // words)
    if subtile.column_major and line < ROWS and held < count:
        held = 0  # a thread has no element of half of the subtiles
    return count, held, words
