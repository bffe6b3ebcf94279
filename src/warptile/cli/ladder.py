"""``warptile ladder``: climbs the ladder on real kernels, checks every result and prints the table."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import warptile
from warptile import ladder, measured
from warptile.cli._names import BACKEND, DTYPE, RUNG, OneOf
from warptile.cli._saving import SAVE, encoded, print_document, save
from warptile.cli._tables import Column, console_of, said_of, show
from warptile.dtypes import DTYPES
from warptile.dtypes import dtype as dtype_named
from warptile.errors import DTypeError, UnsupportedError
from warptile.expected.expected_time import ExpectedTime, expected_time
from warptile.ladder import Addresses, Ladder, Launch, ProblemSize, RungResult
from warptile.problem import Problem
from warptile.rungs import RUNGS, Rung, families
from warptile.runtime.execute import Backend, GpuBackend, choose_backend

BAR_WIDTH = 12
IDEA_WIDTH = 30
"""Where the ideas fit in so many columns, they are one of the table's."""

SCREEN_MS = 25.0
"""How long each of cuBLAS's algorithms runs while the best one is looked for."""

RECORDED_SIZE = (4096, 4096, 4096)
"""The record shown where nothing was measured: its size says more about a GPU than an emulated one does."""


@click.command("ladder")
@click.option(
    "--family", default="all", show_default=True, type=OneOf("family", lambda: (*families(), "all"), listed=True),
    help="Only the rungs of this family.",
)  # fmt: skip
@click.option("--rung", "names", multiple=True, metavar="NAME", type=RUNG, help="Only this rung; may be repeated.")
@click.option("-m", type=click.IntRange(1), help="Rows of A and D.  [4096 on a GPU, 192 on the emulator]")
@click.option("-n", type=click.IntRange(1), help="Columns of B and D.  [4096 or 160]")
@click.option("-k", type=click.IntRange(1), help="Columns of A, rows of B.  [4096 or 96]")
@click.option("--dtype", type=DTYPE, help="Type of A and B, such as bf16; rungs that do not take it keep their own.")
@click.option("--accumulate", type=DTYPE, help="Accumulator type, such as f16; rungs without it keep their own.")
@click.option("--backend", type=BACKEND, help="Where to run; auto takes the GPU if there is one.  [auto]")
@click.option("-v", "--verbose", is_flag=True, help="Print the idea of each rung, however narrow the terminal is.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@SAVE
def command(
    family: str,
    names: tuple[str, ...],
    m: int | None,
    n: int | None,
    k: int | None,
    dtype: str | None,
    accumulate: str | None,
    backend: str | None,
    verbose: bool,
    as_json: bool,
    saved: Path | None,
) -> int:
    """Run and check every kernel from naive to Hopper.

    With a GPU, each kernel is timed against cuBLASLt in interleaved rounds. Without one, its PTX runs on the emulator,
    on a small problem, and is counted.

    \b
    Examples:
      warptile ladder
      warptile ladder --family wgmma --verbose
      warptile ladder --rung simt-naive --rung wgmma-final --dtype f16 --json
    """
    rungs = chosen_rungs(family, names)
    element = element_name(dtype, rungs)
    sums = accumulator_name(accumulate, element, rungs)
    place = choose_backend(backend)
    on_gpu = isinstance(place, GpuBackend)
    defaults = ladder.GPU_SIZE if on_gpu else ladder.EMULATED_SIZE
    size = (m or defaults[0], n or defaults[1], k or defaults[2])

    with Baseline() if on_gpu else NoBaseline() as baseline:
        results = tuple(
            watched(
                ladder.climb(
                    rungs, size, place, dtype=element, accumulate=sums, baseline=baseline.launch, recorded=recorded
                ),
                [rung.name for rung in rungs],
            )
        )
        document = Ladder(
            backend=place.name,
            problem=ProblemSize(*size, element or "float16"),
            environment=environment(place, baseline.version),
            rungs=results,
        )
    if saved is not None:
        save(encoded(document), saved)
    if as_json:
        print_document(document)
    else:
        console = console_of()
        predicted = {} if on_gpu else predictions(rungs, place, element, sums)
        draw(console, document, predicted, verbose=verbose)
    return status(results, named=bool(names))


def chosen_rungs(family: str, names: Sequence[str]) -> list[Rung]:
    """The rungs that the options select, in ladder order.

    Raises:
        click.BadParameter: none of the rungs is of that family.
    """
    chosen = [rung for rung in RUNGS.values() if family in ("all", rung.family) and (not names or rung.name in names)]
    if not chosen:
        raise click.BadParameter(f"{', '.join(names)} is not of the family {family}", param_hint="--rung")
    return chosen


def element_name(given: str | None, rungs: Sequence[Rung]) -> str | None:
    """The operand type that ``--dtype`` names, by its full name.

    Raises:
        DTypeError: unknown, or none of the rungs takes it.
    """
    if given is None:
        return None
    name = dtype_named(given).name
    taken = dict.fromkeys(each for rung in rungs for each in ladder.types_taken(rung))
    if name not in taken:
        raise DTypeError(f"--dtype: got {given!r}, which none of these rungs takes; they take {', '.join(taken)}")
    return name


def accumulator_name(given: str | None, element: str | None, rungs: Sequence[Rung]) -> str | None:
    """The accumulator that ``--accumulate`` names, by its full name.

    Raises:
        DTypeError: unknown, or no accumulator of the operand types in question.
    """
    if given is None:
        return None
    elements = [element] if element else dict.fromkeys(each for rung in rungs for each in ladder.types_taken(rung))
    known = dict.fromkeys(each for name in elements for each in DTYPES[name].accumulators)
    name = dtype_named(given).name
    if name not in known:
        of = f" of {element} operands" if element else ""
        raise DTypeError(f"--accumulate: got {given!r}; the sums{of} are kept in {', '.join(known)}")
    return name


def status(results: Sequence[RungResult], *, named: bool) -> int:
    """Exit code: 1 when a result is wrong, 4 when a rung that was asked for by name is not taken here, else 0."""
    if any(not result.correct and not result.unsupported for result in results):
        return 1
    refused = [result for result in results if result.unsupported]
    return 4 if refused and (named or len(refused) == len(results)) else 0


def watched(results: Iterable[RungResult], names: Sequence[str]) -> Iterator[RungResult]:
    """Hand the results on and show progress on stderr: a bar in a terminal, else a line for each rung that is done."""
    if not sys.stderr.isatty():
        for done, result in enumerate(results, 1):
            click.echo(f"{done}/{len(names)} {result.name}", err=True)
            yield result
        return
    columns = (TextColumn("{task.description:<18}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(names[0] if names else "", total=len(names))
        for done, result in enumerate(results, 1):
            progress.update(task, completed=done, description=names[min(done, len(names) - 1)])
            yield result


# --- what the figures are compared with ------------------------------------------------------------------------------


def recorded(name: str, problem: Problem) -> dict[str, Any] | None:
    """The recorded result of a rung on the reference GPU: on this problem, else at the recorded size."""
    return measured.find(name, problem, ((problem.m, problem.n, problem.k), RECORDED_SIZE))


class NoBaseline:
    """Nothing to compare with."""

    version: str | None = None
    launch: Callable[[Problem, Sequence[Addresses]], Launch | None] | None = None

    def __enter__(self) -> NoBaseline:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class Baseline(NoBaseline):
    """cuBLASLt's best algorithm, if its bindings are installed."""

    def __init__(self) -> None:
        from warptile.bench.baselines.cublaslt import WORKSPACE_BYTES, CublasLt
        from warptile.gpu import driver

        try:
            self._library: CublasLt | None = CublasLt()
        except UnsupportedError as error:
            click.echo(f"no cuBLAS to compare with: {error}", err=True)
            self._library = None
            return
        self._workspace = driver.Allocation(WORKSPACE_BYTES)
        self.version = self._library.version
        self.launch = self._launch

    def _launch(self, problem: Problem, sets: Sequence[Addresses]) -> Launch | None:
        """What queues the fastest of the library's algorithms, or None where it has none."""
        from warptile.bench.baselines.cublaslt import fastest
        from warptile.bench.protocol.workloads import to_key
        from warptile.gpu import timing
        from warptile.runtime.device_product import DENSE

        assert self._library is not None
        key = to_key(problem)
        try:
            product = self._library.product(key)
        except UnsupportedError as error:
            click.echo(f"no cuBLAS figure: {error}", err=True)
            return None

        def launch_of(algorithm: int) -> Launch:
            def launch(index: int, stream: int) -> None:
                at = sets[index]
                product.launch(algorithm, at.get(DENSE, at["A"]), at["B"], at["D"], self._workspace.address, stream)

            return launch

        screen = timing.Schedule("sustained", rounds=1, turn_ms=SCREEN_MS, warm_up_ms=0.0)

        def time_ms(algorithm: int) -> float:
            return timing.time_launches(launch_of(algorithm), sets=len(sets), schedule=screen).median_ms

        return launch_of(fastest(len(product), time_ms).index)

    def __exit__(self, *error: object) -> None:
        if self._library is not None:
            self._workspace.close()
            self._library.close()


def environment(place: Backend, baseline: str | None) -> dict[str, Any]:
    """Where the figures come from: versions, and the GPU if one was used."""
    found: dict[str, Any] = {
        "warptile": warptile.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "arch": place.arch,
        "gpu": None,
        "driver_cuda": None,
        "cublas": baseline,
    }
    for name in ("numpy", "cuda-bindings", "nvidia-cuda-nvrtc"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    if isinstance(place, GpuBackend):
        found["gpu"] = place.info.name
        found["driver_cuda"] = ".".join(map(str, place.info.driver_cuda))
    return found


# --- what people see -------------------------------------------------------------------------------------------------


def predictions(
    rungs: Sequence[Rung], place: Backend, dtype: str | None, accumulate: str | None
) -> dict[str, ExpectedTime]:
    """What each rung should reach on the reference GPU at the recorded size, which suits a GPU."""
    found = {}
    for rung in rungs:
        try:
            plan = ladder.plan_for(rung, RECORDED_SIZE, place, dtype, accumulate)
            found[rung.name] = expected_time(rung, plan.problem, plan.config, plan.device)
        except UnsupportedError:
            continue  # its row says already that it is not taken here
    return found


def draw(
    console: Console, document: Ladder, at_recorded_size: Mapping[str, ExpectedTime], *, verbose: bool = False
) -> None:
    """Print the table, as many of its columns as fit, and the notes below it."""
    size = document.problem
    where = document.environment["gpu"] or "the emulator"
    title = f"D[{size.m}, {size.n}] = A[{size.m}, {size.k}] @ B[{size.k}, {size.n}] on {where}"
    left_out = show(console, title, columns(document, at_recorded_size))
    without_ideas = any(column.least for column in left_out)
    console.print()
    if without_ideas and verbose:
        for result in document.rungs:
            console.print(f"[bold]{result.name}[/]: {escape(result.idea)}", highlight=False)
        console.print()
    missing = [column for column in left_out if not (column.least and verbose)]
    how = "a wider terminal or --json has them" + (
        ", --verbose prints the ideas" if without_ideas and not verbose else ""
    )
    for line in (*notes(document), *said_of(missing, how)):
        console.print(line, markup=False, highlight=False)


def columns(document: Ladder, at_recorded_size: Mapping[str, ExpectedTime]) -> list[Column]:
    """The ladder's columns; ``*`` marks figures that are of the recorded size, and not of this run. Of what was not
    counted there is none."""
    results = document.rungs
    predicted = [at_recorded_size.get(result.name) or result.predicted for result in results]
    marks = ["*" if result.name in at_recorded_size else "" for result in results]
    speeds = [shown(result) for result in results]
    top = max((speed for speed, _, _ in speeds if speed is not None), default=None)
    counted = [conflicts(result) for result in results], [intensity(result, document.problem) for result in results]
    found = [
        Column("rung", [result.name for result in results], left=True),
        Column("idea", [escape(result.idea) for result in results], rank=8, left=True, least=IDEA_WIDTH),
        Column("type", [DTYPES[result.dtype].ptx for result in results], rank=5, left=True),
        Column("correct", [verdict(result) for result in results], left=True),
        Column("bank\nconflicts", counted[0], rank=3),
        Column("FLOP/\nbyte", counted[1], rank=6),
        Column("limited\nby", [each.bound if each else "-" for each in predicted], rank=4, left=True),
        Column("predicted\nTFLOP/s",
               [f"{each.tflops:.1f}{mark}" if each else "-" for each, mark in zip(predicted, marks, strict=True)],
               rank=2),
        Column("measured\nTFLOP/s", [f"{each:.1f}{mark}" if each is not None else "-" for each, _, mark in speeds]),
        Column("speedup\nover\ncuBLASLt",
               [f"{speedup(share)}{mark}" if share is not None else "-" for _, share, mark in speeds], rank=1),
        Column("", [bar(speed, top) for speed, _, _ in speeds], rank=7, left=True),
    ]  # fmt: skip
    return [column for column in found if any(cell not in ("-", "") for cell in column.cells)]


def conflicts(result: RungResult) -> str:
    """Shared-memory wavefronts of loads over the ideal; a dash where there are none or nothing was counted."""
    ratio = result.counters.get("shared_load_conflict_ratio")
    return f"{ratio:.2f}" if ratio is not None and result.counters.get("shared_load_wavefronts") else "-"


def intensity(result: RungResult, size: ProblemSize) -> str:
    """Operations of the product over the bytes that were loaded from global memory."""
    loads = result.counters.get("global_load_bytes")
    return f"{2 * size.m * size.n * size.k / loads:.1f}" if loads else "-"


def speedup(share: float) -> str:
    """Two decimals, or three below 0.1."""
    return f"{share:.2f}x" if share >= 0.0995 else f"{share:.3f}x"


def verdict(result: RungResult) -> str:
    """Correctness in a word, with the largest error as a share of what is allowed."""
    if result.unsupported:
        return "not here"
    if not result.correct:
        return "[bold red]WRONG[/]"
    return f"[green]yes[/] {result.error_ratio:.2f}"


def shown(result: RungResult) -> tuple[float | None, float | None, str]:
    """TFLOP/s, share of cuBLAS, and the mark of a recorded figure: from this run if it measured, else the record."""
    if result.tflops is not None:
        return result.tflops, result.of_cublas, ""
    if result.measured is not None:
        return result.measured["tflops"], result.measured["of_cublas"], "*"
    return None, None, ""


def bar(speed: float | None, top: float | None) -> str:
    """A bar of eighths of a character, full at the fastest rung."""
    if speed is None or not top:
        return ""
    eighths = round(speed / top * BAR_WIDTH * 8)
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


def notes(document: Ladder) -> list[str]:
    """What the table leaves out: failures in full, where recorded figures come from, what the columns mean."""
    lines = [f"{result.name}: {result.failure}" for result in document.rungs if result.failure]
    lines += [
        f"{result.name}: operands are rewritten first, {result.copy_bytes} bytes read and written: in its time, not in "
        f"bank conflicts and FLOP/byte"
        for result in document.rungs
        if result.copy_bytes
    ]
    if document.backend == "emulator":
        m, n, k = RECORDED_SIZE
        lines.append(f"* on the H200 at {m} x {n} x {k}: predicted, and measured where a record is named below")
    marked = [result.measured for result in document.rungs if result.measured and result.tflops is None]
    sources = dict.fromkeys(
        (each["record"], each["gpu"], each["date"], each["m"], each["n"], each["k"]) for each in marked
    )
    lines += [f"* recorded: {gpu}, {m} x {n} x {k}, {date}, record {name}" for name, gpu, date, m, n, k in sources]
    if document.backend == "emulator" and not sources:
        lines.append("  no record for these rungs: TFLOP/s are measured on a GPU")
    lines.append("correct: largest error as a share of its bound.  limited by: the slowest resource, as predicted.")
    if document.backend == "emulator":
        lines.append(
            "bank conflicts: shared-memory wavefronts of loads over the ideal.  FLOP/byte: 2mnk over bytes loaded."
        )
    else:
        lines.append(
            "bank conflicts and FLOP/byte: not counted while kernels are timed; `warptile profile RUNG` counts them, "
            "and so does --backend emulator."
        )
    return lines
