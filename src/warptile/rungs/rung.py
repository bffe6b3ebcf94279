"""What a rung of the ladder is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from warptile.launch import Dim3
from warptile.problem import Problem

Config = Mapping[str, int]
"""Values of a rung's tunables by name, such as ``{"BM": 128, "BN": 128, "BK": 32}``."""


@dataclass(frozen=True)
class Rung:
    """One kernel of the ladder: one file, one idea.

    The kernel ABI is one for all rungs of a family that computes D = alpha A B + beta C:
    ``(const A*, const B*, const C*, D*, int m, n, k, int64 lda, ldb, ldc, ldd, alpha, beta)``.

    Attributes:
        name: such as ``"wmma-padded"``.
        family: ``"simt"``, ``"wmma"``, ...
        idea: one line: what this rung adds.
        file: path below ``kernels/``, such as ``"wmma/padded.cuh"``.
        previous: name of the rung it is compared with, or None.
        min_arch: compute capability times ten that its instructions need, such as 70.
        dtypes: names of the operand types it takes, the usual one first.
        default_config: problem -> the configuration used when nothing is tuned.
        candidates: problem -> every configuration worth trying (legal ones and others).
        illegal: (problem, config) -> None when this rung can run it, else the reason as a sentence that says what
            was given and what would work. The single statement of each constraint on the Python side.
        name_expression: (problem, config) -> the C++ name of the template instantiation.
        grid: (problem, config) -> blocks.
        threads: (problem, config) -> threads of a block.
        dynamic_shared_bytes: (problem, config) -> dynamic shared memory of a block.
        capability: (problem, config) -> compute capability times ten that the operands' type and the configuration's
            instruction need; at least ``min_arch`` counts.
        may_spill: a spill in this rung is part of its lesson, and no build failure.
        sparse: A is a `warptile.SparseMatrix`; its metadata is one more parameter behind beta.
    """

    name: str
    family: str
    idea: str
    file: str
    previous: str | None
    min_arch: int
    dtypes: tuple[str, ...]
    default_config: Callable[[Problem], Config]
    candidates: Callable[[Problem], tuple[Config, ...]]
    illegal: Callable[[Problem, Config], str | None]
    name_expression: Callable[[Problem, Config], str]
    grid: Callable[[Problem, Config], Dim3]
    threads: Callable[[Problem, Config], Dim3]
    dynamic_shared_bytes: Callable[[Problem, Config], int]
    capability: Callable[[Problem, Config], int] = lambda problem, config: 0
    may_spill: bool = False
    sparse: bool = False
