"""Configurations of wgmma-final that are worth trying for a problem, in order of predicted time
(`warptile.rungs.wgmma.cost`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from warptile.device import DeviceLimits
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config, View
from warptile.rungs.legality import ceil_div
from warptile.rungs.rung import Extents
from warptile.rungs.tma import MAX_BOX, MBARRIER_BYTES
from warptile.rungs.wgmma import epilogue, tiles
from warptile.rungs.wgmma.cost import estimate_us, estimate_view_us
from warptile.rungs.wgmma.tiles import ROW_BYTES

MOST_ROWS, MOST_ROWS_BYTES = 4, 64 * 128
"""Most rows of 128 bytes that a stage holds along K, and most elements of a tile for which it holds more than one."""

FEWEST_STAGES = 3
"""Least stages. With two, a stage is released only while the next one's MMAs run: 0.72 of the speed of four (H200)."""

EXPANDED = 8
"""Number of the best tiles for which other schedules are considered too."""

COOPERATIVE = (
    (128, 256), (256, 128), (128, 240), (128, 224), (128, 208), (128, 192), (128, 176), (128, 160),
    (128, 144), (128, 128), (128, 112), (128, 96), (128, 64), (256, 192), (256, 160),
)  # fmt: skip
"""Tiles of two warpgroups."""

SINGLE = (256, 192, 160, 128, 96, 64, 48, 32, 24, 16, 8)
"""BN of tiles of one consumer warpgroup, whose BM is 64."""

MOST_SWAPPED = 128
"""Most columns (rows of D) of tiles of two warpgroups with swapped operands."""

FULL_WAVES = (1, 2, 3)
"""Numbers of waves for which tiles are sized to fill the last one."""

SPLITS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
"""Numbers of splits of K, in addition to the most that the SMs allow."""

SQUARE_GROUP = 16
"""GROUP with which the first wave, of 128 tiles of 128 x 256, covers a square of D, so that it loads least."""

MOST_STAGES = 12
SHARED_BYTES, RESERVED_BYTES = 227 * 1024, 1024
"""Shared memory of a CTA that is alone on its SM, and what the system reserves for each CTA."""

Illegal = Callable[[Problem, Config], str | None]
Shape = tuple[int, int, int, int]
"""BM, BN, CONSUMERS, SWAP."""


def stages(seen: Problem, config: Config, device: DeviceLimits, ctas_per_sm: int = 1) -> int:
    """The most stages that fit, up to `MOST_STAGES`, with ``ctas_per_sm`` CTAs on an SM."""
    each = (SHARED_BYTES + RESERVED_BYTES) // ctas_per_sm - RESERVED_BYTES
    room = each - config["CONSUMERS"] * epilogue.consumer_bytes(seen, config, device) - 2 * MOST_STAGES * MBARRIER_BYTES
    return min(room // tiles.stage_bytes(seen, config), MOST_STAGES)


def shapes(problem: Problem, device: DeviceLimits) -> tuple[Shape, ...]:
    """All tiles, each once. Those sized to fill the last wave come first with swapped operands: whatever their columns,
    they store D in whole lines of 128 bytes, which saves 2 to 6 % of a GEMM of one or two waves (H200)."""
    found = [(128, bn, 2, 1) for bn in columns_of_full_waves(problem, 128, swap=1, device=device)]
    found += [(bm, bn, 2, 0) for bm, bn in COOPERATIVE]
    for swap in (0, 1):
        for bn in SINGLE:
            found.append((64, bn, 1, swap))
            if swap and bn <= MOST_SWAPPED:
                found.append((128, bn, 2, swap))
    found += [(bm, bn, bm // 64, 0) for bm in (64, 128) for bn in columns_of_full_waves(problem, bm, device=device)]
    return tuple(dict.fromkeys(found))


def columns_of_full_waves(problem: Problem, bm: int, swap: int = 0, *, device: DeviceLimits) -> list[int]:
    """BN of tiles of BM rows that leave the fewest SMs idle in the last wave, for one, two and three waves: 80 for
    10240 columns (128 tiles), 104 for 1280 x 1280 (130), 168 for 2304 x 2304 (252). Only those up to `MAX_BOX`;
    with ``swap`` for swapped operands."""
    rows, columns_of_d = (problem.n, problem.m) if swap else (problem.m, problem.n)
    down = ceil_div(rows, bm) * problem.batch
    across = (device.sms * waves // down for waves in FULL_WAVES)
    columns = (8 * ceil_div(columns_of_d, 8 * each) for each in across if each)
    return [each for each in columns if each <= MAX_BOX]


def splits_of(count: int, k_tiles: int, device: DeviceLimits) -> list[int]:
    """Numbers of splits of K for ``count`` tiles, from one on, each with fewer K tiles a split than the one before."""
    most = min(device.sms // max(count, 1), k_tiles)
    parts = (each for each in (most, *SPLITS) if 1 < each <= most)
    return sorted({1, *(ceil_div(k_tiles, ceil_div(k_tiles, each)) for each in parts)})


def _base(problem: Problem, bm: int, bn: int, consumers: int, swap: int, k_bytes: int, device: DeviceLimits) -> Config:
    """A configuration with ``k_bytes`` of K in each of two stages, on all SMs."""
    return {
        "BM": bm, "BN": bn, "BK": k_bytes * 8 // problem.a.dtype.bits, "STAGES": 2, "CONSUMERS": consumers,
        "PINGPONG": 0, "CM": 1, "CN": 1, "GROUP": 8, "ALONG_N": 0, "OVERLAP": 0, "STREAM": 0, "SPLITS": 1, "SWAP": swap,
        "SMS": device.sms,
    }  # fmt: skip


def made(problem: Problem, bm: int, bn: int, consumers: int, swap: int, k_bytes: int, device: DeviceLimits) -> Config:
    """A configuration with as many stages as fit and as few SMs as needed. The kernel must take the problem's types."""
    config = _base(problem, bm, bn, consumers, swap, k_bytes, device)
    return fitted(problem, _filled(tiles.view(problem, config), config, device), device)


def _filled(view: View, config: Config, device: DeviceLimits) -> Config:
    """The configuration with as many stages as fit."""
    return {**config, "STAGES": max(stages(view.problem, config, device), 2)}


def split(config: Config, parts: int, device: DeviceLimits) -> Config:
    """The configuration with K of every tile in ``parts`` splits, on all SMs."""
    return {**config, "SPLITS": parts, "SMS": device.sms} if parts > 1 else config


def pool(problem: Problem, device: DeviceLimits) -> Iterator[tuple[float, Config]]:
    """Every tile that is not mostly padding, with every K extent of a stage and every split of K, and its predicted
    microseconds."""
    views: dict[tuple[int, ...], View] = {}
    matters = ("SWAP",) if tiles.is_aligned(problem) else ("SWAP", "OVERLAP", "BM", "BN", "GROUP")

    def view(config: Config) -> View:
        of = tuple(config[key] for key in matters)
        if of not in views:
            views[of] = tiles.view(problem, config)
        return views[of]

    extents = (problem.m, problem.n), (problem.n, problem.m)
    row = ROW_BYTES * 8 // problem.a.dtype.bits
    for bm, bn, consumers, swap in shapes(problem, device):
        m, n = extents[swap]
        if (bm > 64 and bm >= 2 * m) or (bn > 16 and bn >= 2 * n):
            continue
        count = ceil_div(m, bm) * ceil_div(n, bn) * problem.batch
        for rows in (1, 2, MOST_ROWS):
            if rows > 1 and bm * bn > MOST_ROWS_BYTES:
                break
            k_tiles = ceil_div(problem.k, row * rows)
            base = _base(problem, bm, bn, consumers, swap, ROW_BYTES * rows, device)
            whole = fitted(problem, _filled(view(base), base, device), device)
            if whole["STAGES"] < FEWEST_STAGES:
                continue
            found = [whole, *(split(whole, parts, device) for parts in splits_of(count, k_tiles, device)[1:])]
            overlapped = {**whole, "OVERLAP": 1}
            if epilogue.subtiles(view(overlapped).problem, overlapped, device)[1]:
                found.append(_filled(view(overlapped), overlapped, device))
            square = {**overlapped, "GROUP": SQUARE_GROUP}
            if view(overlapped).repacks and view(square).fused_repacks:
                found.append(_filled(view(square), square, device))
            yield from ((estimate_view_us(view(config), config, device), config) for config in found)


def schedules(problem: Problem, config: Config, device: DeviceLimits) -> Iterator[Config]:
    """The same tile in other schedules: clusters, stream-K, ping-pong."""
    whole = {**config, "SPLITS": 1}
    yield from (fitted(problem, {**config, change: 2}, device) for change in ("CM", "CN"))
    yield fitted(problem, {**whole, "OVERLAP": 0, "STREAM": 1}, device)
    if config["CONSUMERS"] == 2 and config["SPLITS"] == 1:
        yield fitted(problem, {**whole, "OVERLAP": 0, "PINGPONG": 1}, device)


def ranked(problem: Problem, illegal: Illegal, device: DeviceLimits) -> Iterator[Config]:
    """Legal configurations in order of predicted time."""
    if tiles.type_reason(problem, batches=True) is not None:
        return
    found = sorted(pool(problem, device), key=lambda each: each[0])
    others = (config for _, best in found[:EXPANDED] for config in schedules(problem, best, device))
    found += [(estimate_us(problem, config, device), config) for config in others]
    for _, config in sorted(found, key=lambda each: each[0]):
        if illegal(problem, config) is None:
            yield config


def default(problem: Problem, illegal: Illegal, device: DeviceLimits) -> Config:
    """The configuration of least predicted time; where none is legal, one whose refusal says why."""
    found = next(ranked(problem, illegal, device), None)
    return _base(problem, 128, 128, 2, 0, ROW_BYTES, device) if found is None else found


def cluster_tiles(extents: Extents, config: Config) -> int:
    """Tiles of D, those of a cluster counted as one."""
    m, n, _, batch = extents
    rows, columns = (n, m) if config["SWAP"] else (m, n)
    return ceil_div(rows, config["BM"] * config["CM"]) * ceil_div(columns, config["BN"] * config["CN"]) * batch


def extents_of(problem: Problem) -> Extents:
    """Extents of a problem."""
    return problem.m, problem.n, problem.k, problem.batch


def fitted(problem: Problem, config: Config, device: DeviceLimits) -> Config:
    """The configuration on the fewest SMs that take no more waves."""
    return {**config, "SMS": fewest(extents_of(problem), config, device)}


def fewest(extents: Extents, config: Config, device: DeviceLimits) -> int:
    """The fewest SMs that take no more waves than all SMs."""
    count, cluster = cluster_tiles(extents, config), config["CM"] * config["CN"]
    if config["SPLITS"] > 1 or config["STREAM"] or not count or cluster > device.sms:
        return device.sms
    return ceil_div(count, ceil_div(count, device.sms // cluster)) * cluster


def candidates(problem: Problem, illegal: Illegal, device: DeviceLimits) -> tuple[Config, ...]:
    """What a search tries: the best predictions, each with its neighbours in every other tunable."""
    best = list(islice(ranked(problem, illegal, device), 10))
    if not best:
        return ()
    found = list(best)
    for config in best[:5]:
        full = {**config, "SMS": device.sms}
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
    wide = {**made(problem, 256, 192, 2, 0, ROW_BYTES, device), "SMS": device.sms}
    found += [wide, {**wide, "CM": 2}, {**wide, "STREAM": 1}]
    for bm, bn in ((128, 192), (128, 160), (128, 128), (64, 256), (64, 192), (64, 128)):
        base = {**made(problem, bm, bn, 2, 0, ROW_BYTES, device), "PINGPONG": 1}
        found += [base, {**base, "CM": 2}]
    unique = {tuple(sorted(config.items())): config for config in found}
    return tuple(config for config in unique.values() if illegal(problem, config) is None)
