"""Pictures: well-formed, named for those who do not see them, and without names over names."""

import re
import xml.etree.ElementTree as ET
from itertools import combinations, pairwise

import pytest

from recorded import UNMEASURED
from warptile import measured
from warptile.roofline.chart_data import Bounds, Ceiling, Guide, Mark, Picture, Roof, ticks
from warptile.roofline.label_places import Box, Wanted, places, spread
from warptile.roofline.pictures import gpus_picture, rungs_picture
from warptile.roofline.published_gpus import DRAM, GPUS, L2, LEVELS, SHARED
from warptile.roofline.roofline_svg import LETTER, WIDTH, Scales, draw, label_boxes
from warptile.roofline.rung_points import points, sizes
from warptile.roofline.source_texts import guides
from warptile.rungs import RUNGS

SVG = "{http://www.w3.org/2000/svg}"


def small(marks=(), **more):
    given = {
        "title": "A & B", "description": "Two roofs.", "x_name": "FLOP per byte",
        "roofs": (Roof("top: 100", 1.0, 100.0, "DRAM: 1 TB/s"),), "marks": marks,
    }  # fmt: skip
    return Picture(**{**given, **more})


def mark(name="one", intensity=10.0, tflops=8.0, kind="kind", **more):
    return Mark(name, intensity, tflops, kind, f"{name}: detail", **more)


def texts(svg):
    return ["".join(each.itertext()) for each in ET.fromstring(svg).iter(f"{SVG}text")]


def drawn():
    """Every picture of the page, the same at other sizes, and of some GPUs without records."""
    summary = measured.summary()
    of_sizes = [rungs_picture(points(summary, size=size), level) for size in sizes(summary) for level in LEVELS]
    others = [rungs_picture(points(summary, GPUS[name]), SHARED, GPUS[name]) for name in ("A100", "L40S", "T4")]
    return [*of_sizes, *others, gpus_picture(guides())]


PICTURES = pytest.mark.parametrize("picture", drawn(), ids=lambda picture: picture.title)


@PICTURES
def test_a_picture_is_well_formed_and_says_what_it_is(picture):
    svg = draw(picture, "name")
    root = ET.fromstring(svg)
    assert root.find(f"{SVG}title").text == picture.title
    assert root.find(f"{SVG}desc").text == picture.description
    assert root.get("aria-labelledby") == "name-title name-desc"
    assert root.get("role") == "img"
    identifiers = re.findall(r' id="([^"]+)"', svg)
    assert len(identifiers) == len(set(identifiers))
    assert "nan" not in svg
    assert "prefers-color-scheme: dark" in svg
    assert {picture.title, picture.x_name, "TFLOP/s", *(each.name for each in picture.marks)} <= set(texts(svg))


@PICTURES
def test_numbers_cover_neither_each_other_nor_points_nor_edges(picture):
    boxes, scales = label_boxes(picture), Scales(picture)
    assert len(boxes) == len(picture.marks)
    for one, other in combinations(boxes, 2):
        assert not one.overlaps(other)
    for box in boxes:
        assert box.within(scales.area)
        for each in picture.marks:
            x, y = scales.x(each.intensity), scales.y(each.tflops)
            assert not box.overlaps(Box(x - 4, y - 4, x + 4, y + 4))


@PICTURES
def test_names_beside_the_roofs_are_apart_and_fit(picture):
    root = ET.fromstring(draw(picture))
    named = {each.name for each in (*picture.roofs, *picture.ceilings)}
    found = sorted(
        (float(each.get("y")), float(each.get("x")), each.text)
        for each in root.iter(f"{SVG}text")
        if each.text in named
    )
    assert len(found) == len(picture.roofs) + len(picture.ceilings)
    for (above, _, _), (below, _, _) in pairwise(found):
        assert below - above >= 12
    assert all(x + len(name) * LETTER * 0.85 <= WIDTH for _, x, name in found), "at the width that letters have"


def test_rungs_are_all_in_the_pictures_of_the_page():
    for level in LEVELS:
        marks = rungs_picture(points(measured.summary()), level).marks
        assert [each.name for each in marks] == [name for name in RUNGS if name not in UNMEASURED]


def test_predicted_points_are_hollow():
    svg = draw(small([mark("counted"), mark("predicted", 20.0, hollow=True)]))
    shapes = list(ET.fromstring(svg).iter(f"{SVG}circle"))
    assert sum(each.get("class") == "page" for each in shapes) == 1
    assert "hollow: bytes predicted" in texts(svg)
    assert "hollow: bytes predicted" not in texts(draw(small([mark()])))


def test_kinds_differ_in_shape_and_in_color():
    svg = draw(small([mark(str(kind), 10.0 + kind, kind=f"kind {kind}") for kind in range(4)]))
    colors = set(re.findall(r'class="dot" fill="(#[0-9a-f]{6})"', svg))
    assert len(colors) == 4
    assert len(re.findall(r"<circle", svg)) == 2  # the point and its line in the list
    corners = {path.count("L") for path in re.findall(r'class="dot"[^>]* d="([^"]+)"', svg)}
    assert corners == {2, 3}


def test_markup_in_names_is_escaped():
    svg = draw(small([mark("<b>")], guides=[Guide("a < b", 5.0)], ceilings=[Ceiling("c & d", 50.0)]))
    assert {"A & B", "<b>", "a < b", "c & d"} <= set(texts(svg))


def test_a_points_place_is_on_its_roof_when_its_speed_is():
    picture = small([mark(intensity=10.0, tflops=10.0), mark("flat", 400.0, 100.0)])
    scales = Scales(picture)
    roof = re.search(r'class="roof" d="M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)H', draw(picture))
    x1, y1, x2, y2 = map(float, roof.groups())
    along = (scales.x(10.0) - x1) / (x2 - x1)
    assert scales.y(10.0) == pytest.approx(y1 + along * (y2 - y1), abs=0.2)
    assert scales.y(100.0) == pytest.approx(y2, abs=0.1)


def test_scales_hold_everything_and_are_a_decade_at_least():
    bounds = Bounds.of(small([mark(intensity=90.0, tflops=80.0)]))
    assert bounds.high_x / bounds.low_x >= 9.999
    assert bounds.high_y / bounds.low_y >= 9.999
    assert (bounds.across(bounds.low_x), bounds.up(bounds.high_y)) == (0.0, pytest.approx(1.0))
    assert bounds.low_x < 90.0 < 100.0 < bounds.high_x


def test_ticks_are_round_and_few():
    assert ticks(1, 10) == [1, 2, 5, 10]
    assert ticks(0.15, 90, 9) == [0.2, 0.5, 1, 2, 5, 10, 20, 50]
    assert ticks(0.01, 100, 5) == [0.01, 0.1, 1, 10, 100]


def test_labels_keep_out_of_areas_that_are_taken():
    area = Box(0, 0, 200, 200)
    wanted = [Wanted(100, 100, 20, 12) for _ in range(12)]
    taken = [Box(106, 0, 200, 200)]
    found = places(wanted, area, taken)
    assert all(not box.overlaps(taken[0]) and box.within(area) for box in found)
    assert all(not one.overlaps(other) for one, other in combinations(found, 2))


def test_names_on_one_line_move_apart_evenly():
    assert spread([10.0, 10.0], 14.0) == pytest.approx([3.0, 17.0])
    assert spread([50.0, 0.0], 14.0) == [50.0, 0.0]


def test_levels_have_the_roofs_of_their_bandwidths():
    found = points(measured.summary())
    for level, terabytes in ((SHARED, 33.454), (L2, 9.78), (DRAM, 4.8)):
        (roof,) = rungs_picture(found, level).roofs
        assert roof.terabytes_per_s == pytest.approx(terabytes, abs=0.001)
        assert roof.peak_tflops == 1979.0
    (roof,) = rungs_picture(points(measured.summary(), GPUS["A100"]), DRAM, GPUS["A100"]).roofs
    assert (roof.name, roof.peak_tflops) == ("FP16 2:4: 624", 624.0)
