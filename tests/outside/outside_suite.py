"""Kernels that others wrote, on the emulator: tables of what has to be found in them, and what is.

A table is a Python file with ``NAME`` and ``cases(folder)``, which gives a `Case` for each launch. It holds verdicts
alone: the kernels are in the folder, which somebody else's suite or library was unpacked into.

    python tests/outside/outside_suite.py TABLE.py FOLDER [--only TEXT] [--revision COMMIT] [--json RECORDS]

prints what differs from the table, and then the totals; exit code 1 if anything does. ``--json`` writes a record of all
verdicts to a folder, from which `make docs` makes the tables of docs/emulator.md.
"""

from __future__ import annotations

import logging
import runpy
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

import warptile as wt
from warptile.bench.protocol.environment import describe_processor, git_hash, now
from warptile.bench.protocol.outside_verdicts import OutsideSuite, OutsideVerdict
from warptile.bench.protocol.records import OutsideRecord, write
from warptile.errors import WarptileError

Table = Callable[[Path], Iterable["Case"]]


@dataclass(frozen=True)
class Case:
    """One launch, and what is true of it.

    Attributes:
        name: in tables.
        source: file or text of the kernel.
        entry: which kernel, as in `warptile.kernel`; None if the file has one.
        launch: ``(grid, block)``, and if need be a cluster and bytes of dynamic shared memory.
        arguments: makes those of the launch.
        finds: checks that have to find something; none of a correct kernel.
        may_find: checks that may find something besides.
        right: whether the arguments hold the right result after the launch; None if nothing is compared.
        note: why ``finds`` is not what the suite says.
        options: further keywords of `warptile.kernel`.
    """

    name: str
    source: Path | str
    entry: str | None
    launch: tuple[Any, ...]
    arguments: Callable[[], Sequence[Any]]
    finds: tuple[str, ...] = ()
    may_find: tuple[str, ...] = ()
    right: Callable[[Sequence[Any]], bool] | None = None
    note: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def verdict(self) -> OutsideVerdict:
        """Launch the kernel on the emulator, and compare."""
        arguments = self.arguments()
        found: tuple[str, ...] = ()
        result, refused, instructions = None, "", 0
        started = time.perf_counter()
        try:
            kernel = wt.kernel(self.source, self.entry, backend="emulator", **self.options)
            report = kernel[self.launch](*arguments)
        except WarptileError as error:
            refused = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        else:
            assert report is not None, "the emulator reports"
            found = tuple(sorted({each.check for each in report.findings if each.fails}))
            instructions = int(report.counters["warp_instructions"])
            if self.right is not None and not self.finds:
                result = bool(report.finished and self.right(arguments))
        seconds = time.perf_counter() - started
        agrees = not refused and result is not False
        agrees = agrees and set(self.finds) <= set(found) <= {*self.finds, *self.may_find}
        return OutsideVerdict(
            case=self.name, expected=self.finds, found=found, result=result, refused=refused, agrees=agrees,
            seconds=seconds, warp_instructions=instructions, note=self.note,
        )  # fmt: skip


def close(got: Any, wanted: Any, *, relative: float = 1e-4) -> bool:
    """Whether an array is near to what it should be, relative to the largest element; NaN is not."""
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    return got.shape == wanted.shape and bool(np.abs(got - wanted).max() <= relative * np.abs(wanted).max())


def judge(cases: Iterable[Case], said: Callable[[str], None]) -> tuple[OutsideVerdict, ...]:
    """The verdicts of some cases; what differs is said at once.

    Raises:
        click.ClickException: there is no case.
    """
    quiet = logging.getLogger("warptile")
    level = quiet.level
    quiet.setLevel(logging.ERROR)  # findings are what is asked for
    try:
        verdicts = []
        for case in cases:
            verdicts.append(case.verdict())
            if not verdicts[-1].agrees:
                said(difference(verdicts[-1]))
    finally:
        quiet.setLevel(level)
    if not verdicts:
        raise click.ClickException("no case: the folder has no file of the table, or --only names none")
    return tuple(verdicts)


def difference(verdict: OutsideVerdict) -> str:
    """What is not as expected, in a line."""
    missed = sorted(set(verdict.expected) - set(verdict.found))
    false = sorted(set(verdict.found) - set(verdict.expected))
    said = [f"refused: {verdict.refused}"] if verdict.refused else [f"missed: {', '.join(missed)}"] if missed else []
    said += [f"found besides: {', '.join(false)}"] if false else []
    said += ["wrong result"] if verdict.result is False else []
    return f"{verdict.case}: {'; '.join(said)}"


def totals(suite: OutsideSuite) -> str:
    """A suite in a line."""
    return (
        f"{suite.name} {suite.revision}: {suite.caught} of {suite.faulty} faulty kernels caught, {suite.quiet} of "
        f"{suite.correct} correct ones without findings, {suite.right} of {suite.compared} results right, "
        f"{suite.refused} refused, {suite.differences} differences, {suite.seconds:.1f} s"
    )


def record_of(name: str, revision: str, verdicts: tuple[OutsideVerdict, ...], command: str) -> OutsideRecord:
    """What `make docs` reads."""
    return OutsideRecord(
        date=now(), git_hash=git_hash(), command=command, environment=describe_processor(), suite=name,
        revision=revision, groups=verdicts,
    )  # fmt: skip


def main(name: str, cases: Table, arguments: Sequence[str] | None = None) -> None:
    """The command line of a table: ``FOLDER [--only TEXT] [--revision COMMIT] [--json RECORDS]``. Ends the program."""

    @click.command(help=f"The emulator's verdicts on {name}, in FOLDER.")
    @click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
    @click.option("--only", default="", metavar="TEXT", help="Cases whose names contain this.")
    @click.option("--revision", default="", metavar="COMMIT", help="Of the folder's content, for the record.")
    @click.option("--json", "records", type=click.Path(file_okay=False, path_type=Path), help="Where a record goes.")
    def command(folder: Path, only: str, revision: str, records: Path | None) -> None:
        verdicts = judge((case for case in cases(folder.resolve()) if only in case.name), click.echo)
        suite = OutsideSuite.of(name, revision, verdicts)
        click.echo(totals(suite))
        if records is not None:
            said = shlex.join([Path(sys.argv[0]).name, *(["--only", only] if only else [])])
            click.echo(f"wrote {write(record_of(name, revision, verdicts, said), records)}")
        sys.exit(1 if suite.differences else 0)

    command(arguments)


if __name__ == "__main__":
    if len(sys.argv) < 2 or not Path(sys.argv[1]).is_file():
        sys.exit("usage: python tests/outside/outside_suite.py TABLE.py FOLDER [--only TEXT] [--json RECORDS]")
    table = runpy.run_path(sys.argv.pop(1))
    main(table["NAME"], table["cases"])
