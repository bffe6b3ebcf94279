"""Timeline charts: every bar is drawn where it is, is named once, and the table says the same."""

import re

import pytest

from page_tree import tree
from warptile.figures.assets import stylesheet
from warptile.figures.timeline_bars import TimelineBar, TimelineRow, joined_rows
from warptile.figures.timeline_chart import KINDS, LOOKS, timeline_chart
from warptile.replay import timeline as replayed

MOST_BYTES = 150_000


def bar(start, end, kind="math", text="arithmetic", line="a.cuh:3", label=""):
    return TimelineBar(start, end, kind, text, line, label)


ROWS = (
    TimelineRow("warp 0", "CTA <0>", (bar(0, 250), bar(250, 600, "wait", "waits for full 0, phase 1"), bar(600, 1000))),
    TimelineRow("TMA loads", "units", (bar(0, 500, "transfer", "16 bytes"), bar(250, 750, "transfer", "16 bytes"))),
    TimelineRow("full 0", "mbarriers", (
        bar(0, 400, "phase", "phase 0", "", "0"), bar(400, 900, "phase", "phase 1", "", "1"),
    )),
)  # fmt: skip


def drawn(rows=ROWS, clocks=1000.0, **options):
    return tree(str(timeline_chart("t", "Launch", rows, clocks, **options).html()))


def strokes(track):
    """(class, start, end, y, text's place) of every bar of a row, as its paths draw them."""
    found = []
    for path in track.one("svg").all("path"):
        x = y = 0
        moves = re.findall(r"m(-?\d+) (-?\d+)h(\d+)", path.attributes["d"])
        assert "".join(f"m{a} {b}h{c}" for a, b, c in moves) == path.attributes["d"]
        for (right, down, length), text in zip(moves, path.attributes["data-t"].split(), strict=True):
            x, y = x + int(right), y + int(down)
            found.append((path.attributes["class"], x, x + int(length), y, int(text)))
            x += int(length)
    return found


def test_bars_are_drawn_where_they_are_with_their_texts():
    found = drawn()
    picture = found.one(class_="wt-timeline")
    texts = picture.attributes["data-texts"].split("\n")
    first, transfers, phases = picture.all(class_="wt-track")
    assert [(kind, start, end) for kind, start, end, _, _ in strokes(first)] == [
        ("wt-t-math", 0, 250), ("wt-t-math", 600, 1000), ("wt-t-wait", 250, 600),
    ]  # fmt: skip
    assert [texts[place] for *_, place in strokes(first)] == [
        "arithmetic\ta.cuh:3", "arithmetic\ta.cuh:3", "waits for full 0, phase 1\ta.cuh:3",
    ]  # fmt: skip
    assert len(texts) == len(set(texts))
    one, other = strokes(transfers)
    assert one[3] != other[3], "copies in flight at a time have lanes of their own"
    assert [kind for kind, *_ in strokes(phases)] == ["wt-t-phase", "wt-t-phase-odd"]
    assert [(label.text, label.attributes["style"]) for label in phases.all("b")] == [
        ("0", "left:0%;width:40%"), ("1", "left:40%;width:50%"),
    ]  # fmt: skip


def test_names_and_bars_stand_in_lines_of_the_same_height():
    found = drawn()
    heights = [
        [re.search(r"height:(\d+)px", each.attributes["style"])[1] for each in side.children if hasattr(each, "tag")
         and "style" in each.attributes]
        for side in (found.one(class_="wt-tracks"), found.one(class_="wt-plots"))
    ]  # fmt: skip
    assert heights[0] == heights[1]
    assert len(heights[0]) == 6
    assert [each.text for each in found.one(class_="wt-tracks").all("b")] == ["CTA <0>", "units", "mbarriers"]


def test_the_table_has_shares_that_add_up():
    header, *rows = drawn().one("table", "wt-table").rows()
    assert header == ["row", "of", "math", "transfer", "wait", "phase", "nothing"]
    assert rows[0] == ["warp 0", "CTA <0>", "65.0 %", "", "35.0 %", "", ""]
    assert rows[1] == ["TMA loads", "units", "", "100.0 %", "", "", "25.0 %"], "two at a time for a quarter of it"
    assert rows[2] == ["full 0", "mbarriers", "", "", "", "90.0 %", "10.0 %"]


def test_joined_bars_are_said_and_counted_as_they_were():
    bars = tuple(bar(i / 8, (i + 1) / 8, ("math", "wait")[i % 2]) for i in range(4000))
    rows = joined_rows([TimelineRow("warp 0", "CTA 0", bars)], 1000)
    found = drawn(rows)
    assert len(strokes(found.one(class_="wt-track"))) == len(rows[0].bars) < 2000
    assert re.search(r"shorter than 0\.5 clocks .*: [\d,]+ bars of 4,000 spans", found.one("p", "wt-note").text)
    assert found.one("table", "wt-table").rows()[1] == ["warp 0", "CTA 0", "25.0 %", "25.0 %", "50.0 %"]


def test_an_axis_may_end_later_so_that_charts_can_be_compared():
    found = drawn(axis=2000.0)
    assert found.one(class_="wt-timeline").attributes["data-clocks"] == "2000"
    assert drawn().one("table", "wt-table").rows() == found.one("table", "wt-table").rows()
    ticks = {each.text: each.attributes["style"] for each in found.one(class_="wt-clocks").all("i")}
    assert ticks["0"] == "left:0%"
    assert ticks["1,000"] == "left:50%"


def test_a_row_for_several_says_how_far_they_differ():
    found = drawn([TimelineRow("warps 0–3", "CTA 0", (bar(0, 10),), 4, 0.0321)])
    assert "of another kind in at most 3.2\u00a0% of their time" in found.one("p", "wt-note").text


def test_the_legend_has_the_looks_that_occur():
    assert [each.text for each in drawn().one("ul", "wt-legend").all("li")] == [
        look.words for look in LOOKS if look.name in ("math", "memory", "wait", "phase")
    ]


def test_every_kind_of_a_replay_has_a_look_of_its_own_form():
    assert set(replayed.KINDS) <= set(KINDS)
    forms = {}
    for look in LOOKS:
        style = re.search(rf"\.wt-t-{look.name} {{([^}}]*)}}", stylesheet())[1]
        form = re.findall(r"stroke-(?:width|dasharray): ([^;]+);", style) or [style.strip()]
        forms.setdefault(tuple(form), []).append(look.name)
    assert [names for names in forms.values() if len(names) > 1] == []


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match=r"warp 0: a bar of kind 'maths': kinds are tensor, wgmma, math"):
        drawn([TimelineRow("warp 0", "CTA 0", (bar(0, 1, "maths"),))])
    with pytest.raises(ValueError, match="ends at 1001, after 1000"):
        drawn([TimelineRow("warp 0", "CTA 0", (bar(0, 1001),))])


def test_a_chart_of_nothing_is_still_a_chart():
    assert drawn([], 0.0).all(class_="wt-track") == []


def test_a_launch_of_many_spans_is_small():
    kinds = ("math", "wait", "integer", "wgmma")
    rows = [
        TimelineRow(f"warp {warp}", "CTA 0", tuple(
            bar(10.0 * i, 10.0 * i + 8, kinds[i % 4], f"waits for full {i % 4}, phase {i // 4}") for i in range(250)
        ))
        for warp in range(12)
    ]  # fmt: skip
    assert len(str(timeline_chart("t", "Launch", joined_rows(rows, 2500), 2500).html())) < MOST_BYTES
