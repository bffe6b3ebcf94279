"""Counters of a launch of a user's kernel, by source line: on the emulator, or under Nsight Compute."""

from __future__ import annotations

import pickle
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from warptile.arch import arch as find_arch
from warptile.bench.profiling.instruction_lists import ByLine, ptx_by_line, sass_by_line
from warptile.bench.profiling.launch_file import StoredLaunch
from warptile.bench.profiling.ncu import ProfileError
from warptile.bench.profiling.profile import api_counters, by_opcode, count_launches
from warptile.bench.profiling.replayed import Replayed, replay_of
from warptile.bench.profiling.source_files import files_of
from warptile.bench.profiling.source_lines import LineCounts, from_emulator, from_ncu, with_instructions
from warptile.codegen.nvrtc import disassemble
from warptile.emulator import DEFAULT_CHECKS, emulate
from warptile.emulator.recording import Recording
from warptile.launch.access import Access
from warptile.launch.spec import Dim3, LaunchSpec
from warptile.runtime.kernel_file import KernelFile, compiled_kernel


class FileProfile(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="warptile.file-profile/1"):
    """The document that ``warptile profile --file ... --json`` prints.

    Attributes:
        backend: what counted, ``"emulator"`` or ``"gpu"`` (Nsight Compute).
        file: as it was given.
        entry: lowered name of the kernel.
        arch: that it was compiled for.
        grid, block, cluster: of the launch.
        dynamic_shared_bytes: of a CTA.
        counters: of the whole launch.
        output: what the kernel printed.
        unfinished_copies: `cp.async` copies that the kernel never waited for; 0 on a GPU, which does not say.
        left_empty: headers that were found nowhere and left empty.
        left_out: first and last line of each declaration of host code that was left out.
        left_out_of_headers: name, first and last line of those of headers.
        lines: by source line.
    """

    backend: str
    file: str
    entry: str
    arch: str
    grid: Dim3
    block: Dim3
    cluster: Dim3
    dynamic_shared_bytes: int
    counters: dict[str, float]
    output: str = ""
    unfinished_copies: int = 0
    left_empty: tuple[str, ...] = ()
    left_out: tuple[tuple[int, int], ...] = ()
    left_out_of_headers: tuple[tuple[str, int, int], ...] = ()
    lines: tuple[LineCounts, ...] = ()


@dataclass(frozen=True)
class UserLaunch:
    """A launch of a user's kernel.

    Attributes:
        kernel: it, and its file.
        spec: the launch.
        buffers: the bytes of each operand; those that may be written are changed.
        accesses: what the kernel may do with each.
        arch: architecture to behave as.
        schedule: when asynchronous copies finish, on the emulator.
        checks: that the emulator makes.
    """

    kernel: KernelFile
    spec: LaunchSpec
    buffers: Mapping[str, NDArray[np.uint8]]
    accesses: Mapping[str, Access]
    arch: str
    schedule: str = "latest"
    checks: frozenset[str] = DEFAULT_CHECKS


def replayed_file(launch: UserLaunch, launches: int = 1) -> Replayed:
    """Emulate a launch, and replay the cluster (or the CTA) that executes most.

    Raises:
        EmulationError: the kernel did something that is not allowed.
    """
    recording = Recording()
    report = emulate(
        launch.kernel.module, launch.spec, launch.buffers, accesses=launch.accesses, arch=launch.arch,
        schedule=launch.schedule, checks=launch.checks, recording=recording,
    )  # fmt: skip
    most = find_arch(launch.arch).shared_bytes_per_sm
    return replay_of(
        recording, report, launches=launches, side_by_side=2 * launch.spec.dynamic_shared_bytes <= most,
        files=files_of(launch.kernel),
    )  # fmt: skip


def emulated_file(launch: UserLaunch, *, with_ptx: bool = False, with_sass: bool = False) -> FileProfile:
    """Counters of one emulated launch, and the share of the time that the clock model gives each line.

    Args:
        launch: to be made.
        with_ptx, with_sass: whether the lines have their instructions; SASS takes the kernel's machine code.

    Raises:
        EmulationError: the kernel did something that is not allowed.
        UnsupportedError: SASS is wanted, and nvdisasm is not installed.
    """
    listed = _instructions(launch.kernel, with_ptx, with_sass)
    found = replayed_file(launch)
    lines = with_instructions(from_emulator(found.report.lines, found.shares, files_of(launch.kernel)), *listed)
    report = found.report
    return _profile(launch, "emulator", lines, dict(report.counters), report.output, report.unfinished_copies)


def file_under_ncu(launch: UserLaunch, *, with_ptx: bool = False, with_sass: bool = False) -> FileProfile:
    """Counters of one launch under Nsight Compute. The kernel has to have its machine code.

    Raises:
        NoDeviceError: Nsight Compute is not installed.
        ProfileError: it did not count.
        UnsupportedError: SASS is wanted, and nvdisasm is not installed.
    """
    kernel, compiled = launch.kernel, compiled_kernel(launch.kernel, launch.arch)
    listed = _instructions(kernel, with_ptx, with_sass)
    with tempfile.TemporaryDirectory(prefix="warptile-launch-") as folder:
        stored = Path(folder) / "launch.pickle"
        stored.write_bytes(pickle.dumps(StoredLaunch(compiled, launch.spec, dict(launch.buffers))))
        asked = Path(folder) / "requests.json"
        asked.write_bytes(msgspec.json.encode([str(stored)]))
        counted = count_launches(
            [sys.executable, "-m", "warptile.bench.profiling.launch_file", str(asked)],
            f"regex:^{kernel.entry.replace('$', '[$]')}$",
            source_folder=kernel.path.resolve().parent,
        )
    if not counted.metrics:
        raise ProfileError(f"profile {kernel.path}: {counted.failed.get(0, 'Nsight Compute counted nothing')}")
    lines = with_instructions(from_ncu(counted.lines[0] if counted.lines else (), files_of(kernel)), *listed)
    opcodes = by_opcode(counted.instructions[0] if counted.instructions else ())
    return _profile(launch, "gpu", lines, api_counters(counted.metrics[0], opcodes), "", 0)


def _instructions(kernel: KernelFile, with_ptx: bool, with_sass: bool) -> tuple[ByLine | None, ByLine | None]:
    """PTX and machine instructions by line, each None where it was not asked for."""
    files = files_of(kernel)
    ptx = ptx_by_line(kernel.module, kernel.entry, files) if with_ptx else None
    sass = None
    if with_sass:
        assert kernel.code is not None, "a kernel without machine code"
        sass = sass_by_line(disassemble(kernel.code.cubin), kernel.entry, kernel.module.entries, files)
    return ptx, sass


def _profile(
    launch: UserLaunch,
    backend: str,
    lines: tuple[LineCounts, ...],
    counters: dict[str, float],
    output: str,
    unfinished: int,
) -> FileProfile:
    spec = launch.spec
    return FileProfile(
        backend=backend, file=str(launch.kernel.path), entry=spec.entry, arch=launch.arch, grid=spec.grid,
        block=spec.block, cluster=spec.cluster, dynamic_shared_bytes=spec.dynamic_shared_bytes, counters=counters,
        output=output, unfinished_copies=unfinished, left_empty=launch.kernel.left_empty,
        left_out=launch.kernel.left_out, left_out_of_headers=launch.kernel.left_out_of_headers, lines=lines,
    )  # fmt: skip
