"""Nsight Compute's counters of a rung's launches, under the names of the API's counter table.

Which of Nsight Compute's metrics each counter is (`api_counters`), and why that one:

- shared wavefronts and their ideal come from the source page, added up by machine instruction: they are counted per
  instruction from the addresses it used, so they are exact and repeat from run to run, and loads (LDS, LDSM) stand
  apart from stores (STS, STSM, LDGSTS). The unit's own counter ``l1tex__data_pipe_lsu_wavefronts_mem_shared`` also
  counts cycles lost to other traffic; the record keeps it as well.
- global sectors are ``memory_l2_theoretical_sectors_global`` of the same page: distinct 32-byte pieces a request asks
  for, whether or not L1 has them.
"""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from warptile.bench.profiling.ncu import collect, find_ncu, launched, number, page, parse_raw
from warptile.bench.protocol.measurements import ProblemKey, Profile, shared_counters
from warptile.codegen.headers import KERNELS

SECTIONS = ("LaunchStats", "Occupancy", "WarpStateStats", "SourceCounters")
"""Nsight Compute sections: launch, occupancy, stall reasons, and counters per machine instruction."""

METRICS = (
    "gpu__time_duration.sum",
    "smsp__inst_executed.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldsm.sum",
    "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum",
    "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldsm.sum",
    "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "smsp__inst_executed_op_ldgsts.sum",
    "smsp__sass_data_bytes_mem_global_op_ld.sum",
    "smsp__sass_data_bytes_mem_global_op_st.sum",
    "sm__inst_executed_pipe_tensor_op_hmma.sum",
    "sm__inst_executed_pipe_tensor_op_imma.sum",
    "sm__inst_executed_pipe_tensor_op_dmma.sum",
    "sm__inst_executed_pipe_tensor_op_gmma.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum",
    "l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum",
    "l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_st.sum",
    "l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_red.sum",
    "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_stsm.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_sectors_op_read.sum",
)
"""Metrics in addition to those of the sections. One that this GPU lacks is dropped, and the record says so."""

TENSOR_OPCODES = ("HMMA", "IMMA", "DMMA", "BMMA", "HGMMA", "IGMMA", "QGMMA", "BGMMA")

COLUMNS = {
    "instructions": ("Instructions Executed", "inst_executed"),
    "samples": ("# Samples", "smsp__pcsamp_sample_count"),
    "shared_wavefronts": ("L1 Wavefronts Shared", "memory_l1_wavefronts_shared"),
    "shared_wavefronts_ideal": ("L1 Wavefronts Shared Ideal", "memory_l1_wavefronts_shared_ideal"),
    "global_sectors": ("L2 Theoretical Sectors Global", "memory_l2_theoretical_sectors_global"),
    "global_sectors_ideal": ("L2 Theoretical Sectors Global Ideal", "memory_l2_theoretical_sectors_global_ideal"),
    "l1_tag_requests": ("L1 Tag Requests Global", "memory_l1_tag_requests_global"),
}
"""Columns of the source page that are kept: our name, and the two ways in which Nsight Compute heads them."""

STALL_NAMES = {
    "dispatch": "dispatch_stall", "imc": "imc_miss", "lg": "lg_throttle", "long_sb": "long_scoreboard",
    "math": "math_pipe_throttle", "mio": "mio_throttle", "no_inst": "no_instruction", "short_sb": "short_scoreboard",
    "sleep": "sleeping", "tex": "tex_throttle",
}  # fmt: skip
"""Reasons of warp states that the source page abbreviates, by the names that metrics have for them."""

_STALL_COLUMN = re.compile(r"^stall_(\w+)$")
_OPCODE = re.compile(r"^\s*(?:@!?U?P[T\d]+\s+)?([A-Z][A-Z0-9]*)")
_STALL = re.compile(r"^smsp__average_warps_issue_stalled_(\w+?)_per_issue_active\.ratio$")
_KEPT = re.compile(
    r"(?!.*\.(avg|max|min)$)"
    r"((gpu|launch|l1tex|lts|dram|sm)__|smsp__(sass|inst)_|memory_l|smsp__average_warps_issue)"
)
"""Metrics that a record keeps: of a quantity its sum, and not its spread over the units of the GPU."""


class LaunchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One launch to profile: a rung on a problem in a configuration."""

    rung: str
    problem: ProblemKey
    config: dict[str, int]
    alpha: float = 1.0
    beta: float = 0.0


@dataclass(frozen=True)
class SassInstruction:
    """One machine instruction of the source page with its counters; ``file`` and ``line`` where the page has them."""

    opcode: str
    text: str
    counters: dict[str, float]
    file: str | None = None
    line: int | None = None


@dataclass
class SourceLineCounters:
    """Counters of one source line, added up over its instructions.

    Attributes:
        file, line: as the page names them.
        counters: by our names.
        opcodes: how many of its instructions have each operation.
        stalls: samples of warps that waited, by reason.
    """

    file: str
    line: int
    counters: dict[str, float] = field(default_factory=dict)
    opcodes: dict[str, int] = field(default_factory=dict)
    stalls: dict[str, int] = field(default_factory=dict)


def opcode_of(sass: str) -> str | None:
    """The operation of a machine instruction without predicate and modifiers: ``@!P0 LDS.128 R4, [R2]`` is LDS."""
    matched = _OPCODE.match(sass)
    return matched.group(1) if matched else None


def _column_map(header: Sequence[str], first: int) -> dict[str, int]:
    """Where each kept column stands; the first of two columns with one name wins."""
    where: dict[str, int] = {}
    for name, spellings in COLUMNS.items():
        for index in range(len(header) - 1, first - 1, -1):
            if header[index] in spellings:
                where[name] = index
    return where


def stall_columns(header: Sequence[str]) -> dict[str, int]:
    """Where the page has the samples of each reason for which warps wait. Columns of samples without an issue, which
    count some of the same again, are left out, and so is ``selected``, which is no stall."""
    found = {matched[1]: index for index, name in enumerate(header) if (matched := _STALL_COLUMN.match(name))}
    found.pop("selected", None)
    return {STALL_NAMES.get(name, name): index for name, index in found.items()}


def _counters(row: Sequence[str], where: Mapping[str, int]) -> dict[str, float]:
    values = {name: number(row[index]) for name, index in where.items() if index < len(row)}
    return {name: value for name, value in values.items() if value}


def parse_sass(text: str) -> list[list[SassInstruction]]:
    """The source page (``--page source --csv --print-source sass``): the instructions of each launch, in order."""
    launches: list[list[SassInstruction]] = []
    where: dict[str, int] = {}
    source = -1
    for row in csv.reader(io.StringIO(text)):
        if not row:
            continue
        if row[0] == "Kernel Name":
            launches.append([])
            source = -1
        elif "Address" in row and "Source" in row:
            if not launches:
                launches.append([])
            source = row.index("Source")
            where = _column_map(row, source + 1)
        elif source >= 0 and len(row) > source:
            opcode = opcode_of(row[source])
            if opcode is not None:
                launches[-1].append(SassInstruction(opcode, row[source].strip(), _counters(row, where)))
    return launches


def parse_lines(text: str) -> list[list[SourceLineCounters]]:
    """The source page with both views (``--print-source cuda,sass``): the source lines of each launch.

    A row with a line number sums up its instructions and quotes the source text, which may break the row; only its
    number is read. The rows below it, with an address and no number, are its instructions.
    """
    launches: list[dict[tuple[str, int], SourceLineCounters]] = []
    where: dict[str, int] = {}
    stalled: dict[str, int] = {}
    file, function, line, source = "", None, 0, -1
    for row in csv.reader(io.StringIO(text)):
        if not row:
            continue
        if row[0] == "File Path" and len(row) >= 2:
            file, line, source = row[1], 0, -1
        elif row[0] in ("Function Name", "Kernel Name") and len(row) >= 2:
            if function is None or row[1] != function:
                launches.append({})
                function = row[1]
        elif row[0] == "Line No":
            sources = [index for index, name in enumerate(row) if name == "Source"]
            source = sources[-1]
            where, stalled = _column_map(row, source + 1), stall_columns(row)
        elif row[0].strip().isdigit():
            line = int(row[0])
        elif source >= 0 and len(row) > source and row[0].strip() == "":
            opcode = opcode_of(row[source])
            if opcode is None:
                continue
            if not launches:
                launches.append({})
            entry = launches[-1].setdefault((file, line), SourceLineCounters(file, line))
            entry.opcodes[opcode] = entry.opcodes.get(opcode, 0) + 1
            counters = _counters(row, where)
            if opcode in TENSOR_OPCODES and "instructions" in counters:
                counters["tensor_instructions"] = counters["instructions"]
            for name, value in counters.items():
                entry.counters[name] = entry.counters.get(name, 0.0) + value
            for reason, count in _counters(row, stalled).items():
                entry.stalls[reason] = entry.stalls.get(reason, 0) + int(count)
    return [list(found.values()) for found in launches]


def by_opcode(instructions: Iterable[SassInstruction]) -> dict[str, dict[str, float]]:
    """Counters added up by operation; operations that never ran are left out."""
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for instruction in instructions:
        for name, value in instruction.counters.items():
            sums[instruction.opcode][name] += value
    return {opcode: dict(values) for opcode, values in sorted(sums.items())}


def api_counters(metrics: Mapping[str, float], opcodes: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The API's counters from Nsight Compute's; one that was not collected is left out."""

    def total(names: Sequence[str], column: str) -> float:
        return sum(opcodes.get(name, {}).get(column, 0.0) for name in names)

    found: dict[str, float] = {}
    if "smsp__inst_executed.sum" in metrics:
        found["warp_instructions"] = metrics["smsp__inst_executed.sum"]
    for name, metric in (
        ("global_load_requests", "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"),
        ("global_store_requests", "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"),
        ("global_load_sectors", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"),
        ("global_store_sectors", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"),
        ("global_load_bytes", "smsp__sass_data_bytes_mem_global_op_ld.sum"),
        ("global_store_bytes", "smsp__sass_data_bytes_mem_global_op_st.sum"),
        ("tma_load_sectors", "l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld.sum"),
        ("tma_store_sectors", "l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_st.sum"),
        ("tma_reduce_sectors", "l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_red.sum"),
    ):
        if metric in metrics:
            found[name] = metrics[metric]
    if opcodes:
        found["tensor_instructions"] = total(TENSOR_OPCODES, "instructions")
        found["tensor_operand_wavefronts"] = total(TENSOR_OPCODES, "shared_wavefronts")
        found["barriers"] = total(("BAR",), "instructions")
        found.update(shared_counters(opcodes))
    return found


def stalls_of(metrics: Mapping[str, float]) -> dict[str, float]:
    """Share of stalled warps by reason, largest first; ``selected`` (a warp that issued) is no stall."""
    found = {matched.group(1): value for name, value in metrics.items() if (matched := _STALL.match(name))}
    found.pop("selected", None)
    total = sum(found.values())
    ordered = sorted(found.items(), key=lambda item: -item[1])
    return {reason: value / total for reason, value in ordered if value > 0} if total else {}


def to_profile(
    request: LaunchRequest, metrics: Mapping[str, float], instructions: Sequence[SassInstruction]
) -> Profile:
    """One launch as a record keeps it."""
    opcodes = by_opcode(instructions)
    return Profile(
        rung=request.rung,
        problem=request.problem,
        config=dict(request.config),
        counters=api_counters(metrics, opcodes),
        metrics={name: value for name, value in metrics.items() if _KEPT.match(name)},
        by_opcode=opcodes,
        stalls=stalls_of(metrics),
        registers=int(metrics.get("launch__registers_per_thread", 0)),
        occupancy=metrics.get("sm__warps_active.avg.pct_of_peak_sustained_active"),
    )


def unprofiled(request: LaunchRequest, reason: str) -> Profile:
    """A launch that gave no counters, and why."""
    return Profile(
        rung=request.rung, problem=request.problem, config=dict(request.config), counters={}, metrics={}, by_opcode={},
        stalls={}, registers=0, failed=reason,
    )  # fmt: skip


@dataclass(frozen=True)
class NcuRun:
    """What a run of Nsight Compute gave: a profile for each request, and what it could not do."""

    profiles: tuple[Profile, ...]
    lines: tuple[tuple[SourceLineCounters, ...], ...]
    dropped_metrics: tuple[str, ...]
    version: str


@dataclass(frozen=True)
class CountedLaunches:
    """What Nsight Compute counted over a program.

    Attributes:
        made: indices of the requests that were launched, in order.
        failed: reasons of the others, by index.
        metrics: of each launch.
        instructions: of each launch.
        lines: of each launch, if they were asked for.
        dropped: metrics that this GPU lacks.
    """

    made: list[int]
    failed: dict[int, str]
    metrics: list[dict[str, float]]
    instructions: list[list[SassInstruction]]
    lines: list[list[SourceLineCounters]]
    dropped: list[str]


def count_launches(
    program: Sequence[str], kernels: str, *, source_folder: Path | None, timeout_s: float = 200.0
) -> CountedLaunches:
    """Run a program that says what it launches (`warptile.bench.profiling.ncu.launch_each`) under Nsight Compute.

    Args:
        program: with its arguments.
        kernels: that are counted, as ``--kernel-name`` takes them; mangled names.
        source_folder: where sources are looked for; None if counters by line are not wanted.
        timeout_s: for the program and for each page.

    Raises:
        NoDeviceError: Nsight Compute is not installed.
        ProfileError: it wrote no report; the message carries the end of its output.
    """
    options = ["--kernel-name-base", "mangled", "--kernel-name", kernels]
    options += ["--import-source", "yes", "--source-folders", str(source_folder)] if source_folder else []
    options += [word for section in SECTIONS for word in ("--section", section)]
    with tempfile.TemporaryDirectory(prefix="warptile-ncu-") as name:
        report, output, dropped = collect(program, Path(name) / "report.ncu-rep", METRICS, options, timeout_s)
        made, failed = launched(output)
        metrics = parse_raw(page(report, "--page", "raw", timeout_s=timeout_s))
        source = ("--page", "source", "--print-source")
        instructions = parse_sass(page(report, *source, "sass", timeout_s=timeout_s))
        lines = parse_lines(page(report, *source, "cuda,sass", timeout_s=timeout_s)) if source_folder else []
    return CountedLaunches(made, failed, metrics, instructions, lines, dropped)


def profile(requests: Sequence[LaunchRequest], *, with_lines: bool = False, timeout_s: float = 200.0) -> NcuRun:
    """Run every request once under Nsight Compute, in one process of its own, clocks left alone.

    Raises:
        NoDeviceError: Nsight Compute is not installed.
        ProfileError: it wrote no report; the message carries the end of its output.
    """
    with tempfile.TemporaryDirectory(prefix="warptile-requests-") as name:
        asked = Path(name) / "requests.json"
        asked.write_bytes(msgspec.json.encode(list(requests)))
        counted = count_launches(
            [sys.executable, "-m", "warptile.bench.profiling.launch_once", str(asked)], "regex:warptile",
            source_folder=KERNELS if with_lines else None, timeout_s=timeout_s,
        )  # fmt: skip
    metrics, instructions = counted.metrics, counted.instructions
    found = {
        index: to_profile(requests[index], metrics[order], instructions[order] if order < len(instructions) else [])
        for order, index in enumerate(counted.made)
        if order < len(metrics)
    }
    profiles = tuple(
        found.get(i) or unprofiled(request, counted.failed.get(i, "no counters: see the record's failures"))
        for i, request in enumerate(requests)
    )
    version = subprocess.run([find_ncu(), "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    return NcuRun(
        profiles, tuple(tuple(each) for each in counted.lines), tuple(counted.dropped),
        version.strip().splitlines()[-1],
    )  # fmt: skip
