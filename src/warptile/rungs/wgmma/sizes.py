"""What follows from a configuration of wgmma-final for one problem, computed once for its legality and its launch."""

from __future__ import annotations

from typing import NamedTuple

from warptile.device import DeviceLimits
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import ceil_div
from warptile.rungs.wgmma import epilogue, residue_classes, tiles


class Sizes(NamedTuple):
    """Sizes of a legal tile, and which way operands and D take.

    Attributes:
        rows, columns: of a tile, of one consumer warpgroup.
        accumulators: accumulator registers of a thread, without those of a first level.
        stage_bytes: of a stage.
        unaligned_a: a misaligned A is loaded through registers.
        d_is_aligned: TMA can store D without residue classes.
        by_residue_class: rows of D are split into residue classes.
        cluster_k: CTAs of a cluster that split K of a tile.
        subtile: how a warpgroup stores its part of a tile.
        held, held_registers: subtiles that wait in registers for the next mainloop, and registers of a thread for each.
        shared_bytes: of a CTA.
        cluster_tiles: of the batch, those of a cluster counted as one.
        clusters: of the launch, each with its share of the tiles.
        ctas: of the launch.
    """

    rows: int
    columns: int
    accumulators: int
    stage_bytes: int
    unaligned_a: bool
    d_is_aligned: bool
    by_residue_class: bool
    cluster_k: int
    subtile: tiles.EpilogueSubtiles
    held: int
    held_registers: int
    shared_bytes: int
    cluster_tiles: int
    clusters: int
    ctas: int

    @property
    def by_tma(self) -> bool:
        """TMA stores D."""
        return self.d_is_aligned or self.by_residue_class


def sizes_of(seen: Problem, config: Config, device: DeviceLimits) -> Sizes:
    """The sizes of a problem as the kernel sees it."""
    rows, columns = tiles.rows_per_warpgroup(config), tiles.columns_per_warpgroup(config)
    by_residue_class = residue_classes.by_residue_class(seen, config)
    cluster_k = tiles.cluster_k(seen, config, device)
    subtile = tiles.EpilogueSubtiles.shared(seen, config, cluster_k)
    held, held_registers = epilogue.held_subtiles(subtile, seen, config)[1:] if config["OVERLAP"] else (0, 0)
    stage_bytes = tiles.stage_bytes(seen, config)
    output_bytes = config["CONSUMERS"] * epilogue.buffer_bytes(subtile, epilogue.staged_sets(seen))
    across = seen.n + (residue_classes.columns_before(seen) if by_residue_class else 0)
    ctas = config["CM"] * config["CN"]
    count = ceil_div(seen.m, config["BM"] * config["CM"]) * ceil_div(across, config["BN"] * config["CN"]) * seen.batch
    clusters = _clusters(count, config)
    return Sizes(
        rows=rows,
        columns=columns,
        accumulators=tiles.accumulator_registers(seen, rows, columns),
        stage_bytes=stage_bytes,
        unaligned_a=tiles.takes_unaligned_a(seen, config),
        d_is_aligned=residue_classes.d_is_aligned(seen),
        by_residue_class=by_residue_class,
        cluster_k=cluster_k,
        subtile=subtile,
        held=held,
        held_registers=held_registers,
        shared_bytes=tiles.shared_bytes(config["STAGES"], stage_bytes, output_bytes),
        cluster_tiles=count,
        clusters=clusters,
        ctas=clusters * ctas,
    )


def _clusters(count: int, config: Config) -> int:
    """Clusters of the launch for so many tiles."""
    if config["SPLITS"] > 1:
        return count * config["SPLITS"]
    most = max(config["SMS"] // (config["CM"] * config["CN"]), 1)
    return most if config["STREAM"] else min(count, most)
