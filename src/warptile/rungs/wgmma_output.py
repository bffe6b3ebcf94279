"""How wgmma-final lets finished tiles leave: sizes that follow from tile/wgmma_output.cuh and wgmma/final.cuh."""

from __future__ import annotations

from warptile.problem import Problem
from warptile.rungs import wgmma_tiles as tiles
from warptile.rungs.rung import Config
from warptile.rungs.wgmma_tiles import MBARRIER_BYTES, ROWS, WARPGROUP

PLACE_BYTES = 16
HELD_REGISTERS = 192
"""Of a thread, for sums and what waits of a finished tile: ``HELD_REGISTERS`` in wgmma/final.cuh."""


def consumer_bytes(seen: Problem, config: Config) -> int:
    """Shared memory of a warpgroup that multiplies: its buffers, each with two barriers and a place in D, and a barrier
    for its turn."""
    output = tiles.Output.of(seen, config)
    return output.buffers * (output.bytes + 2 * MBARRIER_BYTES + PLACE_BYTES) + MBARRIER_BYTES


def rows(config: Config) -> int:
    """Rows of D that a warpgroup owns."""
    return config["BM"] // (1 if config["PINGPONG"] else config["CONSUMERS"])


def sums(seen: Problem, config: Config) -> int:
    """Registers of a thread for sums, and for the short ones of a stage: ``ShortSums``."""
    each = tiles.accumulator_registers(seen, rows(config), config["BN"])
    return each * (1 + config["BK"] // tiles.PROMOTED_DEPTH if tiles.promoted(seen) else 1)


def panels(seen: Problem, config: Config) -> tuple[int, int, int]:
    """Panels in which a warpgroup's part of a tile leaves, those of them that can wait in registers for the next tile's
    steps, and a thread's registers of each."""
    output = tiles.Output.of(seen, config)
    line, lines = output.box
    words = line * lines * output.element_bytes // 4 // WARPGROUP
    count = rows(config) // ROWS * output.count
    held = min(count, max(HELD_REGISTERS - sums(seen, config), 0) // words)
    if output.column_major and line < ROWS and held < count:
        held = 0  # a thread has nothing of half of the panels
    return count, held, words
