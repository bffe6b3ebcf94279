"""Searches for a rung's fastest configuration: predict, compile ahead, measure in stages, keep what was measured.

Every legal configuration is predicted; those far behind the best prediction are left out. The rest is compiled in
parallel processes. Measuring goes in stages (successive halving): each stage runs fewer configurations for longer, and
the last one runs its few in turn, round by round, as one run heats the next one's chip. Every result is on disk before
the next begins, so a search that was stopped goes on where it was.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from warptile.codegen.nvrtc import CompiledKernel, compile_source
from warptile.codegen.translation_unit import Source, translation_unit
from warptile.device import DeviceLimits
from warptile.errors import UnsupportedError, WarptileError
from warptile.planning.plan import config_text, cost, split_by_legality
from warptile.planning.tuned_table import Entry, ProblemClass, Search, Table, source_of
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.rung import Rung

PRUNE_FACTOR = 2.0
"""A configuration predicted to take this many times the best prediction is not measured, if there are many."""

NEVER_PRUNED = 64
"""The best predictions, which are measured however far apart they are."""


@dataclass(frozen=True)
class Stage:
    """One stage: at most ``keep`` configurations enter, and each runs ``rounds`` times ``window_ms``."""

    keep: int
    window_ms: float
    rounds: int = 1


STAGES = (Stage(10_000, 4.0), Stage(48, 40.0), Stage(8, 150.0, rounds=5))
"""Hundreds of configurations for a few milliseconds each, the best of them for longer, eight against each other."""


class Meter(Protocol):
    """Runs configurations. The real one is `warptile.tuning.gpu_search.GpuMeter`; tests bring their own.

    Each method may raise a WarptileError: the configuration is then noted as failed and left out. An error for which
    ``lost`` answers True ends the search: nothing more can be measured in this process.
    """

    def check(self, config: Config) -> str | None:
        """Run it once on random data; None when its result is right, else what is wrong."""
        ...

    def time_ms(self, config: Config, window_ms: float) -> float:
        """Milliseconds of one launch, measured over about ``window_ms``."""
        ...

    def lost(self, error: BaseException) -> bool:
        """Whether nothing more can be measured after this error."""
        ...


@dataclass(frozen=True)
class Progress:
    """How far a search is: what is being done, how many of how many, and the best so far."""

    doing: str
    done: int
    total: int
    best: Config | None = None
    best_ms: float | None = None


@dataclass(frozen=True)
class SearchOutcome:
    """The result of a search.

    Attributes:
        search: what was searched.
        entries: the last measurement of each configuration, those that reached the last stage first, each group best
            first, failures at the end.
        candidates: configurations that the rung offers for this problem.
        illegal: how many of them are not legal here.
        pruned: how many legal ones were left out because of their prediction or the limit.
        reused: whether the outcome was known already and nothing was measured.
    """

    search: Search
    entries: tuple[Entry, ...]
    candidates: int
    illegal: int
    pruned: int
    reused: bool

    @property
    def best(self) -> Entry | None:
        """The winner, or None when every configuration failed."""
        first = self.entries[0] if self.entries else None
        return first if first is not None and first.time_ms is not None else None


@dataclass(frozen=True)
class Candidates:
    """The configurations of one search, by predicted time."""

    configs: tuple[Config, ...]
    offered: int
    illegal: int
    pruned: int


def offered_by(rung: Rung, problem: Problem, device: DeviceLimits) -> tuple[tuple[Rung, Config], ...]:
    """The default configuration of a rung and all others that it knows, each once."""
    configs = (rung.default_config(problem, device), *rung.candidates(problem, device))
    return tuple((rung, config) for config in {config_text(config): config for config in configs}.values())


def select(
    rung: Rung,
    problem: Problem,
    device: DeviceLimits,
    *,
    limit: int | None = None,
    factor: float = PRUNE_FACTOR,
    always: Sequence[Config] = (),
) -> Candidates:
    """The legal configurations worth measuring, the best prediction first.

    The default and those of ``always`` are among them whatever is predicted, beyond the limit if need be.

    Raises:
        UnsupportedError: none is legal.
    """
    offered = offered_by(rung, problem, device)
    legal, refused = split_by_legality(offered, problem, device)
    if not legal:
        reasons = "; ".join(dict.fromkeys(reason for _, reason in refused))
        raise UnsupportedError(
            f"tune: {rung.name} has no legal configuration for this problem on {device.name}: {reasons}"
        )
    times = [cost(choice, problem, device).time_ms for choice in legal]
    order = sorted(range(len(legal)), key=lambda i: times[i])
    close = [i for i in order if times[i] <= factor * times[order[0]]]
    kept = order[: max(len(close), NEVER_PRUNED)]
    if limit is not None:
        kept = kept[: max(limit, 1)]
    wanted = {config_text(config) for config in (offered[0][1], *always)}
    kept += [i for i in order if i not in kept and config_text(legal[i][1]) in wanted]
    return Candidates(tuple(legal[i][1] for i in kept), len(offered), len(refused), len(legal) - len(kept))


# --- compiling ahead -------------------------------------------------------------------------------------------------


def _ignore_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _compile(source: Source, arch: str) -> CompiledKernel | str:
    """In a worker process: the kernel, or why there is none."""
    try:
        return compile_source(source, arch)
    except WarptileError as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def compile_ahead(
    sources: Sequence[Source], arch: str, processes: int | None = None
) -> Iterator[tuple[int, CompiledKernel | str]]:
    """Compile in parallel; yields (index, kernel or reason of failure) as they come.

    Interrupting the caller ends the workers. With one process, or one source, nothing is started.
    """
    count = min(processes or os.cpu_count() or 1, len(sources))
    if count <= 1:
        for index, source in enumerate(sources):
            yield index, _compile(source, arch)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_ignore_interrupt)
    try:
        futures: dict[Future[CompiledKernel | str], int] = {
            pool.submit(_compile, source, arch): index for index, source in enumerate(sources)
        }
        for future in as_completed(futures):
            try:
                made: CompiledKernel | str = future.result()
            except Exception as error:
                made = f"compiler process: {type(error).__name__}: {error}"
            yield futures[future], made
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def compile_all(
    rung: Rung,
    problem: Problem,
    configs: Sequence[Config],
    device: DeviceLimits,
    *,
    processes: int | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> dict[str, CompiledKernel | str]:
    """Every configuration's kernel, or why there is none, by `config_text`."""
    kernels = (rung.resolve(problem, config, device) for config in configs)
    sources = [translation_unit(kernel) for kernel in kernels]
    made: dict[str, CompiledKernel | str] = {}
    for done, (index, kernel) in enumerate(compile_ahead(sources, device.arch, processes), 1):
        made[config_text(configs[index])] = kernel
        report(Progress("compiling", done, len(configs)))
    return made


# --- the search ------------------------------------------------------------------------------------------------------


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class _ConfigRun:
    """The state of one search: what was measured in each stage, from the table and from now."""

    def __init__(self, search: Search, table: Table, meter: Meter, fresh: bool) -> None:
        self.search = search
        self.table = table
        self.meter = meter
        self.known: dict[tuple[int, str], Entry] = {}
        if not fresh:
            for entry in table.of(search):
                if not entry.winner:
                    self.known[entry.stage, config_text(entry.config)] = entry

    def note(
        self, config: Config, stage: int, time_ms: float | None, rounds: Sequence[float] = (), failed: str | None = None
    ) -> Entry:
        entry = Entry(
            search=self.search, config=dict(config), stage=stage, time_ms=time_ms, rounds_ms=tuple(rounds),
            failed=failed, date=_now(),
        )  # fmt: skip
        self.table.append(entry)
        self.known[stage, config_text(config)] = entry
        return entry

    def measure(self, config: Config, stage: int, window_ms: float) -> Entry:
        """One configuration of an early stage; a failure is an entry too."""
        try:
            wrong = self.meter.check(config) if stage == 0 else None
            if wrong is not None:
                return self.note(config, stage, None, failed=wrong)
            return self.note(config, stage, self.meter.time_ms(config, window_ms))
        except WarptileError as error:
            entry = self.note(config, stage, None, failed=f"{type(error).__name__}: {str(error).splitlines()[0]}")
            if self.meter.lost(error):
                raise
            return entry


def search(
    rung: Rung,
    problem: Problem,
    selected: Candidates,
    meter: Meter,
    table: Table,
    *,
    compiler: str,
    stages: Sequence[Stage] = STAGES,
    fresh: bool = False,
    report: Callable[[Progress], None] = lambda progress: None,
) -> SearchOutcome:
    """Measure the selected configurations in stages and note the winner.

    Args:
        rung: whose configurations.
        problem: what is computed.
        selected: what `select` chose.
        meter: runs and times them.
        table: where results are kept and found again.
        compiler: version of the compiler; results of another one are not reused.
        stages: the stages, in order.
        fresh: measure everything again.
        report: called after each measurement.
    """
    key = Search(table.gpu, compiler, rung.name, source_of(rung), ProblemClass.of(problem))
    run = _ConfigRun(key, table, meter, fresh)
    known = None if fresh else table.winner(key)
    counts = (selected.offered, selected.illegal, selected.pruned)
    if known is not None and {config_text(c) for c in selected.configs} <= {text for _, text in run.known}:
        return SearchOutcome(key, _ranked(run.known.values(), known), *counts, reused=True)
    alive = list(selected.configs)
    winner: Entry | None = None
    for number, stage in enumerate(stages):
        alive = alive[: stage.keep]
        entries = _interleaved(run, alive, number, stage, report) if stage.rounds > 1 else []
        for done, config in enumerate(alive if stage.rounds == 1 else [], 1):
            entry = run.known.get((number, config_text(config))) or run.measure(config, number, stage.window_ms)
            entries.append(entry)
            best = min((e for e in entries if e.time_ms is not None), key=_time, default=None)
            report(Progress(f"stage {number + 1} of {len(stages)}", done, len(alive),
                            best.config if best else None, best.time_ms if best else None))  # fmt: skip
        ranked = sorted((entry for entry in entries if entry.time_ms is not None), key=_time)
        alive = [entry.config for entry in ranked]
        winner = ranked[0] if ranked else None
        if winner is None:
            break
    if winner is not None:
        winner = Entry(
            search=key, config=winner.config, stage=winner.stage, time_ms=winner.time_ms, rounds_ms=winner.rounds_ms,
            winner=True, date=_now(),
        )  # fmt: skip
        table.append(winner)
    return SearchOutcome(key, _ranked(run.known.values(), winner), *counts, reused=False)


def _time(entry: Entry) -> float:
    return entry.time_ms if entry.time_ms is not None else float("inf")


def _interleaved(
    run: _ConfigRun, configs: Sequence[Config], number: int, stage: Stage, report: Callable[[Progress], None]
) -> list[Entry]:
    """The last stage: each configuration once a round; its time is the median of its rounds."""
    known = [run.known.get((number, config_text(config))) for config in configs]
    if configs and all(entry is not None for entry in known):
        return [entry for entry in known if entry is not None]
    rounds: dict[str, list[float]] = {config_text(config): [] for config in configs}
    failed: dict[str, str] = {}
    done = 0
    for _ in range(stage.rounds):
        for config in configs:
            text = config_text(config)
            if text not in failed:
                try:
                    rounds[text].append(run.meter.time_ms(config, stage.window_ms))
                except WarptileError as error:
                    failed[text] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
                    if run.meter.lost(error):
                        run.note(config, number, None, failed=failed[text])
                        raise
            done += 1
            report(Progress("finals", done, stage.rounds * len(configs)))
    entries = []
    for config in configs:
        text = config_text(config)
        if text in failed:
            entries.append(run.note(config, number, None, failed=failed[text]))
        else:
            entries.append(run.note(config, number, statistics.median(rounds[text]), rounds[text]))
    return entries


def _ranked(known: Iterable[Entry], winner: Entry | None) -> tuple[Entry, ...]:
    """The last measurement of each configuration: winner, later stages first, best first, failures at the end."""
    last: dict[str, Entry] = {}
    for entry in known:
        text = config_text(entry.config)
        if text not in last or entry.stage > last[text].stage:
            last[text] = entry
    ordered = sorted(last.values(), key=lambda e: (e.time_ms is None, -e.stage, _time(e)))
    if winner is None:
        return tuple(ordered)
    text = config_text(winner.config)
    return (winner, *(entry for entry in ordered if config_text(entry.config) != text))
