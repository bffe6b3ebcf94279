"""A launch with clocks: emulated, recorded and replayed on one SM, or on those of a cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from warptile.bench.profiling.source_files import KERNEL_FILES, SourceFiles
from warptile.emulator import EmulationReport
from warptile.emulator.recording import Recording
from warptile.planning.plan import Plan
from warptile.replay.replayer import Replayer
from warptile.replay.timeline import Timeline
from warptile.runtime.execute import compiled_ptx
from warptile.runtime.host_operands import host_operands


@dataclass(frozen=True)
class Replayed:
    """A replay, and what it is of.

    Attributes:
        timeline: of the cluster that executes most instructions.
        ctas: of the grid that were replayed, one on each SM.
        report: the emulator's counters of the whole launch.
        shares: of the warps' time, by file and line of the instruction that was to be executed next.
    """

    timeline: Timeline
    ctas: tuple[int, ...]
    report: EmulationReport
    shares: dict[tuple[str, int], float]


def replayed(plan: Plan, place: Any, launches: int = 1) -> Replayed:
    """Emulate a plan, and replay the cluster (or the CTA) that executes most.

    Args:
        plan: of a small problem.
        place: the emulator, as `warptile.runtime.execute.choose_backend` gives it.
        launches: how many times the launch follows itself.

    Raises:
        EmulationError: the kernel did something that is not allowed.
    """
    recording = Recording()
    report = place.emulate(plan, compiled_ptx(plan), host_operands(plan.problem), 1.0, 0.0, recording)
    return replay_of(
        recording, report, launches=launches, overlaps=plan.kernel.overlaps_previous,
        side_by_side=2 * plan.kernel.dynamic_shared_bytes <= plan.device.generation.shared_bytes_per_sm,
    )  # fmt: skip


def replay_of(
    recording: Recording,
    report: EmulationReport,
    *,
    launches: int = 1,
    overlaps: bool = False,
    side_by_side: bool = False,
    files: SourceFiles = KERNEL_FILES,
) -> Replayed:
    """Replay the cluster (or the CTA) of a recorded launch that executes most.

    Args:
        recording: of the launch.
        report: of the emulator.
        launches, overlaps, side_by_side: as in `warptile.replay.replayer.Replayer`.
        files: that its lines are of.
    """
    ctas = busiest_cluster(recording)
    replayer = Replayer(
        recording, [(cta,) for cta in ctas], launches=launches, overlaps=overlaps, side_by_side=side_by_side
    )
    timeline = replayer.run()
    return Replayed(timeline, ctas, report, _shares(recording, timeline, files))


def _shares(recording: Recording, timeline: Timeline, files: SourceFiles) -> dict[tuple[str, int], float]:
    found: dict[tuple[str, int], float] = {}
    total = sum(timeline.clocks_at.values())
    for position, clocks in timeline.clocks_at.items():
        instruction = recording.program[position]
        if instruction is not None and instruction.location is not None and total:
            place = files.place(instruction.location)
            found[place] = found.get(place, 0.0) + clocks / total
    return found


def busiest_cluster(recording: Recording) -> tuple[int, ...]:
    """CTAs of the cluster whose warps execute most instructions; the first one of several."""
    executed: Counter[int] = Counter()
    for note in recording.notes:
        for warp in note.warps:
            executed[warp // recording.warps_per_cta // recording.cluster_ctas] += 1
    most = max(executed, key=lambda each: (executed[each], -each))
    return tuple(range(most * recording.cluster_ctas, (most + 1) * recording.cluster_ctas))
