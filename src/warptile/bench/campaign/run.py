"""Measure everything a release needs on one GPU, in stages that can be stopped, resumed and repeated.

    python -m warptile.bench.campaign.run --out DIR --stage all --minutes 9

writes a journal, the tuned configurations and one record of each kind to DIR. The work runs in a worker process: a
kernel that faults or hangs takes only that process down, is noted as failed, and the next process goes on with the
rest. Run it again with the same DIR (or ``--previous`` naming a copy of it) to go on; finished tasks are not repeated.

    python -m warptile.bench.campaign.run --adopt DIR --records records --notes "what was learned"

copies DIR's records to the folder of ``--records``, with the notes in them.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from warptile.bench.campaign import precompile, stages
from warptile.bench.campaign.journal import Journal, JournalTask, run_tasks
from warptile.bench.protocol.environment import describe, git_hash, now
from warptile.bench.protocol.records import decode, encode, write
from warptile.bench.protocol.suites import SUITES
from warptile.bench.protocol.workloads import SIZES
from warptile.errors import DeviceError, NoDeviceError
from warptile.rungs import RUNGS, families
from warptile.rungs import rung as rung_named
from warptile.tuning.search import compile_ahead

STALL_S = 260.0
"""A worker whose journal has not grown for so long hangs, and is killed. (A whole search is one task: its own table
grows, and counts.)"""

TIME_LEFT_S = 20.0
"""A worker starts no task when less than this is left."""

STATUS_TIME = 75
"""Exit status of a worker that ran out of time."""

STATUS_LOST = 70
"""Exit status of a worker whose GPU context was lost."""


def say(text: str) -> None:
    """Progress, at once."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def _work(out: Path, rungs: Sequence[str], sizes: Sequence[int], **limits: Any) -> stages.Campaign:
    chosen = tuple(rung_named(name) for name in rungs)
    journal = Journal(out / "journal.jsonl")
    return stages.Campaign(journal, chosen, tuple(sizes), tuned_folder=out / "tuned", say=say, **limits)


def compile_stage(stage: str, work: stages.Campaign) -> None:
    """Compile a stage's kernels in parallel into the cache; what does not compile is said, and fails in its task."""
    sources = precompile.sources_of(stage, work)
    start_s = time.monotonic()
    failed = [made for _, made in compile_ahead(sources, work.arch) if isinstance(made, str)]
    say(f"{stage}: {len(sources)} kernels in {time.monotonic() - start_s:.0f} s, {len(failed)} do not compile")
    for reason in dict.fromkeys(failed):
        say(f"  {reason}")


def loses_the_gpu(error: Exception) -> bool:
    """Whether a process can do nothing more on the GPU after this error."""
    return isinstance(error, DeviceError) and not isinstance(error, NoDeviceError)


def worker(stage: str, work: stages.Campaign, until_s: float) -> int:
    """Run a stage's tasks until ``until_s`` of the clock; the exit status."""
    start_s = time.monotonic()
    counts = {"done": 0}

    def expired() -> bool:
        return time.time() > until_s - TIME_LEFT_S

    def announced() -> Iterator[JournalTask]:
        for name, task in work.tasks(stage):
            if not work.journal.settled(name):
                counts["done"] += 1
                say(name)
            yield name, task

    with work.sampler:
        try:
            left = run_tasks(work.journal, announced(), say=say, fatal=loses_the_gpu, expired=expired)
        finally:
            if counts["done"]:
                work.journal.finish(f"environment/{stage}", work.environment(start_s))
    return STATUS_TIME if left else 0


def supervise(stage: str, out: Path, arguments: Sequence[str], until_s: float) -> bool:
    """Run workers for a stage until it is done; False when time ran out."""
    command = [sys.executable, "-m", "warptile.bench.campaign.run", "--worker", stage, "--out", str(out), *arguments]
    command += ["--until", str(until_s)]
    before = -1
    while True:
        status = _watch(command, out, until_s)
        journal = Journal(out / "journal.jsonl")
        if status in (0, STATUS_TIME):
            return status == 0
        reason = "the worker hung and was killed" if status is None else f"the worker ended with status {status}"
        stuck = journal.fail_unfinished(reason)
        say(f"{stage}: {reason}{f' in {stuck[0]}' if stuck else ''}")
        settled = len(journal.path.read_bytes().splitlines()) if journal.path.exists() else 0
        if settled <= before:
            say(f"{stage}: nothing was settled since the last worker; giving the stage up")
            return True
        before = settled
        if time.time() > until_s - TIME_LEFT_S:
            return False


def _newest_write(out: Path) -> float:
    files = [out / "journal.jsonl", *(out / "tuned").glob("*.jsonl")]
    return max((file.stat().st_mtime for file in files if file.exists()), default=0.0)


def _watch(command: Sequence[str], out: Path, until_s: float) -> int | None:
    """Run a worker; its exit status, or None when it hung. One that outlives the time is ended."""
    started = time.time()
    process = subprocess.Popen(command, env=dict(os.environ))
    try:
        while process.poll() is None:
            time.sleep(0.5)
            if time.time() > until_s:
                process.terminate()
                try:
                    process.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    process.kill()
                Journal(out / "journal.jsonl").forget_unfinished()
                return STATUS_TIME
            if time.time() - max(started, _newest_write(out)) > STALL_S:
                process.kill()
                process.wait()
                return None
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    return process.returncode


def write_records(out: Path, command: str, commit: str, prediction: str = "") -> int:
    """Records of all that the journal has, one file a kind; every failed task is said. How many there are."""
    journal = Journal(out / "journal.jsonl")
    about = describe(None)
    made = stages.records_of(
        journal, date=now(), git_hash=commit, command=command, environment=about, prediction=prediction
    )
    for record in made:
        (out / f"{record.kind}.json").write_bytes(encode(record))
        say(f"{record.kind}.json written")
    failures = journal.failures()
    for task, reason in failures.items():
        say(f"FAILED {task}: {reason}")
    return len(failures)


def adopt(source: Path, folder: Path, notes: str = "", prediction: str = "") -> list[Path]:
    """Copy the records of ``source`` to ``folder`` under their own names, and return the files.

    ``notes`` and ``prediction`` replace those of each record, where they are given.
    """
    written = []
    for path in sorted(source.glob("*.json")):
        record = decode(path.read_bytes(), path.name)
        changes = {name: text for name, text in (("notes", notes), ("prediction", prediction)) if text}
        written.append(write(msgspec.structs.replace(record, **changes), folder))
    return written


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--out", type=click.Path(path_type=Path), help="Folder for journal, tuned configurations and records.")
@click.option("--stage", "chosen", multiple=True, type=click.Choice((*stages.STAGES, "all")), default=("all",))
@click.option("--rung", "names", multiple=True, help="Only these rungs.")
@click.option("--family", "chosen_families", multiple=True, type=click.Choice(families()), help="Only these families.")
@click.option("--size", "sizes", multiple=True, type=int, default=SIZES, show_default=True, help="Sizes of the sweep.")
@click.option("--type", "types", multiple=True, help="Sweep and tune only these types, such as bf16.")
@click.option("--suite", "suites", multiple=True, type=click.Choice(tuple(SUITES)), default=tuple(SUITES),
              help="Compare these suites.")  # fmt: skip
@click.option("--only", multiple=True, help="Of suites only the rows named so, such as '4096^3 bf16'.")
@click.option("--brief", is_flag=True, help="Suites in short rounds.")
@click.option("--minutes", type=float, default=60.0, show_default=True, help="Start nothing that ends later.")
@click.option("--git", "commit", default=None, help="Commit of the sources, where there is no checkout to ask.")
@click.option("--previous", type=click.Path(path_type=Path), help="Folder of an earlier run to go on from.")
@click.option("--retry", is_flag=True, help="Let failed tasks run again.")
@click.option(
    "--adopt", "adopted", type=click.Path(path_type=Path), help="Copy the records of this folder to --records."
)
@click.option(
    "--records", type=click.Path(path_type=Path, file_okay=False), help="With --adopt: the folder of records to add to."
)
@click.option("--notes", default="", help="With --adopt: what was learned.")
@click.option("--prediction", default="", help="What is predicted, written before the run.")
@click.option("--worker", "as_worker", type=click.Choice(stages.STAGES), hidden=True)
@click.option("--until", type=float, default=None, hidden=True)
def main(
    out: Path | None,
    chosen: tuple[str, ...],
    names: tuple[str, ...],
    chosen_families: tuple[str, ...],
    sizes: tuple[int, ...],
    types: tuple[str, ...],
    suites: tuple[str, ...],
    only: tuple[str, ...],
    brief: bool,
    minutes: float,
    commit: str | None,
    previous: Path | None,
    retry: bool,
    adopted: Path | None,
    records: Path | None,
    notes: str,
    prediction: str,
    as_worker: str | None,
    until: float | None,
) -> None:
    """Measure everything a release needs on one GPU, in stages that can be stopped, resumed and repeated.

    Exit status 1 when a task failed; the others' results are written all the same.
    """
    if adopted is not None:
        if records is None:
            raise click.UsageError("--adopt needs --records FOLDER, where the records go, such as --records records")
        for path in adopt(adopted, records, notes, prediction):
            click.echo(path.name)
        return
    if out is None:
        raise click.UsageError("--out is needed: a folder for the results, such as --out campaign")
    rungs = names or tuple(
        rung.name for rung in RUNGS.values() if not chosen_families or rung.family in chosen_families
    )
    limits = {"types": types, "suites": suites, "only": only, "brief": brief}
    until_s = until if until is not None else time.time() + 60 * minutes
    if as_worker is not None:
        try:
            sys.exit(worker(as_worker, _work(out, rungs, sizes, **limits), until_s))
        except DeviceError:
            sys.exit(STATUS_LOST)  # the task's failure is in the journal and was said
    _begin(out, previous, retry)
    arguments = [word for name in rungs for word in ("--rung", name)]
    arguments += [word for size in sizes for word in ("--size", str(size))]
    named = [*(("--type", each) for each in types), *(("--only", each) for each in only)]
    named += [] if suites == tuple(SUITES) else [("--suite", each) for each in suites]
    arguments += [*(word for pair in named for word in pair), *(["--brief"] if brief else [])]
    wanted = stages.STAGES if "all" in chosen else tuple(stage for stage in stages.STAGES if stage in chosen)
    said = [*(f"--stage {stage}" for stage in wanted), *(f"--family {family}" for family in chosen_families)]
    said += [f"--rung {name}" for name in names] + ([] if sizes == SIZES else [f"--size {size}" for size in sizes])
    said += [*(f"{option} {shlex.quote(each)}" for option, each in named), *(["--brief"] if brief else [])]
    command = "python -m warptile.bench.campaign.run " + " ".join(said)
    try:
        for stage in wanted:
            compile_stage(stage, _work(out, rungs, sizes, **limits))
            if not supervise(stage, out, arguments, until_s):
                say(f"{stage}: out of time; run the same command again to go on")
                break
    finally:
        failed = write_records(out, command, commit or git_hash(), prediction)
    sys.exit(1 if failed else 0)


def _begin(out: Path, previous: Path | None, retry: bool) -> None:
    """Make the folder, take over an earlier run's journal and table, and forget failures if asked to."""
    out.mkdir(parents=True, exist_ok=True)
    if previous is not None and not (out / "journal.jsonl").exists():
        for file in (previous / "journal.jsonl", *sorted((previous / "tuned").glob("*.jsonl"))):
            if file.exists():
                target = out / file.relative_to(previous)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)
    journal = Journal(out / "journal.jsonl")
    journal.forget_unfinished()
    if retry:
        journal.forget_failures()


if __name__ == "__main__":
    main()
