"""The course as static pages: one for each lesson and one that lists them, which load nothing from elsewhere."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markdown_it import MarkdownIt
from markupsafe import Markup

from warptile.figures.assets import POLICY, script, stylesheet
from warptile.figures.figure import joined
from warptile.learn import exercise
from warptile.learn.course import Lesson, Part, lessons
from warptile.learn.lesson_pictures import picture
from warptile.learn.predictions import PREDICTIONS

_FOLDER = Path(__file__).resolve().parent
INDEX = "index.html"


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER / "templates"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip


@cache
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table")


def page_of(lesson: Lesson) -> str:
    """Name of a lesson's page."""
    return f"{lesson.number:02}-{lesson.name}.html"


def _shown(lesson: Lesson, part: Part, number: int) -> Markup:
    """A part of a screen as markup."""
    if part.kind == "text":
        return Markup(_markdown().render(part.text))
    if part.kind == "figure":
        return joined(each.html() for each in picture(f"l{lesson.number}-{number}", part.name, part.arguments))
    if part.kind == "predict":
        return _filled(
            "prediction.html",
            question=Markup(_markdown().renderInline(part.text)), name=part.name, answer=PREDICTIONS[part.name](),
        )  # fmt: skip
    return _filled("exercise.html", exercise=exercise.named(part.name), text=Markup(_markdown().render(part.text)))


def _filled(template: str, **values: Any) -> Markup:
    return Markup(_environment().get_template(template).render(**values))


def lesson_page(lesson: Lesson) -> str:
    """The page of a lesson."""
    course = lessons()
    place = course.index(lesson)
    screens = [
        (screen.title, [_shown(lesson, part, 100 * index + each) for each, part in enumerate(screen.parts)])
        for index, screen in enumerate(lesson.screens)
    ]
    return _page(
        "lesson.html", f"{lesson.number}. {lesson.title}", lesson=lesson, screens=screens,
        before=course[place - 1] if place else None, after=course[place + 1] if place + 1 < len(course) else None,
    )  # fmt: skip


def index_page() -> str:
    """The page that lists the lessons."""
    return _page("index.html", "Tensor-core kernels, from the first fragment to Hopper", lessons=lessons())


def _page(template: str, title: str, **values: Any) -> str:
    styles = Markup(f"{stylesheet()}\n{(_FOLDER / 'learn.css').read_text('utf-8')}")
    scripts = Markup(f"{script()}\n{(_FOLDER / 'learn.js').read_text('utf-8')}")
    frame = {"title": title, "policy": POLICY, "styles": styles, "scripts": scripts}
    return str(_filled(template, **frame, page_of=page_of, index=INDEX, **values))


def build(folder: Path) -> tuple[Path, ...]:
    """Write the course to a folder; the files, the list of lessons first."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {INDEX: index_page(), **{page_of(lesson): lesson_page(lesson) for lesson in lessons()}}
    for name, text in pages.items():
        (folder / name).write_text(text, "utf-8")
    return tuple(folder / name for name in pages)
