"""What suites say: each row in words, each class of rows beside its target."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from warptile.bench.contest import BESIDE, LIBRARY, TORCH, Contest, Share
from warptile.bench.markdown import Row as Line
from warptile.bench.markdown import number, percent
from warptile.bench.suites import BESIDE as OF_BESIDE
from warptile.bench.suites import CUBLASLT as OF_LIBRARY
from warptile.bench.suites import TARGETS, WEIGHTS, Row, Target, row_name
from warptile.dtypes import dtype

HEADER = ("M x N x K, types, layout", "TFLOP/s", "of cuBLASLt", "rounds", "", "of torch", "beside", "TB/s of weights")
STREAMED_ROWS = 128
"""The most rows of A at which the rate of reading B is shown."""

WHO = {OF_LIBRARY: LIBRARY, OF_BESIDE: BESIDE}


def line(contest: Contest) -> Line:
    """A row of `HEADER`: shares of the median round, and whether the rounds' 95 % interval leaves 1 out."""
    name = row_name(contest.problem, contest.offset, contest.max_sms)
    if contest.failed:
        return (name, contest.failed.splitlines()[0], *["–"] * (len(HEADER) - 2))
    library, torch, beside = (contest.share(who) for who in (LIBRARY, TORCH, BESIDE))
    near = ""
    if beside is not None and contest.beside is not None:
        near = f"{percent(beside.median)} of {row_name(contest.beside)}"
    rate = weight_rate(contest) if contest.problem.m <= STREAMED_ROWS else None
    return (
        name, number(contest.tflops()), percent(library.median if library else None), spread(library),
        library.verdict if library else "cuBLASLt has none" if contest.no_baseline else "",
        percent(torch.median if torch else None), near, number(rate, 2) if rate else "",
    )  # fmt: skip


def spread(share: Share | None) -> str:
    """The rounds' smallest and largest."""
    return "–" if share is None else f"{100 * share.low:.1f}–{100 * share.high:.1f} %"


def weight_rate(contest: Contest) -> float | None:
    """TB/s at which B is read."""
    return contest.weight_tb_per_s(dtype(contest.problem.dtype).bits)


def figure(contest: Contest, target: Target) -> float | None:
    """A row's figure in the unit of a target, or None."""
    if contest.failed:
        return None
    if target.of == WEIGHTS:
        return weight_rate(contest)
    share = contest.share(WHO[target.of])
    return share.median if share is not None else None


def verdict(contest: Contest, target: Target) -> str:
    """Whether a row is faster, slower or equal; nothing where its target is a rate."""
    share = contest.share(WHO[target.of]) if target.of in WHO and not contest.failed else None
    return share.verdict if share is not None else ""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A class of rows beside its target.

    Attributes:
        name: of the class.
        title: its rows in words.
        of: what figures are shares of, or their unit.
        rows: how many there are.
        measured: how many have a figure.
        geomean: of the figures, or None.
        worst: the least figure, or None.
        worst_row: whose it is.
        wanted_geomean: the target's, or None.
        wanted_each: the target's, or None.
        faster: how many rows are faster than what they are compared with, beyond their rounds' spread.
        equal: how many are neither.
        slower: how many are slower.
        met: whether the target is met; None where there is none, and where rows that were not measured decide. A row
            that failed misses it.
    """

    name: str
    title: str
    of: str
    rows: int
    measured: int
    geomean: float | None = None
    worst: float | None = None
    worst_row: str = ""
    wanted_geomean: float | None = None
    wanted_each: float | None = None
    faster: int = 0
    equal: int = 0
    slower: int = 0
    met: bool | None = None

    @property
    def has_target(self) -> bool:
        """Whether it is held to a figure."""
        return self.wanted_geomean is not None or self.wanted_each is not None


@dataclass(frozen=True)
class Measured:
    """A row of a suite with what was measured, if it was, and the suite's name, where it matters."""

    row: Row
    contest: Contest | None
    suite: str = ""


def standings(measured: Sequence[Measured]) -> list[Standing]:
    """Every class that some rows count for."""
    return [
        made for name, target in TARGETS.items() if (made := _standing(name, target, measured)) is not None
    ]  # fmt: skip


def _standing(name: str, target: Target, measured: Sequence[Measured]) -> Standing | None:
    mine = [each for each in measured if name in each.row.classes]
    if not mine:
        return None
    contests = {each.row.name: each.contest for each in mine if each.contest is not None}
    found = {row: figure(contest, target) for row, contest in contests.items()}
    figures = {row: value for row, value in found.items() if value is not None}
    verdicts = Counter(verdict(contest, target) for contest in contests.values())
    described = Standing(
        name=name, title=target.title, of=target.of, rows=len(mine), measured=len(figures),
        wanted_geomean=target.geomean, wanted_each=target.each, faster=verdicts["faster"], equal=verdicts["equal"],
        slower=verdicts["slower"],
    )  # fmt: skip
    if not figures:
        return msgspec.structs.replace(described, met=False if found and described.has_target else None)
    worst = min(figures, key=lambda row: figures[row])
    geomean = math.exp(statistics.fmean(math.log(value) for value in figures.values()))
    described = msgspec.structs.replace(described, geomean=geomean, worst=figures[worst], worst_row=worst)
    missed = len(figures) < len(found) or figures[worst] < (target.each or 0)
    if len(found) == len(mine):
        missed |= geomean < (target.geomean or 0)
    elif not missed:
        return described
    return msgspec.structs.replace(described, met=not missed if described.has_target else None)


def bound(target: Target, standing: Standing | None) -> float | None:
    """The figure below which a row counts among those that make its class miss its target: the least that each row
    may have and, where the mean is not reached, that mean; None where there is neither."""
    least = target.each
    if standing is not None and standing.geomean is not None and standing.geomean < (target.geomean or 0):
        least = max(least or 0.0, target.geomean or 0.0)
    return least


def misses(measured: Sequence[Measured]) -> dict[str, list[Measured]]:
    """Rows below their class's `bound`, by the class's name; one that failed is among them."""
    held = {standing.name: standing for standing in standings(measured)}
    found: dict[str, list[Measured]] = {}
    for name, target in TARGETS.items():
        least = bound(target, held.get(name))
        for each in measured:
            if least is None or each.contest is None or name not in each.row.classes:
                continue
            value = figure(each.contest, target)
            if value is None or value < least:
                found.setdefault(name, []).append(each)
    return found


CLASS_HEADER = (
    "class", "of", "rows", "geomean", "target", "least", "target", "least of all", "faster, equal, slower", "met",
)  # fmt: skip


def class_line(standing: Standing) -> Line:
    """A row of `CLASS_HEADER`."""
    rows = str(standing.rows) if standing.measured == standing.rows else f"{standing.measured} of {standing.rows}"
    met = {True: "yes", False: "no", None: "–"}[standing.met]
    return (
        standing.title, standing.of, rows, number(standing.geomean, 3), number(standing.wanted_geomean, 2),
        number(standing.worst, 3), number(standing.wanted_each, 2), standing.worst_row,
        f"{standing.faster}, {standing.equal}, {standing.slower}", met,
    )  # fmt: skip
