"""Measures the rows of a feature suite: results are checked, then all participants of a row take turns.

Every participant is a CUDA graph of a few milliseconds, so that no host time is in it. Graphs are replayed one after
the other, in rounds of alternating order, so that what one does to the clock is in all.
"""

from __future__ import annotations

import gc
import importlib
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

import msgspec

import warptile as wt
from warptile.bench.feature_suites.feature_row import FeatureCall, FeatureRow, OperandMaker, Run
from warptile.bench.protocol.feature_times import CallTime, FeatureTimes
from warptile.errors import UnsupportedError
from warptile.planning.plan import Plan, config_text

ROUNDS, BRIEF_ROUNDS = 15, 7
TURN_MS = 4.0
"""GPU time of a participant in a round."""
WARM_UP_MS = 200.0
"""GPU time of a row before its first round."""
LOOKS = 3
"""Calls whose time is taken to size a turn."""
MOST_LAUNCHES = 1024
MOST_SAID = 200
"""Characters of a failure's reason."""


def here() -> OperandMaker:
    """The GPU of torch.

    Raises:
        UnsupportedError: torch is not installed, or has no GPU.
    """
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as error:
        raise UnsupportedError("torch is not installed; pip install 'warptile[torch]' adds it") from error
    if not torch.cuda.is_available():
        raise UnsupportedError(
            f"torch {torch.__version__} sees no GPU; install one built for CUDA, such as pip install 'warptile[torch]'"
        )
    return OperandMaker(torch, "cuda", torch.cuda.get_device_properties(0).L2_cache_size, torch.cuda.Stream())


@contextmanager
def compiled_first() -> Iterator[None]:
    """Calls wait for the kernel that is planned, instead of being served by another meanwhile."""
    before = os.environ.get("WARPTILE_COMPILE")
    os.environ["WARPTILE_COMPILE"] = "wait"
    try:
        yield
    finally:
        if before is None:
            del os.environ["WARPTILE_COMPILE"]
        else:
            os.environ["WARPTILE_COMPILE"] = before


def compile_all(maker: OperandMaker, rows: Iterable[FeatureRow]) -> None:
    """Compile the kernels of all rows in parallel. A row that cannot be made fails when it is measured."""
    plans, few = [], OperandMaker(maker.torch, maker.device)
    for row in rows:
        try:
            made = row.make(few)
        except Exception:  # it is raised, and recorded, again
            continue
        plans += [each.plan for each in made if each.plan is not None]
    wt.warm(plans)


def measure(maker: OperandMaker, row: FeatureRow, *, rounds: int = ROUNDS) -> FeatureTimes:
    """Check and time the participants of a row. What fails is in the result with its reason."""
    described = FeatureTimes(row=row.name, read_bytes=row.read_bytes)
    try:
        made = row.make(maker)
    except Exception as error:  # whatever the first use of a GPU raises
        return msgspec.structs.replace(described, failed=reason(error))
    runs: list[Run | None] = []
    times: list[CallTime] = []
    for participant in made:
        run, time = prepared(maker, participant)
        runs.append(run)
        times.append(time)
    if runs[0] is None:
        return msgspec.structs.replace(described, times=tuple(times), failed=times[0].failed)
    timed = [index for index, run in enumerate(runs) if run is not None]
    graphs: list[_Turn] = []
    with _no_collection():
        for index in tuple(timed):
            try:
                graphs.append(_turn(maker, runs[index], made[index].sets))
            except Exception as error:  # a call that cannot be captured
                timed.remove(index)
                times[index] = msgspec.structs.replace(times[index], failed=reason(error))
    if times[0].failed:
        return msgspec.structs.replace(described, times=tuple(times), failed=times[0].failed)
    try:
        rounds_us = _rounds(maker.torch, graphs, rounds)
    except Exception as error:  # of a launch, when the GPU is waited for
        return msgspec.structs.replace(described, times=tuple(times), failed=reason(error))
    for index, found in zip(timed, rounds_us, strict=True):
        times[index] = msgspec.structs.replace(times[index], rounds_us=tuple(found))
    return msgspec.structs.replace(described, times=tuple(times))


def reason(error: Exception) -> str:
    """What went wrong, in one line that a table has room for."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {shorten(lines[0] if lines else '', MOST_SAID, placeholder='...')}"


def prepared(maker: OperandMaker, participant: FeatureCall) -> tuple[Run | None, CallTime]:
    """The call, and what is known of it before it is timed; no call where it failed or its result is wrong."""
    plan = participant.plan
    chosen = plan.plan if plan is not None and isinstance(plan.plan, Plan) else None
    config = f"{chosen.rung.name} {config_text(chosen.config)}" if chosen is not None else ""
    time = CallTime(name=participant.name, config=config, sets=participant.sets)
    try:
        run = participant.prepare()
        found = run(0)
        if participant.reference is not None:
            error = participant.reference.error_of(found)
            time = msgspec.structs.replace(time, error=error if math.isfinite(error) else None)
            if not error <= 1:
                return None, msgspec.structs.replace(time, failed=f"wrong result: {error:.3g} of the allowed error")
        said = participant.complaint(found) if participant.complaint is not None else ""
    except Exception as error:  # whatever another library raises
        return None, msgspec.structs.replace(time, failed=reason(error))
    return (None, msgspec.structs.replace(time, failed=said)) if said else (run, time)


@dataclass(frozen=True)
class _Turn:
    """A graph of some calls.

    Attributes:
        graph: torch's.
        launches: calls in it.
        about_ms: its time, roughly.
    """

    graph: Any
    launches: int
    about_ms: float


def launches_of(one_ms: float, sets: int) -> int:
    """Calls of a turn: whole rotations through the operand sets, unless a turn is shorter than one."""
    wanted = max(1, min(MOST_LAUNCHES, round(TURN_MS / max(one_ms, 1e-4))))
    return wanted if wanted < sets else sets * round(wanted / sets)


@contextmanager
def _no_collection() -> Iterator[None]:
    """A graph that is collected during a capture invalidates it."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _turn(maker: OperandMaker, run: Any, sets: int) -> _Turn:
    torch = maker.torch
    torch.cuda.synchronize()
    with torch.cuda.stream(maker.stream):  # workspaces belong to a stream: they are made before the capture
        for index in range(sets):
            run(index)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for index in range(LOOKS):
            run(index % sets)
        end.record()
    torch.cuda.synchronize()
    one_ms = begin.elapsed_time(end) / LOOKS
    launches = launches_of(one_ms, sets)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=maker.stream):
        for index in range(launches):
            run(index % sets)
    return _Turn(graph, launches, launches * one_ms)


def order_of(count: int, number: int) -> Sequence[int]:
    """In which order participants take their turns in a round: every other one is reversed."""
    return range(count) if number % 2 == 0 else range(count - 1, -1, -1)


def _rounds(torch: Any, turns: Sequence[_Turn], rounds: int) -> list[list[float]]:
    """Microseconds of a call in each round, by participant. The GPU is waited for once, so that it is never idle."""
    for _ in range(max(1, math.ceil(WARM_UP_MS / sum(each.about_ms for each in turns)))):
        for each in turns:
            each.graph.replay()
    events = []
    for number in range(rounds):
        for index in order_of(len(turns), number):
            pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            pair[0].record()
            turns[index].graph.replay()
            pair[1].record()
            events.append((index, pair))
    torch.cuda.synchronize()
    found: list[list[float]] = [[] for _ in turns]
    for index, (begin, end) in events:
        found[index].append(begin.elapsed_time(end) * 1e3 / turns[index].launches)
    return found
