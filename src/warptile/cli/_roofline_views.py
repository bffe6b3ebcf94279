"""What ``warptile roofline`` prints: the chart and table of rungs, figures of GPUs, one's own problem, derivations."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape

from warptile.arch import ARCHES
from warptile.arrays.operands import OUTPUTS
from warptile.cli._tables import Column, said_of, show
from warptile.dtypes import DTYPES
from warptile.errors import DTypeError, UnsupportedError
from warptile.problem import Problem
from warptile.roofline.intensity import ideal_bytes, ideal_intensity
from warptile.roofline.own_problem import roofs_over
from warptile.roofline.pictures import rungs_picture
from warptile.roofline.published_gpus import (
    CUDA_CORES,
    DRAM,
    L2,
    LEVELS,
    PEAK_NAMES,
    REFERENCE_GPU,
    SHARED,
    PublishedGpu,
    Quantity,
)
from warptile.roofline.rung_points import RungPoint
from warptile.roofline.source_texts import SOURCES, readings
from warptile.roofline.text_chart import ASCII, keys, symbols_for, text_chart

SCHEMA = "warptile.roofline/1"
WIDTH = 100
"""Columns where the output is no terminal."""

CHART_LINES = 20
SHORT_NAMES = {SHARED: "shared", L2: "L2", DRAM: "DRAM"}
"""Of memory levels, in columns."""

PREDICTED = "~"
"""Before an intensity whose bytes are predicted."""

PAGE = "docs/roofline.md"


def _json(document: dict[str, Any]) -> None:
    text = msgspec.json.format(msgspec.json.encode({"schema": SCHEMA, **document}), indent=2).decode()
    sys.stdout.write(text + "\n")


def _say(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False)


def short(value: float | None) -> str:
    """Three digits, whole from 100 on; a dash for nothing."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


# --- rungs -----------------------------------------------------------------------------------------------------------


def rungs(
    console: Console, found: Sequence[RungPoint], level: str, gpu: PublishedGpu, *, in_ascii: bool = False
) -> None:
    """Print the chart of one memory level, the table of all levels, and what they leave out."""
    picture = rungs_picture(found, level, gpu)
    symbols = ASCII if in_ascii else symbols_for(console.encoding)
    console.print(picture.title, style="bold", highlight=False)
    console.print()
    for line in text_chart(picture, console.width, CHART_LINES, symbols):
        console.print(line, markup=False, highlight=False, no_wrap=True, crop=False, overflow="ignore")
    console.print()
    roofs = [roof.slope_name for roof in picture.roofs] + [f"{roof.name} TFLOP/s" for roof in picture.roofs]
    ceilings = "; ".join(ceiling.name for ceiling in picture.ceilings)
    _say(console, [f"roof {'; '.join(roofs)}{f'.  Dashed, TFLOP/s: {ceilings}' if ceilings else ''}", ""])
    speeds = "roof and recorded speed in TFLOP/s" if gpu is REFERENCE_GPU else "roof in TFLOP/s"
    left_out = show(console, f"FLOP per byte at each memory level; {speeds}", columns(found, gpu))
    console.print()
    _say(console, [*notes(found, gpu), *said_of(left_out, "a wider terminal or --json has them")])


def columns(found: Sequence[RungPoint], gpu: PublishedGpu) -> list[Column]:
    """The table's columns; on a GPU without records those of speeds are missing."""

    def intensity(point: RungPoint, level: str) -> str:
        mark = PREDICTED if level in point.predicted else ""
        return f"{mark}{short(point.intensities[level])}" if level in point.intensities else "-"

    made = [
        Column("", keys(found)),
        Column("rung", [point.rung for point in found], left=True),
        Column("type", [DTYPES[point.problem.dtype].ptx for point in found], rank=3, left=True),
        *(Column(SHORT_NAMES[level], [intensity(point, level) for point in found]) for level in LEVELS),
        Column("limit", [SHORT_NAMES.get(point.bound, point.bound) for point in found], left=True),
        Column("roof", [short(point.attainable_tflops) for point in found], rank=1),
    ]
    if gpu is REFERENCE_GPU:
        made += [
            Column("speed", [short(point.tflops) for point in found], rank=2),
            Column("share", ["-" if point.share is None else f"{point.share:.0%}" for point in found]),
        ]
    return made


def notes(found: Sequence[RungPoint], gpu: PublishedGpu) -> list[str]:
    """What the table leaves out."""
    lines = [
        f"shared: with L1.  {PREDICTED} bytes predicted; others are counted.  roof: the lowest of peak and bandwidth x "
        f"FLOP per byte, at {gpu.boost_hz.value / 1e9:.2f} GHz.  limit: what that roof is of."
        f"{'  share: speed over roof.' if gpu is REFERENCE_GPU else ''}"
    ]
    if gpu is REFERENCE_GPU:
        names, records = ({getattr(each.source, what) for each in found} for what in ("gpu", "record"))
        lines.append(f"recorded: {', '.join(sorted(names))}; {', '.join(sorted(records))}")
        above = [f"{point.rung} ({point.share:.0%})" for point in found if point.share is not None and point.share > 1]
        lines += [f"Above its roof: {', '.join(above)}; {PAGE} says why."] if above else []
    else:
        lines.append(
            f"Nothing was recorded on the {gpu.name}: points are at their roofs, with the bytes of the tiles on the "
            f"{REFERENCE_GPU.name}. mma and wmma may not reach the peak of GPUs that have wgmma or tcgen05."
        )
        if gpu.generation.name not in ARCHES:
            lines.append(f"The {gpu.name} is older than what warptile compiles for: no rung runs there today.")
        if gpu.l2 is None:
            lines.append(f"No source gives the L2 bandwidth of the {gpu.name}: L2 is none of its roofs here.")
    return [*lines, f"More: warptile roofline --list, warptile roofline --derive, {PAGE}"]


def rungs_json(found: Sequence[RungPoint], gpu: PublishedGpu) -> None:
    """Print the points as a document."""
    _json({
        "gpu": _gpu_document(gpu),
        "rungs": [
            {
                "rung": point.rung, "m": point.problem.m, "n": point.problem.n, "k": point.problem.k,
                "dtype": point.problem.dtype, "accumulator": point.problem.accumulator,
                "sparse": point.problem.sparse, "flop_per_byte": point.intensities, "predicted": point.predicted,
                "roofs_tflops": {limit.name: limit.tflops for limit in point.limits}, "limited_by": point.bound,
                "attainable_tflops": point.attainable_tflops, "recorded_tflops": point.tflops, "share": point.share,
                "sm_clock_mhz": point.sm_clock_mhz, "record": point.source.record if point.tflops else None,
            }
            for point in found
        ],
    })  # fmt: skip


# --- GPUs ------------------------------------------------------------------------------------------------------------


def listing(console: Console, gpus: Sequence[PublishedGpu], *, as_json: bool) -> None:
    """Print the figures of some GPUs, and then the source of each."""
    if as_json:
        _json({"gpus": [_gpu_document(gpu) for gpu in gpus]})
        return

    def tera(figure: Quantity | None) -> str:
        return short(figure.value / 1e12) if figure is not None else "-"

    made = [
        Column("GPU", [gpu.name for gpu in gpus], left=True),
        Column("SMs", [str(gpu.limits.multiprocessors) for gpu in gpus]),
        Column("GHz", [f"{gpu.boost_hz.value / 1e9:.2f}" for gpu in gpus], rank=1),
        Column("W", [f"{gpu.power_w.value:.0f}" for gpu in gpus], rank=2),
        Column("DRAM\nTB/s", [tera(gpu.dram) for gpu in gpus]),
        Column("L2\nTB/s", [tera(gpu.l2) for gpu in gpus]),
        Column("shared\nTB/s", [tera(gpu.shared) for gpu in gpus]),
        *(
            Column(name, [tera(gpu.peaks.get(dtype)) for gpu in gpus], rank=3 if dtype in ("half2", "bfloat16") else 0)
            for dtype, name in PEAK_NAMES.items()
        ),
    ]
    left_out = show(console, "Published peaks, dense, TFLOP/s or TOP/s", made)
    console.print()
    cores = ", ".join(PEAK_NAMES[name] for name in CUDA_CORES)
    _say(
        console, [f"{cores}: CUDA cores; other types: tensor cores.  shared: SMs x bytes per clock x boost clock.", ""]
    )
    for gpu in gpus:
        _say(console, _sources(gpu))
    _say(console, said_of(left_out, "a wider terminal or --json has them"))


def _sources(gpu: PublishedGpu) -> list[str]:
    """The heading of a GPU and a line for each source and place in it."""
    limits, arch = gpu.limits, gpu.generation
    of: dict[tuple[str, str, bool], list[str]] = {}
    for name, figure in gpu.figures.items():
        of.setdefault((f"{figure.source.title}, {figure.source.place}", figure.where, figure.measured), []).append(name)
    return [
        f"{gpu.name}: {gpu.product}, {arch.name}, {limits.multiprocessors} SMs, {limits.l2_bytes / 2**20:.3g} MiB of "
        f"L2, {arch.shared_bytes_per_sm // 1024} KiB of shared memory per SM",
        *(
            f"  {', '.join(names)}: {source}: {where}{' (measured)' if measured else ''}"
            for (source, where, measured), names in of.items()
        ),
        "",
    ]


def _gpu_document(gpu: PublishedGpu) -> dict[str, Any]:
    return {
        "name": gpu.name, "product": gpu.product, "arch": gpu.generation.name,
        "multiprocessors": gpu.limits.multiprocessors, "l2_bytes": gpu.limits.l2_bytes,
        "shared_bytes_per_sm": gpu.generation.shared_bytes_per_sm,
        "figures": {
            name: {
                "value": figure.value, "source": f"{figure.source.title}, {figure.source.place}",
                "where": figure.where, "measured": figure.measured,
            }
            for name, figure in gpu.figures.items()
        },
    }  # fmt: skip


# --- a problem of one's own ------------------------------------------------------------------------------------------


def own_problem(
    console: Console, gpus: Sequence[PublishedGpu], size: tuple[int, int, int], dtype: str, *, as_json: bool
) -> None:
    """Print the least time of a problem on some GPUs.

    Raises:
        DTypeError: a type that matmul does not multiply.
        UnsupportedError: none of the GPUs has units for it.
    """
    if dtype not in OUTPUTS:
        raise DTypeError(f"--dtype: got {dtype}; matmul multiplies {', '.join(OUTPUTS)}, such as --dtype float16")
    element = DTYPES[dtype]
    out, accumulator = DTYPES[OUTPUTS[dtype][0]], DTYPES[element.accumulators[0]]
    problem = Problem.dense(*size, element, out=out, accumulator=accumulator)
    found = roofs_over(problem, gpus)
    if not found:
        names = ", ".join(gpu.name for gpu in gpus)
        raise UnsupportedError(f"--dtype: got {dtype}, of which no peak is published for {names}; try --dtype float16")
    moved, intensity = ideal_bytes(problem), ideal_intensity(problem)
    m, n, k = size
    largest = max(each.gpu.limits.l2_bytes for each in found)
    if as_json:
        _json({
            "m": m, "n": n, "k": k, "dtype": dtype, "out": out.name, "flops": problem.flops, "bytes": moved,
            "flop_per_byte": intensity,
            "gpus": [
                {
                    "gpu": each.gpu.name, "peak_tflops": each.peak_tflops, "ridge_flop_per_byte": each.ridges,
                    "limited_by": each.bound, "attainable_tflops": each.attainable_tflops,
                    "milliseconds": each.milliseconds,
                }
                for each in found
            ],
        })  # fmt: skip
        return
    made = [
        Column("GPU", [each.gpu.name for each in found], left=True),
        Column("peak\nTFLOP/s", [short(each.peak_tflops) for each in found]),
        *(
            Column(f"ridge\n{SHORT_NAMES[level]}", [short(each.ridges.get(level)) for each in found], rank=rank)
            for level, rank in ((SHARED, 2), (L2, 1), (DRAM, 0))
        ),
        Column("limit", [SHORT_NAMES.get(each.bound, each.bound) for each in found], left=True),
        Column("roof\nTFLOP/s", [short(each.attainable_tflops) for each in found]),
        Column("least\ntime", [duration(each.milliseconds) for each in found]),
    ]
    left_out = show(console, f"D[{m}, {n}] = A[{m}, {k}] @ B[{k}, {n}], {dtype}", made)
    console.print()
    what = f"{quantity(problem.flops, 'FLOP')} and {quantity(moved, 'B')}, each matrix once"
    _say(console, [
        f"{what}: {short(intensity)} FLOP per byte of DRAM. D is {out.name}.",
        "ridge: FLOP per byte from which on a level is no limit.  least time: by published peaks; no kernel is faster.",
        *(["Where L2 holds the operands already, DRAM is no limit."] if moved < largest else []),
        *said_of(left_out, "a wider terminal or --json has them"),
    ])  # fmt: skip


def duration(milliseconds: float) -> str:
    """In the unit that suits."""
    for factor, unit in ((1e6, "ns"), (1e3, "us"), (1.0, "ms")):
        if milliseconds * factor < 1000:
            return f"{milliseconds * factor:.3g} {unit}"
    return f"{milliseconds / 1e3:.3g} s"


def quantity(value: float, unit: str) -> str:
    """With a decimal prefix."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.0f} {unit}"


# --- derivations -----------------------------------------------------------------------------------------------------


def derivation(console: Console, *, as_json: bool) -> None:
    """Print the readings of T0's figures."""
    found = readings()
    if as_json:
        _json({
            "readings": [
                {
                    "figure": each.figure, "value": each.value, "agrees": each.agrees, "meaning": each.meaning,
                    "formula": each.formula, "source": each.source,
                }
                for each in found
            ]
        })  # fmt: skip
        return
    made = [
        Column("T0\nsays", [f"{each.figure:g}" for each in found]),
        Column("what is computed", [escape(each.meaning) for each in found], left=True, least=22),
        Column("how", [escape(each.formula) for each in found], left=True, least=20),
        Column("FLOP/B", [f"{each.value:.1f}" for each in found]),
        Column("it", ["yes" if each.agrees else "no" for each in found], left=True),
    ]
    last = [index for index, (one, other) in enumerate(pairwise(found)) if one.figure != other.figure]
    show(console, 'FLOP per byte of T0, "Tensor cores I: the WMMA GEMM"', made, sections=last)
    console.print()
    _say(console, [
        "it: this reading gives T0's figure, decimals cut.",
        *(f"{name}: {source.title}, {source.place}" for name, source in SOURCES.items()),
    ])  # fmt: skip
