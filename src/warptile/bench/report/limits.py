"""Tables of the rows that miss their target, with the counters of our kernels and of what they are compared with."""

from __future__ import annotations

import statistics

from warptile.arch import H200
from warptile.bench.profiling import ncu_metrics as metrics
from warptile.bench.profiling.ncu_metrics import ParticipantCounters
from warptile.bench.protocol.row_result import LIBRARY, NEIGHBOUR, OURS, ParticipantRounds, RowResult
from warptile.bench.protocol.suites import CLASS_TARGETS, SUITES, WEIGHTS, ClassTarget, row_name
from warptile.bench.protocol.workloads import limit_tflops, to_problem
from warptile.bench.report.class_summary import (
    PARTICIPANT,
    MeasuredRow,
    class_summaries,
    figure,
    required_figure,
    rows_below_target,
)
from warptile.bench.report.markdown import TableRow as TableRow
from warptile.bench.report.markdown import markdown, number
from warptile.bench.report.record_lookup import NO_RECORD, RecordLookup
from warptile.planning.tuned_table import ProblemClass
from warptile.roofline.intensity import ideal_bytes

TIMES = (
    "M x N x K, types, layout", "kernel", "figure (target)", "searched", "lower bound, us", "us",
    "profiled alone, us, MHz",
)  # fmt: skip
COUNTERS = (
    "kernel", "tensor pipe, issue slots", "HBM", "L2 to SMs", "shared memory pipe", "registers, warps active",
    "stalled on",
)  # fmt: skip
STALLS_SHOWN = 2
_NOT_COUNTED = ("–",) * (len(COUNTERS) - 1)


def misses_of(lookup: RecordLookup) -> dict[str, list[MeasuredRow]]:
    """Rows that miss their target by their class, as the newest records have them."""
    return rows_below_target(_measured(lookup))


def table(lookup: RecordLookup, name: str) -> str:
    """Rows of a class that miss their target, two lines each: our kernel, and the one that it is compared with. First
    a table of times, then one of counters."""
    measured = _measured(lookup)
    if all(each.result is None for each in measured if name in each.row.classes):
        return NO_RECORD + "\n"
    lookup.origins()  # what is measured and not missed is not shown
    summary = next((each for each in class_summaries(measured) if each.name == name), None)
    least = required_figure(CLASS_TARGETS[name], summary)
    results = [lookup.row_result(each.suite, each.row) for each in rows_below_target(measured).get(name, [])]
    lines = [_RowLines(lookup, result, CLASS_TARGETS[name], least) for result in results if result is not None]
    if not lines:
        return "Every row reaches its target.\n"
    times = markdown(TIMES, [time for each in lines for time in each.times], right=2)
    counters = [counted for each in lines for counted in each.counters]
    second = f"\n{markdown(COUNTERS, counters)}" if counters else ""
    return f"{times}{second}\n{lookup.origins()}"


def _measured(lookup: RecordLookup) -> list[MeasuredRow]:
    return [MeasuredRow(row, lookup.row_result(suite, row), suite) for suite, rows in SUITES.items() for row in rows]


def least_us(result: RowResult) -> float:
    """Lower bound of the row's time in microseconds: operands and D once at the rate of a copy, or its operations at
    the rate at which `wgmma` issues in a short burst (`warptile.arch.H200`)."""
    key, moved = result.problem, ideal_bytes(to_problem(result.problem))
    return 1e6 * max(moved / H200.dram_bytes_per_s, key.flops / limit_tflops(result.rung, key) / 1e12)


def searched(lookup: RecordLookup, result: RowResult) -> str:
    """How many configurations searches measured on the row's problem, and how near half of them are to the best."""
    problem = ProblemClass.of(to_problem(result.problem, offset=result.offset))
    briefs = lookup.searched(result.rung, problem)
    if not briefs:
        return "–"
    return f"{len(briefs)}, half within {100 * (statistics.median(briefs) / min(briefs) - 1):.0f} %"


class _RowLines:
    """The lines of one row in the table of times and in that of counters."""

    def __init__(self, lookup: RecordLookup, result: RowResult, target: ClassTarget, least: float | None) -> None:
        digits = 2 if target.of == WEIGHTS else 3
        name = row_name(result.problem, result.offset, result.max_sms)
        self.times: list[TableRow]
        self.counters: list[TableRow] = []
        if result.failed:
            self.times = [(name, "–", result.failed.splitlines()[0], *["–"] * (len(TIMES) - 3))]
            return
        other = PARTICIPANT.get(target.of, LIBRARY)
        together = result.near if other == NEIGHBOUR and result.near else result.turns
        turns = {each.who: each for each in together}
        mine, theirs = lookup.counted(result, OURS), lookup.counted(result, other)
        figures = (f"{number(figure(result, target), digits)} ({number(least, digits)})", searched(lookup, result),
                   number(least_us(result)))  # fmt: skip
        beside = row_name(result.beside) if other == NEIGHBOUR and result.beside is not None else LIBRARY
        self.times = [
            (name, _kernel(result, OURS, mine), *figures, *_times(mine, turns.get(OURS))),
            (f"compared with {beside}", _kernel(result, other, theirs), "", "", "", *_times(theirs, turns.get(other))),
        ]
        self.counters = [(name, *_counters(mine)), (f"compared with {beside}", *_counters(theirs))]


def _times(counted: ParticipantCounters | None, turns: ParticipantRounds | None) -> TableRow:
    """Sustained time from the suite; time and clock of the profiled launch."""
    sustained = number(1000 * turns.time_ms) if turns is not None else "–"
    if counted is None or counted.longest is None:
        return (sustained, "–")
    time_ns, clock = counted.total(metrics.TIME), counted.over_time(metrics.CLOCK)
    return (sustained, f"{number(time_ns / 1e3 if time_ns else None)}, {number(clock / 1e6 if clock else None, 0)}")


def _counters(mine: ParticipantCounters | None) -> TableRow:
    """Counters of the profiled launches, where they were taken in this configuration."""
    if mine is None or mine.longest is None:
        return _NOT_COUNTED
    longest, hits, sectors = mine.longest.metrics, mine.total(metrics.L2_HITS), mine.total(metrics.L2_SECTORS)
    read, sent = (mine.total(metric) for metric in metrics.L2_TO_SM)
    read = metrics.SECTOR_BYTES * read if read is not None else None
    moved = mine.total(*metrics.HBM_BYTES)
    hit_rate = _share(100 * hits / sectors if hits is not None and sectors else None)
    stalls = [f"{reason.replace('_', ' ')} {amount:.1f}" for reason, amount in list(mine.stalls.items())[:STALLS_SHOWN]]
    return (
        f"{_share(mine.over_time(metrics.TENSOR))}, {_share(mine.over_time(metrics.ISSUE))}",
        f"{_share(mine.over_time(metrics.HBM))}, {_megabytes(moved)} MB",
        f"{_share(mine.over_time(metrics.L2))}, {_megabytes(read)} MB read, {_megabytes(sent)} MB delivered, "
        f"{hit_rate} hits",
        _share(mine.over_time(metrics.SHARED)),
        f"{number(longest.get(metrics.REGISTERS), 0)}, {_share(longest.get(metrics.WARPS))}", ", ".join(stalls),
    )  # fmt: skip


def _share(percentage: float | None) -> str:
    return "–" if percentage is None else f"{percentage:.0f} %"


def _megabytes(count: float | None) -> str:
    return number(count / 1e6 if count is not None else None)


def _kernel(result: RowResult, participant: str, counted: ParticipantCounters | None) -> str:
    """Ours by tile, stages (or warps, if it has none) and what is unusual, the library's by the name of its kernel."""
    if participant == LIBRARY:
        return f"`{counted.longest.name}`" if counted is not None and counted.longest is not None else LIBRARY
    beside = participant == NEIGHBOUR and result.beside is not None
    config = result.beside_config if beside else result.config
    staged = f"{config['STAGES']} stages" if "STAGES" in config else f"WARPS={config['WARPS']}"
    words = [f"{config['BM']}x{config['BN']}x{config['BK']}", staged]
    usual = {"CM": 1, "CN": 1, "SPLITS": 1, "PINGPONG": 0, "OVERLAP": 0, "STREAM": 0, "SWAP": 0}
    words += [f"{key}={config[key]}" for key, value in usual.items() if config.get(key, value) != value]
    launches = len(counted.kernels) - 1 if counted is not None else 0
    return " ".join(
        [*words, *([f"after {launches} repacking {'pass' if launches == 1 else 'passes'}"] if launches > 0 else [])]
    )
