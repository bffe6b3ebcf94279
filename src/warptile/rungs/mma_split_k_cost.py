"""Predicted time of float64 on tensor cores: mma-split-k, and mma-final where they compete."""

from __future__ import annotations

from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import blocks, ceil_div


def terms_us(problem: Problem, config: Config, sms: int) -> tuple[dict[str, float], float]:
    """Microseconds of each term and of the whole kernel."""
    k_tiles = ceil_div(ceil_div(problem.k, config["BK"]), config.get("SPLITS", 1))
    of_busiest = ceil_div(blocks(problem, config) * config.get("SPLITS", 1), sms)
    found = {"sm": of_busiest * k_tiles * config["BM"] * config["BN"] * config["BK"] / 128 / 1.7e3}
    return found, sum(found.values())
