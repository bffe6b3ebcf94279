"""What every page has: the name, facts in a table, the SASS of each architecture, and sections."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from warptile.figures.assets import document
from warptile.figures.figure import Cell, DataTable, Figure, joined

INDEX = "index.html"
"""The file of the index, beside the pages."""


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Attributes:
        title: its heading.
        parts: sentences and figures, from top to bottom.
    """

    title: str
    parts: tuple[Cell | Figure, ...]

    def html(self) -> Markup:
        """The section."""
        parts = joined(
            each.html() if isinstance(each, Figure) else Markup("<p>{}</p>\n").format(each) for each in self.parts
        )
        return Markup("<h2>{}</h2>\n{}").format(self.title, parts)


@dataclass(frozen=True)
class Described:
    """An instruction as its page shows it.

    Attributes:
        name: as warptile calls it.
        family: heading of the index.
        summary: what it does, in a few words.
        since: the first architecture that takes it.
        ptx: the instruction as PTX spells it.
        facts: of its operands and their limits, each with a heading.
        machine: architecture, status and machine code.
        compiler: what assembled the machine code; "" where there is none.
        sections: the figures.
    """

    name: str
    family: str
    summary: str
    since: str
    ptx: str
    facts: tuple[tuple[str, str], ...]
    machine: tuple[tuple[str, str, str], ...]
    compiler: str
    sections: tuple[Section, ...]

    def html(self, *, indexed: bool = False) -> str:
        """The page; ``indexed``: it is beside an index."""
        back = Markup('<p><a href="{}">All instructions</a></p>\n').format(INDEX) if indexed else Markup("")
        limits = DataTable(("", ""), self.facts, left=2)
        machine = Markup("")
        if self.machine:
            table = DataTable(("architecture", "outcome", "SASS"), self.machine, left=3)
            machine = Markup('<h2>Machine code</h2>\n{}<p class="wt-note">As assembled by {}.</p>\n').format(
                table.html("Machine code by architecture"), self.compiler
            )
        body = Markup('{}<h1>{}</h1>\n<p>{}</p>\n<p class="wt-ptx"><code>{}</code></p>\n{}{}{}').format(
            back, self.name, sentence(self.summary), self.ptx,
            headless(limits.html("Types, operands and limits")),
            joined(section.html() for section in self.sections), machine,
        )  # fmt: skip
        return document(f"{self.name} – warptile isa", body)


def headless(table: Markup) -> Markup:
    """A table whose columns need no headings."""
    return Markup(re.sub(r"<thead>.*?</thead>", "", table))


def sentence(words: str) -> str:
    """Words with a capital and a full stop."""
    return f"{words[0].upper()}{words[1:]}{'' if words.endswith('.') else '.'}"


def file_name(name: str) -> str:
    """The file of an instruction's page: its name, with hyphens for what file names had better not have."""
    return re.sub(r"[^\w.]+", "-", name) + ".html"


def listed(words: Iterable[object]) -> str:
    """``a, b and c``."""
    *most, last = map(str, words)
    return f"{', '.join(most)} and {last}" if most else last


def architecture(capability: int, only: str = "") -> str:
    """The first architecture of an instruction, or the only one."""
    return f"{only} alone" if only else f"sm_{capability}"


def size(extents: Sequence[int]) -> str:
    """``16 x 8``."""
    return " x ".join(map(str, extents))
