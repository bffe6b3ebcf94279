"""Adapts a configuration of wgmma-final that was tuned for one problem to another problem or GPU. The tile and the
schedule stay; SMs, splits of K, stages and whether stores overlap the next mainloop are computed anew."""

from __future__ import annotations

from warptile.device import DeviceLimits
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import ceil_div
from warptile.rungs.rung import Extents
from warptile.rungs.wgmma import tiles
from warptile.rungs.wgmma.candidates import Illegal, extents_of
from warptile.rungs.wgmma.tile_shapes import cluster_tiles, fewest_sms, splits_of, stages


def adapted(
    problem: Problem, config: Config, tuned_for: Extents, illegal: Illegal, device: DeviceLimits, tuned_on: DeviceLimits
) -> Config:
    """A tuned configuration for another problem; it may still be illegal there.

    Args:
        problem: what is asked for.
        config: the best configuration of another problem.
        tuned_for: extents of that problem.
        illegal: the rung's own legality.
        device: where it will run.
        tuned_on: where it was tuned.
    """
    extents = extents_of(problem)
    k_tiles = ceil_div(problem.k, config["BK"])
    splits = config["SPLITS"]
    if splits > 1:
        # Keep the share of the GPU: as many parts in all as it was tuned with.
        count = int(cluster_tiles(extents, config))
        parts = min(int(cluster_tiles(tuned_for, config)) * splits, device.sms // (config["CM"] * config["CN"]))
        each = max(min(parts // max(count, 1), k_tiles), 1)
        splits = max(split for split in splits_of(count, k_tiles, device) if split <= each)
    changed = {**config, "SPLITS": splits}
    whole = config["SMS"] == tuned_on.sms != fewest_sms(tuned_for, config, tuned_on)
    changed["SMS"] = device.sms if whole else int(fewest_sms(extents, changed, device))
    for overlap in (1, 0) if splits < config["SPLITS"] else (config["OVERLAP"], 0):
        changed["OVERLAP"] = overlap
        seen = tiles.view(problem, changed).problem
        changed["STAGES"] = max(min(config["STAGES"], stages(seen, changed, device)), 2)
        if illegal(problem, changed) is None:
            break
    return changed
