"""Launches of surveys beside what is predicted for them: errors, and what the predictions would have chosen."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from warptile.bench.protocol.measurements import Surveyed
from warptile.bench.protocol.records import SurveyRecord
from warptile.device import KNOWN, REFERENCE, DeviceLimits
from warptile.rungs.wgmma import promotion, tiles
from warptile.rungs.wgmma.cost import Launches
from warptile.rungs.wgmma.launches import launches_of
from warptile.rungs.wgmma.model import Quality
from warptile.rungs.wgmma.tile_shapes import TUNABLES

NARROW_PANELS_SINCE = "2026-11-30T13:30:00Z"
"""Date from which kernels load no more columns of an N-major B than a tile has."""

PARTIAL_LOADS_SINCE = "2026-11-30T20:00:00Z"
"""Date from which kernels load of a tile at the end of an operand what is inside, instead of whole boxes."""

MOST_SPREAD = 0.5
"""Rounds of one configuration that are further apart are taken for a disturbed measurement and left out."""


@dataclass(frozen=True)
class Measured:
    """All launches of some surveys.

    Attributes:
        launches: what predictions depend on.
        times_us: medians of the rounds.
        problem: number of the problem of each.
        library_us: cuBLASLt's time by problem, or NaN.
        by_present_kernels: by problem, whether the kernels were those of now, since `PARTIAL_LOADS_SINCE`.
    """

    launches: Launches
    times_us: NDArray[np.float64]
    problem: NDArray[np.int64]
    library_us: NDArray[np.float64]
    by_present_kernels: NDArray[np.bool_]


def measured_in(records: Iterable[SurveyRecord]) -> Measured:
    """The launches of some records. Two-level accumulation counts as it was before it had two sets of registers
    (`warptile.rungs.wgmma.promotion`); of kernels that loaded more of B then, those that load the same now. Until
    `PARTIAL_LOADS_SINCE` all of them filled what tiles have outside of operands with zeros."""
    devices = ((record, KNOWN.get(record.environment.gpu, REFERENCE)) for record in records)
    return _measured(
        (each, device, record.date)
        for record, device in devices
        for each in record.surveyed
        if record.date < promotion.SINCE or not tiles.two_level(each.problem.problem())
    )


def measured_of(surveyed: Iterable[Surveyed], device: DeviceLimits) -> Measured:
    """The launches of a survey of a device by the kernels as they are now."""
    return _measured((each, device, PARTIAL_LOADS_SINCE) for each in surveyed)


def _measured(surveyed: Iterable[tuple[Surveyed, DeviceLimits, str]]) -> Measured:
    """Of surveys: each problem, the GPU, and the date."""
    found: list[Launches] = []
    times: list[float] = []
    problems: list[int] = []
    library: list[float] = []
    present: list[bool] = []
    for of, device, date in surveyed:
        problem, timed = of.problem.problem(), False
        for each in of.tried:
            config = dict(zip(TUNABLES, each.config, strict=True))
            view = tiles.view(problem, config)
            if max(each.rounds_us) >= (1 + MOST_SPREAD) * min(each.rounds_us):
                continue
            if date < NARROW_PANELS_SINCE and tiles.smem_tiles(view.problem, config)[1].has_narrow_panel:
                continue
            found.append(launches_of(view, config, device, filled=date < PARTIAL_LOADS_SINCE))
            times.append(statistics.median(each.rounds_us))
            problems.append(len(library))
            timed = True
        if timed:
            library.append(statistics.median(of.cublaslt_us) if of.cublaslt_us else math.nan)
            present.append(date >= PARTIAL_LOADS_SINCE)
    columns = {field.name: np.array([getattr(each, field.name) for each in found]) for field in fields(Launches)}
    return Measured(
        Launches(**columns), np.array(times), np.array(problems), np.array(library), np.array(present, np.bool_)
    )


def some(measured: Measured, chosen: NDArray[np.bool_]) -> Measured:
    """Some of the launches; problems keep their numbers."""
    columns = {field.name: getattr(measured.launches, field.name)[chosen] for field in fields(Launches)}
    return replace(
        measured, launches=Launches(**columns), times_us=measured.times_us[chosen], problem=measured.problem[chosen]
    )


def joined(of: Iterable[Measured]) -> Measured:
    """All launches of several; problems are numbered through."""
    every = list(of)
    columns = {
        field.name: np.concatenate([getattr(each.launches, field.name) for each in every]) for field in fields(Launches)
    }
    before = np.cumsum([0, *(len(each.library_us) for each in every)])
    return Measured(
        Launches(**columns),
        np.concatenate([each.times_us for each in every]),
        np.concatenate([each.problem + first for each, first in zip(every, before, strict=False)]),
        np.concatenate([each.library_us for each in every]),
        np.concatenate([each.by_present_kernels for each in every]),
    )


def choices(measured: Measured, predicted_us: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """By problem: measured time of the fastest configuration, and of the one predicted to be."""
    best, chosen = [], []
    for number in range(len(measured.library_us)):
        places = np.flatnonzero(measured.problem == number)
        best.append(measured.times_us[places].min())
        chosen.append(measured.times_us[places[predicted_us[places].argmin()]])
    return np.array(best), np.array(chosen)


def quality(measured: Measured, predicted_us: NDArray[np.float64]) -> Quality:
    """How good predictions are."""
    best, chosen = choices(measured, predicted_us)
    off = np.abs(np.log(measured.times_us / predicted_us))
    return Quality(
        len(measured.library_us), len(off), round(float(np.median(off)), 4), round(float(np.quantile(off, 0.9)), 4),
        round(geomean(best / chosen), 4),
    )  # fmt: skip


def error_text(of: Quality) -> str:
    """Errors and choice in words."""
    return (
        f"{100 * of.median_error:.1f} % off in the median, a tenth more than {100 * of.error_90:.1f} %; "
        f"what they choose reaches {of.choice:.3f} of the fastest tried"
    )


def geomean(values: NDArray[np.float64]) -> float:
    """Geometric mean."""
    return float(np.exp(np.log(values).mean()))
