"""A cost model for the GPU that is present: ``warptile tune --calibrate``.

GPUs with the same SMs differ in clocks, bandwidths, power limit and the cost of a launch. Those constants of the model
that ships are multiplied by factors, which a short survey of random problems determines; all else stays. It takes a few
minutes and no torch, unlike `warptile.bench.campaign.fit_costs`, which fits everything to an hour of surveys and makes
the models that ship.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from warptile.bench.campaign import problem_survey
from warptile.bench.campaign.suite_search import Say
from warptile.bench.campaign.surveyed_launches import Measured, error_text, measured_of, quality, some
from warptile.bench.protocol.environment import now
from warptile.device import DeviceLimits
from warptile.errors import NoDeviceError, UnsupportedError
from warptile.native.formulas import FloatArray
from warptile.rungs.wgmma.cost import Costs
from warptile.rungs.wgmma.final import WGMMA_FINAL
from warptile.rungs.wgmma.model import FittedModel, Model, shipped_model, user_file

DIFFERING = (
    "clock_mhz", "launch_us", "start_clocks", "refill_clocks", "l2_lines_per_clock", "missed", "stream_missed",
    "meeting_clocks", "cluster_meeting_clocks", "stream_clocks", "l2_partial_bytes_per_clock", "dram_bytes_per_us",
    "watts",
)  # fmt: skip
"""Constants in which GPUs with the same SMs differ."""

EXPECTED_ERROR, EXPECTED_FACTOR = 0.05, 0.3
"""Of |log(measured / predicted)| of a launch, and of |log| of a factor: what the data say weighs against that factors
are near one as the squares of both."""

STEPS, LONGEST_STEP = 12, 0.4
FOLDS = 5
"""Every so many problems one is left out in turn, to say how good predictions are there."""

FEWEST_PROBLEMS = 20
COUNT, SEED = 400, 20
"""Problems of the survey, of which it measures as many as it has time for."""


def calibrated(measured: Measured, base: FittedModel, gpu: str, *names: str) -> FittedModel:
    """The model of a GPU, made from the one of another.

    Args:
        measured: launches on that GPU.
        base: the other one's model.
        gpu: name of the GPU, as its driver reports it.
        names: of the surveys.

    Raises:
        UnsupportedError: fewer than `FEWEST_PROBLEMS` problems.
    """
    if len(measured.library_us) < FEWEST_PROBLEMS:
        raise UnsupportedError(
            f"calibration: {len(measured.library_us)} problems were measured; it needs {FEWEST_PROBLEMS}: give it more "
            "time, such as --minutes 10"
        )
    ready = Model(base)
    factors = _factors(measured, ready, np.zeros(len(DIFFERING)))
    left_out = np.zeros(len(measured.times_us))
    for fold in range(FOLDS):
        of_fold = measured.problem % FOLDS == fold
        found = _factors(some(measured, ~of_fold), ready, factors)
        left_out[of_fold] = _predicted(some(measured, of_fold), ready, found)
    return msgspec.structs.replace(
        base, costs=_multiplied(base.costs, factors), gpu=gpu, records=(*names, *base.records),
        quality=quality(measured, left_out),
    )  # fmt: skip


def _multiplied(costs: Costs, factors: FloatArray) -> Costs:
    """The constants multiplied by the exponentials of these."""
    changed: dict[str, Any] = {}
    for name, factor in zip(DIFFERING, np.exp(factors).tolist(), strict=True):
        value = getattr(costs, name)
        changed[name] = tuple(each * factor for each in value) if isinstance(value, tuple) else value * factor
    return msgspec.structs.replace(costs, **changed)


def _predicted(measured: Measured, base: Model, factors: FloatArray) -> FloatArray:
    times, _ = base.with_costs(_multiplied(base.fitted.costs, factors)).predict(measured.launches)
    return times


def _factors(measured: Measured, base: Model, start: FloatArray) -> FloatArray:
    """Logarithms of the factors, by least squares with large errors counted as themselves instead of their squares.

    Launches of one problem err alike, so they count as one.
    """
    logs, factors, delta = np.log(measured.times_us), start, 1e-3
    share = len(np.unique(measured.problem)) / len(logs) / EXPECTED_ERROR**2
    for _ in range(STEPS):
        said = np.log(_predicted(measured, base, factors))
        slopes = np.stack(
            [
                (np.log(_predicted(measured, base, factors + delta * unit)) - said) / delta
                for unit in np.eye(len(factors))
            ],
            axis=1,
        )
        off = logs - said
        weights = share * np.minimum(1, EXPECTED_ERROR / np.maximum(np.abs(off), 1e-9))
        normal = slopes.T @ (slopes * weights[:, None]) + np.eye(len(factors)) / EXPECTED_FACTOR**2
        step = np.linalg.solve(normal, slopes.T @ (weights * off) - factors / EXPECTED_FACTOR**2)
        factors = factors + step * min(1.0, LONGEST_STEP / max(float(np.abs(step).max()), 1e-9))
        if np.abs(step).max() < 1e-3:
            break
    return factors


def calibrate(device: DeviceLimits, out: Path, minutes: float, say: Say) -> Path:
    """Survey the GPU that is present for some minutes, and write its model to the user's folder.

    Args:
        device: its limits.
        out: folder of the survey's results; it goes on from what is there.
        minutes: of measuring.
        say: told what goes on.

    Returns:
        The file.

    Raises:
        UnsupportedError: the rung does not run there, or too little was measured.
    """
    if device.generation.name != WGMMA_FINAL.only_arch:
        raise UnsupportedError(
            f"--calibrate: {device.name} is {device.generation.name}; the model is of {WGMMA_FINAL.name}, which needs "
            f"{WGMMA_FINAL.only_arch}. Other rungs are tuned problem by problem: warptile tune wmma-final -m 4096"
        )
    out.mkdir(parents=True, exist_ok=True)
    arguments = ["--count", str(COUNT), "--seed", str(SEED), "--no-library"]
    problem_survey.supervise(out, arguments, time.time() + 60 * minutes)
    if not problem_survey.journal(out).exists():
        raise NoDeviceError(f"--calibrate: nothing was measured in {minutes:g} minutes; give it more, --minutes 5")
    measured = measured_of(problem_survey.surveyed(out), device)
    base = shipped_model(device.name).fitted
    found = calibrated(measured, base, device.name, f"calibration-{now()}")
    as_it_was = quality(measured, _predicted(measured, Model(base), np.zeros(len(DIFFERING))))
    say(f"predictions of {found.quality.problems} problems were {error_text(as_it_was)}")
    say(f"now they are {error_text(found.quality)} (of problems left out)")
    path = user_file(device.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_bytes(msgspec.json.encode(found) + b"\n")
    temporary.replace(path)
    return path
