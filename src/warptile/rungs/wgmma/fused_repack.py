"""Repacking fused into wgmma-final's mainloop by warps of its own CTAs: the Python side of wgmma/final/repack.cuh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from warptile.launch.workspace import Workspace
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import ceil_div
from warptile.rungs.repack import Repack

SLICES = "repacked slices"
"""Workspace of the counters: repacked lines of each slice of K."""

SLICE_BYTES = 1024
"""K extent of a slice."""

LEAST_LINE_BYTES = SLICE_BYTES + 32
"""Least length of a line: the box that TMA loads of a slice then stays within the next two."""

MOST_WAVES = 31
"""Waves whose repacking is counted apart; the last of them has all later ones too."""

LEAST_WAVES = 3
"""Least number of waves, so that the first one does not need everything repacked. Measured with 4 and 16 waves."""

MOST_LINES = 36
"""Most lines of both operands for each CTA that the first wave may need: as many as are repacked while it runs.
4096 x 4096 with K = 4095 in tiles of 128 x 256 takes 216 us with 32 lines (groups of 16 tiles), 235 us with 40 (groups
of 8), 227 us with a repacking pass, and 193 us for K = 4096 (H200)."""


def fits(
    seen: Problem, found: tuple[str, str], repacks: Sequence[Repack], config: Config, *, stores_by_tma: bool
) -> bool:
    """Whether the GEMM's own CTAs do the repacking, in the three warps that overlapped stores leave idle.

    Only where operands and D have 16 bits, D is row-major and repacked lines run along K. For others repacking is more
    than a shift, or too slow for a mainloop of half the time (8 bits, K = 4090: 125 us fused, 117 us in a pass). Not in
    clusters (237 us fused, 229 us in a pass).

    Args:
        seen: the GEMM as the kernel sees it.
        found: names of its A and B.
        repacks: what has to be repacked.
        config: its configuration.
        stores_by_tma: TMA stores D; otherwise these warps are epilogue store warps.
    """
    return (
        bool(config.get("OVERLAP", 0))
        and may_fit(seen, found, repacks, stores_by_tma=stores_by_tma)
        and bool(schedule_allows(seen, found, repacks, config))
    )


def may_fit(seen: Problem, found: tuple[str, str], repacks: Sequence[Repack], *, stores_by_tma: bool) -> bool:
    """Whether some configuration does; arguments as of `fits`."""
    if not repacks or seen.batch > 1 or not stores_by_tma:
        return False
    if seen.a.dtype.bits != 16 or seen.d.dtype.bits != 16 or seen.d.major != "row":
        return False
    k_major = dict(zip(found, (seen.a.major == "row", seen.b.major == "col"), strict=True))
    if any(each.transposed or not k_major[each.target] for each in repacks):
        return False
    return seen.k * seen.a.dtype.bits // 8 >= LEAST_LINE_BYTES


def schedule_allows(seen: Problem, found: tuple[str, str], repacks: Sequence[Repack], config: Mapping[str, Any]) -> Any:
    """Whether this one does: of one configuration, or of an array of each tunable. Where `may_fit`."""
    rows, columns = first_wave(seen, config)
    repacked = {each.target for each in repacks}
    lines = rows * (found[0] in repacked) + columns * (found[1] in repacked)
    alone = (config["OVERLAP"] == 1) & (config["CONSUMERS"] == 2) & (config["CM"] * config["CN"] == 1)
    return alone & (waves(seen, config) >= LEAST_WAVES) & (lines <= MOST_LINES * ctas(seen, config))


def _cluster_tiles(seen: Problem, config: Mapping[str, Any]) -> tuple[Any, Any]:
    """Tiles of clusters along M and N."""
    return ceil_div(seen.m, config["BM"] * config["CM"]), ceil_div(seen.n, config["BN"] * config["CN"])


def _clusters(seen: Problem, config: Mapping[str, Any]) -> Any:
    m, n = _cluster_tiles(seen, config)
    return np.minimum(m * n, np.maximum(config["SMS"] // (config["CM"] * config["CN"]), 1))


def ctas(seen: Problem, config: Mapping[str, Any]) -> Any:
    """CTAs of the launch."""
    return _clusters(seen, config) * config["CM"] * config["CN"]


def first_wave(seen: Problem, config: Mapping[str, Any]) -> tuple[Any, Any]:
    """Rows and columns of D that the tiles of the first wave reach: ``TileScheduler::wave_extents``."""
    m, n = _cluster_tiles(seen, config)
    along_n, group, count = config["ALONG_N"], config["GROUP"], _clusters(seen, config)
    grouped, along = np.where(along_n, n, m), np.where(along_n, m, n)
    groups = ceil_div(count, group * along)
    wide = np.where(groups > 1, along, ceil_div(count, np.minimum(group, grouped)))
    across = np.minimum(groups * group, grouped)
    rows, columns = np.where(along_n, wide, across), np.where(along_n, across, wide)
    return (
        np.minimum(rows * config["BM"] * config["CM"], seen.m),
        np.minimum(columns * config["BN"] * config["CN"], seen.n),
    )


def waves(seen: Problem, config: Mapping[str, Any]) -> Any:
    """Tiles of the CTA that has most of them."""
    m, n = _cluster_tiles(seen, config)
    return ceil_div(m * n, _clusters(seen, config))


def counters(seen: Problem, config: Config) -> Workspace:
    """The counters of all slices."""
    counted = min(int(waves(seen, config)), MOST_WAVES)
    return Workspace(SLICES, 4 * counted * ceil_div(seen.k * seen.a.dtype.bits // 8, SLICE_BYTES), zero=True)
