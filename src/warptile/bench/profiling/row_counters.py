"""Nsight Compute's counters for rows of the suites, and for what their targets compare them with."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import msgspec

from warptile.bench.profiling.ncu import ProfileError, collect, launched, page, parse_kernels
from warptile.bench.profiling.ncu_metrics import KEPT, METRICS, STREAM, KernelCounters, ParticipantCounters
from warptile.bench.protocol.measurements import ProblemKey
from warptile.bench.protocol.row_result import LIBRARY, NEIGHBOUR, OURS, RowResult
from warptile.bench.protocol.suites import CLASS_TARGETS, SUITES, SuiteRow
from warptile.bench.report.class_summary import PARTICIPANT, MeasuredRow, rows_below_target

TIMEOUT_S = 200.0


class CountRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One participant of a row: which problem it runs, and the library's algorithm where it is the library's."""

    key: ProblemKey
    offset: int = 0
    max_sms: int | None = None
    algorithm: str | None = None


def rows_to_count(
    measured: Iterable[RowResult], suites: Sequence[str], only: tuple[str, ...] = ()
) -> dict[str, list[tuple[SuiteRow, RowResult]]]:
    """Rows of some suites whose counters are wanted, each with its newest result.

    Those are the rows below their class's target (`warptile.bench.report.class_summary.rows_below_target`), or, with
    ``only``, the rows whose name has one of its words.
    """
    results = {(result.suite, *result.row): result for result in measured}
    rows = [
        (suite, MeasuredRow(row, results.get((suite, row.problem, row.offset, row.max_sms, row.neighbour))))
        for suite, rows in SUITES.items()
        for row in rows
    ]
    missed = {id(each) for found in rows_below_target([each for _, each in rows]).values() for each in found}
    found: dict[str, list[tuple[SuiteRow, RowResult]]] = {}
    for suite, each in rows:
        asked = any(word in each.row.name for word in only) if only else id(each) in missed
        if suite in suites and asked and each.result is not None and not each.result.failed:
            found.setdefault(suite, []).append((each.row, each.result))
    return found


def participants(row: SuiteRow, result: RowResult) -> Iterator[tuple[ParticipantCounters, CountRequest]]:
    """The participants whose counters are taken: warptile, and the neighbour or cuBLASLt, as the target says."""
    mine = ParticipantCounters(
        problem=row.problem, offset=row.offset, max_sms=row.max_sms, beside=row.neighbour, who=OURS, rung=result.rung,
        config=result.config,
    )  # fmt: skip
    yield mine, CountRequest(key=row.problem, offset=row.offset, max_sms=row.max_sms)
    others = {PARTICIPANT.get(CLASS_TARGETS[name].of, LIBRARY) for name in row.classes}
    if NEIGHBOUR in others and row.neighbour is not None:
        other = {"who": NEIGHBOUR, "rung": result.beside_rung, "config": result.beside_config}
        yield msgspec.structs.replace(mine, **other), CountRequest(key=row.neighbour)
    if LIBRARY in others and result.baseline is not None:
        other = {"who": LIBRARY, "rung": "", "config": {}, "algorithm": result.baseline}
        yield (
            msgspec.structs.replace(mine, **other),
            CountRequest(key=row.problem, offset=row.offset, algorithm=result.baseline),
        )


def count(rows: Iterable[tuple[SuiteRow, RowResult]]) -> list[ParticipantCounters]:
    """Every participant of some rows under Nsight Compute, in one process of its own, clocks left alone.

    Raises:
        NoDeviceError: Nsight Compute is not installed.
        ProfileError: it wrote no report, or one that does not tell participants apart.
    """
    asked = [each for row, result in rows for each in participants(row, result)]
    with tempfile.TemporaryDirectory(prefix="warptile-ncu-") as name:
        requests = Path(name) / "requests.json"
        requests.write_bytes(msgspec.json.encode([request for _, request in asked]))
        program = [sys.executable, "-m", "warptile.bench.profiling.launch_rows", str(requests)]
        options = ["--profile-from-start", "off", "--section", "LaunchStats"]
        report, output, dropped = collect(program, Path(name) / "report.ncu-rep", METRICS, options, TIMEOUT_S)
        if dropped:
            print(f"ncu: this GPU lacks {', '.join(dropped)}")
        raw = page(report, "--page", "raw", timeout_s=TIMEOUT_S)
    return assigned([counted for counted, _ in asked], output, parse_kernels(raw))


def assigned(
    asked: Sequence[ParticipantCounters], output: str, kernels: Sequence[tuple[str, dict[str, float]]]
) -> list[ParticipantCounters]:
    """The kernels of each participant: those that follow each other in one stream.

    Raises:
        ProfileError: there are more or fewer streams than participants that were launched.
    """
    made, failed = launched(output)
    streams = [list(group) for _, group in groupby(kernels, key=lambda kernel: kernel[1].get(STREAM))]
    if len(streams) != len(made):
        raise ProfileError(f"{len(kernels)} kernels in {len(streams)} streams, of {len(made)} products")
    found = {
        index: tuple(
            KernelCounters(name, {m: value for m, value in metrics.items() if m in KEPT}) for name, metrics in group
        )
        for index, group in zip(made, streams, strict=True)
    }
    return [
        msgspec.structs.replace(
            each, kernels=found.get(index, ()),
            failed=None if index in found else failed.get(index, "it was not reached"),
        )
        for index, each in enumerate(asked)
    ]  # fmt: skip
