"""Clocks of the Hopper rungs before the last one: TMA fills stages, warpgroups multiply them, an epilogue stores D.

A K tile takes an SM as long as its busiest unit: the tensor cores; shared memory, which TMA writes once and ``wgmma``
reads A once and B once for every 64 rows; L2; and the producer, which waits for a stage to be released and refilled. On
top of that come epilogues that no mainloop hides, and with stream-K the exchange of partial accumulators.
"""

from __future__ import annotations

from dataclasses import dataclass

from warptile.arch import Device
from warptile.expected.combined_limits import largest, overlapped
from warptile.expected.kernel_work import LINE_BYTES
from warptile.expected.launch_shape import LaunchShape
from warptile.expected.time_constants import TimeConstants
from warptile.planning.cost_bounds_wgmma import OVERLAPPED, PROMOTED_PER_CLOCK, ROWS, STREAM_K, TWO_LEVEL
from warptile.rungs.kernel_spec import KernelSpec
from warptile.rungs.wgmma.tiles import TWO_LEVEL_K

PINGPONG = "wgmma_pingpong"
PARTIAL_BYTES = 4


@dataclass(frozen=True)
class WgmmaTimeline:
    """The busiest SM.

    Attributes:
        clocks: from its first load to its last store.
        limit: what limits its mainloop.
        wavefronts: of shared memory for a K tile.
        filled_bytes: from L2 for a K tile.
    """

    clocks: float
    limit: str
    wavefronts: float
    filled_bytes: float


def wgmma_timeline(
    kernel: KernelSpec, shape: LaunchShape, constants: TimeConstants, rates: Device, *, persistent: bool, stores: bool
) -> WgmmaTimeline:
    """The busiest SM of a launch.

    Args:
        kernel: of a rung before wgmma-final.
        shape: of the launch.
        constants: calibrated ones.
        rates: of the GPU.
        persistent: a CTA takes one tile after the other.
        stores: TMA stores D, from shared memory.
    """
    config, seen, idea = kernel.config, kernel.view.problem, kernel.instance.kernel
    bm, bn, bk, stages = config["BM"], config["BN"], config["BK"], config.get("STAGES", 1)
    slices, products = (2, 3) if kernel.view.splits else (1, 1)
    rate = rates.wgmma_tflops.get(seen.a.dtype.name, rates.wgmma_tflops["float16"]) * 1e12
    rate *= (rates.sparse_gain if seen.a.sparse else 1.0) * constants.wgmma_share
    row_bytes = bk * seen.a.dtype.bytes
    rows_of_a = bm * (0.5 if seen.a.sparse else 1.0)
    filled = slices * (rows_of_a + bn) * row_bytes
    read = products * (rows_of_a + bm / ROWS * bn) * row_bytes
    busy = {
        "tensor": products * 2 * bm * bn * bk / (rate / rates.multiprocessors / rates.clock_hz),
        "shared": (filled + read) / LINE_BYTES,
        "l2": filled / constants.l2_bytes_per_clock,
    }
    promoted_after = TWO_LEVEL_K if idea == TWO_LEVEL else dict(kernel.instance.values).get("INTERVAL")
    if promoted_after:  # one warpgroup adds while the other's MMAs run
        busy["issue"] = bk / promoted_after * bm * bn / PROMOTED_PER_CLOCK
    refill = constants.tma_clocks + busy["l2"]
    wavefronts = (filled + read) / LINE_BYTES
    if stages > 1:
        busy["latency"] = refill / (stages - 1)
        each = max(busy.values())
        limit = largest(busy)
    else:
        chain = refill + busy["tensor"]
        each = overlapped(chain / shape.resident, max(busy.values()), constants.overlap)
        limit = largest({**busy, "latency": chain / shape.resident})
    stored = bm * bn * seen.d.dtype.bytes / constants.out_bytes_per_clock
    if not stores:
        stored = bm * bn / 128 * constants.register_clocks
    epilogue = constants.tile_clocks + stored
    loop, tiles = shape.k_tiles * each, shape.tiles_of_busiest
    if idea == STREAM_K and shape.tiles % rates.multiprocessors:
        clocks = _stream_k(kernel, shape, constants, rates, loop, epilogue)
    elif not persistent:
        clocks = tiles * loop + -(-tiles // shape.resident) * epilogue
    elif idea in (PINGPONG, OVERLAPPED):
        clocks = tiles * loop + epilogue
    else:
        clocks = tiles * (loop + epilogue)
    return WgmmaTimeline(clocks, limit, wavefronts, filled)


def _stream_k(
    kernel: KernelSpec, shape: LaunchShape, constants: TimeConstants, rates: Device, loop: float, epilogue: float
) -> float:
    """Whole tiles first; then the CTAs share the K tiles of the last ones, up to two for each. Of a tile's CTAs all
    write their part, and one reads the others'."""
    waves = shape.tiles / rates.multiprocessors
    whole = max(0, int(waves) - 1)
    parts = max(2.0, 1 + rates.multiprocessors / shape.tiles)
    partial_bytes = parts * kernel.config["BM"] * kernel.config["BN"] * PARTIAL_BYTES
    shared = (waves - whole) * loop * constants.stream_factor + epilogue
    return whole * (loop + epilogue) + shared + partial_bytes / constants.partial_bytes_per_clock
