"""The first view: where the figures come from, and the ladder; and a view of every saved climb."""

from __future__ import annotations

from markupsafe import Markup

from warptile import measured
from warptile.bench.html_report import rung_speeds
from warptile.bench.html_report.page_data import PageData
from warptile.bench.html_report.rendered_markdown import rendered, rung_view
from warptile.bench.html_report.views import PageView, filled
from warptile.bench.report.documents import FP8_CONDITION, LADDER_CONDITIONS
from warptile.bench.report.markdown import count, number, percent
from warptile.dtypes import DTYPES
from warptile.figures.figure import DataTable, Figure
from warptile.ladder import Ladder, RungResult

EMULATOR = "emulator"


def views(data: PageData) -> tuple[PageView, ...]:
    """One view for each saved climb, and before them an overview, unless there is nothing else to show in it."""
    climbs = tuple(_climb(data, place, ladder) for place, ladder in enumerate(data.ladders))
    speeds = rung_speeds.shipped(data.rungs) if data.basis == "summary" else rung_speeds.recorded(data, data.rungs)
    return climbs if climbs and not speeds else (_overview(data, speeds), *climbs)


def _overview(data: PageData, speeds: list[rung_speeds.RungSpeed]) -> PageView:
    figure, conditions = None, Markup("")
    if speeds:
        taken = data.lookup.sources()
        measured_on = dict.fromkeys(each.environment.gpu for each in data.records if each.id in taken) or data.gpus
        title = f"The ladder on {' and '.join(measured_on)}: TFLOP/s of every rung"
        figure = rung_speeds.ladder_chart("ladder", title, speeds, data)
        origins = _shipped_sources() if data.basis == "summary" else data.lookup.origins()
        conditions = rendered(LADDER_CONDITIONS + FP8_CONDITION + origins, "records")
    body = filled("overview.html", data=data, figure=figure, conditions=conditions, rung_view=rung_view)
    return PageView("overview", "Overview", body)


def _shipped_sources() -> str:
    items = "\n".join(
        f"- `{each.record}`: {each.gpu}, {each.date}, {each.regime}" for each in measured.summary().sources
    )
    return f"<details><summary>{len(measured.summary().sources)} records</summary>\n\n{items}\n\n</details>\n"


def _climb(data: PageData, place: int, ladder: Ladder) -> PageView:
    """A saved ``warptile ladder``: what was checked, counted and, on a GPU, timed."""
    size = ladder.problem
    where = ladder.environment.get("gpu") or "the emulator"
    shape = f"{size.m} x {size.n} x {size.k}"
    on_gpu = ladder.backend != EMULATOR
    number_of = "" if len(data.ladders) == 1 else f" {place + 1}"
    name = f"climb{number_of.replace(' ', '-')}"
    figures: list[Figure] = []
    speeds = [rung_speeds.of_result(result, shape) for result in ladder.rungs]
    if on_gpu:
        title = f"Every rung on {where}, {shape}: TFLOP/s"
        figures.append(rung_speeds.ladder_chart(f"{name}-speeds", title, speeds, data))
    elif (conflicts := rung_speeds.conflict_chart(f"{name}-conflicts", ladder)) is not None:
        figures.append(conflicts)
    known = [(result, result.measured) for result in ladder.rungs if result.measured and not on_gpu]
    if known:
        figures.append(_recorded_chart(f"{name}-recorded", ladder, data))
    body = filled(
        "climb.html", data=data, ladder=ladder, where=where, shape=shape, on_gpu=on_gpu, figures=figures,
        failures=[result for result in ladder.rungs if result.failure], table=_climb_table(ladder), rung_view=rung_view,
        environment=DataTable(("what", "value"), tuple((key, str(value)) for key, value in ladder.environment.items()
                                                       if value is not None), left=2).html("environment of the run"),
    )  # fmt: skip
    return PageView(name, f"This run{number_of}: the ladder on {where}", body, label=f"This run{number_of}")


def _recorded_chart(name: str, ladder: Ladder, data: PageData) -> Figure:
    """The recorded results that a climb on the emulator shows beside its own: they were measured elsewhere."""
    found = []
    for result in ladder.rungs:
        if result.measured is not None:
            about = result.measured
            shape = f"{about['m']} x {about['n']} x {about['k']}"
            found.append(
                rung_speeds.RungSpeed(
                    result.name, DTYPES[result.dtype].ptx, shape, about["tflops"], library=about["cublas_tflops"],
                    share=about["of_cublas"], rounds=(about["of_cublas_low"], about["of_cublas_high"]),
                )
            )  # fmt: skip
    about = next(result.measured for result in ladder.rungs if result.measured)
    shapes = " and ".join(dict.fromkeys(each.shape for each in found))
    title = f"Recorded on {about['gpu']} at {shapes}, not measured in this run: TFLOP/s"
    return rung_speeds.ladder_chart(name, title, found, data)


def _climb_table(ladder: Ladder) -> Markup:
    header = (
        "rung", "types", "correct", "largest error / bound", "bank conflicts (n-way)", "warp instructions",
        "registers", "shared bytes", "limited by, predicted", "predicted TFLOP/s", "TFLOP/s", "of cuBLASLt",
    )  # fmt: skip
    rows = tuple(_climb_row(result) for result in ladder.rungs)
    kept = [place for place in range(len(header)) if place < 3 or any(row[place] != rung_speeds.DASH for row in rows)]
    shown = tuple(tuple(row[place] for place in kept) for row in rows)
    return DataTable(tuple(header[place] for place in kept), shown, left=3).html("every rung of this run")


def _climb_row(result: RungResult) -> tuple[str | Markup, ...]:
    counters, made = result.counters, result.resources
    said = result.predicted if result.tflops is not None else None  # the size of the emulator says nothing of a GPU
    conflicts = counters.get("shared_load_conflict_ratio") if counters.get("shared_load_wavefronts") else None
    correct = "yes" if result.correct else ("not taken here" if result.unsupported else "NO")
    return (
        Markup('<a href="#{}">{}</a>').format(rung_view(result.name), result.name), DTYPES[result.dtype].ptx, correct,
        number(result.error_ratio, 3), number(conflicts, 2), count(counters.get("warp_instructions")),
        count(made.registers if made else None), count(made.shared_bytes if made else None),
        said.bound if said else rung_speeds.DASH, number(said.tflops if said else None), number(result.tflops),
        percent(result.of_cublas),
    )  # fmt: skip
