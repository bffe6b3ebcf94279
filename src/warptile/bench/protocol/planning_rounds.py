"""Times plans of problems that were never planned before, for the reference GPU. Needs no GPU."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from warptile.bench.protocol.planning_times import PlanningTimes
from warptile.device import REFERENCE, DeviceLimits
from warptile.dtypes import DTYPES
from warptile.native import background
from warptile.problem import Problem
from warptile.runtime.execute import planned

PROBLEMS, BRIEF_PROBLEMS, SEED = 200, 30, 1
EXTENTS = (64, 8192)
"""M, N and K are drawn log-uniformly between these, as multiples of `UNIT`."""

UNIT = 64
WARM_UP = 2 * background.CALLS_WITHOUT
"""Plans of a kind that do not count: machine code is made after some."""


@dataclass(frozen=True)
class _Place:
    device: DeviceLimits = REFERENCE
    gpu: str = REFERENCE.name


def _dense(dtype: str, accumulator: str, out: str, **options: Any) -> Callable[[int, int, int], Problem]:
    def made(m: int, n: int, k: int) -> Problem:
        given = {"b_major": "col", **options}
        return Problem.dense(m, n, k, DTYPES[dtype], accumulator=DTYPES[accumulator], out=DTYPES[out], **given)

    return made


def _misaligned(m: int, n: int, k: int) -> Problem:
    return _dense("bfloat16", "float32", "bfloat16")(m, n + 1, k + 1)


KINDS: Mapping[str, Callable[[int, int, int], Problem]] = {
    "bf16": _dense("bfloat16", "float32", "bfloat16"),
    "bf16, B along N": _dense("bfloat16", "float32", "bfloat16", b_major="row"),
    "bf16, A along M, B along N": _dense("bfloat16", "float32", "bfloat16", a_major="col", b_major="row"),
    "bf16 to f32": _dense("bfloat16", "float32", "float32"),
    "bf16, batch of 4": _dense("bfloat16", "float32", "bfloat16", batch=4),
    "bf16, odd N and K": _misaligned,
    "f16": _dense("float16", "float32", "float16"),
    "tf32": _dense("tfloat32", "float32", "float32"),
    "e4m3": _dense("float8_e4m3", "float32", "bfloat16"),
    "e4m3, fast": _dense("float8_e4m3", "float32_fast", "bfloat16"),
    "int8": _dense("int8", "int32", "int32"),
    "float32": _dense("float32", "float32", "float32"),
    "float64": _dense("float64", "float64", "float64"),
}
"""Kinds of problems: aligned ones with B along K if nothing else is said."""


def measure(kind: str, *, problems: int = PROBLEMS) -> PlanningTimes:
    """Plans of one kind: the first, and then ``problems`` others, each of other extents and made once.

    Args:
        kind: one of `KINDS`.
        problems: how many.
    """
    random = np.random.default_rng(SEED)

    def extent() -> int:
        low, high = np.log(EXTENTS)
        return max(UNIT, round(float(np.exp(random.uniform(low, high))) / UNIT) * UNIT)

    drawn: dict[Problem, None] = {}
    while len(drawn) < 1 + WARM_UP + problems:
        drawn[KINDS[kind](extent(), extent(), extent())] = None
    first, *others = drawn
    first_us = _timed_us(first)
    for problem in others[:WARM_UP]:
        _timed_us(problem)
    for thread in threading.enumerate():
        if thread.name == background.THREAD:
            thread.join()
    gc.collect()
    each = tuple(_timed_us(problem) for problem in others[WARM_UP:])
    return PlanningTimes(kind=kind, first_us=first_us, each_us=each)


def _timed_us(problem: Problem) -> float:
    """Microseconds from a problem to the launch of its kernel."""
    start = time.perf_counter()
    _ = planned(problem, _Place()).kernel
    return 1e6 * (time.perf_counter() - start)
