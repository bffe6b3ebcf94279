"""Figures look as they did: screenshots without text are compared with those in tests/data/figures.

Text is left out because fonts differ between machines, and the stylesheet gives everything that is drawn its size
whatever the font is. A difference counts where a block of 8 x 8 pixels differs on average by more than `TOLERANCE` of
256 levels: antialiasing moves single pixels, a missing bar, cell or mark moves whole blocks. To make them anew after a
change that is meant: ``WARPTILE_SCREENSHOTS=write python -m pytest tests/cpu/figures``, and look at them.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from browser import NARROW, inaccessible, keep, opened, picture, pixels, too_wide
from covering import ALL, covering, few
from warptile.figures.assets import standalone_page
from warptile.figures.bank_map import SharedTile, bank_map
from warptile.figures.figure import DataTable
from warptile.figures.fragment_map import fragment_map
from warptile.figures.row_chart import ChartRow, Point, RowChart, Series
from warptile.isa.operand_drawings import drawings_of

FOLDER = Path(__file__).parents[2] / "data" / "figures"
BLOCK, TOLERANCE, MOST_BLOCKS = 8, 24, 3
"""Pixels of a block's side, levels that it may differ by, and blocks that may differ by more."""

WIDTH = 900


def bars():
    rows = tuple(
        ChartRow(f"rung {i}", ((Point(value),), (Point(value * 1.2),), (Point(640.0),)), f"{value:.1f}", None, i % 4)
        for i, value in enumerate((6.1, 50.0, 204.8, 379.9, 420.8, 591.1, 675.5, 940.4))
    )  # fmt: skip
    series = (Series("measured", "bar"), Series("predicted", "diamond"), Series("cuBLASLt", "line"))
    table = DataTable(("rung", "TFLOP/s"), tuple((row.label, row.shown) for row in rows))
    return RowChart("bars", "Bars", "TFLOP/s", series, rows, table, ("simt", "wmma", "mma", "wgmma")).figure()


def intervals():
    shares = ((0.8, 0.7, 0.9), (1.0, 0.95, 1.04), (1.1, 1.05, 1.3), (2.4, 2.3, 2.6))
    rows = tuple(
        ChartRow(
            f"row {i}", ((Point(*share),), tuple(Point(share[0] * x) for x in (0.9, 0.95, 1.0, 1.05))), "", None, i % 3
        )
        for i, share in enumerate(shares)
    )
    series = (Series("median", "dot"), Series("each", "tick"))
    table = DataTable(("row",), tuple((row.label,) for row in rows))
    return RowChart(
        "intervals", "Intervals", "speedup", series, rows, table, logarithmic=True, reference=(1.0, "equal")
    ).figure()


def banks():
    tiles = (
        SharedTile("plain", 8, 128, 128), SharedTile("padded", 8, 128, 144), SharedTile("swizzled", 8, 128, 128, 128),
    )  # fmt: skip
    return bank_map("banks", "Banks", tiles)


def fragment():
    return fragment_map("fragment", drawings_of("mma.m16n8k16.f32.f16")["a"])


FIGURES = {"bars": bars, "intervals": intervals, "banks": banks, "fragment": fragment}
PARTS = {
    "bars": (".wt-chart", 640), "intervals": (".wt-chart", 640), "banks": (".wt-maps", 880),
    "fragment": (".wt-matrix", 400),
}  # fmt: skip
"""What of each figure is compared, and its width: the picture without caption, legend and notes."""


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    path = tmp_path_factory.mktemp("figures") / "figures.html"
    path.write_text(standalone_page("Figures", [make() for make in FIGURES.values()], "All kinds of figures."))
    return path.as_uri()


def different_blocks(one, other):
    """Blocks that differ by more than the tolerance; all of them where the sizes are not the same."""
    if one.shape != other.shape:
        return one.size // BLOCK**2
    height, width = (extent // BLOCK * BLOCK for extent in one.shape[:2])
    difference = (one[:height, :width].astype(int) - other[:height, :width]).reshape(
        height // BLOCK, BLOCK, width // BLOCK, BLOCK, 3
    )
    return int((np.abs(difference.mean(axis=(1, 3))).max(axis=-1) > TOLERANCE).sum())


@pytest.mark.parametrize(("name", "scheme"), covering(tuple(FIGURES), ("light", "dark"), pairs=()))
def test_a_figure_looks_as_it_did(chromium, url, name, scheme):
    path = FOLDER / f"{name}-{scheme}.png"
    with opened(chromium, url, width=WIDTH, color_scheme=scheme) as (page, _):
        shown = picture(page, f"#{name} {PARTS[name][0]}", PARTS[name][1])
    if os.environ.get("WARPTILE_SCREENSHOTS") == "write":
        keep(shown, path)
    known = pixels(path)
    assert shown.shape == known.shape
    assert different_blocks(shown, known) <= MOST_BLOCKS


@pytest.mark.parametrize("name", few(tuple(FIGURES), 2))
def test_a_picture_does_not_depend_on_the_fonts(chromium, url, name):
    with opened(chromium, url, width=WIDTH, color_scheme="light") as (page, _):
        page.add_style_tag(content=":root { --wt-sans: serif !important; --wt-mono: cursive !important; }")
        shown = picture(page, f"#{name} {PARTS[name][0]}", PARTS[name][1])
    known = pixels(FOLDER / f"{name}-light.png")
    assert different_blocks(shown, known) <= MOST_BLOCKS


@pytest.mark.parametrize("name", few(tuple(FIGURES)[::-1], 2))
def test_a_picture_without_one_of_its_parts_is_another(chromium, url, name):
    missing = {"bars": ".wt-plot .wt-bar", "intervals": ".wt-interval", "banks": "td.wt-on", "fragment": "td.wt-q3"}[
        name
    ]
    with opened(chromium, url, width=WIDTH, color_scheme="light") as (page, _):
        page.evaluate(f"document.querySelectorAll('#{name} {missing}')[2].style.visibility = 'hidden'")
        shown = picture(page, f"#{name} {PARTS[name][0]}", PARTS[name][1])
    known = pixels(FOLDER / f"{name}-light.png")
    assert different_blocks(shown, known) > MOST_BLOCKS


@pytest.mark.parametrize("scheme", few(["light", "dark"], 1))
def test_a_page_of_figures_is_accessible_and_fits_a_narrow_screen(chromium, url, scheme):
    with opened(chromium, url, width=NARROW, color_scheme=scheme) as (page, _):
        assert too_wide(page) == []
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert too_wide(page) == []
        if not ALL:  # rows of a table are alike
            page.evaluate("document.querySelectorAll('tbody tr:nth-child(n+5)').forEach((each) => each.remove())")
        assert inaccessible(page) == ""


def test_a_box_is_a_stop_of_the_keyboard_only_where_it_scrolls(chromium, url):
    with opened(chromium, url, width=WIDTH) as (page, _):
        page.wait_for_function("() => !document.querySelector('#fragment .wt-scroll').hasAttribute('tabindex')")
        page.set_viewport_size({"width": 250, "height": 600})
        page.wait_for_function("() => document.querySelector('#fragment .wt-scroll').tabIndex === 0")


def test_figures_need_no_script(chromium, url):
    with opened(chromium, url, java_script_enabled=False) as (page, _):
        assert page.locator("#banks td.wt-on").count() == 24
        assert page.locator("#fragment .wt-matrix").is_visible()
        assert page.locator("#bars .wt-bar").first.is_visible()
