"""Counters per source line, from the emulator or from Nsight Compute, as one table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from warptile.bench.profiling.instruction_lists import ListedInstruction
from warptile.bench.profiling.profile import SourceLineCounters
from warptile.bench.profiling.source_files import KERNEL_FILES, SourceFiles
from warptile.emulator import LineCounters
from warptile.emulator.counters import SHARED_KINDS


class LineCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What one source line did. Wavefronts and sectors count loads and stores together.

    ``time_share`` is the share of the warps' time in which one was about to execute an instruction of the line: of
    Nsight Compute's samples, or predicted by the clock model (`warptile.replay`). ``stalls`` are Nsight Compute's
    samples of waiting warps by reason, the most frequent first; None from the emulator. ``ptx`` and ``sass`` are the
    line's instructions, in the order of the code; None where they were not asked for.
    """

    file: str
    line: int
    text: str
    warp_instructions: int
    global_sectors: int
    shared_wavefronts: int
    shared_wavefronts_ideal: int
    tensor_instructions: int = 0
    tma_sectors: int = 0
    samples: int = 0
    time_share: float | None = None
    stalls: dict[str, int] | None = None
    ptx: tuple[ListedInstruction, ...] | None = None
    sass: tuple[ListedInstruction, ...] | None = None

    @property
    def conflict_ratio(self) -> float | None:
        """Wavefronts over those without conflicts, or None where shared memory is not used."""
        return self.shared_wavefronts / self.shared_wavefronts_ideal if self.shared_wavefronts_ideal else None


def from_emulator(
    lines: Iterable[LineCounters], shares: Mapping[tuple[str, int], float], files: SourceFiles = KERNEL_FILES
) -> tuple[LineCounts, ...]:
    """The emulator's counters; instructions with no CUDA line are counted under their PTX line.

    Args:
        lines: of the report.
        shares: predicted share of the time, by file and line.
        files: that the lines are of.
    """
    found = []
    for each in lines:
        count = each.counters
        operands = count["tensor_operand_wavefronts"]  # wgmma's, which have no conflicts
        wavefronts = sum(count[f"shared_{kind}_wavefronts"] for kind in SHARED_KINDS)
        ideal = sum(count[f"shared_{kind}_wavefronts_ideal"] for kind in SHARED_KINDS)
        file, line = files.place(each.location)
        found.append(
            LineCounts(
                file=file, line=line, text=files.text(file, line),
                warp_instructions=int(count["warp_instructions"]),
                tensor_instructions=int(count["tensor_instructions"]),
                global_sectors=int(count["global_load_sectors"] + count["global_store_sectors"]),
                tma_sectors=int(sum(count[f"tma_{kind}_sectors"] for kind in ("load", "store", "reduce"))),
                shared_wavefronts=int(wavefronts + operands),
                shared_wavefronts_ideal=int(ideal + operands),
                time_share=shares.get((file, line), 0.0),
            )
        )  # fmt: skip
    return tuple(found)


def from_ncu(lines: Iterable[SourceLineCounters], files: SourceFiles = KERNEL_FILES) -> tuple[LineCounts, ...]:
    """Nsight Compute's counters."""
    found = []
    lines = tuple(lines)
    samples = sum(each.counters.get("samples", 0) for each in lines)
    for each in lines:
        file, count = files.name(each.file), each.counters
        found.append(
            LineCounts(
                file=file, line=each.line, text=files.text(file, each.line),
                warp_instructions=int(count.get("instructions", 0)),
                tensor_instructions=int(count.get("tensor_instructions", 0)),
                global_sectors=int(count.get("global_sectors", 0)),
                shared_wavefronts=int(count.get("shared_wavefronts", 0)),
                shared_wavefronts_ideal=int(count.get("shared_wavefronts_ideal", 0)),
                samples=int(count.get("samples", 0)),
                time_share=count.get("samples", 0) / samples if samples else None,
                stalls=dict(sorted(each.stalls.items(), key=lambda stall: -stall[1])),
            )
        )  # fmt: skip
    return tuple(found)


def busiest(lines: Sequence[LineCounts], most: int) -> tuple[LineCounts, ...]:
    """The lines that take most of the time, and then execute the most instructions, in the order of the source."""
    chosen = sorted(lines, key=lambda line: (-(line.time_share or 0.0), -line.warp_instructions))[:most]
    return tuple(sorted(chosen, key=lambda line: (line.file, line.line)))


def with_instructions(
    lines: Iterable[LineCounts],
    ptx: Mapping[tuple[str, int], Sequence[ListedInstruction]] | None,
    sass: Mapping[tuple[str, int], Sequence[ListedInstruction]] | None,
) -> tuple[LineCounts, ...]:
    """Lines with their instructions, by file and line; None leaves one kind out."""
    return tuple(
        msgspec.structs.replace(
            line,
            ptx=None if ptx is None else tuple(ptx.get((line.file, line.line), ())),
            sass=None if sass is None else tuple(sass.get((line.file, line.line), ())),
        )
        for line in lines
    )
