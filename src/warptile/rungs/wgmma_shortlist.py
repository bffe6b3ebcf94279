"""A dozen configurations of wgmma-final that differ: what a short search measures for one problem.

The first is the planner's own choice, so that a search also says what that loses. For large problems the rest is a
fixed list, as all that is predicted for them is alike: wide tiles, in schedules that have won on an H200. For all
others it is picked by predicted time (`wgmma_cost`), each one a little worse for every one before it that has
the same tile, depth or split; then come variants of the best of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from warptile.problem import Problem
from warptile.rungs import wgmma_choice as choice
from warptile.rungs import wgmma_tiles as tiles
from warptile.rungs.legality import ceil_div
from warptile.rungs.rung import Config
from warptile.rungs.wgmma_choice import MULTIPROCESSORS, Illegal, fitted, made, pool, schedules, split, splits_of
from warptile.rungs.wgmma_cost import microseconds
from warptile.rungs.wgmma_tiles import ROW_BYTES, view

MOST = 18
VARIANTS = 7
"""How many of them are variants of the best picks."""

LARGE_WAVES = 2
"""A problem is large that has so many tiles of 128 x 256 for each multiprocessor."""

SMALL, TURNED_ALONE = 128, 32
"""A problem is small whose D has at most so many rows or columns. With fewer rows yet only turned tiles are tried, of
all rows: what is 64 of an instruction are then columns."""

WIDE = 160
"""Columns of a tile of 64 rows; wider ones are slower than two turns of narrower ones."""

MANY_SPLITS, SPLIT_STEPS = 8, 4
"""Tiles are few that can be split so often, into parts of so many steps."""

SAME_TILE, SAME_DEPTH, SAME_SPLIT = 0.08, 0.04, 0.06
"""By how much each pick before makes the next one worse that is like it."""

HOPELESS, WASTEFUL = 2.0, 1.4
"""A configuration is not picked whose predicted time is so many times the best, nor a variant so many times its
pick's."""


def shortlist(problem: Problem, illegal: Illegal, most: int = MOST) -> tuple[Config, ...]:
    """Legal configurations, the planner's own first; none where the kernel does not take the problem."""
    own = choice.default(problem, illegal)
    if illegal(problem, own) is not None:
        return ()
    found = [own]

    def add(config: Config) -> None:
        if config["OVERLAP"] and illegal(problem, config) is not None:
            config = {**config, "OVERLAP": 0}
        if len(found) < most and config not in found and illegal(problem, config) is None:
            found.append(config)

    if _wide_tiles(problem) >= LARGE_WAVES * MULTIPROCESSORS and min(problem.m, problem.n) > SMALL:
        for config in _for_large(problem):
            add(config)
    for config in (*_split(problem), *_few_rows(problem), *_two_each(problem), *_by_turns(problem)):
        add(config)
    picked = _picked(problem, illegal, max(most - len(found) - VARIANTS, 3))
    for config in picked:
        add(config)
    for config in (own, *picked[:3]):
        for variant in (*_late(problem, config), *schedules(problem, config)):
            if microseconds(problem, variant) <= WASTEFUL * microseconds(problem, config):
                add(variant)
    return tuple(found)


def _late(problem: Problem, config: Config) -> Iterator[Config]:
    """With overlapped stores, where blocks have more than one whole tile."""
    blocks = choice.clusters(choice.extents_of(problem), config) * config["CM"] * config["CN"]
    if blocks > config["SMS"] and config["SPLITS"] == 1:
        yield {**config, "OVERLAP": 1}


def _wide_tiles(problem: Problem) -> int:
    return ceil_div(problem.m, 128) * ceil_div(problem.n, 256) * problem.batch


def _for_large(problem: Problem) -> Iterator[Config]:
    """What has won on large problems, or may: overlapped stores, tiles of 256 x 192, warpgroups in turns."""

    def tile(bm: int, bn: int, **changes: int) -> Config:
        return fitted(problem, {**made(problem, bm, bn, 2, 0, ROW_BYTES), **changes})

    if tiles.promoted(problem):
        # Sums are there twice: wider tiles do not fit.
        late = tile(128, 128, OVERLAP=1)
        yield from (late, {**late, "SWAP": 1}, tile(128, 192), tile(128, 192, CM=2), tile(128, 176))
    if problem.d.dtype.bits == 32:
        yield from (tile(128, 192, OVERLAP=1), tile(128, 192, OVERLAP=1, GROUP=16))
    wide = tile(128, 256, OVERLAP=1)
    pairs = tile(128, 256, OVERLAP=1, CM=2)
    yield from (wide, pairs, tile(128, 256, OVERLAP=1, CN=2))
    square = {**wide, "GROUP": choice.SQUARE_GROUP}
    if tiles.view(problem, square).beside:
        yield square
    yield {**pairs, "SMS": MULTIPROCESSORS}
    yield from (tile(256, 192, CM=2), tile(256, 192, STREAM=1), tile(256, 192, CM=2, STREAM=1), tile(256, 192))
    yield from (tile(128, 192, PINGPONG=1, CM=2), tile(128, 192, PINGPONG=1))
    yield from ({**pairs, "GROUP": 16}, {**pairs, "ALONG_N": 1})
    yield tile(256, 128, OVERLAP=1, CN=2)
    yield from ({**wide, "SMS": MULTIPROCESSORS}, {**wide, "ALONG_N": 1})


def _split(problem: Problem) -> Iterator[Config]:
    """Where a few tiles are deep: all multiprocessors on square ones, in pairs where these come out even."""
    row = ROW_BYTES * 8 // problem.a.dtype.bits
    for bm, bn in ((64, 64), (64, 128), (128, 128)):
        count = ceil_div(problem.m, bm) * ceil_div(problem.n, bn) * problem.batch
        steps = ceil_div(problem.k, row)
        most = max(each for each in splits_of(count, steps) if each == 1 or SPLIT_STEPS * each <= steps)
        if most >= MANY_SPLITS and min(problem.m, problem.n) > TURNED_ALONE:
            tile = made(problem, bm, bn, bm // 64, 0, ROW_BYTES)
            if ceil_div(problem.m, bm) % 2 == ceil_div(problem.n, bn) % 2 == 0:
                # Each operand is read once for four tiles: 4 % faster than in pairs at 256 x 256 x 65536.
                yield {**split(tile, min(choice.FOURS // count, most)), "CM": 2, "CN": 2}
            yield {**split(tile, most), "CM": 2 - ceil_div(problem.m, bm) % 2}


def _few_rows(problem: Problem) -> Iterator[Config]:
    """Where rows are few and columns many: tiles cut so that one turn takes all of them, blocks of the same columns in
    pairs; and twice as wide, in two blocks of a cluster that share the depth."""
    if not TURNED_ALONE < problem.m <= SMALL:
        return
    pairs = ceil_div(problem.m, 64)
    even = choice.even_columns(problem, 64)
    for bn in [each for each in even if each <= WIDE][:1] or even[:1]:
        for rows in (1, 2) if bn <= 128 else (1,):
            yield fitted(problem, {**made(problem, 64, bn, 1, 0, ROW_BYTES * rows), "CM": pairs})
    if problem.m > 64:
        for columns in choice.even_columns(problem, 128)[:1]:
            yield split(made(problem, 128, 2 * columns, 2, 0, ROW_BYTES), 2)
        if ceil_div(problem.n, 128) * 2 <= MULTIPROCESSORS:
            yield split(made(problem, 128, 128, 2, 1, ROW_BYTES), 2)


def _two_each(problem: Problem) -> Iterator[Config]:
    """Where very few rows meet more tiles of weights than there are multiprocessors, up to twice as many: all of them
    at one time, two on some multiprocessors. Memory is what they wait for, and it serves all alike."""
    count = ceil_div(problem.n, 64) * problem.batch
    if problem.m > TURNED_ALONE or not MULTIPROCESSORS < count <= 2 * MULTIPROCESSORS:
        return
    for rows in (1, 2):
        config = made(problem, 64, _covering(problem), 1, 1, ROW_BYTES * rows)
        yield {**config, "STAGES": choice.stages(view(problem, config).problem, config, 2), "SMS": count}


def _covering(problem: Problem) -> int:
    """Columns of the narrowest turned tile that has all rows; zero where none has."""
    return min((bn for bn in choice.SINGLE if bn >= problem.m), default=0)


def _by_turns(problem: Problem) -> Iterator[Config]:
    """Turned tiles cut to measure, a warpgroup's each: of two turns or three they were often the best."""
    if min(problem.m, problem.n) > SMALL:
        for bn in choice.even_columns(problem, 128, swap=1):
            yield fitted(problem, {**made(problem, 128, bn, 2, 1, ROW_BYTES), "PINGPONG": 1})


def _picked(problem: Problem, illegal: Illegal, count: int) -> list[Config]:
    """The best predictions that are not all alike."""
    covering = _covering(problem)
    left = list(pool(problem))
    if problem.m <= TURNED_ALONE:
        left = [(time, config) for time, config in left if config["SWAP"] and config["BN"] == covering]
    best = min((time for time, _ in left), default=0.0)
    left = sorted((each for each in left if each[0] <= HOPELESS * best), key=lambda each: each[0])
    picked: list[Config] = []
    while left and len(picked) < count:
        scores = [time * _likeness(config, picked) for time, config in left]
        _, config = left.pop(scores.index(min(scores)))
        legal = next((each for each in (config, {**config, "OVERLAP": 0}) if illegal(problem, each) is None), None)
        if legal is not None and not any({**other, "OVERLAP": legal["OVERLAP"]} == legal for other in picked):
            picked.append(legal)
    return picked


def _likeness(config: Config, picked: list[Config]) -> float:
    """One, and more for each pick that is like it."""
    factor = 1.0
    for other in picked:
        factor += SAME_TILE * all(config[key] == other[key] for key in ("BM", "BN", "SWAP"))
        factor += SAME_DEPTH * (config["BK"] == other["BK"])
        factor += SAME_SPLIT * (config["SPLITS"] == other["SPLITS"])
    return factor
