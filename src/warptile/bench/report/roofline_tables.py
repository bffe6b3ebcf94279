"""Tables and pictures of docs/roofline.md: published figures of GPUs with their sources, the rungs below the roofs of
the GPU that they were measured on, and the readings of the source texts' figures."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from warptile.bench.profiling import ncu_metrics as metrics
from warptile.bench.protocol.workloads import BF16, E4M3, F16_F16, F16_F32, F32, square
from warptile.bench.report.markdown import TableRow, markdown, number
from warptile.bench.report.record_lookup import NO_RECORD, RecordLookup
from warptile.bench.report.rung_traffic import traffic
from warptile.measured import MeasuredSummary
from warptile.roofline.pictures import gpus_picture, rungs_picture
from warptile.roofline.published_gpus import (
    GPUS,
    HALF2,
    LEVEL_NAMES,
    LEVELS,
    PublishedGpu,
    Quantity,
)
from warptile.roofline.roofline_svg import draw
from warptile.roofline.rung_points import SIZE, RungPoint, points, sizes, usual_types
from warptile.roofline.source_texts import SOURCES, guides, readings
from warptile.rungs import RUNGS

PREFIX = "roofline-"
"""Before the names of the tables."""

PICTURES = "roofline"
"""Folder of the pictures, next to the document that shows them."""

PAIRS = (("FP64", "float64"), ("FP32, half2", "float32", HALF2), ("TF32", "tfloat32"),
         ("FP16, BF16", "float16", "bfloat16"), ("FP8", "float8_e4m3"), ("INT8", "int8"))  # fmt: skip
"""Columns of the table of peaks: a heading and its types."""

GROUPS = (F32, F16_F16, F16_F32, BF16, E4M3)
"""Types in which the ladder shows rungs."""

MERGED_RUNG = "wgmma-final"
"""The rung whose bytes at L2 and at SMs were both counted."""


def short(value: float | None) -> str:
    """Three digits, whole from 100 on; a dash for nothing."""
    return number(value, 0 if value is None or value >= 99.95 else 1 if value >= 9.995 else 2)


def tera(figure: Quantity | None) -> str:
    """In units of 10^12."""
    return "–" if figure is None else f"{figure.value / 1e12:.4g}"


# --- GPUs ------------------------------------------------------------------------------------------------------------


def gpus_table(*_: object) -> str:
    """What each GPU is."""
    rows = []
    for gpu in GPUS.values():
        limits, arch = gpu.limits, gpu.generation
        sizes = f"{limits.l2_bytes / 2**20:.3g} MiB", f"{arch.shared_bytes_per_sm // 1024} KiB"
        clock = f"{gpu.boost_hz.value / 1e9:.2f} GHz"
        rows.append(
            (gpu.name, gpu.product, arch.name, str(limits.multiprocessors), clock, f"{gpu.power_w.value:.0f} W",
             ", ".join(sizes))
        )  # fmt: skip
    header = ("GPU", "product", "architecture", "SMs", "boost clock", "power limit", "L2, shared memory per SM")
    return markdown(header, rows, right=3)


def peaks_table(*_: object) -> str:
    """Dense peaks by type."""
    rows = []
    for gpu in GPUS.values():
        cells = [[tera(gpu.peaks.get(name)) for name in names] for _, *names in PAIRS]
        rows.append((gpu.name, *(each[0] if set(each) == {"–"} else ", ".join(each) for each in cells)))
    return markdown(("GPU", *(heading for heading, *_ in PAIRS)), rows)


def bandwidths_table(*_: object) -> str:
    """Bandwidths by memory level, and the ridge points of FP16 on tensor cores."""
    rows = []
    for gpu in GPUS.values():
        speeds = [tera(gpu.bandwidth(level)) for level in LEVELS]
        rows.append((gpu.name, *speeds, *(short(gpu.ridge("float16", level)) for level in LEVELS)))
    names = [LEVEL_NAMES[level] for level in LEVELS]
    header = ("GPU", *(f"{name}, TB/s" for name in names), *(f"ridge at {name}" for name in names))
    return markdown(header, rows)


def sources_table(*_: object) -> str:
    """Where each figure is from."""
    rows = [row for gpu in GPUS.values() for row in _sources(gpu)]
    return markdown(("GPU", "figures", "source", "where"), rows, right=4)


def _sources(gpu: PublishedGpu) -> list[TableRow]:
    """A line for each source and place in it."""
    of: dict[tuple[str, str], list[str]] = {}
    for name, figure in gpu.figures.items():
        place = figure.source.place
        source = (
            f"[{figure.source.title}]({place})" if place.startswith("https:") else f"{figure.source.title}, {place}"
        )
        of.setdefault((source, figure.where + (" (measured)" if figure.measured else "")), []).append(name)
    return [(gpu.name, ", ".join(names), source, where) for (source, where), names in of.items()]


# --- rungs -----------------------------------------------------------------------------------------------------------


def rungs_table(lookup: RecordLookup, summary: MeasuredSummary) -> str:
    """Every rung at the ladder's size: FLOP per byte by level, the lowest roof, and the share of it."""
    found = points(summary)
    if not found:
        return NO_RECORD + "\n"
    rows = []
    for point in found:
        intensities = [_intensity(point, level) for level in LEVELS]
        roof = f"{_limit(point)}: {short(point.attainable_tflops)}"
        clock = number(point.sm_clock_mhz, 0)
        speed = f"{short(point.tflops)} ({clock} MHz)" if point.sm_clock_mhz else short(point.tflops)
        rows.append((f"`{point.rung}`", *intensities, roof, speed, _share(point)))
    header = ("rung", *(f"FLOP/B, {LEVEL_NAMES[level]}" for level in LEVELS), "lowest roof, TFLOP/s",
              "recorded TFLOP/s (SM clock)", "share of the roof")  # fmt: skip
    return markdown(header, rows) + "\n" + _origins(lookup, found)


def sizes_table(lookup: RecordLookup, summary: MeasuredSummary) -> str:
    """The share of its lowest roof that each rung reaches at each recorded size, and what the roof is of."""
    found = {size: {point.rung: point for point in points(summary, size=size)} for size in sizes(summary)}
    if not any(found.values()):
        return NO_RECORD + "\n"

    def cell(point: RungPoint | None) -> str:
        return f"{_share(point)} ({_limit(point)})" if point is not None else "–"

    rows = [
        (f"`{name}`", *(cell(of.get(name)) for of in found.values()))
        for name in RUNGS
        if any(name in of for of in found.values())
    ]
    every = [point for of in found.values() for point in of.values()]
    return markdown(("rung", *(f"{size}^3" for size in found)), rows) + "\n" + _origins(lookup, every)


def above_table(lookup: RecordLookup, summary: MeasuredSummary) -> str:
    """Rungs above their roof, and what is counted on both sides of L2 in the one rung where it was."""
    every = [point for size in sizes(summary) for point in points(summary, size=size)]
    if not every:
        return NO_RECORD + "\n"
    above = [point for point in every if point.share is not None and point.share > 1]
    rows = [
        (f"`{point.rung}`", f"{point.problem.m}^3", _intensity(point, point.bound),
         f"{_limit(point)}: {short(point.attainable_tflops)}", short(point.tflops), _share(point))
        for point in above
    ]  # fmt: skip
    header = ("rung", "M = N = K", "FLOP per byte", "lowest roof, TFLOP/s", "recorded TFLOP/s", "share of the roof")
    text = markdown(header, rows) if rows else "No rung is above its roof.\n"
    return f"{text}\n{_merged(lookup)}{_origins(lookup, above)}"


def _merged(lookup: RecordLookup) -> str:
    """Bytes that L2 reads and bytes that arrive at SMs, where both were counted."""
    key = square(RUNGS[MERGED_RUNG], BF16, SIZE)
    cell = lookup.cell(MERGED_RUNG, BF16, SIZE)
    counted = lookup.counted_alone(MERGED_RUNG, key, cell.config) if cell is not None else None
    sectors, arrived = (counted.total(metric) for metric in metrics.L2_TO_SM) if counted is not None else (None, None)
    if not sectors or not arrived:
        return ""
    read = metrics.SECTOR_BYTES * sectors
    row = (f"`{MERGED_RUNG}`", f"{SIZE}^3", f"{read / 1e6:.0f} MB", f"{arrived / 1e6:.0f} MB", f"{arrived / read:.2f}")
    return markdown(("rung", "M = N = K", "L2 reads for SMs", "arrives at SMs", "ratio"), [row]) + "\n"


def predictions_table(lookup: RecordLookup, _: MeasuredSummary) -> str:
    """Predicted over counted bytes, of the rungs of the page whose bytes were counted."""
    ratios: dict[str, list[float]] = {level: [] for level in LEVELS}
    nothing = RecordLookup([])
    for name, rung in RUNGS.items():
        group = next(group for group in GROUPS if (group.dtype, group.accumulator) == usual_types(rung))
        cell = lookup.cell(name, group, SIZE)
        counted = traffic(cell, lookup) if cell is not None else None
        if cell is None or counted is None:
            continue
        predicted = traffic(cell, nothing)
        assert predicted is not None, name
        for level, found in ratios.items():
            ours, theirs = predicted.bytes_at(level), counted.bytes_at(level)
            if level not in counted.predicted and ours and theirs:
                found.append(ours / theirs)
    if not any(ratios.values()):
        return NO_RECORD + "\n"
    rows = [
        (LEVEL_NAMES[level], str(len(found)), short(median(found)), f"{short(min(found))}–{short(max(found))}")
        for level, found in ratios.items()
        if found
    ]
    lookup.origins()  # the records are those of the table of rungs
    return markdown(("level", "rungs", "predicted over counted bytes, median", "range"), rows)


def _intensity(point: RungPoint, level: str) -> str:
    found = point.intensities.get(level)
    return ("~" if level in point.predicted else "") + short(found)


def _limit(point: RungPoint) -> str:
    """What the lowest roof is of."""
    return LEVEL_NAMES.get(point.bound, f"{point.bound} cores")


def _share(point: RungPoint) -> str:
    return "–" if point.share is None else f"{point.share:.0%}".replace("%", " %")


def _origins(lookup: RecordLookup, shown: list[RungPoint]) -> str:
    """Names the records of the points' speeds and of the counters that their bytes were scaled from."""
    lookup.take({point.source.record for point in shown})
    for name in {point.rung for point in shown}:
        lookup.profile(name)
    return lookup.origins()


# --- source texts ----------------------------------------------------------------------------------------------------


def readings_table(*_: object) -> str:
    """How the figures of the source texts come out, or do not."""
    rows = [
        (f"{each.figure:g}", each.meaning, f"`{each.formula}`", each.source, f"{each.value:.1f}",
         "yes" if each.agrees else "no")
        for each in readings()
    ]  # fmt: skip
    header = ("T0 says", "what is computed", "how", "numbers from", "FLOP/B", "gives T0's figure")
    named = "\n".join(f"- {name}: [{source.title}]({source.place})" for name, source in SOURCES.items())
    return markdown(header, rows, right=4) + "\n" + named + "\n"


# --- all of them -----------------------------------------------------------------------------------------------------

TABLES: dict[str, Callable[[RecordLookup, MeasuredSummary], str]] = {
    f"{PREFIX}gpus": gpus_table,
    f"{PREFIX}peaks": peaks_table,
    f"{PREFIX}bandwidths": bandwidths_table,
    f"{PREFIX}sources": sources_table,
    f"{PREFIX}rungs": rungs_table,
    f"{PREFIX}sizes": sizes_table,
    f"{PREFIX}above": above_table,
    f"{PREFIX}predictions": predictions_table,
    f"{PREFIX}readings": readings_table,
}
"""By the name between markers."""


def pictures(summary: MeasuredSummary) -> dict[str, str]:
    """SVG text by its path beside the document: the rungs at each memory level, and the GPUs."""
    found = points(summary)
    made = {level: draw(rungs_picture(found, level), level) for level in LEVELS if found}
    return {f"{PICTURES}/{name}.svg": text for name, text in {**made, "gpus": draw(gpus_picture(guides()))}.items()}
