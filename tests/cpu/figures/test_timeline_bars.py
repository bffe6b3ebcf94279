"""Rows of bars: short bars are joined and like rows folded, and nothing that they add up to is lost."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warptile.figures.timeline_bars import (
    DRAWN,
    MIXED,
    TimelineBar,
    TimelineRow,
    difference,
    folded_rows,
    joined_rows,
    lanes,
)

CLOCKS = 2.0 * DRAWN
"""So that bars shorter than two clocks are joined."""

SHORTEST = 2.0


def row(*bars, label="warp 0", group="CTA 0"):
    return TimelineRow(label, group, tuple(TimelineBar(*bar) for bar in bars))


@st.composite
def sequences(draw):
    """Rows of bars that follow each other, many of them short, some with gaps between them."""
    bars, time = [], 0.0
    for _ in range(draw(st.integers(1, 40))):
        time += draw(st.sampled_from([0.0, 0.0, 0.0, 0.5, 3.0]))
        length = draw(st.sampled_from([0.25, 0.5, 1.0, 1.5, 2.0, 7.0, 40.0]))
        label = draw(st.sampled_from(["", "", "", "", "4"]))
        bars.append(TimelineBar(time, time + length, draw(st.sampled_from(["math", "wait", "wgmma"])), "", "", label))
        time += length
    return TimelineRow("warp 0", "CTA 0", tuple(bars))


@given(sequences())
def test_joining_loses_no_clocks_of_any_kind_and_moves_no_edge_far(before):
    (after,) = joined_rows([before], CLOCKS)
    assert after.clocks_by_kind == pytest.approx(before.clocks_by_kind)
    assert after.covered == pytest.approx(before.covered)
    assert sum(bar.spans for bar in after.bars) == len(before.bars)
    assert (after.bars[0].start, after.bars[-1].end) == (before.bars[0].start, before.bars[-1].end)
    assert all(one.end <= other.start for one, other in pairwise(after.bars))
    long = [bar for bar in before.bars if bar.end - bar.start >= SHORTEST]
    for bar in long:
        found = next(each for each in after.bars if each.start <= bar.start < each.end)
        assert found.start == bar.start
        assert bar.end <= found.end <= bar.end + SHORTEST
    assert [bar for bar in after.bars if bar.label] == [bar for bar in before.bars if bar.label]


@given(sequences())
def test_a_joined_bar_has_the_kind_of_most_of_its_time_or_is_mixed(before):
    (after,) = joined_rows([before], CLOCKS)
    for bar in after.bars:
        if bar.spans > 1:
            most = max(bar.clocks_by_kind.values())
            assert bar.kind == MIXED or bar.clocks_by_kind[bar.kind] == most >= 0.75 * (bar.end - bar.start)
            assert bar.kind != MIXED or most < 0.75 * (bar.end - bar.start)


def test_thousands_of_short_bars_become_few():
    bars = [(float(i), i + 1.0, ("math", "wait")[i % 2]) for i in range(2000)]
    (after,) = joined_rows([row(*bars)], CLOCKS)
    assert len(after.bars) <= 1000
    assert after.clocks_by_kind == {"math": 1000, "wait": 1000}
    assert after.bars[0].text == "short spans: math, wait"


def test_bars_that_overlap_are_dealt_to_lanes():
    bars = row((0, 10, "transfer"), (2, 8, "transfer"), (4, 12, "transfer"), (9, 20, "transfer"), (10, 11, "transfer"))
    assert [[each.start for each in lane] for lane in lanes(bars.bars)] == [[0, 10], [2, 9], [4]]
    assert bars.covered == 20
    assert bars.clocks_by_kind == {"transfer": 10 + 6 + 8 + 11 + 1}
    (after,) = joined_rows([bars], CLOCKS)
    assert after.clocks_by_kind == bars.clocks_by_kind


def test_a_bar_ends_after_it_starts():
    with pytest.raises(ValueError, match="from 3 to 3 clocks: it ends after it starts"):
        TimelineBar(3, 3, "math")
    with pytest.raises(ValueError, match="at 0 or later"):
        TimelineBar(-1, 3, "math")


def test_rows_differ_where_their_kinds_do():
    one = row((0, 50, "math"), (50, 100, "wait"))
    assert difference(one, one) == 0
    assert difference(one, row((0, 60, "math"), (60, 100, "wait"))) == pytest.approx(0.1)
    assert difference(one, row((0, 50, "math"))) == pytest.approx(0.5)
    assert difference(row((0, 50, "math")), one) == pytest.approx(0.5)
    assert difference(row(), row()) == 0
    overlapping = row((0, 50, "transfer"), (10, 60, "transfer"))
    assert difference(overlapping, overlapping) == 0
    assert difference(overlapping, one) == 1


def test_rows_that_do_nearly_the_same_are_one_with_what_they_differ_by():
    rows = [
        row((0, 50, "math"), label="warp 0"), row((0, 52, "math"), label="warp 1"),
        row((0, 54, "math"), label="warp 2"),
        row((0, 90, "math"), label="warp 3"), row((0, 90, "math"), label="warp 4"),
    ]  # fmt: skip
    names = {each.label: "consumer" for each in rows}
    found = folded_rows(rows, names, 0.1)
    assert [(each.label, each.rows, round(each.differs, 6)) for each in found] == [
        ("warps 0–2", 3, round(4 / 54, 6)), ("warps 3–4", 2, 0.0),
    ]  # fmt: skip
    assert [each.bars[0].end for each in found] == [50, 90]
    assert [each.rows for each in folded_rows(rows, names, 0.0)] == [1, 1, 1, 2]
    assert [each.rows for each in folded_rows(rows, {**names, "warp 1": "producer"}, 1.0)] == [1, 1, 3]
    assert [each.rows for each in folded_rows(rows, {}, 1.0)] == [1] * 5
