"""A survey of the space of problems: hundreds of them drawn at random, each timed in some thirty configurations.

Suites hold the problems that people name; a planner has to be right for all others. So problems are drawn
log-uniformly over extents, types and layouts. Of each, the best predictions, a random sample of worse ones and
cuBLASLt's fastest algorithm take turns of a few milliseconds in several rounds, so that all see one state of the chip.

    python -m warptile.bench.campaign.problem_survey --out DIR --count 400 --seed 1 --minutes 9 --records records

adds a line for each problem to DIR/survey.jsonl, and makes a record of them; a run that was stopped goes on where it
was. With ``--plans-only``, only what plans choose and cuBLASLt are timed, in a fraction of the time: that says how good
plans are, and cost models are not fitted to it. With ``--best-only``, the plan's own configuration and the best
predictions are, a few of each tile: what a model that chooses among them has to tell apart, of several times as many
problems.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import click
import msgspec
import numpy as np
from numpy.typing import NDArray

from warptile.bench.baselines.cublaslt import WORKSPACE_BYTES, CublasLt, CublasLtMatmul
from warptile.bench.campaign.drawn_problems import KINDS, SHAPES, Selection, drawn, rows_straddle
from warptile.bench.campaign.suite_search import RESERVED_CORES, RUNG, STATUS_TIME, CompileAhead, say, watch
from warptile.bench.protocol.environment import Sampler, describe, git_hash, now
from warptile.bench.protocol.measurements import Environment, Surveyed, TimedConfig
from warptile.bench.protocol.operand_pool import OperandPool, PooledProduct
from warptile.bench.protocol.records import SurveyRecord, write
from warptile.bench.protocol.workloads import to_key
from warptile.codegen.translation_unit import Source, translation_unit
from warptile.device import DeviceLimits
from warptile.errors import UnsupportedError, WarptileError
from warptile.gpu import driver
from warptile.gpu.timing import Candidate, EventRunner, GraphRunner, Runner
from warptile.planning.plan import Plan, config_text
from warptile.planning.tuned_table import ProblemClass
from warptile.problem import Problem
from warptile.rungs.kernel_spec import Config
from warptile.rungs.wgmma.final import illegal_on
from warptile.rungs.wgmma.kernels import SURVEYED
from warptile.rungs.wgmma.pool import Pool, pool
from warptile.rungs.wgmma.tile_shapes import TUNABLES
from warptile.runtime.device_product import Launcher, runner_for
from warptile.runtime.execute import Place, planned

BEST, CLUSTERED, SMALL_CLUSTERED, SMALL_SPLIT, ALONG_BOTH, SPLIT_CLUSTERED, NEAR, FAR = 8, 2, 4, 2, 2, 2, 4, 1
PING_PONG, BY_COLUMNS, ONE_CONSUMER = 4, 3, 2
IN_TURNS, EIGHTS, SWAPPED_WIDE, STREAMED, TALL = 3, 3, 3, 4, 3
"""Configurations of a problem: the best predictions; the best in clusters of more than two CTAs; the best in clusters
with 64 rows or swapped operands, whole and with K split; where rows lie in two lines of L2 also the
best in clusters along both M and N, and the best that split K and share loads; and samples of those within `NEAR_TIME`
and `FAR_TIME` of the best. `PING_PONG`: the best such in clusters, with swapped operands or other than 128 rows;
`BY_COLUMNS`: the best whose columns two consumers share; `ONE_CONSUMER`: the best of one with more than 64 rows.
`IN_TURNS`: the best in clusters whose CTAs take turns at loading B; `EIGHTS`: the best with BN no multiple of 16;
`SWAPPED_WIDE`: the best with swapped operands and more than 128 columns, or 64 where D has 32 bits.
`STREAMED`: the best with stream-K. `TALL`: the best with 256 rows."""

BEST_ALONE, OF_TILE = 13, 2
"""Configurations with ``--best-only``, and how many of them may have the same tile: predictions are wrong by tiles, so
that the fastest is often one of a tile whose others are predicted to be slow too."""

NEAR_TIME, FAR_TIME = 1.5, 2.5

ROUNDS, TURN_MS = 4, 2.5
"""Turns of a configuration, and how long each is."""

WARM_UP_MS = 60.0
"""Turns before those that count. A chip that was idle has a higher clock, which cuBLASLt gains more from: in the first
round after a pause its times are 5 % below those of later ones for gradients of weights, those of wgmma-final 1 %."""

ALGORITHM_MS = 0.6
"""How long each of cuBLASLt's algorithms runs to find its fastest."""

GRAPH_BELOW_MS = 0.06
CAPTURES = 3
"""How often a capture is tried: it may fail where another thread calls the driver."""

TIME_LEFT_S = 8.0

# --- configurations ---------------------------------------------------------------------------------------------------


def configurations(
    problem: Problem, place: Place, seed: int = 0, *, plans_only: bool = False, best_only: bool = False
) -> tuple[Config, ...]:
    """What is timed on a problem: the plan's own configuration, the best predictions, and samples of worse ones; with
    ``best_only`` no worse ones; with ``plans_only`` the plan's own, none where that is of another rung."""
    if plans_only:
        return tuple(plan.config for plan in _own(problem, place))
    random, device = np.random.default_rng((seed, problem.m, problem.n, problem.k)), place.device
    found = {config_text(plan.config): plan.config for plan in _own(problem, place)}
    some = pool(problem, illegal_on(device), device, SURVEYED)
    ranked, times = some.ranked(), np.sort(some.times_us)

    def add(places: Sequence[int], most: int) -> None:
        limit = len(found) + most
        for index in places:
            if len(found) >= limit:
                return
            config = some.config(int(ranked[index]))
            if config_text(config) not in found and RUNG.illegal(problem, config, device) is None:
                found[config_text(config)] = config

    if best_only:
        add(_of_many_tiles(some, ranked), BEST_ALONE)
        return tuple(found.values())
    near, far = (int(np.searchsorted(times, factor * times[0])) for factor in (NEAR_TIME, FAR_TIME))
    add(range(len(ranked)), BEST)
    along_m, along_n = (some.rows[name][ranked] for name in ("CM", "CN"))
    add([int(place) for place in np.flatnonzero(along_m * along_n > 2)], CLUSTERED)
    small = ((some.rows["BM"][ranked] == 64) | (some.rows["SWAP"][ranked] == 1)) & (along_m * along_n > 1)
    whole = some.rows["SPLITS"][ranked] == 1
    add([int(place) for place in np.flatnonzero(small & whole)], SMALL_CLUSTERED)
    add([int(place) for place in np.flatnonzero(small & ~whole)], SMALL_SPLIT)
    row = {name: some.rows[name][ranked] for name in ("BM", "CONSUMERS", "PINGPONG", "SWAP")}
    sharing = along_m * along_n > 1
    turns = (row["PINGPONG"] == 1) & (sharing | (row["BM"] != 128) | (row["SWAP"] == 1))
    by_columns = (row["PINGPONG"] == 0) & (row["CONSUMERS"] == 2) & (row["BM"] % 128 == 64)
    alone = (row["CONSUMERS"] == 1) & (row["BM"] > 64)
    columns = some.rows["BN"][ranked]
    in_turns = (along_m > 1) & (columns % (8 * along_m) != 0)
    wide = (row["SWAP"] == 1) & (columns > (64 if problem.d.dtype.bits == 32 else 128))
    kinds = (
        (turns, PING_PONG), (by_columns, BY_COLUMNS), (alone, ONE_CONSUMER), (in_turns, IN_TURNS),
        (columns % 16 == 8, EIGHTS), (wide, SWAPPED_WIDE), (some.rows["STREAM"][ranked] == 1, STREAMED),
        (row["BM"] == 256, TALL),
    )  # fmt: skip
    for which, most in kinds:
        add([int(place) for place in np.flatnonzero(which[:far])], most)
    if rows_straddle(problem):
        splits = some.rows["SPLITS"][ranked] > 1
        add([int(place) for place in np.flatnonzero((along_m > 1) & (along_n > 1))], ALONG_BOTH)
        add([int(place) for place in np.flatnonzero((along_m * along_n > 1) & splits)], SPLIT_CLUSTERED)
    add(list(random.permutation(near)), NEAR)
    add(list(near + random.permutation(max(far - near, 0))), FAR)
    return tuple(found.values())


def _of_many_tiles(some: Pool, ranked: NDArray[np.int64]) -> list[int]:
    """Places in ``ranked`` of the best predictions, `OF_TILE` of each tile."""
    tiles = np.stack([some.rows[name][ranked] for name in ("BM", "BN", "SWAP")], axis=1)
    seen: Counter[tuple[float, ...]] = Counter()
    found = []
    for place, tile in enumerate(map(tuple, tiles.tolist())):
        seen[tile] += 1
        if seen[tile] <= OF_TILE:
            found.append(place)
    return found


def _own(problem: Problem, place: Place) -> Iterator[Plan]:
    plan = planned(problem, place)
    if plan.rung is RUNG:
        yield plan


def source_of(problem: Problem, config: Config, device: DeviceLimits) -> Source:
    """The translation unit of a configuration."""
    return translation_unit(RUNG.resolve(problem, config, device))


# --- measuring --------------------------------------------------------------------------------------------------------


class _Turns:
    """Candidates of one problem that take turns."""

    def __init__(self, stream: int) -> None:
        self._stream = stream
        self._runners: dict[str, tuple[Runner, float]] = {}
        self.rounds_ms: dict[str, list[float]] = {}

    def add(self, name: str, candidate: Candidate) -> None:
        """One more candidate.

        Raises:
            UnsupportedError: it is short, and its launches cannot be captured: gaps between them would be timed.
        """
        for _ in range(CAPTURES):
            runner, one_ms = runner_for(candidate, self._stream)
            if runner.method == GraphRunner.method or one_ms > GRAPH_BELOW_MS:
                self._runners[name] = runner, one_ms
                self.rounds_ms[name] = []
                return
        raise UnsupportedError(f"timing: {1e3 * one_ms:.1f} us a launch, which no graph could capture: left out")

    def run(self, rounds: int) -> None:
        """``rounds`` rounds whose order alternates, after some that warm up. What proves to be short without having
        been captured is left out."""
        warm_up = math.ceil(WARM_UP_MS / (TURN_MS * max(len(self._runners), 1)))
        for number in range(-warm_up, rounds):
            items = list(self._runners.items())
            for name, (runner, one_ms) in items if number % 2 else items[::-1]:
                elapsed_ms, launches = runner.run(max(1, round(TURN_MS / one_ms)))
                if number >= 0:
                    self.rounds_ms[name].append(elapsed_ms / launches)
        for name, (runner, _) in self._runners.items():
            if runner.method != GraphRunner.method and min(self.rounds_ms[name]) < GRAPH_BELOW_MS:
                del self.rounds_ms[name]


def _fastest_algorithm(library: CublasLtMatmul, product: PooledProduct, workspace: int, stream: int) -> Candidate:
    """cuBLASLt's fastest algorithm for a problem, over all sets of operands."""
    pointers = [product.pointers(index) for index in range(product.sets)]

    def candidate(algorithm: int) -> Candidate:
        def launch(index: int, on: int) -> None:
            of = pointers[index]
            library.launch(algorithm, of["A"], of["B"], of["D"], workspace, on)

        return Candidate(launch, len(pointers))

    def time_ms(algorithm: int, window_ms: float) -> float:
        looked = EventRunner(candidate(algorithm), stream)
        looked.run(1)
        one_ms, _ = looked.run(1)
        if one_ms < GRAPH_BELOW_MS:
            some = Candidate(candidate(algorithm).launch, min(len(pointers), 64))
            runner: Runner = GraphRunner(some, stream, min(64, max(1, round(window_ms / one_ms))))
        else:
            runner = looked
        elapsed_ms, launches = runner.run(max(1, round(window_ms / one_ms)))
        return elapsed_ms / launches

    times: dict[int, float] = {}
    for index in range(len(library)):
        try:
            times[index] = time_ms(index, ALGORITHM_MS)
        except Exception:
            driver.synchronize()
    if not times:
        raise UnsupportedError("baseline: every algorithm failed")
    for index in sorted(times, key=lambda each: times[each])[:3]:
        times[index] = min(times[index], time_ms(index, 2 * ALGORITHM_MS))
    return candidate(min(times, key=lambda each: times[each]))


def _us(time_ms: float) -> float:
    """Microseconds, in as many digits as a measurement has: records of surveys are large."""
    return float(f"{1e3 * time_ms:.4g}")


class Survey:
    """What all problems of a run share."""

    def __init__(self, problems: Sequence[Problem], *, with_library: bool) -> None:
        self._launcher, self._stream = Launcher(), driver.Stream()
        self._info = driver.device_info()
        self._problems = problems
        self._pools: dict[str, OperandPool] = {}
        self._library = CublasLt() if with_library else None
        self._workspace = driver.Allocation(WORKSPACE_BYTES) if with_library else None

    def _pool(self, problem: Problem) -> OperandPool:
        element = problem.a.dtype
        if element.name not in self._pools:
            alike = [each for each in self._problems if each.a.dtype == element]
            self._pools[element.name] = OperandPool(element, alike, self._info.limits.l2_bytes)
        return self._pools[element.name]

    def measure(
        self, problem: Problem, configs: Sequence[Config], refused: Sequence[str | None], planned_as: Config | None
    ) -> Surveyed:
        """Check every configuration once, then time all of them in turns.

        Args:
            problem: what is computed.
            configs: what is timed.
            refused: why each does not compile, or None.
            planned_as: which of them a plan takes; None where it takes another rung.
        """
        product = PooledProduct(problem, self._pool(problem), self._launcher, self._info.limits.l2_bytes)
        turns, failed = _Turns(self._stream.handle), {}
        for config, reason in zip(configs, refused, strict=True):
            text = config_text(config)
            try:
                plan = Plan(problem, RUNG, config, "given", self._info.limits, RUNG.name)
                wrong = reason or product.check(plan).wrong
                if wrong is None:
                    turns.add(text, product.candidate(plan))
                else:
                    failed[text] = wrong
            except WarptileError as error:
                driver.synchronize()
                failed[text] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        if self._library is not None and self._workspace is not None:
            try:
                library = self._library.product(to_key(problem))
                turns.add("", _fastest_algorithm(library, product, self._workspace.address, self._stream.handle))
            except UnsupportedError:
                pass
        turns.run(ROUNDS)
        rounds = {name: tuple(_us(each) for each in times) for name, times in turns.rounds_ms.items()}
        baseline = rounds.pop("", ())
        tried = [TimedConfig(tuple(config.values()), rounds[config_text(config)]) for config in configs
                 if config_text(config) in rounds]  # fmt: skip
        return Surveyed(
            problem=ProblemClass.of(problem), planned=tuple(planned_as.values()) if planned_as is not None else (),
            tried=tuple(sorted(tried, key=lambda each: statistics.median(each.rounds_us))), cublaslt_us=baseline,
            failed=tuple(f"{text}: {why}" for text, why in failed.items()),
        )  # fmt: skip


@dataclass(frozen=True)
class _Here:
    """The GPU, for processes that have none."""

    device: DeviceLimits
    gpu: str


def _chosen(
    here: _Here, seed: int, problem: Problem, *, plans_only: bool, best_only: bool
) -> tuple[tuple[Config, ...], tuple[Source, ...]]:
    """What is timed on a problem, and what that is compiled from."""
    configs = configurations(problem, here, seed, plans_only=plans_only, best_only=best_only)
    return configs, tuple(source_of(problem, config, here.device) for config in configs)


# --- a worker and its parent ------------------------------------------------------------------------------------------


def journal(out: Path) -> Path:
    """The file of results."""
    return out / "survey.jsonl"


def surveyed(out: Path) -> tuple[Surveyed, ...]:
    """The results of a folder, a problem's last ones."""
    return tuple(_done(out).values())


def _done(out: Path) -> dict[ProblemClass, Surveyed]:
    lines = journal(out).read_bytes().splitlines() if journal(out).exists() else []
    found = (msgspec.json.decode(line, type=Surveyed) for line in lines)
    return {each.problem: each for each in found}


def work(
    out: Path,
    problems: Sequence[Problem],
    seed: int,
    until_s: float,
    *,
    with_library: bool,
    plans_only: bool,
    best_only: bool,
) -> int:
    """Survey until ``until_s`` of the clock; the number of problems left."""
    driver.enter()
    info = driver.device_info()

    start_s, done = time.monotonic(), _done(out)
    left = [each for each in problems if ProblemClass.of(each) not in done]
    processes = max((os.cpu_count() or 1) - RESERVED_CORES, 1)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # in the processes to come, each of which would use all cores
    here = _Here(info.limits, info.name)
    chosen = partial(_chosen, here, seed, plans_only=plans_only, best_only=best_only)
    with ProcessPoolExecutor(processes, get_context("spawn")) as workers:
        found = list(workers.map(chosen, left, chunksize=max(1, len(left) // (4 * processes))))
    tasks = [(each, configs) for each, (configs, _) in zip(left, found, strict=True) if configs]
    sources = [of for configs, of in found if configs]
    say(f"{len(tasks)} problems, {len({s for of in sources for s in of})} kernels; {time.monotonic() - start_s:.1f} s")
    state = out / "doing"
    with CompileAhead([s for of in sources for s in of], info.arch, processes) as kernels, Sampler() as sampler:
        survey = Survey(problems, with_library=with_library)
        try:
            while tasks and time.time() < until_s - TIME_LEFT_S:
                (problem, configs), of = tasks.pop(0), sources.pop(0)
                reasons = kernels.reasons(of, waiting=state.touch)
                state.write_bytes(msgspec.json.encode(ProblemClass.of(problem)))
                own = next((plan.config for plan in _own(problem, here)), None)
                measured = survey.measure(problem, configs, reasons, own)
                with journal(out).open("ab") as lines:
                    lines.write(msgspec.json.encode(measured) + b"\n")
                _tell(measured)
        finally:
            environment: Environment = describe(sampler.since(start_s))
            (out / "environment.json").write_bytes(msgspec.json.encode(environment))
    return len(tasks)


def _tell(found: Surveyed) -> None:
    say(described(found))


def described(found: Surveyed) -> str:
    """What was measured of a problem, in a line."""
    p, timed = found.problem, {each.config: statistics.median(each.rounds_us) for each in found.tried}
    best, own = min(timed.values(), default=None), timed.get(found.planned)
    library = statistics.median(found.cublaslt_us) if found.cublaslt_us else None

    def beside_library(time_us: float) -> str:
        return f", {library / time_us:.3f} of cuBLASLt" if library is not None else ""

    said = [f"{p.m} {p.n} {p.k} {p.dtype} {p.accumulator} {p.out} {p.a_major[0]}{p.b_major[0]}"]
    if best is not None:
        said.append(f"best {best:.1f} us{beside_library(best)}")
        if own is not None:
            said.append(f"planned {best / own:.3f} of the best{beside_library(own)}")
    if found.failed:
        said.append(f"{len(found.failed)} failed: {found.failed[0]}")
    return "; ".join(said)


def record_of(out: Path, *, commit: str, command: str, notes: str = "", prediction: str = "") -> SurveyRecord:
    """The record of what a run left in a folder."""
    environment = msgspec.json.decode((out / "environment.json").read_bytes(), type=Environment)
    return SurveyRecord(
        date=now(), git_hash=commit, command=command, environment=environment, prediction=prediction, notes=notes,
        rung=RUNG.name, keys=TUNABLES, surveyed=surveyed(out),
    )  # fmt: skip


def supervise(out: Path, arguments: Sequence[str], until_s: float) -> None:
    """Run workers until all is surveyed or time runs out; a problem that ends or hangs a worker is noted and left out.

    Raises:
        UsageError: a worker ended before it measured anything.
    """
    command = [sys.executable, "-m", "warptile.bench.campaign.problem_survey", "--out", str(out), *arguments]
    state = out / "doing"
    while time.time() < until_s - TIME_LEFT_S:
        state.unlink(missing_ok=True)
        status = watch([*command, "--until", str(until_s)], state, until_s)
        if status in (0, STATUS_TIME):
            state.unlink(missing_ok=True)
            return
        begun = state.read_bytes() if state.exists() else b""
        if not begun:
            raise click.UsageError(f"the worker ended with status {status} before it measured anything")
        reason = "the worker hung" if status is None else f"the worker ended with status {status}"
        stuck = msgspec.json.decode(begun, type=ProblemClass)
        say(f"{reason}: {stuck}")
        with journal(out).open("ab") as lines:
            lines.write(msgspec.json.encode(Surveyed(problem=stuck, failed=(reason,))) + b"\n")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder of results.")
@click.option("--count", default=400, show_default=True, type=click.IntRange(1), help="Problems.")
@click.option("--seed", default=1, show_default=True, help="Of the problems that are drawn.")
@click.option("--minutes", default=9.0, show_default=True, help="Begin nothing after that; 0 only makes the record.")
@click.option("--straddling", is_flag=True, help="Only problems with rows that lie in two lines of L2.")
@click.option("--weight-gradients", is_flag=True, help="Only A stored along M, B along N, and K longer than both.")
@click.option("--misaligned", is_flag=True, help="Only problems that the kernel cannot take as they are.")
@click.option("--dtype", type=click.Choice(sorted({kind.dtype for kind, *_ in KINDS})), help="Only of this type.")
@click.option("--shape", type=click.Choice(SHAPES), help="Problems of this shape, of which others have none.")
@click.option("--plans-only", is_flag=True, help="Time only what plans choose, and cuBLASLt.")
@click.option("--best-only", is_flag=True, help="Time only what plans choose, the best predictions, and cuBLASLt.")
@click.option("--library/--no-library", "with_library", default=True, help="Time cuBLASLt too.")
@click.option("--records", type=click.Path(path_type=Path, file_okay=False), help="Write a record to this folder.")
@click.option("--notes", default="", help="What was learned, for the record.")
@click.option("--prediction", default="", help="What was predicted before the run, for the record.")
@click.option("--until", type=float, default=None, hidden=True)
def main(
    out: Path,
    count: int,
    seed: int,
    minutes: float,
    straddling: bool,
    weight_gradients: bool,
    misaligned: bool,
    dtype: str | None,
    shape: str | None,
    plans_only: bool,
    best_only: bool,
    with_library: bool,
    records: Path | None,
    notes: str,
    prediction: str,
    until: float | None,
) -> None:
    """Time COUNT random problems in some forty configurations each."""
    if plans_only and best_only:
        raise click.UsageError("--plans-only and --best-only were given; give one of them, such as --plans-only")
    selection = Selection(straddling, weight_gradients, misaligned, dtype, shape)
    out.mkdir(parents=True, exist_ok=True)
    if until is not None:
        problems = drawn(count, seed, selection)
        left = work(out, problems, seed, until, with_library=with_library, plans_only=plans_only, best_only=best_only)
        sys.exit(STATUS_TIME if left else 0)
    arguments = ["--count", str(count), "--seed", str(seed), "--library" if with_library else "--no-library"]
    arguments += selection.options
    arguments += ["--plans-only"] if plans_only else []
    arguments += ["--best-only"] if best_only else []
    supervise(out, arguments, time.time() + 60 * minutes)
    if records is None:
        return
    if not journal(out).exists():
        raise click.UsageError(f"--out {out}: nothing was surveyed there; give --minutes, such as --minutes 9")
    command = " ".join(["python -m warptile.bench.campaign.problem_survey", *arguments])
    record = record_of(out, commit=git_hash(), command=command, notes=notes, prediction=prediction)
    click.echo(write(record, records).name)


if __name__ == "__main__":
    main()
