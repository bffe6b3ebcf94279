"""From a problem to the kernel that runs it: candidates, which of them are legal, what each costs, the choice."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from warptile import arch as arches
from warptile.arch import REFERENCE_ARCH, Arch
from warptile.dtypes import DType
from warptile.errors import DTypeError, ShapeError, UnsupportedError
from warptile.launch import Argument, Dim3, LaunchSpec, Pointer, Scalar
from warptile.predict import Prediction, predict
from warptile.problem import Operand, Problem
from warptile.rungs import RUNGS, Config, Rung
from warptile.rungs import rung as rung_named
from warptile.rungs.copies import Copy, beside_ms, copies_ms
from warptile.rungs.rung import View, Workspace

SCALE_TYPE = {
    "float16": "f32", "float32": "f32", "float32_fast": "f32", "float64": "f64", "int32": "s32",
    "int32_saturating": "s32", "int32_xor": "s32",
}  # fmt: skip
"""PTX type of alpha and beta for each accumulator: as ``Scale`` in kernels/tile/scale.cuh."""

MAX_THREADS = 1024
"""Most threads of a block: CUDA C++ Programming Guide, "Technical specifications per compute capability"."""

WORTH_LEAVING_DEFAULT = 0.9
"""A candidate replaces a rung's default configuration when its predicted time is below this share of the default's."""

CLUSTER_CAPABILITY = 90
"""Compute capability times ten from which blocks come in clusters."""

MAX_CLUSTER_BLOCKS = 16
"""Most blocks of a cluster on sm_90: CUDA C++ Programming Guide, "Thread Block Clusters" (above 8 not portable)."""

USUAL, USUAL_SIZE = 24, 4096
"""How many of a rung's candidates a plan looks at, and the extents for which they are listed."""

Choice = tuple[Rung, Config]


@dataclass(frozen=True)
class Plan:
    """How a problem will be run, and why.

    Attributes:
        problem: what is computed.
        rung: the kernel.
        config: its tunables.
        arch: architecture to compile for.
        prediction: predicted time and what bounds it, on the reference GPU.
        rejected: what was not taken, as (rung or configuration, reason).
        origin: where the configuration comes from.
        max_sms: the most multiprocessors that the product may take, or None for all.
    """

    problem: Problem
    rung: Rung
    config: Config
    arch: str
    prediction: Prediction
    rejected: tuple[tuple[str, str], ...] = ()
    origin: str = "predicted"
    max_sms: int | None = None

    @cached_property
    def view(self) -> View:
        """The problem as the kernel sees it, and what is copied for that."""
        return self.rung.view(self.problem, self.config)

    @cached_property
    def copies(self) -> tuple[Copy, ...]:
        """What the launch before the product's copies, if there is one. Copies of nothing (K = 0) are left out."""
        return tuple(copy for copy in self.view.copies if copy.moved_bytes)

    @cached_property
    def workspaces(self) -> tuple[Workspace, ...]:
        """Memory that the launches need beside the operands: targets of copies, and what the kernel asks for."""
        copies = (*self.view.copies, *self.view.beside)
        targets = (Workspace(copy.target, max(copy.target_bytes, 1)) for copy in copies)
        return (*targets, *self.rung.workspaces(self.problem, self.config))

    def launch(self, entry: str, alpha: float = 1, beta: float = 0) -> LaunchSpec:
        """The launch of the compiled product whose lowered symbol is ``entry``.

        Raises:
            ShapeError: D is empty, so that there is nothing to launch, or beta is not zero and there is no C.
            DTypeError: alpha or beta is not a whole number and the accumulator is an integer.
        """
        problem, config = self.problem, self.config
        if problem.m == 0 or problem.n == 0:
            raise ShapeError(f"D is {problem.m} x {problem.n}: there is nothing to launch; return the empty D")
        if beta != 0 and problem.c is None:
            raise ShapeError(f"beta is {beta} and the problem has no C; give c, or beta=0")
        return LaunchSpec(
            entry=entry,
            grid=self.rung.grid(problem, config),
            block=self.rung.threads(problem, config),
            arguments=(*_arguments(self.view, alpha, beta), *self.rung.parameters(problem, config)),
            cluster=self.rung.cluster(problem, config),
            dynamic_shared_bytes=self.rung.dynamic_shared_bytes(problem, config),
            # Blocks that come early stand beside those of the launch before.
            overlaps_previous=self.rung.overlaps_previous and self.max_sms is None,
            blocks_meet=any(each.zero for each in self.workspaces),
        )

    def explain(self) -> str:
        """The choice as readable text: problem, kernel, launch, what bounds it, and what was rejected and why."""
        problem, rung, prediction = self.problem, self.rung, self.prediction
        grid, threads = rung.grid(problem, self.config), rung.threads(problem, self.config)[0]
        cluster, shared_bytes = rung.cluster(problem, self.config), rung.dynamic_shared_bytes(problem, self.config)
        clusters = f" in clusters of {cluster[0]} x {cluster[1]}" if cluster != (1, 1, 1) else ""
        copied = "; ".join(map(copy_text, self.copies))
        beside = "; ".join(map(copy_text, self.view.beside))
        lines = [
            f"D[{problem.m}, {problem.n}] = A[{problem.m}, {problem.k}] @ B[{problem.k}, {problem.n}], "
            f"{problem.a.dtype.name} -> {problem.d.dtype.name}, accumulated in {problem.accumulator.name}"
            f"{f', {problem.batch} times' if problem.batch > 1 else ''}",
            f"rung       {rung.name}: {rung.idea}",
            f"config     {config_text(self.config)}",
            f"origin     {self.origin}",
            *([f"launch     {copied}, predicted {copies_ms(self.copies):.4g} ms"] if copied else []),
            f"launch     {math.prod(grid)} blocks of {threads} threads{clusters}, "
            f"{f'on {self.max_sms} multiprocessors at most, ' if self.max_sms is not None else ''}"
            f"{shared_bytes} bytes of dynamic shared memory, {self.arch}",
            *([f"beside it  {beside}, predicted {beside_ms(self.view.beside):.4g} ms more"] if beside else []),
            *(
                f"workspace  {each.name}: {each.bytes} bytes{', left zero' if each.zero else ''}"
                for each in self.workspaces
            ),
            f"predicted  {prediction.time_ms:.4g} ms, {prediction.tflops:.4g} TFLOP/s on the {prediction.arch}, "
            f"bound by {prediction.bound}",
            "           " + ", ".join(f"{name} {time_ms:.4g} ms" for name, time_ms in prediction.terms.items()),
        ]
        if self.rejected:
            lines.append("rejected")
            lines += [f"  {name}: {reason}" for name, reason in self.rejected]
        return "\n".join(lines)


def make_plan(
    problem: Problem,
    *,
    rung: str | None = None,
    config: Config | None = None,
    arch: str = REFERENCE_ARCH,
    max_sms: int | None = None,
) -> Plan:
    """The plan for ``problem``.

    With a ``config``, that one (its ``rung`` must be named). With a ``rung`` alone, its default configuration, or the
    cheapest legal one where the default is illegal. With neither, the highest legal rung of the ladder, in its default
    configuration unless another is predicted to be clearly faster. With ``max_sms`` all of that among launches of at
    most so many blocks.

    Raises:
        UnsupportedError: no such rung or architecture, or nothing legal; the message gives each reason.
    """
    target = arches.arch(arch)
    if max_sms is not None and (not isinstance(max_sms, int) or max_sms < 1):
        raise UnsupportedError(f"max_sms is {max_sms!r}; it takes a whole number from 1 on, such as max_sms=120")
    if config is not None and rung is None:
        raise UnsupportedError("config was given without a rung; name it, such as rung='simt-warptile'")
    taken = [each for each in RUNGS.values() if each.sparse == problem.a.sparse]
    rungs = tuple(taken)[::-1] if rung is None else (rung_named(rung),)
    rejected: list[tuple[str, str]] = []
    for each in rungs:
        choices: tuple[Choice, ...] = ((each, config),) if config is not None else candidates(each, problem, max_sms)
        legal, refused = split_by_legality(choices, problem, target, max_sms)
        if not legal:
            rejected.append((each.name, _common_reason(refused)))
            continue
        costs = [cost(choice, problem) for choice in legal]
        best = choose(costs, keep_first=(each.weigh is not None or rung is not None) and legal[0] == choices[0])
        rejected += refused
        rejected += [
            (_label(choice), f"predicted {costs[i].time_ms:.4g} ms, against {costs[best].time_ms:.4g} ms")
            for i, choice in enumerate(legal)
            if i != best
        ]
        origin = "given" if config is not None else "predicted"
        return Plan(problem, legal[best][0], legal[best][1], arch, costs[best], tuple(rejected), origin, max_sms)
    reasons = "; ".join(f"{name}: {reason}" for name, reason in rejected)
    raise UnsupportedError(f"no rung takes this problem on {arch}. {reasons}")


@lru_cache(maxsize=256)
def a_majors(rung: str | None, arch: str, element: DType, accumulator: DType, out: DType) -> tuple[str, ...]:
    """Majors in which A may be given to the rung called ``rung``, or to the one that a plan takes for these types."""
    size = (USUAL_SIZE,) * 3
    by_rows, by_columns = (
        Problem.dense(*size, element, out=out, accumulator=accumulator, a_major=major) for major in ("row", "col")
    )
    try:
        make_plan(by_columns, rung=make_plan(by_rows, rung=rung, arch=arch).rung.name, arch=arch)
    except UnsupportedError:
        return ("row",)
    return ("row", "col")


def default_config(rung: Rung, problem: Problem, max_sms: int | None = None) -> Config:
    """What ``rung`` takes where nothing is tuned, on so many multiprocessors if it knows of that."""
    if max_sms is None or rung.default_on_fewer is None:
        return rung.default_config(problem)
    return rung.default_on_fewer(problem, max_sms)


def candidates(rung: Rung, problem: Problem, max_sms: int | None = None) -> tuple[Choice, ...]:
    """The default configuration of ``rung`` and the first USUAL of its others; the rest are for tuning. On fewer
    multiprocessors than all, where the rung knows of that, the default alone."""
    if max_sms is not None and rung.default_on_fewer is not None:
        return ((rung, default_config(rung, problem, max_sms)),)
    configs = (rung.default_config(problem), *_usual(rung.name, _of_usual_size(problem)))
    unique = {config_text(config): config for config in configs}
    return tuple((rung, config) for config in unique.values())


def _of_usual_size(problem: Problem) -> Problem:
    """One matrix with every extent and leading dimension replaced by USUAL_SIZE: types, majors and alignment stay."""
    problem = problem.single

    def operand(matrix: Operand) -> Operand:
        return replace(matrix, leading_dimension=USUAL_SIZE)

    c = operand(problem.c) if problem.c is not None else None
    a, b, d = operand(problem.a), operand(problem.b), operand(problem.d)
    return replace(problem, m=USUAL_SIZE, n=USUAL_SIZE, k=USUAL_SIZE, a=a, b=b, c=c, d=d)


@lru_cache(maxsize=64)
def _usual(name: str, problem: Problem) -> tuple[Config, ...]:
    """The first candidates of a rung. A rung may list hundreds, so they are listed once for problems that differ in
    sizes alone; legality is decided later, for the problem itself."""
    return rung_named(name).candidates(problem)[:USUAL]


def illegal(rung: Rung, problem: Problem, config: Config, arch: Arch, max_sms: int | None = None) -> str | None:
    """Why ``rung`` cannot run ``problem`` in ``config`` on ``arch``, in at most ``max_sms`` blocks, or None."""
    if arch.capability < rung.min_arch:
        return f"it needs compute capability {rung.min_arch / 10} and {arch.name} has {arch.capability / 10}"
    if rung.only_arch not in (None, arch.name):
        return f"its instructions are those of {rung.only_arch}; {arch.name} does not have them"
    reason = rung.illegal(problem, config)
    if reason is not None:
        return reason
    needed = rung.capability(problem, config)
    if arch.capability < needed:
        return (
            f"with {problem.a.dtype.name} operands it needs compute capability {needed / 10} and {arch.name} has "
            f"{arch.capability / 10}"
        )
    threads = rung.threads(problem, config)[0]
    if threads > MAX_THREADS:
        return f"it has {threads} threads in a block; {MAX_THREADS} is the most"
    shared_bytes = rung.dynamic_shared_bytes(problem, config)
    if shared_bytes > arch.shared_bytes_per_block:
        return (
            f"it needs {shared_bytes} bytes of shared memory; a block of {arch.name} has {arch.shared_bytes_per_block}"
        )
    grid = rung.grid(problem, config)
    if max_sms is not None and math.prod(grid) > max_sms:
        return f"its launch has {math.prod(grid)} blocks; max_sms is {max_sms}"
    return _illegal_cluster(rung.cluster(problem, config), grid, arch)


def _illegal_cluster(cluster: Dim3, grid: Dim3, arch: Arch) -> str | None:
    """Why ``grid`` cannot be launched in clusters of ``cluster`` blocks on ``arch``, or None."""
    if cluster == (1, 1, 1):
        return None
    if arch.capability < CLUSTER_CAPABILITY:
        return f"it has clusters of {cluster} blocks, which begin with sm_90; {arch.name} has none"
    if not 1 <= math.prod(cluster) <= MAX_CLUSTER_BLOCKS:
        return f"it has clusters of {cluster} blocks; a cluster has 1 to {MAX_CLUSTER_BLOCKS}"
    if any(extent % size for extent, size in zip(grid, cluster, strict=True)):
        return f"it has clusters of {cluster} blocks in a grid of {grid}, which is not a multiple of them"
    return None


def split_by_legality(
    choices: Iterable[Choice], problem: Problem, arch: Arch, max_sms: int | None = None
) -> tuple[list[Choice], list[tuple[str, str]]]:
    """The legal choices, and the others as (configuration, reason)."""
    legal: list[Choice] = []
    refused: list[tuple[str, str]] = []
    for rung, config in choices:
        reason = illegal(rung, problem, config, arch, max_sms)
        if reason is None:
            legal.append((rung, config))
        else:
            refused.append((_label((rung, config)), reason))
    return legal, refused


def cost(choice: Choice, problem: Problem) -> Prediction:
    """Predicted time of one choice on the reference GPU."""
    rung, config = choice
    return predict(rung, problem, config)


def choose(costs: list[Prediction], *, keep_first: bool) -> int:
    """Index of the choice to take: the first (the default) if it is kept or not clearly slower, else the cheapest."""
    cheapest = min(range(len(costs)), key=lambda i: costs[i].time_ms)
    if keep_first or costs[cheapest].time_ms > WORTH_LEAVING_DEFAULT * costs[0].time_ms:
        return 0
    return cheapest


def copy_text(copy: Copy) -> str:
    """A copy as part of a line, such as ``copy of A: 2 x 33538050 bytes, transposed``."""
    return f"{copy.target}: 2 x {copy.moved_bytes // 2} bytes{', transposed' if copy.transposed else ''}"


def config_text(config: Config) -> str:
    """A configuration as one line, such as ``BM=128 BN=128 BK=16``."""
    return " ".join(f"{name}={value}" for name, value in config.items())


def _label(choice: Choice) -> str:
    return f"{choice[0].name} {config_text(choice[1])}"


def _common_reason(refused: list[tuple[str, str]]) -> str:
    """The reasons for which all configurations of one rung were refused, each once."""
    return "; ".join(dict.fromkeys(reason for _, reason in refused))


def _arguments(view: View, alpha: float, beta: float) -> tuple[Argument, ...]:
    """The kernel's parameters in the order of the ABI that all rungs share; behind them a sparse A's metadata."""
    problem = view.problem

    def leading(operand: Operand | None) -> Scalar:
        return Scalar("s64", operand.leading_dimension if operand is not None else 0)

    return (
        Pointer(view.a),
        Pointer(view.b),
        Pointer("C" if problem.c is not None else None),
        Pointer("D"),
        Scalar("s32", problem.m),
        Scalar("s32", problem.n),
        Scalar("s32", problem.k),
        leading(problem.a),
        leading(problem.b),
        leading(problem.c),
        leading(problem.d),
        _scale("alpha", alpha, problem),
        _scale("beta", beta, problem),
        *([Pointer("E")] if problem.a.sparse else []),
    )


def _scale(name: str, value: float, problem: Problem) -> Scalar:
    """alpha or beta as a kernel parameter, whose type follows the accumulator's."""
    scalar_type = SCALE_TYPE[problem.accumulator.name]
    if scalar_type != "s32":
        return Scalar(scalar_type, float(value))
    if value != int(value):
        raise DTypeError(f"{name} is {value}; with a {problem.accumulator.name} accumulator it must be a whole number")
    return Scalar(scalar_type, int(value))
