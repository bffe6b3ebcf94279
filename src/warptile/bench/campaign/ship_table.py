"""From searches to the tables of tuned configurations that ship.

    python -m warptile.bench.campaign.ship_table DIR --records records --tables src/warptile/data \\
        --git HASH --command "..." --notes "what was learned"

writes what `warptile tune --suite ... --out DIR` found into a record in the folder of ``--records``, then makes the
tables in the folder of ``--tables`` from all records of searches there. Without DIR it only makes the tables. That is
due when a new record of suites has their speedup over cuBLASLt, and when an edit has made a configuration illegal: the
next best of its search then takes its place.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
import msgspec

from warptile.bench.campaign.suite_search import environment_file
from warptile.bench.protocol.environment import git_hash, now
from warptile.bench.protocol.measurements import Attempt, Environment, Searched
from warptile.bench.protocol.records import AnyRecord, SearchesRecord, SuitesRecord, latest, load_folder, write
from warptile.bench.protocol.row_result import LIBRARY
from warptile.bench.protocol.workloads import to_problem
from warptile.device import KNOWN, REFERENCE, DeviceLimits
from warptile.planning import shipped_table
from warptile.planning.plan import config_text
from warptile.planning.shipped_table import Origin, ShippedEntry, ShippedTable
from warptile.planning.tuned_table import Entry, ProblemClass, Search, Table
from warptile.rungs import RUNGS

# --- searches to a record --------------------------------------------------------------------------------------------


def searches_of(entries: Iterable[Entry]) -> tuple[Searched, ...]:
    """What a table of tuned configurations holds, search by search; searches that found nothing are left out."""
    by_search: dict[Search, dict[str, dict[int, Entry]]] = {}
    for entry in entries:
        if not entry.winner and not entry.online:
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
        gpu = of_rung[0][0].environment.gpu
        device = KNOWN.get(gpu, REFERENCE)
        keys = tuple(RUNGS[name].default_config(of_rung[0][1].problem.problem(), device))
        places = list(origins)
        found = (_entry(each, device, keys, places.index((record.id, each.source)), ratios) for record, each in of_rung)
        entries = tuple(entry for entry in found if entry is not None)
        made_from = tuple(Origin(ident, record.git_hash, source) for (ident, source), record in origins.items())
        tables.append(ShippedTable(shipped_table.SCHEMA, gpu, name, made_from, keys, entries))
    return tuple(tables)


def values_of(text: str) -> dict[str, int]:
    """A configuration from its line."""
    return {key: int(value) for key, value in (word.split("=") for word in text.split())}


def _best(each: Searched, device: DeviceLimits) -> tuple[Attempt, dict[str, int]] | None:
    """The first attempt that the rung takes today, and its configuration with all of today's tunables."""
    rung, problem = RUNGS[each.rung], each.problem.problem()
    own = rung.default_config(problem, device)
    for attempt in each.tried:
        values = values_of(attempt.config)
        config = {key: values.get(key, default) for key, default in own.items()}
        if attempt.failed is None and rung.illegal(problem, config, device) is None:
            return attempt, config
    return None


def _entry(
    each: Searched,
    device: DeviceLimits,
    keys: tuple[str, ...],
    origin: int,
    ratios: dict[tuple[str, ProblemClass, str], float],
) -> ShippedEntry | None:
    found = _best(each, device)
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
        for result in record.contests if isinstance(record, SuitesRecord) else ():
            share = result.speedup_over(LIBRARY)
            if share is not None and result.max_sms is None:
                problem = ProblemClass.of(to_problem(result.problem, offset=result.offset))
                found[result.rung, problem, config_text(result.config)] = share.median
    return found


def ship(records: Sequence[AnyRecord], folder: Path) -> list[Path]:
    """Write the tables that follow from records to ``folder``, and return the files."""
    written = []
    folder.mkdir(parents=True, exist_ok=True)
    for table in tables_of(records):
        assert table.rung in RUNGS, table.rung
        path = folder / shipped_table.path_of(table.rung).name
        path.write_bytes(shipped_table.encode(table))
        written.append(path)
    return written


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", required=False, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--records", type=click.Path(path_type=Path, file_okay=False), help="Folder of records: read, added to.")
@click.option(
    "--tables", type=click.Path(path_type=Path, file_okay=False), help="Folder that the tables are written to."
)
@click.option("--git", "commit", default=None, help="Commit of the sources that ran, by default that of this checkout.")
@click.option("--command", "ran", default="warptile tune --suite all", show_default=True, help="The command that ran.")
@click.option("--notes", default="", help="What was learned.")
@click.option("--prediction", default="", help="What was predicted, written before the run.")
def main(
    folder: Path | None,
    records: Path | None,
    tables: Path | None,
    commit: str | None,
    ran: str,
    notes: str,
    prediction: str,
) -> None:
    """Make a record of what was found in FOLDER, and the tables that ship from all records."""
    if records is None:
        raise click.UsageError(
            "--records FOLDER is needed: where records are read and written, such as --records records"
        )
    if tables is None:
        raise click.UsageError(
            f"--tables FOLDER is needed: where the tables go; those that ship are in {shipped_table.FOLDER}"
        )
    if folder is not None:
        record = record_of(folder, commit=commit or git_hash(), command=ran, notes=notes, prediction=prediction)
        click.echo(write(record, records).name)
    for path in ship(load_folder(records), tables):
        click.echo(path.name)


if __name__ == "__main__":
    main()
