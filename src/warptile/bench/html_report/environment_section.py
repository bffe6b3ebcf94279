"""What was measured on what, when, and by which command; and how results were checked."""

from __future__ import annotations

from warptile import measured
from warptile.bench.html_report.page_data import PageData
from warptile.bench.html_report.rendered_markdown import rendered
from warptile.bench.html_report.views import PageView, filled
from warptile.bench.protocol.measurements import Spread
from warptile.bench.protocol.records import AnyRecord, CorrectnessRecord, TypesRecord
from warptile.figures.figure import DataTable

HEADER = (
    "record", "date", "GPU or processor", "driver", "CUDA", "NVRTC", "library", "Python", "commit", "power cap, W",
    "SM clock, MHz", "memory clock, MHz", "power, W", "temperature, C",
)  # fmt: skip

TYPE_TABLES = {
    "precision": "Speed, error and range of every type", "layouts": "The four layouts of mma-final",
    "wgmma-layouts": "The four layouts of wgmma-final",
}  # fmt: skip
"""Tables of the documents on types, with their headings."""


def views(data: PageData) -> tuple[PageView, ...]:
    """Types and correctness where they were measured, and the environment."""
    found = []
    if data.has(TypesRecord):
        tables = [
            (title, rendered(data.tables.block("table", name), f"types: {title}"))
            for name, title in TYPE_TABLES.items()
        ]
        body = filled("tables.html", tables=tables)
        found.append(PageView("types", "Types and layouts", body))
    if data.has(CorrectnessRecord):
        table = rendered(data.tables.block("table", "correctness"), "correctness")
        found.append(
            PageView("correctness", "Correctness", filled("correctness.html", table=table), label="Correctness")
        )
    return (*found, _environment(data))


def _environment(data: PageData) -> PageView:
    if data.basis == "summary":
        rows = tuple((each.record, each.date, each.gpu, each.regime) for each in measured.summary().sources)
        table = DataTable(("record", "date", "GPU", "regime"), rows, left=4)
    else:
        table = DataTable(HEADER, tuple(_row(record) for record in data.records), left=9)
    body = filled("environment.html", data=data, table=table.html("records") if table.rows else None)
    return PageView("environment", "Environment and records", body, label="Environment")


def _row(record: AnyRecord) -> tuple[str, ...]:
    about = record.environment
    samples = about.samples
    sampled = (
        (samples.sm_clock_mhz, samples.memory_clock_mhz, samples.power_w, samples.temperature_c)
        if samples is not None
        else (None, None, None, None)
    )
    return (
        record.id, record.date[:16].replace("T", " "), about.processor or about.gpu, about.driver, about.cuda,
        about.nvrtc,
        about.baseline_library or "–", about.python, record.git_hash,
        "–" if about.power_cap_w is None else f"{about.power_cap_w:.0f}", *map(_spread, sampled),
    )  # fmt: skip


def _spread(spread: Spread | None) -> str:
    """The median, and in brackets the least and the largest sample."""
    return "–" if spread is None else f"{spread.median:.0f} ({spread.low:.0f}–{spread.high:.0f})"
