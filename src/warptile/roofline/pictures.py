"""The pictures of docs/roofline.md as data: the rungs below the roofs of the GPU they ran on, level by level, and all
GPUs with the intensities that the source texts name. `warptile.roofline.roofline_svg` draws them."""

from __future__ import annotations

from collections.abc import Sequence

from warptile.roofline.chart_data import Ceiling, Guide, Mark, Picture, Roof
from warptile.roofline.published_gpus import (
    CUDA_CORES,
    DRAM,
    GPUS,
    LEVEL_NAMES,
    PEAK_NAMES,
    REFERENCE_GPU,
    PublishedGpu,
)
from warptile.roofline.rung_points import RungPoint, issue_tflops, rate_name
from warptile.rungs import RUNGS

TERA = 1e12

SAME = 0.99
"""Peaks that differ by less are named together."""

INSTRUCTIONS = {"wmma": "mma.sync", "mma": "mma.sync", "wgmma": "wgmma"}
"""What the families issue on tensor cores."""


def rungs_picture(points: Sequence[RungPoint], level: str, gpu: PublishedGpu = REFERENCE_GPU) -> Picture:
    """The rungs over FLOP per byte of one memory level, below the roofs of the GPU that they were measured on.

    Args:
        points: one at least; those without an intensity at the level are left out, and those without a speed are drawn
            at their roofs.
        level: a memory level whose bandwidth is known.
        gpu: the GPU.
    """
    bandwidth = gpu.bandwidth(level)
    assert bandwidth is not None, level
    shown = [point for point in points if level in point.intensities]
    speeds = [point.attainable_tflops if point.tflops is None else point.tflops for point in shown]
    name = LEVEL_NAMES[level]
    speed = f"{bandwidth.value / TERA:.3g} TB/s"
    highest, peak = next(iter(_rates(shown).items()))
    what = "on" if any(point.tflops is not None for point in shown) else "below the roofs of"
    sizes = " and ".join(dict.fromkeys(str(point.problem.m) for point in shown))
    return Picture(
        title=f"The ladder at {name} {what} the {gpu.name}: M = N = K = {sizes}",
        description=(
            f"Log-log plot. The roof rises with the {name} bandwidth of {speed}. {len(shown)} rungs from "
            f"{min(speeds, default=0.0):.1f} to {max(speeds, default=0.0):.1f} TFLOP/s; the table gives every value."
        ),
        x_name=f"FLOP per byte at {name}",
        roofs=(Roof(f"{highest}: {peak:.0f}", bandwidth.value / TERA, peak, f"{name}: {speed}"),),
        ceilings=_ceilings(shown, gpu),
        marks=[
            Mark(
                point.rung,
                point.intensities[level],
                tflops,
                point.family,
                f"{point.rung}: {point.intensities[level]:.3g} FLOP per byte, {tflops:.1f} TFLOP/s",
                hollow=level in point.predicted,
            )
            for point, tflops in zip(shown, speeds, strict=True)
        ],
    )


def gpus_picture(guides: Sequence[tuple[str, float]], dtype: str = "float16", level: str = DRAM) -> Picture:
    """The roofs of every GPU at one memory level, for tensor cores on operands of a type, and some intensities."""
    roofs = []
    for gpu in GPUS.values():
        peak, bandwidth = gpu.peak(dtype), gpu.bandwidth(level)
        if peak is not None and bandwidth is not None:
            ridge = peak / bandwidth.value
            name = f"{gpu.name}: {peak / TERA:.4g}, ridge {ridge:.0f}"
            roofs.append(Roof(name, bandwidth.value / TERA, peak / TERA, kind=gpu.name))
    return Picture(
        title=f"Rooflines of seven GPUs: {LEVEL_NAMES[level]}, FP16 tensor cores",
        description=(
            "Log-log plot of published peaks and bandwidths. Vertical lines are the intensities that the source texts "
            "name; a roof turns flat at the GPU's ridge point. The tables give every value."
        ),
        x_name=f"FLOP per byte at {LEVEL_NAMES[level]}",
        roofs=roofs,
        guides=[Guide(name, intensity) for name, intensity in guides],
    )


def _rates(points: Sequence[RungPoint]) -> dict[str, float]:
    """Published peaks that the points have, in TFLOP/s, the highest first; those that are nearly the same together."""
    names: dict[str, float] = {}
    for point in points:
        rate, sparse = rate_name(RUNGS[point.rung], point.problem.dtype), point.problem.sparse
        peak = point.gpu.peak(rate, sparse=sparse)
        assert peak is not None, point
        names[PEAK_NAMES.get(rate, rate) + (" 2:4" if sparse else "")] = peak / TERA
    found: list[tuple[list[str], float]] = []
    for name, peak in sorted(names.items(), key=lambda item: -item[1]):
        if found and peak > SAME * found[-1][1]:
            found[-1][0].append(name)
        else:
            found.append(([name], peak))
    return {", ".join(together): peak for together, peak in found}


def _issued(points: Sequence[RungPoint]) -> dict[str, float]:
    """What the points' instructions were measured to issue on dense operands, in TFLOP/s."""
    found = {}
    for point in points:
        rung, dtype = RUNGS[point.rung], point.problem.dtype
        if not point.problem.sparse:
            rate = PEAK_NAMES.get(rate_name(rung, dtype), dtype)
            name = rate if rung.family == "simt" else INSTRUCTIONS[rung.family]
            name += " FP8" if rate == "FP8" else ""
            found[f"{name}, measured"] = issue_tflops(rung, dtype)
    return found


def _ceilings(points: Sequence[RungPoint], gpu: PublishedGpu) -> list[Ceiling]:
    """Peaks below the highest; on the reference GPU what was measured, for CUDA cores instead of their peaks."""
    rates = list(_rates(points).items())[1:]
    if gpu is REFERENCE_GPU:
        cores = {PEAK_NAMES[name] for name in CUDA_CORES}
        rates = [(name, peak) for name, peak in rates if name not in cores] + list(_issued(points).items())
    return [Ceiling(f"{name}: {peak:.4g}", peak) for name, peak in rates]
