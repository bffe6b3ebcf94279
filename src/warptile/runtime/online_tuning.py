"""Tuning in the running program (``WARPTILE_AUTOTUNE=on``): the first calls of a problem try a few configurations.

A problem whose planned kernel is compiled gets a few configurations: the planned one and those of the least predicted
times. One background thread compiles and loads their kernels, one at a time; until all are there, calls run the planned
kernel as ever. Then each call runs one of them, in turns, between two events on its stream that nobody waits for; later
calls ask whether the GPU has passed them. When the times decide, the fastest is settled on and written to this user's
table, where plans find it from then on, in this process and in later ones. When they do not, the planned one stays for
the rest of the process, and nothing is written.

How times are taken and compared is said in `warptile.runtime.trials`.

Each of these calls computes the result that it was asked for. With ``on`` only configurations whose results have the
same bits are tried (`warptile.planning.accumulation_order`), with ``on,any`` all.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from math import prod
from pathlib import Path
from queue import SimpleQueue

from warptile.arrays.operands import Product
from warptile.errors import DeviceError, UnsupportedError, WarptileError
from warptile.gpu import driver, stream_state
from warptile.gpu.launch_timer import LaunchTimer
from warptile.planning import accumulation_order, tuned_table
from warptile.planning.plan import Plan
from warptile.planning.tuned_table import ON, ON_ANY, Entry, ProblemClass, Search, Table, source_of
from warptile.problem import Problem
from warptile.runtime import execute
from warptile.runtime.bound_call import BoundCall, Launch
from warptile.runtime.execute import GpuBackend
from warptile.runtime.trials import Trial, Trials

MOST_PROBLEMS, IDLE_S = 32, 10.0
"""Problems that are tuned at a time. A further one takes the place of one that was not called for `IDLE_S`; if there is
none, it is tuned when its call is planned anew."""

MOST_SETTLED = 4096
"""Outcomes that are kept in memory; the oldest goes first."""

Key = tuple[int, Problem, str, Path]
"""GPU, problem, mode, and folder of the table."""

_log = logging.getLogger("warptile")


class OnlineTuning:
    """What is known of one problem while it is tuned. Any thread may use it."""

    def __init__(self, key: Key, plan: Plan, backend: GpuBackend) -> None:
        self._key, self._backend = key, backend
        self._trials = Trials(plan)
        self._pending: deque[tuple[Trial, bool, LaunchTimer]] = deque()
        self._lock = threading.Lock()
        self._begun, self._called_at_s = False, time.monotonic()
        self._compiled: Future[None] = Future()
        self._settled: Future[None] = Future()
        self._state_of = stream_state.state_function()

    @property
    def idle(self) -> bool:
        """Whether nobody calls it. While kernels are compiled, calls do not come here."""
        return (self._compiled.done() or not self._begun) and time.monotonic() - self._called_at_s > IDLE_S

    def begin(self) -> None:
        """Compile the other kernels in the background. Called when the first call has been launched, as a compiling
        thread takes the interpreter from it."""
        with self._lock:
            begun, self._begun = self._begun, True
        if not begun:
            _BACKGROUND.put(self)

    def compile(self, stopping: threading.Event) -> None:
        """Choose the configurations; compile and load their kernels. ``stopping``: leave off where the next begins."""
        try:
            self._trials.add_others(any_order=self._key[2] == ON_ANY)
        except WarptileError as error:
            _log.info("nothing is tried for a problem: %s", error)
        for trial in self._trials.tried[1:]:
            if stopping.is_set():
                return
            try:
                for source in execute.sources(trial.plan):
                    kernel = execute.KERNELS.kernel(source, trial.plan.arch)
                    with driver.on_device(self._backend.info.ordinal), driver.outside_captures():
                        self._backend.load(kernel)
            except Exception as error:  # whatever it is, the planned kernel serves
                trial.drop(error)
        self._called_at_s = time.monotonic()
        self._compiled.set_result(None)

    def applied(
        self, found: BoundCall, bound: Callable[[Plan], BoundCall | None]
    ) -> tuple[BoundCall, Future[None] | None]:
        """The planned kernel's bound call ``found``, or one that tries all kernels, and until when to keep it.
        ``bound`` binds the call for another plan."""
        if self._settled.done():
            return found, None
        if not self._compiled.done():
            return found, self._compiled
        launches = {0: found.launch}
        for number, trial in enumerate(self._trials.tried):
            if number and trial.alive:
                try:
                    arch, sources = trial.plan.arch, execute.sources(trial.plan)
                    ready = all(execute.KERNELS.in_memory(each, arch) for each in sources)
                    other = bound(trial.plan) if ready else None
                except WarptileError as error:
                    _log.debug("%s", error)
                    other = None
                if other is None:
                    trial.drop("its launch cannot be bound")
                else:
                    launches[number] = other.launch

        def launch(stream: int, a: int, b: int, c: int, d: int) -> int:
            return self._launched(launches, stream, a, b, c, d)

        return replace(found, launch=launch), self._settled

    def _launched(self, launches: dict[int, Launch], stream: int, a: int, b: int, c: int, d: int) -> int:
        """One call: the next configuration between two events, but where the stream is captured or another thread is
        here the best that is known."""
        known = launches.get(self._trials.best, launches[0])
        captured = stream_state.is_captured(self._state_of(stream))
        if captured or self._settled.done() or not self._lock.acquire(blocking=False):
            return known(stream, a, b, c, d)
        try:
            self._called_at_s = time.monotonic()
            with driver.on_device(self._backend.info.ordinal), driver.outside_captures():
                return self._timed(launches, stream, a, b, c, d)
        finally:
            self._lock.release()

    def _timed(self, launches: dict[int, Launch], stream: int, a: int, b: int, c: int, d: int) -> int:
        planned = launches[0]
        try:
            self._collect()
            number = self._trials.next(launches.keys(), waiting=bool(self._pending))
            if number is None or self._settled.done():  # by a thread that was here a moment ago
                if self._trials.over and not self._settled.done():
                    self._settle()
                return planned(stream, a, b, c, d)
            timer = LaunchTimer(self._backend.info.ordinal, stream)
        except DeviceError as error:
            self._give_up(error)
            return planned(stream, a, b, c, d)
        trial = self._trials.tried[number]
        trial.launches += 1
        status = launches[number](stream, a, b, c, d)
        if status and number:
            trial.drop(f"the driver refuses its launch with status {status}")
            return planned(stream, a, b, c, d)
        try:
            timer.stop(stream)
            self._pending.append((trial, trial.launches > 1, timer))
        except DeviceError as error:
            self._give_up(error)
        return status

    def _collect(self) -> None:
        """Take the times that are there, without waiting."""
        while self._pending:
            trial, counts, timer = self._pending[0]
            elapsed_ms = timer.elapsed_ms()
            if elapsed_ms is None:
                return
            self._pending.popleft()
            if counts:
                trial.take(elapsed_ms, queued=timer.queued)

    def _settle(self) -> None:
        trials = self._trials
        best = trials.tried[trials.best]
        if trials.certain and len(trials.measured) > 1:
            self._write()
        elif len(trials.measured) > 1:
            _log.info("nothing is certain after %d rounds: the planned configuration stays for now", trials.round)
        origin = f"tuned for this problem on this {self._backend.info.name}, measured in this process"
        self._end(replace(best.plan, origin=origin) if trials.best else best.plan)

    def _write(self) -> None:
        """Add all that was measured to the user's table, with one write."""
        trials, gpu, folder = self._trials, self._backend.info.name, self._key[3]
        plan = trials.tried[trials.best].plan
        compiler = execute.compiled(plan).compiler
        search = Search(gpu, compiler, plan.rung.name, source_of(plan.rung), ProblemClass.of(plan.problem))
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        entries = [
            Entry(
                search=search, config=dict(trials.tried[number].plan.config), stage=0, time_ms=trials.time_ms(number),
                rounds_ms=tuple(each.elapsed_ms for each in trials.tried[number].samples), winner=winner, date=now,
                online=True,
            )
            for number, winner in (*((each, False) for each in trials.measured), (trials.best, True))
        ]  # fmt: skip
        try:
            Table(gpu, folder).append(*entries)
        except UnsupportedError as error:
            _say_not_written(str(error))

    def _give_up(self, error: DeviceError) -> None:
        """Leave the planned kernel in place: there are no times here."""
        _log.info("a problem is not tuned, its planned kernel stays: %s", error)
        self._pending.clear()
        self._end(self._trials.tried[0].plan)

    def _end(self, plan: Plan) -> None:
        with _lock:
            _under_way.pop(self._key, None)
            _outcomes[self._key] = plan
            if len(_outcomes) > MOST_SETTLED:
                _outcomes.popitem(last=False)
        self._settled.set_result(None)


@lru_cache
def _say_not_written(error: str) -> None:
    _log.warning("what was tuned serves this process alone: %s", error)


# --- problems --------------------------------------------------------------------------------------------------------

_lock = threading.Lock()
_under_way: dict[Key, OnlineTuning] = {}
_outcomes: OrderedDict[Key, Plan] = OrderedDict()


def tuning_of(plan: Plan, product: Product, backend: GpuBackend) -> tuple[Plan, OnlineTuning | None]:
    """The plan to run in the place of ``plan``, for which no rung was asked, and the tuning of its problem while that
    is under way: of a call on arrays in GPU memory that is one GEMM on the whole GPU."""
    mode = tuned_table.mode()
    if mode not in (ON, ON_ANY) or not plan.rung.estimates or plan.problem.batch_invariant:
        return plan, None  # a table's outcomes are those of problems that allow every configuration
    if mode == ON and not accumulation_order.is_known(plan.rung):
        return plan, None  # no other configuration is known to have the same bits
    if plan.problem.b.quantized is not None or plan.problem.b.sliced or plan.problem.a.sparse:
        return plan, None  # nothing that a call with arrays alone would find again
    if product.like.device is None or prod(product.batch) != plan.problem.batch or plan.device.max_ctas is not None:
        return plan, None
    key = backend.info.ordinal, plan.problem, mode, tuned_table.folder()
    tuned = tuned_table.lookup(plan.rung, plan.problem, backend.info.name, device=plan.device)
    with _lock:
        if tuned is not None and tuned.of_user:
            _under_way.pop(key, None)
            return plan, None
        if key in _outcomes:
            return _outcomes[key], None
        tuning = _under_way.get(key)
        if tuning is None:
            for other in [other for other, each in _under_way.items() if each.idle]:
                del _under_way[other]
            if len(_under_way) < MOST_PROBLEMS:
                tuning = _under_way[key] = OnlineTuning(key, plan, backend)
        return plan, tuning


def forget() -> None:
    """Forget what this process tuned and is tuning; the table stays."""
    with _lock:
        _under_way.clear()
        _outcomes.clear()


# --- compiling -------------------------------------------------------------------------------------------------------


class _Background:
    """A thread that compiles for one problem after the other. At exit only the kernel under way is waited for."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[OnlineTuning | None] = SimpleQueue()
        self._stopping, self._lock = threading.Event(), threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, tuning: OnlineTuning) -> None:
        self._waiting.put(tuning)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="warptile-tune", daemon=True)
                self._thread.start()
                atexit.register(self._stop)

    def _work(self) -> None:
        while (tuning := self._waiting.get()) is not None:
            if not self._stopping.is_set():
                tuning.compile(self._stopping)

    def _stop(self) -> None:
        self._stopping.set()
        self._waiting.put(None)
        if self._thread is not None:
            self._thread.join()


_BACKGROUND = _Background()
