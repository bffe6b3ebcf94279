"""From searches to the tables of tuned configurations that ship.

    python -m warptile.bench.shipping DIR --git HASH --command "..." --notes "what was learned"

puts what `warptile tune --suite ... --out DIR` found into a record with the package's, and makes the tables again from
all records of searches; without a DIR it only makes the tables, which is due when a record of suites says what they are
worth beside cuBLASLt, and when an edit has made a configuration illegal: the next best of its search then takes its
place.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
import msgspec

from warptile import shipped
from warptile.bench.contest import LIBRARY
from warptile.bench.environment import git_hash, now
from warptile.bench.measurements import Attempt, Environment, Searched
from warptile.bench.records import FOLDER, AnyRecord, SearchesRecord, SuitesRecord, latest, load_folder, write
from warptile.bench.tuning import environment_file
from warptile.bench.workloads import to_problem
from warptile.plan import config_text
from warptile.rungs import RUNGS
from warptile.shipped import Origin, ShippedEntry, ShippedTable
from warptile.tuned import Entry, ProblemClass, Search, Table

RECORDS = Path(__file__).parent / FOLDER


# --- searches to a record --------------------------------------------------------------------------------------------


def searches_of(entries: Iterable[Entry]) -> tuple[Searched, ...]:
    """What a table of tuned configurations holds, search by search; searches that found nothing are left out."""
    by_search: dict[Search, dict[str, dict[int, Entry]]] = {}
    for entry in entries:
        if not entry.winner:
            by_search.setdefault(entry.search, {}).setdefault(config_text(entry.config), {})[entry.stage] = entry
    found = []
    for search, configs in by_search.items():
        tried = sorted((_attempt(text, stages) for text, stages in configs.items()), key=_rank)
        if tried and tried[0].failed is None:
            found.append(Searched(rung=search.rung, source=search.source, problem=search.problem, tried=tuple(tried)))
    return tuple(found)


def _attempt(text: str, stages: dict[int, Entry]) -> Attempt:
    last = stages[max(stages)]
    brief = stages.get(0)
    return Attempt(
        config=text, brief_ms=brief.time_ms if brief is not None else None, rounds_ms=last.rounds_ms, failed=last.failed
    )


def _rank(attempt: Attempt) -> tuple[bool, bool, float]:
    """Those that ran to the end first, by their median; then by the brief look; failures last."""
    time_ms = statistics.median(attempt.rounds_ms) if attempt.rounds_ms else attempt.brief_ms
    return attempt.failed is not None, not attempt.rounds_ms, time_ms if time_ms is not None else float("inf")


def record_of(folder: Path, *, commit: str, command: str, notes: str = "", prediction: str = "") -> SearchesRecord:
    """The record of what a run left in a folder: tables of one GPU, and what it ran on.

    Raises:
        UsageError: the folder has no finished search.
    """
    entries = [entry for path in sorted(folder.glob("*.jsonl")) for entry in Table(path.stem, folder).entries()]
    searches = searches_of(entries)
    if not searches:
        raise click.UsageError(f"{folder}: no search ran to its end there; give the --out of `warptile tune --suite`")
    environment = msgspec.json.decode(environment_file(folder).read_bytes(), type=Environment)
    return SearchesRecord(
        date=max(entry.date for entry in entries) or now(), git_hash=commit, command=command, environment=environment,
        prediction=prediction, notes=notes, searches=searches,
    )  # fmt: skip


# --- records to tables -----------------------------------------------------------------------------------------------


def tables_of(records: Sequence[AnyRecord]) -> tuple[ShippedTable, ...]:
    """A table for each rung that was searched, from records, oldest first: of each problem its newest search, and of
    that the best configuration that the rung takes today. A tunable that is newer than the search has its default."""
    newest = latest(
        [record for record in records if isinstance(record, SearchesRecord)],
        lambda record: record.searches,
        lambda each: (each.rung, each.problem),
    )
    ratios = _ratios(records)
    tables = []
    for name in dict.fromkeys(rung for rung, _ in newest):
        of_rung = sorted(
            ((record, each) for record, each in newest.values() if each.rung == name),
            key=lambda pair: msgspec.structs.astuple(pair[1].problem)[::-1],
        )
        origins = {(record.id, each.source): record for record, each in of_rung}
        keys = tuple(RUNGS[name].default_config(of_rung[0][1].problem.problem()))
        places = list(origins)
        found = (_entry(each, keys, places.index((record.id, each.source)), ratios) for record, each in of_rung)
        entries = tuple(entry for entry in found if entry is not None)
        made_from = tuple(Origin(ident, record.git_hash, source) for (ident, source), record in origins.items())
        gpu = of_rung[0][0].environment.gpu
        tables.append(ShippedTable(shipped.SCHEMA, gpu, name, made_from, keys, entries))
    return tuple(tables)


def values_of(text: str) -> dict[str, int]:
    """A configuration from its line."""
    return {key: int(value) for key, value in (word.split("=") for word in text.split())}


def _best(each: Searched) -> tuple[Attempt, dict[str, int]] | None:
    """The first attempt that the rung takes today, and its configuration with all of today's tunables."""
    rung, problem = RUNGS[each.rung], each.problem.problem()
    own = rung.default_config(problem)
    for attempt in each.tried:
        values = values_of(attempt.config)
        config = {key: values.get(key, default) for key, default in own.items()}
        if attempt.failed is None and rung.illegal(problem, config) is None:
            return attempt, config
    return None


def _entry(
    each: Searched, keys: tuple[str, ...], origin: int, ratios: dict[tuple[str, ProblemClass, str], float]
) -> ShippedEntry | None:
    found = _best(each)
    if found is None:
        return None
    (best, config), problem = found, each.problem
    rounds = [time_ms for time_ms in best.rounds_ms or (best.brief_ms,) if time_ms is not None]
    operations = 2 * problem.m * problem.n * problem.k * problem.batch
    ratio = ratios.get((each.rung, problem, config_text(config)))
    return ShippedEntry(
        msgspec.structs.astuple(problem),
        tuple(config[key] for key in keys),
        round(operations / statistics.median(rounds) / 1e9, 1),
        round(ratio, 3) if ratio is not None else None,
        origin,
    )


def _ratios(records: Sequence[AnyRecord]) -> dict[tuple[str, ProblemClass, str], float]:
    """Speed over cuBLASLt's best by rung, problem and configuration, from the newest suites that have them."""
    found = {}
    for record in records:
        for contest in record.contests if isinstance(record, SuitesRecord) else ():
            share = contest.share(LIBRARY)
            if share is not None and contest.max_sms is None:
                problem = ProblemClass.of(to_problem(contest.problem, offset=contest.offset))
                found[contest.rung, problem, config_text(contest.config)] = share.median
    return found


def ship(records: Sequence[AnyRecord]) -> list[Path]:
    """Write the tables that follow from records; their files."""
    written = []
    shipped.FOLDER.mkdir(exist_ok=True)
    for table in tables_of(records):
        assert table.rung in RUNGS, table.rung
        path = shipped.path_of(table.rung)
        path.write_bytes(shipped.encode(table))
        written.append(path)
    return written


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", required=False, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--git", "commit", default=None, help="Commit of the sources that ran, by default that of this checkout.")
@click.option("--command", "ran", default="warptile tune --suite all", show_default=True, help="The command that ran.")
@click.option("--notes", default="", help="What was learned.")
@click.option("--prediction", default="", help="What was predicted, written before the run.")
def main(folder: Path | None, commit: str | None, ran: str, notes: str, prediction: str) -> None:
    """Make a record of what was found in FOLDER, and the tables that ship from all records."""
    if folder is not None:
        record = record_of(folder, commit=commit or git_hash(), command=ran, notes=notes, prediction=prediction)
        click.echo(write(record, RECORDS).name)
    for path in ship(load_folder(RECORDS)):
        click.echo(path.name)


if __name__ == "__main__":
    main()
