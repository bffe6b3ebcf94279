"""Records: what was measured, on what, when, and how, as JSON files that are committed with the code.

A record is written once by a measurement and never edited. Tables in documents are generated from records
(`warptile.bench.report`); nothing in a document is typed from one. The newest record of a kind wins.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from warptile.errors import WarptileError

FOLDER = "data"
"""Folder beside this module that holds the committed records."""


class RecordError(WarptileError, ValueError):
    """A record file that cannot be read."""


class Spread(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Smallest, middle and largest of some samples."""

    low: float
    median: float
    high: float

    @staticmethod
    def of(values: Iterable[float]) -> Spread:
        """The spread of at least one value, none of which may be NaN."""
        ordered = sorted(values)
        assert ordered, "a spread needs at least one value"
        assert not any(math.isnan(value) for value in ordered), "NaN has no place in a spread"
        return Spread(ordered[0], statistics.median(ordered), ordered[-1])


class Samples(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Clocks, power and temperature while something ran, as the driver reported them."""

    sm_clock_mhz: Spread
    memory_clock_mhz: Spread
    power_w: Spread
    temperature_c: Spread
    count: int


class Environment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machine and the software of a measurement. ``samples`` covers the whole run."""

    gpu: str
    driver: str
    cuda: str
    nvrtc: str
    baseline_library: str | None = None
    python: str
    power_cap_w: float | None = None
    samples: Samples | None = None


class ProblemKey(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """Which product: extents, element types, the orders of B (``"row"`` is [K, N], ``"col"`` is [N, K]) and A
    (``"row"`` is [M, K], ``"col"`` is [K, M]), and whether A is 2:4 sparse."""

    m: int
    n: int
    k: int
    dtype: str
    accumulator: str
    out: str
    b_major: str = "row"
    a_major: str = "row"
    sparse: bool = False

    @property
    def flops(self) -> float:
        """Operations: 2 m n k, those with a sparse operand's zeros among them."""
        return 2.0 * self.m * self.n * self.k

    @property
    def shape(self) -> str:
        """The extents as people write them: ``4096^3`` or ``1000x1544x808``."""
        return f"{self.m}^3" if self.m == self.n == self.k else f"{self.m}x{self.n}x{self.k}"

    def tflops(self, time_ms: float) -> float:
        """TFLOP/s (TOP/s for integers) of one product in ``time_ms``."""
        return self.flops / time_ms / 1e9


class Predicted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `warptile.predict` said before the measurement."""

    time_ms: float
    bound: str
    tflops: float
    arch: str


class Resources(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the compiled kernel takes: registers of a thread, shared memory of a block, bytes spilled by a thread."""

    registers: int
    shared_bytes: int
    spill_bytes: int


class Round(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One round of an interleaved comparison: milliseconds of one launch of the candidate and of the baseline."""

    time_ms: float
    baseline_ms: float


class Cell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rung on one problem, beside the baseline of the same rounds.

    Attributes:
        rung: name of the rung.
        problem: what was computed.
        config: the rung's tunables.
        rounds: every round, in order; empty when it was not run.
        launches: launches of the candidate that were timed, in all rounds.
        baseline_launches: launches of the baseline that were timed.
        method: ``"events"`` or ``"graph"`` (replay).
        baseline: which algorithm of the vendor's library was the best.
        first_heuristic_ms: the vendor's first choice on the same problem, one launch.
        error_ratio: largest error over its bound in the check before the measurement; above 1 is wrong.
        tuned: whether the configuration comes from a search.
        note: why there are fewer rounds than usual, or none, or None.
        failed: what went wrong, or None.
    """

    rung: str
    problem: ProblemKey
    config: dict[str, int]
    rounds: tuple[Round, ...] = ()
    launches: int = 0
    baseline_launches: int = 0
    method: str | None = None
    baseline: str | None = None
    first_heuristic_ms: float | None = None
    error_ratio: float | None = None
    resources: Resources | None = None
    predicted: Predicted | None = None
    samples: Samples | None = None
    tuned: bool = False
    note: str | None = None
    failed: str | None = None

    @property
    def time_ms(self) -> float | None:
        """Median over the rounds, or None when there are none."""
        return statistics.median(r.time_ms for r in self.rounds) if self.rounds else None

    @property
    def tflops(self) -> float | None:
        """TFLOP/s of the median round."""
        time_ms = self.time_ms
        return None if time_ms is None else self.problem.tflops(time_ms)

    @property
    def baseline_ms(self) -> float | None:
        """Median time of the baseline in the same rounds."""
        return statistics.median(r.baseline_ms for r in self.rounds) if self.rounds else None

    @property
    def baseline_tflops(self) -> float | None:
        """TFLOP/s of the baseline's median round."""
        time_ms = self.baseline_ms
        return None if time_ms is None else self.problem.tflops(time_ms)

    @property
    def ratio(self) -> Spread | None:
        """Speed relative to the baseline, round by round: 1.0 is as fast, 2.0 is twice as fast."""
        return Spread.of(r.baseline_ms / r.time_ms for r in self.rounds) if self.rounds else None


class BaselineTime(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the vendor's library does on one problem: its best and first heuristic, and torch.matmul."""

    problem: ProblemKey
    best_ms: float
    first_ms: float | None
    best: str
    heuristics: int
    best_index: int
    torch_ms: float | None = None
    notes: str = ""


class Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rung's result on one problem against a float64 reference. ``error_ratio`` above 1 (or None) is wrong.

    ``offset`` is the distance of the ``displaced`` matrices, in elements, from where memory is aligned to 256 bytes;
    ``padding`` elements lie between lines.
    """

    rung: str
    problem: ProblemKey
    config: dict[str, int]
    error_ratio: float | None
    guards_intact: bool
    unwritten: int
    alpha: float = 1.0
    beta: float = 0.0
    failed: str | None = None
    offset: int = 0
    displaced: str = "ABCD"
    padding: int = 0

    @property
    def correct(self) -> bool:
        """Everything written, nothing beyond it, and the error within its bound."""
        ratio = self.error_ratio
        return self.failed is None and self.guards_intact and self.unwritten == 0 and ratio is not None and ratio <= 1.0


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What Nsight Compute counted in one launch.

    Attributes:
        counters: under the names of the API's counter table.
        metrics: Nsight Compute's own names and values.
        by_opcode: counters of the source page, added up by machine instruction (``LDS``, ``HMMA``, ...).
        stalls: share of warp samples by reason, largest first.
    """

    rung: str
    problem: ProblemKey
    config: dict[str, int]
    counters: dict[str, float]
    metrics: dict[str, float]
    by_opcode: dict[str, dict[str, float]]
    stalls: dict[str, float]
    registers: int
    occupancy: float | None = None
    failed: str | None = None

    @property
    def top_stall(self) -> str | None:
        """The reason most warp samples gave, or None when none was collected."""
        return max(self.stalls, key=lambda reason: self.stalls[reason]) if self.stalls else None


class Timed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Milliseconds of one launch, round by round, in one regime; the baseline's in the same rounds, if there is one."""

    regime: str
    rounds_ms: tuple[float, ...]
    baseline_ms: tuple[float, ...] = ()


class TypeCell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rung in one combination of types and majors.

    Attributes:
        rung: name of the rung.
        problem: what was computed.
        config: the rung's tunables.
        times: one entry a regime.
        baseline: which algorithm of the vendor's library was the best, or None.
        no_baseline: why there is none.
        error_ratio: largest error over its bound, on the rows that were compared.
        error: largest error against float64 over the root mean square of the result, the operands taken as they are.
        drawn_error: the same against the product of the numbers before they were rounded to the operands' type.
        resources: of the compiled kernel.
        samples: clocks and power while it was measured.
        tuned: whether the configuration comes from a search.
        failed: what went wrong, or None.
        copied_bytes: read and written by launches before the product, which are part of the time.
        copies_ms: time of these launches alone, sustained.
    """

    rung: str
    problem: ProblemKey
    config: dict[str, int]
    times: tuple[Timed, ...] = ()
    baseline: str | None = None
    no_baseline: str = ""
    error_ratio: float | None = None
    error: float | None = None
    drawn_error: float | None = None
    resources: Resources | None = None
    samples: Samples | None = None
    tuned: bool = False
    failed: str | None = None
    copied_bytes: int = 0
    copies_ms: float | None = None

    def timed(self, regime: str) -> Timed | None:
        """The rounds of a regime, or None."""
        return next((each for each in self.times if each.regime == regime and each.rounds_ms), None)

    def tflops(self, regime: str) -> float | None:
        """TFLOP/s (TOP/s) of the median round of a regime, zeros of a sparse operand counted."""
        found = self.timed(regime)
        return None if found is None else self.problem.tflops(statistics.median(found.rounds_ms))

    def of_baseline(self, regime: str) -> float | None:
        """Speed relative to the baseline: the median of the rounds' ratios."""
        found = self.timed(regime)
        if found is None or not found.baseline_ms:
            return None
        return statistics.median(base / own for own, base in zip(found.rounds_ms, found.baseline_ms, strict=True))


class UnalignedCell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rung on a problem that lies badly, beside an aligned neighbour and the baseline in the same rounds.

    Attributes:
        rung: name of the rung.
        problem: what was computed.
        offset: elements from where memory is aligned to the beginning of each matrix.
        config: the rung's tunables.
        neighbour: the aligned problem.
        neighbour_config: the rung's tunables there.
        rounds_ms: milliseconds of one launch, round by round, copies before it among them.
        neighbour_ms: the same of the neighbour.
        baseline_ms: the same of the vendor library's best on the problem itself.
        baseline: which algorithm that was, or None.
        no_baseline: why there is none.
        copied_bytes: read and written by launches before the product.
        copies_ms: time of these launches alone.
        error_ratio: largest error over its bound, on the rows that were compared.
        samples: clocks and power while it was measured.
        failed: what went wrong, or None.
    """

    rung: str
    problem: ProblemKey
    offset: int
    config: dict[str, int]
    neighbour: ProblemKey
    neighbour_config: dict[str, int] = {}
    rounds_ms: tuple[float, ...] = ()
    neighbour_ms: tuple[float, ...] = ()
    baseline_ms: tuple[float, ...] = ()
    baseline: str | None = None
    no_baseline: str = ""
    copied_bytes: int = 0
    copies_ms: float | None = None
    error_ratio: float | None = None
    samples: Samples | None = None
    failed: str | None = None

    @property
    def tflops(self) -> float | None:
        """TFLOP/s of the median round."""
        return self.problem.tflops(statistics.median(self.rounds_ms)) if self.rounds_ms else None

    @property
    def of_neighbour(self) -> float | None:
        """TFLOP/s over those of the aligned neighbour, median of the rounds."""
        pairs = zip(self.rounds_ms, self.neighbour_ms, strict=True)
        share = self.problem.flops / self.neighbour.flops
        return statistics.median(share * other / own for own, other in pairs) if self.rounds_ms else None

    @property
    def of_baseline(self) -> float | None:
        """Speed relative to the baseline, median of the rounds."""
        if not self.rounds_ms or not self.baseline_ms:
            return None
        return statistics.median(base / own for own, base in zip(self.rounds_ms, self.baseline_ms, strict=True))


class Sanitized(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One compute-sanitizer tool over one rung. ``errors`` None means that it did not finish."""

    rung: str
    tool: str
    problems: tuple[ProblemKey, ...]
    errors: int | None
    messages: tuple[str, ...] = ()


class Tried(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One configuration that the tuner measured: milliseconds of one launch in its last stage, or why it failed."""

    config: dict[str, int]
    stage: int
    time_ms: float | None
    failed: str | None = None


class Tuning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A search over one rung's configurations for one problem, best first."""

    rung: str
    problem: ProblemKey
    tried: tuple[Tried, ...]
    candidates: int
    illegal: int
    best_rounds_ms: tuple[float, ...] = ()


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


AnyRecord = (
    LadderRecord
    | CorrectnessRecord
    | ProfileRecord
    | SanitizerRecord
    | TuningRecord
    | TypesRecord
    | LayoutsRecord
    | UnalignedRecord
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
