"""What `warptile tune --suite` searches, by suite: first what is missed most if time runs out."""

from __future__ import annotations

from dataclasses import dataclass

from warptile.bench.workloads import BF16, E4M3, E4M3_FAST, F16_F16, S8, TF32, UNALIGNED, Group
from warptile.dtypes import dtype
from warptile.problem import Problem

SUITES = ("squares", "llm", "small", "ragged", "types")

USUAL = (("row", "col"),)
"""A as [M, K] and B as [N, K], each along K."""

OTHERS = (("row", "row"), ("col", "col"), ("col", "row"))
LARGE = ((4096, 4096, 4096), (8192, 8192, 8192), (2048, 2048, 2048), (16384, 16384, 16384))
MODELS = ((8192, 4096, 14336), (8192, 28672, 4096), (4096, 8192, 28672))
MEDIUM = tuple((size, size, size) for size in range(1024, 3585, 256) if size != 2048)
FEW_ROWS = ((512, 6144, 4096), (1024, 28672, 4096), (768, 8192, 8192))
WEIGHTS = (
    (8192, 8192), (28672, 8192), (8192, 28672), (10240, 8192), (4096, 4096), (6144, 4096), (28672, 4096),
    (4096, 14336),
)  # fmt: skip
"""N and K of the layers of models of 70 and of 8 billion parameters."""

TOKENS = (16, 64, 128, 32, 8)
"""Rows of a small product: what fits 8 rows serves one as well."""

DEEP = ((128, 128, 16384), (256, 256, 65536), (64, 64, 65536))
EIGHT_BITS = ((4096, 4096, 4096), (8192, 8192, 8192), (8192, 28672, 4096), (128, 28672, 4096), (16, 28672, 4096))


@dataclass(frozen=True)
class Shape:
    """One problem of a suite.

    Attributes:
        suite: its suite.
        problem: what is computed.
        offset: elements by which all matrices are displaced from where memory begins.
    """

    suite: str
    problem: Problem
    offset: int = 0

    @property
    def name(self) -> str:
        """Its extents, types and majors, such as ``4096x4096x4096 bfloat16 row col``."""
        problem = self.problem
        words = [f"{problem.m}x{problem.n}x{problem.k}", problem.a.dtype.name]
        words += [problem.accumulator.name] if problem.accumulator.name != problem.a.dtype.accumulators[0] else []
        words += [f"to {problem.d.dtype.name}"] if problem.d.dtype != problem.a.dtype else []
        words += [problem.a.major, problem.b.major]
        words += [f"{problem.batch} times"] if problem.batch > 1 else []
        words += [f"displaced {self.offset}"] if self.offset else []
        return " ".join(words)


def _shape(
    suite: str, extents: tuple[int, int, int], group: Group = BF16, majors: tuple[str, str] = ("row", "col"),
    *, batch: int = 1, offset: int = 0, out: str | None = None,
) -> Shape:  # fmt: skip
    problem = Problem.dense(
        *extents, dtype(group.dtype), out=dtype(out or group.out), accumulator=dtype(group.accumulator),
        a_major=majors[0], b_major=majors[1], batch=batch,
    )  # fmt: skip
    return Shape(suite, problem.displaced(offset) if offset else problem, offset)


def _all() -> list[Shape]:
    found = [_shape("squares", extents) for extents in LARGE]
    found += [_shape("llm", extents) for extents in MODELS + FEW_ROWS]
    found += [_shape("small", (16, *each)) for each in WEIGHTS] + [_shape("small", extents) for extents in DEEP]
    found += [_shape("squares", extents) for extents in MEDIUM]
    found += [_shape("types", extents, group) for extents in EIGHT_BITS for group in (E4M3_FAST, E4M3)]
    found += [_shape("types", extents, group) for extents in EIGHT_BITS[:2] for group in (S8, TF32)]
    found += [_shape("ragged", extents, offset=offset) for extents, offset, _ in UNALIGNED]
    found += [_shape("small", (rows, *each)) for rows in TOKENS[1:] for each in WEIGHTS]
    found += [_shape("types", (1024, 1024, 1024), batch=64), _shape("types", (4096, 4096, 4096), out="float32")]
    found += [_shape("types", (8192, 8192, 8192), F16_F16)]
    found += [_shape("squares", extents, majors=majors) for extents in LARGE[:3] for majors in OTHERS]
    found += [_shape("llm", extents, majors=majors) for extents in MODELS for majors in OTHERS]
    found += [_shape("types", EIGHT_BITS[0], group, majors) for group in (E4M3_FAST, S8, TF32) for majors in OTHERS[:1]]
    found += [_shape("squares", LARGE[3], majors=majors) for majors in OTHERS[:1]]
    return found


def shapes(suites: tuple[str, ...] = SUITES) -> tuple[Shape, ...]:
    """The problems of some suites, the most wanted first."""
    return tuple(shape for shape in _all() if shape.suite in suites)
