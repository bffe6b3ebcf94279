"""``--save``: what a command measured, kept in a file for ``warptile report --run``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec


def _into_a_folder(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """The path, whose folder is looked for before anything is measured."""
    if path is not None and not path.absolute().parent.is_dir():
        raise click.BadParameter(f"got {str(path)!r}, and there is no folder {str(path.parent)!r}; make it first")
    return path


SAVE = click.option(
    "--save", "saved", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", callback=_into_a_folder,
    help="Also keep the results in FILE, for `warptile report --run FILE`.",
)  # fmt: skip
"""The option of a command whose results a report can show."""


def encoded(document: Any) -> str:
    """A document as people can read it: indented JSON and a line end."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def print_document(document: Any) -> None:
    """Write a document to standard output."""
    sys.stdout.write(encoded(document))


def save(text: str, path: Path) -> None:
    """Write a file and say what it is for.

    Raises:
        click.FileError: it cannot be written.
    """
    try:
        path.write_text(text)
    except OSError as error:
        raise click.FileError(str(path), hint=str(error.strerror)) from error
    click.echo(f"{path}: saved; `warptile report --run {path}` shows it", err=True)
