"""Configurations of wgmma-final that are worth trying for a problem, the one of the least predicted cost first
(`warptile.rungs.wgmma_cost`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from warptile.problem import Problem
from warptile.rungs import wgmma_output as output
from warptile.rungs import wgmma_tiles as tiles
from warptile.rungs.legality import ceil_div
from warptile.rungs.rung import Config, Extents, View
from warptile.rungs.wgmma_cost import microseconds, microseconds_of
from warptile.rungs.wgmma_tiles import ROW_BYTES

MULTIPROCESSORS, FOURS = tiles.PLACES[1], tiles.PLACES[4]
"""Blocks that run at one time, of any kind and in clusters of four. Those that wait for each other must not wait for a
place."""

MOST_ROWS, MOST_ROWS_BYTES = 4, 64 * 128
"""Rows of 128 bytes that a stage is deep at most, in tiles of at most so many elements; larger ones take one."""

FEWEST_STAGES = 3
"""With two, a stage comes free only when the next one's products are under way: 0.72 of the speed of four (H200)."""

EXPANDED = 8
"""Of so many of the best tiles other schedules are considered as well."""

COOPERATIVE = (
    (128, 256), (256, 128), (128, 240), (128, 224), (128, 208), (128, 192), (128, 176), (128, 160),
    (128, 144), (128, 128), (128, 112), (128, 96), (128, 64), (256, 192), (256, 160),
)  # fmt: skip
"""Tiles of two warpgroups."""

SINGLE = (256, 192, 160, 128, 96, 64, 48, 32, 24, 16, 8)
"""Columns of tiles of one warpgroup, 64 rows."""

MOST_TURNED = 128
"""Columns, that is rows of D, of tiles of two warpgroups that are turned round."""

EVEN_TURNS = (1, 2, 3)
"""Turns of all multiprocessors for which tiles are cut to measure."""

SPLITS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
"""Parts into which the depth is split, beside the most that multiprocessors allow."""

SQUARE_GROUP = 16
"""Tiles of a group with which the first turn, of 128 tiles of 128 x 256, needs as many rows as columns: the fewest."""

MOST_STAGES = 12
SHARED_BYTES, RESERVED_BYTES = 227 * 1024, 1024
"""Of a block that is alone on its multiprocessor, and what the system takes beside for each."""

Illegal = Callable[[Problem, Config], str | None]
Shape = tuple[int, int, int, int]
"""BM, BN, CONSUMERS, SWAP."""


def stages(seen: Problem, config: Config, blocks: int = 1) -> int:
    """As many as fit, 12 at most, with so many blocks on a multiprocessor."""
    each = (SHARED_BYTES + RESERVED_BYTES) // blocks - RESERVED_BYTES
    room = each - config["CONSUMERS"] * output.consumer_bytes(seen, config) - 2 * MOST_STAGES * tiles.MBARRIER_BYTES
    return min(room // tiles.stage_bytes(seen, config), MOST_STAGES)


def shapes(problem: Problem, sms: int = MULTIPROCESSORS) -> tuple[Shape, ...]:
    """Of all tiles, each once. Those cut to measure come turned round first: whatever their columns, they store D in
    whole lines of 128 bytes, 2 to 6 % of the time of products of a turn or two (H200)."""
    found = [(128, bn, 2, 1) for bn in even_columns(problem, 128, swap=1, sms=sms)]
    found += [(bm, bn, 2, 0) for bm, bn in COOPERATIVE]
    for swap in (0, 1):
        for bn in SINGLE:
            found.append((64, bn, 1, swap))
            if swap and bn <= MOST_TURNED:
                found.append((128, bn, 2, swap))
    found += [(bm, bn, bm // 64, 0) for bm in (64, 128) for bn in even_columns(problem, bm, sms=sms)]
    return tuple(dict.fromkeys(found))


def even_columns(problem: Problem, bm: int, swap: int = 0, sms: int = MULTIPROCESSORS) -> list[int]:
    """Columns of tiles of BM rows that leave the fewest multiprocessors idle in their last turn, for one turn, two and
    three: 80 of 10240 (128 tiles), 104 of 1280 with 1280 rows (130), 168 of 2304 with 2304 (252). Where tiles are as
    wide at most; of D turned round with SWAP."""
    rows, columns_of_d = (problem.n, problem.m) if swap else (problem.m, problem.n)
    down = ceil_div(rows, bm) * problem.batch
    across = (sms * turns // down for turns in EVEN_TURNS)
    columns = (8 * ceil_div(columns_of_d, 8 * each) for each in across if each)
    return [each for each in columns if each <= tiles.MAX_BOX]


def splits_of(count: int, steps: int, sms: int = MULTIPROCESSORS) -> list[int]:
    """Into how many parts the depth of ``count`` tiles may be split, from one on; each leaves shorter parts."""
    most = min(sms // max(count, 1), steps)
    parts = (each for each in (most, *SPLITS) if 1 < each <= most)
    return sorted({1, *(ceil_div(steps, ceil_div(steps, each)) for each in parts)})


def _base(
    problem: Problem, bm: int, bn: int, consumers: int, swap: int, depth: int, sms: int = MULTIPROCESSORS
) -> Config:
    """One configuration of two stages on so many multiprocessors."""
    return {
        "BM": bm, "BN": bn, "BK": depth * 8 // problem.a.dtype.bits, "STAGES": 2, "CONSUMERS": consumers, "PINGPONG": 0,
        "CM": 1, "CN": 1, "GROUP": 8, "ALONG_N": 0, "OVERLAP": 0, "STREAM": 0, "SPLITS": 1, "SWAP": swap,
        "SMS": sms,
    }  # fmt: skip


def made(problem: Problem, bm: int, bn: int, consumers: int, swap: int, depth: int) -> Config:
    """One configuration, its stages and multiprocessors filled in; of types that the kernel takes."""
    config = _base(problem, bm, bn, consumers, swap, depth)
    return fitted(problem, _filled(tiles.view(problem, config), config))


def _filled(view: View, config: Config) -> Config:
    """With as many stages as fit."""
    return {**config, "STAGES": max(stages(view.problem, config), 2)}


def split(config: Config, parts: int, sms: int = MULTIPROCESSORS) -> Config:
    """With every tile's depth in so many parts, on all multiprocessors."""
    return {**config, "SPLITS": parts, "SMS": sms} if parts > 1 else config


def pool(problem: Problem, sms: int = MULTIPROCESSORS) -> Iterator[tuple[float, Config]]:
    """Every tile that is not mostly empty, in every depth of a stage and every split of K, with its microseconds on at
    most so many multiprocessors."""
    views: dict[tuple[int, ...], View] = {}
    matters = ("SWAP",) if tiles.lies_well(problem) else ("SWAP", "OVERLAP", "BM", "BN", "GROUP")

    def view(config: Config) -> View:
        of = tuple(config[key] for key in matters)
        if of not in views:
            views[of] = tiles.view(problem, config)
        return views[of]

    extents = (problem.m, problem.n), (problem.n, problem.m)
    row = ROW_BYTES * 8 // problem.a.dtype.bits
    for bm, bn, consumers, swap in shapes(problem, sms):
        m, n = extents[swap]
        if (bm > 64 and bm >= 2 * m) or (bn > 16 and bn >= 2 * n):
            continue
        count = ceil_div(m, bm) * ceil_div(n, bn) * problem.batch
        for rows in (1, 2, MOST_ROWS):
            if rows > 1 and bm * bn > MOST_ROWS_BYTES:
                break
            steps = ceil_div(problem.k, row * rows)
            base = _base(problem, bm, bn, consumers, swap, ROW_BYTES * rows, sms)
            whole = fitted(problem, _filled(view(base), base), sms)
            if whole["STAGES"] < FEWEST_STAGES:
                continue
            found = [whole, *(split(whole, parts, sms) for parts in splits_of(count, steps, sms)[1:])]
            late = {**whole, "OVERLAP": 1}
            if output.panels(view(late).problem, late)[1]:
                found.append(_filled(view(late), late))
            square = {**late, "GROUP": SQUARE_GROUP}
            if view(late).copies and view(square).beside:
                found.append(_filled(view(square), square))
            yield from ((microseconds_of(view(config), config), config) for config in found)


def schedules(problem: Problem, config: Config, sms: int = MULTIPROCESSORS) -> Iterator[Config]:
    """The same tile in other schedules."""
    whole = {**config, "SPLITS": 1}
    yield from (fitted(problem, {**config, change: 2}, sms) for change in ("CM", "CN"))
    yield fitted(problem, {**whole, "OVERLAP": 0, "STREAM": 1}, sms)
    if config["CONSUMERS"] == 2 and config["SPLITS"] == 1:
        yield fitted(problem, {**whole, "OVERLAP": 0, "PINGPONG": 1}, sms)


def usual(problem: Problem, illegal: Illegal, sms: int = MULTIPROCESSORS) -> Iterator[Config]:
    """Legal configurations on at most so many multiprocessors, the one that should be fastest first."""
    if tiles.type_reason(problem, batches=True) is not None:
        return
    found = sorted(pool(problem, sms), key=lambda each: each[0])
    others = (config for _, best in found[:EXPANDED] for config in schedules(problem, best, sms))
    found += [(microseconds(problem, config), config) for config in others]
    for _, config in sorted(found, key=lambda each: each[0]):
        if illegal(problem, config) is None:
            yield config


def default(problem: Problem, illegal: Illegal, sms: int = MULTIPROCESSORS) -> Config:
    """The configuration that should be fastest; where none is legal, one whose refusal says why."""
    found = next(usual(problem, illegal, sms), None)
    return _base(problem, 128, 128, 2, 0, ROW_BYTES, sms) if found is None else found


def clusters(extents: Extents, config: Config) -> int:
    """Tiles of D, those of a cluster counted as one."""
    m, n, _, batch = extents
    rows, columns = (n, m) if config["SWAP"] else (m, n)
    return ceil_div(rows, config["BM"] * config["CM"]) * ceil_div(columns, config["BN"] * config["CN"]) * batch


def extents_of(problem: Problem) -> Extents:
    """Those of a problem."""
    return problem.m, problem.n, problem.k, problem.batch


def fitted(problem: Problem, config: Config, sms: int = MULTIPROCESSORS) -> Config:
    """With as few of the multiprocessors as take no more turns."""
    return {**config, "SMS": fewest(extents_of(problem), config, sms)}


def fewest(extents: Extents, config: Config, sms: int = MULTIPROCESSORS) -> int:
    """Multiprocessors that take no more turns than all do."""
    count, blocks = clusters(extents, config), config["CM"] * config["CN"]
    if config["SPLITS"] > 1 or config["STREAM"] or not count or blocks > sms:
        return sms
    return ceil_div(count, ceil_div(count, sms // blocks)) * blocks


def candidates(problem: Problem, illegal: Illegal) -> tuple[Config, ...]:
    """What a search tries: the best guesses, each with its neighbours in every other tunable."""
    best = list(islice(usual(problem, illegal), 10))
    if not best:
        return ()
    found = list(best)
    for config in best[:5]:
        full = {**config, "SMS": MULTIPROCESSORS}
        found += [{**config, **change} for change in (
            {"CM": 2}, {"CN": 2}, {"CM": 2, "CN": 2}, {"CM": 4}, {"OVERLAP": 0}, {"GROUP": 4}, {"GROUP": 16},
            {"ALONG_N": 1}, {"BK": 2 * config["BK"], "STAGES": max(config["STAGES"] // 2, 2)},
        )]  # fmt: skip
        found += [
            full,
            {**full, "CM": 2},
            {**full, "OVERLAP": 0, "STREAM": 1},
            {**full, "OVERLAP": 0, "STREAM": 1, "CM": 2},
        ]
    wide = {**made(problem, 256, 192, 2, 0, ROW_BYTES), "SMS": MULTIPROCESSORS}
    found += [wide, {**wide, "CM": 2}, {**wide, "STREAM": 1}]
    for bm, bn in ((128, 192), (128, 160), (128, 128), (64, 256), (64, 192), (64, 128)):
        base = {**made(problem, bm, bn, 2, 0, ROW_BYTES), "PINGPONG": 1}
        found += [base, {**base, "CM": 2}]
    unique = {tuple(sorted(config.items())): config for config in found}
    return tuple(config for config in unique.values() if illegal(problem, config) is None)
