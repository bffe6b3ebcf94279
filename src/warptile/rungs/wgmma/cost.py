"""Cost model of wgmma-final: predicted microseconds of a configuration, by limiting resource.

* tensor, shared or latency: the time of the busiest SM over its tiles, by what a mainloop iteration is limited by: MMAs
  (BM BN / 128 clocks for each MMA-K block, whatever the type), shared memory (128 bytes a clock: TMA writes each
  operand once, ``wgmma`` reads A once and B once for every 64 rows), or loads from L2 and, with few stages, the latency
  from releasing a stage to having it refilled. Each tile adds its epilogue unless that is overlapped; a tile with split
  K adds a reduction among CTAs, which is faster within a cluster.
* dram: operands once, the part of repeated loads that misses L2, and D. The shorter the part of a row that a K tile
  loads, the lower the DRAM bandwidth.
* l2: the loads of all CTAs; multicast within a cluster counts once.
* power: energy over the power limit. At the limit a GPU lowers its clock.

The prediction is a norm of these, slightly above the largest, plus the launch. Rates: `warptile.arch.WgmmaCosts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from warptile.arch import H200, WgmmaCosts
from warptile.device import DeviceLimits
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config, View
from warptile.rungs.legality import ceil_div
from warptile.rungs.repack import fused_repacking_ms, repacking_ms
from warptile.rungs.wgmma import epilogue, tiles
from warptile.rungs.wgmma.residue_classes import columns
from warptile.rungs.wgmma.tiles import MMA_K_BYTES, ROWS

SHARED_BYTES_PER_CLOCK = 128

FRAGMENT_CLOCKS = 60
"""Clocks of loading 64 rows of an unaligned A through registers, for each MMA-K block, beside its MMAs: fitted to
tiles of 64 or 128 rows and 96 to 256 columns of 8192 rows with K = 8191, 62 to 193 us (H200)."""


Number = Any
"""An int or a float, or an array of them: of one configuration, or of many at once."""


@dataclass(frozen=True)
class TileCosts:
    """What a tile costs whatever the extents of the GEMM.

    Attributes:
        tensor_clocks, shared_clocks, latency_clocks: of a mainloop iteration, by what may limit it.
        storing_clocks: of the epilogue.
        at_once_clocks: of an overlapped epilogue, what the next mainloop does not hide.
        moved_bytes: that an iteration moves into and out of shared memory.
    """

    tensor_clocks: Number
    shared_clocks: Number
    latency_clocks: Number
    storing_clocks: Number
    at_once_clocks: Number
    moved_bytes: Number

    @property
    def step_clocks(self) -> Number:
        """Of a mainloop iteration."""
        return np.maximum(np.maximum(self.tensor_clocks, self.shared_clocks), self.latency_clocks)

    @property
    def bound(self) -> str:
        """What limits the mainloop of one tile."""
        parts = (self.tensor_clocks, "tensor"), (self.shared_clocks, "shared"), (self.latency_clocks, "latency")
        return max(parts)[1]


def tile_costs(
    seen: Problem, config: Mapping[str, Number], held_share: Number, costs: WgmmaCosts, *, unaligned_a: bool
) -> TileCosts:
    """The costs of tiles.

    Args:
        seen: the GEMM as the kernel sees it.
        config: BM, BN, BK and STAGES are read.
        held_share: the share of a tile's subtiles that can wait in registers for the next mainloop.
        costs: of the GPU.
        unaligned_a: A is loaded through registers.
    """
    bm, bn = config["BM"], config["BN"]
    k_tile_bytes = config["BK"] * seen.a.dtype.bits // 8
    mma_k_blocks = k_tile_bytes / MMA_K_BYTES
    mma_clocks = bm * bn / 128 * mma_k_blocks
    stage_bytes = (bm + bn) * k_tile_bytes
    moved = (bm + bm // ROWS * bn) * k_tile_bytes + stage_bytes
    if unaligned_a:
        moved = moved + bm * k_tile_bytes // 2  # every other row starts at an odd element and takes two words for one
        mma_clocks = mma_clocks + bm // ROWS * mma_k_blocks * FRAGMENT_CLOCKS
    fill = stage_bytes / costs.block_bytes_per_clock
    waiting = np.maximum(fill, (costs.stage_clocks + fill) / (config["STAGES"] - 1))
    storing = costs.tile_clocks + bm * bn * seen.d.dtype.bits / 8 / costs.out_bytes_per_clock
    return TileCosts(
        tensor_clocks=mma_clocks * costs.product_clocks,
        shared_clocks=moved / SHARED_BYTES_PER_CLOCK,
        latency_clocks=np.maximum(waiting, costs.step_clocks),
        storing_clocks=storing,
        at_once_clocks=(1 - held_share) * storing,
        moved_bytes=moved,
    )


@dataclass(frozen=True)
class SeenExtents:
    """SeenExtents of a GEMM as the kernel sees it, each a number or one for each configuration.

    Attributes:
        m, n, k, batch: of its matrices.
        columns: that tiles cover: `warptile.rungs.wgmma.residue_classes.columns`.
        of_a, of_b: matrices of A and of B in memory.
    """

    m: Number
    n: Number
    k: Number
    batch: Number
    columns: Number
    of_a: Number
    of_b: Number


def resources_us(
    seen: Problem,
    extents: SeenExtents,
    config: Mapping[str, Number],
    tile: TileCosts,
    cluster_k: Number,
    costs: WgmmaCosts,
) -> tuple[Number, Number, Number, Number]:
    """Microseconds of the busiest SM, of DRAM, of L2 and at the power limit.

    Args:
        seen: types and C of the GEMM as the kernel sees it; its extents are not read.
        extents: these are.
        config: configurations.
        tile: what their tiles cost.
        cluster_k: CTAs of a cluster that split K: `warptile.rungs.wgmma.tiles.cluster_k`.
        costs: of the GPU.
    """
    bm, bn, cm, cn, bk = (config[key] for key in ("BM", "BN", "CM", "CN", "BK"))
    splits, element_bits = config["SPLITS"], seen.a.dtype.bits
    cluster = cm * cn
    k_tiles = np.maximum(1, ceil_div(extents.k, bk))
    count = ceil_div(extents.m, bm * cm) * ceil_div(extents.columns, bn * cn) * extents.batch
    clusters = np.maximum(config["SMS"] // cluster, 1)
    step = tile.step_clocks + np.where(cluster > 1, costs.cluster_clocks, 0.0)
    storing, at_once = tile.storing_clocks, tile.at_once_clocks
    partial = bm * bn * 4 / costs.partial_bytes_per_clock

    # Basic schedules, those with overlapped epilogues, and ping-pong: whole waves.
    overlapped, pingpong = config["OVERLAP"] > 0, config["PINGPONG"] > 0
    waves: Number = ceil_div(count, clusters)
    hidden = np.where(overlapped, costs.hidden_clocks + at_once, costs.hidden_clocks)
    each = k_tiles * step + np.where(overlapped | pingpong, hidden, storing)
    extra = np.where(overlapped, storing - at_once, np.where(pingpong, storing, 0.0))
    # One wave, each CTA with a part of K; stream-K, with no wave that is not full.
    split, stream = splits > 1, config["STREAM"] > 0
    in_cluster = cluster_k > 1  # through distributed shared memory: partial accumulators move once, not twice
    reduction = np.where(in_cluster, costs.cluster_meeting_clocks + partial, costs.meeting_clocks + 2 * partial)
    waves = np.where(split, 1.0, np.where(stream, count / clusters, waves))
    each = np.where(split, ceil_div(k_tiles, splits) * step, np.where(stream, k_tiles * step + storing, each))
    met = 2 * (costs.meeting_clocks + 2 * partial)
    extra = np.where(split, storing / splits + reduction, np.where(stream, met, extra))
    clocks = costs.start_clocks + waves * each + extra

    k_tile_bytes = bk * element_bits // 8
    k_bytes = k_tiles * k_tile_bytes
    once = (extents.m * extents.of_a + extents.n * extents.of_b) * k_bytes
    loaded = count * k_bytes * cluster * (bm / cn + bn / cm)
    d_bytes = extents.m * extents.n * extents.batch * seen.d.dtype.bits / 8 * (1 if seen.c is None else 2)
    missed = once + costs.missed * np.maximum(loaded - once, 0.0)
    dram_bytes = missed * (1 + costs.row_gap_bytes / np.minimum(k_tile_bytes, k_bytes)) + d_bytes
    flops = count * cluster * bm * bn * k_tiles * bk * 2.0
    joules = (
        flops * element_bits / 16 * costs.flop_pj
        + count * cluster * k_tiles * tile.moved_bytes * costs.shared_pj
        + (loaded + d_bytes) * costs.l2_pj
        + dram_bytes * costs.dram_pj
    ) * 1e-12
    return (
        clocks / costs.clock_hz * 1e6,
        dram_bytes / costs.dram_bytes_per_s * 1e6,
        (loaded + d_bytes) / costs.l2_bytes_per_s * 1e6,
        joules / costs.watts * 1e6,
    )


def together_us(resources: tuple[Number, Number, Number, Number], costs: WgmmaCosts) -> Number:
    """Microseconds in all, with the launch."""
    most = np.maximum(np.maximum(resources[0], resources[1]), np.maximum(resources[2], resources[3]))
    norm = sum((each / most) ** costs.norm for each in resources) ** (1 / costs.norm)
    return costs.launch_us + most * norm


def terms(problem: Problem, config: Config, device: DeviceLimits, costs: WgmmaCosts | None = None) -> dict[str, float]:
    """Microseconds of a legal configuration by limiting resource; ``launch`` is added to the rest."""
    return terms_of(tiles.swapped(problem) if config["SWAP"] else problem, config, device, costs or H200.wgmma_costs)


def terms_of(seen: Problem, config: Config, device: DeviceLimits, costs: WgmmaCosts) -> dict[str, float]:
    """As `terms`, for the problem as the kernel sees it: operands are swapped with SWAP."""
    count, held, _ = epilogue.subtiles(seen, config, device) if config["OVERLAP"] else (1, 0, 0)
    unaligned_a = tiles.takes_unaligned_a(seen, config)
    tile = tile_costs(seen, config, held / count, costs, unaligned_a=unaligned_a)
    of_a, of_b = seen.operand_matrices
    extents = SeenExtents(seen.m, seen.n, seen.k, seen.batch, columns(seen, config), of_a, of_b)
    found = resources_us(seen, extents, config, tile, tiles.cluster_k(seen, config, device), costs)
    names = (tile.bound, "dram", "l2", "power")
    return {**{name: float(each) for name, each in zip(names, found, strict=True)}, "launch": costs.launch_us}


def total(found: dict[str, float], costs: WgmmaCosts | None = None) -> float:
    """Microseconds in all."""
    clocks, dram, l2, power = (value for name, value in found.items() if name != "launch")
    return float(together_us((clocks, dram, l2, power), costs or H200.wgmma_costs))


def estimate_us(problem: Problem, config: Config, device: DeviceLimits) -> float:
    """Predicted microseconds of a legal configuration on an H200, repacking included."""
    return total(terms(problem, config, device)) + repacking_us(tiles.view(problem, config))


def repacking_us(view: View) -> float:
    """Predicted microseconds of repacking, in a pass of its own or fused."""
    return 1e3 * (repacking_ms(view.repacks) + fused_repacking_ms(view.fused_repacks))


def estimate_view_us(view: View, config: Config, device: DeviceLimits) -> float:
    """As `estimate_us`, for a view of the problem."""
    return total(terms_of(view.problem, config, device, H200.wgmma_costs)) + repacking_us(view)
