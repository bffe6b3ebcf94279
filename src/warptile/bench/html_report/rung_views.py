"""A view for every rung: its idea, its page, its speeds beside the prediction, its counters and its source."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from warptile.bench.html_report import glossary_section, rung_speeds, rung_timelines
from warptile.bench.html_report.kernel_source import line_name, listing, own_files, source_name
from warptile.bench.html_report.page_data import PageData
from warptile.bench.html_report.rendered_markdown import rendered, rung_view, without_generated
from warptile.bench.html_report.views import PageView, filled
from warptile.bench.profiling.line_profile import LineProfile
from warptile.bench.profiling.source_lines import LineCounts, busiest
from warptile.bench.protocol.measurements import LadderCell, Profile
from warptile.bench.report.expected_cells import expected_of
from warptile.bench.report.ladder_cells import SizedCell, shown_cell, sized_cells
from warptile.bench.report.markdown import count, number, percent
from warptile.dtypes import DTYPES
from warptile.figures.bank_map import MATRIX_ROWS, SharedTile, bank_map
from warptile.figures.figure import DataTable, Figure
from warptile.figures.row_chart import ChartRow, Point, RowChart, Series
from warptile.isa.swizzle import CHUNK_BYTES, LINE_BYTES, ROW_BYTES
from warptile.planning.plan import config_text
from warptile.rungs import RUNGS, Rung

SHOWN_LINES = 30
"""Source lines of a profile that are listed; the others executed fewer instructions."""

SHOWN_STALLS = 8
SHOWN_OPCODES = 16


def views(data: PageData) -> tuple[PageView, ...]:
    """The rungs of the page, in ladder order."""
    return tuple(_view(data, RUNGS[name], place) for place, name in enumerate(data.rungs))


def _view(data: PageData, rung: Rung, place: int) -> PageView:
    cell = shown_cell(data.lookup, rung.name)
    profile = data.lookup.profile(rung.name)
    speeds = _speeds(data, rung)
    origins = rendered(data.lookup.origins(), "records")
    lines = data.profiles.get(rung.name)
    figures = [_speed_chart(rung, speeds)] if speeds else []
    tile = shared_tile(rung, cell) if cell is not None else None
    if tile is not None and (banks := _bank_figure(data, rung, tile)) is not None:
        figures.append(banks)
    counted = _counters(rung, profile) if profile is not None else []
    before, after = (data.rungs[i] if 0 <= i < len(data.rungs) else None for i in (place - 1, place + 1))
    own = own_files(rung.name)
    timelines_at = rung_timelines.shown_at(rung.name)
    heat = {file: _heat(lines, file) for file in own}
    body = filled(
        "rung.html", rung=rung, place=rung_view(rung.name), rung_view=rung_view, before=before, after=after,
        figures=figures, origins=origins, timelines=rung_timelines.of_rung(rung.name, rung_view(rung.name)),
        timelines_at=timelines_at if timelines_at in data.rungs else None,
        config=_config_table(rung, cell), prediction=_prediction_words(cell), counters=counted, profile=profile,
        tile=tile, loads_ratio=_loads_ratio(profile), lines=lines, config_text=config_text, page=_page(data, rung),
        lines_table=_lines_table(rung, lines) if lines is not None else None,
        lines_shown=min(SHOWN_LINES, len(lines.lines)) if lines is not None else 0, source_name=source_name,
        dtypes=[DTYPES[name].ptx for name in rung.dtypes], sources=[(file, listing(file, heat[file])) for file in own],
    )  # fmt: skip
    return PageView(rung_view(rung.name), f"{rung.name}: {rung.idea}", body, group=rung.family, label=rung.name)


# --- what the rung's document says -----------------------------------------------------------------------------------


def _page(data: PageData, rung: Rung) -> Markup:
    """The rung's page in docs/rungs without its generated tables and its title, or nothing without a checkout."""
    file = data.documents / "rungs" / f"{rung.name}.md" if data.documents is not None else None
    if file is None or not file.is_file():
        return Markup("")
    known = frozenset(map(rung_view, data.rungs)) | glossary_section.places(data)
    return rendered(without_generated(file.read_text("utf-8")), f"{rung.name}: table", known, lower=1)


# --- speeds ----------------------------------------------------------------------------------------------------------


def _speeds(data: PageData, rung: Rung) -> list[tuple[rung_speeds.RungSpeed, SizedCell | None]]:
    if data.basis == "summary":
        return [(each, None) for each in rung_speeds.shipped_of(rung.name)]
    cells = sized_cells(data.lookup, rung.name)
    return [(rung_speeds.of_cell(each.cell, each.types.name), each) for each in cells]


def _speed_chart(rung: Rung, speeds: list[tuple[rung_speeds.RungSpeed, SizedCell | None]]) -> Figure:
    """TFLOP/s by types and size, as predicted and as measured."""
    groups = tuple(dict.fromkeys(each.types for each, _ in speeds))
    rows = tuple(
        ChartRow(f"{each.types}, {each.shape}", each.points, number(each.tflops), None, groups.index(each.types),
                 each.words)
        for each, _ in speeds
    )  # fmt: skip
    header = (
        "types", "size", "limited by, predicted", "note", "configuration", "predicted TFLOP/s", "measured TFLOP/s",
        "measured / predicted", "of cuBLASLt", "rounds", "speedup over previous",
    )  # fmt: skip
    table = DataTable(header, tuple(_speed_row(each, cell) for each, cell in speeds), left=5)
    title = f"{rung.name} by types and size, beside cuBLASLt in the same rounds"
    return RowChart(
        f"{rung_view(rung.name)}-speeds", title, "TFLOP/s", rung_speeds.SPEEDS, rows, table, groups
    ).figure()


def _speed_row(each: rung_speeds.RungSpeed, sized: SizedCell | None) -> tuple[str, ...]:
    hit = each.tflops / each.predicted if each.tflops and each.predicted else None
    return (
        each.types, each.shape, each.bound, each.note, config_text(sized.cell.config) if sized else "",
        number(each.predicted), number(each.tflops), percent(hit), percent(each.share), rung_speeds.spread(each),
        number(sized.over_previous if sized else None, 2),
    )  # fmt: skip


def _config_table(rung: Rung, cell: LadderCell | None) -> Markup | None:
    if cell is None:
        return None
    rows = [(key, str(value)) for key, value in cell.config.items()]
    if cell.resources is not None:
        rows += [
            ("registers a thread", str(cell.resources.registers)),
            ("shared memory a CTA, bytes", f"{cell.resources.shared_bytes:,}"),
            ("spilled bytes a thread", str(cell.resources.spill_bytes)),
        ]
    return DataTable(("tunable", cell.problem.shape), tuple(rows)).html(f"{rung.name}: configuration")


def _prediction_words(cell: LadderCell | None) -> str:
    """The prediction beside the measurement in one sentence, or nothing."""
    said = expected_of(cell) if cell is not None else None
    if cell is None or said is None or cell.tflops is None:
        return ""
    return (
        f"At {cell.problem.shape} the prediction is {said.tflops:.1f} TFLOP/s on the {said.arch}, limited by "
        f"{said.bound}. Measured: {cell.tflops:.1f} TFLOP/s, {100 * cell.tflops / said.tflops:.0f} % of it."
    )


# --- shared memory ---------------------------------------------------------------------------------------------------


def shared_tile(rung: Rung, cell: LadderCell) -> SharedTile | None:
    """Eight rows of the rung's tile of A in shared memory, where it is read by ``ldmatrix``; else None.

    Only the wmma and mma families read fragments of 16-bit elements from rows of K; `wgmma` reads core matrices, which
    have no conflicts.
    """
    bits = DTYPES[cell.problem.dtype].bits
    extent = cell.config.get("BK")
    if rung.family not in ("wmma", "mma") or extent is None or bits != 16 or not rung.mechanism.staged or rung.sparse:
        return None
    row = extent * bits // 8
    if rung.mechanism.narrow_rows:
        row = min(row, LINE_BYTES)
    pitch = row + cell.config.get("PAD", 0) * bits // 8
    if row % CHUNK_BYTES or pitch % CHUNK_BYTES:
        return None
    swizzle = row if rung.mechanism.swizzled and row in ROW_BYTES else 0
    return SharedTile(f"{rung.name}, BK = {extent}", MATRIX_ROWS, row, pitch, swizzle)


def _bank_figure(data: PageData, rung: Rung, tile: SharedTile) -> Figure | None:
    """Banks before and after, where this rung's rows lie otherwise than those of the rung before it; else None."""
    before = shown_cell(data.lookup, rung.previous) if rung.previous else None
    previous = shared_tile(RUNGS[before.rung], before) if before is not None else None
    if previous is None or previous.row_bytes != tile.row_bytes:
        return None
    if (previous.pitch_bytes, previous.swizzle_bytes) == (tile.pitch_bytes, tile.swizzle_bytes):
        return None
    title = f"{rung.name}: banks of eight rows of A's tile, {tile.row_bytes} bytes of data each"
    return bank_map(f"{rung_view(rung.name)}-banks", title, [previous, tile])


def _loads_ratio(profile: Profile | None) -> str | None:
    """Wavefronts of ``ldmatrix`` over the ideal number, as Nsight Compute counted them, or None."""
    loads = profile.by_opcode.get("LDSM", {}) if profile is not None else {}
    ideal = loads.get("shared_wavefronts_ideal")
    return number(loads["shared_wavefronts"] / ideal, 2) if ideal else None


# --- counters --------------------------------------------------------------------------------------------------------


def _counters(rung: Rung, profile: Profile) -> list[Figure | Markup]:
    """What Nsight Compute counted: totals, machine instructions, and what warps waited for."""
    shown: list[Figure | Markup] = []
    if profile.stalls:
        stalls = sorted(profile.stalls.items(), key=lambda each: -each[1])
        rows = tuple(
            ChartRow(reason, ((Point(100 * share),),), f"{100 * share:.1f} %")
            for reason, share in stalls[:SHOWN_STALLS]
        )
        table = DataTable(("reason", "share of warp samples"), tuple((name, percent(share)) for name, share in stalls))
        title = f"{rung.name}: what warps waited for, {profile.problem.shape}"
        shown.append(
            RowChart(f"{rung_view(rung.name)}-stalls", title, "%", (Series("share", "bar"),), rows, table).figure()
        )
    totals = [(key, count(value)) for key, value in sorted(profile.counters.items())]
    totals.append(("registers a thread", str(profile.registers)))
    if profile.occupancy is not None:
        totals.append(("achieved occupancy", f"{profile.occupancy:.0f} %"))
    shown.append(_folded("Counters of the launch", DataTable(("counter", "count"), tuple(totals)), rung))
    opcodes = sorted(profile.by_opcode.items(), key=lambda each: -each[1].get("instructions", 0.0))[:SHOWN_OPCODES]
    if opcodes:
        columns = [key for key in _OPCODE_COLUMNS if any(key in counters for _, counters in opcodes)]
        table = DataTable(
            ("machine instruction", *(key.replace("_", " ") for key in columns)),
            tuple((name, *(count(counters.get(key, 0.0)) for key in columns)) for name, counters in opcodes),
        )
        shown.append(_folded("The most frequent machine instructions", table, rung))
    return shown


_OPCODE_COLUMNS = ("instructions", "samples", "global_sectors", "shared_wavefronts", "shared_wavefronts_ideal")


def _folded(title: str, table: DataTable, rung: Rung) -> Markup:
    return Markup('<details class="fold"><summary>{}</summary>\n{}</details>').format(
        title, table.html(f"{rung.name}: {title}")
    )


def _lines_table(rung: Rung, profile: LineProfile) -> Markup:
    """The lines that executed the most instructions."""
    own = own_files(rung.name)
    rows = []
    for line in busiest(profile.lines, SHOWN_LINES):
        where: str | Markup = f"{line.file}:{line.line}"
        if line.file in own and line.text:
            where = Markup('<a href="#{}">{}</a>').format(line_name(line.file, line.line), where)
        rows.append(
            (
                where, Markup('<code class="line">{}</code>').format(line.text),
                percent(line.time_share) if line.time_share is not None else "", f"{line.warp_instructions:,}",
                f"{line.global_sectors:,}", f"{line.shared_wavefronts:,}", f"{line.shared_wavefronts_ideal:,}",
                number(line.conflict_ratio, 2) if line.conflict_ratio is not None else "",
            )
        )  # fmt: skip
    time = "predicted time" if profile.backend == "emulator" else "samples"
    header = ("line", "source", time, "warp instructions", "global sectors", "shared wavefronts", "ideal", "n-way")
    return DataTable(header, tuple(rows), left=2).html(f"{rung.name}: counters by line")


def _heat(profile: LineProfile | None, file: str) -> Mapping[int, tuple[float, str]]:
    """The lines of a file that were counted, with their share of the busiest line's instructions."""
    if profile is None or not profile.lines:
        return {}
    most = max(line.warp_instructions for line in profile.lines) or 1
    return {
        line.line: (line.warp_instructions / most, _line_words(line)) for line in profile.lines if line.file == file
    }


def _line_words(line: LineCounts) -> str:
    said = [f"{line.warp_instructions:,} warp instructions"]
    if line.global_sectors:
        said.append(f"{line.global_sectors:,} global sectors")
    if line.conflict_ratio is not None:
        said.append(f"{line.shared_wavefronts:,} shared wavefronts, {line.conflict_ratio:.2f}-way")
    return ", ".join(said)
