"""`warptile report`: the tables of the documents, from the records."""

from __future__ import annotations

from pathlib import Path

import click

from warptile.cli._names import OneOf


def _tables() -> tuple[str, ...]:
    from warptile.bench.report.documents import tables

    return tables()


@click.command("report")
@click.option(
    "--root", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path(), show_default="here",
    help="The checkout whose README.md and docs/ are meant.",
)  # fmt: skip
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit 1 when a document is not up to date.")
@click.option(
    "--table", "name", type=OneOf("name", _tables), help="Print one table instead, such as ladder, sizes or claims."
)
def command(root: Path, only_check: bool, name: str | None) -> int:
    """Write the tables of the documents from the records.

    Rewrites the text between the markers of README.md and docs/ in a checkout.

    \b
    Examples:
      warptile report --check
      warptile report --table ladder
    """
    from warptile.bench.report.documents import DocumentTables, check, update

    if name is not None:
        click.echo(DocumentTables().block("table", name), nl=False)
        return 0
    if only_check:
        stale = check(root)
        for path in stale:
            click.echo(f"{path}: not what the records give; run: warptile report", err=True)
        return 1 if stale else 0
    for path in update(root):
        click.echo(f"{path}: rewritten", err=True)
    return 0
