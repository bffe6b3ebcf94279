"""Predicted time of a Hopper rung before the last: what `warptile.predict` does, for blocks that stay and operands that
TMA brings. The last one, `wgmma-final`, has costs of its own: `warptile.rungs.wgmma_cost`.

A block computes BM x BN of D in steps of BK; copies and products, and in the later rungs stores, go on at one time.

* dram: operands and D once, operands again for each wave that L2 cannot serve.
* l2: (1 / BM + 1 / BN) elements a multiply-add, of the cluster's tile, which shares what it loads.
* shared: 128 bytes a clock: what TMA writes, and what the tensor cores read: A once, B once for every 64 rows.
* tensor: multiply-adds of whole tiles at the issue rate of ``wgmma``, for the multiprocessor with the most tiles.
* epilogue: D through shared memory, where nothing hides it.
* latency: the first stage's way from DRAM, and the launch.
"""

from __future__ import annotations

from math import prod

from warptile.arch import Device
from warptile.problem import Problem
from warptile.rungs.legality import ceil_div
from warptile.rungs.rung import Config, Rung

DRAM_LATENCY_CLOCKS = 1000
"""Clocks from a tensor copy to its bytes in shared memory. An assumption near published Hopper microbenchmarks."""

TMA_BYTES_PER_S = 10e12
"""From L2 to shared memory, all multiprocessors together. An estimate: wgmma-specialized with tiles of 128 x 128 moved
9 TB/s (580 TFLOP/s at 4096^3 on an H200); requests of neighbouring multiprocessors for the same lines are joined."""

L2_SHARE_FOR_OPERANDS = 0.6
"""Share of L2 that operands can count on: two halves keep some lines twice. An assumption."""

ROWS = 64


def terms(rung: Rung, problem: Problem, config: Config, device: Device) -> dict[str, float]:
    """Milliseconds for each resource."""
    view = rung.view(problem, config)
    seen = view.problem
    bm, bn, bk = config["BM"], config["BN"], config["BK"]
    cluster = prod(rung.cluster(problem, config))
    blocks = prod(rung.grid(problem, config))
    tiles = ceil_div(seen.m, bm) * ceil_div(seen.n, bn) * seen.batch
    steps = max(1, ceil_div(seen.k, bk))
    each_bytes, out_bytes = seen.a.dtype.bytes, seen.d.dtype.bytes
    busy = min(blocks, device.multiprocessors)
    turns = ceil_div(tiles, busy)
    clock_ms = 1e3 / device.clock_hz
    rate = device.wgmma_tflops.get(problem.a.dtype.name, device.wgmma_tflops["float16"]) * 1e12
    rate *= device.sparse_gain if problem.a.sparse else 1.0
    math_clocks = 2 * bm * bn * bk / (rate / device.multiprocessors / device.clock_hz)
    reads = (bm + bm // ROWS * bn) * bk * each_bytes
    writes = (bm + bn) * bk * each_bytes
    cm, cn = config.get("CM", 1), config.get("CN", 1)
    loaded = tiles * steps * bk * each_bytes * (bm / cn + bn / cm)
    of_a, of_b = seen.operand_matrices
    once = (seen.m * of_a + seen.n * of_b) * seen.k * each_bytes
    d_bytes = seen.m * seen.n * seen.batch * out_bytes * (1 if seen.c is None else 2)
    waves = ceil_div(tiles, busy)
    again = (
        once if once <= device.l2_bytes * L2_SHARE_FOR_OPERANDS else waves * busy**0.5 * (bm + bn) * seen.k * each_bytes
    )
    found = {
        "dram": (max(once, again) + d_bytes) / device.dram_bytes_per_s * 1e3,
        "l2": (loaded + d_bytes) / TMA_BYTES_PER_S * 1e3,
        "shared": turns * steps * (reads + writes) / device.shared_bytes_per_clock_per_sm * clock_ms,
        "tensor": turns * steps * math_clocks * clock_ms,
    }
    epilogue_clocks = 4 * bm * bn * out_bytes / device.shared_bytes_per_clock_per_sm
    found["latency"] = (
        (DRAM_LATENCY_CLOCKS * 2 + turns * epilogue_clocks) * clock_ms
        + max(found["tensor"], found["shared"])
        + (0 if cluster == 1 else DRAM_LATENCY_CLOCKS * clock_ms)
    )
    return found
