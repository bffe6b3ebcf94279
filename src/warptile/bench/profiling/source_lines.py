"""Counters per source line, from the emulator or from Nsight Compute, as one table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from warptile.bench.profiling.profile import SourceLineCounters
from warptile.codegen.headers import KERNELS
from warptile.emulator import LineCounters
from warptile.emulator.counters import SHARED_KINDS
from warptile.errors import SourceLocation


class LineCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What one source line did. Wavefronts and sectors count loads and stores together.

    ``time_share`` is the share of the warps' time in which one was about to execute an instruction of the line: of
    Nsight Compute's samples, or predicted by the clock model (`warptile.replay`).
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

    @property
    def conflict_ratio(self) -> float | None:
        """Wavefronts over those without conflicts, or None where shared memory is not used."""
        return self.shared_wavefronts / self.shared_wavefronts_ideal if self.shared_wavefronts_ideal else None


def short_name(file: str) -> str:
    """A kernel file relative to the package's kernels folder, whatever folder a compiler or profiler puts before it."""
    parts = Path(file).parts
    for start in range(len(parts)):
        candidate = Path(*parts[start:])
        if (KERNELS / candidate).is_file():
            return candidate.as_posix()
    return file


@lru_cache(maxsize=64)
def _source(file: str) -> tuple[str, ...]:
    path = KERNELS / file
    return tuple(path.read_text().splitlines()) if path.is_file() else ()


def text_of(file: str, line: int) -> str:
    """The text of a line of one of our kernel files, or nothing for another file."""
    lines = _source(file)
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def place_of(where: SourceLocation) -> tuple[str, int]:
    """File and line of an instruction: those of its CUDA line, else its PTX line."""
    if where.file and where.line:
        return short_name(where.file), where.line
    return "PTX", where.ptx_line


def from_emulator(lines: Iterable[LineCounters], shares: Mapping[tuple[str, int], float]) -> tuple[LineCounts, ...]:
    """The emulator's counters; instructions with no CUDA line are counted under their PTX line.

    Args:
        lines: of the report.
        shares: predicted share of the time, by file and line.
    """
    found = []
    for each in lines:
        count = each.counters
        operands = count["tensor_operand_wavefronts"]  # wgmma's, which have no conflicts
        wavefronts = sum(count[f"shared_{kind}_wavefronts"] for kind in SHARED_KINDS)
        ideal = sum(count[f"shared_{kind}_wavefronts_ideal"] for kind in SHARED_KINDS)
        file, line = place_of(each.location)
        found.append(
            LineCounts(
                file=file, line=line, text=text_of(file, line),
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


def from_ncu(lines: Iterable[SourceLineCounters]) -> tuple[LineCounts, ...]:
    """Nsight Compute's counters."""
    found = []
    lines = tuple(lines)
    samples = sum(each.counters.get("samples", 0) for each in lines)
    for each in lines:
        file, count = short_name(each.file), each.counters
        found.append(
            LineCounts(
                file=file, line=each.line, text=text_of(file, each.line),
                warp_instructions=int(count.get("instructions", 0)),
                global_sectors=int(count.get("global_sectors", 0)),
                shared_wavefronts=int(count.get("shared_wavefronts", 0)),
                shared_wavefronts_ideal=int(count.get("shared_wavefronts_ideal", 0)),
                samples=int(count.get("samples", 0)),
                time_share=count.get("samples", 0) / samples if samples else None,
            )
        )  # fmt: skip
    return tuple(found)


def busiest(lines: Sequence[LineCounts], most: int) -> tuple[LineCounts, ...]:
    """The lines that take most of the time, and then execute the most instructions, in the order of the source."""
    chosen = sorted(lines, key=lambda line: (-(line.time_share or 0.0), -line.warp_instructions))[:most]
    return tuple(sorted(chosen, key=lambda line: (line.file, line.line)))
