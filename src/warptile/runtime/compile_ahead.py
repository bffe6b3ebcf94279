"""Compiling many kernels at once, before they are needed, into the cache on disk.

NVRTC releases the interpreter's lock, so threads compile in parallel, and nothing has to be started or pickled.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from warptile.codegen.cache import Cache
from warptile.codegen.nvrtc import cached_kernel, compile_source
from warptile.codegen.translation_unit import Source, translation_unit
from warptile.device import DeviceLimits
from warptile.errors import UnsupportedError, WarptileError
from warptile.planning.addend import Addend
from warptile.planning.plan import Plan
from warptile.runtime.execute import copy_source

State = Literal["compiled", "cached", "failed"]


@dataclass(frozen=True)
class WarmKernel:
    """One kernel that was asked for.

    Attributes:
        name: of the rung, such as ``"wgmma-final"``; ``"repack"`` or ``"addend"`` of launches beside it.
        dtype: type of A and B.
        config: the rung's tunables, of the first of the plans that share the kernel.
        state: ``"compiled"`` now, ``"cached"`` before, or ``"failed"``.
        seconds: that it took.
        error: why it failed, or None.
    """

    name: str
    dtype: str
    config: Mapping[str, int]
    state: State
    seconds: float
    error: str | None = None


@dataclass(frozen=True)
class WarmReport:
    """What `warptile.warm` did.

    Attributes:
        device: name of the GPU whose kernels they are.
        arch: that they were compiled for.
        folder: of the cache that has them.
        seconds: from the first to the last.
        kernels: each translation unit once.
    """

    device: str
    arch: str
    folder: Path
    seconds: float
    kernels: tuple[WarmKernel, ...]

    @property
    def compiled(self) -> tuple[WarmKernel, ...]:
        """The kernels that were compiled now."""
        return self._in_state("compiled")

    @property
    def cached(self) -> tuple[WarmKernel, ...]:
        """The kernels that the cache had."""
        return self._in_state("cached")

    @property
    def failed(self) -> tuple[WarmKernel, ...]:
        """The kernels that do not compile."""
        return self._in_state("failed")

    def _in_state(self, state: State) -> tuple[WarmKernel, ...]:
        return tuple(each for each in self.kernels if each.state == state)


ELSEWHERE = "set WARPTILE_CACHE_DIR to a folder that can be written to"

Progress = Callable[[int, int, WarmKernel], None]
"""Called with the kernels that are done, how many there are, and the last one."""


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compile_ahead(
    plans: Iterable[Plan | Addend], device: DeviceLimits, jobs: int | None = None, progress: Progress | None = None
) -> WarmReport:
    """Put the kernels that plans need into the cache on disk, each once.

    An interrupt ends it after the compilations that are under way; what they made is kept.

    Args:
        plans: for ``device``.
        device: the GPU, or the one that is compiled for.
        jobs: compilations at a time, one for each core by default.
        progress: called after each kernel, in the caller's thread.

    Raises:
        UnsupportedError: the cache keeps nothing; the message has the fix. What is seen only when it is written to, as
            a full disk, fails kernel by kernel.
    """
    cache, begun = Cache(), time.monotonic()
    if problem := cache.problem():
        raise UnsupportedError(f"cache: {problem}")
    wanted: dict[Source, tuple[str, Plan | Addend]] = {}
    for plan in plans:
        for name, source in _named_sources(plan):
            wanted.setdefault(source, (name, plan))
    # The longest first, so that none is left alone at the end: a wrapper's text grows with the tile.
    order = sorted(wanted, key=lambda source: len(source.text), reverse=True)
    done: list[WarmKernel] = []
    pool = ThreadPoolExecutor(jobs or usable_cores(), thread_name_prefix="warptile-warm")
    try:
        futures = [pool.submit(_compile, source, device.arch, *wanted[source]) for source in order]
        for future in as_completed(futures):
            done.append(future.result())
            if progress is not None:
                progress(len(done), len(futures), done[-1])
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return WarmReport(device.name, device.arch, cache.folder, time.monotonic() - begun, tuple(done))


def _named_sources(plan: Plan | Addend) -> list[tuple[str, Source]]:
    """The translation units of all launches of a plan."""
    name = plan.rung.name if isinstance(plan, Plan) else "addend"
    found = [(name, translation_unit(plan.kernel))]
    if plan.kernel.copies:
        found.append(("repack", copy_source(plan.kernel.copies)))
    return found


def _compile(source: Source, arch: str, name: str, plan: Plan | Addend) -> WarmKernel:
    begun = time.monotonic()
    state: State = "cached"
    error = None
    try:
        if cached_kernel(source, arch) is None:
            compile_source(source, arch)
            state = "compiled"
            if cached_kernel(source, arch) is None:
                state = "failed"
                error = f"it compiles, and is not kept in {Cache().folder}: make room there, or {ELSEWHERE}"
    except WarptileError as failure:
        state, error = "failed", str(failure)
    config = dict(plan.config) if isinstance(plan, Plan) else {}
    return WarmKernel(name, plan.problem.a.dtype.name, config, state, time.monotonic() - begun, error)
