"""Records: what was measured, on what, when, and how, as JSON files that are committed with the code.

A record is written once by a measurement and never edited. Tables in documents are generated from records
(`warptile.bench.report`); nothing in a document is typed from one. The newest record of a kind wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from warptile.bench.contest import Contest
from warptile.bench.counted import Counted
from warptile.bench.measurements import (
    BaselineTime,
    Cell,
    Check,
    Environment,
    Profile,
    Sanitized,
    Searched,
    Tuning,
    TypeCell,
    UnalignedCell,
)
from warptile.errors import WarptileError

FOLDER = "data"
"""Folder beside this module that holds the committed records."""


class RecordError(WarptileError, ValueError):
    """A record file that cannot be read."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all records say about themselves.

    ``prediction`` was written before the run, ``notes`` after it: what was learned, and why a prediction missed.
    """

    date: str
    git_hash: str
    command: str
    environment: Environment
    prediction: str = ""
    notes: str = ""
    failures: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """What it holds, in one word for the names of files."""
        return type(self).__name__.removesuffix("Record").lower()

    @property
    def id(self) -> str:
        """Name of the record: its kind, GPU and date, which is also its file's name."""
        gpu = "-".join(self.environment.gpu.lower().replace("nvidia", "").split())
        stamp = self.date.replace(":", "").replace("-", "")[:15]
        return f"{self.kind}-{gpu}-{stamp}"


class LadderRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="warptile.record.ladder/1"):
    """Rungs beside the baseline over several sizes, in one regime: ``"sustained"`` or ``"cool"``."""

    regime: str
    cells: tuple[Cell, ...]
    baselines: tuple[BaselineTime, ...] = ()

    @property
    def kind(self) -> str:
        """``"ladder"``, or ``"ladder-cool"``."""
        return "ladder" if self.regime == "sustained" else f"ladder-{self.regime}"


class CorrectnessRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="warptile.record.correctness/1"):
    """Rungs against a float64 reference."""

    checks: tuple[Check, ...]


class ProfileRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="warptile.record.profile/1"):
    """Hardware counters of rungs."""

    profiles: tuple[Profile, ...]


class SanitizerRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="warptile.record.sanitizer/1"):
    """compute-sanitizer over rungs on small problems."""

    runs: tuple[Sanitized, ...]


class TuningRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="warptile.record.tuning/1"):
    """Searches over configurations."""

    tunings: tuple[Tuning, ...]


class TypesRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="warptile.record.types/1"):
    """The best tensor-core rungs in every combination of types: speed in both regimes, and error."""

    cells: tuple[TypeCell, ...]


class LayoutsRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="warptile.record.layouts/1"):
    """The four combinations of majors of A and B."""

    cells: tuple[TypeCell, ...]


class UnalignedRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="warptile.record.unaligned/1"):
    """Problems whose rows or pointers are not aligned, beside aligned neighbours."""

    cells: tuple[UnalignedCell, ...]


class SuitesRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="warptile.record.suites/1"):
    """The suites of ``warptile bench``: products as plans take them, beside cuBLASLt and torch."""

    contests: tuple[Contest, ...]


class SearchesRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="warptile.record.searches/1"):
    """Short searches over many problems: what the tables of tuned configurations that ship are made from."""

    searches: tuple[Searched, ...]


class CountersRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="warptile.record.counters/1"):
    """Hardware counters of rows of the suites, as plans take them, and of what they are compared with."""

    counted: tuple[Counted, ...]


AnyRecord = (
    LadderRecord
    | CorrectnessRecord
    | ProfileRecord
    | SanitizerRecord
    | TuningRecord
    | TypesRecord
    | LayoutsRecord
    | UnalignedRecord
    | SuitesRecord
    | SearchesRecord
    | CountersRecord
)
R = TypeVar("R", bound=Record)
T = TypeVar("T")
K = TypeVar("K")


def encode(record: AnyRecord) -> bytes:
    """The record as indented JSON with a newline at its end."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def decode(raw: bytes, name: str) -> AnyRecord:
    """The record that ``raw`` holds; ``name`` is used in the error.

    Raises:
        RecordError: not JSON, an unknown schema, or a field that does not fit.
    """
    try:
        found: AnyRecord = msgspec.json.decode(raw, type=AnyRecord)
    except msgspec.MsgspecError as error:
        raise RecordError(
            f"record {name}: {error}; a record is a JSON file written by `python -m warptile.bench.campaign`"
        ) from error
    return found


def write(record: AnyRecord, folder: Path) -> Path:
    """Write the record to ``folder`` under its own name and return the path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record.id}.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(encode(record))
    temporary.replace(path)
    return path


def load_folder(folder: Any) -> tuple[AnyRecord, ...]:
    """All records of a folder (a Path or a package resource), oldest first."""
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".json")), key=lambda entry: entry.name)
    found = [decode(entry.read_bytes(), entry.name) for entry in files]
    return tuple(sorted(found, key=lambda record: record.date))


@cache
def committed() -> tuple[AnyRecord, ...]:
    """The records that come with this package, oldest first; read once, on first use."""
    folder = resources.files("warptile.bench") / FOLDER
    return load_folder(folder) if folder.is_dir() else ()


def newest(kind: type[R], among: Sequence[AnyRecord] | None = None) -> R | None:
    """The newest record of a kind, or None."""
    records = committed() if among is None else among
    return next((record for record in reversed(records) if isinstance(record, kind)), None)


def newest_ladder(regime: str, among: Sequence[AnyRecord] | None = None) -> LadderRecord | None:
    """The newest ladder that was measured in a regime, or None."""
    records = committed() if among is None else among
    return newest(LadderRecord, [r for r in records if isinstance(r, LadderRecord) and r.regime == regime])


def latest(records: Iterable[R], items: Callable[[R], Iterable[T]], key: Callable[[T], K]) -> dict[K, tuple[R, T]]:
    """Items of some records, oldest first, by a key: of two with the same key, that of the newer record."""
    return {key(item): (record, item) for record in records for item in items(record)}


class Measured(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A recorded result as the ladder shows it."""

    time_ms: float
    tflops: float
    of_cublas: float
    of_cublas_low: float
    of_cublas_high: float
    cublas_tflops: float
    gpu: str
    date: str
    record: str
    regime: str


def _cells(records: Sequence[AnyRecord]) -> Iterator[tuple[LadderRecord, Cell]]:
    for record in reversed(records):
        if isinstance(record, LadderRecord) and record.regime == "sustained":
            for cell in record.cells:
                yield record, cell


def measured(
    rung: str,
    m: int,
    n: int,
    k: int,
    dtype: str,
    *,
    accumulator: str | None = None,
    b_major: str = "row",
    a_major: str = "row",
    among: Sequence[AnyRecord] | None = None,
) -> Measured | None:
    """The newest recorded result of ``rung`` on exactly this problem, or None when there is none.

    ``accumulator`` None takes the type's usual one, which is the first that was recorded.
    """
    for record, cell in _cells(committed() if among is None else among):
        key = cell.problem
        majors = (key.a_major, key.b_major) == (a_major, b_major)
        wanted = (cell.rung, key.m, key.n, key.k, key.dtype) == (rung, m, n, k, dtype)
        if not wanted or not majors or (accumulator is not None and key.accumulator != accumulator):
            continue
        time_ms, tflops, baseline, ratio = cell.time_ms, cell.tflops, cell.baseline_tflops, cell.ratio
        if time_ms is None or tflops is None or baseline is None or ratio is None:
            continue
        return Measured(
            time_ms=time_ms, tflops=tflops, of_cublas=ratio.median, of_cublas_low=ratio.low, of_cublas_high=ratio.high,
            cublas_tflops=baseline, gpu=record.environment.gpu, date=record.date[:10], record=record.id,
            regime=record.regime,
        )  # fmt: skip
    return None
