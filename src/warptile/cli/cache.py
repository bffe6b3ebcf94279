"""``warptile cache``: the compiled kernels on disk."""

from __future__ import annotations

import click

from warptile.cli._names import CommandGroup


@click.group("cache", cls=CommandGroup)
def command() -> None:
    """List, clear, export or import compiled kernels.

    They are kept in the folder that WARPTILE_CACHE_DIR names, or in the platform's cache folder.

    \b
    Examples:
      warptile cache ls
      warptile cache export kernels.zip
    """


@command.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_entries(as_json: bool) -> None:
    """List the compiled kernels.

    \b
    Example:
      warptile cache ls --json
    """
    from warptile.codegen.cache import Cache

    cache = Cache()
    entries = list(cache.list())
    if as_json:
        import msgspec

        rows = [
            {"key": entry.key, "created": entry.created, "bytes": entry.size_bytes, **entry.metadata}
            for entry in entries
        ]
        document = {"schema": "warptile.cache/1", "folder": str(cache.folder), "entries": rows}
        click.echo(msgspec.json.format(msgspec.json.encode(document)).decode())
        return
    from rich.markup import escape

    from warptile.cli._tables import Column, console_of, show

    if entries:
        columns = [
            Column("key", [entry.key[:12] for entry in entries], left=True),
            Column("created", [entry.created[:16].replace("T", " ") for entry in entries], rank=1, left=True),
            Column("bytes", [f"{entry.size_bytes:,}" for entry in entries]),
            Column("arch", [str(entry.metadata.get("arch", "?")) for entry in entries], left=True),
            Column("kernel", [escape(str(entry.metadata.get("name_expression", "?"))) for entry in entries],
                   left=True, least=24),
        ]  # fmt: skip
        show(console_of(), "", columns)
    total_bytes = sum(entry.size_bytes for entry in entries)
    click.echo(f"{len(entries)} kernels, {total_bytes:,} bytes in {cache.folder}", err=True)


@command.command("clear")
def clear() -> None:
    """Remove every compiled kernel.

    \b
    Example:
      warptile cache clear
    """
    from warptile.codegen.cache import Cache

    cache = Cache()
    click.echo(f"{cache.clear()} kernels removed from {cache.folder}", err=True)


@command.command("export")
@click.argument("file", type=click.Path(dir_okay=False))
def export_entries(file: str) -> None:
    """Write all compiled kernels to FILE, a zip archive.

    \b
    Example:
      warptile cache export kernels.zip
    """
    from warptile.codegen.cache import Cache

    click.echo(f"{Cache().export_to(file)} kernels written to {file}", err=True)


@command.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
def import_entries(file: str) -> None:
    """Add the compiled kernels of an exported FILE.

    They will run on your GPU: import only files that you trust.

    \b
    Example:
      warptile cache import kernels.zip
    """
    from warptile.codegen.cache import Cache

    click.echo(f"{Cache().import_from(file)} kernels read from {file}", err=True)
