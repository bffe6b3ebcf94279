"""What an emulated launch of a user's kernel did: counters, findings, and what each source line costs."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import warptile.errors
from warptile.bench.profiling.finding_text import counts_text, details, event_text
from warptile.bench.profiling.source_files import SourceFiles
from warptile.bench.profiling.source_lines import LineCounts, busiest, from_emulator
from warptile.emulator import EmulationFinding, EmulationReport
from warptile.errors import EmulationError
from warptile.launch.spec import LaunchSpec

WIDTH = 80
"""Characters of a printed line."""

SHOWN_LINES = 8
"""Source lines that a printed report has."""


@dataclass(frozen=True)
class KernelReport:
    """The result of an emulated launch. ``print(report)`` shows it.

    Attributes:
        name: the kernel, such as ``"gemm<128, 128>"``.
        spec: the launch.
        arch: architecture that was emulated.
        schedule: that was asked for. A finding of another one, where several were explored, says which.
        emulation: all that the emulator reports.
        files: the kernel's source files.
    """

    name: str
    spec: LaunchSpec
    arch: str
    schedule: str
    emulation: EmulationReport
    files: SourceFiles

    @property
    def counters(self) -> Mapping[str, float]:
        """Totals of the launch, by the names of Nsight Compute's metrics that ``docs/emulator.md`` lists."""
        return self.emulation.counters

    @property
    def findings(self) -> tuple[EmulationFinding, ...]:
        """What the checks have found, each pair of source lines once: errors first, then model findings, warnings."""
        return self.emulation.findings

    @property
    def output(self) -> str:
        """What the kernel printed."""
        return self.emulation.output

    @property
    def finished(self) -> bool:
        """Whether the kernel ran to its end. If not, no array has changed."""
        return self.emulation.finished

    @property
    def ok(self) -> bool:
        """Whether nothing but warnings was found."""
        return not any(each.fails for each in self.findings)

    @cached_property
    def lines(self) -> tuple[LineCounts, ...]:
        """Counters of each source line that was executed, in order."""
        return from_emulator(self.emulation.lines, {}, self.files)

    def raise_if_found(self, *, warnings: bool = False) -> KernelReport:
        """Raise the first finding, as the error in `warptile.errors` that it is; others are notes of it.

        Args:
            warnings: raise warnings too.

        Returns:
            This report, if nothing was found.

        Raises:
            EmulationError: a subclass such as ``DataRace`` or ``IllegalAddress``.
        """
        found = [each for each in self.findings if warnings or each.fails]
        if not found:
            return self
        raise self._error(found)

    def _error(self, found: Sequence[EmulationFinding]) -> EmulationError:
        first = found[0]
        kind: type[EmulationError] = getattr(warptile.errors, first.kind)
        error = kind(
            first.message, kernel=self.name, location=first.location, first=first.first, missing=first.missing,
            fix=first.fix,
        )  # fmt: skip
        error.add_note("\n".join(self._details(first)))
        for each in found[1:]:
            error.add_note("\n".join(self._finding(each)))
        return error

    def findings_text(self) -> str:
        """The findings alone, as `print` shows them."""
        return "\n".join(line for each in self.findings for line in (*self._finding(each), "")).rstrip()

    def __repr__(self) -> str:
        return f"<report of {self._launch()}; findings: {self.verdict}; print(report) shows it>"

    def _launch(self) -> str:
        """The kernel and its launch in a line."""
        size = f"grid {_extent(self.spec.grid)}, block {_extent(self.spec.block)}"
        size += f", cluster {_extent(self.spec.cluster)}" if self.spec.cluster != (1, 1, 1) else ""
        return f"{self.name}: {size}, emulated as {self.arch}"

    def __str__(self) -> str:
        said = [*_wrapped(self._launch(), "")]
        if self.output:
            said += ["", "printed:", *(f"  {line}" for line in self.output.splitlines())]
        for each in self.findings:
            said += ["", *self._finding(each)]
        if not self.finished:
            said += ["", "The kernel did not run to its end: no array has changed, and counters are partial."]
        said += ["", f"Findings: {self.verdict}", "", *self._counters(), "", *self._lines()]
        return "\n".join(said).rstrip()

    @property
    def verdict(self) -> str:
        """How many findings there are, such as ``"1 error, 2 warnings"``."""
        return counts_text(self.findings) or "none"

    def _finding(self, found: EmulationFinding) -> list[str]:
        """A finding with the lines that it is about."""
        return _wrapped(f"{found.severity} [{found.check}] {event_text(found)}", "  ") + self._details(found)

    def _details(self, found: EmulationFinding) -> list[str]:
        """The lines of a finding, what would have ordered its accesses, what to do, and how to see it again."""
        said = details(found, self.files)
        if found.schedule != self.schedule:
            said.append(f'replay: schedule="{found.schedule}"')
        return [line for each in said for line in _wrapped(f"  {each}", "    ")]

    def _counters(self) -> list[str]:
        """Totals that are not zero, and ratios where there are conflicts, two beside each other where they fit."""
        shown = [
            (name, _number(value))
            for name, value in self.counters.items()
            if value and not (name.endswith("_ratio") and value == 1)
        ]
        if not shown:
            return []
        half = (WIDTH - 2) // 2
        cells = [f"{name}{value:>{half - len(name)}}" for name, value in shown]
        if any(len(cell) > half for cell in cells):
            return [f"{name}{value:>{WIDTH - len(name)}}" for name, value in shown]
        rows = -(-len(cells) // 2)
        return [
            "  ".join(cell for cell in (cells[row], *cells[row + rows : row + rows + 1])).rstrip()
            for row in range(rows)
        ]

    def _lines(self) -> list[str]:
        """The source lines that execute most instructions."""
        shown = busiest(self.lines, SHOWN_LINES)
        if not shown:
            return []
        columns: list[tuple[str, list[str]]] = [
            ("line", [f"{each.file}:{each.line}" for each in shown]),
            ("instr.", [f"{each.warp_instructions:,}" for each in shown]),
            ("sectors", [_blank(each.global_sectors + each.tma_sectors) for each in shown]),
            ("wavefr.", [_blank(each.shared_wavefronts) for each in shown]),
            ("conflict", ["" if each.conflict_ratio is None else f"{each.conflict_ratio:.2f}" for each in shown]),
        ]
        columns = [column for column in columns if any(column[1])]
        widths = [max(len(title), *map(len, cells)) for title, cells in columns]
        rows = []
        for cells in ([title for title, _ in columns], *zip(*(cells for _, cells in columns), strict=True)):
            first, *others = (
                cell.ljust(width) if index == 0 else cell.rjust(width)
                for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
            )
            rows.append("  ".join((first, *others)))
        texts = ["source", *(each.text for each in shown)]
        rows = [f"{row}  {text}"[:WIDTH].rstrip() for row, text in zip(rows, texts, strict=True)]
        more = len(self.lines) - len(shown)
        return [*rows, f"and {more} more lines: report.lines"] if more > 0 else rows


def _wrapped(text: str, indent: str) -> list[str]:
    """A text in lines of `WIDTH`, further ones behind an indent. Words are not broken."""
    return textwrap.wrap(
        text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True,
        replace_whitespace=True,
    )  # fmt: skip


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3f}"


def _blank(value: int) -> str:
    return f"{value:,}" if value else ""


def _extent(extents: tuple[int, int, int]) -> str:
    """``4``, ``4 x 2`` or ``4 x 2 x 3``."""
    shown = extents[: 3 if extents[2] > 1 else 2 if extents[1] > 1 else 1]
    return " x ".join(map(str, shown))
