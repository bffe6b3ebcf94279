"""What a configuration of wgmma-final costs: microseconds for each thing that may hold it back.

* tensor, shared or latency: what the busiest multiprocessor does, tile after tile, by what its steps of depth wait for:
  products (BM BN / 128 clocks for 32 bytes of depth, whatever the type), shared memory (128 bytes a clock: TMA writes
  each operand once, ``wgmma`` reads A once and B once for every 64 rows), or the way of its bytes from L2 and, with few
  stages, the time from giving a stage back to having it filled. Beside its steps a tile costs the way of its sums to D,
  unless something hides it; a split tile a meeting of its blocks, a shorter one if these are a cluster.
* dram: operands once and, of what is loaded again, the part that L2 has no longer; and D. The shorter the piece of a
  row that a step loads, the less DRAM gives.
* l2: what all blocks load; blocks of a cluster share.
* power: the energy of all that over the watts that are left. At its limit a GPU lowers its clock until they suffice.

The whole is a little more than the longest of them (a norm), and the launch. Rates are `warptile.arch.WgmmaCosts`.
"""

from __future__ import annotations

from warptile.arch import H200, WgmmaCosts
from warptile.problem import Problem
from warptile.rungs import wgmma_output as output
from warptile.rungs import wgmma_tiles as tiles
from warptile.rungs.copies import beside_ms, copies_ms
from warptile.rungs.legality import ceil_div
from warptile.rungs.rung import Config, View
from warptile.rungs.wgmma_classes import columns
from warptile.rungs.wgmma_tiles import ROWS, STEP_BYTES

SHARED_BYTES_PER_CLOCK = 128

FRAGMENT_CLOCKS = 60
"""Of 64 rows of A that go through registers, for each 32 bytes of depth, beside their products: fitted to tiles of 64
or 128 rows and 96 to 256 columns of 8192 rows with K = 8191, 62 to 193 us (H200)."""


def terms(problem: Problem, config: Config, costs: WgmmaCosts | None = None) -> dict[str, float]:
    """Microseconds of a legal configuration, for each thing that may hold it back; ``launch`` is added to the rest."""
    return terms_of(tiles.turned(problem) if config["SWAP"] else problem, config, costs or H200.wgmma_costs)


def terms_of(seen: Problem, config: Config, costs: WgmmaCosts) -> dict[str, float]:
    """The same for the problem as the kernel sees it: turned round with SWAP."""
    bm, bn, cm, cn = config["BM"], config["BN"], config["CM"], config["CN"]
    element_bits = seen.a.dtype.bits
    step_bytes = config["BK"] * element_bits // 8
    steps, splits = max(1, ceil_div(seen.k, config["BK"])), config["SPLITS"]
    count = ceil_div(seen.m, bm * cm) * ceil_div(columns(seen, config), bn * cn) * seen.batch
    teams = max(config["SMS"] // (cm * cn), 1)
    slabs = step_bytes / STEP_BYTES
    products = bm * bn / 128 * slabs
    stage_bytes = (bm + bn) * step_bytes
    moved = (bm + bm // ROWS * bn) * step_bytes + stage_bytes
    if tiles.any_start(seen, config):
        moved += bm * step_bytes // 2  # every other row begins at an odd element: two words for one
        products += bm // ROWS * slabs * FRAGMENT_CLOCKS
    fill = stage_bytes / costs.block_bytes_per_clock
    latency = max(fill, (costs.stage_clocks + fill) / (config["STAGES"] - 1), costs.step_clocks)
    step, bound = max(
        (products * costs.product_clocks, "tensor"), (moved / SHARED_BYTES_PER_CLOCK, "shared"), (latency, "latency")
    )
    if cm * cn > 1:
        step += costs.cluster_clocks
    out_bytes = bm * bn * seen.d.dtype.bits / 8
    leaving = costs.tile_clocks + out_bytes / costs.out_bytes_per_clock
    if config["STREAM"]:
        turns, each = count / teams, steps * step + leaving
        extra = 2 * (costs.meeting_clocks + 2 * bm * bn * 4 / costs.partial_bytes_per_clock)
    elif splits > 1:
        turns, each = 1.0, ceil_div(steps, splits) * step
        meeting, ways = costs.meeting_clocks, 2
        if tiles.blocks_along_k(seen, config) > 1:
            meeting, ways = costs.cluster_meeting_clocks, 1  # as fast as if sums went out and not back
        extra = leaving / splits + meeting + ways * bm * bn * 4 / costs.partial_bytes_per_clock
    elif config["OVERLAP"]:
        panels, held, _ = output.panels(seen, config)
        at_once = (1 - held / panels) * leaving
        turns, each = float(ceil_div(count, teams)), steps * step + costs.hidden_clocks + at_once
        extra = leaving - at_once
    elif config["PINGPONG"]:
        turns, each, extra = float(ceil_div(count, teams)), steps * step + costs.hidden_clocks, leaving
    else:
        turns, each, extra = float(ceil_div(count, teams)), steps * step + leaving, 0.0
    clocks = costs.start_clocks + turns * each + extra

    of_a, of_b = seen.operand_matrices
    k_bytes = steps * step_bytes
    once = (seen.m * of_a + seen.n * of_b) * k_bytes
    loaded = count * k_bytes * cm * cn * (bm / cn + bn / cm)
    d_bytes = seen.m * seen.n * seen.batch * seen.d.dtype.bits / 8 * (1 if seen.c is None else 2)
    missed = once + costs.missed * max(loaded - once, 0.0)
    dram_bytes = missed * (1 + costs.row_gap_bytes / min(step_bytes, k_bytes)) + d_bytes
    flops = count * cm * cn * bm * bn * steps * config["BK"] * 2
    sixteen = flops * element_bits / 16
    joules = (
        sixteen * costs.flop_pj
        + count * cm * cn * steps * moved * costs.shared_pj
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


def microseconds(problem: Problem, config: Config) -> float:
    """What a legal configuration may take on an H200, with what is copied."""
    return total(terms(problem, config)) + _copies_us(tiles.view(problem, config))


def _copies_us(view: View) -> float:
    return 1e3 * (copies_ms(view.copies) + beside_ms(view.beside))


def microseconds_of(view: View, config: Config) -> float:
    """The same for what the kernel sees."""
    return total(terms_of(view.problem, config, H200.wgmma_costs)) + _copies_us(view)
