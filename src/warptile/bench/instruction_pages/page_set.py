"""Which instructions have pages, the page of each, and the index of some of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from warptile.bench.instruction_pages import form_page, group_page, move_page, multiplication_page
from warptile.bench.instruction_pages.described import INDEX, Described, file_name
from warptile.figures.assets import document
from warptile.figures.figure import DataTable
from warptile.isa import wgmma
from warptile.isa.catalogue import FORMS, by_name, group_multiplications, multiplications
from warptile.isa.matrix_move import moves


def names() -> tuple[str, ...]:
    """Instructions of the whole set: of `wgmma`, whose n changes nothing else, those with one n."""
    return (
        *(each.name for each in multiplications()), *(each.name for each in group_multiplications()), *moves(),
        *(form.name for form in FORMS),
    )  # fmt: skip


def chosen(name: str | None) -> tuple[str, ...]:
    """The instructions that ``name`` stands for: one, those of a family or whose names go on behind it, or all."""
    if name is None:
        return names()
    if name in wgmma.by_name() or name in names():
        return (name,)
    family = tuple(form.name for form in FORMS if form.family.replace(" ", "-") == name)
    return family or tuple(each for each in names() if f"{each}.".startswith(f"{name}."))


def described(name: str) -> Described:
    """An instruction by its name.

    Raises:
        KeyError: there is none.
    """
    if name in by_name():
        return multiplication_page.described(by_name()[name])
    if name in moves():
        return move_page.described(name, *moves()[name])
    if name in wgmma.by_name():
        return group_page.described(name, *wgmma.by_name()[name])
    return form_page.described({form.name: form for form in FORMS}[name])


def pages(some: Sequence[str]) -> Iterator[tuple[str, str]]:
    """File names and texts: the page of each instruction, and last the index."""
    entries = []
    for name in some:
        one = described(name)
        entries.append(one)
        yield file_name(name), one.html(indexed=True)
    yield INDEX, index(entries)


def index(entries: Sequence[Described]) -> str:
    """The list of instructions, with a filter."""
    rows = tuple(
        (Markup('<a href="{}">{}</a>').format(file_name(each.name), each.name), each.family, each.summary, each.since)
        for each in entries
    )
    table = DataTable(("instruction", "family", "what it does", "since"), rows, left=4)
    body = Markup(
        "<h1>Instructions</h1>\n<p>Tensor-core instructions and the copies and barriers around them: operands, limits, "
        "machine code. Made by <code>warptile isa --html</code>.</p>\n"
        '<div class="wt-listing" data-wt="listing"><p class="wt-controls wt-filter" hidden><label>Filter: all words '
        'occur<input type="search" autocomplete="off" spellcheck="false"></label>'
        '<output aria-live="polite">{} of {}</output></p>\n{}</div>\n'
    ).format(len(entries), len(entries), table.html("Instructions"))
    return document("Instructions – warptile isa", body)
