"""What clusters that share loads bring where rows lie in two lines of L2, from surveys of such problems."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from warptile.bench.protocol.measurements import Surveyed
from warptile.bench.protocol.records import SurveyRecord
from warptile.bench.report.markdown import TableRow, markdown, number, percent
from warptile.bench.report.record_lookup import RecordLookup
from warptile.bench.report.survey_tables import MOST_SPREAD, SLOW, geomean

NO_SURVEY = "*No record yet; `python -m warptile.bench.campaign.problem_survey --straddling` on a GPU makes one.*\n"
CLEAR = 1.03
"""A kind of cluster that is faster by this factor than all others is counted as clearly so."""

Config = Mapping[str, int]


def _ctas(config: Config) -> int:
    return config["CM"] * config["CN"]


def _along_both(config: Config) -> bool:
    return config["CM"] > 1 and config["CN"] > 1


def _small(config: Config) -> bool:
    return config["BM"] == 64 or config["SWAP"] == 1


def _whole(config: Config) -> bool:
    """A larger tile in a cluster, with K in one part."""
    return config["SPLITS"] == 1 and not _small(config)


KINDS: Sequence[tuple[str, Callable[[Config], bool]]] = (
    ("none", lambda config: _ctas(config) == 1),
    ("two CTAs", lambda config: _ctas(config) == 2 and _whole(config)),
    ("four along one axis", lambda config: _ctas(config) == 4 and _whole(config) and not _along_both(config)),
    ("four or eight along both axes", lambda config: _along_both(config) and _whole(config)),
    ("two CTAs, and K is split", lambda config: config["SPLITS"] > 1 and not _small(config)),
    ("any, of tiles with 64 rows or swapped operands", _small),
)
"""Kinds of clusters that share loads: their name, and which configurations have them."""


def table(lookup: RecordLookup) -> str:
    """The fastest configuration of each kind of cluster, beside those of all others and beside cuBLASLt."""
    records = lookup.straddling_surveys()
    timed = [found for record in records for each in record.surveyed if (found := _fastest_us(record, each))]
    if not timed:
        return NO_SURVEY
    rows = [_row(place, timed) for place in range(len(KINDS)) if any(place in times for times, _ in timed)]
    header = (
        "clusters that share loads", "problems", "fastest on", f"by over {100 * (CLEAR - 1):.0f} %",
        "of cuBLASLt, with these and those above", "slow",
    )  # fmt: skip
    text = (
        "Random problems whose rows lie in two lines of L2, none of them tuned: the fastest of the configurations that "
        "were tried. Speeds are geometric means over all problems. A problem is slow below "
        f"{SLOW} of cuBLASLt's fastest algorithm.\n\n"
    )
    return f"{text}{markdown(header, rows)}\n{lookup.origins()}"


def _fastest_us(record: SurveyRecord, of: Surveyed) -> tuple[dict[int, float], float] | None:
    """Microseconds of the fastest configuration by the place of its kind, and cuBLASLt's; None where one is missing."""
    times: dict[int, float] = {}
    for each in of.tried:
        config = dict(zip(record.keys, each.config, strict=True))
        if max(each.rounds_us) < MOST_SPREAD * min(each.rounds_us):
            place = next((place for place, (_, has) in enumerate(KINDS) if has(config)), None)
            if place is not None:
                times[place] = min(times.get(place, float("inf")), statistics.median(each.rounds_us))
    return (times, statistics.median(of.cublaslt_us)) if 0 in times and of.cublaslt_us else None


def _row(place: int, timed: Sequence[tuple[dict[int, float], float]]) -> TableRow:
    gains = [
        min(us for other, us in times.items() if other != place) / times[place]
        for times, _ in timed if place in times and len(times) > 1
    ]  # fmt: skip
    speedups = [library / min(us for kind, us in times.items() if kind <= place) for times, library in timed]
    return (
        KINDS[place][0], str(sum(place in times for times, _ in timed)), str(sum(gain > 1 for gain in gains)),
        str(sum(gain > CLEAR for gain in gains)), number(geomean(speedups), 3),
        percent(sum(speedup < SLOW for speedup in speedups) / len(speedups)),
    )  # fmt: skip
