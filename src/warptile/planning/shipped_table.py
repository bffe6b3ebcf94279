"""The tables of tuned configurations that ship with the package: ``data/tuned-<rung>.json``, one line an entry.

They are made from records of searches (`warptile.bench.campaign.ship_table`), never by hand. An entry: its problem, in
the order of `warptile.planning.tuned_table.ProblemClass`; its configuration, in the order of ``keys``; TFLOP/s; that
over cuBLASLt's best, or null where it was not measured; and which record it comes from.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import msgspec

from warptile.decoding import decoded

SCHEMA = "warptile.shipped/1"
FOLDER = Path(__file__).resolve().parents[1] / "data"
ProblemTuple = tuple[int, int, int, str, str, str, str, int, int, int, bool, str, int]
"""A `warptile.planning.tuned_table.ProblemClass`."""


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record: its name, the commit at which it was taken, and the hash of the rung's source files there
    (`warptile.planning.tuned_table.source_of`)."""

    record: str
    git_hash: str
    source: str


class ShippedEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One problem with its best configuration."""

    problem: ProblemTuple
    config: tuple[int, ...]
    tflops: float
    of_cublaslt: float | None
    origin: int


class ShippedTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ships for one rung.

    Attributes:
        schema: `SCHEMA`.
        gpu: the model that it was taken on.
        rung: whose configurations.
        origins: the records that it is made from.
        keys: names of a configuration's values.
        entries: the problems.
    """

    schema: str
    gpu: str
    rung: str
    origins: tuple[Origin, ...]
    keys: tuple[str, ...]
    entries: tuple[ShippedEntry, ...]

    def words(self, entry: ShippedEntry) -> str:
        """Where an entry was found, and what it reached there."""
        origin = self.origins[entry.origin]
        of = "" if entry.of_cublaslt is None else f", {entry.of_cublaslt:.2f} of cuBLASLt's best"
        return f"on an {self.gpu} ({entry.tflops:.0f} TFLOP/s{of} at commit {origin.git_hash}; record {origin.record})"


def path_of(rung: str) -> Path:
    """The table's file."""
    return FOLDER / f"tuned-{rung}.json"


@lru_cache(maxsize=32)
def table(rung: str) -> ShippedTable | None:
    """What ships for a rung, or None."""
    try:
        raw = path_of(rung).read_bytes()
    except FileNotFoundError:
        return None
    return decoded(raw, ShippedTable)


def encode(made: ShippedTable) -> bytes:
    """The table's file: a line for each entry, so that a change of one shows as one."""
    head = msgspec.json.encode(msgspec.structs.replace(made, entries=())).removesuffix(b"[]}")
    lines = b",\n".join(msgspec.json.encode(entry) for entry in made.entries)
    return head + b"[\n" + lines + b"\n]}\n"
