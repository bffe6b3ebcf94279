"""Messages on standard error, folded to the width of the terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap

import click


def tell(text: str) -> None:
    """Write a message of one or several lines to standard error, folded to the width of the terminal; as it is where it
    goes to a file. Words, such as paths, stay whole, and so do indented lines, which quote source."""
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        lines = (
            line if line[:1].isspace() else textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
            for line in text.split("\n")
        )
        text = "\n".join(lines)
    click.echo(text, err=True)
