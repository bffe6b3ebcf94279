"""The chart in a terminal: within its width, in Unicode or ASCII, every point where it belongs."""

import pytest

from warptile import measured
from warptile.roofline.chart_data import Ceiling, Guide, Mark, Picture, Roof
from warptile.roofline.pictures import gpus_picture, rungs_picture
from warptile.roofline.published_gpus import LEVELS
from warptile.roofline.rung_points import points
from warptile.roofline.source_texts import guides
from warptile.roofline.text_chart import ASCII, KEYS, SEVERAL, UNICODE, keys, symbols_for, text_chart


def picture(*marks, **more):
    given = {"title": "t", "description": "d", "x_name": "FLOP per byte", "roofs": (Roof("r", 1.0, 100.0),)}
    return Picture(**{**given, **more}, marks=[Mark(str(at), *place, "k", "") for at, place in enumerate(marks)])


def plot(lines):
    """The part right of the vertical scale, without the scales."""
    return [line[8:] for line in lines[1:-3]]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("symbols", [UNICODE, ASCII])
@pytest.mark.parametrize("level", LEVELS)
def test_lines_fit_the_width(width, symbols, level):
    lines = text_chart(rungs_picture(points(measured.summary()), level), width, 20, symbols)
    assert max(map(len, lines)) <= width
    assert len(lines) == 24
    assert lines[0] == "TFLOP/s"
    if symbols is ASCII:
        assert all(line.isascii() for line in lines)


def test_a_narrow_terminal_gets_a_chart_all_the_same():
    assert len(text_chart(picture((10.0, 8.0)), 10, 5, ASCII)) == 9


@pytest.mark.parametrize("level", LEVELS)
def test_every_key_is_there_once_or_its_place_says_several(level):
    shown = rungs_picture(points(measured.summary()), level)
    text = "".join(plot(text_chart(shown, 80, 20, ASCII)))
    found = [key for key in keys(shown.marks) if key in text]
    assert all(text.count(key) == 1 for key in found)
    assert len(found) >= 30
    assert (SEVERAL in text) == (len(found) < len(shown.marks))


def test_points_that_cover_each_other_stand_side_by_side_and_then_are_several():
    lines = plot(text_chart(picture(*[(10.0, 8.0)] * 5), 80, 20, ASCII))
    row = next(line for line in lines if "1" in line)
    assert "".join(sorted(row.strip(" /"))) == "12345"
    lines = plot(text_chart(picture(*[(10.0, 8.0)] * 6), 80, 20, ASCII))
    assert SEVERAL in "".join(lines)


def test_the_roof_rises_and_turns_flat():
    lines = plot(text_chart(picture((1.0, 0.5)), 80, 20, ASCII))
    flat = [row for row, line in enumerate(lines) if "-" in line]
    assert len(flat) == 1
    columns = [(line.index("/"), row) for row, line in enumerate(lines) if "/" in line]
    assert columns == sorted(columns, key=lambda place: -place[1])[::-1]
    assert all(row >= flat[0] for _, row in columns)


def test_ceilings_are_dashed_and_guides_stand():
    lines = plot(
        text_chart(picture((20.0, 8.0), ceilings=(Ceiling("c", 50.0),), guides=(Guide("g", 3.0),)), 80, 20, ASCII)
    )
    assert any(" . . " in line or ". . ." in line for line in lines)
    assert sum(":" in line for line in lines) >= 19


def test_the_gpus_as_text():
    lines = text_chart(gpus_picture(guides()), 80, 20, UNICODE)
    assert max(map(len, lines)) <= 80
    assert lines[-1].strip() == "FLOP per byte at DRAM"


def test_ascii_where_the_encoding_has_no_other():
    assert symbols_for("utf-8") is UNICODE
    assert symbols_for("ascii") is ASCII
    assert symbols_for("latin-1") is ASCII
    assert symbols_for(None) is ASCII
    assert symbols_for("no-such-encoding") is ASCII


def test_more_points_than_keys():
    assert keys([None] * (len(KEYS) + 1))[-1] == SEVERAL
