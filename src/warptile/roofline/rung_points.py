"""The rungs as points of a roofline: recorded speeds over FLOP per byte of each memory level.

Everything comes from the summary of measurements that ships (`warptile.measured`), so that an installed package shows
the same points as a checkout. Rungs were measured on the reference GPU. On another GPU a point has its intensities,
which belong to the kernel and its tiles, and the roofs above them, and no speed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from warptile.arch import H200
from warptile.dtypes import DTYPES
from warptile.measured import MeasuredProblem, MeasuredRung, MeasuredSource, MeasuredSummary
from warptile.roofline.intensity import CUDA, TENSOR, Limit, limits
from warptile.roofline.published_gpus import HALF2, LEVELS, REFERENCE_GPU, PublishedGpu
from warptile.rungs import RUNGS
from warptile.rungs.rung import Rung

SIZE = 4096
"""Extent of the ladder's main chart."""

USUAL_TYPES = {"simt": ("float32", "float32"), "wmma": ("float16", "float32"), "mma": ("float16", "float32"),
               "wgmma": ("bfloat16", "float32")}  # fmt: skip
"""Operand and accumulator types in which the main chart shows a family, where a rung takes them."""


def issue_tflops(rung: Rung, dtype: str, *, sparse: bool = False) -> float:
    """TFLOP/s (TOP/s) at which the reference GPU was measured to issue a rung's instruction on operands of a type."""
    if rung.family == "simt":
        return H200.fp32_tflops * rung.mechanism.packed
    if rung.family == "wgmma":
        if dtype not in H200.wgmma_tflops:  # float32 as two float16 slices: three products for one
            return H200.wgmma_tflops["float16"] / 3
        return H200.wgmma_tflops[dtype] * (H200.sparse_gain if sparse else 1.0)
    return H200.sparse_rate(dtype) if sparse else H200.tensor_rate(rung.family, dtype)


def usual_types(rung: Rung) -> tuple[str, str]:
    """Operand and accumulator types in which the main chart shows a rung."""
    dtype, accumulator = USUAL_TYPES[rung.family]
    if dtype not in rung.dtypes:
        dtype = rung.dtypes[0]
        accumulator = DTYPES[dtype].accumulators[0]
    return dtype, "float16" if rung.mechanism.packed > 1 else accumulator


def rate_name(rung: Rung, dtype: str) -> str:
    """Name of the published peak that a rung's instruction has: its type's, or that of half2 on CUDA cores."""
    return HALF2 if rung.family == "simt" and rung.mechanism.packed > 1 else dtype


@dataclass(frozen=True)
class RungPoint:
    """A rung on one problem below the roofs of one GPU.

    Attributes:
        rung: its name.
        problem: what was computed.
        gpu: whose roofs are meant.
        intensities: FLOP per byte by memory level; operations with a sparse operand's zeros count.
        predicted: levels whose bytes are predicted, and not counted.
        limits: every roof, the lowest first.
        tflops: recorded speed, or None on a GPU on which nothing was recorded.
        sm_clock_mhz: median SM clock meanwhile, if it was recorded.
        source: the record of the speed.
    """

    rung: str
    problem: MeasuredProblem
    gpu: PublishedGpu
    intensities: dict[str, float]
    predicted: tuple[str, ...]
    limits: tuple[Limit, ...]
    tflops: float | None
    sm_clock_mhz: float | None
    source: MeasuredSource

    @property
    def family(self) -> str:
        """The rung's family."""
        return RUNGS[self.rung].family

    @property
    def bound(self) -> str:
        """Name of the lowest roof."""
        return self.limits[0].name

    @property
    def attainable_tflops(self) -> float:
        """What the lowest roof allows."""
        return self.limits[0].tflops

    @property
    def share(self) -> float | None:
        """Recorded over attainable speed."""
        return self.tflops / self.attainable_tflops if self.tflops is not None else None


def points(
    summary: MeasuredSummary,
    gpu: PublishedGpu = REFERENCE_GPU,
    *,
    names: Sequence[str] = (),
    dtype: str | None = None,
    size: int = SIZE,
) -> list[RungPoint]:
    """The recorded rungs in the order of the ladder; those that the GPU cannot run are left out.

    Args:
        summary: the results that ship, or those of some records.
        gpu: whose roofs are meant.
        names: only these rungs; all by default.
        dtype: operand type; by default each rung's in the ladder's main chart.
        size: extent of the square problem.
    """
    found = []
    for name, rung in RUNGS.items():
        if (names and name not in names) or not runs_on(rung, gpu):
            continue
        element, accumulator = usual_types(rung) if dtype is None else (dtype, None)
        result = _result(summary.results, name, element, accumulator, size)
        point = _point(summary, gpu, rung, result) if result is not None else None
        found += [point] if point is not None else []
    return found


def sizes(summary: MeasuredSummary) -> tuple[int, ...]:
    """Extents of the recorded problems."""
    return tuple(sorted({result.problem.m for result in summary.results}))


def types(summary: MeasuredSummary) -> tuple[str, ...]:
    """Operand types of the recorded problems."""
    return tuple(dict.fromkeys(result.problem.dtype for result in summary.results))


def runs_on(rung: Rung, gpu: PublishedGpu) -> bool:
    """Whether a GPU has the instructions of a rung."""
    arch = gpu.generation
    return rung.only_arch == arch.name if rung.only_arch is not None else rung.min_arch <= arch.capability


def _result(
    results: Iterable[MeasuredRung], name: str, dtype: str, accumulator: str | None, size: int
) -> MeasuredRung | None:
    """A rung's result; of several accumulators the widest."""
    mine = [each for each in results if each.rung == name and each.problem.dtype == dtype and each.problem.m == size]
    mine = [each for each in mine if accumulator in (None, each.problem.accumulator)]
    return max(mine, key=lambda each: DTYPES[each.problem.accumulator].bits, default=None)


def _point(summary: MeasuredSummary, gpu: PublishedGpu, rung: Rung, result: MeasuredRung) -> RungPoint | None:
    problem, moved = result.problem, result.traffic
    peak = gpu.peak(rate_name(rung, problem.dtype), sparse=problem.sparse)
    if moved is None or peak is None:
        return None
    flops = 2.0 * problem.m * problem.n * problem.k
    found = {level: flops / value for level in LEVELS if (value := moved.bytes_at(level))}
    here = gpu is REFERENCE_GPU
    most = min(peak / 1e12, issue_tflops(rung, problem.dtype, sparse=problem.sparse)) if here else peak / 1e12
    return RungPoint(
        rung.name,
        problem,
        gpu,
        intensities=found,
        predicted=moved.predicted,
        limits=limits(gpu, found, CUDA if rung.family == "simt" else TENSOR, most),
        tflops=result.tflops if here else None,
        sm_clock_mhz=result.sm_clock_mhz if here else None,
        source=summary.sources[result.source],
    )
