"""Search many problems in little time on the GPU: `warptile tune --suite`.

Each problem has a short list of configurations (`warptile.rungs.wgmma_shortlist`). Kernels are compiled by other
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

from warptile.bench.environment import Sampler, describe
from warptile.bench.measurements import Environment, ProblemKey
from warptile.bench.pool import Pool, PooledProduct
from warptile.bench.suites import SUITES, row_name
from warptile.bench.workloads import to_problem
from warptile.compile import compiler_version
from warptile.device_product import Launcher, runner_for
from warptile.dtypes import DType
from warptile.errors import CompileError, DeviceError
from warptile.gpu import driver
from warptile.gpu.timing import Runner
from warptile.plan import config_text, make_plan
from warptile.problem import Problem
from warptile.rungs import RUNGS
from warptile.rungs.rung import Config
from warptile.rungs.wgmma_shortlist import shortlist
from warptile.source import Source, translation_unit
from warptile.tune import Candidates, Outcome, Stage, compile_ahead, search
from warptile.tuned import LIKE, Entry, ProblemClass, Search, Table, source_of

RUNG = RUNGS["wgmma-final"]
ARCH = "sm_90a"

QUICK = (Stage(64, 8.0), Stage(4, 60.0, rounds=3))
LONG = (Stage(64, 20.0), Stage(5, 150.0, rounds=3))
"""Stages for problems that do not meet the power limit, and for those that do."""

LONG_FLOPS = 2.0**35
"""Operations from which a product meets the power limit if it runs for long."""

WARM_UP_MS = 300.0
"""How long the first configuration of a problem that meets the limit runs before anything is timed."""

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
class Shape:
    """One problem of a suite: its name in the suite's words, and elements by which all matrices are displaced."""

    name: str
    problem: Problem
    offset: int = 0


@dataclass(frozen=True)
class Task:
    """One problem with what is tried on it."""

    shape: Shape
    configs: tuple[Config, ...]
    sources: tuple[Source, ...]

    @staticmethod
    def of(shape: Shape) -> Task:
        """The short list of a problem."""
        configs = shortlist(shape.problem, RUNG.illegal)
        return Task(shape, configs, tuple(translation_unit(RUNG, shape.problem, config) for config in configs))


def shapes(suites: Sequence[str]) -> tuple[Shape, ...]:
    """The problems of some suites, and those beside which they are shown, each once. Left out are sparse ones, those of
    fewer multiprocessors, and those of types that cost what others do (`warptile.tuned.LIKE`). Problems of one row come
    last: those of eight serve them."""
    found: dict[object, Shape] = {}
    for row in (row for suite in suites for row in SUITES[suite] if not row.problem.sparse):
        for key, offset in ((row.problem, row.offset), (row.beside, 0)):
            if key is not None:
                problem = to_problem(key, offset=offset)
                found.setdefault(_like(key, offset), Shape(row_name(key, offset), problem, offset))
    return tuple(sorted(found.values(), key=lambda shape: shape.problem.m == 1))


def _like(key: ProblemKey, offset: int) -> object:
    dtype, out = (LIKE.get(name, name) for name in (key.dtype, key.out))
    return msgspec.structs.replace(key, dtype=dtype, out=out), offset


def tasks_of(suites: Sequence[str], only: Sequence[str] = ()) -> list[Task]:
    """The problems of some suites, or those of which the name has one of some words."""
    chosen = [shape for shape in shapes(suites) if not only or any(word in shape.name for word in only)]
    return [Task.of(shape) for shape in chosen]


class Kernels:
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

    def __enter__(self) -> Kernels:
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
    """`warptile.tune.Meter` on a product whose operands lie in a pool.

    A product that meets the power limit first has the chip warmed up by its first configuration. The brief look at each
    other one follows a look at that first one, and is their ratio: all are compared on a chip in one state.
    """

    def __init__(
        self, product: PooledProduct, stream: int, refused: Mapping[str, str], begun: Callable[[Config], None]
    ) -> None:
        self._product, self._stream, self._refused, self._begun = product, stream, refused, begun
        self._runners: dict[str, tuple[Runner, float]] = {}
        self._long = product.problem.flops >= LONG_FLOPS
        self._first: tuple[str, float] | None = None

    def _plan(self, config: Config) -> Any:
        return make_plan(self._product.problem, rung=RUNG.name, config=config, arch=ARCH)

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
        return isinstance(error, DeviceError) and "context is lost" in str(error)


class Doing(msgspec.Struct, frozen=True):
    """What a worker is at, on disk for its parent."""

    search: Search
    config: dict[str, int]


def doing_file(folder: Path) -> Path:
    """Where a worker writes what it is at."""
    return folder / "doing.json"


def work(tasks: Sequence[Task], folder: Path, until_s: float, say: Say, processes: int | None = None) -> int:
    """Search all tasks until ``until_s`` of the clock; the number of those left.

    Raises:
        DeviceError: the GPU's context was lost; what was measured before is kept.
    """
    driver.enter()
    device = driver.device_info()
    done = 0
    processes = processes or max((os.cpu_count() or 1) - RESERVED_CORES, 1)
    with Kernels([source for task in tasks for source in task.sources], ARCH, processes) as kernels:
        desk = _Desk(tasks, Table(device.name, folder), kernels, doing_file(folder), device.l2_bytes)
        for task in tasks:
            if time.time() > until_s - TIME_LEFT_S:
                break
            desk.search(task, say)
            done += 1
    return len(tasks) - done


class _Desk:
    """What the searches of a worker share."""

    def __init__(self, tasks: Sequence[Task], table: Table, kernels: Kernels, doing: Path, l2_bytes: int) -> None:
        self._tasks, self._table, self._kernels, self._doing, self._l2_bytes = tasks, table, kernels, doing, l2_bytes
        self._compiler, self._launcher, self._stream = compiler_version(), Launcher(), driver.Stream()
        self._pools: dict[str, Pool] = {}

    def _pool(self, element: DType) -> Pool:
        if element.name not in self._pools:
            alike = [task.shape.problem for task in self._tasks if task.shape.problem.a.dtype == element]
            self._pools[element.name] = Pool(element, alike, self._l2_bytes)
        return self._pools[element.name]

    def search(self, task: Task, say: Say) -> None:
        """One problem."""
        problem = task.shape.problem
        key = Search(self._table.gpu, self._compiler, RUNG.name, source_of(RUNG), ProblemClass.of(problem))

        def begun(config: Config) -> None:
            self._doing.write_bytes(msgspec.json.encode(Doing(key, dict(config))))

        reasons = self._kernels.reasons(task.sources, waiting=self._doing.touch)
        start_s = time.monotonic()
        refused = {config_text(config): reason for config, reason in zip(task.configs, reasons, strict=True) if reason}
        product = PooledProduct(problem, self._pool(problem.a.dtype), self._launcher, self._l2_bytes, task.shape.offset)
        outcome = search(
            RUNG, problem, Candidates(task.configs, len(task.configs), 0, 0),
            PooledMeter(product, self._stream.handle, refused, begun), self._table, compiler=self._compiler,
            stages=LONG if problem.flops >= LONG_FLOPS else QUICK,
        )  # fmt: skip
        say(f"{task.shape.name}: {_line(outcome, task)} ({time.monotonic() - start_s:.1f} s)")


def _line(outcome: Outcome, task: Task) -> str:
    """The winner, its speed, and the planner's own choice beside it."""
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


def compile_only(tasks: Sequence[Task], say: Say, processes: int | None = None) -> int:
    """Compile all kernels into the cache, with no GPU; how many do not compile."""
    sources = list(dict.fromkeys(source for task in tasks for source in task.sources))
    start_s, failed = time.monotonic(), 0
    for index, made in compile_ahead(sources, ARCH, processes):
        if isinstance(made, str):
            failed += 1
            say(f"{sources[index].name_expression}: {made}")
    say(f"{len(sources)} kernels in {time.monotonic() - start_s:.0f} s, {failed} do not compile")
    return failed


def supervise(suites: Sequence[str], only: Sequence[str], folder: Path, until_s: float, say: Say) -> bool:
    """Run workers until all is searched; False when time ran out."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "warptile.bench.tuning", str(folder), str(until_s), *suites, "--only", *only]
    doing = doing_file(folder)
    doing.unlink(missing_ok=True)
    while time.time() < until_s - TIME_LEFT_S:
        status = _watch(command, doing, until_s)
        if status in (0, STATUS_TIME):
            return status == 0
        begun = doing.read_bytes() if doing.exists() else b""
        if not begun:
            say(f"the worker ended with status {status} before it measured anything")
            return False
        stuck = msgspec.json.decode(begun, type=Doing)
        reason = "the worker hung" if status is None else f"the worker ended with status {status}"
        say(f"{reason}: {config_text(stuck.config)}")
        doing.unlink()
        if status != STATUS_LOST:  # else the worker noted it itself
            failed = Entry(search=stuck.search, config=stuck.config, stage=0, time_ms=None, failed=reason)
            Table(stuck.search.gpu, folder).append(failed)
    return False


def _watch(command: Sequence[str], doing: Path, until_s: float) -> int | None:
    """Run a worker; its exit status, or None when it hung."""
    process = subprocess.Popen(command, env=dict(os.environ))
    started_s = time.time()
    try:
        while process.poll() is None:
            time.sleep(0.2)
            if time.time() > until_s + TIME_LEFT_S:
                process.kill()
                return STATUS_TIME
            begun_s = max(doing.stat().st_mtime if doing.exists() else 0.0, started_s + STALL_S)
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
            left = work(tasks_of(suites, only), folder, until_s, say)
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
