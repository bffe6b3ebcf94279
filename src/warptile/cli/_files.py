"""Files that commands write: looked at before anything is computed, and written whole or with a message."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click


class _FileToWrite(click.Path):
    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path.

        Raises:
            click.BadParameter: nothing can be written there.
        """
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        folder, shown = path.absolute().parent, str(path.parent)
        if not folder.exists():
            self.fail(f"got {str(path)!r}, and there is no folder {shown!r}; make it first", param, ctx)
        if not folder.is_dir():
            self.fail(f"got {str(path)!r}, and {shown!r} is a file; give a file in a folder", param, ctx)
        if not os.access(path if path.exists() else folder, os.W_OK):
            self.fail(f"got {str(path)!r}, which you may not write; give a file in a folder of yours", param, ctx)
        return path


FILE_TO_WRITE = _FileToWrite(dir_okay=False, path_type=Path)
"""A file in a folder that exists: a command looks before it computes, not after."""


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file; text as UTF-8.

    Raises:
        click.FileError: it cannot be written.
    """
    try:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise click.FileError(str(path), hint=str(error.strerror)) from error
