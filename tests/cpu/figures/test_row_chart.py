"""Charts of rows: every value is where the axis says, and the axis has round figures."""

import math
import re
from itertools import pairwise

import pytest

from page_tree import tree
from warptile.figures.assets import stylesheet
from warptile.figures.figure import DataTable
from warptile.figures.row_chart import COLORS, ChartRow, Point, RowChart, Series

TABLE = DataTable(("row",), ())


def chart(values, *, shape="bar", **options):
    rows = tuple(ChartRow(f"r{i}", ((Point(value),),), str(value)) for i, value in enumerate(values))
    return RowChart("c", "Chart", "units", (Series("value", shape),), rows, TABLE, **options)


def drawn(made):
    return tree(str(made.figure().html()))


def style(element, name):
    return float(re.search(rf"{name}:([\d.]+)%", element.attributes["style"])[1]) / 100


def ticks(found):
    return {float(each.text): style(each, "left") for each in found.one(class_="wt-ticks").all("i")}


def test_bars_are_as_long_as_the_axis_says():
    found = drawn(chart([100.0, 250.0, 675.5]))
    scale = ticks(found)
    assert sorted(scale) == [0, 100, 200, 300, 400, 500, 600]
    for bar, value in zip(found.all(class_="wt-bar"), (100.0, 250.0, 675.5), strict=True):
        assert style(bar, "width") == pytest.approx(scale[600] * value / 600, abs=2e-4)
    assert style(found.all(class_="wt-bar")[-1], "width") <= 1


@pytest.mark.parametrize("highest", [0.3, 1, 1.9, 5, 7, 12, 34, 99, 100, 101, 940.4, 123456])
def test_a_linear_axis_has_a_handful_of_round_ticks_from_zero(highest):
    found = ticks(drawn(chart([highest])))
    assert 3 <= len(found) <= 8
    assert min(found) == 0
    step = sorted(found)[1]
    assert round(step / 10 ** math.floor(math.log10(step) + 1e-9), 6) in (1, 2, 5)
    assert max(found) <= highest * 1.0001
    for tick, place in found.items():
        assert place == pytest.approx(tick * found[step] / step, abs=2e-3)


@pytest.mark.parametrize("values", [(0.8, 1.3), (0.25, 12.5), (0.95, 1.05), (1.0, 1.0), (0.001, 900.0)])
def test_a_logarithmic_axis_has_labels_that_do_not_overlap(values):
    found = ticks(drawn(chart(list(values), shape="dot", logarithmic=True, reference=(1.0, "equal"))))
    assert 1.0 in found
    places = sorted(found.values())
    assert all(right - left >= 0.13 for left, right in pairwise(places))


def test_an_interval_and_its_middle_are_placed_on_a_logarithmic_axis():
    row = ChartRow("r", ((Point(1.0, 0.5, 2.0),),), "1.0")
    found = drawn(RowChart("c", "t", "u", (Series("m", "dot"),), (row,), TABLE, logarithmic=True))
    interval, dot = found.one(class_="wt-interval"), found.one("i", "wt-dot")
    start, width = style(interval, "left"), style(interval, "width")
    assert style(dot, "left") == pytest.approx(start + width / 2, abs=2e-4)


def test_a_row_says_its_figures_and_where_its_name_leads():
    row = ChartRow("a <b>", ((Point(1),), ()), "1.0", "#there", 2, "1 measured, nothing predicted")
    series = (Series("measured", "bar"), Series("predicted", "diamond"))
    found = drawn(RowChart("c", "t", "u", series, (row,), TABLE, ("x", "y", "z")))
    item = found.one("ul", "wt-chart").one("li")
    assert item.classes == ["wt-color-2"]
    assert item.one("a").attributes["href"] == "#there"
    assert item.one("a").text == "a <b>"
    assert item.one(class_="wt-hidden").text.strip() == row.words
    assert item.all(class_="wt-diamond") == []
    assert [each.text for each in found.one("ul", "wt-legend").all("li")] == ["x", "y", "z"], (
        "one series is drawn: it needs no key"
    )


def test_a_chart_is_refused_that_the_stylesheet_cannot_color_or_that_lacks_points():
    with pytest.raises(ValueError, match="7 groups: there are 6 colors"):
        chart([1], groups=tuple("abcdefg"))
    with pytest.raises(ValueError, match="points of 2 series, the chart has 1"):
        RowChart("c", "t", "u", (Series("m", "dot"),), (ChartRow("r", ((), ()), ""),), TABLE)
    assert all(f".wt-color-{color} " in stylesheet() for color in range(COLORS))


def test_a_chart_of_nothing_is_still_a_chart():
    found = drawn(chart([]))
    assert found.one("ul", "wt-chart").all("li") == []
