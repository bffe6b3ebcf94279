"""Predicted time of one configuration of wgmma-final."""

from __future__ import annotations

from warptile.device import DeviceLimits
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config, View
from warptile.rungs.wgmma import cost, epilogue_cost, promotion, tiles
from warptile.rungs.wgmma.launches import launches_of
from warptile.rungs.wgmma.model import model_of


def estimate_us(problem: Problem, config: Config, device: DeviceLimits) -> float:
    """Predicted microseconds of a legal configuration, repacking included."""
    return estimate_view_us(tiles.view(problem, config), config, device)


def estimate_view_us(view: View, config: Config, device: DeviceLimits) -> float:
    """As `estimate_us`, for a view of the problem."""
    times, _ = model_of(device.name).predict(launches_of(view, config, device))
    predicted_us = float(times[0] * promotion.factor_of_view(view.problem, config))
    return predicted_us + float(epilogue_cost.added_us(view.problem, config, predicted_us))


def surveyed_us(problem: Problem, config: Config, device: DeviceLimits) -> float:
    """As `estimate_us`, of kernels as surveys have measured them: see `warptile.rungs.wgmma.promotion`."""
    times, _ = model_of(device.name).predict(launches_of(tiles.view(problem, config), config, device))
    return float(times[0])


def terms_us(problem: Problem, config: Config, device: DeviceLimits) -> tuple[dict[str, float], float]:
    """Microseconds of a legal configuration by limiting resource, each corrected by the same factor, and in all;
    repacking is not in it."""
    launches = launches_of(tiles.view(problem, config), config, device)
    times, found = model_of(device.name).predict(launches)
    predicted_us = float(times[0] * promotion.factor(problem, config))
    factor = predicted_us / float(found.total_us)
    terms = {name: each * factor for name, each in cost.terms_us(found).items()}
    added_us = float(epilogue_cost.added_us(problem, config, predicted_us))
    if added_us:
        terms["epilogue"] = added_us
    return terms, predicted_us - float(found.repacking_us) * factor + added_us
