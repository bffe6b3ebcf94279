"""A fragment as a picture: which lane holds each part of a matrix in which register, and the same by lanes.

It is drawn from `warptile.isa.drawing`, whose layouts are those that move the emulator's data.
"""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from warptile.figures.figure import Cell, DataTable, Figure, joined
from warptile.isa.drawing import Drawing

QUAD = 4
"""Lanes that share a color; the next four have the next one."""


@dataclass(frozen=True)
class _Held:
    """The cells of a drawing by lane and register: row label, column label."""

    registers: tuple[str, ...]
    places: dict[tuple[int, str], list[tuple[str, str]]]
    lanes: int

    @staticmethod
    def of(drawing: Drawing) -> _Held:
        places: dict[tuple[int, str], list[tuple[str, str]]] = {}
        for down, cells in zip(drawing.down[1], drawing.cells, strict=True):
            for across, cell in zip(drawing.across[1], cells, strict=True):
                places.setdefault((cell.lane, cell.register), []).append((down, across))
        registers = sorted({register for _, register in places}, key=_register_order)
        return _Held(tuple(registers), places, 1 + max(lane for lane, _ in places))


def fragment_map(name: str, drawing: Drawing, notes: tuple[Cell, ...] = ()) -> Figure:
    """The matrix as a grid of registers; the figure's table has a row for each lane."""
    held = _Held.of(drawing)
    across, down = drawing.across, drawing.down
    heads = joined(Markup("<th>{}</th>").format(_spoken(label)) for label in across[1])
    lines = joined(
        Markup("<tr><th>{}{}\n").format(
            _spoken(label),
            joined(
                Markup('<td class="wt-q{}">T{}<br>{}').format(cell.lane // QUAD, cell.lane, cell.register)
                for cell in cells
            ),
        )
        for label, cells in zip(down[1], drawing.cells, strict=True)
    )
    picture = Markup(
        '<div class="wt-fragment" data-wt="fragment" data-down="{}" data-across="{}">'
        '<div class="wt-scroll" tabindex="0" role="group" aria-label="{}"><table class="wt-cells wt-matrix">'
        "<thead><tr><th>{}\\{}{}</thead>\n<tbody>\n{}</tbody></table></div>\n"
        '<p class="wt-readout" aria-live="polite"></p></div>'
    ).format(down[0], across[0], drawing.title, down[0], across[0], heads, lines)
    rows = tuple(
        (f"T{lane}", *(_places_text(held.places.get((lane, register), [])) for register in held.registers))
        for lane in range(held.lanes)
    )
    table = DataTable(("lane", *held.registers), rows, left=1 + len(held.registers))
    said = (*notes, *(f"{note[0].upper()}{note[1:]}." for note in drawing.notes))
    table_title = f"Registers of each lane: {down[0]}, {across[0]}"
    return Figure(name, drawing.title, picture, table, said, table_title, open=True)


def _register_order(register: str) -> tuple[str, int]:
    letters = register.rstrip("0123456789")
    number = register[len(letters) :]
    return ("" if register == "lo" else letters, int(number) if number else 0)


def _places_text(places: list[tuple[str, str]]) -> str:
    return "; ".join(f"{_spoken(down)}, {_spoken(across)}" for down, across in places) or "–"


def _spoken(label: str) -> str:
    return label.replace("-", "–")
