"""How many stages of wgmma-final fit, how K may be split, which columns fill waves, and how many SMs a launch needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from warptile.arch import arch
from warptile.device import DeviceLimits
from warptile.native.formulas import lookup
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import ceil_div
from warptile.rungs.rung import Extents
from warptile.rungs.tma import MAX_BOX, MBARRIER_BYTES
from warptile.rungs.wgmma import epilogue, tiles

FEWEST_STAGES = 3
"""Least stages. With two, a stage is released only while the next one's MMAs run: 0.72 of the speed of four (H200)."""

SINGLE = (256, 192, 160, 128, 96, 64, 48, 32, 24, 16, 8)
"""BN of tiles of one consumer warpgroup, whose BM is 64."""

FULL_WAVES = (1, 2, 3)
"""Numbers of waves for which tiles are sized to fill the last one."""

SPLITS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
"""Numbers of splits of K, in addition to the most that the SMs allow."""

SQUARE_GROUP = 16
"""GROUP with which the first wave, of 128 tiles of 128 x 256, covers a square of D, so that it loads least."""

MOST_STAGES = 12
_HOPPER = arch("sm_90a")
SHARED_BYTES, RESERVED_BYTES = _HOPPER.shared_bytes_per_block, _HOPPER.reserved_shared_bytes
"""Shared memory of a CTA that is alone on its SM, and what the system reserves for each CTA."""

TUNABLES = (
    "BM", "BN", "BK", "STAGES", "CONSUMERS", "PINGPONG", "CM", "CN", "GROUP", "ALONG_N", "OVERLAP", "STREAM", "SPLITS",
    "SWAP", "SMS",
)  # fmt: skip
"""Names of wgmma-final's tunables."""

OTHER_SCHEDULES: tuple[dict[str, int], ...] = (
    {"CM": 2},
    {"CN": 2},
    {"STREAM": 1, "SPLITS": 1, "OVERLAP": 0},
    {"PINGPONG": 1, "SPLITS": 1, "OVERLAP": 0},
)
"""What the best tiles are tried with; ping-pong where two warpgroups compute and K is not split."""


def stages(seen: Problem, config: Config, device: DeviceLimits, ctas_per_sm: int = 1) -> int:
    """The most stages that fit, up to `MOST_STAGES`, with ``ctas_per_sm`` CTAs on an SM."""
    output = config["CONSUMERS"] * epilogue.consumer_bytes(seen, config, device)
    return stages_beside(output, tiles.stage_bytes(seen, config), ctas_per_sm)


def stages_beside(output_bytes: int, stage_bytes: int, ctas_per_sm: int = 1) -> int:
    """The most stages that fit beside epilogue buffers."""
    each = (SHARED_BYTES + RESERVED_BYTES) // ctas_per_sm - RESERVED_BYTES
    return min((each - output_bytes - 2 * MOST_STAGES * MBARRIER_BYTES) // stage_bytes, MOST_STAGES)


def columns_of_full_waves(problem: Problem, bm: int, swap: int = 0, *, device: DeviceLimits) -> list[int]:
    """BN of tiles of BM rows that leave the fewest SMs idle in the last wave, for one, two and three waves: 80 for
    10240 columns (128 tiles), 104 for 1280 x 1280 (130), 168 for 2304 x 2304 (252). Only those up to `MAX_BOX`;
    with ``swap`` for swapped operands."""
    rows, columns_of_d = (problem.n, problem.m) if swap else (problem.m, problem.n)
    down = ceil_div(rows, bm) * problem.batch
    across = (device.sms * waves // down for waves in FULL_WAVES)
    columns = (8 * ceil_div(columns_of_d, 8 * each) for each in across if each)
    return [each for each in columns if each <= MAX_BOX]


def splits_of(count: int, k_tiles: int, device: DeviceLimits) -> list[int]:
    """Numbers of splits of K for ``count`` tiles with ``k_tiles`` K tiles each, from one on, each with fewer K tiles a
    split than the one before."""
    most = min(device.sms // max(count, 1), k_tiles)
    even = {ceil_div(k_tiles, ceil_div(k_tiles, parts)) for parts in (*SPLITS, most) if 1 < parts <= most}
    return [1, *sorted(even - {1})]


def cluster_tiles(extents: Extents, config: Mapping[str, Any]) -> Any:
    """Tiles of D, those of a cluster counted as one: of one configuration, or of an array of each tunable."""
    m, n, _, batch = extents
    swap = config["SWAP"] == 1
    rows, columns = np.where(swap, n, m), np.where(swap, m, n)
    return ceil_div(rows, config["BM"] * config["CM"]) * ceil_div(columns, config["BN"] * config["CN"]) * batch


def fewest_sms(extents: Extents, config: Mapping[str, Any], device: DeviceLimits) -> Any:
    """The fewest SMs that take no more waves than all on which clusters certainly run: of one configuration, or of an
    array of each tunable."""
    count, cluster = cluster_tiles(extents, config), config["CM"] * config["CN"]
    most = lookup(tiles.resident_ctas(device), np.minimum(cluster, tiles.MAX_CLUSTER_CTAS))
    waves = ceil_div(count, np.maximum(most // cluster, 1))
    every = (config["SPLITS"] > 1) | (config["STREAM"] > 0) | (count == 0) | (cluster > device.sms)
    return np.where(every, device.sms, ceil_div(count, np.maximum(waves, 1)) * cluster)
