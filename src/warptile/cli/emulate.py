"""``warptile emulate``: runs any kernel of a CUDA C++ or PTX file on the CPU."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.table import Table

from warptile.cli._files import FILE_TO_WRITE
from warptile.cli._findings import documents, show_findings, write_sarif
from warptile.cli._kernel_launch import (
    KERNEL_FILE,
    KernelArgument,
    buffers_of,
    check_targets,
    file_launch,
    launch_options,
    written_of,
)
from warptile.cli._refusals import REFUSED, refusal_document, write_refusal_sarif
from warptile.cli._tables import console_of
from warptile.codegen.kernel_names import instance_name

if TYPE_CHECKING:
    from warptile.bench.profiling.file_profile import UserLaunch
    from warptile.bench.profiling.source_files import SourceFiles
    from warptile.emulator import EmulationReport


@click.command("emulate")
@click.argument("file", type=KERNEL_FILE)
@launch_options
@click.option("--out-dir", type=click.Path(file_okay=False, path_type=Path), help="Where inout buffers are written.")
@click.option(
    "--explore",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Run again under --schedule random:1 to random:N, and list what any run shows.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option(
    "--sarif",
    "sarif_file",
    metavar="FILE",
    type=FILE_TO_WRITE,
    help="Write the findings, or the errors of the compiler, as SARIF 2.1.0 too.",
)
def command(
    file: Path,
    given: tuple[KernelArgument, ...],
    out_dir: Path | None,
    explore: int,
    as_json: bool,
    sarif_file: Path | None,
    **options: Any,
) -> int:
    """Run a kernel of a CUDA C++ or PTX file on the CPU and check it.

    Each --arg is a number such as i32:5, u64:7, f32:1.5, bool:1 or i8:-3 (i, u: 8 to 64 bits; f16, bf16, f32, f64),
    or in:PATH.npy or inout:PATH.npy: a device buffer initialized from the file, which is written to --out-dir under
    the same name afterwards. random:f32:1024 and zeros:f16:64x128 are buffers without a file, which the kernel may
    write. tensormap:PATH.json is a tensor map in memory that it shares with every other argument of the same file.

    Everything that the checks find is listed: errors (undefined by the PTX ISA), model findings (code that relies on
    what its memory model does not promise) and warnings. Errors and model findings end with exit code 1. --check and
    --ignore take races, uninitialised, writes, reuse (errors); warp-order, cas-read, wgmma-rows, bulk-exit,
    unwaited-reads (model), which --model common leaves out; overflow, padding, leaks and, off by default,
    redundant-stores (warnings). Accesses outside of buffers, misaligned ones, deadlocks and the like always end the
    run.

    \b
    Examples, of a kernel add(const float* a, float* d, int n) in add.cu:
      warptile emulate add.cu --block 256 \\
        --arg random:f32:256 --arg zeros:f32:256 --arg i32:256
      warptile emulate add.cu --block 256 \\
        --arg in:a.npy --arg inout:d.npy --arg i32:256 --out-dir out
      warptile emulate add.ptx --entry add --grid 2 --block 128 \\
        --arg in:a.npy --arg inout:d.npy --arg i32:256 --out-dir out \\
        --model common --ignore padding --explore 8 --sarif add.sarif
    """
    import numpy as np

    from warptile.bench.profiling.source_files import files_of
    from warptile.emulator import emulate
    from warptile.emulator import explore as emulate_all

    if any(one.written for one in given) and out_dir is None:
        raise click.UsageError("an inout: argument needs --out-dir DIR to be written to")
    check_targets(given)
    launch = None
    try:
        launch = file_launch(file, given=given, **options)
        emulated = partial(emulate_all, seeds=explore) if explore else partial(emulate, collect=True)
        report = emulated(
            launch.kernel.module, launch.spec, launch.buffers, accesses=launch.accesses, arch=launch.arch,
            schedule=launch.schedule, checks=launch.checks,
        )  # fmt: skip
    except REFUSED as error:
        if sarif_file is not None:
            write_refusal_sarif(sarif_file, error, file, launch)
        if as_json:
            refused = refusal_document(error, file, launch)
            entry = options["entry"] if launch is None else launch.kernel.entry
            sys.stdout.write(document(entry, options["arch"], refused=refused) + "\n")
        raise
    written, buffers = [], buffers_of(given)
    for name in written_of(given) if report.finished else ():
        one = buffers[name]
        if one.path is not None and one.array is not None and out_dir is not None:
            try:
                out_dir.mkdir(parents=True, exist_ok=True)
                np.save(out_dir / one.path.name, one.array)
            except OSError as error:
                raise click.BadParameter(
                    f"{out_dir / one.path.name} cannot be written ({error.strerror})", param_hint="--out-dir"
                ) from error
            written.append(str(out_dir / one.path.name))
    files = files_of(launch.kernel)
    if sarif_file is not None:
        write_sarif(sarif_file, report, files, file)
    if as_json:
        sys.stdout.write(document(launch.kernel.entry, launch.arch, report, written, files) + "\n")
    else:
        show(launch, report, written, files)
    return 1 if any(each.fails for each in report.findings) else 0


def document(
    entry: str | None,
    arch: str,
    report: EmulationReport | None = None,
    written: Sequence[str] = (),
    files: SourceFiles | None = None,
    *,
    refused: dict[str, Any] | None = None,
) -> str:
    """The JSON document: of a run, or of why there was none."""
    lines = [
        {
            "file": line.location.file,
            "line": line.location.line,
            "ptx_line": line.location.ptx_line,
            "counters": line.counters,
        }
        for line in (report.lines if report else ())
    ]
    content = {
        "schema": "warptile.emulate/1",
        "entry": entry,
        "arch": arch,
        "finished": report is not None and report.finished,
        "refused": refused,
        "findings": documents(report.findings, files) if report and files else [],
        "counters": report.counters if report else {},
        "unfinished_copies": report.unfinished_copies if report else 0,
        "output": report.output if report else "",
        "written": written,
        "lines": lines,
    }
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()


def show(launch: UserLaunch, report: EmulationReport, written: list[str], files: SourceFiles) -> None:
    """The report for people: what the kernel printed, its counters, the files written, and what the checks found."""
    console = console_of()
    if report.output:
        sys.stdout.write(report.output + ("" if report.output.endswith("\n") else "\n"))
        sys.stdout.flush()
    if report.finished:
        made = Table(title=instance_name(launch.kernel.entry), title_justify="left", show_header=False)
        made.add_column("counter")
        made.add_column("value", justify="right")
        for name, value in report.counters.items():
            made.add_row(name, f"{value:,.0f}" if value == int(value) else f"{value:,.3f}")
        console.print(made)
    for path in written:
        console.print(f"wrote {path}", markup=False, highlight=False)
    show_findings(console, report.findings, files, launch.schedule)
