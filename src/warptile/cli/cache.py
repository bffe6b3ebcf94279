"""``warptile cache``: the compiled kernels on disk."""

from __future__ import annotations

import click


@click.group("cache")
def command() -> None:
    """List, clear, export or import compiled kernels. WARPTILE_CACHE_DIR says where they are."""


@command.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_entries(as_json: bool) -> None:
    """List the compiled kernels."""
    from warptile.cache import Cache

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
    for entry in entries:
        what = entry.metadata.get("name_expression", "?")
        arch = entry.metadata.get("arch", "?")
        click.echo(f"{entry.key[:12]}  {entry.created}  {entry.size_bytes:>9,} bytes  {arch:<8} {what}")
    total_bytes = sum(entry.size_bytes for entry in entries)
    click.echo(f"{len(entries)} kernels, {total_bytes:,} bytes in {cache.folder}", err=True)


@command.command("clear")
def clear() -> None:
    """Remove every compiled kernel."""
    from warptile.cache import Cache

    cache = Cache()
    click.echo(f"{cache.clear()} kernels removed from {cache.folder}", err=True)


@command.command("export")
@click.argument("file", type=click.Path(dir_okay=False))
def export_entries(file: str) -> None:
    """Write all compiled kernels to FILE, a zip archive."""
    from warptile.cache import Cache

    click.echo(f"{Cache().export_to(file)} kernels written to {file}", err=True)


@command.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
def import_entries(file: str) -> None:
    """Add the compiled kernels of FILE, written by `warptile cache export`.

    They will run on your GPU: import only files that you trust.
    """
    from warptile.cache import Cache

    click.echo(f"{Cache().import_from(file)} kernels read from {file}", err=True)
