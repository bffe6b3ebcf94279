"""The course in a real browser: predictions are committed to before they are shown, by keyboard too, and at 380 px."""

import pytest

from browser import NARROW, inaccessible, opened
from covering import ALL
from warptile.learn import pages
from warptile.learn.course import lessons


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("course")
    pages.build(made)
    return made


def url(folder, number):
    lesson = lessons()[number - 1]
    return (folder / pages.page_of(lesson)).as_uri()


def show_all(page):
    """Click "Show me" as long as there is one; all in the page, as a turn of the driver takes longer than the click."""
    page.evaluate(
        """() => {
          const next = () => [...document.querySelectorAll("button")]
            .find((each) => each.checkVisibility() && each.textContent.trim() === "Show me");
          for (let button = next(); button; button = next()) button.click();
        }"""
    )


def test_an_answer_opens_when_a_number_is_given(chromium, folder):
    with opened(chromium, url(folder, 8)) as (page, _):
        box = page.locator(".prediction").first
        details = box.locator("details")
        assert details.is_hidden()
        assert not page.locator(".wt-banks").first.is_visible()  # it would show the answer
        box.get_by_label("Your number").fill("eight")
        box.get_by_role("button", name="This is my prediction").click()
        assert box.locator(".verdict").inner_text() == "That is no number."
        assert details.is_hidden()
        box.get_by_label("Your number").fill("8")
        box.get_by_role("button", name="This is my prediction").click()
        assert box.locator(".verdict").inner_text() == "Right."
        assert "8 wavefronts" in details.inner_text()
        assert page.locator(".wt-banks").first.is_visible()
        assert not page.locator(".wt-banks").nth(1).is_visible()
        other = page.locator(".prediction").nth(1)
        other.get_by_label("Your number").fill("4")
        other.get_by_label("Your number").press("Enter")
        assert other.locator(".verdict").inner_text() == "Not quite."
        assert other.locator("details").is_visible()


def test_a_guess_within_the_factor_is_right(chromium, folder):
    with opened(chromium, url(folder, 2)) as (page, _):
        clocks = page.locator(".prediction").nth(1)
        clocks.get_by_label("Your number").fill("8,0")
        clocks.get_by_role("button", name="This is my prediction").click()
        assert clocks.locator(".verdict").inner_text() == "Right."


def test_the_bank_map_steps_and_the_fragment_marks(chromium, folder):
    with opened(chromium, url(folder, 8)) as (page, _):
        for _ in range(3):
            page.get_by_role("button", name="Show me").first.click()
        figure = page.locator(".wt-banks").last
        assert figure.locator(".wt-wavefronts").all_inner_texts() == ["8 wavefronts", "1 wavefront", "1 wavefront"]
        figure.get_by_role("button", name="next phase").click()
        assert "chunk 1" in figure.locator("output").inner_text()
    with opened(chromium, url(folder, 7)) as (page, _):
        page.get_by_role("button", name="Show me").first.click()
        figure = page.locator(".wt-figure").first
        figure.locator(".wt-matrix tbody tr").nth(5).locator("td").nth(3).click()
        assert figure.locator(".wt-readout").inner_text() == "Lane 21, register c1: m 5, n 3"


@pytest.mark.parametrize("number", [lesson.number for lesson in lessons()])
def test_a_lesson_fits_380_pixels_without_errors(chromium, folder, number):
    with opened(chromium, url(folder, number), width=NARROW) as (page, _):
        show_all(page)
        assert not page.locator(".later").count()
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW


def test_without_the_script_answers_are_folded(chromium, folder):
    with opened(chromium, url(folder, 8), java_script_enabled=False) as (page, _):
        details = page.locator(".prediction details").first
        assert details.is_visible()
        assert not details.locator("p").is_visible()


@pytest.mark.parametrize("number", [0, 1, 7, 8] if ALL else [0, 8])
def test_accessibility(chromium, folder, number):
    address = url(folder, number) if number else (folder / pages.INDEX).as_uri()
    with opened(chromium, address) as (page, _):
        show_all(page)
        if not ALL:  # rows of a table are alike
            page.evaluate("document.querySelectorAll('tbody tr:nth-child(n+5)').forEach((each) => each.remove())")
        assert inaccessible(page) == ""
