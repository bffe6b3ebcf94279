"""Configurations of wgmma-final that are worth trying for a problem, in order of predicted time
(`warptile.rungs.wgmma.cost`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice

from warptile.device import DeviceLimits
from warptile.problem import MAX_ALIGNMENT_BYTES, Problem
from warptile.rungs.kernel_spec import Config, View
from warptile.rungs.rung import Extents
from warptile.rungs.wgmma import tiles
from warptile.rungs.wgmma.kernels import COMPILED_AHEAD, Kernel, kernels_for, shape_of
from warptile.rungs.wgmma.pool import Pool, pool
from warptile.rungs.wgmma.tile_shapes import OTHER_SCHEDULES, fewest_sms, stages
from warptile.rungs.wgmma.tiles import ROW_BYTES

_SKINNY = ((64, 4096, 8192), (64, 32768, 4096), (16, 4096, 8192), (8, 2048, 16384), (48, 512, 16384))
TYPICAL = (
    (8192, 8192, 8192), (256, 256, 16384), (128, 256, 16384), (128, 128, 4096), (512, 512, 8192), (128, 1024, 16384),
    *_SKINNY, *((n, m, k) for m, n, k in _SKINNY),
)  # fmt: skip
"""M, N and K of problems that together have every kernel: large ones, skinny ones, and few tiles with a long K."""

Illegal = Callable[[Problem, Config], str | None]


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


def schedules(problem: Problem, config: Config, device: DeviceLimits) -> Iterator[Config]:
    """The same tile in other schedules: clusters, stream-K, ping-pong."""
    for change in OTHER_SCHEDULES:
        if "PINGPONG" not in change or (config["CONSUMERS"] == 2 and config["SPLITS"] == 1):
            yield fitted(problem, {**config, **change}, device)


def ranked(problem: Problem, illegal: Illegal, device: DeviceLimits) -> Iterator[Config]:
    """Legal configurations in order of predicted time."""
    return (config for config, _ in _timed(problem, illegal, device))


def _timed(problem: Problem, illegal: Illegal, device: DeviceLimits) -> Iterator[tuple[Config, float]]:
    """The same, each with its predicted microseconds."""
    if tiles.type_reason(problem, batches=True, final=True) is not None:
        return
    legal = False
    for config, time_us in _legal(problem, pool(problem, illegal, device), illegal):
        legal = True
        yield config, time_us
    if not legal:  # none of those that may be the fastest
        every = kernels_for(problem, shape_of(problem))
        yield from _legal(problem, pool(problem, illegal, device, every), illegal)


def _legal(problem: Problem, some: Pool, illegal: Illegal) -> Iterator[tuple[Config, float]]:
    for place in some.ranked().tolist():
        config = some.config(place)
        if illegal(problem, config) is None:
            yield config, float(some.times_us[place])


def default(problem: Problem, illegal: Illegal, device: DeviceLimits) -> Config:
    """The configuration of least predicted time; where none is legal, one whose refusal says why."""
    return timed_default(problem, illegal, device)[0]


def timed_default(problem: Problem, illegal: Illegal, device: DeviceLimits) -> tuple[Config, float]:
    """The same with its predicted microseconds, which are infinite where it is not legal."""
    found = next(_timed(problem, illegal, device), None)
    return (_base(problem, 128, 128, 2, 0, ROW_BYTES, device), math.inf) if found is None else found


def kernel_examples(like: Problem, illegal: Illegal, device: DeviceLimits) -> Iterator[tuple[Problem, Config]]:
    """A problem and a configuration for each of the first kernels that plans choose from, as far as one of `TYPICAL`
    has it, or the same with 16 bytes more in each row, so that rows lie in two lines of L2."""
    found: set[Kernel] = set()
    more = MAX_ALIGNMENT_BYTES * 8 // min(like.a.dtype.bits, like.d.dtype.bits)
    for extents in (*TYPICAL, *((m + more, n + more, k + more) for m, n, k in TYPICAL)):
        problem = Problem.dense(
            *extents, like.a.dtype, out=like.d.dtype, accumulator=like.accumulator, a_major=like.a.major,
            b_major=like.b.major,
        )  # fmt: skip
        kernels = kernels_for(problem, shape_of(problem))[:COMPILED_AHEAD]
        some = pool(problem, illegal, device, kernels)
        for place in some.ranked():
            kernel, config = kernels[int(some.rows["order"][place])], some.config(int(place))
            if kernel not in found and illegal(problem, config) is None:
                found.add(kernel)
                yield problem, config


def extents_of(problem: Problem) -> Extents:
    """Extents of a problem."""
    return problem.m, problem.n, problem.k, problem.batch


def fitted(problem: Problem, config: Config, device: DeviceLimits) -> Config:
    """The configuration on the fewest SMs that take no more waves."""
    return {**config, "SMS": int(fewest_sms(extents_of(problem), config, device))}


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
