"""Search many problems in little time on the GPU: `warptile tune --suite`.

Each problem has a short list of configurations (`warptile.rungs.wgmma.shortlist`). Kernels are compiled by other
processes, problem by problem, while those before are measured. Operands are cut from one pool of random numbers. Every
configuration is checked once and looked at briefly; the best few then run in turn, round by round, at a chip's working
temperature. All of it is noted in the table of tuned configurations as it is measured: that is the journal, from which
a run goes on, and from which the planner's constants can be fitted.

A worker process does it; its parent starts another when a kernel faults or hangs, and notes which one did.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from warptile.bench.protocol.environment import Sampler, describe
from warptile.bench.protocol.measurements import Environment, ProblemKey
from warptile.bench.protocol.operand_pool import OperandPool, PooledProduct
from warptile.bench.protocol.suites import SUITES, row_name
from warptile.bench.protocol.workloads import to_problem
from warptile.codegen.nvrtc import compiler_version
from warptile.codegen.translation_unit import Source, translation_unit
from warptile.device import REFERENCE, DeviceLimits
from warptile.dtypes import DType
from warptile.errors import CompileError, DeviceError
from warptile.gpu import driver
from warptile.gpu.timing import Runner
from warptile.planning.plan import config_text, make_plan
from warptile.planning.tuned_table import LIKE, Entry, ProblemClass, Search, Table, source_of
from warptile.problem import Problem
from warptile.rungs import RUNGS
from warptile.rungs.kernel_spec import Config
from warptile.rungs.wgmma.shortlist import shortlist
from warptile.runtime.device_product import Launcher, runner_for
from warptile.tuning.search import Candidates, SearchOutcome, Stage, compile_ahead, search

RUNG = RUNGS["wgmma-final"]

QUICK = (Stage(64, 8.0), Stage(4, 60.0, rounds=3))
LONG = (Stage(64, 20.0), Stage(5, 150.0, rounds=3))
"""Stages for GEMMs that stay below the power limit, and for those that reach it."""

LONG_FLOPS = 2.0**35
"""FLOP from which a GEMM reaches the power limit when it runs for long."""

WARM_UP_MS = 300.0
"""How long the first configuration of a GEMM that reaches the power limit runs before anything is timed."""

STALL_S = 30.0
"""A worker that has begun nothing new for so long hangs, and is killed."""

TIME_LEFT_S = 6.0
"""No search begins when less than this is left."""

STATUS_TIME, STATUS_LOST = 75, 70
"""Exit statuses of a worker that ran out of time, and of one whose GPU context was lost."""

RESERVED_CORES = 2
"""Cores that compilers leave to what launches and checks."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class SuiteProblem:
    """One problem of a suite: its name in the suite's words, and elements by which all matrices are displaced."""

    name: str
    problem: Problem
    offset: int = 0


@dataclass(frozen=True)
class SearchTask:
    """One problem with what is tried on it."""

    shape: SuiteProblem
    configs: tuple[Config, ...]
    sources: tuple[Source, ...]

    @staticmethod
    def of(shape: SuiteProblem, device: DeviceLimits = REFERENCE) -> SearchTask:
        """The short list of configurations for a problem on ``device``."""
        configs = shortlist(shape.problem, RUNG.illegal, device)
        kernels = (RUNG.resolve(shape.problem, config, device) for config in configs)
        return SearchTask(shape, configs, tuple(map(translation_unit, kernels)))


def suite_problems(suites: Sequence[str]) -> tuple[SuiteProblem, ...]:
    """The problems of some suites and their neighbours, each once. Left out are those that the rung does not take,
    sparse ones, those of fewer SMs, and those of types that cost what others do
    (`warptile.planning.tuned_table.LIKE`). Problems of one row come last: those of eight serve them."""
    found: dict[object, SuiteProblem] = {}
    for row in (row for suite in suites for row in SUITES[suite] if not row.problem.sparse):
        for key, offset in ((row.problem, row.offset), (row.neighbour, 0)):
            if key is not None and key.dtype in RUNG.dtypes:
                problem = to_problem(key, offset=offset)
                found.setdefault(_like(key, offset), SuiteProblem(row_name(key, offset), problem, offset))
    return tuple(sorted(found.values(), key=lambda shape: shape.problem.m == 1))


def _like(key: ProblemKey, offset: int) -> object:
    dtype, out = (LIKE.get(name, name) for name in (key.dtype, key.out))
    return msgspec.structs.replace(key, dtype=dtype, out=out), offset


def tasks_of(suites: Sequence[str], only: Sequence[str] = (), device: DeviceLimits = REFERENCE) -> list[SearchTask]:
    """The problems of some suites on ``device``, or with ``only`` those whose name has one of its words."""
    chosen = [shape for shape in suite_problems(suites) if not only or any(word in shape.name for word in only)]
    return [SearchTask.of(shape, device) for shape in chosen]


class CompileAhead:
    """Kernels that other processes compile, in the order in which they are wanted, while a block lasts."""

    def __init__(self, sources: Sequence[Source], arch: str, processes: int | None = None) -> None:
        self._sources = list(dict.fromkeys(sources))
        self._made: dict[Source, str | None] = {}
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._compile, args=(arch, processes), daemon=True)
        self._thread.start()

    def _compile(self, arch: str, processes: int | None) -> None:
        for index, made in compile_ahead(self._sources, arch, processes):
            with self._changed:
                self._made[self._sources[index]] = made if isinstance(made, str) else None
                self._changed.notify_all()
                if self._ended:
                    break

    def __enter__(self) -> CompileAhead:
        return self

    def __exit__(self, *error: object) -> None:
        """Begin no more of them, and wait for those that are being compiled."""
        with self._changed:
            self._ended = True
        self._thread.join()

    def reasons(self, sources: Sequence[Source], waiting: Callable[[], None] = lambda: None) -> list[str | None]:
        """Once all of them are compiled: why there is none, or None. ``waiting`` is called every second."""
        with self._changed:
            while self._thread.is_alive() and any(source not in self._made for source in sources):
                waiting()
                self._changed.wait(1.0)
        return [self._made.get(source, "the compiler's processes ended") for source in sources]


class PooledMeter:
    """`warptile.tuning.search.Meter` for a GEMM whose operands are cut from a pool.

    Where a GEMM reaches the power limit, its first configuration warms the chip up. Every other configuration is then
    timed right after the first one and reported as their ratio, so that all are compared in one state of the chip.
    """

    def __init__(
        self,
        product: PooledProduct,
        device: DeviceLimits,
        stream: int,
        refused: Mapping[str, str],
        begun: Callable[[Config], None],
    ) -> None:
        self._product, self._device, self._stream = product, device, stream
        self._refused, self._begun = refused, begun
        self._runners: dict[str, tuple[Runner, float]] = {}
        self._long = product.problem.flops >= LONG_FLOPS
        self._first: tuple[str, float] | None = None

    def _plan(self, config: Config) -> Any:
        return make_plan(self._product.problem, rung=RUNG.name, config=config, device=self._device)

    def check(self, config: Config) -> str | None:
        """As `Meter.check`."""
        reason = self._refused.get(config_text(config))
        if reason is not None:
            raise CompileError(reason)
        self._begun(config)
        return self._product.check(self._plan(config)).wrong

    def time_ms(self, config: Config, window_ms: float) -> float:
        """As `Meter.time_ms`."""
        self._begun(config)
        text = config_text(config)
        if text in self._runners:
            return self._run_ms(text, window_ms)
        self._runners[text] = runner_for(self._product.candidate(self._plan(config)), self._stream)
        if not self._long:
            return self._run_ms(text, window_ms)
        if self._first is None:
            self._run_ms(text, WARM_UP_MS)
            self._first = text, self._run_ms(text, window_ms)
            return self._first[1]
        first, first_ms = self._first
        beside_ms = self._run_ms(first, window_ms)
        return self._run_ms(text, window_ms) / beside_ms * first_ms

    def _run_ms(self, text: str, window_ms: float) -> float:
        runner, one_ms = self._runners[text]
        elapsed_ms, launches = runner.run(max(1, round(window_ms / one_ms)))
        return elapsed_ms / launches

    def lost(self, error: BaseException) -> bool:
        """As `Meter.lost`."""
        return isinstance(error, DeviceError) and error.context_lost


class WorkerState(msgspec.Struct, frozen=True):
    """The configuration that a worker runs, for its parent to read when the worker dies or hangs."""

    search: Search
    config: dict[str, int]


def state_file(folder: Path) -> Path:
    """The file in which a worker keeps the configuration that it runs."""
    return folder / "doing.json"


def work(tasks: Sequence[SearchTask], folder: Path, until_s: float, say: Say, processes: int | None = None) -> int:
    """Search all tasks until ``until_s`` of the clock; the number of those left.

    Raises:
        DeviceError: the GPU's context was lost; what was measured before is kept.
    """
    driver.enter()
    device = driver.device_info()
    done = 0
    processes = processes or max((os.cpu_count() or 1) - RESERVED_CORES, 1)
    with CompileAhead([source for task in tasks for source in task.sources], device.arch, processes) as kernels:
        session = _SearchSession(tasks, Table(device.name, folder), kernels, state_file(folder), device.limits)
        for task in tasks:
            if time.time() > until_s - TIME_LEFT_S:
                break
            session.search(task, say)
            done += 1
    return len(tasks) - done


class _SearchSession:
    """The table, the compiled kernels and the operands that all searches of a worker share."""

    def __init__(
        self, tasks: Sequence[SearchTask], table: Table, kernels: CompileAhead, state: Path, device: DeviceLimits
    ) -> None:
        self._tasks, self._table, self._kernels, self._state, self._device = tasks, table, kernels, state, device
        self._compiler, self._launcher, self._stream = compiler_version(), Launcher(), driver.Stream()
        self._pools: dict[str, OperandPool] = {}

    def _pool(self, element: DType) -> OperandPool:
        if element.name not in self._pools:
            alike = [task.shape.problem for task in self._tasks if task.shape.problem.a.dtype == element]
            self._pools[element.name] = OperandPool(element, alike, self._device.l2_bytes)
        return self._pools[element.name]

    def search(self, task: SearchTask, say: Say) -> None:
        """Search one problem, and say what was found."""
        problem = task.shape.problem
        key = Search(self._table.gpu, self._compiler, RUNG.name, source_of(RUNG), ProblemClass.of(problem))

        def begun(config: Config) -> None:
            self._state.write_bytes(msgspec.json.encode(WorkerState(key, dict(config))))

        reasons = self._kernels.reasons(task.sources, waiting=self._state.touch)
        start_s = time.monotonic()
        refused = {config_text(config): reason for config, reason in zip(task.configs, reasons, strict=True) if reason}
        pool = self._pool(problem.a.dtype)
        product = PooledProduct(problem, pool, self._launcher, self._device.l2_bytes, task.shape.offset)
        outcome = search(
            RUNG, problem, Candidates(task.configs, len(task.configs), 0, 0),
            PooledMeter(product, self._device, self._stream.handle, refused, begun), self._table,
            compiler=self._compiler, stages=LONG if problem.flops >= LONG_FLOPS else QUICK,
        )  # fmt: skip
        say(f"{task.shape.name}: {_line(outcome, task)} ({time.monotonic() - start_s:.1f} s)")


def _line(outcome: SearchOutcome, task: SearchTask) -> str:
    """One line on a search: the best configuration, its speed, and that of the planner's choice relative to it."""
    failed = sum(entry.time_ms is None for entry in outcome.entries)
    failures = f", {failed} of {len(task.configs)} failed" if failed else ""
    best = outcome.best
    if best is None or best.time_ms is None:
        return f"nothing to show{failures}"
    own = next(entry for entry in outcome.entries if entry.config == dict(task.configs[0]))
    alike = own.time_ms and own.stage == best.stage  # else it was not among the few that ran in turn
    beside = f", the planner's own {best.time_ms / own.time_ms:.3f} of it" if alike and own.time_ms else ""
    speed = task.shape.problem.flops / best.time_ms / 1e9
    return f"{speed:.1f} TFLOP/s, {config_text(best.config)}{beside}{failures}"


# --- the parent ------------------------------------------------------------------------------------------------------


def compile_only(tasks: Sequence[SearchTask], say: Say, processes: int | None = None) -> int:
    """Compile all kernels into the cache, with no GPU; how many do not compile."""
    sources = list(dict.fromkeys(source for task in tasks for source in task.sources))
    start_s, failed = time.monotonic(), 0
    for index, made in compile_ahead(sources, REFERENCE.arch, processes):
        if isinstance(made, str):
            failed += 1
            say(f"{sources[index].name_expression}: {made}")
    say(f"{len(sources)} kernels in {time.monotonic() - start_s:.0f} s, {failed} do not compile")
    return failed


def supervise(suites: Sequence[str], only: Sequence[str], folder: Path, until_s: float, say: Say) -> bool:
    """Run workers until all is searched; False when time ran out."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "warptile.bench.campaign.suite_search",
        str(folder),
        str(until_s),
        *suites,
        "--only",
        *only,
    ]
    state = state_file(folder)
    state.unlink(missing_ok=True)
    while time.time() < until_s - TIME_LEFT_S:
        status = watch(command, state, until_s)
        if status in (0, STATUS_TIME):
            return status == 0
        begun = state.read_bytes() if state.exists() else b""
        if not begun:
            say(f"the worker ended with status {status} before it measured anything")
            return False
        stuck = msgspec.json.decode(begun, type=WorkerState)
        reason = "the worker hung" if status is None else f"the worker ended with status {status}"
        say(f"{reason}: {config_text(stuck.config)}")
        state.unlink()
        if status != STATUS_LOST:  # else the worker noted it itself
            failed = Entry(search=stuck.search, config=stuck.config, stage=0, time_ms=None, failed=reason)
            Table(stuck.search.gpu, folder).append(failed)
    return False


def watch(command: Sequence[str], state: Path, until_s: float) -> int | None:
    """Run a worker that touches ``state`` with all that it begins; its exit status, or None when it hung."""
    process = subprocess.Popen(command, env=dict(os.environ))
    started_s = time.time()
    try:
        while process.poll() is None:
            time.sleep(0.2)
            if time.time() > until_s + TIME_LEFT_S:
                process.kill()
                return STATUS_TIME
            begun_s = max(state.stat().st_mtime if state.exists() else 0.0, started_s + STALL_S)
            if time.time() - begun_s > STALL_S:
                process.kill()
                process.wait()
                return None
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    return process.returncode


def say(text: str) -> None:
    """Progress, at once, on stderr."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def environment_file(folder: Path) -> Path:
    """Where a worker leaves what it ran on: clocks, power, versions."""
    return folder / "environment.json"


def worker(folder: Path, until_s: float, suites: Sequence[str], only: Sequence[str]) -> int:
    """A worker process; its exit status."""
    start_s = time.monotonic()
    with Sampler() as sampler:
        try:
            driver.enter()
            left = work(tasks_of(suites, only, driver.device_info().limits), folder, until_s, say)
        except DeviceError as error:
            say(f"{type(error).__name__}: {error}")
            return STATUS_LOST
        finally:
            environment: Environment = describe(sampler.since(start_s))
            environment_file(folder).write_bytes(msgspec.json.encode(environment))
    return STATUS_TIME if left else 0


if __name__ == "__main__":
    words = sys.argv[3:]
    cut = words.index("--only") if "--only" in words else len(words)
    sys.exit(worker(Path(sys.argv[1]), float(sys.argv[2]), words[:cut], words[cut + 1 :]))
