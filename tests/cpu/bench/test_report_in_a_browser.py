"""The HTML report in Chromium: every view, every interaction, both color schemes, a narrow screen, paper, no script."""

import re

import pytest

from browser import NARROW, WIDE, inaccessible, opened, too_wide
from covering import ALL, few
from recorded import all_records, calls_record
from warptile.bench.html_report import instruction_section, page_data
from warptile.bench.html_report import page as html_page
from warptile.bench.html_report.page_data import PageData
from warptile.bench.profiling.line_profile import LineProfile, ProfiledProblem
from warptile.bench.profiling.source_lines import LineCounts
from warptile.isa.catalogue import by_name
from warptile.rungs import RUNGS

LINES = LineProfile(
    backend="emulator", rung="mma-swizzled", config={"BM": 128}, problem=ProfiledProblem(128, 128, 128, "float16"),
    counters={}, lines=(
        LineCounts(file="mma/swizzled.cuh", line=26, text="for (...) {", warp_instructions=576, global_sectors=0,
                   shared_wavefronts=0, shared_wavefronts_ideal=0),
    ),
)  # fmt: skip

KINDS = "[...new Set([...document.querySelectorAll('.view')].map((each) => each.id.replace(/^rung-.*/, 'rung')))]"
"""The kinds of views that a page has."""

FEW_RUNGS = few(("mma-swizzled", "mma-vectorized", "simt-naive"), 1)
FEW_INSTRUCTIONS = ("mma.sp.m16n8k32.f32.f16",)
FEW_FILES = ("tile/mma_stage.cuh", "ptx/ldmatrix.cuh")
"""axe reads every element: it gets a page with every kind of view and little in each."""

USED_RUNGS = ("mma-swizzled", "mma-double-buffer", "wgmma-final")
USED_INSTRUCTIONS = ("mma.m16n8k16.f32.f16",)
USED_FILES = ("tile/mma_stage.cuh", "tile/swizzle.cuh")


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    data = page_data.from_records()
    path = tmp_path_factory.mktemp("report") / "report.html"
    counted = PageData("records", data.records, profiles={LINES.rung: LINES}, documents=data.documents)
    path.write_text(html_page.html(counted))
    return path.as_uri()


@pytest.fixture(scope="module")
def short_url(tmp_path_factory):
    return written(tmp_path_factory, FEW_RUNGS, FEW_INSTRUCTIONS, FEW_FILES)


@pytest.fixture(scope="module")
def used_url(request, tmp_path_factory):
    """The page on which things are clicked: in an ordinary run one that has those and little else, and loads soon."""
    if ALL:
        return request.getfixturevalue("url")
    return written(tmp_path_factory, USED_RUNGS, USED_INSTRUCTIONS, USED_FILES)


def written(tmp_path_factory, rungs, instructions, files):
    """A page with some rungs, instructions and files alone."""
    documents = page_data.from_records().documents
    short = PageData("records", (*all_records(), calls_record()), profiles={LINES.rung: LINES}, documents=documents)
    short.__dict__["rungs"] = rungs  # where its cached property keeps them
    path = tmp_path_factory.mktemp("report") / "short.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instruction_section, "SHOWN", instructions)
        patch.setattr(html_page, "shared_files", lambda rungs: files)
        path.write_text(html_page.html(short))
    return path.as_uri()


def current(page):
    """The views that are shown."""
    return page.evaluate(
        "[...document.querySelectorAll('.view')].filter((each) => each.checkVisibility()).map((v) => v.id)"
    )


def shows(page, name):
    """Wait until a view is the one that is shown."""
    page.wait_for_function(
        "(name) => [...document.querySelectorAll('.view')].every((v) => v.checkVisibility() === (v.id === name))",
        arg=name,
    )


def go(page, name):
    """Follow a link to a view."""
    page.evaluate("(name) => { location.hash = name; }", name)
    shows(page, name)


def focused(page):
    return page.evaluate("document.activeElement.id || document.activeElement.textContent.trim().slice(0, 40)")


# --- every view ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", few([NARROW, WIDE], 1))
def test_every_view_fits_the_window_and_says_no_error(chromium, url, width):
    with opened(chromium, url, width=width) as (page, _):
        names = page.evaluate("[...document.querySelectorAll('.view')].map((each) => each.id)")
        assert len(names) > len(RUNGS)
        for name in names:
            go(page, name)
            assert too_wide(page) == [], name


@pytest.mark.parametrize(("scheme", "width"), few([("light", NARROW), ("dark", WIDE), ("light", WIDE)], 1))
def test_the_page_is_accessible(chromium, short_url, url, scheme, width):
    """With everything shown and unfolded; with WARPTILE_TESTS=all in a wide window as well."""
    with opened(chromium, url) as (page, _):
        kinds = page.evaluate(KINDS)
    with opened(chromium, f"{short_url}#all", width=width, color_scheme=scheme) as (page, _):
        assert page.evaluate(KINDS) == kinds
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        if not ALL:  # rows of a table are alike
            page.evaluate("document.querySelectorAll('tbody tr:nth-child(n+4)').forEach((each) => each.remove())")
        assert inaccessible(page, *(["color-contrast"] if scheme == "dark" else [])) == "", "colors alone are others"


def test_one_view_is_accessible(chromium, short_url):
    with opened(chromium, short_url, width=NARROW) as (page, _):
        page.click("#menu")
        assert inaccessible(page) == ""
        page.emulate_media(color_scheme="dark")
        assert inaccessible(page, "color-contrast") == ""


# --- ways through the page -------------------------------------------------------------------------------------------


def test_a_link_of_the_contents_shows_one_view_and_the_back_button_returns(chromium, used_url):
    with opened(chromium, used_url) as (page, _):
        shows(page, "overview")
        page.click("#contents a[href='#rung-mma-swizzled']")
        shows(page, "rung-mma-swizzled")
        assert page.title().startswith("mma-swizzled: XOR swizzle")
        assert page.get_attribute("#contents a[aria-current]", "href") == "#rung-mma-swizzled"
        assert focused(page) == "rung-mma-swizzled-title"
        page.click(".current a[rel=next]")
        shows(page, "rung-mma-double-buffer")
        page.go_back()
        shows(page, "rung-mma-swizzled")
        page.go_back()
        shows(page, "overview")
        page.go_forward()
        shows(page, "rung-mma-swizzled")


def test_a_bar_of_the_ladder_leads_to_its_rung(chromium, used_url):
    with opened(chromium, used_url) as (page, _):
        page.click("#ladder a.wt-label >> text=wgmma-final")
        shows(page, "rung-wgmma-final")


def test_an_address_with_a_place_opens_its_view_and_what_hides_it(chromium, used_url):
    with opened(chromium, f"{used_url}#source-tile-swizzle") as (page, _):
        shows(page, "source")
        page.click("#contents a[href='#rung-mma-swizzled']")
        page.click(".current .code a >> text=tile/mma_stage.cuh")
        shows(page, "source")
        assert page.locator("#source-tile-mma-stage").get_attribute("open") is not None
        go(page, "rung-mma-swizzled")
        page.click(".current table a >> text=mma/swizzled.cuh:26")
        shows(page, "rung-mma-swizzled")
        assert focused(page) == "source-mma-swizzled-l26"
        assert page.locator("#source-mma-swizzled-l26").is_visible()


def test_everything_on_one_page(chromium, used_url):
    with opened(chromium, used_url) as (page, _):
        page.click("#contents a[href='#all']")
        assert len(current(page)) == page.locator(".view").count()
        page.click("#contents a[href='#banks']")
        shows(page, "banks")


def test_an_address_that_is_nowhere_shows_the_overview(chromium, used_url):
    with opened(chromium, f"{used_url}#nothing-like-it") as (page, _):
        shows(page, "overview")


def test_without_a_script_the_whole_page_is_there(chromium, url):
    with opened(chromium, url, java_script_enabled=False) as (page, _):
        views = page.locator(".view")
        assert views.count() > len(RUNGS)
        for name in ("overview", "rung-wgmma-sparse", "environment"):
            assert page.locator(f"#{name} h2").is_visible()
        assert not page.locator("#theme").is_visible()
        page.click("#contents a[href='#rung-wgmma-sparse']")
        assert page.url.endswith("#rung-wgmma-sparse")


# --- the keyboard ----------------------------------------------------------------------------------------------------


def test_the_keyboard_reaches_everything(chromium, used_url):
    with opened(chromium, used_url) as (page, _):
        page.keyboard.press("Tab")
        assert focused(page) == "Skip to the content"
        assert page.locator(".skip").bounding_box()["x"] >= 0
        page.keyboard.press("Enter")
        assert focused(page) == "main"
        shows(page, "overview")
        page.reload()
        for wanted in ("Skip to the content", "warptile", "theme", "Overview", "Suites"):
            page.keyboard.press("Tab")
            assert focused(page) == wanted
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.press("Enter")
        shows(page, "suites")
        assert focused(page) == "suites-title"
        page.keyboard.press("Tab")
        assert focused(page) == "Table"
        page.keyboard.press("Enter")
        assert page.locator("#suite-classes .wt-data").get_attribute("open") is not None


def test_the_contents_of_a_narrow_screen_open_and_close(chromium, used_url):
    with opened(chromium, used_url, width=NARROW) as (page, _):
        contents, menu = page.locator("#contents"), page.locator("#menu")
        assert not contents.is_visible()
        menu.focus()
        page.keyboard.press("Enter")
        assert contents.is_visible()
        assert menu.get_attribute("aria-expanded") == "true"
        page.keyboard.press("Escape")
        assert not contents.is_visible()
        assert focused(page) == "menu"
        menu.click()
        page.click("#contents a[href='#banks']")
        assert not contents.is_visible()
        shows(page, "banks")


# --- fragments and bank maps -----------------------------------------------------------------------------------------

FRAGMENT = "#isa-mma-m16n8k16-f32-f16-a"


def marked(page, where):
    return [" ".join(each.split()) for each in page.locator(f"{FRAGMENT} {where} td.wt-on").all_inner_texts()]


def test_an_element_marks_its_lane_and_register_and_back(chromium, used_url):
    layout = by_name()["mma.m16n8k16.f32.f16"].fragment("a")
    row, column = layout.place(13, 2, 0)
    with opened(chromium, f"{used_url}#instructions") as (page, _):
        matrix = page.locator(f"{FRAGMENT} .wt-matrix")
        matrix.locator("tbody tr").nth(row).locator("td").nth(column // 2).click()
        readout = page.locator(f"{FRAGMENT} .wt-readout")
        assert readout.inner_text() == f"Lane 13, register a2: m {row}, k {column}–{column + 1}"
        assert marked(page, ".wt-matrix") == ["T13 a2"]
        assert marked(page, ".wt-data") == [f"{row}, {column}–{column + 1}"]
        assert matrix.locator("td.wt-lane").count() == layout.registers
        row, column = layout.place(6, 3, 0)
        page.locator(f"{FRAGMENT} .wt-data tbody tr").nth(6).locator("td").nth(3).click()
        assert readout.inner_text() == f"Lane 6, register a3: m {row}, k {column}–{column + 1}"
        assert marked(page, ".wt-matrix") == ["T6 a3"]
        page.mouse.move(0, 0)
        page.keyboard.press("Escape")
        assert marked(page, ".wt-matrix") == marked(page, ".wt-data") == []
        assert readout.inner_text().startswith("Choose an element")


def test_the_pointer_marks_for_as_long_as_it_rests_and_a_click_keeps(chromium, used_url):
    with opened(chromium, f"{used_url}#instructions") as (page, _):
        cells = page.locator(f"{FRAGMENT} .wt-matrix tbody td")
        cells.nth(0).hover()
        assert marked(page, ".wt-matrix") == ["T0 a0"]
        cells.nth(1).hover()
        assert marked(page, ".wt-matrix") == ["T1 a0"]
        cells.nth(1).click()
        cells.nth(5).hover()
        assert marked(page, ".wt-matrix") == ["T1 a0"]
        cells.nth(1).click()
        page.locator("#instructions-title").hover()
        assert marked(page, ".wt-matrix") == []


def test_arrow_keys_move_through_a_fragment(chromium, used_url):
    with opened(chromium, f"{used_url}#instructions") as (page, _):
        matrix = page.locator(f"{FRAGMENT} .wt-matrix")
        assert matrix.get_attribute("role") == "grid"
        assert matrix.locator("td[tabindex='0']").count() == 1
        matrix.locator("td[tabindex='0']").focus()
        for key in ("ArrowRight", "ArrowDown", "ArrowDown"):
            page.keyboard.press(key)
        assert marked(page, ".wt-matrix") == ["T9 a0"]
        page.keyboard.press("End")
        page.keyboard.press("Enter")
        page.keyboard.press("ArrowUp")
        assert marked(page, ".wt-matrix") == ["T11 a2"], "what was kept with Enter stays"
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("Home")
        page.keyboard.press("ArrowLeft")
        assert focused(page) == "T4a0", "nothing is left of the first column"


def test_a_bank_map_steps_through_the_phases(chromium, used_url):
    with opened(chromium, f"{used_url}#banks") as (page, _):
        figure = page.locator("#banks-128")
        table = [row.split("\t") for row in page.evaluate(
            "[...document.querySelectorAll('#banks-128 .wt-data tbody tr')].map((row) =>"
            " [...row.cells].map((cell) => cell.textContent.trim()).join('\\t'))"
        )]  # fmt: skip
        following = figure.locator("button[data-step='1']")
        for phase, row in enumerate(table):
            assert figure.locator("output").inner_text() == row[0] == f"rows 0 to 7, chunk {phase}"
            said = [text.split()[0] for text in figure.locator(".wt-wavefronts").all_inner_texts()]
            assert said == row[1:4] == ["8", "1", "1"]
            for place in range(3):
                on = figure.locator(".wt-map").nth(place).locator("td.wt-on").all_inner_texts()
                assert sorted(on) == [f"{number}.{phase}" for number in range(8)]
                counts = figure.locator(".wt-map").nth(place).locator("tfoot td").all_inner_texts()
                assert [counts.count("8"), counts.count("1")] == ([1, 0] if place == 0 else [0, 8])
            following.click()
        assert figure.locator("output").inner_text() == "rows 0 to 7, chunk 0"
        figure.locator("button[data-step='-1']").click()
        assert figure.locator("output").inner_text() == "rows 0 to 7, chunk 7"
        following.focus()
        page.keyboard.press("ArrowRight")
        assert figure.locator("output").inner_text() == "rows 0 to 7, chunk 0"
        figure.locator(".wt-map").nth(2).locator("td", has_text="3.5").click()
        assert figure.locator("output").inner_text() == "rows 0 to 7, chunk 5"


# --- colors and paper ------------------------------------------------------------------------------------------------

PAPER = "getComputedStyle(document.documentElement).backgroundColor"
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(20, 23, 28)"


@pytest.mark.parametrize(("scheme", "first", "second"), [("light", LIGHT, DARK), ("dark", DARK, LIGHT)])
def test_colors_follow_the_system_until_they_are_chosen_and_the_choice_is_kept(
    chromium, used_url, scheme, first, second
):
    with opened(chromium, used_url, color_scheme=scheme) as (page, _):
        assert page.evaluate(PAPER) == first
        button = page.locator("#theme")
        assert button.inner_text() == ("Dark" if scheme == "light" else "Light")
        button.click()
        assert page.evaluate(PAPER) == second
        assert button.inner_text() == ("Light" if scheme == "light" else "Dark")
        page.reload()
        assert page.evaluate(PAPER) == second
        page.emulate_media(color_scheme="dark" if scheme == "light" else "light")
        assert page.evaluate(PAPER) == second


def test_paper_has_light_colors_and_the_tables_and_no_buttons(chromium, used_url):
    with opened(chromium, f"{used_url}#rung-mma-swizzled", color_scheme="dark") as (page, _):
        page.click("#theme")
        page.click("#theme")
        page.emulate_media(media="print")
        assert page.evaluate(PAPER) == LIGHT
        for hidden in ("#contents", ".top", ".steps", ".wt-steps button"):
            assert not page.locator(hidden).first.is_visible()
        shows(page, "rung-mma-swizzled")
        folds = ".current .wt-data"
        assert page.locator(f"{folds}[open]").count() < page.locator(folds).count()
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator(f"{folds}[open]").count() == page.locator(folds).count()
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator(f"{folds}[open]").count() < page.locator(folds).count()
        paper = page.pdf(format="A4")
        pages = len(re.findall(rb"/Type\s*/Page\b", paper))
        assert 3 <= pages <= 12
