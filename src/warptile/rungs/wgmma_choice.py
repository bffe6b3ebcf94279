"""Configurations of wgmma-final that are worth trying for a problem, and a first guess at the best: a sum of clocks.

Of one 32-byte step of depth of a BM x BN tile: the tensor cores take BM * BN / 128 clocks (whatever the type), shared
memory moves 128 bytes a clock, written once by TMA and read by every instruction: 64 rows of A and all BN columns of B.
Blocks take their tiles in turns; a tile costs a little beside its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from warptile.problem import Problem
from warptile.rungs import wgmma_tiles as tiles
from warptile.rungs.legality import ceil_div
from warptile.rungs.rung import Config
from warptile.rungs.wgmma_tiles import ROW_BYTES, ROWS, STEP_BYTES

MULTIPROCESSORS = 132
TILE_CLOCKS = 700
"""Of a tile beside its steps: its sums leave. An estimate, as the next four."""

HIDDEN_TILE_CLOCKS = 250
"""The same where they leave inside the next tile's steps."""

START_CLOCKS = 1500
"""From the launch to the first product."""

PARTIAL_BYTES_PER_CLOCK = 30
"""At which a block writes its sums over a part of the depth, and reads as many of all blocks of the tile."""

MEETING_CLOCKS = 3000
"""Of the blocks of a tile between the two: memory fence, counter, the first bytes. An estimate."""

DRAM_BYTES_PER_CLOCK = 2300
BLOCK_BYTES_PER_CLOCK = 45
"""At which a block gets operands."""

COOPERATIVE = (
    (128, 256), (256, 128), (128, 240), (128, 224), (128, 208), (128, 192), (128, 176), (128, 160),
    (128, 144), (128, 128), (128, 112), (128, 96), (128, 64),
)  # fmt: skip
"""Tiles of two warpgroups."""

SINGLE = (256, 192, 160, 128, 96, 64, 48, 32, 24, 16, 8)
"""Columns of tiles of one warpgroup, 64 rows."""

MOST_TURNED = 128
"""Columns, that is rows of D, of tiles of two warpgroups that are turned round."""

SPLITS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
"""Parts into which the depth is split, beside the most that multiprocessors allow."""

MOST_STAGES = 12
SHARED_BYTES = 227 * 1024

NOT_HIDDEN = 0.2
"""Share of the shorter of the two, products and bytes from DRAM, that the longer does not hide."""

Illegal = Callable[[Problem, Config], str | None]


def step_clocks(bm: int, bn: int) -> float:
    """Clocks of 32 bytes of depth: of the tensor cores or of shared memory."""
    tensor = bm * bn / 128
    shared = (bm + bm // ROWS * bn + bm + bn) * STEP_BYTES / 128
    return max(tensor, shared)


def stages(seen: Problem, config: Config) -> int:
    """As many as fit, 12 at most."""
    output = config["CONSUMERS"] * (tiles.OUTPUT_BUFFERS * tiles.BUFFER_BYTES + tiles.MBARRIER_BYTES)
    room = SHARED_BYTES - output - 2 * MOST_STAGES * tiles.MBARRIER_BYTES
    return min(room // tiles.stage_bytes(seen, config), MOST_STAGES)


def guess(problem: Problem, config: Config) -> float:
    """Clocks that a legal configuration may take."""
    seen = tiles.turned(problem) if config["SWAP"] else problem
    bm, bn = config["BM"], config["BN"]
    count = ceil_div(seen.m, bm * config["CM"]) * ceil_div(seen.n, bn * config["CN"]) * config["CM"] * config["CN"]
    count *= seen.batch
    splits, steps = config["SPLITS"], ceil_div(seen.k, config["BK"])
    busy = min(count * splits, config["SMS"])
    turns = ceil_div(count * splits, busy)
    step_bytes = config["BK"] * seen.a.dtype.bits // 8
    depth_bytes, part_bytes = steps * step_bytes, ceil_div(steps, splits) * step_bytes
    each = max(part_bytes / STEP_BYTES * step_clocks(bm, bn), (bm + bn) * part_bytes / BLOCK_BYTES_PER_CLOCK)
    each += HIDDEN_TILE_CLOCKS if config["OVERLAP"] or turns == 1 else TILE_CLOCKS
    if splits > 1:
        each += MEETING_CLOCKS + 2 * bm * bn * 4 / PARTIAL_BYTES_PER_CLOCK
    lines = sum(extent * each for extent, each in zip((seen.m, seen.n), seen.operand_matrices, strict=True))
    everything = lines * depth_bytes + seen.m * seen.n * seen.batch * seen.d.dtype.bits / 8
    longer, shorter = sorted((turns * each, everything / DRAM_BYTES_PER_CLOCK), reverse=True)
    return START_CLOCKS + longer + NOT_HIDDEN * shorter


def shapes(problem: Problem) -> Iterator[tuple[int, int, int, int]]:
    """BM, BN, CONSUMERS, SWAP."""
    for bm, bn in COOPERATIVE:
        yield bm, bn, 2, 0
    for swap in (0, 1):
        for bn in SINGLE:
            yield 64, bn, 1, swap
            if swap and bn <= MOST_TURNED:
                yield 128, bn, 2, swap


def splits_of(count: int, steps: int) -> list[int]:
    """Into how many parts the depth of ``count`` tiles may be split, from one on; each leaves shorter parts."""
    most = min(MULTIPROCESSORS // max(count, 1), steps)
    parts = (each for each in (most, *SPLITS) if 1 < each <= most)
    return sorted({1, *(ceil_div(steps, ceil_div(steps, each)) for each in parts)})


def _base(problem: Problem, bm: int, bn: int, consumers: int, swap: int, depth: int) -> Config:
    """One configuration of two stages and all multiprocessors."""
    return {
        "BM": bm, "BN": bn, "BK": depth * 8 // problem.a.dtype.bits, "STAGES": 2, "CONSUMERS": consumers, "PINGPONG": 0,
        "CM": 1, "CN": 1, "GROUP": 8, "ALONG_N": 0, "OVERLAP": 0, "STREAM": 0, "SPLITS": 1, "SWAP": swap,
        "SMS": MULTIPROCESSORS,
    }  # fmt: skip


def made(problem: Problem, bm: int, bn: int, consumers: int, swap: int, depth: int) -> Config:
    """One configuration, its stages and multiprocessors filled in; of types that the kernel takes."""
    config = {**_base(problem, bm, bn, consumers, swap, depth)}
    seen = tiles.view(problem, config).problem
    config["STAGES"] = max(stages(seen, config), 2)
    count = ceil_div(seen.m, bm) * ceil_div(seen.n, bn) * seen.batch
    if count:
        # As few blocks as take no longer.
        config["SMS"] = ceil_div(count, ceil_div(count, MULTIPROCESSORS))
    return config


def split(config: Config, parts: int) -> Config:
    """With every tile's depth in so many parts, on all multiprocessors."""
    return {**config, "SPLITS": parts, "SMS": MULTIPROCESSORS} if parts > 1 else config


def usual(problem: Problem, illegal: Illegal) -> Iterator[Config]:
    """Legal configurations, the one that should be fastest first."""
    if tiles.type_reason(problem, batches=True) is not None:
        return
    guesses = []
    for bm, bn, consumers, swap in shapes(problem):
        count = ceil_div(problem.n if swap else problem.m, bm) * ceil_div(problem.m if swap else problem.n, bn)
        count *= problem.batch
        depth = ROW_BYTES if bm * bn > 64 * 128 or tiles.promoted(problem) else 2 * ROW_BYTES
        steps = ceil_div(problem.k * problem.a.dtype.bits // 8, depth)
        whole = made(problem, bm, bn, consumers, swap, depth)
        guesses += [(guess(problem, chosen), chosen) for chosen in ({**whole, "OVERLAP": 1}, whole)]
        for parts in splits_of(count, steps)[1:]:
            guesses.append((guess(problem, split(whole, parts)), split(whole, parts)))
    for _, config in sorted(guesses, key=lambda each: each[0]):
        if illegal(problem, config) is None:
            yield config


def default(problem: Problem, illegal: Illegal) -> Config:
    """The configuration that should be fastest; where none is legal, one whose refusal says why."""
    found = next(usual(problem, illegal), None)
    if found is None:
        return _base(problem, 128, 128, 2, 0, ROW_BYTES)
    return _clustered(problem, found, illegal)


def _clustered(problem: Problem, config: Config, illegal: Illegal) -> Config:
    """With clusters of two where there is much to share: from eight waves on, and if rows of tiles come in pairs."""
    seen = tiles.turned(problem) if config["SWAP"] else problem
    rows, columns = ceil_div(seen.m, config["BM"]), ceil_div(seen.n, config["BN"])
    clustered = {**config, "CM": 2, "SMS": config["SMS"] // 2 * 2}
    if rows % 2 == 0 and rows * columns * problem.batch >= 8 * MULTIPROCESSORS and illegal(problem, clustered) is None:
        return clustered
    return config


def candidates(problem: Problem, illegal: Illegal) -> tuple[Config, ...]:
    """What a search tries: the best guesses, each with its neighbours in every other tunable."""
    best = list(islice(usual(problem, illegal), 10))
    if not best:
        return ()
    found = [default(problem, illegal), *best]
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
