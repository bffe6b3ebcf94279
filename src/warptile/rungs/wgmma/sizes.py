"""What follows from a configuration of wgmma-final: of its kernel, whatever the extents, and of the launch."""

from __future__ import annotations

from typing import NamedTuple

from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import ceil_div
from warptile.rungs.wgmma import epilogue, residue_classes, tiles


class Alike:
    """A problem as the kernel sees it; equal to any other for which a configuration has the same sizes and, but for
    which operands are evicted first, the same kernel. Of aligned operands without an epilogue extents do not matter.

    Attributes:
        problem: it, or the first one that was equal to it, where it was looked up.
    """

    __slots__ = ("_key", "problem")

    def __init__(self, seen: Problem) -> None:
        a, b, d = seen.a, seen.b, seen.d
        self.problem = seen
        self._key = (
            a.dtype.name, seen.accumulator.name, d.dtype.name, a.major, b.major, d.major, seen.batch > 1,
            a.batch_stride == 0, b.batch_stride == 0, seen.c is None, tiles.store_width(seen),
            None if seen.epilogue is None and tiles.is_aligned(seen) else seen,
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike) and self._key == other._key


class Sizes(NamedTuple):
    """Sizes of a tile, and which way operands and D take.

    Attributes:
        rows, columns: of a tile, of one consumer warpgroup.
        accumulators: accumulator registers of a thread, without those of a first level.
        unaligned_a: a misaligned A is loaded through registers.
        d_is_aligned: TMA can store D without residue classes.
        by_residue_class: rows of D are split into residue classes.
        cluster_k: CTAs of a cluster that split K of a tile.
        subtile: how a warpgroup stores its part of a tile.
        held, held_registers: subtiles that wait in registers for the next mainloop, and registers of a thread for each.
        shared_bytes: of a CTA.
    """

    rows: int
    columns: int
    accumulators: int
    unaligned_a: bool
    d_is_aligned: bool
    by_residue_class: bool
    cluster_k: int
    subtile: tiles.EpilogueSubtiles
    held: int
    held_registers: int
    shared_bytes: int

    @property
    def by_tma(self) -> bool:
        """TMA stores D."""
        return self.d_is_aligned or self.by_residue_class


def sizes_of(seen: Problem, config: Config, cluster_k: int) -> Sizes:
    """The sizes of a legal tile, for a problem as the kernel sees it."""
    rows, columns = tiles.rows_per_warpgroup(config), tiles.columns_per_warpgroup(config)
    subtile = tiles.EpilogueSubtiles.shared(seen, config, cluster_k)
    held, held_registers = epilogue.held_subtiles(subtile, seen, config)[1:] if config["OVERLAP"] else (0, 0)
    output_bytes = config["CONSUMERS"] * epilogue.buffer_bytes(subtile, epilogue.staged_sets(seen))
    return Sizes(
        rows=rows,
        columns=columns,
        accumulators=tiles.accumulator_registers(seen, rows, columns),
        unaligned_a=tiles.takes_unaligned_a(seen, config),
        d_is_aligned=residue_classes.d_is_aligned(seen),
        by_residue_class=residue_classes.by_residue_class(seen, config),
        cluster_k=cluster_k,
        subtile=subtile,
        held=held,
        held_registers=held_registers,
        shared_bytes=tiles.shared_bytes(config["STAGES"], tiles.stage_bytes(seen, config), output_bytes),
    )


class Clusters(NamedTuple):
    """The clusters of a launch.

    Attributes:
        ctas: in all of them, those that split K in a cluster counted as one.
        split_tiles: tiles of D, those of a cluster counted as one, of which several clusters split K: all of them with
            SPLITS, else those of the last wave, where it is not full, and of the one before it.
    """

    ctas: int
    split_tiles: int


def clusters_of(seen: Problem, config: Config) -> Clusters:
    """The clusters that a problem is launched in, as the kernel sees it."""
    each = config["CM"] * config["CN"]
    across = ceil_div(residue_classes.columns(seen, config), config["BN"] * config["CN"])
    tiles_of_d = ceil_div(seen.m, config["BM"] * config["CM"]) * across * seen.batch
    most = max(config["SMS"] // each, 1)
    if config["SPLITS"] > 1:
        return Clusters(tiles_of_d * config["SPLITS"] * each, tiles_of_d)
    if not config["STREAM"]:
        return Clusters(min(tiles_of_d, most) * each, 0)
    whole_waves = max(tiles_of_d // most - 1, 0) if tiles_of_d % most else tiles_of_d // most
    return Clusters(most * each, tiles_of_d - whole_waves * most)
