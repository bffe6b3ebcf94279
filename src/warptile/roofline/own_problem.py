"""A problem of one's own below the rooflines of the GPUs: the best that any kernel could do there.

Every matrix is read or written once, so only DRAM and the arithmetic units count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from warptile.problem import Problem
from warptile.roofline.intensity import CUDA, TENSOR, ideal_intensity, limits
from warptile.roofline.published_gpus import CUDA_CORES, DRAM, LEVELS, PublishedGpu


@dataclass(frozen=True)
class ProblemRoof:
    """What a GPU allows.

    Attributes:
        gpu: the GPU.
        peak_tflops: of the operand type.
        ridges: FLOP per byte from which on a memory level is no limit, by level.
        bound: DRAM or the arithmetic units, whichever is slower.
        attainable_tflops: the most that they allow.
        milliseconds: the time at that speed.
    """

    gpu: PublishedGpu
    peak_tflops: float
    ridges: dict[str, float]
    bound: str
    attainable_tflops: float
    milliseconds: float


def roofs_over(problem: Problem, gpus: Iterable[PublishedGpu]) -> list[ProblemRoof]:
    """What each GPU allows at most; those without units for the operand type are left out."""
    name = problem.a.dtype.name
    found = []
    for gpu in gpus:
        peak = gpu.peak(name, sparse=problem.a.sparse)
        if peak is None:
            continue
        units = CUDA if name in CUDA_CORES else TENSOR
        lowest = limits(gpu, {DRAM: ideal_intensity(problem)}, units, peak / 1e12)[0]
        ridges = {level: ridge for level in LEVELS if (ridge := gpu.ridge(name, level)) is not None}
        time_ms = problem.flops / (lowest.tflops * 1e9) if lowest.tflops else 0.0
        found.append(ProblemRoof(gpu, peak / 1e12, ridges, lowest.name, lowest.tflops, time_ms))
    return found
