"""Looks up measurements in records by rung and problem; of several records the newest counts.

Every lookup is remembered, so that a table can name the records that its figures come from
(`RecordLookup.origins`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeVar

from warptile.bench.profiling.ncu_metrics import SECTOR_BYTES, ParticipantCounters
from warptile.bench.protocol.emulator_rates import EmulatorTimes
from warptile.bench.protocol.epilogue_times import EpilogueTimes
from warptile.bench.protocol.feature_times import FeatureTimes
from warptile.bench.protocol.host_cost import HostCosts
from warptile.bench.protocol.measurements import (
    BaselineTime,
    Check,
    LadderCell,
    ProblemKey,
    Profile,
    Sanitized,
    Tuning,
    TypeCell,
    UnalignedCell,
)
from warptile.bench.protocol.model_times import ModelTimes
from warptile.bench.protocol.outside_verdicts import OutsideSuite
from warptile.bench.protocol.planning_times import PlanningTimes
from warptile.bench.protocol.records import (
    AnyRecord,
    CallsRecord,
    CorrectnessRecord,
    CountersRecord,
    EmulatorRecord,
    EpiloguesRecord,
    FeaturesRecord,
    LadderRecord,
    LayoutsRecord,
    ModelsRecord,
    OutsideRecord,
    PlanningRecord,
    ProfileRecord,
    R,
    Record,
    SanitizerRecord,
    SearchesRecord,
    SuitesRecord,
    SurveyRecord,
    T,
    TuningRecord,
    TypesRecord,
    UnalignedRecord,
    committed,
    latest,
)
from warptile.bench.protocol.row_result import LIBRARY, NEIGHBOUR, OURS, RowResult
from warptile.bench.protocol.suites import SuiteRow
from warptile.bench.protocol.workloads import PROFILE_SIZE, TypeGroup, limit_tflops, square, type_table_key
from warptile.bench.report.claims.rung_claims import (
    CONFLICTS,
    INDEX,
    INTENSITY,
    OF_CUBLAS,
    OF_LIMIT,
    REGISTERS,
    STEP,
    TFLOPS,
)
from warptile.planning.tuned_table import ProblemClass
from warptile.rungs import RUNGS

NO_RECORD = "*No record yet; `python -m warptile.bench.campaign.run` on a GPU writes one.*"
INTEGER_OPCODES = (
    "IMAD", "IADD3", "IADD", "LEA", "LOP3", "SHF", "ISETP", "IMNMX", "UIMAD", "UIADD3", "ULEA", "ULOP3", "USHF",
    "UISETP",
)  # fmt: skip
"""Machine instructions that compute indices, addresses and loop conditions; MOV and predicate logic are left out."""


class _OfRung(Protocol):
    @property
    def rung(self) -> str: ...


O = TypeVar("O", bound=_OfRung)  # noqa: E741


def origin(record: Record) -> str:
    """One list item on a record: its name, its date, what the GPU did meanwhile, and the commit that was measured."""
    parts = [record.date[:10]]
    samples = record.environment.samples
    if samples is not None:
        parts.append(f"median SM clock {samples.sm_clock_mhz.median:.0f} MHz, {samples.power_w.median:.0f} W")
    return f"- `{record.id}`: {', '.join(parts)}, commit {record.git_hash}"


def environment_line(records: Sequence[Record]) -> str:
    """One line on the machines and software of some records; where they differ, every value is named."""

    def every(*values: str | None) -> str:
        return " and ".join(dict.fromkeys(value for value in values if value))

    known = [record.environment for record in records]
    dates = sorted({record.date[:10] for record in records})
    parts = [
        every(*(about.processor or about.gpu for about in known)),
        *(() if any(about.processor for about in known) else ("driver " + every(*(about.driver for about in known)),)),
        "CUDA " + every(*(about.cuda for about in known)),
        "NVRTC " + every(*(about.nvrtc for about in known)),
        every(*(about.baseline_library for about in known)),
    ]
    measured = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return f"*{', '.join(part for part in parts if part)}; measured {measured}.*"


OF_ALL = "problems of all kinds"
KINDS_OF_SURVEYS = {
    "--weight-gradients": "gradients of weights: A along M, B along N, K longer than both",
    "--shape few-columns": "at most 96 columns",
    "--shape short-k": "K of at most 128",
    "--shape batched": "batches of 2 to 96 matrices",
}
"""Options of surveys that draw problems of one kind, and what those are."""

OTHER_SURVEYS = ("--straddling", "--misaligned", "--dtype")
"""The same of surveys that models are fitted to and tables of plans leave out."""


def kind_of_survey(record: SurveyRecord) -> str | None:
    """Which problems a survey drew: `OF_ALL`, one of `KINDS_OF_SURVEYS`, or None for others."""
    if any(option in record.command for option in OTHER_SURVEYS):
        return None
    return next((kind for option, kind in KINDS_OF_SURVEYS.items() if option in record.command), OF_ALL)


class RecordLookup:
    """Lookups in some records, oldest first; by default the committed ones."""

    def __init__(self, records: Sequence[AnyRecord] | None = None) -> None:
        self.records = committed() if records is None else tuple(records)
        self._used: dict[str, Record] = {}

    # --- where figures come from ---

    def _take(self, found: tuple[Record, T] | None) -> T | None:
        """An item that will be shown: its record is named by the next `origins`."""
        if found is None:
            return None
        record, item = found
        self._used[record.id] = record
        return item

    def take(self, names: Iterable[str]) -> None:
        """Something of the records of these names will be shown."""
        wanted = set(names)
        self._used |= {record.id: record for record in self.records if record.id in wanted}

    def sources(self) -> tuple[str, ...]:
        """Names of the records that something was taken from since `origins` was last asked."""
        return tuple(sorted(self._used))

    def origins(self) -> str:
        """The environment in one line, then the folded list of the records that something was taken from since this
        was last asked; nothing where that was none."""
        used = sorted(self._used.values(), key=lambda record: record.date)
        self._used.clear()
        if not used:
            return ""
        summary = "1 record" if len(used) == 1 else f"{len(used)} records"
        items = "\n".join(map(origin, used))
        return f"{environment_line(used)}\n\n<details><summary>{summary}</summary>\n\n{items}\n\n</details>\n"

    def has(self, kind: type[Record], regime: str | None = None) -> bool:
        """Whether there is any record of a kind (a ladder's: of a regime)."""
        return any(regime is None or getattr(record, "regime", None) == regime for record in self._of(kind))

    def host_costs(self) -> tuple[HostCosts, ...]:
        """What the newest record of calls holds; nothing where there is none."""
        newest = self._newest(CallsRecord)
        return newest.groups if newest is not None else ()

    def epilogue_times(self) -> tuple[EpilogueTimes, ...]:
        """What the newest record of epilogues holds; nothing where there is none."""
        newest = self._newest(EpiloguesRecord)
        return newest.groups if newest is not None else ()

    def emulator_times(self) -> tuple[EmulatorTimes, ...]:
        """What the newest record of the emulator holds; nothing where there is none."""
        newest = self._newest(EmulatorRecord)
        return newest.groups if newest is not None else ()

    def planning_times(self) -> tuple[PlanningTimes, ...]:
        """What the newest record of planning holds; nothing where there is none."""
        newest = self._newest(PlanningRecord)
        return newest.groups if newest is not None else ()

    def outside_suites(self) -> tuple[OutsideSuite, ...]:
        """Totals of the newest record of each public suite, by name; nothing where there is none."""
        newest = {record.suite: record for record in self._of(OutsideRecord)}
        self._used |= {record.id: record for record in newest.values()}
        return tuple(OutsideSuite.of(name, newest[name].revision, newest[name].groups) for name in sorted(newest))

    def model_times(self) -> tuple[ModelTimes, ...]:
        """What the newest record of models holds; nothing where there is none."""
        newest = self._newest(ModelsRecord)
        return newest.groups if newest is not None else ()

    def feature_times(self, suite: str) -> dict[str, FeatureTimes]:
        """The rows of a feature suite by name, each from the newest record that has it."""
        records = [record for record in self._of(FeaturesRecord) if record.suite == suite]
        found = latest(records, lambda record: record.rows, lambda row: row.row)
        self._used |= {record.id: record for record, _ in found.values()}
        return {name: row for name, (_, row) in found.items()}

    def newest_surveys(self) -> dict[str, SurveyRecord]:
        """The newest survey of each kind of problems (`kind_of_survey`), those of plans alone left out."""
        newest = {kind: record for kind, record in self._surveys() if not record.of_plans}
        self._used |= {record.id: record for record in newest.values()}
        return {kind: newest[kind] for kind in (OF_ALL, *KINDS_OF_SURVEYS.values()) if kind in newest}

    def newest_surveys_of_plans(self) -> list[tuple[str, list[SurveyRecord]]]:
        """The newest survey of each kind of problems on each GPU, with all others of its commit, by GPU; those of plans
        alone count too."""
        found: dict[tuple[str, str], list[SurveyRecord]] = {}
        for kind, record in self._surveys():
            of_kind = found.setdefault((record.environment.gpu, kind), [])
            of_kind[:] = [each for each in of_kind if each.git_hash == record.git_hash] + [record]
        self._used |= {record.id: record for records in found.values() for record in records}
        kinds = (OF_ALL, *KINDS_OF_SURVEYS.values())
        order = sorted(found, key=lambda which: (which[0], kinds.index(which[1])))
        return [(kind, found[gpu, kind]) for gpu, kind in order]

    def _surveys(self) -> list[tuple[str, SurveyRecord]]:
        found = ((kind_of_survey(record), record) for record in self._of(SurveyRecord))
        return [(kind, record) for kind, record in found if kind is not None]

    def straddling_surveys(self) -> list[SurveyRecord]:
        """All surveys of problems whose rows lie in two lines of L2."""
        records = [record for record in self._of(SurveyRecord) if "--straddling" in record.command]
        self._used |= {record.id: record for record in records}
        return records

    # --- all of a kind, the newest of each ---

    def _newest(self, kind: type[R]) -> R | None:
        """The newest record of a kind, of which something will be shown; None where there is none."""
        records = self._of(kind)
        self._used |= {record.id: record for record in records[-1:]}
        return records[-1] if records else None

    def _of(self, kind: type[R]) -> list[R]:
        return [record for record in self.records if isinstance(record, kind)]

    def _ladders(self, regime: str) -> list[LadderRecord]:
        return [record for record in self._of(LadderRecord) if record.regime == regime]

    @cached_property
    def _cells(self) -> dict[str, dict[tuple[str, ProblemKey], tuple[LadderRecord, LadderCell]]]:
        return {
            regime: latest(self._ladders(regime), lambda record: record.cells, lambda cell: (cell.rung, cell.problem))
            for regime in ("sustained", "cool")
        }

    @cached_property
    def _baselines(self) -> dict[ProblemKey, tuple[LadderRecord, BaselineTime]]:
        return latest(self._ladders("sustained"), lambda record: record.baselines, lambda each: each.problem)

    @cached_property
    def _profiles(self) -> dict[tuple[str, ProblemKey], tuple[ProfileRecord, Profile]]:
        def first_of_each(record: ProfileRecord) -> Iterable[Profile]:  # a problem may have two configurations
            return reversed([each for each in record.profiles if not each.failed])

        return latest(self._of(ProfileRecord), first_of_each, lambda each: (each.rung, each.problem))

    @cached_property
    def _types(self) -> dict[tuple[str, ProblemKey], tuple[TypesRecord, TypeCell]]:
        return latest(self._of(TypesRecord), lambda record: record.cells, lambda cell: (cell.rung, cell.problem))

    @cached_property
    def _layouts(self) -> dict[tuple[str, ProblemKey], tuple[LayoutsRecord, TypeCell]]:
        return latest(self._of(LayoutsRecord), lambda record: record.cells, lambda cell: (cell.rung, cell.problem))

    @cached_property
    def _unaligned(self) -> dict[tuple[str, ProblemKey, int], tuple[UnalignedRecord, UnalignedCell]]:
        records = self._of(UnalignedRecord)
        return latest(records, lambda record: record.cells, lambda cell: (cell.rung, cell.problem, cell.offset))

    @cached_property
    def _results(self) -> dict[tuple[Any, ...], tuple[SuitesRecord, RowResult]]:
        return latest(self._of(SuitesRecord), lambda record: record.contests, lambda each: (each.suite, *each.row))

    @cached_property
    def _counted(self) -> dict[tuple[Any, ...], tuple[CountersRecord, ParticipantCounters]]:
        return latest(self._of(CountersRecord), lambda record: record.counted, lambda each: (each.who, *each.row))

    @cached_property
    def _tunings(self) -> dict[tuple[str, ProblemKey], tuple[TuningRecord, Tuning]]:
        return latest(self._of(TuningRecord), lambda record: record.tunings, lambda each: (each.rung, each.problem))

    def _of_rung(self, kind: type[R], items: Callable[[R], Iterable[O]], name: str) -> list[O]:
        """All that the newest record with a rung says about it."""
        for record in reversed(self._of(kind)):
            mine = [item for item in items(record) if item.rung == name]
            if mine:
                return self._take((record, mine)) or []
        return []

    # --- one thing ---

    def sizes(self, regime: str) -> tuple[int, ...]:
        """Extents of the square problems of a regime's ladders."""
        return tuple(sorted({key.m for _, key in self._cells[regime]}))

    def cell(self, name: str, group: TypeGroup, size: int, *, cool: bool = False) -> LadderCell | None:
        """The recorded cell of a rung, or None."""
        return self._take(self._cells["cool" if cool else "sustained"].get((name, _square(name, group, size))))

    def ladder_cells(self) -> list[tuple[LadderCell, bool]]:
        """Every recorded cell, and whether it was measured at the power limit."""
        found = [(each, regime == "sustained") for regime, cells in self._cells.items() for each in cells.values()]
        return [(cell, sustained) for (record, cell), sustained in found if self._take((record, cell)) is not None]

    def baseline(self, group: TypeGroup, size: int) -> BaselineTime | None:
        """The recorded baseline of a problem, or None."""
        return self._take(self._baselines.get(group.key(size, size, size)))

    def profile(self, name: str, size: int = PROFILE_SIZE) -> Profile | None:
        """The recorded counters of a rung at a square size, or None."""
        for (rung, key), found in self._profiles.items():
            if rung == name and key.m == key.n == key.k == size:
                return self._take(found)
        return None

    def small_profiles(self, shapes: Sequence[tuple[int, int, int]]) -> list[Profile]:
        """Every profile of some shapes, in each configuration: all that the newest record with the rung has."""
        found: dict[str, list[Profile]] = {}
        for record in self._of(ProfileRecord):
            mine = [each for each in record.profiles if not each.failed]
            for name in dict.fromkeys(each.rung for each in mine):
                found[name] = [p for p in mine if p.rung == name and (p.problem.m, p.problem.n, p.problem.k) in shapes]
        return [profile for profiles in found.values() for profile in profiles]

    def type_cell(self, name: str, key: ProblemKey) -> TypeCell | None:
        """A rung in one type of the table of types, or None."""
        return self._take(self._types.get((name, key)))

    def layout_cell(self, name: str, key: ProblemKey) -> TypeCell | None:
        """A rung in one combination of layouts, or None."""
        return self._take(self._layouts.get((name, key)))

    def unaligned_cell(self, name: str, key: ProblemKey, offset: int) -> UnalignedCell | None:
        """A rung on a misaligned problem, or None."""
        return self._take(self._unaligned.get((name, key, offset)))

    def row_result(self, suite: str, row: SuiteRow) -> RowResult | None:
        """A row of a suite, or None."""
        return self._take(self._results.get((suite, row.problem, row.offset, row.max_sms, row.neighbour)))

    def counted(self, result: RowResult, participant: str) -> ParticipantCounters | None:
        """Counters of a participant of a row, if they were taken in the same configuration or algorithm; or None."""
        found = self._counted.get((participant, *result.row))
        known = {OURS: result.config, NEIGHBOUR: result.beside_config}.get(participant, {})
        if found is None or found[1].failed or found[1].config != known:
            return None
        if participant == LIBRARY and found[1].algorithm != result.baseline:
            return None
        return self._take(found)

    def counted_alone(self, rung: str, key: ProblemKey, config: dict[str, int]) -> ParticipantCounters | None:
        """Counters of a rung on an aligned problem in one configuration, in one kernel on all SMs: those of a row, or
        of the GEMM that another row is compared with; None where there are none."""
        for record, found in reversed(self._counted.values()):
            problem = found.beside if found.who == NEIGHBOUR else found.problem
            plain = found.who in (OURS, NEIGHBOUR) and found.max_sms is None and len(found.kernels) == 1
            aligned = found.offset == 0 or found.who == NEIGHBOUR
            if plain and aligned and not found.failed and (found.rung, problem, found.config) == (rung, key, config):
                return self._take((record, found))
        return None

    def searched(self, rung: str, problem: ProblemClass) -> list[float]:
        """Milliseconds of every configuration that the newest search of a problem looked at, in its brief look."""
        for record in reversed(self._of(SearchesRecord)):
            for each in record.searches:
                if (each.rung, each.problem) == (rung, problem):
                    self._used[record.id] = record
                    return [tried.brief_ms for tried in each.tried if tried.brief_ms is not None]
        return []

    def tuning(self, name: str, group: TypeGroup, size: int) -> Tuning | None:
        """The recorded search of a rung on a square problem, or None."""
        return self._take(self._tunings.get((name, _square(name, group, size))))

    def checks(self, name: str) -> list[Check]:
        """Every check of a rung."""
        return self._of_rung(CorrectnessRecord, lambda record: record.checks, name)

    def sanitized(self, name: str) -> list[Sanitized]:
        """What compute-sanitizer said about a rung."""
        return self._of_rung(SanitizerRecord, lambda record: record.runs, name)

    def value(
        self, name: str, unit: str, group: TypeGroup, size: int, previous: str | None = None, *, cool: bool = False
    ) -> float | None:
        """A measured figure in the unit of a claim, or None when it is not recorded."""
        if unit in (INTENSITY, CONFLICTS, INDEX):
            profile = self.profile(name, size)
            return None if profile is None else _counted(profile, unit)
        cell = self.cell(name, group, size, cool=cool)
        if unit == REGISTERS:
            return float(cell.resources.registers) if cell is not None and cell.resources is not None else None
        if cell is None or cell.tflops is None:
            return None
        if unit == TFLOPS:
            return cell.tflops
        if unit == OF_CUBLAS:
            return cell.ratio.median if cell.ratio else None
        if unit == OF_LIMIT:
            return cell.tflops / limit_tflops(name, cell.problem)
        assert unit == STEP
        before = self.cell(previous, group, size, cool=cool) if previous else None
        return cell.tflops / before.tflops if before is not None and before.tflops else None

    def type_table_value(
        self, name: str, unit: str, group: TypeGroup, previous: str | None = None, *, cool: bool = False
    ) -> float | None:
        """The same from the table of types, at its own size."""
        regime = "cool" if cool else "sustained"
        key = type_table_key(group, sparse=RUNGS[name].sparse)
        cell = self.type_cell(name, key)
        speed = None if cell is None else cell.tflops(regime)
        if cell is None or speed is None:
            return None
        if unit == TFLOPS:
            return speed
        if unit == OF_CUBLAS:
            return cell.of_baseline(regime)
        if unit == OF_LIMIT:
            return speed / limit_tflops(name, key)
        assert unit == STEP
        before = self.type_cell(previous, type_table_key(group)) if previous else None
        start = None if before is None else before.tflops(regime)
        return speed / start if start else None


def _square(name: str, group: TypeGroup, size: int) -> ProblemKey:
    return square(RUNGS[name], group, size)


def _counted(profile: Profile, unit: str) -> float | None:
    """A figure in a unit that is counted, not timed."""
    if unit == CONFLICTS:
        return profile.counters.get("shared_load_conflict_ratio")
    if unit == INTENSITY:
        sectors = profile.counters.get("global_load_sectors")
        return profile.problem.flops / (SECTOR_BYTES * sectors) if sectors else None
    executed = {opcode: counters.get("instructions", 0.0) for opcode, counters in profile.by_opcode.items()}
    total = sum(executed.values())
    return sum(executed.get(opcode, 0.0) for opcode in INTEGER_OPCODES) / total if total else None
