"""``make docs``: rewrite the tables between the markers of README.md and docs/ from the records of a checkout.

As a command: ``python -m warptile.bench.report.update_documents``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from warptile.bench.profiling import shipped_timelines
from warptile.bench.report.documents import DocumentTables, check, update
from warptile.errors import UnsupportedError, WarptileError


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--root", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path(), show_default="here",
    help="The checkout whose README.md and docs/ are meant.",
)  # fmt: skip
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit 1 when a document is not up to date.")
@click.option("--table", "name", help="Print one table instead, such as ladder, sizes or claims.")
def main(root: Path, only_check: bool, name: str | None) -> None:
    """Write the tables of the documents, their pictures and the summary that ships from the records.

    Timelines that ship are replayed where their kernels, the emulator or the replay changed.
    """
    try:
        sys.exit(_run(root, only_check, name))
    except UnsupportedError as error:
        raise click.BadParameter(str(error), param_hint="--table") from error
    except WarptileError as error:
        raise click.ClickException(f"{type(error).__name__}: {error}") from error


def _run(root: Path, only_check: bool, name: str | None) -> int:
    """The exit status."""
    if name is not None:
        click.echo(DocumentTables().block("table", name), nl=False)
        return 0
    if only_check:
        stale = check(root)
        for path in stale:
            click.echo(f"{path}: not what the records give; run: make docs", err=True)
        if not shipped_timelines.is_current(root):
            click.echo(f"{root / shipped_timelines.PATH}: not of these kernels; run: make docs", err=True)
            stale.append(root / shipped_timelines.PATH)
        return 1 if stale else 0
    for path in (*update(root), *shipped_timelines.update(root)):
        click.echo(f"{path}: rewritten", err=True)
    return 0


if __name__ == "__main__":
    main()
