"""The kernels of wgmma-final that plans choose from: tiles, K extents and schedules, as few as come close to the best.

There are up to 256 for each combination of types and layouts, and as many for each of `SHAPES`. They were chosen by how
much each adds, over random problems, to the speed of the best of those chosen before
(``python -m warptile.bench.campaign.choose_kernels``), and are listed in that order. All others stay legal: name them
with ``config=``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from warptile.decoding import decoded
from warptile.problem import MAX_ALIGNMENT_BYTES, Problem
from warptile.rungs.legality import keeps_order
from warptile.rungs.wgmma.cost import LINE_BYTES, TYPES
from warptile.rungs.wgmma.launches import pitch_bytes, type_index


class Kernel(NamedTuple):
    """A tile, its K extent and its schedule.

    Attributes:
        bm, bn: rows and columns of a tile.
        consumers: consumer warpgroups.
        swap: operands are swapped.
        rows: of 128 bytes that a stage holds along K.
        schedule: basic, overlap, ping-pong or stream-K; split: K in parts that meet in global memory; cluster: in
            parts that meet in a cluster.
        parts: of K that meet in a cluster, else 1.
        cm, cn: CTAs of a cluster that share loads.
    """

    bm: int
    bn: int
    consumers: int
    swap: int
    rows: int
    schedule: str = "basic"
    parts: int = 1
    cm: int = 1
    cn: int = 1


_FEW, _ONE = (8, 16, 24, 32, 40, 48, 56), (64, 72, 80, 88, 96, 112, 128, 144, 160, 192, 224, 256)
_TWO = (16, 24, 32, 40, 48, 56, *range(64, 257, 8))
_TILES = (
    *((64, bn, 1, swap) for swap in (1, 0) for bn in (*_FEW, *_ONE)),
    *((128, bn, 2, swap) for swap in (0, 1) for bn in _TWO),
    (256, 128, 2, 0), (256, 160, 2, 0), (256, 192, 2, 0),
)  # fmt: skip


WITHOUT_SPLITS = ("basic", "overlap", "ping-pong")
"""Schedules in which one CTA accumulates K of a tile, whatever the extents."""

CLUSTERS = ((2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (4, 2), (2, 4))
"""CTAs along M and N of clusters that mid-sized tiles are surveyed in: operands whose rows straddle lines of L2 cost
twice the loads, which clusters share."""

SPLIT_CLUSTERS = ((2, 1), (1, 2))
"""The same of clusters that also split K, or that K is split among."""


_SHARING_ONE = (32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 144, 160, 176, 192)
_SHARING_TWO = tuple(range(64, 209, 8))
"""BN of tiles of one consumer, and of tiles of two, that are surveyed in `CLUSTERS`."""


def _tiles_in_clusters() -> Iterator[Kernel]:
    """Small tiles in clusters: each CTA loads little of what it multiplies, and more stages fit."""
    for swap in (0, 1):
        for bn in _SHARING_ONE:
            for cm, cn in CLUSTERS:
                yield Kernel(64, bn, 1, swap, 1, "basic", 1, cm, cn)
                if 64 <= bn <= 160 and bn % 16 == 0:
                    yield Kernel(64, bn, 1, swap, 1, "split", 1, cm, cn)
        for bn in _SHARING_TWO:
            yield from (Kernel(128, bn, 2, swap, 1, "basic", 1, cm, cn) for cm, cn in CLUSTERS)


_WIDE_ONE, _WIDE_TWO = (16, 32, 48, 64, 96, 128), (64, 96, 128, 160, 192, 256)
"""BN of tiles of 128 and 192 rows of one consumer; of tiles of 192 rows whose columns two consumers share."""

_PING_PONG = {
    64: (24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    128: tuple(range(56, 201, 8)),
    192: (48, 64, 72, 80, 88, 96, 104, 112, 120, 128),
}
"""BN of ping-pong tiles by BM."""


def _in_clusters(kernel: Kernel) -> Iterator[Kernel]:
    """A kernel, and the same in each of `CLUSTERS`."""
    yield kernel
    yield from (kernel._replace(cm=cm, cn=cn) for cm, cn in CLUSTERS)


def _consumers_with_many_rows() -> Iterator[Kernel]:
    """Tiles that one consumer computes alone, or in turns with another, and tiles whose columns two share."""
    for swap in (0, 1):
        for bm, columns in _PING_PONG.items():
            for bn in columns:
                yield from _in_clusters(Kernel(bm, bn, 2, swap, 1, "ping-pong"))
        for bm in (128, 192):
            for bn in _WIDE_ONE:
                yield from _in_clusters(Kernel(bm, bn, 1, swap, 1))
                if bn >= 64:
                    yield from _in_clusters(Kernel(bm, bn, 1, swap, 1, "split"))
        for bm, columns in ((64, (128, 192, 256)), (192, _WIDE_TWO)):
            for bn in columns:
                yield from _in_clusters(Kernel(bm, bn, 2, swap, 1))
                yield Kernel(bm, bn, 2, swap, 1, "split")
                yield Kernel(bm, bn, 2, swap, 1, "overlap")
        yield from (Kernel(192, bn, 2, swap, 1, "stream-K") for bn in (192, 256))
        yield from (Kernel(192, bn, 2, swap, 1, "overlap", 1, *pair) for bn in (160, 192) for pair in SPLIT_CLUSTERS)


_STREAMED = {
    (64, 1): (96, 128, 160, 192),
    (128, 2): (96, 112, 128, 144, 160, 176, 192),
}
"""BN of stream-K tiles that are surveyed in clusters too, by BM and consumers; with more columns the producer of a
cluster spills."""


def _streamed() -> Iterator[Kernel]:
    """Tiles whose K all CTAs share in the last waves: large problems of few waves, of which the last is not full."""
    for swap in (0, 1):
        for (bm, consumers), columns in _STREAMED.items():
            for bn in columns:
                for cm, cn in ((1, 1), *SPLIT_CLUSTERS):
                    yield Kernel(bm, bn, consumers, swap, 1, "stream-K", 1, cm, cn)
        yield from (Kernel(128, bn, 2, swap, 1, "stream-K") for bn in (208, 224, 240))


_TALL = (64, 80, 96, 112, 128, 144)
"""BN of tiles of 256 rows, of which each of two consumers has half: with more columns many of them spill."""


def _tall() -> Iterator[Kernel]:
    """Tiles of 256 rows: where 256 x 96 or 256 x 144 fill a wave that tiles of other shapes overflow."""
    for swap in (0, 1):
        for bn in _TALL:
            tile = Kernel(256, bn, 2, swap, 1)
            yield from _in_clusters(tile)
            yield from (tile._replace(schedule=schedule) for schedule in ("split", "overlap"))


def _surveyed() -> tuple[Kernel, ...]:
    found: list[Kernel] = []
    for bm, bn, consumers, swap in _TILES:
        size, few = bm * bn, bn <= 48
        for rows in (1, 2, 4) if few else (1, 2) if size <= 64 * 128 else (1,):
            tile = (bm, bn, consumers, swap, rows)
            found.append(Kernel(*tile))
            found.append(Kernel(*tile, "split"))
            found += [Kernel(*tile, "cluster", parts) for parts in (2, 3, 4, 6, 8) if bn % (8 * parts) == 0]
            if few and bm == 64 and rows == 4:
                found.append(Kernel(*tile, "stream-K"))
        tile = (bm, bn, consumers, swap, 1)
        if size >= 128 * 64:
            found.append(Kernel(*tile, "overlap"))
        if size >= 128 * 256:
            found.append(Kernel(*tile, "stream-K"))
        if bm >= 128 and bn >= 96 and bn % 32 == 0 and not swap:
            found += [Kernel(*tile, "split", 1, *pair) for pair in SPLIT_CLUSTERS]
            found += [
                Kernel(*tile, "cluster", parts, *pair)
                for parts in (2, 3, 4) if bn % (8 * parts) == 0 for pair in SPLIT_CLUSTERS
            ]  # fmt: skip
        if size >= 128 * 192:
            found += [
                Kernel(*tile, schedule, 1, *pair) for schedule in ("basic", "overlap") for pair in ((2, 1), (1, 2))
            ]
    return tuple(dict.fromkeys([*found, *_tiles_in_clusters(), *_consumers_with_many_rows(), *_streamed(), *_tall()]))


SURVEYED = _surveyed()
"""What surveys measure."""


COMPILED_AHEAD = 64
"""Each is a compilation: of a list, so many are worth compiling before anything is computed."""


FILE = Path(__file__).resolve().parents[2] / "data" / "kernels-wgmma-final.json"
"""The chosen kernels by `kind_of`."""


STRADDLING, FEW_ROWS, FEW_COLUMNS = SHAPES = (", rows in two lines", ", few rows", ", few columns")
"""Ends of the names of kinds with lists of their own: of operands that `straddles`, and of a D of at most `MOST_FEW`
rows or columns."""

MOST_FEW = 96


def straddles(problem: Problem) -> bool:
    """Whether rows of A or B that TMA can load lie in two lines of L2 each: larger clusters pay there."""
    operands = problem.a, problem.b
    if any(each.alignment_bytes < MAX_ALIGNMENT_BYTES for each in operands):
        return False
    return any(pitch_bytes(each) % LINE_BYTES for each in operands)


def shape_of(problem: Problem) -> str:
    """Which of `SHAPES` a problem has; empty for none."""
    if min(problem.m, problem.n) <= MOST_FEW:
        return FEW_ROWS if problem.m <= problem.n else FEW_COLUMNS
    return STRADDLING if straddles(problem) else ""


def kind_of(problem: Problem, shape: str) -> str:
    """The types and layouts whose kernels a problem of a shape chooses from, such as ``"16 bits to 32, row col"``:
    majors of A and of B, which only 16-bit kernels tell apart. Each of `SHAPES` has kernels of its own."""
    majors = f"{problem.a.major} {problem.b.major}" if problem.a.dtype.bits == 16 else "row col"
    return f"{TYPES[type_index(problem)]} to {problem.d.dtype.bits}, {majors}{shape}"


@lru_cache(maxsize=1)
def _chosen() -> dict[str, tuple[Kernel, ...]]:
    return decoded(FILE.read_bytes(), dict[str, tuple[Kernel, ...]])


@lru_cache(maxsize=64)
def _unsplit(kind: str) -> tuple[Kernel, ...]:
    return tuple(each for each in _for(kind) if each.schedule in WITHOUT_SPLITS)


@lru_cache(maxsize=64)
def _for(kind: str) -> tuple[Kernel, ...]:
    known = _chosen()
    if kind in known:
        return known[kind]
    for shape in SHAPES:
        if kind.endswith(shape):
            return _for(kind.removesuffix(shape))
    types, majors = kind.split(" to ")[0], kind.split(", ")[-1]
    alike = [name for name in known if name.split(" to ")[0] == types]
    same = [name for name in alike if name.endswith(majors)]
    return known[(same or alike)[0]] if alike else SURVEYED


def kernels_for(problem: Problem, shape: str) -> tuple[Kernel, ...]:
    """The kernels that plans choose from for the problem's types; those of another type of D where only that was
    surveyed. Where K may not be split, those of them that never do. ``shape``: `shape_of` such problems."""
    kind = kind_of(problem, shape)
    return _unsplit(kind) if keeps_order(problem) else _for(kind)
