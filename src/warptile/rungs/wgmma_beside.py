"""Copies that warps of wgmma-final's own blocks make beside its products: the Python side of tile/wgmma_copies.cuh."""

from __future__ import annotations

from collections.abc import Sequence

from warptile.problem import Problem
from warptile.rungs.copies import Copy
from warptile.rungs.legality import ceil_div
from warptile.rungs.rung import Config, Workspace

SLICES = "slices of copies"
"""Workspace of the counters, one for each slice of copies."""

SPAN_BYTES = 1024
"""Depth of a slice."""

LEAST_BYTES = SPAN_BYTES + 32
"""A line has at least so many: what is loaded of one then lies within the next two."""

TURNS = 31
"""Turns of tiles whose copies are told apart; the last of them has all the rest."""

LEAST_TURNS = 3
"""Turns of tiles: what is copied in the first must not be everything. Measured with 4 and 16."""

MOST_LINES = 36
"""Lines of both operands, for each block, that the first turn may need, as many as are copied in its time. 4096 x 4096
with K = 4095 in tiles of 128 x 256: 32 lines in groups of 16 tiles take 216 us, 40 in groups of 8 take 235, and copies
before the product 227; 193 for K = 4096 (H200)."""


def fits(seen: Problem, found: tuple[str, str], copies: Sequence[Copy], config: Config, *, by_tma: bool) -> bool:
    """Whether the product's own blocks make ``copies``, beside overlapped stores that leave three warps idle.

    Only where operands and D have 16 bits, D is row-major and copied lines run along K: for others a copy is more than
    a shift, or comes too late for products that take half the time (8 bits, K = 4090: 125 us beside, 117 before). Not
    in clusters (237 us beside, 229 before).

    Args:
        seen: the product as the kernel sees it.
        found: names of its A and B.
        copies: what has to be copied.
        config: its configuration.
        by_tma: TMA stores D; else storers are these warps.
    """
    if not copies or not config.get("OVERLAP") or config["CONSUMERS"] != 2 or seen.batch > 1 or not by_tma:
        return False
    if seen.a.dtype.bits != 16 or seen.d.dtype.bits != 16 or seen.d.major != "row" or config["CM"] * config["CN"] > 1:
        return False
    majors = dict(zip(found, (seen.a.major == "row", seen.b.major == "col"), strict=True))
    if any(copy.transposed or not majors[copy.target] for copy in copies):
        return False
    if seen.k * seen.a.dtype.bits // 8 < LEAST_BYTES:
        return False
    if turns(seen, config) < LEAST_TURNS:
        return False
    rows, columns = first_turn(seen, config)
    copied = {copy.target for copy in copies}
    lines = rows * (found[0] in copied) + columns * (found[1] in copied)
    return lines <= MOST_LINES * blocks(seen, config)


def _tiles(seen: Problem, config: Config) -> tuple[int, int]:
    """Tiles along M and N, those of a cluster counted as one."""
    return ceil_div(seen.m, config["BM"] * config["CM"]), ceil_div(seen.n, config["BN"] * config["CN"])


def _teams(seen: Problem, config: Config) -> int:
    m, n = _tiles(seen, config)
    return min(m * n, max(config["SMS"] // (config["CM"] * config["CN"]), 1))


def blocks(seen: Problem, config: Config) -> int:
    """Blocks of the launch."""
    return _teams(seen, config) * config["CM"] * config["CN"]


def first_turn(seen: Problem, config: Config) -> tuple[int, int]:
    """Rows and columns of D, from the first on, in which the first tiles of all blocks lie:
    ``WgmmaSchedule::extents``."""
    m, n = _tiles(seen, config)
    grouped, along = (n, m) if config["ALONG_N"] else (m, n)
    count, high = _teams(seen, config), min(config["GROUP"], grouped)
    groups = ceil_div(count, config["GROUP"] * along)
    wide, across = along if groups > 1 else ceil_div(count, high), min(groups * config["GROUP"], grouped)
    rows, columns = (wide, across) if config["ALONG_N"] else (across, wide)
    return min(rows * config["BM"] * config["CM"], seen.m), min(columns * config["BN"] * config["CN"], seen.n)


def turns(seen: Problem, config: Config) -> int:
    """Tiles of the block that has most of them."""
    m, n = _tiles(seen, config)
    return ceil_div(m * n, _teams(seen, config))


def counters(seen: Problem, config: Config) -> Workspace:
    """The counters of all slices."""
    told_apart = min(turns(seen, config), TURNS)
    return Workspace(SLICES, 4 * told_apart * ceil_div(seen.k * seen.a.dtype.bits // 8, SPAN_BYTES), zero=True)
