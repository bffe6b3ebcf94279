"""``warptile doctor``: what is installed, and the fix for what is not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from warptile.doctor import Finding

FILE_WIDTH = 200
"""A file or a pipe has no edge to fold lines at."""

_MARKS = {"ok": ("ok", "green"), "missing": ("--", "yellow"), "problem": ("!!", "red")}


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(as_json: bool) -> None:
    """Check the installation and print the fix for each problem.

    Looks at the driver, the GPU, NVRTC, CUDA's headers, permissions, the cache and optional extras. Exits with 1 if
    something must be fixed; parts that are optional may be missing.

    \b
    Examples:
      warptile doctor
      warptile doctor --json
    """
    from warptile import doctor

    findings = doctor.examine()
    healthy = doctor.healthy(findings)
    if as_json:
        import msgspec

        document = {"schema": doctor.SCHEMA, "healthy": healthy, "findings": findings}
        click.echo(msgspec.json.format(msgspec.json.encode(document)).decode())
    else:
        _print(findings, healthy)
    sys.exit(0 if healthy else 1)


def _print(findings: tuple[Finding, ...], healthy: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    from warptile.cli._tables import console_of

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        mark, style = _MARKS[finding.state]
        table.add_row(Text(mark, style=style), finding.name, Text(finding.detail))
        if finding.fix:
            table.add_row("", "", Text(f"fix: {finding.fix}", style="dim"))
    console = console_of(FILE_WIDTH)
    console.print(table)
    problems = sum(finding.state == "problem" for finding in findings)
    console.print("ready" if healthy else f"{problems} to fix", highlight=False)
