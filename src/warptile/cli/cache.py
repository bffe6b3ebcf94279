"""``warptile cache``: the compiled kernels on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from warptile.cli._files import FILE_TO_WRITE
from warptile.cli._names import DTYPE, SHAPE, CommandGroup, one_of

if TYPE_CHECKING:
    from warptile.runtime.compile_ahead import Progress, WarmReport


@click.group("cache", cls=CommandGroup)
def command() -> None:
    """Compile kernels ahead; list, clear, export or import them.

    They are kept in the folder that WARPTILE_CACHE_DIR names, or in the platform's cache folder.

    \b
    Examples:
      warptile cache warm --dtype bf16
      warptile cache ls
      warptile cache export kernels.zip
    """


@command.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_entries(as_json: bool) -> None:
    """List the compiled kernels.

    \b
    Example:
      warptile cache ls --json
    """
    from warptile.codegen.cache import Cache

    cache = Cache()
    entries = list(cache.list())
    if as_json:
        import msgspec

        rows = [
            {"key": entry.key, "created": entry.created, "bytes": entry.size_bytes, **entry.metadata}
            for entry in entries
        ]
        document = {"schema": "warptile.cache/1", "folder": str(cache.folder), "entries": rows}
        click.echo(msgspec.json.format(msgspec.json.encode(document)).decode())
        return
    from rich.markup import escape

    from warptile.cli._tables import Column, console_of, show

    if entries:
        columns = [
            Column("key", [entry.key[:12] for entry in entries], left=True),
            Column("created", [entry.created[:16].replace("T", " ") for entry in entries], rank=1, left=True),
            Column("bytes", [f"{entry.size_bytes:,}" for entry in entries]),
            Column("arch", [str(entry.metadata.get("arch", "?")) for entry in entries], left=True),
            Column("kernel", [escape(str(entry.metadata.get("name_expression", "?"))) for entry in entries],
                   left=True, least=24),
        ]  # fmt: skip
        show(console_of(), "", columns)
    total_bytes = sum(entry.size_bytes for entry in entries)
    click.echo(f"{len(entries)} kernels, {total_bytes:,} bytes in {cache.folder}", err=True)


@command.command("clear")
def clear() -> None:
    """Remove every compiled kernel.

    \b
    Example:
      warptile cache clear
    """
    from warptile.codegen.cache import Cache

    cache = Cache()
    click.echo(f"{cache.clear()} kernels removed from {cache.folder}", err=True)


@command.command("export")
@click.argument("file", type=FILE_TO_WRITE)
def export_entries(file: Path) -> None:
    """Write all compiled kernels to FILE, a zip archive.

    \b
    Example:
      warptile cache export kernels.zip
    """
    from warptile.codegen.cache import Cache

    click.echo(f"{Cache().export_to(file)} kernels written to {file}", err=True)


@command.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
def import_entries(file: str) -> None:
    """Add the compiled kernels of an exported FILE.

    They will run on your GPU: import only files that you trust.

    \b
    Example:
      warptile cache import kernels.zip
    """
    from warptile.codegen.cache import Cache

    click.echo(f"{Cache().import_from(file)} kernels read from {file}", err=True)


@command.command("warm")
@click.option("--shape", "shapes", multiple=True, type=SHAPE, help="A GEMM's extents; several. Else what ships.")
@click.option("--dtype", "dtypes", multiple=True, type=DTYPE, help="Type of A and B; several. Else all that ship.")
@click.option("--out-dtype", type=DTYPE, help="With --shape: type of D, by default that of matmul.")
@click.option("--b-major", type=one_of("row", "col"), default="row", show_default=True, help="B as [K, N] or [N, K].")
@click.option("--arch", help="Architecture to compile for, such as sm_90a: needs no GPU.")
@click.option("--device", help="GPU model to compile for, such as 'NVIDIA H100 PCIe': needs no GPU.")
@click.option("--jobs", type=click.IntRange(1), default=None, help="Compilations at a time; one for each core.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def warm(
    shapes: tuple[tuple[int, int, int], ...],
    dtypes: tuple[str, ...],
    out_dtype: str | None,
    b_major: str,
    arch: str | None,
    device: str | None,
    jobs: int | None,
    as_json: bool,
) -> int:
    """Compile kernels into the cache, in parallel.

    Without --shape, those that the shipped plans use on this GPU; else those that matmul uses for these shapes. Later
    processes load them instead of compiling. Interrupt it, and the same command goes on where it was. The exit status
    is 1 where a kernel does not compile.

    \b
    Examples:
      warptile cache warm
      warptile cache warm --arch sm_90a --dtype bf16 --dtype e4m3
      warptile cache warm --shape 4096x14336x4096 --dtype bf16 --b-major col
    """
    if shapes and not dtypes:
        raise click.UsageError("--shape needs --dtype, such as --shape 4096x14336x4096 --dtype bf16")
    if not shapes and (out_dtype or b_major != "row"):
        raise click.UsageError("--out-dtype and --b-major go with --shape, such as --shape 4096x14336x4096")
    from warptile.warming import warm as compile_kernels

    with _progress_bar() as progress:
        report = compile_kernels(
            shapes or None, dtypes=dtypes or None, out_dtype=out_dtype, b_major=b_major, arch=arch, device=device,
            jobs=jobs, progress=progress,
        )  # fmt: skip
    if as_json:
        _print_json(report)
    else:
        _print_report(report)
    return 1 if report.failed else 0


@contextmanager
def _progress_bar() -> Iterator[Progress]:
    """A bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("compiling", total=None)
        yield lambda done, total, _: bar.update(task, completed=done, total=total)


def _print_json(report: WarmReport) -> None:
    import dataclasses

    import msgspec

    document = {
        "schema": "warptile.warm/1", "device": report.device, "arch": report.arch, "folder": str(report.folder),
        "seconds": report.seconds, "compiled": len(report.compiled), "cached": len(report.cached),
        "failed": len(report.failed), "kernels": [dataclasses.asdict(each) for each in report.kernels],
    }  # fmt: skip
    click.echo(msgspec.json.format(msgspec.json.encode(document)).decode())


def _print_report(report: WarmReport) -> None:
    """A row for each rung and type; then each reason of failure once."""
    from warptile.cli._tables import Column, console_of, show

    rows = sorted({(each.name, each.dtype) for each in report.kernels})
    found = Counter((each.name, each.dtype, each.state) for each in report.kernels)
    if rows:
        counts = [
            Column(state, [str(found[(*row, state)]) for row in rows]) for state in ("compiled", "cached", "failed")
        ]
        names = [
            Column("kernel", [name for name, _ in rows], left=True),
            Column("type", [kind for _, kind in rows], left=True),
        ]
        show(console_of(80), f"kernels for {report.device}, {report.arch}", [*names, *counts])
    for reason, count in Counter(each.error for each in report.failed).items():
        click.echo(f"{count} failed: {reason}", err=True)
    click.echo(
        f"{len(report.kernels)} kernel{'s' * (len(report.kernels) != 1)} in {report.seconds:.1f} s, in {report.folder}",
        err=True,
    )
