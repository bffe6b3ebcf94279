"""`warptile tune`: find a rung's fastest configuration on this GPU, and keep it."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from warptile.bench.protocol.suites import SUITES
from warptile.cli._gpu import timed_on_gpu
from warptile.cli._names import DTYPE, RUNG, instead, one_of
from warptile.cli._tables import Column, console_of, show
from warptile.errors import NoDeviceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from warptile.problem import Problem
    from warptile.tuning.search import Progress as TuneProgress
    from warptile.tuning.search import SearchOutcome

SHOWN = 20
SHOWN_FAILURES = 3
SUITE_HELP = "Search all problems of a suite in a few seconds each; several, or all of them."


@click.command("tune")
@click.argument("name", metavar="[RUNG]", required=False, type=RUNG, default="wmma-final")
@click.option("-m", default=4096, show_default=True, type=click.IntRange(1), help="Rows of A and D.")
@click.option("-n", default=4096, show_default=True, type=click.IntRange(1), help="Columns of B and D.")
@click.option("-k", default=4096, show_default=True, type=click.IntRange(1), help="Columns of A, rows of B.")
@click.option("--dtype", type=DTYPE, help="Type of A and B, by default the rung's usual one.")
@click.option("--accumulate", type=DTYPE, help="Accumulator type, by default the operand type's usual one.")
@click.option("--b-major", type=one_of("row", "col"), default="row", show_default=True, help="B as [K, N] or [N, K].")
@click.option("--limit", type=click.IntRange(1), default=None, help="Measure at most so many, the best predictions.")
@click.option(
    "--resume/--fresh", default=True, show_default=True, help="Use what was measured before, or measure again."
)
@click.option(
    "--top", default=SHOWN, show_default=True, type=click.IntRange(1), help="Configurations that are printed."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with every configuration.")
@click.option("--suite", "suites", multiple=True, type=one_of(*SUITES, "all"), help=SUITE_HELP)
@click.option("--only", multiple=True, help="With --suite: problems whose name has this word, such as 8192x8192x8192.")
@click.option("--calibrate", "to_calibrate", is_flag=True, help="Fit the cost model of plans to this GPU.")
@click.option(
    "--minutes", type=click.FloatRange(0.5), help="With --suite (60) and --calibrate (5): begin nothing after that."
)
@click.option("--out", type=click.Path(path_type=Path), help="With --suite and --calibrate: folder for the results.")
@click.option("--compile-only", is_flag=True, help="With --suite: compile its kernels into the cache; needs no GPU.")
@click.option("--processes", type=click.IntRange(1), default=None, help="Compiler processes; one for each core.")
def command(
    name: str,
    m: int,
    n: int,
    k: int,
    dtype: str | None,
    accumulate: str | None,
    b_major: str,
    limit: int | None,
    resume: bool,
    top: int,
    as_json: bool,
    suites: tuple[str, ...],
    only: tuple[str, ...],
    to_calibrate: bool,
    minutes: float | None,
    out: Path | None,
    compile_only: bool,
    processes: int | None,
) -> int:
    """Find a rung's fastest configuration on this GPU. Needs a GPU.

    Without a name, RUNG is wmma-final. What is found is kept, and `warptile.matmul` uses it from then on, in processes
    that already run too; WARPTILE_AUTOTUNE=off leaves it out.

    Every result is on disk as soon as it is measured: interrupt it, and the same command goes on where it was.
    With --suite, wgmma-final is searched on all problems of a suite, with a short list of configurations for each.

    With --calibrate, random problems are timed for some minutes, and the constants of the cost model that chooses plans
    for problems that nobody tuned are fitted to them: for a Hopper GPU other than an H200. Processes that start later
    use it.

    \b
    Examples:
      warptile tune --calibrate
      warptile tune wgmma-final -m 4096 -n 14336 -k 4096 --dtype bf16
      warptile tune --suite llm --minutes 30 --out searches
      warptile tune --suite squares --compile-only
    """
    if to_calibrate:
        if suites or only or compile_only:
            raise click.UsageError("--calibrate goes without --suite, --only and --compile-only")
        return calibrate(out, 5.0 if minutes is None else minutes)
    if suites:
        named = tuple(SUITES) if "all" in suites else suites
        return tune_suites(named, only, 60.0 if minutes is None else minutes, out, compile_only, processes)
    if compile_only or only or out is not None or minutes is not None:
        raise click.UsageError("--compile-only, --only, --out and --minutes go with --suite, such as --suite squares")
    from warptile.dtypes import dtype as dtype_named
    from warptile.ladder import LADDER_OUTPUTS
    from warptile.problem import Problem
    from warptile.rungs import rung as rung_named
    from warptile.tuning.gpu_search import tune_on_gpu

    rung = rung_named(name)
    element = dtype_named(dtype or rung.dtypes[0])
    accumulator = dtype_named(accumulate or element.accumulators[0])
    problem = Problem.dense(
        m, n, k, element, out=dtype_named(LADDER_OUTPUTS[element.name][0]), accumulator=accumulator, b_major=b_major
    )
    always = always_tried(name, problem)
    without = "`warptile tune --suite squares --compile-only` compiles what would be timed"
    with timed_on_gpu("tune", without), progress_bar(name) as report:
        outcome = tune_on_gpu(rung, problem, always=always, limit=limit, fresh=not resume, report=report)
    if as_json:
        document = {
            "schema": "warptile.tune/1", "gpu": outcome.search.gpu, "rung": name, "reused": outcome.reused,
            "candidates": outcome.candidates, "illegal": outcome.illegal, "pruned": outcome.pruned,
            "entries": outcome.entries,
        }  # fmt: skip
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
    else:
        draw(console_of(), outcome, problem, top)
    return 0 if outcome.best is not None else 1


def calibrate(out: Path | None, minutes: float) -> int:
    """Fit the cost model to the GPU that is present."""
    from warptile.bench.campaign import calibration, suite_search
    from warptile.gpu import driver
    from warptile.planning.tuned_table import folder
    from warptile.runtime.execute import has_gpu

    if not has_gpu():
        raise NoDeviceError("tune --calibrate: there is no NVIDIA GPU with a driver here, and it measures one")
    device = driver.device_info().limits
    kept = folder().parent / "surveys" / device.name.lower().replace(" ", "-")
    click.echo(f"{calibration.calibrate(device, out or kept, minutes, suite_search.say)}: written", err=True)
    return 0


def tune_suites(
    suites: tuple[str, ...],
    only: tuple[str, ...],
    minutes: float,
    out: Path | None,
    compile_only: bool,
    processes: int | None,
) -> int:
    """Search the problems of some suites, or only compile for them; exit status 1 when time ran out or some did not."""
    from warptile.bench.campaign import suite_search
    from warptile.planning.tuned_table import folder
    from warptile.runtime.execute import has_gpu

    if not suite_search.tasks_of(suites, only):
        names = [shape.name for shape in suite_search.suite_problems(suites)]
        raise click.UsageError(f"--only: {instead(' or '.join(only), names)}")
    if compile_only:
        return 1 if suite_search.compile_only(suite_search.tasks_of(suites, only), suite_search.say, processes) else 0
    if out is None:
        raise click.UsageError(
            "--suite needs --out FOLDER for its results, such as --out searches; with "
            f"--out {folder()} warptile.matmul uses them from then on"
        )
    if not has_gpu():
        raise NoDeviceError("tune --suite: there is no NVIDIA GPU with a driver here; --compile-only works without one")
    until_s = time.time() + 60 * minutes
    return 0 if suite_search.supervise(suites, only, out, until_s, suite_search.say) else 1


def always_tried(name: str, problem: Problem) -> tuple[Any, ...]:
    """Configurations that are measured whatever is predicted for them."""
    if name != "wmma-final":
        return ()
    from warptile.rungs.wmma import nine

    return nine(problem)


@contextmanager
def progress_bar(name: str) -> Iterator[Callable[[TuneProgress], None]]:
    """A bar on stderr: what is being done, how far it is, and the best so far."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
               TextColumn("{task.fields[best]}"))  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None, best="")

        def report(progress: TuneProgress) -> None:
            best = "" if progress.best_ms is None else f"best {progress.best_ms:.4f} ms"
            bar.update(
                task, description=f"{name}: {progress.doing}", completed=progress.done, total=progress.total, best=best
            )

        yield report


def draw(console: Console, outcome: SearchOutcome, problem: Problem, top: int) -> None:
    """Print configuration, ms and TFLOP/s, the best first and marked; of failures the first few with their reasons."""
    from warptile.planning.plan import config_text

    measured = [entry for entry in outcome.entries if entry.time_ms is not None]
    failed = [entry for entry in outcome.entries if entry.time_ms is None]
    shown = measured[:top]
    times_ms = [entry.time_ms or math.inf for entry in shown]
    dashes = ["–"] * len(failed[:SHOWN_FAILURES])
    columns = [
        Column("ms", [*(f"{time_ms:.4f}" for time_ms in times_ms), *dashes]),
        Column("TFLOP/s", [*(f"{problem.flops / time_ms / 1e9:.1f}" for time_ms in times_ms), *dashes]),
        Column("", ["[bold]best[/]", *[""] * (len(shown) - 1)][: len(shown)] + [""] * len(dashes), left=True),
        Column(
            "configuration",
            [config_text(entry.config) for entry in shown]
            + [escape(f"{config_text(entry.config)}: {entry.failed or 'failed'}") for entry in failed[:SHOWN_FAILURES]],
            left=True, least=40,
        ),
    ]  # fmt: skip
    shape = f"{problem.m} x {problem.n} x {problem.k}"
    show(console, f"{outcome.search.rung} {shape} {problem.a.dtype.name} on {outcome.search.gpu}", columns)
    known = "known before" if outcome.reused else "measured"
    console.print(
        f"{len(measured)} of {outcome.candidates} configurations {known}, {len(failed)} failed, {outcome.pruned} left "
        f"out by prediction, {outcome.illegal} illegal",
        markup=False, highlight=False,
    )  # fmt: skip
