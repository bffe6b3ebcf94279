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


def terms(problem: Problem, config: Config, device: DeviceLimits, costs: WgmmaCosts | None = None) -> dict[str, float]:
    """Microseconds of a legal configuration by limiting resource; ``launch`` is added to the rest."""
    return terms_of(tiles.swapped(problem) if config["SWAP"] else problem, config, device, costs or H200.wgmma_costs)


def terms_of(seen: Problem, config: Config, device: DeviceLimits, costs: WgmmaCosts) -> dict[str, float]:
    """As `terms`, for the problem as the kernel sees it: operands are swapped with SWAP."""
    bm, bn, cm, cn = config["BM"], config["BN"], config["CM"], config["CN"]
    element_bits = seen.a.dtype.bits
    k_tile_bytes = config["BK"] * element_bits // 8
    k_tiles, splits = max(1, ceil_div(seen.k, config["BK"])), config["SPLITS"]
    count = ceil_div(seen.m, bm * cm) * ceil_div(columns(seen, config), bn * cn) * seen.batch
    clusters = max(config["SMS"] // (cm * cn), 1)
    mma_k_blocks = k_tile_bytes / MMA_K_BYTES
    mma_clocks = bm * bn / 128 * mma_k_blocks
    stage_bytes = (bm + bn) * k_tile_bytes
    moved = (bm + bm // ROWS * bn) * k_tile_bytes + stage_bytes
    if tiles.takes_unaligned_a(seen, config):
        moved += bm * k_tile_bytes // 2  # every other row starts at an odd element and takes two words for one
        mma_clocks += bm // ROWS * mma_k_blocks * FRAGMENT_CLOCKS
    fill = stage_bytes / costs.block_bytes_per_clock
    latency = max(fill, (costs.stage_clocks + fill) / (config["STAGES"] - 1), costs.step_clocks)
    step, bound = max(
        (mma_clocks * costs.product_clocks, "tensor"), (moved / SHARED_BYTES_PER_CLOCK, "shared"), (latency, "latency")
    )
    if cm * cn > 1:
        step += costs.cluster_clocks
    out_bytes = bm * bn * seen.d.dtype.bits / 8
    storing = costs.tile_clocks + out_bytes / costs.out_bytes_per_clock
    if config["STREAM"]:
        waves, each = count / clusters, k_tiles * step + storing
        extra = 2 * (costs.meeting_clocks + 2 * bm * bn * 4 / costs.partial_bytes_per_clock)
    elif splits > 1:
        waves, each = 1.0, ceil_div(k_tiles, splits) * step
        reduction, ways = costs.meeting_clocks, 2
        if tiles.cluster_k(seen, config, device) > 1:
            # through distributed shared memory: partial accumulators move once, not twice
            reduction, ways = costs.cluster_meeting_clocks, 1
        extra = storing / splits + reduction + ways * bm * bn * 4 / costs.partial_bytes_per_clock
    elif config["OVERLAP"]:
        subtiles, held, _ = epilogue.subtiles(seen, config, device)
        at_once = (1 - held / subtiles) * storing
        waves, each = float(ceil_div(count, clusters)), k_tiles * step + costs.hidden_clocks + at_once
        extra = storing - at_once
    elif config["PINGPONG"]:
        waves, each, extra = float(ceil_div(count, clusters)), k_tiles * step + costs.hidden_clocks, storing
    else:
        waves, each, extra = float(ceil_div(count, clusters)), k_tiles * step + storing, 0.0
    clocks = costs.start_clocks + waves * each + extra

    of_a, of_b = seen.operand_matrices
    k_bytes = k_tiles * k_tile_bytes
    once = (seen.m * of_a + seen.n * of_b) * k_bytes
    loaded = count * k_bytes * cm * cn * (bm / cn + bn / cm)
    d_bytes = seen.m * seen.n * seen.batch * seen.d.dtype.bits / 8 * (1 if seen.c is None else 2)
    missed = once + costs.missed * max(loaded - once, 0.0)
    dram_bytes = missed * (1 + costs.row_gap_bytes / min(k_tile_bytes, k_bytes)) + d_bytes
    flops = count * cm * cn * bm * bn * k_tiles * config["BK"] * 2
    sixteen = flops * element_bits / 16
    joules = (
        sixteen * costs.flop_pj
        + count * cm * cn * k_tiles * moved * costs.shared_pj
        + (loaded + d_bytes) * costs.l2_pj
        + dram_bytes * costs.dram_pj
    ) * 1e-12
    return {
        bound: clocks / costs.clock_hz * 1e6,
        "dram": dram_bytes / costs.dram_bytes_per_s * 1e6,
        "l2": (loaded + d_bytes) / costs.l2_bytes_per_s * 1e6,
        "power": joules / costs.watts * 1e6,
        "launch": costs.launch_us,
    }


def total(found: dict[str, float], costs: WgmmaCosts | None = None) -> float:
    """Microseconds in all."""
    power = (costs or H200.wgmma_costs).norm
    parts = [value for name, value in found.items() if name != "launch"]
    most = max(parts)
    return found["launch"] + most * float(sum((part / most) ** power for part in parts) ** (1 / power))


def estimate_us(problem: Problem, config: Config, device: DeviceLimits) -> float:
    """Predicted microseconds of a legal configuration on an H200, repacking included."""
    return total(terms(problem, config, device)) + _repacking_us(tiles.view(problem, config))


def _repacking_us(view: View) -> float:
    return 1e3 * (repacking_ms(view.repacks) + fused_repacking_ms(view.fused_repacks))


def estimate_view_us(view: View, config: Config, device: DeviceLimits) -> float:
    """As `estimate_us`, for a view of the problem."""
    return total(terms_of(view.problem, config, device, H200.wgmma_costs)) + _repacking_us(view)
