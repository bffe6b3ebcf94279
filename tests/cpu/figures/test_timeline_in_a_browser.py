"""A timeline in a real browser: pointing, arrow keys, zoom, a narrow screen, light and dark, paper."""

from itertools import pairwise

import pytest
from axe_playwright_python.sync_playwright import Axe

from browser import NARROW, WIDE, opened, too_wide
from covering import covering
from warptile.figures.assets import standalone_page
from warptile.figures.timeline_bars import TimelineBar, TimelineRow
from warptile.figures.timeline_chart import timeline_chart

CLOCKS = 10_000.0


def row(label, group, *bars):
    return TimelineRow(label, group, tuple(TimelineBar(*bar) for bar in bars))


ROWS = (
    row("warp 0, producer", "CTA 0", (0, 1000, "integer", "addresses and control", "p.cuh:1"),
        (1000, 6000, "wait", "waits for empty 0, phase 0", "p.cuh:9")),
    row("warps 4–7, consumer", "CTA 0", (0, 2000, "barrier", "waits for barrier 0"),
        (2000, 5000, "wgmma", "issues wgmma", "c.cuh:5"), (5000, 10_000, "wgmma wait", "waits for wgmma", "c.cuh:7")),
    row("warp 8", "CTA 0"),
    row("TMA loads", "units of the SM", (500, 3000, "transfer", "first"), (1000, 4000, "transfer", "second")),
    row("full 0", "mbarriers of CTA 0", (0, 3000, "phase", "phase 0", "", "0"),
        (3000, 7000, "phase", "phase 1", "", "1")),
    row("full 1", "mbarriers of CTA 0", *(
        (400 * i, 400 * i + 400, "phase", f"phase {i}", "", str(i)) for i in range(20)
    )),
)  # fmt: skip


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    path = tmp_path_factory.mktemp("timeline") / "timeline.html"
    path.write_text(standalone_page("Timeline", [timeline_chart("t", "Launch", ROWS, CLOCKS)]))
    return path.as_uri()


def readout(page):
    return page.locator(".wt-readout").text_content()


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)
    return readout(page)


def point(page, track, share, lane=0.5):
    box = page.locator(".wt-track").nth(track).bounding_box()
    page.mouse.move(box["x"] + share * box["width"], box["y"] + lane * box["height"])
    return readout(page)


def test_the_bar_under_the_pointer_is_named(chromium, url):
    with opened(chromium, url) as (page, _):
        hint = readout(page)
        assert "arrow keys" in hint
        assert (
            point(page, 0, 0.3)
            == "warp 0, producer: waits for empty 0, phase 0, clocks 1,000 to 6,000 (5,000), p.cuh:9"
        )
        assert point(page, 1, 0.1) == "warps 4–7, consumer: waits for barrier 0, clocks 0 to 2,000 (2,000)"
        assert point(page, 0, 0.8) == hint, "nothing is there"
        assert point(page, 3, 0.2, 0.25).startswith("TMA loads: first")
        assert point(page, 3, 0.2, 0.75).startswith("TMA loads: second")


def test_the_chart_is_one_stop_of_the_keyboard_and_arrows_go_from_bar_to_bar(chromium, url):
    with opened(chromium, url) as (page, _):
        stops = []
        for _ in range(10):
            page.keyboard.press("Tab")
            stops.append(page.evaluate("document.activeElement.className || document.activeElement.textContent.trim()"))
            if stops[-1] == "Share of the time by kind":
                break
        assert stops == ["whole", "2×", "4×", "8×", "16×", "wt-window", "Share of the time by kind"]
        page.keyboard.press("Shift+Tab")
        assert readout(page).startswith("warp 0, producer: addresses and control, clocks 0 to 1,000")
        assert press(page, "ArrowRight").startswith("warp 0, producer: waits for empty 0")
        assert press(page, "ArrowRight").startswith("warp 0, producer: waits for empty 0"), "it is the last one"
        assert press(page, "ArrowDown").startswith("warps 4–7, consumer: waits for barrier 0"), "at the same time"
        assert press(page, "End").startswith("warps 4–7, consumer: waits for wgmma")
        assert press(page, "ArrowDown").startswith("TMA loads: second"), "a row without bars is passed over"
        assert press(page, "ArrowUp", "Home").startswith("warps 4–7, consumer: waits for barrier 0")
        assert "arrow keys" in press(page, "Escape")
        assert page.locator(".wt-now").count() == 0


def test_zoom_widens_the_bars_in_a_box_that_scrolls_and_keeps_what_was_chosen_in_sight(chromium, url):
    with opened(chromium, url) as (page, _):
        window = page.locator(".wt-window")
        wide = window.bounding_box()["width"]
        ticks = page.locator(".wt-clocks i").count()
        window.focus()
        press(page, "ArrowDown", "End")
        page.get_by_role("button", name="8×").click()
        assert page.locator(".wt-plots").bounding_box()["width"] == pytest.approx(8 * wide, abs=1)
        assert page.locator("[aria-pressed=true]").all_text_contents() == ["8×"]
        assert page.locator(".wt-clocks i").count() > 4 * ticks
        assert too_wide(page) == []
        left, right = page.evaluate(
            "() => { const w = document.querySelector('.wt-window').getBoundingClientRect(),"
            " m = document.querySelector('.wt-track > i').getBoundingClientRect();"
            " return [m.left - w.left, m.left - w.right]; }"
        )
        assert left >= 0 >= right
        page.get_by_role("button", name="whole").click()
        assert page.evaluate("document.querySelector('.wt-window').scrollLeft") == 0
        assert page.locator(".wt-clocks i").count() == ticks


def test_labels_of_the_axis_do_not_overlap(chromium, url):
    for width in (WIDE, NARROW):
        with opened(chromium, url, width=width) as (page, _):
            for zoom in ("whole", "2×", "16×"):
                page.get_by_role("button", name=zoom).click()
                boxes = page.evaluate(
                    "[...document.querySelectorAll('.wt-clocks span')].map((each) => each.getBoundingClientRect())"
                    ".map((box) => [box.left, box.right])"
                )
                assert len(boxes) > 1
                assert all(one[1] < other[0] for one, other in pairwise(boxes))


def test_no_digit_of_a_label_is_cut(chromium, url):
    shown = {}
    for width in (WIDE, NARROW):
        with opened(chromium, url, width=width) as (page, _):
            found = page.evaluate(
                """() => [...document.querySelectorAll(".wt-track > b")].map((label) => {
                  const range = document.createRange();
                  range.selectNodeContents(label);
                  const [text, box] = [range.getBoundingClientRect(), label.getBoundingClientRect()];
                  return [label.textContent, text.left >= box.left && text.right <= box.right, text.top >= box.bottom];
                })"""
            )
            assert all(fits != is_below for _, fits, is_below in found), found
            shown[width] = [text for text, fits, _ in found if fits]
    assert shown[WIDE] == ["0", "1", *map(str, range(20))]
    assert shown[NARROW][:2] == ["0", "1"]
    assert "10" not in shown[NARROW]


@pytest.mark.parametrize(("width", "scheme"), covering((NARROW, WIDE), ("light", "dark"), pairs=()))
def test_it_fits_and_is_accessible(chromium, url, width, scheme):
    with opened(chromium, url, width=width, color_scheme=scheme) as (page, _):
        assert too_wide(page) == []
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert too_wide(page) == []
        names = page.locator(".wt-tracks > span")
        tracks = page.locator(".wt-track")
        for place in range(len(ROWS)):
            name, track = names.nth(place).bounding_box(), tracks.nth(place).bounding_box()
            assert (name["y"], name["height"]) == (track["y"], track["height"])
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()


def test_on_paper_all_bars_are_there_and_no_buttons(chromium, url):
    with opened(chromium, url) as (page, _):
        page.get_by_role("button", name="16×").click()
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")
        window = page.locator(".wt-window").bounding_box()["width"]
        assert page.locator(".wt-plots").bounding_box()["width"] == pytest.approx(window, abs=1)
        assert not page.get_by_role("button", name="2×").is_visible()
        assert page.pdf(width="210mm", height="297mm").startswith(b"%PDF")


def test_without_scripts_the_picture_is_whole(chromium, url):
    with opened(chromium, url, java_script_enabled=False) as (page, _):
        assert page.locator(".wt-track svg").count() == len(ROWS)
        assert not page.get_by_role("button", name="2×").is_visible()
        assert page.locator(".wt-clocks i").first.is_visible()
