"""A real browser for tests of pages: the Chromium of the distribution, driven by playwright.

playwright is not to download one: tests are skipped, with a reason, where none is found on the PATH or named by
``WARPTILE_CHROMIUM``. Debian and Ubuntu: ``apt-get install chromium``.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
VARIABLE = "WARPTILE_CHROMIUM"

ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--force-color-profile=srgb",
)  # fmt: skip
"""It also runs as root and in containers, talks to nobody, and draws the same colors everywhere."""

WIDE, NARROW = 1200, 380
HEIGHT = 900


def executable() -> str | None:
    """The browser's program, or None."""
    return os.environ.get(VARIABLE) or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def launched() -> Iterator[Browser]:
    """A browser, which is closed at the end; the test is skipped where there is none."""
    program = executable()
    if program is None:
        pytest.skip(
            f"no browser: none of {', '.join(NAMES)} is on the PATH; `apt-get install chromium`, or set {VARIABLE}"
        )
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[dev]'")
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Seen:
    """What a page did while it was open."""

    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@contextmanager
def opened(browser: Browser, url: str, *, width: int = WIDE, **options) -> Iterator[tuple[Page, Seen]]:
    """A page with nothing left of the pages before it. At its end nothing may have gone wrong, and nothing may have
    been loaded but it.

    ``options`` are those of playwright's `Browser.new_context`, such as ``color_scheme="dark"``.
    """
    with _fresh_page(browser, width, options) as page:
        seen = Seen()
        listeners = {
            "console": lambda message: seen.errors.append(f"{message.type}: {message.text}"),
            "pageerror": lambda error: seen.errors.append(str(error)),
            "request": lambda request: seen.requests.append(request.url.split("#")[0]),
        }
        for event, listener in listeners.items():
            page.on(event, listener)
        page.goto(url)
        yield page, seen
        assert seen.errors == []
        assert set(seen.requests) == {url.split("#")[0]}
        for event, listener in listeners.items():
            page.remove_listener(event, listener)


_idle: WeakKeyDictionary[Browser, dict[frozenset, Page]] = WeakKeyDictionary()
"""Of each browser, pages by what they were opened with: opening another one takes longer than most tests do."""


@contextmanager
def _fresh_page(browser: Browser, width: int, options: dict[str, object]) -> Iterator[Page]:
    """An empty page. It is kept for another test unless something went wrong, or no script could tidy up."""
    idle = _idle.setdefault(browser, {})
    key = frozenset({"width": width, **options}.items())
    page = idle.pop(key, None) or browser.new_context(viewport={"width": width, "height": HEIGHT}, **options).new_page()
    kept = False
    try:
        yield page
        if options.get("java_script_enabled", True):
            page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
            page.goto("about:blank")
            page.set_viewport_size({"width": width, "height": HEIGHT})
            page.emulate_media(media="null", color_scheme=options.get("color_scheme", "light"))
            page.mouse.move(0, 0)
            idle[key], kept = page, True
    finally:
        if not kept:
            page.context.close()


def too_wide(page: Page) -> list[str]:
    """What makes the page wider than its window, outside of boxes that scroll by themselves."""
    return page.evaluate(
        """() => {
          if (document.documentElement.scrollWidth <= innerWidth) return [];
          const clips = (node) => node && (/auto|scroll|hidden/.test(getComputedStyle(node).overflowX)
            ? true : clips(node.parentElement));
          return ["the page", ...[...document.body.querySelectorAll("*")]
            .filter((each) => each.getBoundingClientRect().right > innerWidth + 1 && !clips(each.parentElement))
            .slice(0, 5).map((each) => `${each.tagName}.${each.className}`)];
        }"""
    )


def picture(page: Page, selector: str, width: int) -> np.ndarray:
    """A screenshot of one element in the corner of the window, ``width`` pixels wide: (height, width, 3).

    It has no text, whose shape depends on the machine's fonts, and nothing around it moves it.
    """
    page.add_style_tag(content="* { color: transparent !important; text-decoration-color: transparent !important; }")
    page.locator(selector).first.evaluate(
        "(element, width) => Object.assign(element.style, { position: 'fixed', left: 0, top: 0, width: `${width}px`,"
        " zIndex: 9, background: 'var(--wt-paper)' })",
        width,
    )
    box = page.locator(selector).first.bounding_box()
    raw = page.screenshot(animations="disabled", clip={"x": 0, "y": 0, "width": width, "height": round(box["height"])})
    return pixels(io.BytesIO(raw))


def pixels(file: Path | io.BytesIO) -> np.ndarray:
    """A picture as RGB: (height, width, 3)."""
    return np.asarray(pytest.importorskip("PIL.Image").open(file).convert("RGB"))


def keep(picture: np.ndarray, path: Path) -> None:
    """Write a picture to a small PNG file."""
    path.parent.mkdir(exist_ok=True)
    pytest.importorskip("PIL.Image").fromarray(picture).quantize(64).save(path, optimize=True)


def inaccessible(page: Page, *rules: str) -> str:
    """What axe-core has against the page as it is shown, by all of its rules (WCAG 2.2 A, AA and its best practices)
    or by those that are named."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    # Details are worked out of violations only, and not of everything that passes.
    found = axe.Axe().run(page, options={"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})})
    return found.generate_report() if found.violations_count else ""
