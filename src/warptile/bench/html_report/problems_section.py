"""Problems that nobody tuned, and the configurations that searches found."""

from __future__ import annotations

from collections import defaultdict

from markupsafe import Markup

from warptile.bench.html_report.page_data import PageData
from warptile.bench.html_report.rendered_markdown import rendered
from warptile.bench.html_report.rung_speeds import types_name
from warptile.bench.html_report.views import PageView, filled
from warptile.bench.protocol.records import SurveyRecord
from warptile.bench.report import survey_tables
from warptile.bench.report.markdown import number
from warptile.bench.report.record_lookup import OF_ALL
from warptile.figures.figure import DataTable, Figure
from warptile.figures.row_chart import ChartRow, Point, RowChart, Series
from warptile.planning import shipped_table
from warptile.planning.plan import config_text
from warptile.planning.shipped_table import ShippedEntry, ShippedTable
from warptile.planning.tuned_table import ProblemClass
from warptile.rungs import RUNGS


def views(data: PageData) -> tuple[PageView, ...]:
    """Untuned problems where there is a survey; tuned configurations always, unless only runs are shown."""
    tuned = () if data.basis == "runs" else (_tuned(data),)
    return (*_untuned(data), *tuned)


def _untuned(data: PageData) -> tuple[PageView, ...]:
    if not data.has(SurveyRecord):
        return ()
    table = rendered(survey_tables.table(data.lookup), "untuned problems")
    record = data.lookup.newest_surveys().get(OF_ALL)
    data.lookup.origins()
    if record is None:
        return ()
    body = filled("untuned.html", figure=_survey_chart(record), table=table)
    return (PageView("untuned", "Problems that nobody tuned", body, label="Untuned problems"),)


def _survey_chart(record: SurveyRecord) -> Figure:
    """Every problem of a survey as a dot, in a row for each kind of problem."""
    rows, lines = [], []
    for name, chosen in survey_tables.GROUPS:
        shares = sorted(
            (share for each in record.surveyed if chosen(each)
             if (share := survey_tables.speedup_over_library(each)) is not None),
        )  # fmt: skip
        if shares:
            mean = survey_tables.geomean(shares)
            points = tuple(Point(share) for share in shares)
            words = (
                f"{len(shares)} problems, geometric mean {mean:.3f}, lowest {shares[0]:.2f}, highest {shares[-1]:.2f}"
            )
            rows.append(ChartRow(name, (points, (Point(mean),)), number(mean, 3), words=words))
            slower = sum(share < survey_tables.SLOW for share in shares)
            lines.append(
                (name, str(len(shares)), number(mean, 3), number(shares[0], 2), number(shares[-1], 2), str(slower))
            )
    header = ("problems", "number", "geometric mean", "lowest", "highest", f"below {survey_tables.SLOW}")
    series = (Series("a problem", "tick"), Series("geometric mean", "line"))
    return RowChart(
        "survey", "Plans of random problems: speedup over cuBLASLt's fastest algorithm", "speedup", series, tuple(rows),
        DataTable(header, tuple(lines)), logarithmic=True, reference=(1.0, "equal"),
    ).figure()  # fmt: skip


def _tuned(data: PageData) -> PageView:
    tables = [(rung, table, _by_types(table)) for rung in RUNGS if (table := shipped_table.table(rung)) is not None]
    searches = "" if data.basis == "summary" else data.tables.block("table", "autotune")
    body = filled("tuned.html", tables=tables, autotune=rendered(searches, "wmma-final: configurations tried"))
    return PageView("tuned", "Tuned configurations", body)


def _by_types(table: ShippedTable) -> list[tuple[str, Markup]]:
    """The entries of a shipped table, by the types that they are of."""
    found: dict[str, list[ShippedEntry]] = defaultdict(list)
    for entry in table.entries:
        key = ProblemClass(*entry.problem)
        found[types_name(key.dtype, key.accumulator, key.out)].append(entry)
    header = ("M x N x K", "A, B", "alignment of A, B, D, bytes", "configuration", "commit", "TFLOP/s", "of cuBLASLt")
    tables = []
    for types, entries in found.items():
        rows = tuple(_entry_row(table, entry) for entry in entries)
        tables.append((f"{types}: {len(rows)}", DataTable(header, rows, left=5).html(f"tuned configurations, {types}")))
    return tables


def _entry_row(table: ShippedTable, entry: ShippedEntry) -> tuple[str, ...]:
    key = ProblemClass(*entry.problem)
    shape = f"{key.m}x{key.n}x{key.k}" if key.batch == 1 else f"{key.batch} of {key.m}x{key.n}x{key.k}"
    layouts = f"{key.a_major}, {key.b_major}" + (", with C" if key.with_c else "")
    return (
        shape, layouts, f"{key.a_alignment}, {key.b_alignment}, {key.d_alignment}",
        config_text(dict(zip(table.keys, entry.config, strict=True))), table.origins[entry.origin].git_hash,
        number(entry.tflops), number(entry.of_cublaslt, 3),
    )  # fmt: skip
