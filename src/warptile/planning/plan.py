"""From a problem to the kernel that runs it: candidates, which of them are legal, what each costs, the choice."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from warptile.arch import MAX_THREADS, REFERENCE_ARCH, Arch
from warptile.arrays.options import tunables, whole_number
from warptile.device import REFERENCE, DeviceLimits
from warptile.device import usual as usual_device
from warptile.dtypes import DType
from warptile.errors import ArgumentError, ShapeError, UnsupportedError, WarptileError
from warptile.launch.spec import Dim3, LaunchSpec
from warptile.planning.cost_bounds import Prediction, predict
from warptile.planning.explanation import by_reason, headline, labelled, listed
from warptile.problem import Operand, Problem
from warptile.rungs import BESIDE_THE_LADDER, RUNGS, Config, Rung
from warptile.rungs import rung as rung_named
from warptile.rungs.kernel_spec import KernelSpec
from warptile.rungs.operand_copies import OperandCopy
from warptile.rungs.repack import fused_repacking_ms, repacking_ms

WORTH_LEAVING_DEFAULT = 0.9
"""A candidate replaces a rung's default configuration when its predicted time is below this share of the default's."""

FLOAT8_CAPABILITY = 89
"""Compute capability times ten from which instructions convert to 8-bit floats."""

CLUSTER_CAPABILITY = 90
"""Compute capability times ten from which CTAs come in clusters."""

MAX_CLUSTER_CTAS = 16
"""Most CTAs of a cluster on sm_90: CUDA C++ Programming Guide, "Thread Block Clusters" (above 8 not portable)."""

USUAL_SIZE = 4096
"""The extents for which a rung's candidates are listed."""

Choice = tuple[Rung, Config]


@dataclass(frozen=True)
class Plan:
    """How a problem will be run, and why.

    Attributes:
        problem: what is computed.
        rung: the kernel.
        config: its tunables.
        origin: where the configuration comes from: ``"given"``, ``"predicted"``, or the words of a tuned one.
        device: the GPU that it was made for, or the part of it that the launch may occupy.
        asked: name of the rung that was asked for, or None.
    """

    problem: Problem
    rung: Rung
    config: Config
    origin: str = "predicted"
    device: DeviceLimits = REFERENCE
    asked: str | None = None

    @cached_property
    def prediction(self) -> Prediction:
        """Predicted time and what bounds it."""
        return predict(self.rung, self.problem, self.config, self.device, kernel=self.kernel)

    @property
    def predicted_us(self) -> float:
        """Predicted microseconds: as `prediction` says, without working out what bounds it."""
        if self.rung.estimates and not self.kernel.copies and "prediction" not in self.__dict__:
            return self.rung.estimate_us(self.problem, self.config, self.device)
        return self.prediction.time_ms * 1e3

    @property
    def label(self) -> str:
        """The rung with its configuration."""
        return f"{self.rung.name} {config_text(self.config)}"

    @cached_property
    def refusal(self) -> str | None:
        """Why the rung cannot run the problem in this configuration on the device, or None."""
        rung, problem, device = self.rung, self.problem, self.device
        return (
            _out_of_reach(rung, device)
            or _changes_with_batch(rung, problem)
            or rung.illegal(problem, self.config, device)
            or unlaunchable(self.kernel, device)
        )

    @cached_property
    def rejected(self) -> tuple[tuple[str, str], ...]:
        """What was not taken, as (rung or configuration, reason): worked out when it is asked for."""
        return () if self.origin == "given" else tuple(_rejected(self.problem, self.asked, self.device))

    @property
    def arch(self) -> str:
        """Architecture to compile for."""
        return self.device.arch

    @cached_property
    def kernel(self) -> KernelSpec:
        """All that a launch needs, resolved once."""
        return self.rung.resolve(self.problem, self.config, self.device)

    def launch(
        self, entry: str, alpha: float = 1, beta: float = 0, numbers: Mapping[str, float] | None = None
    ) -> LaunchSpec:
        """The launch of the compiled kernel whose lowered symbol is ``entry``; as `KernelSpec.launch`."""
        return self.kernel.launch(entry, alpha, beta, numbers)

    @property
    def computed(self) -> str:
        """What is computed, in a line."""
        problem = self.problem
        return (
            f"D[{problem.m}, {problem.n}] = A[{problem.m}, {problem.k}] @ B[{problem.k}, {problem.n}], "
            f"{problem.a.dtype.name} -> {problem.d.dtype.name}, accumulated in {problem.accumulator.name}"
            f"{f', {problem.batch} times' if problem.batch > 1 else ''}"
        )

    def explain(self) -> str:
        """The choice as readable text: problem, kernel, where its configuration comes from, launch, predicted time with
        its error, what bounds it, and what was rejected and why."""
        problem, rung, prediction = self.problem, self.rung, self.prediction
        kernel, max_sms = self.kernel, self.device.max_ctas
        basis = rung.model_basis(self.device) if self.origin == "predicted" else None
        error = rung.model_error(self.device)
        band = f" (nine in ten are within {100 * error:.0f} %)" if error is not None else ""
        clusters = f" in clusters of {kernel.cluster[0]} x {kernel.cluster[1]}" if kernel.cluster != (1, 1, 1) else ""
        repacked = "; ".join(map(copy_text, kernel.copies))
        fused = "; ".join(map(copy_text, kernel.view.fused_repacks))
        lines = [headline(self.computed)]
        if problem.epilogue is not None:
            lines.append(labelled("epilogue", str(problem.epilogue)))
        if problem.batch_invariant:
            promise = "an element's bits depend on its row of A, its column of B, K and types, not on M"
            lines.append(labelled("invariant", promise))
        lines += [
            labelled("rung", f"{rung.name}: {rung.idea}"),
            labelled("config", config_text(self.config)),
            labelled("origin", f"{self.origin}{f': {basis}' if basis else ''}"),
        ]
        for each in kernel.view.splits:
            if each.kept:
                lines.append(labelled("slices", f"of {each.source} are kept: it is not split"))
        if repacked:
            lines.append(labelled("launch", f"{repacked}, predicted {repacking_ms(kernel.copies):.4g} ms"))
        limit = f"on {max_sms} SMs at most, " if max_sms is not None else ""
        lines.append(
            labelled(
                "launch",
                f"{kernel.ctas} CTAs of {kernel.threads} threads{clusters}, {limit}"
                f"{kernel.dynamic_shared_bytes} bytes of dynamic shared memory, {self.arch}",
            )
        )
        if fused:
            more_ms = fused_repacking_ms(kernel.view.fused_repacks)
            lines.append(labelled("fused", f"{fused}, predicted {more_ms:.4g} ms more"))
        for workspace in kernel.workspaces:
            zero = ", left zero" if workspace.zero else ""
            lines.append(labelled("workspace", f"{workspace.name}: {workspace.bytes} bytes{zero}"))
        lines += [
            labelled(
                "predicted",
                f"{prediction.time_ms:.4g} ms{band}, {prediction.tflops:.4g} TFLOP/s on the {prediction.arch}, "
                f"bound by {prediction.bound}",
            ),
            labelled("", ", ".join(f"{name} {time_ms:.4g} ms" for name, time_ms in prediction.terms.items())),
        ]
        if self.rejected:
            lines += ["rejected", *listed(by_reason(map(self._shortened, self.rejected)))]
        return "\n".join(lines)

    def _shortened(self, rejected: tuple[str, str]) -> tuple[str, str]:
        """A rejected configuration of the plan's rung by what it has otherwise than the plan's."""
        label, reason = rejected
        name, *values = label.split()
        if name != self.rung.name:
            return rejected
        taken = config_text(self.config).split()
        return " ".join([name, *(each for each in values if each not in taken)]), reason


def make_plan(
    problem: Problem,
    *,
    rung: str | None = None,
    config: Config | None = None,
    arch: str = REFERENCE_ARCH,
    device: DeviceLimits | None = None,
    max_sms: int | None = None,
) -> Plan:
    """The plan for ``problem``.

    With a ``config``, that one (its ``rung`` must be named). With a ``rung`` alone, its default configuration, or the
    cheapest legal one where the default is illegal. With neither, the highest legal rung of the ladder that is
    `automatic`, in its default configuration unless another is predicted to be clearly faster; one that `competes` is
    taken where it is predicted to be faster than the next one in its default configuration. All of that for
    ``device``, by default the usual GPU of ``arch``; with ``max_sms`` among launches of at most so many CTAs.

    Args:
        problem: what is computed; D has elements.
        rung: name of the kernel, or None for the best.
        config: its tunables.
        arch: architecture to compile for.
        device: limits of the GPU to plan for, or None for the usual one of ``arch``.
        max_sms: the most SMs that the GEMM may occupy, or None for all.

    Returns:
        The plan.

    Raises:
        ShapeError: D has no element, so that there is nothing to launch.
        UnsupportedError: no such rung or architecture, or nothing legal; the message gives each reason.
        ArgumentError: max_sms below 1, or a configuration without its rung or with other names than the rung's.
        ArgumentTypeError: no whole number, or no mapping from names to whole numbers.
    """
    limits = device or usual_device(arch)
    limits = limits if max_sms is None else limits.occupying(whole_number(max_sms, "max_sms"))
    found = find_plan(problem, rung=rung, config=config, device=limits)
    if found is not None:
        return found
    reasons = _rejected(problem, rung, limits)
    if rung is not None:
        raise UnsupportedError(f"rung {rung!r} does not take this problem on {limits.arch}: {reasons[0][1]}")
    if not reasons:
        raise UnsupportedError(
            "a is sparse, and no rung for that is batch-invariant: take a.to_dense(), or leave batch_invariant out"
        )
    raise UnsupportedError(f"no rung takes this problem on {limits.arch}. {'; '.join(by_reason(reasons))}")


def find_plan(
    problem: Problem, *, rung: str | None = None, config: Config | None = None, device: DeviceLimits
) -> Plan | None:
    """As `make_plan`; None where no rung takes the problem, without working out why.

    Raises:
        ShapeError, ArgumentError, ArgumentTypeError: as `make_plan`.
        UnsupportedError: no such rung or architecture, or the configuration that was given is not legal.
    """
    if problem.m == 0 or problem.n == 0:
        raise ShapeError(f"D is {problem.m} x {problem.n}: there is nothing to launch; return the empty D")
    config = tunables(config, rung)
    if config is not None:
        given = rung_named(str(rung))
        reason = illegal(given, problem, config, device)
        if reason is not None:
            raise _refused_config(given, problem, config, device, reason)
        return Plan(problem, given, config, "given", device, rung)
    return _plan_of(_rungs_for(problem, rung, device), problem, rung, device)


def _plan_of(rungs: tuple[Rung, ...], problem: Problem, asked: str | None, device: DeviceLimits) -> Plan | None:
    """The plan with the first of ``rungs`` that takes the problem, or one that competes; None where none does."""
    rivals: list[Rung] = []
    for each in rungs:
        if problem.a.dtype.name not in each.dtypes or (problem.batch > 1 and not each.batches):
            continue
        if asked is None and each.unsuitable(problem, device) is not None:
            continue
        if asked is None and each.competes:
            rivals.append(each)
            continue
        competing = _fastest_of(rivals, problem, device)
        if competing is not None and _is_slower(each, each.default_config(problem, device), competing):
            return competing
        own = _in_default(each, problem, asked, device)
        if competing is not None and own is not None and _is_faster(competing, own):
            return competing
        keeps = own is not None and _keeps_default(each, problem, asked)
        found = own if keeps else _best_of(each, problem, asked, device)
        if found is not None:
            return found
    return _fastest_of(rivals, problem, device)


def _fastest_of(rungs: Sequence[Rung], problem: Problem, device: DeviceLimits) -> Plan | None:
    """The fastest legal plan of rungs that compete, each in its default configuration; None where none is legal. Only
    kernels that may be the fastest are resolved, which takes longer than all else."""
    configs = [rung.default_config(problem, device) for rung in rungs]
    bounds = [_least_us(rung, problem, config, device) or 0.0 for rung, config in zip(rungs, configs, strict=True)]
    best: Plan | None = None
    for number in sorted(range(len(rungs)), key=bounds.__getitem__):
        if best is not None and bounds[number] > _compared_us(best):
            break
        own = Plan(problem, rungs[number], configs[number], "predicted", device)
        if own.refusal is None and (best is None or _is_faster(own, best)):
            best = own
    return best


def _is_slower(rung: Rung, config: Config, taken: Plan) -> bool:
    """Whether a configuration is slower than a plan even without copies of operands. Where that is known the kernel
    need not be resolved."""
    time_us = _least_us(rung, taken.problem, config, taken.device)
    return time_us is not None and time_us > _compared_us(taken)


def _least_us(rung: Rung, problem: Problem, config: Config, device: DeviceLimits) -> float | None:
    """Microseconds without copies of operands, or with them, where a rung tells either without a resolved kernel."""
    time_us = rung.compared_us(problem, config, device)
    return rung.estimate_us(problem, config, device) if time_us is None and rung.estimates else time_us


def is_faster_apart(whole: Plan, single: Plan) -> bool:
    """Whether a launch for each matrix of a batch is predicted to take less time than the one launch of ``whole``."""
    return whole.problem.batch * _compared_us(single) < _compared_us(whole)


def _is_faster(one: Plan, other: Plan) -> bool:
    return _compared_us(one) < _compared_us(other)


def _compared_us(plan: Plan) -> float:
    compared = plan.rung.compared_us(plan.problem, plan.config, plan.device)
    return plan.predicted_us if compared is None else compared


def _in_default(rung: Rung, problem: Problem, asked: str | None, device: DeviceLimits) -> Plan | None:
    """The plan with a rung in its default configuration, or None where that is not legal."""
    own = Plan(problem, rung, rung.default_config(problem, device), "predicted", device, asked)
    return own if own.refusal is None else None


def _best_of(rung: Rung, problem: Problem, asked: str | None, device: DeviceLimits) -> Plan | None:
    """The plan with one rung, or None where no configuration of it is legal."""
    legal, _, best = _compared(rung, problem, asked, device)
    return legal[best] if legal else None


def _rungs_for(problem: Problem, asked: str | None, device: DeviceLimits) -> tuple[Rung, ...]:
    """The rung that was asked for, or all that a plan may take, from the top of the ladder down; with batch invariance
    those of one order of additions that take such problems whatever their rows of A are."""
    if asked is not None:
        return (rung_named(asked),)
    if problem.batch_invariant:
        return _batch_invariant(_with_usual_rows(problem), usual_device(device.arch))
    return _automatic(problem.a.sparse, problem.b.quantized is not None)


@lru_cache(maxsize=256)
def _batch_invariant(problem: Problem, device: DeviceLimits) -> tuple[Rung, ...]:
    automatic = _automatic(problem.a.sparse, problem.b.quantized is not None)
    rungs = tuple(each for each in automatic if each.batch_invariant)
    if problem.b.quantized is not None:
        return rungs  # they add in one order: what is dequantized, in registers or before, is multiplied the same
    found = _plan_of(rungs, problem, None, device)
    return rungs[:1] if found is None else (found.rung,)


def _with_usual_rows(problem: Problem) -> Problem:
    """A single GEMM of contiguous operands with USUAL_SIZE rows of A, and the types, N and K of another one."""
    usual = Problem.dense(
        USUAL_SIZE, problem.n, problem.k, problem.a.dtype, out=problem.d.dtype, accumulator=problem.accumulator,
        b_major="col", sparse=problem.a.sparse,
    )  # fmt: skip
    b = replace(usual.b, quantized=problem.b.quantized, sliced=problem.b.sliced)
    return replace(usual, b=b, batch_invariant=True, ieee=problem.ieee)


@lru_cache(maxsize=4)
def _automatic(sparse: bool, quantized: bool) -> tuple[Rung, ...]:
    every, kind = (*RUNGS.values(), *BESIDE_THE_LADDER.values()), (sparse, quantized)
    return tuple(each for each in every if (each.sparse, each.quantized) == kind and each.automatic)[::-1]


def _keeps_default(rung: Rung, problem: Problem, asked: str | None) -> bool:
    """Whether the default configuration is taken wherever it is legal: of a rung that was asked for, and of one whose
    default is its own best prediction."""
    return rung.ranks(problem) or asked is not None


def _compared(
    rung: Rung, problem: Problem, asked: str | None, device: DeviceLimits
) -> tuple[list[Plan], list[tuple[str, str]], int]:
    """Plans of a rung's legal candidates, the others as (configuration, reason), and which one to take."""
    tried = [Plan(problem, *each, "predicted", device, asked) for each in candidates(rung, problem, device)]
    legal = [plan for plan in tried if plan.refusal is None]
    refused = [(plan.label, plan.refusal) for plan in tried if plan.refusal is not None]
    if not legal:
        return [], refused, 0
    keep_first = _keeps_default(rung, problem, asked) and legal[0] is tried[0]
    return legal, refused, choose([plan.prediction for plan in legal], keep_first=keep_first)


def _rejected(problem: Problem, asked: str | None, device: DeviceLimits) -> list[tuple[str, str]]:
    """What a plan does not take, as (rung or configuration, reason)."""
    found: list[tuple[str, str]] = []
    taken = find_plan(problem, rung=asked, device=device)
    for rung in _rungs_for(problem, asked, device):
        takes_type = problem.a.dtype.name in rung.dtypes
        unsuitable = rung.unsuitable(problem, device) if asked is None and takes_type else None
        if unsuitable is not None:
            found.append((rung.name, unsuitable))
            continue
        legal, refused, best = _compared(rung, problem, asked, device)
        if not legal:
            found.append((rung.name, _common_reason(refused)))
        elif taken is not None and taken.rung is not rung:
            found.append((rung.name, _slower(legal[best], taken)))
            if not rung.competes:
                break
        else:
            found += refused
            found += [(each.label, _slower(each, legal[best])) for i, each in enumerate(legal) if i != best]
            if asked is not None or not rung.competes:
                break
    return found


def _slower(plan: Plan, taken: Plan) -> str:
    same = plan.rung is taken.rung
    if same and not plan.rung.ranks(plan.problem):
        own_ms, taken_ms = plan.prediction.time_ms, taken.prediction.time_ms
    else:
        own_ms, taken_ms = (
            (each.predicted_us if each.rung.estimates else _compared_us(each)) / 1e3 for each in (plan, taken)
        )
    why = ""
    if own_ms < taken_ms and same and not _keeps_default(plan.rung, plan.problem, plan.asked):
        why = f"; the default is left for less than {WORTH_LEAVING_DEFAULT:.0%} of its time"
    elif _compared_us(taken) <= own_ms * 1e3 < taken_ms * 1e3 and not same:
        why = "; its predictions are too short for such problems"
    return f"predicted {own_ms:.4g} ms, against {taken_ms:.4g} ms{why}"


def _refused_config(rung: Rung, problem: Problem, config: Config, device: DeviceLimits, reason: str) -> WarptileError:
    """The error for a given configuration that ``rung`` does not take."""
    default = rung.default_config(problem, device)
    missing = [name for name in default if name not in config]
    unknown = [name for name in config if name not in default]
    if not missing and not unknown:
        return UnsupportedError(f"rung {rung.name!r} does not take this problem in config={dict(config)}: {reason}")
    wrong = [f"it lacks {', '.join(missing)}"] if missing else []
    if unknown:
        wrong.append(f"the rung has no {' or '.join(unknown)}")
    return ArgumentError(
        f"config: got {dict(config)}; {' and '.join(wrong)}. rung {rung.name!r} takes {', '.join(default)}, such as "
        f"rung={rung.name!r}, config={dict(default)}"
    )


def takes_column_major_a(problem: Problem, rung: str | None, device: DeviceLimits) -> bool:
    """Whether ``problem``, whose A lies by columns, is taken as it is by the rung called ``rung``, or by a plan."""
    element = problem.a.dtype
    if _reads_columns(rung, device, element, problem.accumulator, problem.d.dtype):
        return True
    rungs = _automatic(sparse=False, quantized=False)
    if rung is not None or not any(each.competes and element.name in each.dtypes for each in rungs):
        return False
    return find_plan(problem, device=device) is not None


@lru_cache(maxsize=256)
def _reads_columns(rung: str | None, device: DeviceLimits, element: DType, accumulator: DType, output: DType) -> bool:
    """Whether the rung called ``rung``, or the one that takes all problems of these types, reads A by columns too."""
    size = (USUAL_SIZE,) * 3
    by_rows, by_columns = (
        replace(
            Problem.dense(*size, element, out=output, accumulator=accumulator, a_major=major),
            ieee=rung is None and element.name == "float32",
        )
        for major in ("row", "col")
    )
    try:
        chosen = make_plan(by_rows, rung=rung, device=device).rung
    except UnsupportedError:
        return False
    return illegal(chosen, by_columns, chosen.default_config(by_columns, device), device) is None


def candidates(rung: Rung, problem: Problem, device: DeviceLimits) -> tuple[Choice, ...]:
    """The default configuration of ``rung`` and its next best predictions; where it predicts none, the first of its
    others (`Rung.looked_at`). The rest are for tuning. On a part of a GPU, where a launch has no more CTAs than SMs,
    the default alone."""
    own = rung.default_config(problem, device)
    if device.max_ctas is not None and rung.persistent:
        return ((rung, own),)
    if rung.estimates:
        return tuple((rung, config) for config in (own, *rung.alternatives(problem, device)))
    unique = {config_text(config): config for config in (own, *_usual(rung.name, _of_usual_size(problem), device))}
    return tuple((rung, config) for config in unique.values())


def _of_usual_size(problem: Problem) -> Problem:
    """One matrix with every extent and leading dimension replaced by USUAL_SIZE: types, layouts and alignment stay."""
    problem = problem.single

    def operand(matrix: Operand) -> Operand:
        return replace(matrix, leading_dimension=USUAL_SIZE)

    c = operand(problem.c) if problem.c is not None else None
    a, b, d = operand(problem.a), operand(problem.b), operand(problem.d)
    return replace(problem, m=USUAL_SIZE, n=USUAL_SIZE, k=USUAL_SIZE, a=a, b=b, c=c, d=d)


@lru_cache(maxsize=64)
def _usual(name: str, problem: Problem, device: DeviceLimits) -> tuple[Config, ...]:
    """The first candidates of a rung. A rung may list hundreds, so they are listed once for problems that differ in
    sizes alone; legality is decided later, for the problem itself."""
    rung = rung_named(name)
    return rung.candidates(problem, device)[: rung.looked_at(problem)]


def illegal(rung: Rung, problem: Problem, config: Config, device: DeviceLimits) -> str | None:
    """Why ``rung`` cannot run ``problem`` in ``config`` on ``device``, or None."""
    return Plan(problem, rung, config, device=device).refusal


def _changes_with_batch(rung: Rung, problem: Problem) -> str | None:
    """Why ``rung`` does not promise the batch invariance that is asked for, or None."""
    if not problem.batch_invariant or rung.batch_invariant:
        return None
    promising = ", ".join(each.name for each in RUNGS.values() if each.batch_invariant)
    return f"with batch_invariant=True it takes no problem; leave rung out, or take one of {promising}"


def _out_of_reach(rung: Rung, device: DeviceLimits) -> str | None:
    """Why ``device`` has no instructions for ``rung``, or None."""
    arch = device.generation
    if arch.capability < rung.min_arch:
        return f"it needs compute capability {rung.min_arch / 10} and {arch.name} has {arch.capability / 10}"
    if rung.only_arch not in (None, arch.name):
        return f"its instructions are those of {rung.only_arch}; {arch.name} does not have them"
    return None


def unlaunchable(kernel: KernelSpec, device: DeviceLimits) -> str | None:
    """Why ``device`` cannot launch a resolved kernel, or None."""
    arch = device.generation
    if arch.capability < kernel.capability:
        return (
            f"with {kernel.problem.a.dtype.name} operands it needs compute capability {kernel.capability / 10} and "
            f"{arch.name} has {arch.capability / 10}"
        )
    fused = kernel.problem.epilogue
    rounds = kernel.problem.d.dtype.is_float8 or (fused is not None and fused.program.makes_float8)
    if rounds and arch.capability < FLOAT8_CAPABILITY:
        return (
            f"its epilogue rounds to 8-bit floats, which needs compute capability {FLOAT8_CAPABILITY / 10} and "
            f"{arch.name} has {arch.capability / 10}"
        )
    if kernel.threads > MAX_THREADS:
        return f"it has {kernel.threads} threads in a CTA; {MAX_THREADS} is the most"
    if kernel.dynamic_shared_bytes > arch.shared_bytes_per_block:
        return (
            f"it needs {kernel.dynamic_shared_bytes} bytes of shared memory; a CTA of {arch.name} has "
            f"{arch.shared_bytes_per_block}"
        )
    if device.max_ctas is not None and kernel.ctas > device.max_ctas:
        return f"its launch has {kernel.ctas} CTAs; max_sms is {device.max_ctas}"
    return _illegal_cluster(kernel.cluster, kernel.grid, arch)


def _illegal_cluster(cluster: Dim3, grid: Dim3, arch: Arch) -> str | None:
    """Why ``grid`` cannot be launched in clusters of ``cluster`` CTAs on ``arch``, or None."""
    if cluster == (1, 1, 1):
        return None
    if arch.capability < CLUSTER_CAPABILITY:
        return f"it has clusters of {cluster} CTAs, which begin with sm_90; {arch.name} has none"
    if not 1 <= math.prod(cluster) <= MAX_CLUSTER_CTAS:
        return f"it has clusters of {cluster} CTAs; a cluster has 1 to {MAX_CLUSTER_CTAS}"
    if any(extent % size for extent, size in zip(grid, cluster, strict=True)):
        return f"it has clusters of {cluster} CTAs in a grid of {grid}, which is not a multiple of them"
    return None


def split_by_legality(
    choices: Iterable[Choice], problem: Problem, device: DeviceLimits
) -> tuple[list[Choice], list[tuple[str, str]]]:
    """The legal choices, and the others as (configuration, reason)."""
    legal: list[Choice] = []
    refused: list[tuple[str, str]] = []
    for rung, config in choices:
        reason = illegal(rung, problem, config, device)
        if reason is None:
            legal.append((rung, config))
        else:
            refused.append((f"{rung.name} {config_text(config)}", reason))
    return legal, refused


def cost(choice: Choice, problem: Problem, device: DeviceLimits = REFERENCE) -> Prediction:
    """Predicted time of one choice."""
    rung, config = choice
    return predict(rung, problem, config, device)


def choose(costs: list[Prediction], *, keep_first: bool) -> int:
    """Index of the choice to take: the first (the default) if it is kept or not clearly slower, else the cheapest."""
    cheapest = min(range(len(costs)), key=lambda i: costs[i].time_ms)
    if keep_first or costs[cheapest].time_ms > WORTH_LEAVING_DEFAULT * costs[0].time_ms:
        return 0
    return cheapest


def copy_text(copy: OperandCopy) -> str:
    """A copied operand in a line, such as ``repacked A: 2 x 33538050 bytes, transposed`` (read and written)."""
    return f"{copy.target}: 2 x {copy.moved_bytes // 2} bytes{', transposed' if copy.transposed else ''}"


def config_text(config: Config) -> str:
    """A configuration as one line, such as ``BM=128 BN=128 BK=16``."""
    return " ".join(f"{name}={value}" for name, value in config.items())


def _common_reason(refused: list[tuple[str, str]]) -> str:
    """Why no configuration of a rung is legal: the reason against its default, and how many others there are."""
    reasons = list(dict.fromkeys(reason for _, reason in refused))
    others = len(reasons) - 1
    more = f"; {others} reason{'s' if others > 1 else ''} against its other configurations" if others else ""
    return f"{reasons[0]}{more}"
