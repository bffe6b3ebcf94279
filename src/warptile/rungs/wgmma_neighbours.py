"""A configuration of wgmma-final that was tuned for one problem, made for another: the tile and the schedule stay, and
what follows from extents is worked out again: multiprocessors, splits of the depth, stages, whether stores overlap."""

from __future__ import annotations

from warptile.problem import Problem
from warptile.rungs import wgmma_tiles as tiles
from warptile.rungs.legality import ceil_div
from warptile.rungs.rung import Config, Extents
from warptile.rungs.wgmma_choice import (
    MULTIPROCESSORS,
    Illegal,
    clusters,
    extents_of,
    fewest,
    splits_of,
    stages,
)


def adapted(
    problem: Problem, config: Config, tuned_for: Extents, illegal: Illegal, sms: int = MULTIPROCESSORS
) -> Config:
    """A tuned configuration for another problem; it may still be illegal there.

    Args:
        problem: what is asked for.
        config: what was best for another.
        tuned_for: that one's extents.
        illegal: the rung's own legality.
        sms: multiprocessors that it may take.
    """
    extents = extents_of(problem)
    depth = ceil_div(problem.k, config["BK"])
    splits = config["SPLITS"]
    if splits > 1:
        # The same share of the GPU: as many parts in all as there were.
        parts = min(clusters(tuned_for, config) * splits, sms // (config["CM"] * config["CN"]))
        each = max(min(parts // max(clusters(extents, config), 1), depth), 1)
        splits = max(split for split in splits_of(clusters(extents, config), depth, sms) if split <= each)
    changed = {**config, "SPLITS": splits}
    whole = config["SMS"] == MULTIPROCESSORS != fewest(tuned_for, config)
    changed["SMS"] = sms if whole else fewest(extents, changed, sms)
    for overlap in (1, 0) if splits < config["SPLITS"] else (config["OVERLAP"], 0):
        changed["OVERLAP"] = overlap
        seen = tiles.view(problem, changed).problem
        changed["STAGES"] = max(min(config["STAGES"], stages(seen, changed)), 2)
        if illegal(problem, changed) is None:
            break
    return changed
