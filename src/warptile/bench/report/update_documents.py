"""``make docs``: rewrite the tables between the markers of README.md and docs/ from the records of a checkout.

As a command: ``python -m warptile.bench.report.update_documents``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from warptile.bench.profiling import shipped_timelines
from warptile.bench.report.documents import DocumentTables, check, update
from warptile.errors import UnsupportedError


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
    if name is not None:
        try:
            click.echo(DocumentTables().block("table", name), nl=False)
        except UnsupportedError as error:
            raise click.BadParameter(str(error), param_hint="--table") from error
    elif only_check:
        stale = check(root)
        for path in stale:
            click.echo(f"{path}: not what the records give; run: make docs", err=True)
        if not shipped_timelines.is_current(root):
            click.echo(f"{root / shipped_timelines.PATH}: not of these kernels; run: make docs", err=True)
            stale.append(root / shipped_timelines.PATH)
        sys.exit(1 if stale else 0)
    else:
        for path in (*update(root), *shipped_timelines.update(root)):
            click.echo(f"{path}: rewritten", err=True)


if __name__ == "__main__":
    main()
