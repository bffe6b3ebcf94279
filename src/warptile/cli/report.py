"""`warptile report`: one HTML file with what was recorded, or with what was just run."""

from __future__ import annotations

import shlex
import time
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from warptile.cli._files import FILE_TO_WRITE, write_file
from warptile.cli._names import RUNG

if TYPE_CHECKING:
    from warptile.bench.html_report.page_data import PageData

FILE = Path("report.html")


@click.command("report")
@click.option("--out", type=FILE_TO_WRITE, default=FILE, show_default=True, metavar="FILE",
              help="The file to write.")  # fmt: skip
@click.option("--run", "runs", multiple=True, type=click.Path(dir_okay=False, path_type=Path),
              metavar="FILE", help="Show this saved run instead of the records; may be repeated.")  # fmt: skip
@click.option("--records", "folder", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="FOLDER",
              help="Records of another folder.  [those of the checkout]")  # fmt: skip
@click.option("--emulate", is_flag=True, help="Also count every rung's source lines on the emulator.")
@click.option(
    "--rung", "names", multiple=True, metavar="NAME", type=RUNG, help="--emulate: only this; may be repeated."
)
@click.option("--open", "opened", is_flag=True, help="Open the file in the browser.")
def command(
    out: Path, runs: tuple[Path, ...], folder: Path | None, emulate: bool, names: tuple[str, ...], opened: bool
) -> None:
    """Write one HTML file with charts, tables and sources.

    It shows the records of the checkout, or the summary that ships with an installed package, or with --run what
    `warptile ladder`, `profile` and `bench` kept by --save. The file loads nothing from anywhere.

    \b
    Examples:
      warptile report --open
      warptile ladder --save run.json
      warptile report --run run.json --out run.html
      warptile report --emulate --rung mma-swizzled
    """
    from warptile.bench.html_report import page, page_data

    if names and not emulate:
        raise click.UsageError("--rung says whose lines --emulate counts: warptile report --emulate --rung NAME")
    start_s = time.perf_counter()
    shown = [*(f"--run {shlex.quote(path.name)}" for path in runs), *([f"--records {folder.name}"] if folder else [])]
    shown += [*(["--emulate"] if emulate else []), *(f"--rung {name}" for name in names)]
    said = " ".join(["warptile report", *shown])
    if runs:
        from warptile.bench.protocol.records import load_folder

        data = page_data.from_runs(runs, load_folder(folder) if folder is not None else (), command=said)
    else:
        data = page_data.from_records(folder, command=said)
    if emulate:
        data = counted(data, names)
    text = page.html(data)
    write_file(out, text)
    size = len(text.encode())
    click.echo(f"{out}: {size / 1e6:.2f} MB, {time.perf_counter() - start_s:.1f} s", err=True)
    if opened:
        webbrowser.open(out.absolute().as_uri())


def counted(data: PageData, names: tuple[str, ...]) -> PageData:
    """The data with counters by line of rungs that have none yet, from the emulator."""
    from warptile.bench.profiling.line_profile import emulated
    from warptile.cli.profile import SMALL_SIZE
    from warptile.errors import UnsupportedError
    from warptile.ladder import plan_for
    from warptile.rungs import RUNGS
    from warptile.runtime.execute import EmulatorBackend, choose_backend

    place = choose_backend("emulator")
    assert isinstance(place, EmulatorBackend)
    wanted = [name for name in names or data.rungs if name not in data.profiles]
    found = dict(data.profiles)
    for done, name in enumerate(wanted, 1):
        click.echo(f"{done}/{len(wanted)} {name}", err=True)
        try:
            found[name] = emulated(plan_for(RUNGS[name], (SMALL_SIZE,) * 3, place), place)
        except UnsupportedError as error:
            click.echo(f"  not counted: {error}", err=True)
    return replace(data, profiles=found)
