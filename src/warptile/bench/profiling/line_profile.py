"""Counters of one launch, by source line: on the emulator, or under Nsight Compute."""

from __future__ import annotations

import msgspec

from warptile.bench.profiling.ncu import ProfileError
from warptile.bench.profiling.profile import LaunchRequest, profile
from warptile.bench.profiling.replayed import replayed
from warptile.bench.profiling.source_lines import LineCounts, from_emulator, from_ncu
from warptile.bench.protocol.workloads import to_key
from warptile.planning.plan import Plan
from warptile.runtime.execute import EmulatorBackend


class ProfiledProblem(msgspec.Struct, frozen=True):
    """What was computed."""

    m: int
    n: int
    k: int
    dtype: str


class LineProfile(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="warptile.profile/2"):
    """The document that ``warptile profile --json`` prints.

    Attributes:
        backend: what counted, ``"emulator"`` or ``"gpu"`` (Nsight Compute).
        rung: whose kernel.
        config: its tunables.
        problem: what was computed.
        counters: of the whole launch.
        copy_bytes: read and written by launches before it, which are not counted.
        lines: by source line.
    """

    backend: str
    rung: str
    config: dict[str, int]
    problem: ProfiledProblem
    counters: dict[str, float]
    copy_bytes: int = 0
    lines: tuple[LineCounts, ...] = ()


def emulated(plan: Plan, place: EmulatorBackend) -> LineProfile:
    """Counters of one emulated launch, and the share of the time that the clock model gives each line."""
    found = replayed(plan, place)
    return _profile(plan, place.name, from_emulator(found.report.lines, found.shares), dict(found.report.counters))


def under_ncu(plan: Plan) -> LineProfile:
    """Counters of one launch under Nsight Compute.

    Raises:
        ProfileError: it did not count.
    """
    found = profile([LaunchRequest(plan.rung.name, to_key(plan.problem), dict(plan.config))], with_lines=True)
    one = found.profiles[0]
    if one.failed is not None:
        raise ProfileError(f"profile {plan.rung.name}: {one.failed}")
    return _profile(plan, "gpu", from_ncu(found.lines[0] if found.lines else ()), one.counters)


def _profile(plan: Plan, backend: str, lines: tuple[LineCounts, ...], totals: dict[str, float]) -> LineProfile:
    problem = plan.problem
    return LineProfile(
        backend=backend, rung=plan.rung.name, config=dict(plan.config),
        problem=ProfiledProblem(problem.m, problem.n, problem.k, problem.a.dtype.name), counters=totals,
        copy_bytes=sum(copy.moved_bytes for copy in plan.kernel.repacks), lines=lines,
    )  # fmt: skip
