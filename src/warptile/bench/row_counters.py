"""Nsight Compute's counters of rows of the suites as they ship, beside what their targets compare them with."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import msgspec

from warptile.bench.contest import BESIDE, LIBRARY, OURS, Contest
from warptile.bench.counted import KEPT, METRICS, STREAM, Counted, Kernel
from warptile.bench.measurements import ProblemKey
from warptile.bench.ncu import ProfileError, collect, launched, page, parse_kernels
from warptile.bench.standing import WHO, Measured, misses
from warptile.bench.suites import SUITES, TARGETS, Row

TIMEOUT_S = 200.0


class CountRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One participant of a row: which problem it runs, and the library's algorithm where it is the library's."""

    key: ProblemKey
    offset: int = 0
    max_sms: int | None = None
    algorithm: str | None = None


def rows_to_count(
    measured: Iterable[Contest], suites: Sequence[str], only: tuple[str, ...] = ()
) -> dict[str, list[tuple[Row, Contest]]]:
    """Rows of some suites with what was measured of them: those that miss their class's bound
    (`warptile.bench.standing.misses`), or those of which the name has one of some words. Of contests of one row the
    last counts."""
    contests = {(contest.suite, *contest.row): contest for contest in measured}
    rows = [
        (suite, Measured(row, contests.get((suite, row.problem, row.offset, row.max_sms, row.beside))))
        for suite, rows in SUITES.items()
        for row in rows
    ]
    missed = {id(each) for found in misses([each for _, each in rows]).values() for each in found}
    found: dict[str, list[tuple[Row, Contest]]] = {}
    for suite, each in rows:
        asked = any(word in each.row.name for word in only) if only else id(each) in missed
        if suite in suites and asked and each.contest is not None and not each.contest.failed:
            found.setdefault(suite, []).append((each.row, each.contest))
    return found


def participants(row: Row, contest: Contest) -> Iterator[tuple[Counted, CountRequest]]:
    """Our product, and what its targets compare it with: the row beside, or else the library's best algorithm."""
    mine = Counted(
        problem=row.problem, offset=row.offset, max_sms=row.max_sms, beside=row.beside, who=OURS, rung=contest.rung,
        config=contest.config,
    )  # fmt: skip
    yield mine, CountRequest(key=row.problem, offset=row.offset, max_sms=row.max_sms)
    others = {WHO.get(TARGETS[name].of, LIBRARY) for name in row.classes}
    if BESIDE in others and row.beside is not None:
        other = {"who": BESIDE, "rung": contest.beside_rung, "config": contest.beside_config}
        yield msgspec.structs.replace(mine, **other), CountRequest(key=row.beside)
    if LIBRARY in others and contest.baseline is not None:
        other = {"who": LIBRARY, "rung": "", "config": {}, "algorithm": contest.baseline}
        yield (
            msgspec.structs.replace(mine, **other),
            CountRequest(key=row.problem, offset=row.offset, algorithm=contest.baseline),
        )


def count(rows: Iterable[tuple[Row, Contest]]) -> list[Counted]:
    """Every participant of some rows under Nsight Compute, in one process of its own, clocks left alone.

    Raises:
        NoDeviceError: Nsight Compute is not installed.
        ProfileError: it wrote no report, or one that does not tell participants apart.
    """
    asked = [each for row, contest in rows for each in participants(row, contest)]
    with tempfile.TemporaryDirectory(prefix="warptile-ncu-") as name:
        requests = Path(name) / "requests.json"
        requests.write_bytes(msgspec.json.encode([request for _, request in asked]))
        program = [sys.executable, "-m", "warptile.bench.count_rows", str(requests)]
        options = ["--profile-from-start", "off", "--section", "LaunchStats"]
        report, output, dropped = collect(program, Path(name) / "report.ncu-rep", METRICS, options, TIMEOUT_S)
        if dropped:
            print(f"ncu: this GPU lacks {', '.join(dropped)}")
        raw = page(report, "--page", "raw", timeout_s=TIMEOUT_S)
    return assigned([counted for counted, _ in asked], output, parse_kernels(raw))


def assigned(asked: Sequence[Counted], output: str, kernels: Sequence[tuple[str, dict[str, float]]]) -> list[Counted]:
    """The kernels of each participant: those that follow each other in one stream.

    Raises:
        ProfileError: there are more or fewer streams than participants that were launched.
    """
    made, failed = launched(output)
    streams = [list(group) for _, group in groupby(kernels, key=lambda kernel: kernel[1].get(STREAM))]
    if len(streams) != len(made):
        raise ProfileError(f"{len(kernels)} kernels in {len(streams)} streams, of {len(made)} products")
    found = {
        index: tuple(Kernel(name, {m: value for m, value in metrics.items() if m in KEPT}) for name, metrics in group)
        for index, group in zip(made, streams, strict=True)
    }
    return [
        msgspec.structs.replace(
            each, kernels=found.get(index, ()),
            failed=None if index in found else failed.get(index, "it was not reached"),
        )
        for index, each in enumerate(asked)
    ]  # fmt: skip
