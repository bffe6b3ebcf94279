"""Files that ``--save`` and ``--json`` of other commands write, and records: what ``warptile report --run`` reads."""

from __future__ import annotations

from pathlib import Path

import msgspec

from warptile.bench.profiling.line_profile import LineProfile
from warptile.bench.protocol.records import AnyRecord
from warptile.errors import ArgumentError
from warptile.ladder import Ladder

SavedRun = AnyRecord | Ladder | LineProfile
"""What one file holds."""


def read(path: Path) -> SavedRun:
    """The run that a file holds.

    Raises:
        ArgumentError: it cannot be read, or is none.
    """
    example = "warptile ladder --save run.json, then warptile report --run run.json"
    try:
        found: SavedRun = msgspec.json.decode(path.read_bytes(), type=SavedRun)
    except OSError as error:
        raise ArgumentError(f"run: {path}: {error.strerror}; it takes a file that --save wrote: {example}") from error
    except msgspec.MsgspecError as error:
        raise ArgumentError(
            f"run: {path}: {error}; it takes what --save of ladder, profile or bench wrote, or a record: {example}"
        ) from error
    return found
