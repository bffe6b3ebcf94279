"""Predicted time of mma-unaligned, for many configurations at once.

* copies, fragments, stored: what the SM with the most CTAs does for all of them: copies of A and B to shared memory,
  loads of fragments and multiply-adds, and stores of D.
* latency: each round of as many CTAs as an SM holds waits for its K tiles, one after the other.
* occupancy: an SM with fewer CTAs than it could hold waits for its copies and stores instead of working on others.
* dram: operands and D once; launch: the launch.

The terms add up: so fits best. Constants are fitted to timings of 158 problems on an H200, batches and single ones in
all layouts and alignments, with some thirteen configurations each; operands came from DRAM, but those of small problems
from L2. Of the configurations that were timed, the one that is predicted to be the fastest needs 1.06 times as long as
the fastest in the mean, 1.7 times at most; predictions are within 20 % on seven of ten (2026-11-30, no record).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from warptile.arch import H200, arch
from warptile.problem import Operand, Problem
from warptile.rungs.legality import ceil_div
from warptile.rungs.tensor_tiles import VECTOR_BYTES, WARP_LANES, output_width

Sizes = Mapping[str, Any]
"""Tunables by name: numbers, or arrays with one for each configuration."""

SHIFTED_BELOW = 8
"""Bytes of alignment below which lines have a shift (kernels/tile/lines.cuh)."""

COPY, SHIFTED_COPY = 10.0, 20.0
LDMATRIX, LOAD, MMA = 1.5, 0.5, 0.3
VECTORS, REGISTERS = 5.2, 12.8
"""Clocks of an SM: for a warp's copy to shared memory, of lines without and with a shift; for its ldmatrix, load of
fragments and mma; and for its store of an element from each lane, in vectors and from registers."""

K_TILE, SHIFTED_K_TILE = 240.0, 95.0
"""Clocks that a round of CTAs waits for a K tile, and more where lines have a shift."""

UNOCCUPIED_COPIES, UNOCCUPIED_STORED = 2.6, 5.9
"""Multiples of the clocks of copies and fragments, and of lanes' stores, that an SM waits in proportion to the CTAs
that it could hold and has not."""

BYTES_PER_S, LAUNCH_US = 11.1e12, 1.43
"""Of operands and D: what is left of their time where SMs are busy, not a limit of the GPU. And of the launch."""

DRAM_BYTES_PER_S = 4.3e12
"""What DRAM delivers: no prediction is shorter."""


def stores_vectors(problem: Problem) -> bool:
    """Whether the kernel stores D in vectors through shared memory: where they have 8 bytes or more. Otherwise it
    stores registers."""
    return output_width(problem) * problem.d.dtype.bits >= 64


def terms_us(problem: Problem, sizes: Sizes, sms: int, shared_bytes: Any) -> tuple[dict[str, Any], Any]:
    """Microseconds of each term and of the whole kernel.

    Args:
        problem: what is computed.
        sizes: the configurations.
        sms: SMs of the GPU.
        shared_bytes: shared memory of a CTA of each configuration.
    """
    bm, bn, bk, wm, wn, tiles = (sizes[key] for key in ("BM", "BN", "BK", "WM", "WN", "TILES"))
    warps = bm * bn // (wm * wn)
    of_busiest = ceil_div(ceil_div(ceil_div(problem.m, bm) * ceil_div(problem.n, bn) * problem.batch, tiles), sms)
    held = np.minimum(arch("sm_90a").shared_bytes_per_sm // (shared_bytes + 1024), sizes["MIN_BLOCKS"])
    held = np.maximum(held, 1)
    rounds, k_tiles, all_tiles = ceil_div(of_busiest, held), ceil_div(problem.k, bk), of_busiest * tiles
    unoccupied = np.maximum(0.0, 1 - of_busiest / held)

    copies_a, fragments_a = _operand_clocks(problem.a, problem.a.major == "row", bm, bk, wm)
    copies_b, fragments_b = _operand_clocks(problem.b, problem.b.major == "col", bn, bk, wn)
    products = MMA * (wm // 16) * (wn // 8) * (bk // 16)
    copies = all_tiles * k_tiles * (copies_a + copies_b)
    fragments = all_tiles * k_tiles * warps * (fragments_a + fragments_b + products)
    lanes = all_tiles * bm * bn / WARP_LANES
    stored = lanes * (VECTORS if stores_vectors(problem) else REGISTERS)
    shifted = _is_shifted(problem.a) or _is_shifted(problem.b)
    of_d = problem.d.dtype.bits // 8 * (2 if problem.reads_matrix_c else 1)
    moved = (2 * (problem.m + problem.n) * problem.k + of_d * problem.m * problem.n) * problem.batch
    us = 1e6 / H200.clock_hz
    found = {
        "copies": copies * us,
        "fragments": fragments * us,
        "stored": stored * us,
        "latency": rounds * k_tiles * (K_TILE + SHIFTED_K_TILE * shifted) * us,
        "occupancy": unoccupied * (UNOCCUPIED_COPIES * (copies + fragments) + UNOCCUPIED_STORED * lanes) * us,
        "dram": moved / BYTES_PER_S * 1e6,
        "launch": LAUNCH_US,
    }
    return found, np.maximum(sum(found.values()), moved / DRAM_BYTES_PER_S * 1e6 + LAUNCH_US)


def _operand_clocks(operand: Operand, k_major: bool, extent: Any, bk: Any, of_warp: Any) -> tuple[Any, Any]:
    """Clocks of the copies of an operand's tile, and of a warp's loads of its fragments."""
    shifted, narrow = _is_shifted(operand), operand.alignment_bytes == SHIFTED_BELOW
    lines, elements = (extent, bk) if k_major else (bk, extent)
    of_line = elements * 2 // (SHIFTED_BELOW if narrow else VECTOR_BYTES) + shifted
    copies = lines * of_line / WARP_LANES * (SHIFTED_COPY if shifted else COPY)
    loads = LDMATRIX if not shifted else LOAD * (4 if k_major and operand.alignment_bytes == 4 else 8)
    return copies, of_warp // 16 * (bk // 16) * loads


def _is_shifted(operand: Operand) -> bool:
    return operand.alignment_bytes < SHIFTED_BELOW
