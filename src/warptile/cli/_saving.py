"""``--save``: what a command measured, kept in a file for ``warptile report --run``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from warptile.cli._files import FILE_TO_WRITE, write_file

if TYPE_CHECKING:
    from warptile.bench.protocol.records import AnyRecord


SAVE = click.option(
    "--save", "saved", type=FILE_TO_WRITE, metavar="FILE",
    help="Also keep the results in FILE, for `warptile report --run FILE`.",
)  # fmt: skip
"""The option of a command whose results a report can show."""


def encoded(document: Any) -> str:
    """A document as people can read it: indented JSON and a line end."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def print_document(document: Any) -> None:
    """Write a document to standard output."""
    sys.stdout.write(encoded(document))


def hand_over(record: AnyRecord, *, as_json: bool, saved: Path | None, in_report: bool = False) -> None:
    """Write a record to a file, if there is one, and to standard output if ``as_json``; then say under which name it
    would be committed.

    Args:
        record: what was measured.
        as_json: print it.
        saved: the file, or None.
        in_report: ``warptile report`` has a section for such records.

    Raises:
        click.FileError: the file cannot be written.
    """
    from warptile.bench.protocol.records import encode

    text = encode(record).decode()
    if saved is not None:
        save(text, saved, in_report=in_report)
    if as_json:
        sys.stdout.write(text)
    if as_json or saved is not None:
        click.echo(f"to keep this record: records/{record.id}.json, then make docs", err=True)


def save(text: str, path: Path, *, in_report: bool = True) -> None:
    """Write a file and say so; what it is for, if ``warptile report`` shows it.

    Raises:
        click.FileError: it cannot be written.
    """
    write_file(path, text)
    shown = f"; `warptile report --run {path}` shows it" if in_report else ""
    click.echo(f"{path}: saved{shown}", err=True)
