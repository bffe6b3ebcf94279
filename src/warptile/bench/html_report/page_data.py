"""What a report is made from: the records of a checkout, the summary that ships, or runs that were saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import warptile
from warptile import measured
from warptile.bench.html_report import saved_runs
from warptile.bench.profiling.line_profile import LineProfile
from warptile.bench.protocol import records as recorded
from warptile.bench.protocol.environment import git_hash, now
from warptile.bench.protocol.records import AnyRecord, LadderRecord, ProfileRecord
from warptile.bench.report.documents import DocumentTables
from warptile.bench.report.record_lookup import RecordLookup
from warptile.errors import ArgumentError
from warptile.ladder import Ladder
from warptile.rungs import RUNGS

Basis = Literal["records", "summary", "runs"]


@dataclass(frozen=True)
class PageData:
    """Everything that a page shows.

    Attributes:
        basis: the records of a folder; the summary that ships, where there are none; or saved runs.
        records: oldest first.
        where: the records are, in words.
        ladders: saved climbs of ``warptile ladder``.
        profiles: counters by line, by rung.
        documents: the folder ``docs`` of a checkout, or None.
        command: that was given.
        made: when, in UTC.
    """

    basis: Basis
    records: tuple[AnyRecord, ...] = ()
    where: str = "this checkout"
    ladders: tuple[Ladder, ...] = ()
    profiles: Mapping[str, LineProfile] = field(default_factory=dict)
    documents: Path | None = None
    command: str = "warptile report"
    made: str = field(default_factory=now)

    @cached_property
    def lookup(self) -> RecordLookup:
        """Looks up what the records have."""
        return RecordLookup(self.records)

    @cached_property
    def tables(self) -> DocumentTables:
        """The tables of the documents, from these records."""
        return DocumentTables(self.records)

    @cached_property
    def rungs(self) -> tuple[str, ...]:
        """The rungs that have a page: all, or of saved runs those that were run, in ladder order."""
        if self.basis != "runs":
            return tuple(RUNGS)
        named = {result.name for ladder in self.ladders for result in ladder.rungs} | set(self.profiles)
        for record in self.records:
            if isinstance(record, LadderRecord):
                named |= {cell.rung for cell in record.cells}
            elif isinstance(record, ProfileRecord):
                named |= {profile.rung for profile in record.profiles}
        return tuple(name for name in RUNGS if name in named)

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs that figures are of."""
        if self.basis == "summary":
            return tuple(dict.fromkeys(source.gpu for source in measured.summary().sources))
        about = [record.environment for record in self.records]
        return tuple(dict.fromkeys(each.gpu for each in about if each.processor is None))

    @property
    def software(self) -> str:
        """What made the page."""
        commit = git_hash()
        return f"warptile {warptile.__version__}" + (f", commit {commit}" if commit != "unknown" else "")

    def has(self, kind: type[recorded.Record]) -> bool:
        """Whether there is a record of a kind."""
        return self.lookup.has(kind)


def from_records(folder: Path | None = None, command: str = "warptile report") -> PageData:
    """The records of a folder, by default those of this checkout; without a checkout the summary that ships.

    Raises:
        ArgumentError: the folder has no records.
        RecordError: one of its files is none.
    """
    if folder is None and not recorded.FOLDER.is_dir():
        return PageData("summary", command=command)
    found = recorded.committed() if folder is None else recorded.load_folder(folder)
    if not found:
        raise ArgumentError(
            f"records: {folder} has no record (*.json); `python -m warptile.bench.campaign.run --out FOLDER` on a GPU "
            f"writes some: warptile report --records FOLDER"
        )
    where = "this checkout" if folder is None else f"the folder {folder.name or folder}"
    return PageData("records", found, where, documents=documents_folder(), command=command)


def from_runs(paths: Sequence[Path], more: Iterable[AnyRecord] = (), command: str = "warptile report") -> PageData:
    """Saved runs, and records besides.

    Raises:
        ArgumentError: a file is no run.
    """
    runs = [saved_runs.read(path) for path in paths]
    records = sorted((*more, *(run for run in runs if isinstance(run, AnyRecord))), key=lambda record: record.date)
    return PageData(
        "runs", tuple(records), ladders=tuple(run for run in runs if isinstance(run, Ladder)),
        profiles={run.rung: run for run in runs if isinstance(run, LineProfile)}, documents=documents_folder(),
        command=command,
    )  # fmt: skip


def documents_folder() -> Path | None:
    """The documents of this checkout, or None where the package is installed without one."""
    folder = recorded.FOLDER.parent / "docs"
    return folder if (folder / "rungs").is_dir() else None
