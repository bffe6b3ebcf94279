"""The formulas of the roofline model (S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009).

A kernel that does I operations for each byte of a memory level runs at no more than I x the level's bandwidth, and at
no more than the peak of its arithmetic units. With several levels the lowest of these limits counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from warptile.problem import Problem
from warptile.roofline.published_gpus import LEVELS, PublishedGpu

TENSOR, CUDA = "tensor", "CUDA"
"""Limits that are no memory level: what tensor cores or CUDA cores can issue."""


@dataclass(frozen=True)
class Limit:
    """One roof above a kernel.

    Attributes:
        name: a memory level, or the arithmetic units.
        tflops: the most that this alone allows, in TFLOP/s.
    """

    name: str
    tflops: float


def limits(gpu: PublishedGpu, intensities: Mapping[str, float], units: str, peak_tflops: float) -> tuple[Limit, ...]:
    """Every roof above a kernel, the lowest first.

    Args:
        gpu: whose bandwidths count; a level without one is no roof.
        intensities: FLOP per byte by memory level.
        units: name of the arithmetic units.
        peak_tflops: what these do at most.
    """
    found = [Limit(units, peak_tflops)]
    for level in LEVELS:
        bandwidth = gpu.bandwidth(level)
        if level in intensities and bandwidth is not None:
            found.append(Limit(level, intensities[level] * bandwidth.value / 1e12))
    return tuple(sorted(found, key=lambda limit: limit.tflops))


def tile_intensity(bm: int, bn: int, element_bytes: float, *, a_density: float = 1.0) -> float:
    """FLOP per byte of operands of a CTA that computes BM x BN of D: 2 BM BN over (BM + BN) elements, at every k.

    For elements of two bytes this is BM BN / (BM + BN); K plays no part.
    """
    return 2 * bm * bn / ((a_density * bm + bn) * element_bytes)


def ideal_bytes(problem: Problem) -> float:
    """Bytes of every matrix once: the least that a kernel moves to and from DRAM; a sparse A without metadata."""
    a, b = problem.operand_matrices
    stored = 0.5 if problem.a.sparse else 1.0
    operands = (a * problem.m * stored + b * problem.n) * problem.k * problem.a.dtype.bytes
    of_d = problem.batch * problem.m * problem.n * problem.d.dtype.bytes
    return operands + of_d * (2 if problem.reads_matrix_c else 1)


def ideal_intensity(problem: Problem) -> float:
    """FLOP per byte of `ideal_bytes`; 0 of a problem without elements."""
    moved = ideal_bytes(problem)
    return problem.flops / moved if moved else 0.0
