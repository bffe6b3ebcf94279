"""Promotion in two-level accumulation of 8-bit floats, and what it costs beside what the models of surveys say.

With two sets of first-level registers (``WgmmaFinal::ALTERNATES``), a consumer promotes the sums of one stage while the
tensor cores multiply the next stage. The surveys that models are fitted to are older than that (`SINCE`), and have no
scales of blocks. The factors are from one H200, tiles of 128 x 112 to 144 at 4096^3, 8192^3 and 4096 x 7168 x 16384
(docs/lab-notebook/2026-11-28.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from warptile.problem import Problem
from warptile.rungs.wgmma import block_scales, tiles
from warptile.rungs.wgmma.block_scales import Lines

SINCE = "2026-11-28T12:00:00Z"
"""Surveys from then on have kernels with two sets of registers."""

MOST_WITH_TWO_SETS = 216
"""Registers of a thread for accumulators of both levels, and scales of blocks: ``WgmmaConfig::MOST_WITH_TWO_SETS``."""

ALTERNATING = 0.95
"""Time of a kernel with two sets of registers, of that with one."""

SCALED, SCALED_ALTERNATING, SCALED_BY_TWO = 1.19, 1.14, 1.37
"""Time of a kernel with scales of blocks, of that without: with one set of registers and with two; and where a
warpgroup's columns have parts of two blocks."""


def alternates(seen: Problem, config: Mapping[str, Any]) -> Any:
    """Whether consumers have two sets of registers; of a view of the problem. Tunables may be arrays."""
    return _alternates(block_scales.lines(seen), config) if tiles.two_level(seen) else False


def _alternates(lines: Lines, config: Mapping[str, Any]) -> Any:
    """The same in two-level accumulation, whose accumulators have 32 bits."""
    elements = tiles.rows_per_warpgroup(config) * tiles.columns_per_warpgroup(config)
    needed = 3 * (elements // tiles.WARPGROUP) + block_scales.registers_of(lines, config)
    plain = (config["OVERLAP"] == 0) & (config["STREAM"] == 0) & (config["SPLITS"] == 1)
    whole = (config["BK"] == tiles.TWO_LEVEL_K) & (config["CONSUMERS"] == 2)
    return plain & whole & (needed <= MOST_WITH_TWO_SETS)


def factor(problem: Problem, config: Mapping[str, Any]) -> Any:
    """What the predicted time of a configuration, or of an array of each tunable, is multiplied by."""
    return factor_with(block_scales.lines(problem), config) if tiles.two_level(problem) else 1.0


def factor_with(lines: Lines, config: Mapping[str, Any]) -> Any:
    """The same of a problem with two-level accumulation and these `block_scales.lines`."""
    return np.where(config["SWAP"] == 0, _factor_of_view(lines, config), _factor_of_view(lines[::-1], config))


def factor_of_view(seen: Problem, config: Mapping[str, Any]) -> Any:
    """The same, of a problem whose operands are swapped already if the configuration swaps them."""
    return _factor_of_view(block_scales.lines(seen), config) if tiles.two_level(seen) else 1.0


def _factor_of_view(lines: Lines, config: Mapping[str, Any]) -> Any:
    alternating = _alternates(lines, config)
    found = np.where(alternating, ALTERNATING, 1.0)
    of_a, of_b = lines
    if of_a == of_b == 0:
        return found
    two = (of_b % tiles.columns_per_warpgroup(config) > 0) if of_b > 1 else False
    return found * np.where(two, SCALED_BY_TWO, np.where(alternating, SCALED_ALTERNATING, SCALED))
