"""Which problems are measured: sizes, types, and the problems that correctness is shown on."""

from __future__ import annotations

from dataclasses import dataclass

from warptile.bench.records import ProblemKey
from warptile.dtypes import dtype
from warptile.problem import Problem

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
GROUPS = (F16_F32, F16_F16, F32)


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


def rung_groups(family: str, dtypes: tuple[str, ...], name: str) -> tuple[Group, ...]:
    """The groups a rung is measured in: FP32 rungs against FP32, packed halves and WMMA against float16."""
    if family == "simt":
        return (F16_F16,) if "half2" in name else (F32,)
    return tuple(group for group in (F16_F32, F16_F16) if group.dtype in dtypes)
