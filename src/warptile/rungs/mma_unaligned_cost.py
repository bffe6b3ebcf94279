"""Predicted time of mma-unaligned, for many configurations at once.

* copies, fragments, stored: what the SM with the most CTAs does for all of them: copies of A and B to shared memory,
  loads of fragments with their multiply-adds, and stores of D.
* latency: each round of as many CTAs as an SM holds waits for its K tiles, one after the other, and a warp starts its
  copies of one after each other.
* dram: operands and D once; launch: the launch.

The terms add up: so fits as well as any other sum. Constants are fitted to timings of 171 problems on an H200, batches
and single ones in all layouts and alignments, with some eleven configurations each and operands from DRAM. Of the
configurations that were timed, the one that is predicted to be the fastest needs 1.06 times as long as the fastest in
the mean, 1.6 times at most; predictions are within 20 % on 86 of a hundred (2026-11-30, no record).
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

COPY, SHIFTED_COPY = 4.05, 11.1
LDMATRIX, PAIRED_LOADS, LOADS = 4.0, 8.1, 10.3
"""Clocks of an SM: for a warp's copy to shared memory, of lines without and with a shift; and for its ldmatrix, or
loads that find two elements in a word or in two, with the multiply-adds of what they load."""

PAIRS, ELEMENTS, REGISTERS = 5.2, 7.1, 5.5
"""Clocks of an SM for an element of D from each lane of a warp, put into shared memory by twos or alone, or stored
from registers."""

K_TILE, STARTED_COPY = 240.0, 44.0
"""Clocks that a round of CTAs waits for a K tile, and for each copy that a warp starts; twice that with a shift."""

BYTES_PER_S, LAUNCH_US = 7.1e12, 1.34
"""Of operands and D: what is left of their time where SMs are busy, not a limit of the GPU. And of the launch."""

DRAM_BYTES_PER_S = 4.3e12
"""What DRAM delivers: no prediction is shorter."""

SM = arch("sm_90a")
"""What an SM holds of the GPUs that constants are fitted to."""


def terms_us(
    problem: Problem, sizes: Sizes, sms: int, shared_bytes: Any, from_registers: Any
) -> tuple[dict[str, Any], Any]:
    """Microseconds of each term and of the whole kernel.

    Args:
        problem: what is computed.
        sizes: the configurations.
        sms: SMs of the GPU.
        shared_bytes: shared memory of a CTA of each configuration.
        from_registers: whether D is stored from registers.
    """
    bm, bn, bk, wm, wn, tiles = (sizes[key] for key in ("BM", "BN", "BK", "WM", "WN", "TILES"))
    warps = bm * bn // (wm * wn)
    of_busiest = ceil_div(ceil_div(ceil_div(problem.m, bm) * ceil_div(problem.n, bn) * problem.batch, tiles), sms)
    held = np.minimum(SM.shared_bytes_per_sm // (shared_bytes + SM.reserved_shared_bytes), SM.max_blocks_per_sm)
    held = np.maximum(np.minimum(held, SM.max_warps_per_sm // (warps * tiles)), 1)
    rounds, k_tiles, all_tiles = ceil_div(of_busiest, held), ceil_div(problem.k, bk), of_busiest * tiles

    a, b = problem.a, problem.b
    copies_a, copies_b = _copies(a, a.major == "row", bm, bk), _copies(b, b.major == "col", bn, bk)
    shifted_a, shifted_b = _is_shifted(a), _is_shifted(b)
    copies = copies_a * (SHIFTED_COPY if shifted_a else COPY) + copies_b * (SHIFTED_COPY if shifted_b else COPY)
    started = (copies_a * (1 + shifted_a) + copies_b * (1 + shifted_b)) / warps
    fragments = wm // 16 * _load_clocks(a, a.major == "row") + wn // 16 * _load_clocks(b, b.major == "col")
    by_twos = PAIRS if output_width(problem) > 1 else ELEMENTS
    stored = bm * bn / WARP_LANES * np.where(from_registers, REGISTERS, by_twos)
    of_d = problem.d.dtype.bits // 8 * (2 if problem.reads_matrix_c else 1)
    moved = (2 * (problem.m + problem.n) * problem.k + of_d * problem.m * problem.n) * problem.batch
    us = 1e6 / H200.clock_hz
    found = {
        "copies": all_tiles * k_tiles * copies * us,
        "fragments": all_tiles * k_tiles * warps * (bk // 16) * fragments * us,
        "stored": all_tiles * stored * us,
        "latency": rounds * k_tiles * (K_TILE + STARTED_COPY * started) * us,
        "dram": moved / BYTES_PER_S * 1e6,
        "launch": LAUNCH_US,
    }
    return found, np.maximum(sum(found.values()), moved / DRAM_BYTES_PER_S * 1e6 + LAUNCH_US)


def _copies(operand: Operand, k_major: bool, extent: Any, bk: Any) -> Any:
    """A warp's copies of an operand's tile."""
    lines, elements = (extent, bk) if k_major else (bk, extent)
    each = SHIFTED_BELOW if operand.alignment_bytes == SHIFTED_BELOW else VECTOR_BYTES
    return lines * (elements * 2 // each + _is_shifted(operand)) / WARP_LANES


def _load_clocks(operand: Operand, k_major: bool) -> float:
    """Clocks of a warp's loads of a 16-tile."""
    if not _is_shifted(operand):
        return LDMATRIX
    return PAIRED_LOADS if k_major and operand.alignment_bytes >= 4 else LOADS


def _is_shifted(operand: Operand) -> bool:
    return operand.alignment_bytes < SHIFTED_BELOW
