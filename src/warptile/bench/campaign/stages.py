"""The stages of a campaign: which tasks each has, and the records they become.

A stage's tasks run in a worker process (`warptile.bench.campaign.run`), their results lie in a journal, and records are
built from the journal at any time: from all of it or from what there is so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from warptile.arch import REFERENCE_ARCH
from warptile.bench.campaign import correctness, ladder_sweep, precision, unaligned
from warptile.bench.campaign.journal import Journal, JournalTask
from warptile.bench.profiling.ncu_metrics import ParticipantCounters
from warptile.bench.profiling.profile import NcuRun, profile
from warptile.bench.profiling.requests import profile_requests, sanitize_requests
from warptile.bench.profiling.row_counters import count, rows_to_count
from warptile.bench.profiling.sanitize import TOOLS, WITHOUT_RACECHECK, latest_runs, run
from warptile.bench.protocol import measure_rows
from warptile.bench.protocol.environment import Sampler, describe
from warptile.bench.protocol.interleaving import SHORT_COOL
from warptile.bench.protocol.measurements import (
    BaselineTime,
    Check,
    Environment,
    LadderCell,
    ProblemKey,
    Profile,
    Sanitized,
    Tried,
    Tuning,
    TypeCell,
    UnalignedCell,
)
from warptile.bench.protocol.records import (
    AnyRecord,
    CorrectnessRecord,
    CountersRecord,
    LadderRecord,
    LayoutsRecord,
    ProfileRecord,
    SanitizerRecord,
    SuitesRecord,
    TuningRecord,
    TypesRecord,
    UnalignedRecord,
    committed,
)
from warptile.bench.protocol.row_result import RowResult
from warptile.bench.protocol.suites import SUITES, SuiteRow
from warptile.bench.protocol.workloads import (
    BF16,
    COUNTER_SHAPES,
    E4M3,
    E4M3_FAST,
    F16_F16,
    F16_F32,
    F32,
    GROUPS,
    PROFILE_SIZE,
    S8,
    SIZES,
    TF32,
    TypeGroup,
    default_config,
    groups_of,
    square,
    to_problem,
)
from warptile.gpu.timing import COOL, SUSTAINED
from warptile.planning.tuned_table import Table
from warptile.rungs import RUNGS
from warptile.rungs.kernel_spec import Config
from warptile.rungs.rung import Rung
from warptile.rungs.wmma import nine
from warptile.tuning.gpu_search import tune_on_gpu
from warptile.tuning.search import Progress, SearchOutcome, Stage

STAGES = ("correctness", "tune", "sweep", "cool", "types", "layouts", "unaligned", "suites", "counters", "ncu",
          "sanitize")  # fmt: skip
"""In the order in which they run: later stages use what earlier ones found."""

FULL_SIZE = 4096
"""The extent on which the whole space of a rung is searched."""

COOL_SIZES, COOL_GROUPS = (4096, 8192), (F16_F32, F32, BF16)
"""What is also measured in short bursts on a cool chip."""

LIMIT = 320
"""The most configurations (the best predictions) that a whole search measures, not counting those always tried."""

HANDED_ON = 10
"""The best configurations of the whole search, which the larger sizes try."""

WHOLE = (Stage(10_000, 4.0), Stage(48, 40.0), Stage(8, 150.0, rounds=5))
FEW = (Stage(10_000, 50.0), Stage(5, 150.0, rounds=3))
"""Stages of a search of the whole space, and of one among a few good configurations."""

AT_WORK = (Stage(10_000, 40.0), Stage(24, 120.0), Stage(6, 300.0, rounds=4))
AT_WORK_FEW = (Stage(10_000, 120.0), Stage(5, 300.0, rounds=4))
"""The same for kernels that reach the power limit: each configuration runs right after the best prediction, and for as
long."""

TUNED = (
    ("wmma-final", F16_F32), ("wmma-final", F16_F16), ("simt-warptile", F32), ("simt-half2", F16_F16),
    ("mma-final", F16_F32), ("mma-final", BF16), ("wgmma-final", BF16), ("wgmma-final", F16_F32),
    ("wgmma-final", E4M3), ("wgmma-final", E4M3_FAST), ("wgmma-final", S8), ("wgmma-final", TF32),
)  # fmt: skip
"""What is tuned."""


@dataclass
class Campaign:
    """What a worker shares between its tasks.

    Attributes:
        journal: of what is done.
        rungs: which are measured; suites take what plans take.
        sizes: of the sweep.
        types: limits the groups that are swept and tuned, by their names.
        suites: which are compared.
        brief: in short rounds.
        only: limits the rows of suites, by parts of their names.
        tuned_folder: where searches leave what they found.
        arch: to compile for.
        say: tells what goes on.
        sampler: reads clocks and power.
    """

    journal: Journal
    rungs: tuple[Rung, ...]
    sizes: tuple[int, ...] = SIZES
    types: tuple[str, ...] = ()
    suites: tuple[str, ...] = tuple(SUITES)
    brief: bool = False
    only: tuple[str, ...] = ()
    tuned_folder: Path | None = None
    arch: str = REFERENCE_ARCH
    say: Callable[[str], None] = print
    sampler: Sampler = field(default_factory=Sampler)

    def wanted(self, groups: Sequence[TypeGroup]) -> tuple[TypeGroup, ...]:
        """Those of some groups that are asked for."""
        return tuple(group for group in groups if not self.types or group.name in self.types)

    @cached_property
    def bench(self) -> ladder_sweep.Bench:
        """Operands and baseline of the sweep."""
        return ladder_sweep.Bench(self.sampler, tuned_folder=self.tuned_folder)

    @cached_property
    def cool_bench(self) -> ladder_sweep.Bench:
        """The same in short bursts with pauses, before the chip reaches its power limit."""
        return ladder_sweep.Bench(self.sampler, schedule=SHORT_COOL, tuned_folder=self.tuned_folder)

    @property
    def device(self) -> measure_rows.GpuModel:
        """What plans of suites are made for: this GPU."""
        from warptile.gpu import driver

        return measure_rows.GpuModel(self.arch, driver.device_info().name if driver.available() else None)

    @cached_property
    def checker(self) -> correctness.Checker:
        """Operands and references of the checks."""
        return correctness.Checker(self.arch)

    @property
    def rows_to_count(self) -> dict[str, list[tuple[SuiteRow, RowResult]]]:
        """Rows of suites whose counters are taken: as this journal measured them, or else as the records have them."""
        known = [result for record in committed() if isinstance(record, SuitesRecord) for result in record.contests]
        mine = self.journal.results(RowResult, "suite/").values()
        return rows_to_count([*known, *mine], self.suites, self.only)

    def baseline_of(self, key: ProblemKey) -> BaselineTime:
        """The result of a baseline's task."""
        name = f"baseline/{ladder_sweep.key_name(key)}"
        found: BaselineTime | None = self.journal.results(BaselineTime, name).get(name)
        if found is None:
            raise LookupError(f"{name} has no result: {self.journal.failures(name).get(name, 'it did not run')}")
        return found

    def tasks(self, stage: str) -> Iterator[JournalTask]:
        """The tasks of a stage."""
        yield from _TASKS[stage](self)

    def environment(self, start_s: float) -> Environment:
        """This machine, with the samples since ``start_s``."""
        bench = self.__dict__.get("bench") or self.__dict__.get("cool_bench")
        library = bench.baseline_library if bench is not None else None
        return describe(self.sampler.since(start_s), library)


# --- tasks -----------------------------------------------------------------------------------------------------------


def _correctness(work: Campaign) -> Iterator[JournalTask]:
    yield from correctness.tasks(work.rungs, work.checker)


def _sweep(work: Campaign) -> Iterator[JournalTask]:
    yield from ladder_sweep.tasks(
        work.rungs, work.arch, lambda: work.bench, work.baseline_of, work.sizes, groups=work.wanted(GROUPS)
    )


def _cool(work: Campaign) -> Iterator[JournalTask]:
    sizes = tuple(size for size in COOL_SIZES if size in work.sizes)
    yield from ladder_sweep.tasks(
        work.rungs, work.arch, lambda: work.cool_bench, work.baseline_of, sizes, groups=work.wanted(COOL_GROUPS),
        prefix="cool",
    )  # fmt: skip


def _types(work: Campaign) -> Iterator[JournalTask]:
    planned = precision.plan_types(work.rungs, work.arch)
    yield from precision.tasks("types", planned, lambda: work.bench, precision.BOTH_REGIMES)


def _layouts(work: Campaign) -> Iterator[JournalTask]:
    planned = precision.plan_layouts(work.rungs, work.arch)
    yield from precision.tasks("layouts", planned, lambda: work.bench, precision.ONE_LOOK)


def _unaligned(work: Campaign) -> Iterator[JournalTask]:
    yield from unaligned.tasks(work.rungs, work.arch, lambda: work.bench)


def _suites(work: Campaign) -> Iterator[JournalTask]:
    yield from measure_rows.tasks(work.suites, lambda: work.bench, brief=work.brief, only=work.only)


def _counters(work: Campaign) -> Iterator[JournalTask]:
    """One run of Nsight Compute for each suite that has rows to count."""
    for suite, rows in work.rows_to_count.items():
        yield f"counters/{suite}", lambda rows=rows: count(rows)  # type: ignore[misc]


def _tune(work: Campaign) -> Iterator[JournalTask]:
    """The whole space first; sizes beyond it only for the tensor cores, as a CUDA-core kernel takes too long there."""
    chosen = {rung.name for rung in work.rungs}
    asked = work.wanted([group for _, group in TUNED])
    pairs = [(RUNGS[name], group) for name, group in TUNED if name in chosen and group in asked]
    order = [FULL_SIZE, *(size for size in (8192, 16384, 2048, 1024) if size in work.sizes)]
    for size in order:
        for rung, group in pairs:
            key = square(rung, group, size)
            larger = group in groups_of(rung, work.arch) and rung.family != "simt"
            if default_config(rung, to_problem(key), work.arch) is not None and (size == FULL_SIZE or larger):
                yield (
                    f"tune/{ladder_sweep.key_name(key)}/{rung.name}",
                    lambda rung=rung, key=key: tune_one(work, rung, key),  # type: ignore[misc]
                )


def tune_one(work: Campaign, rung: Rung, key: ProblemKey) -> Tuning:
    """Search one rung's configurations for one problem."""
    from warptile.gpu import driver

    driver.enter()
    configs: Sequence[Config] | None = None
    if key.m > FULL_SIZE:
        whole = msgspec.structs.replace(key, m=FULL_SIZE, n=FULL_SIZE, k=FULL_SIZE)
        name = f"tune/{ladder_sweep.key_name(whole)}/{rung.name}"
        found = work.journal.results(Tuning, name).get(name)
        if found is not None:
            configs = [tried.config for tried in found.tried if tried.time_ms is not None][:HANDED_ON]
    problem = to_problem(key)

    def report(progress: Progress) -> None:
        if progress.done == progress.total:
            work.say(f"  {rung.name} {key.shape}: {progress.doing} {progress.total}, best {progress.best_ms} ms")

    at_work = rung.family == "wgmma"
    searched, among_few = (AT_WORK, AT_WORK_FEW) if at_work else (WHOLE, FEW)
    outcome = tune_on_gpu(
        rung, problem, table=Table(driver.device_info().name, work.tuned_folder), configs=configs,
        always=nine(problem) if rung.name == "wmma-final" else (), limit=LIMIT, report=report,
        stages=searched if configs is None else among_few, beside_first=at_work,
    )  # fmt: skip
    return to_tuning(outcome, key)


def to_tuning(outcome: SearchOutcome, key: ProblemKey) -> Tuning:
    """A search as a record keeps it."""
    return Tuning(
        rung=outcome.search.rung,
        problem=key,
        tried=tuple(Tried(config=e.config, stage=e.stage, time_ms=e.time_ms, failed=e.failed) for e in outcome.entries),
        candidates=outcome.candidates,
        illegal=outcome.illegal,
        best_rounds_ms=outcome.best.rounds_ms if outcome.best else (),
    )


def _ncu(work: Campaign) -> Iterator[JournalTask]:
    """All rungs of a problem in one run of Nsight Compute; when that fails, each rung in a run of its own."""
    square = (PROFILE_SIZE,) * 3
    for shape in (square, *COUNTER_SHAPES):
        requests = profile_requests(work.rungs, work.arch, shape)
        if not requests:  # none of the rungs takes such a problem
            continue
        label = "x".join(map(str, shape))
        yield f"ncu/{label}", lambda requests=requests: profiles_of(profile(requests))  # type: ignore[misc]
        if f"ncu/{label}" in work.journal.failures():
            for rung in work.rungs:
                mine = [request for request in requests if request.rung == rung.name]
                if mine:
                    yield f"ncu/{label}/{rung.name}", lambda mine=mine: profiles_of(profile(mine))  # type: ignore[misc]


def profiles_of(found: NcuRun) -> list[Profile]:
    """The profiles of a run; metrics that had to be dropped are said."""
    if found.dropped_metrics:
        print(f"ncu: this GPU lacks {', '.join(found.dropped_metrics)}")
    return list(found.profiles)


def _sanitize(work: Campaign) -> Iterator[JournalTask]:
    """All rungs under each tool; a rung that was not reached then runs on its own."""
    for tool in TOOLS:
        rungs = [rung for rung in work.rungs if tool == "memcheck" or rung.family not in WITHOUT_RACECHECK]
        requests = sanitize_requests(rungs, work.arch)
        if not requests:
            continue
        name = f"sanitize/{tool}"
        yield name, lambda tool=tool, requests=requests: list(run(tool, requests))  # type: ignore[misc]
        done = work.journal.results(list[Sanitized], name).get(name, [])
        finished = {each.rung for each in done if each.errors is not None}
        for rung in rungs:
            mine = [request for request in requests if request.rung == rung.name]
            if rung.name not in finished and mine:
                yield f"{name}/{rung.name}", lambda tool=tool, mine=mine: list(run(tool, mine))  # type: ignore[misc]


_TASKS: dict[str, Callable[[Campaign], Iterator[JournalTask]]] = {
    "correctness": _correctness,
    "tune": _tune,
    "sweep": _sweep,
    "cool": _cool,
    "types": _types,
    "layouts": _layouts,
    "unaligned": _unaligned,
    "suites": _suites,
    "counters": _counters,
    "ncu": _ncu,
    "sanitize": _sanitize,
}


# --- records ---------------------------------------------------------------------------------------------------------


def records_of(
    journal: Journal, *, date: str, git_hash: str, command: str, environment: Environment, prediction: str = ""
) -> list[AnyRecord]:
    """One record of each kind that the journal has results for.

    ``environment`` stands in for a stage whose worker died before it could say what it ran on.
    """

    def about(stage: str, *prefixes: str) -> dict[str, Any]:
        found = journal.results(Environment, f"environment/{stage}").get(f"environment/{stage}")
        failures = [f"{task}: {reason}" for prefix in prefixes for task, reason in journal.failures(prefix).items()]
        return {
            "date": date, "git_hash": git_hash, "command": command, "environment": found or environment,
            "failures": tuple(failures), "prediction": prediction,
        }  # fmt: skip

    made: list[AnyRecord] = []
    checks = tuple(journal.results(Check, "check/").values())
    if checks:
        made.append(CorrectnessRecord(checks=checks, **about("correctness", "check/")))
    baselines = tuple(journal.results(BaselineTime, "baseline/").values())
    for stage, prefix, regime in (("sweep", "cell/", SUSTAINED.regime), ("cool", "cool/", COOL.regime)):
        cells = tuple(journal.results(LadderCell, prefix).values())
        if cells:
            about_it = about(stage, prefix, "baseline/")
            made.append(LadderRecord(regime=regime, cells=cells, baselines=baselines, **about_it))
    tunings = tuple(journal.results(Tuning, "tune/").values())
    if tunings:
        made.append(TuningRecord(tunings=tunings, **about("tune", "tune/")))
    type_cells = tuple(journal.results(TypeCell, "types/").values())
    if type_cells:
        made.append(TypesRecord(cells=type_cells, **about("types", "types/")))
    majors = tuple(journal.results(TypeCell, "layouts/").values())
    if majors:
        made.append(LayoutsRecord(cells=majors, **about("layouts", "layouts/")))
    beside = tuple(journal.results(UnalignedCell, "unaligned/").values())
    if beside:
        made.append(UnalignedRecord(cells=beside, **about("unaligned", "unaligned/")))
    results = tuple(journal.results(RowResult, "suite/").values())
    if results:
        made.append(SuitesRecord(contests=results, **about("suites", "suite/")))
    counted = tuple(one for found in journal.results(list[ParticipantCounters], "counters/").values() for one in found)
    if counted:
        made.append(CountersRecord(counted=counted, **about("counters", "counters/")))
    profiles = tuple(one for found in journal.results(list[Profile], "ncu/").values() for one in found)
    if profiles:
        made.append(ProfileRecord(profiles=profiles, **about("ncu", "ncu/")))
    runs = latest_runs([one for found in journal.results(list[Sanitized], "sanitize/").values() for one in found])
    if runs:
        made.append(SanitizerRecord(runs=runs, **about("sanitize", "sanitize/")))
    return made
