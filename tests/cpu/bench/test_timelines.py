"""Replayed launches as charts: which warp is what, what ships, and the page of `warptile profile --timeline`."""

from functools import cache
from pathlib import Path

import msgspec
import pytest

from covering import ALL, few
from page_tree import tree
from warptile.bench.html_report import rung_timelines
from warptile.bench.profiling import shipped_timelines
from warptile.bench.profiling.replayed import replayed
from warptile.bench.profiling.shipped_timelines import PATH, SHOWN, encode, is_current, made, timelines
from warptile.bench.profiling.timeline_figure import replayed_rows
from warptile.bench.profiling.timeline_rows import timeline_rows
from warptile.cli.main import run
from warptile.figures.timeline_chart import timeline_chart
from warptile.replay.timeline import Timeline, TraceSpan
from warptile.rungs import RUNGS
from warptile.runtime.execute import choose_backend

MOST_FILE_BYTES = 120_000


@cache
def replay_of(place):
    shown = SHOWN[place]
    return replayed(shown.plan(), choose_backend("emulator"), shown.launches)


def rows_of(rung, view):
    (found,) = (each for each in timelines().timelines if (each.rung, each.view) == (rung, view))
    return {(row.group, row.label): row for row in found.rows()}


def pauses(row, least):
    """Gaps between a row's bars of at least so many clocks."""
    gaps = zip(row.bars, row.bars[1:], strict=False)
    return [(one.end, other.start) for one, other in gaps if other.start - one.end >= least]


def test_rows_add_up_to_the_replay():
    place = next(i for i, shown in enumerate(SHOWN) if shown.rung == "wgmma-specialized")
    timeline = replay_of(place).timeline
    every = {row.label.split(",")[0]: row for row in timeline_rows(timeline, tolerance=-1)}
    assert len(every) == len(timeline.tracks)
    for track in timeline.tracks:
        if " warp " in track or not track.startswith("CTA"):
            row = every[track.removeprefix("CTA 0 ")]
            total = sum(span.clocks for span in timeline.of(track))
            assert sum(row.clocks_by_kind.values()) == pytest.approx(total), track
    for row in replayed_rows(replay_of(place)):
        if row.rows == 1 and row.label.split(",")[0] in every:
            assert row.clocks_by_kind == pytest.approx(every[row.label.split(",")[0]].clocks_by_kind)


def test_warps_have_their_roles_and_mbarriers_their_stages():
    labels = [label for _, label in rows_of("wgmma-specialized", "wgmma-specialized")]
    assert labels[:2] == ["warp 0, producer", "warps 1–3"]
    assert all(label.endswith(", consumer") for label in labels[2:-12])
    assert labels[-12:] == [
        "tensor cores 0–3", "TMA loads", *(f"full {stage}" for stage in range(5)),
        *(f"empty {stage}" for stage in range(5)),
    ]  # fmt: skip
    texts = {bar.text for row in rows_of("wgmma-specialized", "wgmma-specialized").values() for bar in row.bars}
    assert "waits for full 0, phase 1" in texts
    assert not any("mbarrier" in text for text in texts)


def test_without_a_producer_nobody_is_a_consumer():
    labels = [label for _, label in rows_of("wgmma-tma", "wgmma-specialized")]
    assert labels == ["warps 0–3", "tensor cores 0–3", "TMA loads", "full 0"]


@pytest.mark.parametrize(("end", "label"), [(9, "empty 0"), (3, "mbarrier 72")])
def test_an_mbarrier_is_an_empty_one_where_its_phases_follow_those_of_a_full_one(end, label):
    spans = [
        TraceSpan("CTA 0 warp 0", 0, 10, "integer", "addresses"), TraceSpan("CTA 0 warp 1", 0, 20, "wgmma", "wgmma"),
        TraceSpan("TMA loads", 0, 5, "transfer", "16 bytes to mbarrier 64 phase 0"),
        TraceSpan("CTA 0 mbarrier 64", 0, 5, "phase", "phase 0"),
        TraceSpan("CTA 0 mbarrier 72", 0, end, "phase", "phase 0"),
    ]  # fmt: skip
    tracks = list(dict.fromkeys(span.track for span in spans))
    timeline = Timeline(tracks, spans, dict.fromkeys(tracks, "CTA 0"), 20.0, 1000.0)
    assert [row.label for row in timeline_rows(timeline)] == [
        "warp 0, producer", "warp 1, consumer", "TMA loads", "full 0", label,
    ]  # fmt: skip


def test_units_of_several_sms_are_rows_of_their_own():
    tracks = {
        f"SM {sm} {unit}": f"units of SM {sm}" for sm in (0, 1) for unit in ("TMA loads", "tensor core 0")
    }  # fmt: skip
    spans = [TraceSpan(track, 0, 10 + place, "transfer", "x") for place, track in enumerate(tracks)]
    rows = timeline_rows(Timeline(list(tracks), spans, tracks, 20.0, 1000.0))
    assert [(row.group, row.label, row.bars[0].end) for row in rows] == [
        ("units of SM 0", "tensor core 0", 11), ("units of SM 0", "TMA loads", 10),
        ("units of SM 1", "tensor core 0", 13), ("units of SM 1", "TMA loads", 12),
    ]  # fmt: skip


def test_the_phases_of_a_later_launch_begin_with_it():
    rows = rows_of("wgmma-store", "wgmma-dependent-launch")
    began = rows["launch 1, CTA 0", "warp 0, producer"].bars[0].start
    assert began > 5000
    assert rows["launch 1, mbarriers of CTA 0", "full 0"].bars[0].start == began


# --- what the report says of them ------------------------------------------------------------------------------------


def test_a_double_buffer_waits_for_data_once_and_at_one_barrier_a_tile():
    tiles = 512 // 64
    barriers, waits = {}, {}
    for rung in ("mma-swizzled", "mma-double-buffer"):
        (row, *_) = rows_of(rung, "mma-double-buffer").values()
        barriers[rung] = sum(bar.kind == "barrier" for bar in row.bars)
        waits[rung] = sum(bar.kind == "wait" for bar in row.bars)
    assert barriers["mma-swizzled"] >= 2 * tiles - 1
    assert barriers["mma-double-buffer"] <= tiles + 1
    assert waits == {"mma-swizzled": 0, "mma-double-buffer": 1}


def test_a_producer_keeps_the_tensor_cores_at_work():
    unit = "units of the SM", "tensor cores 0–3"
    alone = rows_of("wgmma-tma", "wgmma-specialized")
    assert len(pauses(alone[unit], 500)) == 1024 // 64 - 1
    loads = alone["units of the SM", "TMA loads"].bars
    assert not any(load.start < work.end and work.start < load.end for load in loads for work in alone[unit].bars), (
        "tensor cores and TMA take turns"
    )
    assert pauses(rows_of("wgmma-specialized", "wgmma-specialized")[unit], 50) == []


def test_the_epilogue_overlaps_the_next_tiles_mainloop():
    unit, stores = ("units of the SM", "tensor cores 0–3"), ("units of the SM", "TMA stores")
    before, after = (rows_of(name, "wgmma-overlap") for name in ("wgmma-store", "wgmma-overlap"))
    assert len(pauses(before[unit], 200)) == 1
    assert pauses(after[unit], 200) == []
    assert after[stores].bars[0].start < after[unit].bars[-1].end


def test_a_dependent_launch_begins_while_the_first_one_stores():
    first, second = ("launch 0, CTA 0", "warps 8–11, consumer"), ("launch 1, CTA 0", "warp 0, producer")
    plain, early = (
        rows_of(name, "wgmma-dependent-launch") for name in ("wgmma-store", "wgmma-dependent-launch")
    )  # fmt: skip
    assert plain[second].bars[0].start > plain[first].bars[-1].end + 1000
    assert early[second].bars[0].start < early[first].bars[-1].end
    loads = early["units of the SM", "TMA loads"].bars
    again = next(load.start for load in loads if load.start > early[second].bars[0].start)
    assert again > early[first].bars[-1].end


# --- what ships ------------------------------------------------------------------------------------------------------


def test_the_timelines_that_ship_are_those_of_the_kernels_and_small():
    text = shipped_timelines.FILE.read_text()
    assert len(text) < MOST_FILE_BYTES
    assert is_current(Path(__file__).parents[3]), "run: make docs"
    if ALL:
        assert text == encode(made()), "run: make docs"


def test_a_checkout_whose_timelines_are_of_other_kernels_is_told(tmp_path):
    assert is_current(tmp_path), "there is no package"
    file = tmp_path / PATH
    file.parent.mkdir(parents=True)
    assert not is_current(tmp_path)
    file.write_text("{")
    assert not is_current(tmp_path)
    file.write_text(encode(timelines()))
    assert is_current(tmp_path)
    file.write_text(encode(msgspec.structs.replace(timelines(), key="0")))
    assert not is_current(tmp_path)


def test_what_is_written_is_what_was_replayed():
    for shown, read in zip(SHOWN[:2], timelines().timelines, strict=False):
        rows = replayed_rows(replay_of(SHOWN.index(shown)))
        found = read.rows()
        assert [(row.label, row.group, row.rows) for row in found] == [(row.label, row.group, row.rows) for row in rows]
        for one, other in zip(found, rows, strict=True):
            assert [(bar.kind, bar.text, bar.line, bar.label, bar.spans) for bar in one.bars] == [
                (bar.kind, bar.text, bar.line, bar.label, bar.spans) for bar in other.bars
            ]
            assert one.clocks_by_kind == pytest.approx(other.clocks_by_kind, abs=0.1 * len(other.bars))


def test_pairs_are_drawn_on_one_scale_beside_what_differs():
    assert set(rung_timelines.WATCH) == {shown.view for shown in SHOWN}
    for view in rung_timelines.WATCH:
        found = rung_timelines.of_rung(view, f"rung-{view}")
        pictures = [tree(str(figure.html())).one(class_="wt-timeline") for figure in found.figures]
        assert len(pictures) == 2
        assert len({picture.attributes["data-clocks"] for picture in pictures}) == 1
        for shown in (shown for shown in SHOWN if shown.view == view):
            assert shown.rung in found.watch
    assert rung_timelines.of_rung("simt-naive", "rung-simt-naive") is None
    assert rung_timelines.shown_at("mma-swizzled") == "mma-double-buffer"
    assert rung_timelines.shown_at("wgmma-overlap") == "wgmma-overlap"
    assert rung_timelines.shown_at("simt-naive") is None


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_writes_a_page(tmp_path, capsys):
    path = tmp_path / "timeline.html"
    assert run(["profile", "wgmma-specialized", "-k", "256", "--timeline", str(path)]) == 0
    assert f"{path}: " in capsys.readouterr().out.replace("\n", "")
    page = tree(path.read_text().removeprefix("<!doctype html>\n"))
    assert page.one("title").text == "wgmma-specialized, 128 x 128 x 256 bfloat16"
    tracks = page.one("figure", "wt-figure").all(class_="wt-track")
    assert len(tracks) == len(page.one("table", "wt-table").rows()) - 1


@pytest.mark.parametrize(
    "name", few(["mma-final", "simt-naive", "wmma-multistage", "wgmma-multicast", "wgmma-final"], 2)
)
def test_launches_of_all_families_are_drawn(name):
    from warptile.ladder import plan_for

    place = choose_backend("emulator")
    found = replayed(plan_for(RUNGS[name], (256, 256, 128), place), place)
    rows = replayed_rows(found)
    figure = timeline_chart("t", name, rows, found.timeline.clocks)
    assert len(str(figure.html())) < 150_000
    for cells, row in zip(figure.table.rows, rows, strict=True):
        shares = [float(str(cell).removesuffix(" %")) for cell in cells[2:] if cell]
        if row.label.startswith(("warp", "full", "empty", "mbarrier")):
            assert sum(shares) == pytest.approx(100, abs=0.1 * len(shares)), row.label
