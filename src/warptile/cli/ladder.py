"""``warptile ladder``: climbs the ladder on real kernels, checks every result and prints the table."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click
import msgspec
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import warptile
from warptile import ladder
from warptile.dtypes import DTYPES
from warptile.dtypes import dtype as dtype_named
from warptile.errors import DTypeError, UnsupportedError
from warptile.execute import Backend, GpuBackend, choose_backend
from warptile.ladder import Addresses, Ladder, Launch, ProblemSize, RungResult
from warptile.predict import Prediction
from warptile.problem import Problem
from warptile.rungs import RUNGS, Rung, families

BAR_WIDTH = 12
FILE_WIDTH = 160
"""Columns of the table where it is not written to a terminal."""

IDEAS_FROM_WIDTH = 120
"""Narrower terminals get the table without the column of ideas."""

SCREEN_MS = 25.0
"""How long each of cuBLAS's algorithms runs while the best one is looked for."""

RECORDED_SIZE = (4096, 4096, 4096)
"""The record shown where nothing was measured: its size says more about a GPU than an emulated one does."""


@click.command("ladder")
@click.option("--family", default="all", show_default=True, help="simt, wmma, ... or all.")
@click.option("--rung", "names", multiple=True, metavar="NAME", help="Only this rung; may be repeated.")
@click.option("-m", type=click.IntRange(1), help="Rows of A and D.")
@click.option("-n", type=click.IntRange(1), help="Columns of B and D.")
@click.option("-k", type=click.IntRange(1), help="Columns of A, rows of B.")
@click.option("--dtype", help="Operand type, such as float16; rungs that do not take it keep their own.")
@click.option("--accumulate", help="How sums are kept, such as float16; rungs that have no such sums keep their own.")
@click.option(
    "--backend", type=click.Choice(["auto", "gpu", "emulator"]), help="Where to run: the GPU if there is one. [auto]"
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    family: str,
    names: tuple[str, ...],
    m: int | None,
    n: int | None,
    k: int | None,
    dtype: str | None,
    accumulate: str | None,
    backend: str | None,
    as_json: bool,
) -> int:
    """Climb the ladder: compile each rung, run it, check it, count or time it.

    Without a GPU the kernels' PTX runs on the emulator, on a small problem; with one they are timed beside cuBLAS.
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
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
    else:
        console = Console() if sys.stdout.isatty() or "COLUMNS" in os.environ else Console(width=FILE_WIDTH)
        predicted = {} if on_gpu else predictions(rungs, place, element, sums)
        console.print(table(document, predicted, ideas=console.width >= IDEAS_FROM_WIDTH))
        for line in notes(document):
            console.print(line, markup=False, highlight=False)
    return status(results, named=bool(names))


def chosen_rungs(family: str, names: Sequence[str]) -> list[Rung]:
    """The rungs that the options select, in ladder order.

    Raises:
        click.BadParameter: no such family or rung, or the rung is of another family.
    """
    if family != "all" and family not in families():
        raise click.BadParameter(f"got {family!r}; it takes {', '.join(families())} or all", param_hint="--family")
    unknown = [name for name in names if name not in RUNGS]
    if unknown:
        raise click.BadParameter(f"got {unknown[0]!r}; the ladder has {', '.join(RUNGS)}", param_hint="--rung")
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


def watched(results: Any, names: Sequence[str]) -> Any:
    """Hand the results on, with a progress bar on stderr where someone can see it."""
    columns = (TextColumn("{task.description:<22}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(names[0] if names else "", total=len(names))
        for done, result in enumerate(results, 1):
            progress.update(task, completed=done, description=names[min(done, len(names) - 1)])
            yield result


# --- what the figures are compared with ------------------------------------------------------------------------------


def recorded(name: str, problem: Problem) -> dict[str, Any] | None:
    """The committed result of a rung on the reference GPU: on this problem, else on the recorded size."""
    from warptile.bench import records

    sizes = dict.fromkeys([(problem.m, problem.n, problem.k), RECORDED_SIZE])
    for m, n, k in sizes:
        found = records.measured(
            name, m, n, k, problem.a.dtype.name, accumulator=problem.accumulator.name, b_major=problem.b.major,
            a_major=problem.a.major,
        )  # fmt: skip
        if found is not None:
            return {"m": m, "n": n, "k": k, **msgspec.to_builtins(found)}
    return None


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
        from warptile.bench.baseline import WORKSPACE_BYTES, CublasLt
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
        from warptile.bench.baseline import fastest
        from warptile.bench.workloads import to_key
        from warptile.device_product import DENSE
        from warptile.gpu import timing

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
) -> dict[str, Prediction]:
    """What each rung should reach on the reference GPU at the recorded size, which suits a GPU."""
    found = {}
    for rung in rungs:
        try:
            found[rung.name] = ladder.plan_for(rung, RECORDED_SIZE, place, dtype, accumulate).prediction
        except UnsupportedError:
            continue  # its row says already that it is not taken here
    return found


def table(document: Ladder, at_recorded_size: Mapping[str, Prediction], *, ideas: bool = True) -> Table:
    """The ladder as a table; ``*`` marks figures that are of the recorded size, and not of this run."""
    size = document.problem
    where = document.environment["gpu"] or "the emulator"
    made = Table(
        title=f"D[{size.m}, {size.n}] = A[{size.m}, {size.k}] @ B[{size.k}, {size.n}] on {where}",
        title_justify="left",
        title_style="bold",
        pad_edge=False,
        collapse_padding=True,
        box=box.SIMPLE_HEAD,
    )
    for name in ("rung", "idea", "type", "correct") if ideas else ("rung", "type", "correct"):
        made.add_column(name, no_wrap=name != "idea")
    for name in ("conflicts", "FLOP/byte", "predicted", "TFLOP/s", "of cuBLAS"):
        made.add_column(name, justify="right")
    made.add_column("", no_wrap=True, min_width=BAR_WIDTH if ideas else 0)
    speeds = [shown(result)[0] for result in document.rungs]
    top = max((speed for speed in speeds if speed is not None), default=None)
    for result, speed in zip(document.rungs, speeds, strict=True):
        name, idea, *cells = row(result, size, at_recorded_size.get(result.name))
        made.add_row(name, *([idea] if ideas else []), *cells, bar(speed, top))
    return made


def row(result: RungResult, size: ProblemSize, elsewhere: Prediction | None = None) -> list[str]:
    """The cells of one rung, without its bar; ``elsewhere`` is its prediction at the recorded size."""
    loads = result.counters.get("global_load_bytes")
    flops = 2 * size.m * size.n * size.k
    conflicts = result.counters.get("shared_load_conflict_ratio")
    has_shared = bool(result.counters.get("shared_load_wavefronts"))
    predicted = elsewhere or result.predicted
    speed, share, mark = shown(result)
    return [
        result.name,
        result.idea,
        result.dtype,
        verdict(result),
        f"{conflicts:.2f}" if conflicts is not None and has_shared else "-",
        f"{flops / loads:.1f}" if loads else "-",
        f"{predicted.bound} {predicted.tflops:.1f}{'*' if elsewhere else ''}" if predicted else "-",
        f"{speed:.1f}{mark}" if speed is not None else "-",
        f"{share:.1%}{mark}" if share is not None else "-",
    ]


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
        f"{result.name}: operands are copied first, {result.copy_bytes} bytes read and written: in its time, not in "
        f"conflicts and FLOP/byte"
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
    lines.append(
        "correct: largest error as a share of its bound.  conflicts: shared-memory wavefronts over the ideal.  "
        "FLOP/byte: 2mnk over bytes loaded."
    )
    return lines
