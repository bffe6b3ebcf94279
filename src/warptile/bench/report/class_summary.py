"""Suite results as table rows: one row a GEMM, one row a class of GEMMs with its target."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from warptile.bench.protocol.row_result import LIBRARY, NEIGHBOUR, TORCH, RowResult, Speedup
from warptile.bench.protocol.suites import CLASS_TARGETS, WEIGHTS, ClassTarget, SuiteRow, row_name
from warptile.bench.protocol.suites import CUBLASLT as OF_LIBRARY
from warptile.bench.protocol.suites import NEIGHBOUR as OF_NEIGHBOUR
from warptile.bench.report.markdown import TableRow, number
from warptile.dtypes import dtype

ROW_HEADER = (
    "M x N x K, types, layout", "TFLOP/s", "speedup over cuBLASLt", "95 % CI", "over torch", "over another GEMM",
    "B, TB/s",
)  # fmt: skip
STREAMED_ROWS = 128
"""The most rows of A at which the rate of reading B is shown."""

PARTICIPANT = {OF_LIBRARY: LIBRARY, OF_NEIGHBOUR: NEIGHBOUR}


def row_cells(result: RowResult) -> TableRow:
    """A row of `ROW_HEADER`: median speedups, and the 95 % confidence interval of the speedup over cuBLASLt."""
    name = row_name(result.problem, result.offset, result.max_sms)
    if result.failed:
        return (name, result.failed.splitlines()[0], *["–"] * (len(ROW_HEADER) - 2))
    library, torch, beside = (result.speedup_over(participant) for participant in (LIBRARY, TORCH, NEIGHBOUR))
    near = ""
    if beside is not None and result.beside is not None:
        near = f"{beside.median:.3f} x {row_name(result.beside)}"
    rate = weight_rate(result) if result.problem.m <= STREAMED_ROWS else None
    speedup = "cuBLASLt has none" if library is None and result.no_baseline else ""
    return (
        name, number(result.tflops()), speedup or number(library.median if library else None, 3), interval(library),
        number(torch.median if torch else None, 3), near, number(rate, 2) if rate else "",
    )  # fmt: skip


def interval(share: Speedup | None) -> str:
    """The 95 % confidence interval of the median, where there are enough rounds for one."""
    return "–" if share is None or math.isinf(share.most) else f"{share.least:.3f}–{share.most:.3f}"


def weight_rate(result: RowResult) -> float | None:
    """TB/s at which B is read."""
    return result.weight_tb_per_s(dtype(result.problem.dtype).bits)


def figure(result: RowResult, target: ClassTarget) -> float | None:
    """A row's speedup or TB/s, whichever its target is stated in; None where it failed or lacks that figure."""
    if result.failed:
        return None
    if target.of == WEIGHTS:
        return weight_rate(result)
    share = result.speedup_over(PARTICIPANT[target.of])
    return share.median if share is not None else None


def verdict(result: RowResult, target: ClassTarget) -> str:
    """Whether a row is faster, slower or equal; nothing where its target is a rate."""
    share = result.speedup_over(PARTICIPANT[target.of]) if target.of in PARTICIPANT and not result.failed else None
    return share.verdict if share is not None else ""


class ClassSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a class of rows, and its target.

    Attributes:
        name: of the class.
        title: its rows in words.
        of: what figures are relative to, or their unit.
        rows: how many there are.
        measured: how many have a figure.
        geomean: of the figures, or None.
        worst: the least figure, or None.
        worst_row: name of the row with the least figure.
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
class MeasuredRow:
    """A row of a suite with its result (None if it was not measured), and the suite's name where it matters."""

    row: SuiteRow
    result: RowResult | None
    suite: str = ""


def class_summaries(measured: Sequence[MeasuredRow]) -> list[ClassSummary]:
    """A summary of every class that some of the rows count for."""
    return [
        made for name, target in CLASS_TARGETS.items() if (made := _class_summary(name, target, measured)) is not None
    ]  # fmt: skip


def _class_summary(name: str, target: ClassTarget, measured: Sequence[MeasuredRow]) -> ClassSummary | None:
    mine = [each for each in measured if name in each.row.classes]
    if not mine:
        return None
    results = {each.row.name: each.result for each in mine if each.result is not None}
    found = {row: figure(result, target) for row, result in results.items()}
    figures = {row: value for row, value in found.items() if value is not None}
    verdicts = Counter(verdict(result, target) for result in results.values())
    described = ClassSummary(
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


def required_figure(target: ClassTarget, summary: ClassSummary | None) -> float | None:
    """The figure that each row has to reach, or None: the target for each row and, where the class misses its geometric
    mean, also that mean."""
    least = target.each
    if summary is not None and summary.geomean is not None and summary.geomean < (target.geomean or 0):
        least = max(least or 0.0, target.geomean or 0.0)
    return least


def rows_below_target(measured: Sequence[MeasuredRow]) -> dict[str, list[MeasuredRow]]:
    """Rows below the `required_figure` of their class, by its name; rows that failed are among them."""
    held = {summary.name: summary for summary in class_summaries(measured)}
    found: dict[str, list[MeasuredRow]] = {}
    for name, target in CLASS_TARGETS.items():
        least = required_figure(target, held.get(name))
        for each in measured:
            if least is None or each.result is None or name not in each.row.classes:
                continue
            value = figure(each.result, target)
            if value is None or value < least:
                found.setdefault(name, []).append(each)
    return found


CLASS_HEADER = (
    "class", "relative to", "rows", "geomean (target)", "lowest (target)", "faster, equal, slower", "met",
)  # fmt: skip
RELATIVE_TO = {OF_LIBRARY: "cuBLASLt", OF_NEIGHBOUR: "another GEMM of ours", WEIGHTS: "none: TB/s"}


def class_cells(summary: ClassSummary) -> TableRow:
    """A row of `CLASS_HEADER`."""
    rows = str(summary.rows) if summary.measured == summary.rows else f"{summary.measured} of {summary.rows}"
    met = {True: "yes", False: "no", None: "–"}[summary.met]
    lowest = _with_target(summary.worst, summary.wanted_each)
    return (
        summary.title, RELATIVE_TO[summary.of], rows, _with_target(summary.geomean, summary.wanted_geomean),
        f"{lowest}: {summary.worst_row}" if summary.worst_row else lowest,
        f"{summary.faster}, {summary.equal}, {summary.slower}", met,
    )  # fmt: skip


def _with_target(value: float | None, wanted: float | None) -> str:
    """A figure, and in brackets what it is held to."""
    return number(value, 3) if wanted is None else f"{number(value, 3)} ({wanted:.2f})"
