"""Records: what was measured, on what, when, and how, as JSON files that are committed with the code.

A record is written once by a measurement and never edited. Tables in documents are generated from records
(`warptile.bench.report.documents`); nothing in a document is typed from one. The newest record of a kind wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from warptile.bench.profiling.ncu_metrics import ParticipantCounters
from warptile.bench.protocol.emulator_rates import EmulatorTimes
from warptile.bench.protocol.epilogue_times import EpilogueTimes
from warptile.bench.protocol.feature_times import FeatureTimes
from warptile.bench.protocol.host_cost import HostCosts
from warptile.bench.protocol.measurements import (
    BaselineTime,
    Check,
    Environment,
    LadderCell,
    Profile,
    Sanitized,
    Searched,
    Surveyed,
    Tuning,
    TypeCell,
    UnalignedCell,
)
from warptile.bench.protocol.model_times import ModelTimes
from warptile.bench.protocol.outside_verdicts import OutsideVerdict
from warptile.bench.protocol.planning_times import PlanningTimes
from warptile.bench.protocol.row_result import RowResult
from warptile.errors import WarptileError

FOLDER = Path(__file__).resolve().parents[4] / "records"
"""The committed records of a checkout: `records/` at its top level."""


DIGITS = 7
"""Significant digits that are written: the driver gives times as 32-bit floating-point numbers, which have no more."""

ITEMS = ("cells", "baselines", "checks", "profiles", "runs", "tunings", "contests", "searches", "counted", "groups",
         "surveyed", "rows")  # fmt: skip
"""Fields of the records that list what was measured, which are written one to a line."""


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
        """Name of the record: its kind, GPU (or "cpu") and date, which is also its file's name."""
        about = self.environment
        gpu = "cpu" if about.processor else "-".join(about.gpu.lower().replace("nvidia", "").split())
        stamp = self.date.replace(":", "").replace("-", "")[:15]
        return f"{self.kind}-{gpu}-{stamp}"


class LadderRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="warptile.record.ladder/1"):
    """Rungs beside the baseline over several sizes, in one regime: ``"sustained"`` or ``"cool"``."""

    regime: str
    cells: tuple[LadderCell, ...]
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
    """The four layouts of A and B."""

    cells: tuple[TypeCell, ...]


class UnalignedRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="warptile.record.unaligned/1"):
    """Problems whose rows or pointers are not aligned, beside aligned neighbours."""

    cells: tuple[UnalignedCell, ...]


class SuitesRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="warptile.record.suites/1"):
    """The suites of ``warptile bench``: products as plans take them, beside cuBLASLt and torch."""

    contests: tuple[RowResult, ...]


class SearchesRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="warptile.record.searches/1"):
    """Short searches over many problems: what the tables of tuned configurations that ship are made from."""

    searches: tuple[Searched, ...]


class CountersRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="warptile.record.counters/1"):
    """Hardware counters of rows of the suites, as plans take them, and of what they are compared with."""

    counted: tuple[ParticipantCounters, ...]


class SurveyRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="warptile.record.survey/1"):
    """Random problems in many configurations of one rung: what its cost model is fitted to.

    Attributes:
        rung: whose configurations.
        keys: names of their values.
        surveyed: the problems.
    """

    rung: str
    keys: tuple[str, ...]
    surveyed: tuple[Surveyed, ...]

    @property
    def of_plans(self) -> bool:
        """Whether only what plans choose was timed: such records say how good plans are, and models are not fitted to
        them."""
        return "--plans-only" in self.command


class CallsRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="warptile.record.calls/1"):
    """What calls cost the host, beside other libraries."""

    groups: tuple[HostCosts, ...]


class EpiloguesRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="warptile.record.epilogues/1"):
    """What epilogues cost a GEMM, beside torch and cuBLASLt."""

    groups: tuple[EpilogueTimes, ...]


class ModelsRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="warptile.record.models/1"):
    """Steps of whole models by torch and by warptile."""

    groups: tuple[ModelTimes, ...]


class EmulatorRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="warptile.record.emulator/1"):
    """How fast the emulator executes kernels."""

    groups: tuple[EmulatorTimes, ...]


class PlanningRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="warptile.record.planning/1"):
    """How long plans take on the host."""

    groups: tuple[PlanningTimes, ...]


class OutsideRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="warptile.record.outside/1"):
    """What the emulator says of the kernels of a public suite, at a commit or version of it."""

    suite: str
    revision: str
    groups: tuple[OutsideVerdict, ...]

    @property
    def kind(self) -> str:
        """``"outside-indigo"``."""
        return f"outside-{self.suite.lower().replace(' ', '-')}"


class FeaturesRecord(Record, frozen=True, kw_only=True, tag_field="schema", tag="warptile.record.features/1"):
    """A suite of what goes beyond one plain GEMM: calls beside what they are compared with.

    Attributes:
        suite: its name.
        rows: what was measured.
    """

    suite: str
    rows: tuple[FeatureTimes, ...]

    @property
    def kind(self) -> str:
        """The suite's name."""
        return self.suite


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
    | SurveyRecord
    | CallsRecord
    | EpiloguesRecord
    | ModelsRecord
    | EmulatorRecord
    | PlanningRecord
    | OutsideRecord
    | FeaturesRecord
)
R = TypeVar("R", bound=Record)
T = TypeVar("T")
K = TypeVar("K")


def encode(record: AnyRecord) -> bytes:
    """The record as compact JSON: a line for each thing that was measured, so that a diff shows it.

    Fields that have their default are left out, and numbers are written with `DIGITS` significant digits: a default of
    these types never changes, a field that needs another gets another name.
    """
    about: dict[str, Any] = _compact(record)
    items = {name: about.pop(name) for name in ITEMS if name in about}
    parts = [msgspec.json.encode(about).removesuffix(b"}")]
    for name, values in items.items():
        lines = b",\n".join(map(msgspec.json.encode, values))
        parts.append(b'"%b":[\n%b]' % (name.encode(), lines))
    return b",\n".join(parts) + b"}\n"


def _compact(value: Any) -> Any:
    """A value of a record as JSON types, without what a reader adds by itself."""
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        if config.array_like:
            return [_compact(each) for each in msgspec.structs.astuple(value)]
        tagged = {config.tag_field: config.tag} if config.tag_field else {}
        return tagged | {
            field.encode_name: _compact(getattr(value, field.name))
            for field in _fields(type(value))
            if field.required or getattr(value, field.name) != _default(field)
        }
    if isinstance(value, dict):
        return {key: _compact(each) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [_compact(each) for each in value]
    return _rounded(value) if isinstance(value, float) else value


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Fields of a kind of record, which msgspec works out anew from its annotations each time."""
    return msgspec.structs.fields(kind)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _rounded(value: float) -> float | int:
    """`DIGITS` significant digits; a whole number, such as a counter, keeps all of its digits."""
    rounded = value if value.is_integer() else float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded


def decode(raw: bytes, name: str) -> AnyRecord:
    """The record that ``raw`` holds; ``name`` is used in the error.

    Raises:
        RecordError: not JSON, an unknown schema, or a field that does not fit.
    """
    try:
        found: AnyRecord = msgspec.json.decode(raw, type=AnyRecord)
    except msgspec.MsgspecError as error:
        raise RecordError(
            f"record {name}: {error}; a record is a JSON file written by `python -m warptile.bench.campaign.run`, "
            f"or by `warptile bench --suite calls --json`"
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


def load_folder(folder: Path) -> tuple[AnyRecord, ...]:
    """All records of a folder, oldest first."""
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".json")), key=lambda entry: entry.name)
    found = [decode(entry.read_bytes(), entry.name) for entry in files]
    return tuple(sorted(found, key=lambda record: record.date))


@cache
def committed() -> tuple[AnyRecord, ...]:
    """The records of this checkout, oldest first, read once.

    Raises:
        RecordError: the package is installed without its checkout.
    """
    if not FOLDER.is_dir():
        raise RecordError(
            f"records: this needs a checkout of warptile, whose folder `records` holds them; an installed package has "
            f"none (looked at {FOLDER}). In a checkout: pip install --editable ."
        )
    return load_folder(FOLDER)


def newest(kind: type[R], among: Sequence[AnyRecord] | None = None) -> R | None:
    """The newest record of a kind, or None."""
    records = committed() if among is None else among
    return next((record for record in reversed(records) if isinstance(record, kind)), None)


def latest(records: Iterable[R], items: Callable[[R], Iterable[T]], key: Callable[[T], K]) -> dict[K, tuple[R, T]]:
    """Items of some records, oldest first, by a key: of two with the same key, that of the newer record."""
    return {key(item): (record, item) for record in records for item in items(record)}
