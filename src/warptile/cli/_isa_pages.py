"""``warptile isa --html``: pages of instructions into a file, or into a folder with an index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from warptile.cli._files import write_file

HERE = ""
"""What ``--html`` is without a path."""

FOLDER = Path("isa")
"""The folder of several pages that are given none."""


def write(name: str | None, page: str, unknown: Callable[[str], str]) -> None:
    """Write the page of one instruction, or the pages of several.

    Args:
        name: as the command takes it, or None for all instructions.
        page: the path, or `HERE`.
        unknown: what to say about a name that is none.

    Raises:
        click.UsageError: there is no such instruction, or the path is that of a file where a folder is needed.
        click.FileError: the path cannot be written.
    """
    from warptile.bench.instruction_pages import page_set
    from warptile.bench.instruction_pages.described import INDEX, file_name

    if name is None and page and page_set.chosen(page):
        raise click.UsageError(
            f"--html got {page!r}, the name of an instruction, as its path; "
            f"name the instruction first: warptile isa {page} --html"
        )
    some = page_set.chosen(name)
    if not some:
        raise click.UsageError(unknown(str(name)))
    path = Path(page) if page else None
    if name is not None and some == (name,):
        file = file_name(name)
        target = Path(file) if path is None else path / file if path.is_dir() else path
        _save(target, page_set.described(name).html())
        click.echo(f"{target}: {target.stat().st_size / 1e3:.0f} kB", err=True)
        return
    folder = path if path is not None else FOLDER
    if folder.is_file() or folder.suffix == ".html":
        raise click.UsageError(
            f"--html got the file {str(folder)!r} for {len(some)} instructions; they take a folder: "
            f"warptile isa {f'{name} ' if name else ''}--html {folder.with_suffix('')}"
        )
    total = 0
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise click.FileError(str(folder), hint=str(error.strerror)) from error
    for file, text in page_set.pages(some):
        total += _save(folder / file, text)
    click.echo(f"{folder / INDEX}: {len(some)} pages and this index, {total / 1e6:.1f} MB", err=True)


def _save(path: Path, text: str) -> int:
    """Write a file and return its size in bytes."""
    raw = text.encode()
    write_file(path, raw)
    return len(raw)
