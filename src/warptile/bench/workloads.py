"""Which problems are measured: sizes, types, and the problems that correctness is shown on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from warptile.bench.records import ProblemKey
from warptile.dtypes import dtype
from warptile.errors import UnsupportedError
from warptile.plan import make_plan
from warptile.problem import Problem
from warptile.rungs.rung import Config, Rung

SIZES = (1024, 2048, 4096, 8192, 16384)
"""Extents of the square products of T3's table."""

CORRECT_SHAPES = ((4096, 4096, 4096), (1000, 1544, 808), (1009, 1013, 1019))
"""A large square, a ragged shape that 16-byte loads still fit, and three primes that they do not."""

SMALL_SHAPES = ((64, 64, 64), (193, 161, 97), (130, 72, 40))
"""Problems small enough for compute-sanitizer: one tile, odd extents, and partial tiles that keep 16-byte rows."""

COUNTER_SHAPES = ((256, 256, 128), (200, 168, 88), (193, 161, 97))
"""Problems on which the emulator's counters are compared with the hardware's: whole tiles, partial tiles whose rows
stay aligned to 16 bytes, and odd extents."""

PROFILE_SIZE = 2048
"""Extent of the square product that every rung is profiled on."""


@dataclass(frozen=True)
class Group:
    """Rungs that are measured against one baseline: one combination of types."""

    name: str
    dtype: str
    accumulator: str
    out: str

    def key(self, m: int, n: int, k: int, b_major: str = "row") -> ProblemKey:
        """The problem of this group with the given extents."""
        return ProblemKey(m, n, k, self.dtype, self.accumulator, self.out, b_major)


F16_F32 = Group("f16, f32 accumulate", "float16", "float32", "float16")
F16_F16 = Group("f16, f16 accumulate", "float16", "float16", "float16")
F32 = Group("f32", "float32", "float32", "float32")
BF16 = Group("bf16", "bfloat16", "float32", "bfloat16")
TF32 = Group("tf32", "tfloat32", "float32", "float32")
F64 = Group("f64", "float64", "float64", "float64")
S8 = Group("s8", "int8", "int32", "int32")
U8 = Group("u8", "uint8", "int32", "int32")
GROUPS = (F16_F32, F16_F16, F32)
"""What is swept over all sizes."""

OTHER_GROUPS = (BF16, TF32, F64, S8, U8)
"""Types that are checked, and not swept."""


def to_problem(key: ProblemKey, *, with_c: bool = False) -> Problem:
    """The contiguous problem that a key names."""
    return Problem.dense(
        key.m, key.n, key.k, dtype(key.dtype),
        out=dtype(key.out), accumulator=dtype(key.accumulator), b_major=key.b_major, with_c=with_c,
    )  # fmt: skip


def to_key(problem: Problem) -> ProblemKey:
    """The key of a contiguous problem."""
    return ProblemKey(
        problem.m, problem.n, problem.k, problem.a.dtype.name, problem.accumulator.name, problem.d.dtype.name,
        problem.b.major,
    )  # fmt: skip


@lru_cache(maxsize=256)
def groups_of(rung: Rung, arch: str, groups: tuple[Group, ...] = GROUPS) -> tuple[Group, ...]:
    """The groups whose problems a rung takes, and that it is compared in.

    FP32 rungs are compared with FP32. Rungs of float16 are compared in both accumulators where they take both.
    """
    found = []
    for group in groups:
        if group.dtype == "float16" and "float32" in rung.dtypes:
            continue
        problem = to_problem(group.key(512, 512, 512))
        if group.dtype in rung.dtypes and default_config(rung, problem, arch) is not None:
            found.append(group)
    return tuple(found)


@lru_cache(maxsize=4096)
def default_config(rung: Rung, problem: Problem, arch: str) -> Config | None:
    """The configuration an untuned plan takes, or None when none is legal."""
    try:
        return make_plan(problem, rung=rung.name, arch=arch).config
    except UnsupportedError:
        return None
