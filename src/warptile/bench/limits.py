"""Tables of the rows that miss their bound, with the counters of our kernels and of what they are compared with."""

from __future__ import annotations

import statistics

from warptile.arch import H200
from warptile.bench import counted as metrics
from warptile.bench.contest import BESIDE, LIBRARY, OURS, Contest, Turns
from warptile.bench.counted import Counted
from warptile.bench.found import NOTHING, Found
from warptile.bench.markdown import Row as Line
from warptile.bench.markdown import markdown, number
from warptile.bench.standing import WHO, Measured, bound, figure, misses, standings
from warptile.bench.suites import SUITES, TARGETS, WEIGHTS, Target, row_name
from warptile.bench.workloads import limit_tflops, to_problem
from warptile.tuned import ProblemClass

HEADER = (
    "M x N x K, types, layout", "figure (bound)", "kernel", "searched", "least us", "us", "us alone, MHz", "tensor",
    "HBM", "MB", "L2", "MB from L2, to SMs", "L2 hits", "shared", "issue", "registers, warps", "warps wait for",
)  # fmt: skip
STALLS_SHOWN = 2
_LEFT = 4
"""Columns of words."""


def misses_of(found: Found) -> dict[str, list[Measured]]:
    """Rows that miss their bound by their class, as the newest records have them."""
    return misses(_measured(found))


def table(found: Found, name: str) -> str:
    """Rows of a class that miss their bound: two lines each, ours and what it is compared with."""
    measured = _measured(found)
    if all(each.contest is None for each in measured if name in each.row.classes):
        return NOTHING + "\n"
    found.origins()  # what is measured and not missed is not shown
    standing = next((each for each in standings(measured) if each.name == name), None)
    least = bound(TARGETS[name], standing)
    lines = [
        line
        for each in misses(measured).get(name, [])
        if (contest := found.contest(each.suite, each.row)) is not None
        for line in _lines(found, contest, TARGETS[name], least)
    ]
    if not lines:
        return "Every row reaches its bound.\n"
    return markdown(HEADER, lines, right=_LEFT) + "\n" + found.origins()


def _measured(found: Found) -> list[Measured]:
    return [Measured(row, found.contest(suite, row), suite) for suite, rows in SUITES.items() for row in rows]


def least_us(contest: Contest) -> float:
    """Microseconds that the row takes at least: operands and D once at the rate of a copy, or its products at the rate
    at which `wgmma` issues in a short burst (`warptile.arch.H200`)."""
    key, problem = contest.problem, to_problem(contest.problem)
    elements = (key.m * key.k / (2 if key.sparse else 1) + key.k * key.n) * problem.a.dtype.bits
    moved = key.batch * (elements + key.m * key.n * problem.d.dtype.bits) / 8
    return 1e6 * max(moved / H200.dram_bytes_per_s, key.flops / limit_tflops(contest.rung, key) / 1e12)


def searched(found: Found, contest: Contest) -> str:
    """How many configurations searches measured on the row's problem, and how near half of them are to the best."""
    problem = ProblemClass.of(to_problem(contest.problem, offset=contest.offset))
    briefs = found.searched(contest.rung, problem)
    if not briefs:
        return "–"
    return f"{len(briefs)}, half within {100 * (statistics.median(briefs) / min(briefs) - 1):.0f} %"


def _lines(found: Found, contest: Contest, target: Target, least: float | None) -> list[Line]:
    digits = 2 if target.of == WEIGHTS else 3
    value = number(figure(contest, target), digits)
    name = row_name(contest.problem, contest.offset, contest.max_sms)
    if contest.failed:
        return [(name, "–", contest.failed.splitlines()[0], *["–"] * (len(HEADER) - 3))]
    other = WHO.get(target.of, LIBRARY)
    together = contest.near if other == BESIDE and contest.near else contest.turns
    times = {turns.who: turns for turns in together}
    kernel, *counters = _counters(found, contest, OURS, times.get(OURS))
    above = (searched(found, contest), number(least_us(contest)))
    beside, *its_counters = _counters(found, contest, other, times.get(other))
    return [
        (name, f"{value} ({number(least, digits)})", kernel, *above, *counters),
        ("", "", beside, "", "", *its_counters),
    ]


def _counters(found: Found, contest: Contest, who: str, turns: Turns | None) -> Line:
    """Kernel, sustained time of the suite, and counters where they were taken in this configuration."""
    sustained = number(1000 * turns.time_ms) if turns is not None else "–"
    mine = found.counted(contest, who)
    if mine is None or mine.longest is None:
        return (_kernel(contest, who, None), sustained, *["–"] * (len(HEADER) - 6))
    time_ns, clock = mine.total(metrics.TIME), mine.over_time(metrics.CLOCK)
    longest, hits, sectors = mine.longest.metrics, mine.total(metrics.L2_HITS), mine.total(metrics.L2_SECTORS)
    read, sent = (mine.total(metric) for metric in metrics.L2_TO_SM)
    read = metrics.SECTOR_BYTES * read if read is not None else None
    moved = mine.total(*metrics.HBM_BYTES)
    waits = [f"{reason.replace('_', ' ')} {amount:.1f}" for reason, amount in list(mine.stalls.items())[:STALLS_SHOWN]]
    return (
        _kernel(contest, who, mine), sustained,
        f"{number(time_ns / 1e3 if time_ns else None)}, {number(clock / 1e6 if clock else None, 0)}",
        _share(mine.over_time(metrics.TENSOR)), _share(mine.over_time(metrics.HBM)), _megabytes(moved),
        _share(mine.over_time(metrics.L2)), f"{_megabytes(read)}, {_megabytes(sent)}",
        _share(100 * hits / sectors if hits is not None and sectors else None),
        _share(mine.over_time(metrics.SHARED)), _share(mine.over_time(metrics.ISSUE)),
        f"{number(longest.get(metrics.REGISTERS), 0)}, {_share(longest.get(metrics.WARPS))}", ", ".join(waits),
    )  # fmt: skip


def _share(percentage: float | None) -> str:
    return "–" if percentage is None else f"{percentage:.0f} %"


def _megabytes(count: float | None) -> str:
    return number(count / 1e6 if count is not None else None)


def _kernel(contest: Contest, who: str, counted: Counted | None) -> str:
    """Ours by tile, stages and what is unusual in its configuration, the library's by the name of its kernel."""
    if who == LIBRARY:
        return f"`{counted.longest.name}`" if counted is not None and counted.longest is not None else LIBRARY
    beside = who == BESIDE and contest.beside is not None
    config = contest.beside_config if beside else contest.config
    words = [] if contest.beside is None or not beside else [f"{row_name(contest.beside)}:"]
    words += [f"{config['BM']}x{config['BN']}x{config['BK']}", f"{config['STAGES']} stages"]
    usual = {"CM": 1, "CN": 1, "SPLITS": 1, "PINGPONG": 0, "OVERLAP": 0, "STREAM": 0, "SWAP": 0}
    words += [f"{key}={config[key]}" for key, value in usual.items() if config.get(key, value) != value]
    launches = len(counted.kernels) - 1 if counted is not None else 0
    return " ".join([*words, *([f"behind {launches} of copies"] if launches > 0 else [])])
