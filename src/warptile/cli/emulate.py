"""``warptile emulate``: runs any kernel of a CUDA C++ or PTX file on the CPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from warptile.cli._kernel_launch import (
    KERNEL_FILE,
    KernelArgument,
    buffers_of,
    check_targets,
    file_launch,
    launch_options,
    written_of,
)
from warptile.codegen.kernel_names import instance_name

if TYPE_CHECKING:
    from warptile.emulator import EmulationReport


@click.command("emulate")
@click.argument("file", type=KERNEL_FILE)
@launch_options
@click.option("--out-dir", type=click.Path(file_okay=False, path_type=Path), help="Where inout buffers are written.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(file: Path, given: tuple[KernelArgument, ...], out_dir: Path | None, as_json: bool, **options: Any) -> None:
    """Run a kernel of a CUDA C++ or PTX file on the CPU and check it.

    Each --arg is a number such as i32:5, u64:7, f32:1.5, bool:1 or i8:-3 (i, u: 8 to 64 bits; f16, bf16, f32, f64),
    or in:PATH.npy or inout:PATH.npy: a device buffer initialized from the file, which is written to --out-dir under
    the same name afterwards. tensormap:PATH.json is a tensor map in memory that
    it shares with every other argument of the same file.

    \b
    Examples, of a kernel add(const float* a, float* d, int n):
      warptile emulate add.ptx --grid 2 --block 128 --arg in:a.npy --arg inout:d.npy --arg i32:256 --out-dir out
      warptile emulate add.cu --entry add --block 256 --arg in:a.npy --arg inout:d.npy --arg i32:256 --out-dir out
    """
    import numpy as np

    from warptile.emulator import emulate

    if any(one.written for one in given) and out_dir is None:
        raise click.UsageError("an inout: argument needs --out-dir DIR to be written to")
    check_targets(given)
    launch = file_launch(file, given=given, **options)
    report = emulate(
        launch.kernel.module, launch.spec, launch.buffers, accesses=launch.accesses, arch=launch.arch,
        schedule=launch.schedule, checks=launch.checks,
    )  # fmt: skip
    written, buffers = [], buffers_of(given)
    for name in written_of(given):
        one = buffers[name]
        if one.path is not None and one.array is not None and out_dir is not None:
            out_dir.mkdir(parents=True, exist_ok=True)
            np.save(out_dir / one.path.name, one.array)
            written.append(str(out_dir / one.path.name))
    if as_json:
        sys.stdout.write(document(launch.kernel.entry, launch.arch, report, written) + "\n")
    else:
        show(launch.kernel.entry, report, written)


def document(entry: str, arch: str, report: EmulationReport, written: list[str]) -> str:
    """The JSON document."""
    lines = [
        {
            "file": line.location.file,
            "line": line.location.line,
            "ptx_line": line.location.ptx_line,
            "counters": line.counters,
        }
        for line in report.lines
    ]
    content = {
        "schema": "warptile.emulate/1",
        "entry": entry,
        "arch": arch,
        "counters": report.counters,
        "unfinished_copies": report.unfinished_copies,
        "output": report.output,
        "written": written,
        "lines": lines,
    }
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()


def show(entry: str, report: EmulationReport, written: list[str]) -> None:
    """The report for people: what the kernel printed, its counters, the files written."""
    console = Console()
    if report.output:
        sys.stdout.write(report.output + ("" if report.output.endswith("\n") else "\n"))
        sys.stdout.flush()
    made = Table(title=instance_name(entry), title_justify="left", show_header=False)
    made.add_column("counter")
    made.add_column("value", justify="right")
    for name, value in report.counters.items():
        made.add_row(name, f"{value:,.0f}" if value == int(value) else f"{value:,.3f}")
    console.print(made)
    for path in written:
        console.print(f"wrote {path}", markup=False, highlight=False)
