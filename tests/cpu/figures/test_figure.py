"""Tables and figures as markup: everything that is data is escaped, and every figure has its table."""

import pytest
from markupsafe import Markup

from page_tree import tree
from warptile.figures.assets import script, standalone_page, stylesheet
from warptile.figures.figure import MOST_LEFT, DataTable, Figure, aligned, percentage

BAD = '<script>alert("x")</script>&'


def test_a_table_has_its_cells_and_escapes_text():
    table = DataTable(("name", BAD), ((BAD, "1"), (Markup("<b>bold</b>"), "2")))
    found = tree(str(table.html(BAD)))
    assert found.one("table").rows() == [["name", BAD], [BAD, "1"], ["bold", "2"]]
    assert found.all("script") == []
    assert len(found.all("b")) == 1
    assert found.one(class_="wt-scroll").attributes["aria-label"] == BAD
    assert found.one("table").classes == ["wt-table", "wt-left-1"]


def test_a_row_with_too_few_cells_is_refused():
    with pytest.raises(ValueError, match="a row of 1 cells below 2 headings"):
        DataTable(("a", "b"), (("1",),))


def test_alignment_is_a_class_that_the_stylesheet_has():
    assert aligned(3, 3) == ""
    for left in range(1, MOST_LEFT + 1):
        assert aligned(left, 99) == f" wt-left-{left}"
        assert f".wt-left-{left} > tbody > tr > :nth-child(n+{left + 1})" in stylesheet()
    with pytest.raises(ValueError, match="11 columns"):
        aligned(11, 12)


def test_a_figure_is_a_picture_with_its_table_below():
    figure = Figure("f-1", BAD, Markup("<p>picture</p>"), DataTable(("a",), (("1",),)), notes=(BAD,))
    found = tree(str(figure.html())).one("figure")
    assert found.attributes["id"] == "f-1"
    assert found.one("figcaption").text == BAD
    assert found.one("p", "wt-note").text == BAD
    assert found.one("details").attributes == {"class": "wt-data"}
    assert found.one("table").rows() == [["a"], ["1"]]
    assert str(figure.html()) == str(Markup("{}").format(figure))


def test_shares_are_written_short():
    assert [percentage(share) for share in (0, 0.5, 1 / 3, 1)] == ["0%", "50%", "33.33%", "100%"]


def test_a_standalone_page_has_all_that_it_needs():
    page = standalone_page("Title <1>", [Figure("f", "t", Markup("<p>x</p>"), DataTable(("a",), ()))], "Lead & more")
    found = tree(page)
    assert found.one("html").attributes["lang"] == "en"
    assert found.one("title").text == found.one("h1").text == "Title <1>"
    assert stylesheet() in page
    assert script() in page
    policy = found.one("meta", **{"http-equiv": "Content-Security-Policy"})
    assert "default-src 'none'" in policy.attributes["content"]
    assert "http" not in page.replace("http-equiv", "")
