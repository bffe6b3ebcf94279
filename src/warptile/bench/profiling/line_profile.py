"""Counters of one launch, by source line: on the emulator, or under Nsight Compute."""

from __future__ import annotations

import msgspec

from warptile.bench.profiling.instruction_lists import ByLine, ptx_by_line, sass_by_line
from warptile.bench.profiling.ncu import ProfileError
from warptile.bench.profiling.profile import LaunchRequest, profile
from warptile.bench.profiling.replayed import replayed
from warptile.bench.profiling.source_files import KERNEL_FILES
from warptile.bench.profiling.source_lines import LineCounts, from_emulator, from_ncu, with_instructions
from warptile.bench.protocol.workloads import to_key
from warptile.codegen.nvrtc import disassemble
from warptile.planning.plan import Plan
from warptile.ptx import parse
from warptile.runtime.execute import EmulatorBackend, compiled


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


def emulated(plan: Plan, place: EmulatorBackend, *, with_ptx: bool = False, with_sass: bool = False) -> LineProfile:
    """Counters of one emulated launch, and the share of the time that the clock model gives each line.

    Args:
        plan: of the launch.
        place: the emulator.
        with_ptx, with_sass: whether the lines have their instructions.

    Raises:
        EmulationError: the kernel did something that is not allowed.
        UnsupportedError: SASS is wanted, and nvdisasm is not installed.
    """
    listed = _instructions(plan, with_ptx, with_sass)
    found = replayed(plan, place)
    lines = with_instructions(from_emulator(found.report.lines, found.shares), *listed)
    return _profile(plan, place.name, lines, dict(found.report.counters))


def under_ncu(plan: Plan, *, with_ptx: bool = False, with_sass: bool = False) -> LineProfile:
    """Counters of one launch under Nsight Compute; arguments as of `emulated`.

    Raises:
        ProfileError: it did not count.
        UnsupportedError: SASS is wanted, and nvdisasm is not installed.
    """
    listed = _instructions(plan, with_ptx, with_sass)
    found = profile([LaunchRequest(plan.rung.name, to_key(plan.problem), dict(plan.config))], with_lines=True)
    one = found.profiles[0]
    if one.failed is not None:
        raise ProfileError(f"profile {plan.rung.name}: {one.failed}")
    lines = with_instructions(from_ncu(found.lines[0] if found.lines else ()), *listed)
    return _profile(plan, "gpu", lines, one.counters)


def _instructions(plan: Plan, with_ptx: bool, with_sass: bool) -> tuple[ByLine | None, ByLine | None]:
    """PTX and machine instructions by line, each None where it was not asked for."""
    if not with_ptx and not with_sass:
        return None, None
    kernel = compiled(plan)
    module = parse(kernel.ptx)
    ptx = ptx_by_line(module, kernel.entry, KERNEL_FILES) if with_ptx else None
    sass = sass_by_line(disassemble(kernel.cubin), kernel.entry, module.entries, KERNEL_FILES) if with_sass else None
    return ptx, sass


def _profile(plan: Plan, backend: str, lines: tuple[LineCounts, ...], totals: dict[str, float]) -> LineProfile:
    problem = plan.problem
    return LineProfile(
        backend=backend, rung=plan.rung.name, config=dict(plan.config),
        problem=ProfiledProblem(problem.m, problem.n, problem.k, problem.a.dtype.name), counters=totals,
        copy_bytes=sum(copy.moved_bytes for copy in plan.kernel.copies), lines=lines,
    )  # fmt: skip
