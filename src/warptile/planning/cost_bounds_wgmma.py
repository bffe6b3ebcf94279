"""Predicted time of the Hopper rungs before the last one: as `warptile.planning.cost_bounds`, with operands loaded by
TMA and, in later rungs, persistent CTAs. wgmma-final has its own cost model, `warptile.rungs.wgmma.cost`.

A CTA computes BM x BN of D in K tiles of BK; loads, MMAs and, in later rungs, stores overlap.

* dram: operands and D once, operands again for each wave that L2 cannot serve.
* l2: (1 / BM + 1 / BN) elements a multiply-add, with the tile of the cluster, which multicasts what it loads.
* shared: 128 bytes a clock: what TMA writes, and what the tensor cores read: A once, B once for every 64 rows.
* tensor: multiply-adds of whole tiles at the issue rate of ``wgmma``, for the SM with the most tiles.
* epilogue: D through shared memory, where it is not overlapped: of every tile, or with wgmma-overlap of the last one.
* issue: two-level accumulation adds every accumulator to another one, after every 128 of K; wgmma-split its main ones.
* wgmma-split loads two slices of each operand, and multiplies three pairs of them.
* stream-K: no wave is partly empty, and partial accumulators go to L2 and back.
* latency: the first stage's load from DRAM, and the launch.
"""

from __future__ import annotations

from warptile.arch import L2_SHARE_FOR_OPERANDS, Device
from warptile.rungs.kernel_spec import KernelSpec
from warptile.rungs.legality import ceil_div
from warptile.rungs.wgmma.tiles import TWO_LEVEL_K

DRAM_LATENCY_CLOCKS = 1000
"""Clocks from a TMA load to its bytes in shared memory. An assumption near published Hopper microbenchmarks."""

TMA_BYTES_PER_S = 10e12
"""From L2 to shared memory, all SMs together. An estimate: wgmma-specialized with tiles of 128 x 128 moved 9 TB/s (580
TFLOP/s at 4096^3 on an H200); L2 joins requests of neighbouring SMs for the same lines."""

ROWS = 64

PROMOTED_PER_CLOCK = 128
"""Additions of float32 accumulators per clock and SM: CUDA C++ Programming Guide, "Throughput of native
arithmetic instructions"."""

OVERLAPPED, STREAM_K, TWO_LEVEL = "wgmma_overlap", "wgmma_stream_k", "wgmma_two_level"
"""Kernels whose idea changes a formula."""


def terms(kernel: KernelSpec, device: Device) -> dict[str, float]:
    """Milliseconds for each resource."""
    problem, config, seen = kernel.problem, kernel.config, kernel.view.problem
    bm, bn, bk = config["BM"], config["BN"], config["BK"]
    clustered = kernel.cluster != (1, 1, 1)
    ctas = kernel.ctas
    tiles = ceil_div(seen.m, bm) * ceil_div(seen.n, bn) * seen.batch
    k_tiles = max(1, ceil_div(seen.k, bk))
    out_bytes = seen.d.dtype.bytes
    slices, products = (2, 3) if kernel.view.splits else (1, 1)
    each_bytes = slices * seen.a.dtype.bytes
    busy = min(ctas, device.multiprocessors)
    idea = kernel.instance.kernel
    waves_of_busiest = tiles / busy if idea == STREAM_K else ceil_div(tiles, busy)
    clock_ms = 1e3 / device.clock_hz
    rate = device.wgmma_tflops.get(problem.a.dtype.name, device.wgmma_tflops["float16"]) * 1e12
    rate *= device.sparse_gain if problem.a.sparse else 1.0
    math_clocks = products * 2 * bm * bn * bk / (rate / device.multiprocessors / device.clock_hz)
    reads = products * (bm + bm // ROWS * bn) * bk * seen.a.dtype.bytes
    writes = (bm + bn) * bk * each_bytes
    cm, cn = config.get("CM", 1), config.get("CN", 1)
    loaded = tiles * k_tiles * bk * each_bytes * (bm / cn + bn / cm)
    of_a, of_b = seen.operand_matrices
    once = (seen.m * of_a + seen.n * of_b) * seen.k * each_bytes
    d_bytes = seen.m * seen.n * seen.batch * out_bytes * (2 if seen.reads_matrix_c else 1)
    waves = ceil_div(tiles, busy)
    again = (
        once if once <= device.l2_bytes * L2_SHARE_FOR_OPERANDS else waves * busy**0.5 * (bm + bn) * seen.k * each_bytes
    )
    found = {
        "dram": (max(once, again) + d_bytes) / device.dram_bytes_per_s * 1e3,
        "l2": (loaded + d_bytes) / TMA_BYTES_PER_S * 1e3,
        "shared": waves_of_busiest * k_tiles * (reads + writes) / device.shared_bytes_per_clock_per_sm * clock_ms,
        "tensor": waves_of_busiest * k_tiles * math_clocks * clock_ms,
    }
    epilogue_clocks = 4 * bm * bn * out_bytes / device.shared_bytes_per_clock_per_sm
    exposed = (1 if idea == OVERLAPPED else waves_of_busiest) * epilogue_clocks
    promoted_after = TWO_LEVEL_K if idea == TWO_LEVEL else dict(kernel.instance.values).get("INTERVAL")
    if promoted_after:  # one warpgroup adds while the other's wgmmas run
        intervals = waves_of_busiest * k_tiles * bk / promoted_after
        found["issue"] = intervals * bm * bn / PROMOTED_PER_CLOCK * clock_ms
    if idea == STREAM_K and tiles % busy:
        found["l2"] += 2 * busy * bm * bn * seen.accumulator.bytes / TMA_BYTES_PER_S * 1e3
    found["latency"] = (
        (DRAM_LATENCY_CLOCKS * 2 + exposed) * clock_ms
        + max(found["tensor"], found["shared"])
        + (0 if not clustered else DRAM_LATENCY_CLOCKS * clock_ms)
    )
    return found
