"""`warptile tune`: find a rung's fastest configuration on this GPU, and keep it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from warptile.errors import NoDeviceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from warptile.problem import Problem
    from warptile.tune import Outcome
    from warptile.tune import Progress as TuneProgress

SHOWN = 20
SUITES = ("squares", "llm", "small", "ragged", "types")
SUITE_HELP = "Search all problems of a suite in a few seconds each; several, or all of them."


@click.command("tune")
@click.argument("name", metavar="[RUNG]", default="wmma-final")
@click.option("-m", default=4096, show_default=True, type=click.IntRange(1), help="Rows of A and D.")
@click.option("-n", default=4096, show_default=True, type=click.IntRange(1), help="Columns of B and D.")
@click.option("-k", default=4096, show_default=True, type=click.IntRange(1), help="Columns of A, rows of B.")
@click.option("--dtype", default=None, help="Operand type, by default the rung's usual one.")
@click.option("--accumulate", default=None, help="Accumulator type, by default the operand type's usual one.")
@click.option(
    "--b-major", type=click.Choice(["row", "col"]), default="row", show_default=True, help="B as [K, N] or [N, K]."
)
@click.option("--limit", type=click.IntRange(1), default=None, help="Measure at most so many, the best predictions.")
@click.option(
    "--resume/--fresh", default=True, show_default=True, help="Use what was measured before, or measure again."
)
@click.option(
    "--top", default=SHOWN, show_default=True, type=click.IntRange(1), help="Configurations that are printed."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with every configuration.")
@click.option("--suite", "suites", multiple=True, type=click.Choice((*SUITES, "all")), help=SUITE_HELP)
@click.option("--only", multiple=True, help="With --suite: problems whose name has this word, such as 8192x8192x8192.")
@click.option("--minutes", type=float, default=60.0, show_default=True, help="With --suite: begin nothing after that.")
@click.option("--out", type=click.Path(path_type=Path), help="With --suite: folder for what is found, not this user's.")
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
    minutes: float,
    out: Path | None,
    compile_only: bool,
    processes: int | None,
) -> int:
    """Measure RUNG's configurations on this GPU and keep the fastest for `matmul` (WARPTILE_AUTOTUNE=cached).

    Every result is on disk as soon as it is measured: interrupt it, and the same command goes on where it was.
    With --suite, wgmma-final on all problems of a suite, a short list of configurations on each.
    """
    if suites:
        return tune_suites(SUITES if "all" in suites else suites, only, minutes, out, compile_only, processes)
    if compile_only or only or out is not None:
        raise click.UsageError("--compile-only, --only and --out go with --suite, such as --suite squares")
    from warptile.dtypes import dtype as dtype_named
    from warptile.ladder import LADDER_OUTPUTS
    from warptile.problem import Problem
    from warptile.rungs import rung as rung_named
    from warptile.tune_gpu import tune_on_gpu

    rung = rung_named(name)
    element = dtype_named(dtype or rung.dtypes[0])
    accumulator = dtype_named(accumulate or element.accumulators[0])
    problem = Problem.dense(
        m, n, k, element, out=dtype_named(LADDER_OUTPUTS[element.name][0]), accumulator=accumulator, b_major=b_major
    )
    always = always_tried(name, problem)
    with progress_bar(name) as report:
        outcome = tune_on_gpu(rung, problem, always=always, limit=limit, fresh=not resume, report=report)
    if as_json:
        document = {
            "schema": "warptile.tune/1", "gpu": outcome.search.gpu, "rung": name, "reused": outcome.reused,
            "candidates": outcome.candidates, "illegal": outcome.illegal, "pruned": outcome.pruned,
            "entries": outcome.entries,
        }  # fmt: skip
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
    else:
        console = Console() if sys.stdout.isatty() else Console(width=160)
        console.print(table(outcome, problem, top))
    return 0 if outcome.best is not None else 1


def tune_suites(
    suites: tuple[str, ...],
    only: tuple[str, ...],
    minutes: float,
    out: Path | None,
    compile_only: bool,
    processes: int | None,
) -> int:
    """Search the problems of some suites, or only compile for them; exit status 1 when time ran out or some did not."""
    from warptile.bench import tuning
    from warptile.execute import has_gpu
    from warptile.tuned import folder

    if compile_only:
        return 1 if tuning.compile_only(tuning.tasks_of(suites, only), tuning.say, processes) else 0
    if not has_gpu():
        raise NoDeviceError("tune --suite: there is no NVIDIA GPU with a driver here; --compile-only works without one")
    until_s = time.time() + 60 * minutes
    return 0 if tuning.supervise(suites, only, out or folder(), until_s, tuning.say) else 1


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


def table(outcome: Outcome, problem: Problem, top: int) -> Table:
    """Configuration, ms, TFLOP/s, best marked; failures at the end are counted, not listed."""
    from warptile.plan import config_text

    measured = [entry for entry in outcome.entries if entry.time_ms is not None]
    failed = [entry for entry in outcome.entries if entry.time_ms is None]
    shape = f"{problem.m} x {problem.n} x {problem.k}"
    known = "known before" if outcome.reused else "measured"
    made = Table(
        title=f"{outcome.search.rung} {shape} {problem.a.dtype.name} on {outcome.search.gpu}",
        caption=f"{len(measured)} of {outcome.candidates} configurations {known}, {len(failed)} failed, "
        f"{outcome.pruned} left out by prediction, {outcome.illegal} illegal",
    )
    made.add_column("configuration")
    made.add_column("ms", justify="right")
    made.add_column("TFLOP/s", justify="right")
    made.add_column("")
    for position, entry in enumerate(measured[:top]):
        assert entry.time_ms is not None
        mark = "best" if position == 0 else ""
        style = "bold" if position == 0 else None
        made.add_row(
            config_text(entry.config),
            f"{entry.time_ms:.4f}",
            f"{problem.flops / entry.time_ms / 1e9:.1f}",
            mark,
            style=style,
        )
    for entry in failed[:3]:
        made.add_row(config_text(entry.config), "–", "–", entry.failed or "failed", style="dim")
    return made
