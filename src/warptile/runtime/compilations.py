"""Kernels that this process has compiled, and kernels that are compiled in the background while others serve."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from warptile.codegen.nvrtc import CompiledKernel, CompiledPtx, cached_kernel, compile_ptx, compile_source
from warptile.codegen.translation_unit import Source
from warptile.errors import SlowCodeError, UnsupportedError
from warptile.planning.plan import Plan
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config

MODES = ("background", "wait")

MOST_KERNELS = 512
"""Compiled kernels that are kept in memory; the least recently used goes first."""

WORKERS = 2
"""Kernels that are compiled at a time in the background."""

RECENT = 4
"""Configurations that are known as stand-ins: those that served problems of the same kind last."""

NEAREST = 2
"""Of these, how many are adapted and compared: those whose problems were the most like the one that is asked for."""

_log = logging.getLogger("warptile")


def mode() -> str:
    """``WARPTILE_COMPILE``: ``background`` (the default) or ``wait``.

    Raises:
        UnsupportedError: it is something else.
    """
    value = os.environ.get("WARPTILE_COMPILE") or MODES[0]
    if value not in MODES:
        raise UnsupportedError(f"WARPTILE_COMPILE: got {value!r}; it takes background or wait, such as wait")
    return value


class Compilations:
    """Compiled kernels by source and architecture, once each. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[Source, str], CompiledKernel] = OrderedDict()
        self._ptx: OrderedDict[tuple[Source, str], CompiledPtx] = OrderedDict()
        self._under_way: dict[tuple[Source, str], Future[CompiledKernel]] = {}
        self._queued: list[tuple[tuple[Source, str], Future[CompiledKernel]]] = []
        self._failed: set[tuple[Source, str]] = set()
        self._workers: ThreadPoolExecutor | None = None

    def kernel(self, source: Source, arch: str) -> CompiledKernel:
        """The kernel; compiled now if it has to be, and waited for if that is under way.

        Raises:
            CompileError, UnsupportedError: as `compile_source`.
        """
        key = source, arch
        with self._lock:
            known, under_way = self._known.get(key), self._under_way.get(key)
        if known is None:
            self.begin()
            known = _compiled(source, arch) if under_way is None else under_way.result()
        self._keep(key, known)
        return known

    def ptx(self, source: Source, arch: str) -> CompiledPtx:
        """The kernel as the emulator takes it: compiled to PTX alone, unless there is more of it in memory.

        Raises:
            CompileError, UnsupportedError: as `compile_ptx`.
        """
        key = source, arch
        with self._lock:
            known = self._known.get(key) or self._ptx.get(key)
        if known is None:
            known = compile_ptx(source, arch)
            with self._lock:
                self._ptx[key] = known
                if len(self._ptx) > MOST_KERNELS:
                    self._ptx.popitem(last=False)
        return known

    def in_memory(self, source: Source, arch: str) -> bool:
        """Whether `kernel` has it without a look at the disk."""
        with self._lock:
            return (source, arch) in self._known

    def ready(self, source: Source, arch: str) -> bool:
        """Whether `kernel` has it in memory or in the cache on disk."""
        key = source, arch
        with self._lock:
            if key in self._known or key in self._under_way or key in self._failed:
                return key in self._known
        found = _cached(source, arch)
        if found is not None:
            self._keep(key, found)
        return found is not None

    def queue(self, source: Source, arch: str) -> Future[CompiledKernel] | None:
        """What will be the kernel, compiled in the background from the next `begin` on; None where that has failed
        before. The caller calls `begin` when it has launched what serves meanwhile: a compiling thread would take the
        interpreter from it."""
        key = source, arch
        with self._lock:
            if key in self._failed:
                return None
            if key not in self._under_way:
                made: Future[CompiledKernel] = Future()
                self._under_way[key] = made
                made.set_running_or_notify_cancel()
                self._queued.append((key, made))
            return self._under_way[key]

    def begin(self) -> None:
        """Compile in the background what is queued."""
        while self._queued:
            with self._lock:
                if not self._queued:
                    return
                key, made = self._queued.pop(0)
                if self._workers is None:
                    self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="warptile-compile")
            self._workers.submit(self._compile, key, made)

    def _compile(self, key: tuple[Source, str], made: Future[CompiledKernel]) -> None:
        try:
            kernel = _compiled(*key)
        except BaseException as error:
            _log.warning("a kernel does not compile, so another one goes on serving: %s", error)
            with self._lock:
                self._failed.add(key)
                self._under_way.pop(key, None)
            made.set_exception(error)
        else:
            self._keep(key, kernel)
            with self._lock:
                self._under_way.pop(key, None)
            made.set_result(kernel)

    def _keep(self, key: tuple[Source, str], kernel: CompiledKernel) -> None:
        with self._lock:
            self._known[key] = kernel
            self._known.move_to_end(key)
            if len(self._known) > MOST_KERNELS:
                self._known.popitem(last=False)


def _any_code(source: Source) -> Source:
    """The same source, whatever machine code the compiler makes of it."""
    return replace(source, may_spill=True, may_serialise=True)


def _cached(source: Source, arch: str) -> CompiledKernel | None:
    return cached_kernel(source, arch) or cached_kernel(_any_code(source), arch)


def _compiled(source: Source, arch: str) -> CompiledKernel:
    """The kernel, also where its machine code is slower than planned: its results are right."""
    known = _cached(source, arch)
    if known is not None:
        return known
    try:
        return compile_source(source, arch)
    except SlowCodeError as error:
        _log.info("a kernel is slower than planned: %s", error)
        return compile_source(_any_code(source), arch)


class StandIns:
    """Configurations whose kernels are compiled, by kind of problem: what can serve until a problem's own kernel is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._served: dict[tuple[Any, ...], OrderedDict[tuple[tuple[str, int], ...], Problem]] = {}

    def note(self, plan: Plan) -> None:
        """Remember that the kernel of a plan is compiled."""
        with self._lock:
            served = self._served.setdefault(_kind(plan), OrderedDict())
            key = tuple(plan.config.items())
            served[key] = plan.problem
            served.move_to_end(key)
            if len(served) > RECENT:
                served.popitem(last=False)

    def plans_for(self, plan: Plan) -> list[Plan]:
        """Plans for the same problem with the `NEAREST` of those configurations, adapted to it, the least predicted
        time first. Their kernels may still be others, where a template depends on extents; and a launch may have too
        many CTAs."""
        with self._lock:
            served = list(self._served.get(_kind(plan), {}).items())
        served.sort(key=lambda each: _distance(each[1], plan.problem))
        rung, found = plan.rung, []
        for config, problem in served[:NEAREST]:
            extents = problem.m, problem.n, problem.k, problem.batch
            made: Config = rung.adapt(plan.problem, dict(config), extents, plan.device, plan.device)
            if rung.illegal(plan.problem, made, plan.device) is None:
                time = rung.estimate_us(plan.problem, made, plan.device) if rung.estimates else 0.0
                origin = "compiled already, while the planned kernel compiles"
                found.append((time, Plan(plan.problem, rung, made, origin, plan.device, plan.asked)))
        return [each for _, each in sorted(found, key=lambda each: each[0])]


def _distance(served: Problem, asked: Problem) -> float:
    """How unlike the extents of two problems are: the sum of |log2| of their ratios."""
    ratios = ((served.m, asked.m), (served.n, asked.n), (served.k, asked.k), (served.batch, asked.batch))
    return sum(abs(math.log2(max(ours, 1) / max(theirs, 1))) for ours, theirs in ratios)


def _kind(plan: Plan) -> tuple[Any, ...]:
    """What plans have in common whose kernels may differ in tiles and schedules alone."""
    problem = plan.problem
    operands = (problem.a, problem.b, problem.d)
    return (
        plan.rung.name, plan.arch, problem.accumulator.name, problem.c is not None, problem.batch > 1,
        *((each.dtype.name, each.major, each.alignment_bytes) for each in operands),
    )  # fmt: skip
