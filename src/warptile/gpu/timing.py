"""Timing of kernels on the GPU, with comparable figures.

Events around batches of launches; graph replay for kernels so short that gaps between launches would count; operand
sets rotated so that small problems are not served from L2; candidates interleaved in rounds, as one candidate's run
heats the next one's; a regime that is named: *sustained*, each candidate half a second a round on a chip that has
warmed up, or *cool*, short bursts with pauses. Figures are medians over the rounds, with their spread.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from warptile.errors import DeviceError, UnsupportedError
from warptile.gpu import driver

Launch = Callable[[int, int], None]
"""Queues one launch: ``launch(operand_set, stream)``; operand sets are numbered from 0."""

GRAPH_BELOW_MS = 0.020
"""Kernels shorter than this are timed by graph replay."""

HOST_BOUND = 0.5
"""So are kernels whose launch costs the host more than this part of their time."""

_BATCH_MS = 10.0
_GRAPH_MS = 1.0
_MOST_LAUNCHES = 4096
_HOST_LAUNCHES = 64
_L2_SIZES = 4


@dataclass(frozen=True)
class Schedule:
    """How the launches of a comparison are spread over time.

    Attributes:
        regime: its name, ``"sustained"`` or ``"cool"``.
        rounds: how often every candidate has its turn.
        turn_ms: GPU time of one burst of a turn.
        bursts: bursts of a turn, each after a pause where there is one; a turn's figure is their median.
        pause_s: idle time before each burst.
        warm_up_ms: GPU time spent on the candidates before the first round.
    """

    regime: str
    rounds: int = 3
    turn_ms: float = 500.0
    bursts: int = 1
    pause_s: float = 0.0
    warm_up_ms: float = 1000.0

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.bursts < 1 or not self.turn_ms > 0:
            raise UnsupportedError(
                f"schedule: rounds={self.rounds}, bursts={self.bursts}, turn_ms={self.turn_ms} measure nothing; "
                f"each must be positive, such as Schedule('sustained', rounds=3, turn_ms=500)"
            )


SUSTAINED = Schedule("sustained")
COOL = Schedule("cool", turn_ms=10.0, bursts=5, pause_s=0.2, warm_up_ms=0.0)


@dataclass(frozen=True)
class Candidate:
    """One thing to time: how to queue a launch, and how many operand sets it rotates through."""

    launch: Launch
    sets: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.sets <= _MOST_LAUNCHES:
            raise UnsupportedError(f"sets: got {self.sets}; a candidate rotates 1 to {_MOST_LAUNCHES} operand sets")


@dataclass(frozen=True)
class Timing:
    """What was measured for one candidate.

    Attributes:
        regime: the schedule's regime.
        method: ``"events"`` or ``"graph"``.
        sets: operand sets rotated through.
        launches: launches that were timed.
        rounds_ms: milliseconds of one launch, one figure a round.
        host_us: microseconds that the host needs to queue one launch.
    """

    regime: str
    method: str
    sets: int
    launches: int
    rounds_ms: tuple[float, ...]
    host_us: float

    @property
    def median_ms(self) -> float:
        """Median over the rounds."""
        return statistics.median(self.rounds_ms)

    @property
    def spread(self) -> float:
        """Slowest minus fastest round, over the median."""
        return (max(self.rounds_ms) - min(self.rounds_ms)) / self.median_ms

    def tflops(self, flops: float) -> float:
        """TFLOP/s of ``flops`` operations a launch, at the median."""
        return flops / self.median_ms / 1e9


@dataclass(frozen=True)
class Ratio:
    """Speed of a candidate over a baseline's: median, lowest and highest of the rounds' own ratios."""

    median: float
    low: float
    high: float


def speed_ratio(candidate: Timing, baseline: Timing) -> Ratio:
    """How much faster ``candidate`` is than ``baseline``, round against the same round.

    Raises:
        UnsupportedError: they were not measured in the same rounds of one regime.
    """
    if len(candidate.rounds_ms) != len(baseline.rounds_ms) or candidate.regime != baseline.regime:
        raise UnsupportedError(
            f"ratio: {len(candidate.rounds_ms)} {candidate.regime} rounds against {len(baseline.rounds_ms)} "
            f"{baseline.regime} ones; time both in one call of compare()"
        )
    ratios = [base / own for own, base in zip(candidate.rounds_ms, baseline.rounds_ms, strict=True)]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios))


def operand_sets(bytes_per_set: int, l2_bytes: int) -> int:
    """Operand sets to rotate through so that each is used again only after four L2 sizes of other data."""
    return min(max(1, math.ceil(_L2_SIZES * l2_bytes / max(bytes_per_set, 1))), _MOST_LAUNCHES)


class Runner(Protocol):
    """Runs a candidate on the GPU and says how long that took there."""

    method: str

    def run(self, launches: int) -> tuple[float, int]:
        """At least ``launches`` launches, one after the other: milliseconds in all, and how many they were."""
        ...  # pragma: no cover


class EventRunner:
    """Launches one by one, between two events."""

    method = "events"

    def __init__(self, candidate: Candidate, stream: int) -> None:
        self._candidate = candidate
        self._stream = stream
        self._next = 0
        self._start, self._end = driver.Event(), driver.Event()

    def run(self, launches: int) -> tuple[float, int]:
        """As `Runner.run`."""
        self.queue(launches)
        self._end.synchronize()
        return self._start.elapsed_ms(self._end), launches

    def queue(self, launches: int) -> None:
        """Queue the launches with their events and return at once."""
        launch, sets, stream = self._candidate.launch, self._candidate.sets, self._stream
        self._start.record(stream)
        for position in range(self._next, self._next + launches):
            launch(position % sets, stream)
        self._end.record(stream)
        self._next = (self._next + launches) % sets


class GraphRunner:
    """Replays a graph of many launches, between two events, so that the host's work between launches does not count."""

    method = "graph"

    def __init__(self, candidate: Candidate, stream: int, launches: int) -> None:
        """Record about ``launches`` launches: whole rotations through the operand sets."""
        self._stream = stream
        self._unit = candidate.sets * max(1, math.ceil(launches / candidate.sets))
        with driver.Graph.capture(stream) as made:
            for position in range(self._unit):
                candidate.launch(position % candidate.sets, stream)
        self._graph = made[0]
        self._start, self._end = driver.Event(), driver.Event()
        self.run(1)  # the first replay uploads the graph

    def run(self, launches: int) -> tuple[float, int]:
        """As `Runner.run`, rounded up to whole graphs."""
        replays = max(1, math.ceil(launches / self._unit))
        self._start.record(self._stream)
        for _ in range(replays):
            self._graph.launch(self._stream)
        self._end.record(self._stream)
        self._end.synchronize()
        return self._start.elapsed_ms(self._end), replays * self._unit


def _burst(runner: Runner, estimate_ms: float, burst_ms: float) -> tuple[float, int]:
    """Batches until ``burst_ms`` of GPU time have passed: milliseconds in all, and launches."""
    total_ms, total = 0.0, 0
    while total_ms < burst_ms:
        batch_ms = min(_BATCH_MS, burst_ms)
        wanted = min(max(1, round(batch_ms / estimate_ms)), _MOST_LAUNCHES)
        elapsed_ms, launches = runner.run(wanted)
        if not elapsed_ms > 0:
            raise DeviceError(f"timing: {launches} launches took {elapsed_ms} ms on the GPU's clock; time more work")
        total_ms += elapsed_ms
        total += launches
        estimate_ms = elapsed_ms / launches
    return total_ms, total


def take_turns(
    runners: Mapping[str, Runner],
    estimates_ms: Mapping[str, float],
    schedule: Schedule,
    sleep: Callable[[float], None] = time.sleep,
    portions: Mapping[str, float] | None = None,
) -> dict[str, tuple[tuple[float, ...], int]]:
    """Give every runner its turn in each round: milliseconds of one launch a round, and the launches timed.

    The order is the mapping's, in every round: put the baseline first. ``portions`` says who gets less than a whole
    turn.
    """
    portions = portions or {}
    for name, runner in runners.items():
        if schedule.warm_up_ms > 0:
            _burst(runner, estimates_ms[name], schedule.warm_up_ms / len(runners))
    rounds_ms: dict[str, list[float]] = {name: [] for name in runners}
    counts = dict.fromkeys(runners, 0)
    for _ in range(schedule.rounds):
        for name, runner in runners.items():
            bursts_ms = []
            for _ in range(schedule.bursts):
                if schedule.pause_s > 0:
                    sleep(schedule.pause_s)
                    runner.run(1)  # the chip wakes up outside the measured time
                total_ms, launches = _burst(runner, estimates_ms[name], schedule.turn_ms * portions.get(name, 1.0))
                bursts_ms.append(total_ms / launches)
                counts[name] += launches
            rounds_ms[name].append(statistics.median(bursts_ms))
    return {name: (tuple(rounds_ms[name]), counts[name]) for name in runners}


def _first_look(runner: EventRunner, estimate_launches: int) -> tuple[float, float]:
    """Rough milliseconds of one launch, and the host's microseconds to queue one, with few launches."""
    runner.run(1)  # loads the kernel and anything lazy behind the launch
    elapsed_ms, launches = runner.run(estimate_launches)
    per_launch_ms = max(elapsed_ms / launches, 1e-4)
    queued = max(1, min(_HOST_LAUNCHES, round(_BATCH_MS / per_launch_ms)))
    driver.synchronize()
    start = time.perf_counter()
    runner.queue(queued)
    host_us = (time.perf_counter() - start) * 1e6 / queued
    driver.synchronize()
    return per_launch_ms, host_us


def wants_graph(estimate_ms: float, host_us: float) -> bool:
    """Whether launch gaps would show in a kernel of about ``estimate_ms``."""
    return estimate_ms < GRAPH_BELOW_MS or host_us * 1e-3 > HOST_BOUND * estimate_ms


def _runner_for(
    candidate: Candidate, stream: int, looker: EventRunner, estimate_ms: float, host_us: float, method: str | None
) -> Runner:
    """The runner that ``method`` names, or that suits the candidate; one that cannot be captured is timed by events."""
    if method == "events" or (method is None and not wants_graph(estimate_ms, host_us)):
        return looker
    launches = min(max(1, round(_GRAPH_MS / estimate_ms)), _MOST_LAUNCHES)
    try:
        return GraphRunner(candidate, stream, launches)
    except DeviceError as error:
        if method is None and "CAPTURE" in (error.driver_name or ""):
            return looker
        raise


def compare(
    candidates: Mapping[str, Candidate],
    *,
    schedule: Schedule = SUSTAINED,
    method: str | None = None,
    stream: int | None = None,
) -> dict[str, Timing]:
    """Time candidates against each other, in interleaved rounds.

    Args:
        candidates: by name, the baseline first.
        schedule: the regime.
        method: ``"events"``, ``"graph"``, or None for what suits each candidate.
        stream: a stream's handle, by default one made for this call; 0, the default stream, cannot be captured.

    Raises:
        UnsupportedError: an unknown method, or graphs on the default stream.
        NoDeviceError: there is no GPU.
        DeviceError: a launch failed.
    """
    if method not in (None, "events", "graph"):
        raise UnsupportedError(f"method: got {method!r}; it is 'events', 'graph' or None")
    if method == "graph" and stream == 0:
        raise UnsupportedError(
            "stream: the default stream, 0, cannot be captured; leave stream out, or method='events'"
        )
    if stream is None:
        with driver.Stream() as own:
            return _compare(candidates, schedule, method, own.handle)
    driver.enter()
    return _compare(candidates, schedule, method if stream else "events", stream)


def _compare(
    candidates: Mapping[str, Candidate], schedule: Schedule, method: str | None, stream: int
) -> dict[str, Timing]:
    driver.synchronize()  # operands may have been prepared in other streams
    runners: dict[str, Runner] = {}
    estimates_ms, hosts_us = {}, {}
    for name, candidate in candidates.items():
        looker = EventRunner(candidate, stream)
        estimates_ms[name], hosts_us[name] = _first_look(looker, max(3, min(candidate.sets, 16)))
        runners[name] = _runner_for(candidate, stream, looker, estimates_ms[name], hosts_us[name], method)
    measured = take_turns(runners, estimates_ms, schedule)
    return {
        name: Timing(
            schedule.regime, runners[name].method, candidate.sets, measured[name][1], measured[name][0], hosts_us[name]
        )
        for name, candidate in candidates.items()
    }


def time_launches(
    launch: Launch,
    *,
    sets: int = 1,
    schedule: Schedule = SUSTAINED,
    method: str | None = None,
    stream: int | None = None,
) -> Timing:
    """Time one candidate alone; see `compare`, which figures that are to be compared need."""
    return compare({"it": Candidate(launch, sets)}, schedule=schedule, method=method, stream=stream)["it"]
