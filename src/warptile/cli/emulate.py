"""``warptile emulate``: runs any PTX file on the CPU."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import ml_dtypes  # noqa: F401  (registers its types with NumPy, whose files may hold them)
import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from warptile.arch import ARCHES, REFERENCE_ARCH
from warptile.cli import _tensor_map_file
from warptile.cli._names import OneOf
from warptile.emulator import ALL_CHECKS, DEFAULT_CHECKS, EmulationReport, emulate
from warptile.launch.access import Access
from warptile.launch.params import Pointer, Scalar
from warptile.launch.spec import Argument, Dim3, LaunchSpec
from warptile.launch.tensor_map import TENSOR_MAP_BYTES, TensorMap
from warptile.ptx import parse
from warptile.ptx.instruction import PtxFunction, PtxModule, Variable

SCALARS = {
    "i32": "s32", "s32": "s32", "u32": "u32", "i64": "s64", "s64": "s64", "u64": "u64", "f16": "f16", "f32": "f32",
    "f64": "f64",
}  # fmt: skip
"""Spelling on the command line -> type in a `LaunchSpec`."""


@dataclass(frozen=True)
class KernelArgument:
    """One ``--arg``: the kernel's argument and, for a buffer, its file and content."""

    argument: Argument
    path: Path | None = None
    array: np.ndarray[Any, Any] | None = None
    written: bool = False


def extent(context: click.Context, parameter: click.Parameter, text: str) -> Dim3:
    """Three extents from ``X``, ``X,Y`` or ``X,Y,Z``, missing ones 1."""
    try:
        extents = [int(part) for part in text.split(",")]
    except ValueError:
        extents = []
    if not 1 <= len(extents) <= 3 or min(extents) < 1:
        raise click.BadParameter(f"got {text!r}; it takes one to three whole numbers from 1, such as 8,4,1")
    x, y, z = [*extents, 1, 1][:3]
    return x, y, z


def arguments(context: click.Context, parameter: click.Parameter, specs: tuple[str, ...]) -> tuple[KernelArgument, ...]:
    """Every ``--arg``, with its file read."""
    return tuple(argument(spec) for spec in specs)


def argument(spec: str) -> KernelArgument:
    """A kernel argument from ``i32:5``, ``f32:1.5``, ``in:PATH.npy``, ``inout:PATH.npy`` or ``tensormap:PATH.json``.

    Raises:
        UnsupportedError: a tensor map of a kind that is not supported.
        click.BadParameter: anything else, a value that does not fit, or a file that cannot be read.
    """
    kind, colon, text = spec.partition(":")
    if not colon or (kind not in SCALARS and kind not in ("in", "inout", "tensormap")):
        raise click.BadParameter(
            f"got {spec!r}; it takes {', '.join(SCALARS)}, in, inout or tensormap, such as i32:5 or in:a.npy"
        )
    if kind in SCALARS:
        return KernelArgument(scalar(SCALARS[kind], text))
    if kind == "tensormap":
        tensor, base, written = _tensor_map_file.read(Path(text))
        return KernelArgument(tensor, base, array_of(str(base)), written)
    return KernelArgument(Pointer(None), Path(text), array_of(text), kind == "inout")


def array_of(text: str) -> np.ndarray[Any, Any]:
    """The array in a file, C-contiguous."""
    try:
        array = np.load(text, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise click.BadParameter(f"{text}: not a readable .npy file ({error}); numpy.save makes one") from None
    if not isinstance(array, np.ndarray):
        raise click.BadParameter(f"{text}: an archive of several arrays; save one with numpy.save")
    return np.array(array, order="C")


def scalar(kind: str, text: str) -> Scalar:
    """A scalar of PTX type ``kind``."""
    try:
        value: int | float = float(text) if kind[0] == "f" else int(text, 0)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no {kind}") from None
    if kind[0] != "f":
        bits = int(kind[1:])
        low, high = (0, 2**bits - 1) if kind[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if not low <= value <= high:
            raise click.BadParameter(f"{text} does not fit into {kind}, which holds {low} to {high}")
    return Scalar(kind, value)


@click.command("emulate")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--entry", help="Kernel to run; may be left out when the file has one.")
@click.option(
    "--arch", type=OneOf("arch", lambda: tuple(ARCHES)), default=REFERENCE_ARCH, show_default=True,
    help="Architecture to behave as.",
)  # fmt: skip
@click.option("--grid", callback=extent, metavar="X,Y,Z", default="1", show_default=True, help="CTAs.")
@click.option("--block", callback=extent, metavar="X,Y,Z", default="1", show_default=True, help="Threads of a block.")
@click.option("--cluster", callback=extent, metavar="X,Y,Z", default="1", show_default=True, help="CTAs of a cluster.")
@click.option("--smem", type=click.IntRange(0), default=0, metavar="BYTES", help="Dynamic shared memory of a block.")
@click.option(
    "--arg", "given", callback=arguments, metavar="SPEC", multiple=True, help="One for each kernel parameter, in order."
)
@click.option("--out-dir", type=click.Path(file_okay=False, path_type=Path), help="Where inout buffers are written.")
@click.option("--schedule", default="latest", show_default=True, help="latest, earliest or random:SEED.")
@click.option("--check", "checks", help=f"Of {','.join(sorted(ALL_CHECKS))}; by default all, and '' for none.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    file: Path,
    entry: str | None,
    arch: str,
    grid: Dim3,
    block: Dim3,
    cluster: Dim3,
    smem: int,
    given: tuple[KernelArgument, ...],
    out_dir: Path | None,
    schedule: str,
    checks: str | None,
    as_json: bool,
) -> None:
    """Run a kernel of a PTX file on the CPU and check it.

    Each --arg is i32:5, u64:7, f32:1.5, in:PATH.npy or inout:PATH.npy: a device buffer initialized from the file,
    which is written to --out-dir under the same name afterwards. tensormap:PATH.json is a tensor map in memory that
    it shares with every other argument of the same file.

    \b
    Example, of a kernel add(const float* a, float* d, int n):
      warptile emulate add.ptx --grid 2 --block 128 --arg in:a.npy --arg inout:d.npy --arg i32:256 --out-dir out
    """
    if any(one.written for one in given) and out_dir is None:
        raise click.UsageError("an inout: argument needs --out-dir DIR to be written to")
    names = buffer_names(given)
    owners = {name: given[position] for position, name in reversed(names.items())}
    written_names = {names[i] for i, one in enumerate(given) if one.written}
    check_targets([owners[name] for name in written_names])
    module = parse(text_of(file))
    function = entry_named(module, entry)
    check_arguments(function, given)
    spec = LaunchSpec(
        entry=function.name,
        grid=grid,
        block=block,
        arguments=tuple(named(one.argument, names.get(i)) for i, one in enumerate(given)),
        cluster=cluster,
        dynamic_shared_bytes=smem,
    )
    arrays = {name: one.array for name, one in owners.items() if one.array is not None}
    report = emulate(
        module,
        spec,
        {name: array.reshape(-1).view(np.uint8) for name, array in arrays.items()},
        accesses={name: Access(writes=name in written_names) for name in owners},
        arch=arch,
        schedule=schedule,
        checks=DEFAULT_CHECKS if checks is None else frozenset(filter(None, checks.split(","))),
    )
    written = []
    for name, one in owners.items():
        if name in written_names and one.path is not None and out_dir is not None:
            out_dir.mkdir(parents=True, exist_ok=True)
            np.save(out_dir / one.path.name, arrays[name])
            written.append(str(out_dir / one.path.name))
    if as_json:
        sys.stdout.write(document(function.name, arch, report, written) + "\n")
    else:
        show(function.name, report, written)


def text_of(file: Path) -> str:
    """The PTX text of a file."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{file}: not readable as PTX text ({error})", param_hint="FILE") from None


def buffer_names(given: tuple[KernelArgument, ...]) -> dict[int, str]:
    """A name for each buffer argument: its file's, with a number where two arguments name the same file.

    A tensor map has the buffer of another argument of the same file, if there is one.
    """
    names: dict[int, str] = {}
    for position, one in enumerate(given):
        if one.path is None:
            continue
        same = [
            names[other]
            for other in names
            if TensorMap in (type(one.argument), type(given[other].argument))
            and (given[other].path or Path()).resolve() == one.path.resolve()
        ]
        plain = one.path.name if one.path.name not in names.values() else f"{one.path.name} (argument {position})"
        names[position] = same[0] if same else plain
    return names


def check_targets(written: list[KernelArgument]) -> None:
    """Two buffers must not end in one file."""
    files = [one.path.name for one in written if one.path is not None]
    for file in files:
        if files.count(file) > 1:
            raise click.UsageError(f"two inout: arguments would be written to {file}; rename one of the files")


def named(argument: Argument, name: str | None) -> Argument:
    """An argument whose operand is called ``name``; scalars, which have none, as they are."""
    if name is None:
        return argument
    return replace(argument, operand=name) if isinstance(argument, TensorMap) else Pointer(name)


def entry_named(module: PtxModule, name: str | None) -> PtxFunction:
    """The kernel called ``name``, or the file's only one."""
    entries = module.entries
    if name is None and len(entries) == 1:
        return module.functions[entries[0]]
    if name not in entries:
        got = f"got {name!r}" if name else "left out"
        raise click.BadParameter(f"{got}; the file has {', '.join(entries) or 'no kernel'}", param_hint="--entry")
    return module.functions[name]


def check_arguments(function: PtxFunction, given: tuple[KernelArgument, ...]) -> None:
    """Number and size of the arguments must be the kernel's."""
    parameters = [each for each in function.parameters if isinstance(each, Variable)]
    shown = ", ".join(f"{each.type}{f'[{each.size_bytes}]' if each.size_bytes > 8 else ''}" for each in parameters)
    if len(parameters) != len(given):
        raise click.UsageError(
            f"{function.name} takes {len(parameters)} parameters ({shown}) and got {len(given)} --arg; "
            f"give one for each, in order"
        )
    for position, (parameter, one) in enumerate(zip(parameters, given, strict=True)):
        size = 8
        if isinstance(one.argument, Scalar):
            size = math.ceil(int(one.argument.type[1:]) / 8)
        elif isinstance(one.argument, TensorMap):
            size = TENSOR_MAP_BYTES
        if size != parameter.size_bytes:
            raise click.UsageError(
                f"--arg {position} has {size} bytes and parameter {position} of {function.name} is {parameter.type} "
                f"of {parameter.size_bytes} bytes"
            )


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
    made = Table(title=entry, title_justify="left", show_header=False)
    made.add_column("counter")
    made.add_column("value", justify="right")
    for name, value in report.counters.items():
        made.add_row(name, f"{value:,.0f}" if value == int(value) else f"{value:,.3f}")
    console.print(made)
    for path in written:
        console.print(f"wrote {path}", markup=False, highlight=False)
