"""The dozen different configurations of wgmma-final that a short search measures for one problem.

The first is the planner's own choice, so that a search also records what that loses. For large problems, whose
predictions are all alike, the rest is a fixed list: wide tiles in schedules that have won on an H200. For others it is
picked by predicted time (`warptile.rungs.wgmma.cost`), with a penalty for each earlier pick that has the same tile, K
tile or split; then come variants of the best picks.
"""

from __future__ import annotations

from collections.abc import Iterator

from warptile.device import DeviceLimits
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.legality import ceil_div
from warptile.rungs.wgmma import candidates as choice
from warptile.rungs.wgmma import tiles
from warptile.rungs.wgmma.candidates import Illegal, fitted, made, schedules, split
from warptile.rungs.wgmma.estimates import estimate_us
from warptile.rungs.wgmma.kernels import SURVEYED
from warptile.rungs.wgmma.pool import pool
from warptile.rungs.wgmma.tile_shapes import (
    SINGLE,
    SQUARE_GROUP,
    cluster_tiles,
    columns_of_full_waves,
    splits_of,
    stages,
)
from warptile.rungs.wgmma.tiles import ROW_BYTES, view

MOST = 18
VARIANTS = 7
"""Number of variants of the best picks."""

LARGE_WAVES = 2
"""A problem is large from this many tiles of 128 x 256 for each SM."""

SMALL, SWAPPED_ALONE = 128, 32
"""A problem is small up to this many rows or columns of D. Up to SWAPPED_ALONE rows, only tiles with swapped operands
and all rows are tried: the instruction's M of 64 then goes along the columns of D."""

WIDE = 160
"""Most columns of a tile of 64 rows; wider ones are slower than two waves of narrower ones."""

MANY_SPLITS, SPLIT_K_TILES = 8, 4
"""K is split where tiles are so few that this many splits fit, each of at least this many K tiles."""

SAME_TILE, SAME_BK, SAME_SPLIT = 0.08, 0.04, 0.06
"""Penalty for each earlier pick with the same tile, BK or split."""

HOPELESS, WASTEFUL = 2.0, 1.4
"""Most predicted time of a pick over the best one's, and of a variant over its pick's."""


def shortlist(problem: Problem, illegal: Illegal, device: DeviceLimits, most: int = MOST) -> tuple[Config, ...]:
    """Legal configurations, the planner's own first; none where the kernel does not take the problem."""
    own = choice.default(problem, illegal, device)
    if illegal(problem, own) is not None:
        return ()
    found = [own]

    def add(config: Config) -> None:
        if config["OVERLAP"] and illegal(problem, config) is not None:
            config = {**config, "OVERLAP": 0}
        if len(found) < most and config not in found and illegal(problem, config) is None:
            found.append(config)

    if _wide_tiles(problem) >= LARGE_WAVES * device.sms and min(problem.m, problem.n) > SMALL:
        for config in _for_large(problem, device):
            add(config)
    for config in (
        *_split(problem, device),
        *_few_rows(problem, device),
        *_two_ctas_per_sm(problem, device),
        *_pingpong_swapped(problem, device),
    ):
        add(config)
    picked = _picked(problem, illegal, device, max(most - len(found) - VARIANTS, 3))
    for config in picked:
        add(config)
    for config in (own, *picked[:3]):
        for variant in (*_overlapped(problem, config), *schedules(problem, config, device)):
            if estimate_us(problem, variant, device) <= WASTEFUL * estimate_us(problem, config, device):
                add(variant)
    return tuple(found)


def _overlapped(problem: Problem, config: Config) -> Iterator[Config]:
    """The configuration with overlapped stores, where CTAs have more than one whole tile."""
    ctas = int(cluster_tiles(choice.extents_of(problem), config)) * config["CM"] * config["CN"]
    if ctas > config["SMS"] and config["SPLITS"] == 1:
        yield {**config, "OVERLAP": 1}


def _wide_tiles(problem: Problem) -> int:
    return ceil_div(problem.m, 128) * ceil_div(problem.n, 256) * problem.batch


def _for_large(problem: Problem, device: DeviceLimits) -> Iterator[Config]:
    """What has won on large problems, or may: overlapped stores, tiles of 256 x 192, ping-pong."""

    def tile(bm: int, bn: int, **changes: int) -> Config:
        return fitted(problem, {**made(problem, bm, bn, 2, 0, ROW_BYTES, device), **changes}, device)

    if tiles.two_level(problem):
        # Two levels of accumulators: wider tiles do not fit.
        overlapped = tile(128, 128, OVERLAP=1)
        yield from (overlapped, {**overlapped, "SWAP": 1}, tile(128, 192), tile(128, 192, CM=2), tile(128, 176))
    if problem.d.dtype.bits == 32:
        yield from (tile(128, 192, OVERLAP=1), tile(128, 192, OVERLAP=1, GROUP=16))
    wide = tile(128, 256, OVERLAP=1)
    pairs = tile(128, 256, OVERLAP=1, CM=2)
    yield from (wide, pairs, tile(128, 256, OVERLAP=1, CN=2))
    square = {**wide, "GROUP": SQUARE_GROUP}
    if tiles.view(problem, square).fused_repacks:
        yield square
    yield {**pairs, "SMS": device.sms}
    yield from (tile(256, 192, CM=2), tile(256, 192, STREAM=1), tile(256, 192, CM=2, STREAM=1), tile(256, 192))
    yield from (tile(128, 192, PINGPONG=1, CM=2), tile(128, 192, PINGPONG=1))
    yield from ({**pairs, "GROUP": 16}, {**pairs, "ALONG_N": 1})
    yield tile(256, 128, OVERLAP=1, CN=2)
    yield from ({**wide, "SMS": device.sms}, {**wide, "ALONG_N": 1})


def _split(problem: Problem, device: DeviceLimits) -> Iterator[Config]:
    """Square tiles with K split over all SMs, for small D and long K; in clusters where tiles come out even."""
    row = ROW_BYTES * 8 // problem.a.dtype.bits
    for bm, bn in ((64, 64), (64, 128), (128, 128)):
        count = ceil_div(problem.m, bm) * ceil_div(problem.n, bn) * problem.batch
        k_tiles = ceil_div(problem.k, row)
        most = max(each for each in splits_of(count, k_tiles, device) if each == 1 or SPLIT_K_TILES * each <= k_tiles)
        if most >= MANY_SPLITS and min(problem.m, problem.n) > SWAPPED_ALONE:
            tile = made(problem, bm, bn, bm // 64, 0, ROW_BYTES, device)
            if ceil_div(problem.m, bm) % 2 == ceil_div(problem.n, bn) % 2 == 0:
                # Each operand is read once for four tiles: 4 % faster than in clusters of two at 256 x 256 x 65536.
                yield {**split(tile, min(device.co_resident_ctas(4) // count, most), device), "CM": 2, "CN": 2}
            yield {**split(tile, most, device), "CM": 2 - ceil_div(problem.m, bm) % 2}


def _few_rows(problem: Problem, device: DeviceLimits) -> Iterator[Config]:
    """Skinny GEMMs: tiles that fill one wave, with CTAs of the same columns in clusters; and tiles twice as wide
    whose K two CTAs of a cluster split."""
    if not SWAPPED_ALONE < problem.m <= SMALL:
        return
    pairs = ceil_div(problem.m, 64)
    even = columns_of_full_waves(problem, 64, device=device)
    for bn in [each for each in even if each <= WIDE][:1] or even[:1]:
        for rows in (1, 2) if bn <= 128 else (1,):
            yield fitted(problem, {**made(problem, 64, bn, 1, 0, ROW_BYTES * rows, device), "CM": pairs}, device)
    if problem.m > 64:
        for columns in columns_of_full_waves(problem, 128, device=device)[:1]:
            yield split(made(problem, 128, 2 * columns, 2, 0, ROW_BYTES, device), 2, device)
        if ceil_div(problem.n, 128) * 2 <= device.sms:
            yield split(made(problem, 128, 128, 2, 1, ROW_BYTES, device), 2, device)


def _two_ctas_per_sm(problem: Problem, device: DeviceLimits) -> Iterator[Config]:
    """Decode shapes with one to two tiles of weights for each SM: all tiles in one wave, with two CTAs on some SMs.
    They are limited by memory bandwidth, which all CTAs share evenly."""
    count = ceil_div(problem.n, 64) * problem.batch
    if problem.m > SWAPPED_ALONE or not device.sms < count <= 2 * device.sms:
        return
    for rows in (1, 2):
        config = made(problem, 64, _covering(problem), 1, 1, ROW_BYTES * rows, device)
        yield {**config, "STAGES": stages(view(problem, config).problem, config, device, 2), "SMS": count}


def _covering(problem: Problem) -> int:
    """BN of the narrowest tile with swapped operands that covers all rows; zero where none does."""
    return min((bn for bn in SINGLE if bn >= problem.m), default=0)


def _pingpong_swapped(problem: Problem, device: DeviceLimits) -> Iterator[Config]:
    """Ping-pong with swapped operands and tiles that fill the last wave: often the best for two or three waves."""
    if min(problem.m, problem.n) > SMALL:
        for bn in columns_of_full_waves(problem, 128, swap=1, device=device):
            yield fitted(problem, {**made(problem, 128, bn, 2, 1, ROW_BYTES, device), "PINGPONG": 1}, device)


def _picked(problem: Problem, illegal: Illegal, device: DeviceLimits, count: int) -> list[Config]:
    """The best predictions of all kernels that surveys measure, with penalties for being alike."""
    covering = _covering(problem)
    left = list(pool(problem, illegal, device, SURVEYED))
    if problem.m <= SWAPPED_ALONE:
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
    """Factor of the predicted time: 1, and more for each pick that is alike."""
    factor = 1.0
    for other in picked:
        factor += SAME_TILE * all(config[key] == other[key] for key in ("BM", "BN", "SWAP"))
        factor += SAME_BK * (config["BK"] == other["BK"])
        factor += SAME_SPLIT * (config["SPLITS"] == other["SPLITS"])
    return factor
