"""Lessons as data: what ``lessons/NN-name.md`` says.

A file begins with TOML between lines of ``+++``: title, minutes, what one knows after it, and a plan for the board,
each step with its minutes. The rest is Markdown. ``##`` begins a screen, one idea each. Three kinds of fenced blocks
stand for what is made by code:

* ``figure NAME ARGUMENTS``: a picture (`warptile.learn.lesson_pictures`).
* ``predict NAME``: a question, whose text is the block's; the answer is computed (`warptile.learn.predictions`).
* ``exercise NAME``: an exercise (`warptile.learn.exercise`).
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "lessons"
_FENCE = re.compile(r"^```(figure|predict|exercise) +(.+?)\n(.*?)^```$", re.S | re.M)


@dataclass(frozen=True)
class Part:
    """A part of a screen.

    Attributes:
        kind: ``"text"`` (Markdown), ``"figure"``, ``"predict"`` or ``"exercise"``.
        text: the Markdown, or the content of the block.
        name: of what the block stands for.
        arguments: of a figure.
    """

    kind: str
    text: str
    name: str = ""
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Screen:
    """One idea.

    Attributes:
        title: its heading.
        parts: what it says and shows.
    """

    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class BoardStep:
    """A step of a teacher's plan: how many minutes, and what is done."""

    minutes: int
    does: str


@dataclass(frozen=True)
class Lesson:
    """A lesson.

    Attributes:
        number: from 1.
        name: of its page.
        title: in a few words.
        minutes: that it takes, without the exercise.
        after: what one can do after it.
        screens: in order.
        board: a plan for a class.
    """

    number: int
    name: str
    title: str
    minutes: int
    after: str
    screens: tuple[Screen, ...]
    board: tuple[BoardStep, ...]

    def named(self, kind: str) -> tuple[Part, ...]:
        """Its figures, predictions or exercises."""
        return tuple(part for screen in self.screens for part in screen.parts if part.kind == kind)


@lru_cache(maxsize=1)
def lessons() -> tuple[Lesson, ...]:
    """All of them, in order."""
    return tuple(_read(path) for path in sorted(FOLDER.glob("*.md")))


def _read(path: Path) -> Lesson:
    number, name = path.stem.split("-", 1)
    _, head, body = path.read_text("utf-8").split("+++\n", 2)
    about = tomllib.loads(head)
    pieces = re.split(r"^## +(.+)$", body, flags=re.M)
    assert not pieces[0].strip(), f"{path.name}: text before the first screen"
    screens = tuple(Screen(title, _parts(text)) for title, text in zip(pieces[1::2], pieces[2::2], strict=True))
    board = tuple(BoardStep(minutes, does) for minutes, does in about["board"])
    return Lesson(int(number), name, about["title"], about["minutes"], about["after"], screens, board)


def _parts(text: str) -> tuple[Part, ...]:
    found: list[Part] = []
    end = 0
    for fence in _FENCE.finditer(text):
        found.append(Part("text", text[end : fence.start()]))
        name, *arguments = fence[2].split()
        found.append(Part(fence[1], fence[3].strip(), name, tuple(arguments)))
        end = fence.end()
    found.append(Part("text", text[end:]))
    return tuple(part for part in found if part.kind != "text" or part.text.strip())
