"""The pictures of docs/roofline.md as data: the rungs below the roofs of the GPU they ran on, level by level, and all
GPUs with the intensities that the source texts name. `warptile.roofline.roofline_svg` draws them."""

from __future__ import annotations

from collections.abc import Sequence

from warptile.arch import H200
from warptile.roofline.chart_data import Ceiling, Guide, Mark, Picture, Roof
from warptile.roofline.published_gpus import DRAM, GPUS, LEVEL_NAMES, REFERENCE_GPU, PublishedGpu
from warptile.roofline.rung_points import RungPoint

TERA = 1e12

SAME = 0.99
"""Peaks that differ by less are named together."""


def rungs_picture(points: Sequence[RungPoint], level: str, gpu: PublishedGpu = REFERENCE_GPU) -> Picture:
    """The rungs over FLOP per byte of one memory level, below the roofs of the GPU that they were measured on.

    Args:
        points: those without an intensity at the level are left out; those without a speed are drawn at their roofs.
        level: a memory level whose bandwidth is known.
        gpu: the GPU.
    """
    bandwidth = gpu.bandwidth(level)
    assert bandwidth is not None, level
    shown = [point for point in points if level in point.intensities]
    speeds = [point.attainable_tflops if point.tflops is None else point.tflops for point in shown]
    name = LEVEL_NAMES[level]
    speed = f"{bandwidth.value / TERA:.3g} TB/s"
    highest, peak = _highest(gpu)
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
        ceilings=_ceilings(gpu),
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


def _peak(gpu: PublishedGpu, dtype: str) -> float:
    return (gpu.peak(dtype) or 0.0) / TERA


def _highest(gpu: PublishedGpu) -> tuple[str, float]:
    """The highest peak that a rung may have, and of what it is."""
    sparse = (gpu.peak("float16", sparse=True) or 0.0) / TERA
    named = {"FP16": _peak(gpu, "float16"), "FP16 2:4": sparse, "FP8": _peak(gpu, "float8_e4m3")}
    most = max(named.values())
    return ", ".join(name for name, peak in named.items() if peak > SAME * most), most


def _ceilings(gpu: PublishedGpu) -> list[Ceiling]:
    """Peaks below the highest; on the reference GPU also what its instructions were measured to issue."""
    dense = _peak(gpu, "float16")
    found = [Ceiling(f"FP16 dense: {dense:.4g}", dense)] if dense < _highest(gpu)[1] else []
    if gpu is REFERENCE_GPU:
        wgmma, mma, fp32 = H200.wgmma_tflops["float16"], H200.tensor_tflops["float16"], H200.fp32_tflops
        found += [
            Ceiling(f"wgmma, measured: {wgmma:.0f}", wgmma),
            Ceiling(f"mma.sync, measured: {mma:.0f}", mma),
            Ceiling(f"FP32, measured: {fp32:.4g}", fp32),
        ]
    else:
        found.append(Ceiling(f"FP32: {_peak(gpu, 'float32'):.4g}", _peak(gpu, "float32")))
    return found
