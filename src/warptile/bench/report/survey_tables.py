"""What a plan reaches on problems that nobody tuned, from surveys that were planned by a model fitted before them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from warptile.bench.protocol.measurements import Surveyed
from warptile.bench.protocol.records import SurveyRecord
from warptile.bench.report.markdown import TableRow, markdown, number, percent
from warptile.bench.report.record_lookup import OF_ALL, RecordLookup
from warptile.rungs.wgmma.cost import LINE_BYTES
from warptile.rungs.wgmma.launches import pitch_bytes
from warptile.rungs.wgmma.tiles import is_aligned

NO_SURVEY = "*No record yet; `python -m warptile.bench.campaign.problem_survey` on a GPU makes one.*\n"
SLOW = 0.97
"""A plan below this share of cuBLASLt's speed is counted as slow."""

MOST_SPREAD = 1.5
"""A configuration one round of which took so many times another is left out: something disturbed it."""


def _loads(each: Surveyed) -> str:
    problem = each.problem.problem()
    if not is_aligned(problem):
        return "misaligned"
    return "straddling" if any(pitch_bytes(of) % LINE_BYTES for of in (problem.a, problem.b)) else "lines"


GROUPS: Sequence[tuple[str, Callable[[Surveyed], bool]]] = (
    ("all", lambda each: True),
    ("rows of A and B are multiples of 128 bytes", lambda each: _loads(each) == "lines"),
    ("rows of A or B lie in two lines", lambda each: _loads(each) == "straddling"),
    ("misaligned", lambda each: _loads(each) == "misaligned"),
    ("M <= 64", lambda each: each.problem.m <= 64),
    ("M > 64", lambda each: each.problem.m > 64),
)
"""Kinds of problems: their name, and which are meant."""


def table(lookup: RecordLookup) -> str:
    """Plans of random problems beside cuBLASLt and beside the fastest configuration tried, by what TMA loads."""
    surveys = lookup.newest_surveys()
    record = surveys.pop(OF_ALL, None)
    if record is None:
        return NO_SURVEY
    rows = [row for name, chosen in GROUPS if (row := _row(name, record, chosen)) is not None]
    header = (
        "problems",
        "number",
        "of the fastest tried",
        "of cuBLASLt",
        "slow",
        "lowest",
        "fastest tried, of cuBLASLt",
    )
    text = (
        "Random problems, log-uniform in M, N and K, of several types and layouts; none was tuned. Speeds are "
        f"geometric means. A problem is slow below {SLOW} of cuBLASLt's fastest algorithm. The last column is of "
        "the eight to forty configurations that were tried.\n\n"
    )
    text += f"{markdown(header, rows)}\n"
    others = [row for kind, of in surveys.items() if (row := _row(kind, of, lambda _: True)) is not None]
    if others:
        text += f"Problems of one kind, in surveys of their own:\n\n{markdown(header, others)}\n"
    newest = "The newest surveys of each GPU, planned by the cost model of its day; some time plans alone:\n\n"
    return f"{text}{newest}{_by_gpu(lookup)}\n{lookup.origins()}"


def _by_gpu(lookup: RecordLookup) -> str:
    """Plans of random problems beside cuBLASLt, by GPU and kind of problems."""
    rows: list[TableRow] = []
    for kind, records in lookup.newest_surveys_of_plans():
        surveyed = (each for record in records for each in record.surveyed)
        shares = [share for each in surveyed if (share := speedup_over_library(each)) is not None]
        if shares:
            slow = sum(share < SLOW for share in shares) / len(shares)
            about = records[-1].environment.gpu, records[-1].date[:10], kind, str(len(shares))
            rows.append((*about, number(geomean(shares), 3), percent(slow), number(min(shares), 2)))
    return markdown(("GPU", "date", "problems", "number", "of cuBLASLt", "slow", "lowest"), rows)


def _row(name: str, record: SurveyRecord, chosen: Callable[[Surveyed], bool]) -> TableRow | None:
    of_best, of_library, best_of_library = [], [], []
    for each in filter(chosen, record.surveyed):
        own, best = _own_and_best_us(each)
        if own is None:
            continue
        of_best.append(best / own)
        if each.cublaslt_us:
            library = statistics.median(each.cublaslt_us)
            of_library.append(library / own)
            best_of_library.append(library / best)
    if not of_library:
        return None
    slow = sum(share < SLOW for share in of_library) / len(of_library)
    return (
        name, str(len(of_best)), number(geomean(of_best), 3), number(geomean(of_library), 3), percent(slow),
        number(min(of_library), 2), number(geomean(best_of_library), 3),
    )  # fmt: skip


def speedup_over_library(each: Surveyed) -> float | None:
    """Speed of the planned configuration over cuBLASLt's fastest algorithm, where both were timed."""
    own, _ = _own_and_best_us(each)
    return statistics.median(each.cublaslt_us) / own if own is not None and each.cublaslt_us else None


def _own_and_best_us(each: Surveyed) -> tuple[float | None, float]:
    """Microseconds of the planned configuration (None where it was not timed steadily) and of the fastest."""
    times = {timed.config: statistics.median(timed.rounds_us) for timed in each.tried if _is_steady(timed.rounds_us)}
    return times.get(each.planned), min(times.values(), default=math.inf)


def _is_steady(rounds_us: Sequence[float]) -> bool:
    return max(rounds_us) < MOST_SPREAD * min(rounds_us)


def geomean(values: Sequence[float]) -> float:
    """The geometric mean of some positive values."""
    return math.exp(statistics.fmean(map(math.log, values)))
