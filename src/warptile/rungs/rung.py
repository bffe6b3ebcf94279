"""What a rung of the ladder is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from warptile.launch import Argument, Dim3
from warptile.problem import Problem
from warptile.rungs.copies import Copy

Config = Mapping[str, int]
"""Values of a rung's tunables by name, such as ``{"BM": 128, "BN": 128, "BK": 32}``."""


Extents = tuple[int, int, int, int]
"""M, N, K and the number of matrices of a batch."""


@dataclass(frozen=True)
class View:
    """What a kernel is given in place of the user's problem.

    The product may be turned round (D^T = B^T A^T, with ``a="B"``, ``b="A"``, m and n exchanged and every major
    changed), and an operand may have been copied before (``a="copy of A"``). C and D never move: only the way they are
    seen may change.

    Attributes:
        problem: the problem as the kernel sees it: m, n, k and leading dimensions are its parameters.
        a: whose memory the kernel's A points to.
        b: whose memory the kernel's B points to.
        copies: what is copied before the product, by one launch: one or two operands.
        beside: the same by the product's kernel itself, while it multiplies.
    """

    problem: Problem
    a: str = "A"
    b: str = "B"
    copies: tuple[Copy, ...] = ()
    beside: tuple[Copy, ...] = ()


@dataclass(frozen=True)
class Workspace:
    """Memory that a kernel needs beside its operands.

    Attributes:
        name: as `Rung.parameters` name it; not one of A, B, C, D, E.
        bytes: its size, more than none; it starts at a multiple of 256 bytes.
        zero: all zeros before a launch, and the kernel leaves it so: flags and counters, by which blocks wait for each
            other, and which nobody has to clear. Else it holds anything.
    """

    name: str
    bytes: int
    zero: bool = False

    def __post_init__(self) -> None:
        assert self.name not in tuple("ABCDE"), self.name
        assert self.bytes > 0, self


@dataclass(frozen=True)
class Rung:
    """One kernel of the ladder: one file, one idea.

    The kernel ABI is one for all rungs of a family that computes D = alpha A B + beta C:
    ``(const A*, const B*, const C*, D*, int m, n, k, int64 lda, ldb, ldc, ldd, alpha, beta)``,
    then a sparse A's metadata, then what ``parameters`` gives. A, B, m, n, k and the leading dimensions are those of
    the rung's ``view``.

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
        only_arch: the one architecture that has its instructions, such as ``"sm_90a"``, or None: all from
            ``min_arch`` on.
        may_spill: a spill in this rung is part of its lesson, and no build failure.
        weigh: (problem, config) -> microseconds, predicted by costs fitted to what was measured of it, by which its
            default configuration is the cheapest of its candidates: a plan takes that. None: all is left to the bounds
            of `warptile.predict`.
        adapted: (problem, config, (m, n, k, batch) that it was tuned for, multiprocessors that it may take or None for
            all) -> the same for this problem: what follows from extents follows from these.
        default_on_fewer: (problem, multiprocessors) -> as ``default_config``, for a launch of at most so many blocks.
            None: a launch has as many blocks as D has tiles.
        overlaps_previous: its kernel waits for the launch before by itself, so that it may start early: see
            `warptile.launch.LaunchSpec`.
        sparse: A is a `warptile.SparseMatrix`; its metadata is one more parameter behind beta.
        cluster: (problem, config) -> blocks of a cluster; the grid is a multiple of it.
        view: (problem, config) -> the problem and the memory that the kernel is given.
        parameters: (problem, config) -> further kernel parameters; they name operands, copies and workspaces.
        workspaces: (problem, config) -> memory that the kernel needs beside operands and copies.
        instructions: (problem, config) -> names of the instructions whose C++ wrappers the kernel needs.
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
    only_arch: str | None = None
    may_spill: bool = False
    weigh: Callable[[Problem, Config], float] | None = None
    adapted: Callable[[Problem, Config, Extents, int | None], Config] = lambda problem, config, tuned_for, sms: config
    default_on_fewer: Callable[[Problem, int], Config] | None = None
    overlaps_previous: bool = False
    sparse: bool = False
    cluster: Callable[[Problem, Config], Dim3] = lambda problem, config: (1, 1, 1)
    view: Callable[[Problem, Config], View] = lambda problem, config: View(problem)
    parameters: Callable[[Problem, Config], tuple[Argument, ...]] = lambda problem, config: ()
    workspaces: Callable[[Problem, Config], tuple[Workspace, ...]] = lambda problem, config: ()
    instructions: Callable[[Problem, Config], tuple[str, ...]] = lambda problem, config: ()
