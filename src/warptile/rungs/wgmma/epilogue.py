"""How wgmma-final's consumers store their tiles: the Python side of tile/wgmma_epilogue.cuh and
wgmma/final/config.cuh."""

from __future__ import annotations

from warptile.device import DeviceLimits
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.tma import MBARRIER_BYTES
from warptile.rungs.wgmma import tiles
from warptile.rungs.wgmma.tiles import ROWS, WARPGROUP

D_POSITION_BYTES = 16
"""Row and column of D that go with each buffer of an epilogue subtile, for the warp that stores it."""

HELD_REGISTERS = 192
"""Registers of a thread for accumulators and held results of the previous tile: ``HELD_REGISTERS`` in
tile/wgmma_held_subtiles.cuh."""


def consumer_bytes(seen: Problem, config: Config, device: DeviceLimits) -> int:
    """Shared memory of a consumer warpgroup: buffers of epilogue subtiles, each with two mbarriers and its position in
    D, and the mbarrier by which warpgroups take turns."""
    subtile = tiles.EpilogueSubtiles.of(seen, config, device)
    return subtile.buffers * (subtile.bytes + 2 * MBARRIER_BYTES + D_POSITION_BYTES) + MBARRIER_BYTES


def rows_per_warpgroup(config: Config) -> int:
    """Rows of a tile that one consumer warpgroup computes."""
    return config["BM"] // (1 if config["PINGPONG"] else config["CONSUMERS"])


def accumulator_registers(seen: Problem, config: Config) -> int:
    """Accumulator registers of a thread, with those of the first level of two-level accumulation:
    ``TwoLevelAccumulation``."""
    each = tiles.accumulator_registers(seen, rows_per_warpgroup(config), config["BN"])
    return each * (1 + config["BK"] // tiles.TWO_LEVEL_K if tiles.two_level(seen) else 1)


def subtiles(seen: Problem, config: Config, device: DeviceLimits) -> tuple[int, int, int]:
    """Epilogue subtiles of a warpgroup's part of a tile, how many of them can wait in registers for the next tile's
    mainloop, and registers of a thread for each."""
    subtile = tiles.EpilogueSubtiles.of(seen, config, device)
    line, lines = subtile.box
    words = line * lines * subtile.element_bytes // 4 // WARPGROUP
    count = rows_per_warpgroup(config) // ROWS * subtile.count
    held = min(count, max(HELD_REGISTERS - accumulator_registers(seen, config), 0) // words)
    if subtile.column_major and line < ROWS and held < count:
        held = 0  # a thread has no element of half of the subtiles
    return count, held, words
