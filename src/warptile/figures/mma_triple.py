"""A, B and D of one warp-wide multiplication: what a lane holds of each, and what an element of D needs.

B is above D and A is to the left of it, so that the row of A and the column of B that make an element of D meet in it.
The layouts are those that move the emulator's data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from warptile.figures.figure import Cell, DataTable, Figure, joined
from warptile.figures.fragment_map import QUAD
from warptile.isa.fragments import LANE_BITS, FragmentLayout

LANES = 1 << LANE_BITS


@dataclass(frozen=True)
class OperandGrid:
    """A fragment by registers, in the orientation of its matrix.

    Attributes:
        letter: what its registers are called: ``a``, ``b`` or ``d``.
        title: above the grid.
        axes: names of what runs down and across, such as ``("m", "k")``.
        layout: of the fragment.
    """

    letter: str
    title: str
    axes: tuple[str, str]
    layout: FragmentLayout

    @property
    def spans(self) -> tuple[int, int]:
        """Rows and columns of one register."""
        down, across = (1 << sum(1 for step in self.layout.element if step[axis]) for axis in (0, 1))
        return down, across

    def corners(self) -> Iterator[tuple[int, int, int, int]]:
        """Lane, register, and the row and column where its elements start, of every register that is no copy."""
        for lane in range(LANES):
            for register in self.layout.distinct:
                yield lane, register, *self.layout.place(lane, register, 0)

    def spoken(self, place: int, axis: int) -> str:
        """The elements of a register along an axis: ``4–5``."""
        span = self.spans[axis]
        return str(place) if span == 1 else f"{place}–{place + span - 1}"

    def html(self) -> Markup:
        """The grid."""
        down, across = self.spans
        rows, columns = range(0, self.layout.rows, down), range(0, self.layout.columns, across)
        held = {(row, column): (lane, register) for lane, register, row, column in self.corners()}
        heads = joined(Markup("<th>{}").format(self.spoken(column, 1)) for column in columns)
        lines = joined(
            Markup("<tr><th>{}{}\n").format(
                self.spoken(row, 0), joined(self._cell(*held[row, column]) for column in columns)
            )
            for row in rows
        )
        return Markup(
            '<section class="wt-operand wt-operand-{}" data-operand="{}" data-down="{}" data-across="{}"><p>{}</p>'
            '<div class="wt-scroll" tabindex="0" role="group" aria-label="{}"><table class="wt-cells wt-matrix">'
            "<thead><tr><th>{}\\{}{}</thead>\n<tbody>\n{}</tbody></table></div></section>\n"
        ).format(self.letter, self.letter, *self.axes, self.title, self.title, *self.axes, heads, lines)

    def _cell(self, lane: int, register: int) -> Markup:
        return Markup('<td class="wt-q{}">T{}<br>{}{}').format(lane // QUAD, lane, self.letter, register)


def mma_triple(
    name: str,
    title: str,
    operands: tuple[OperandGrid, OperandGrid, OperandGrid],
    opcode: str,
    products: int = 1,
    rest: tuple[str, ...] = (),
    cuda: str = "",
    notes: tuple[Cell, ...] = (),
) -> Figure:
    """The three operands of a multiplication, with the PTX statement whose registers they are.

    Args:
        name: of the figure.
        title: its caption.
        operands: A, B and D.
        opcode: of the instruction; its operands are written behind it.
        products: that one instruction makes. Rows of A and D are stacked for them, columns of B side by side.
        rest: operands behind C, such as metadata.
        cuda: the same as a CUDA C++ statement, whose arrays a, b and c are the registers; "" for none.
        notes: sentences below.

    Raises:
        ValueError: the operands do not multiply.
    """
    a, b, d = (each.layout for each in operands)
    if a.rows != d.rows or b.columns != d.columns * products or d.rows % products:
        raise ValueError(
            f"A of {a.rows} x {a.columns}, B of {b.rows} x {b.columns}, D of {d.rows} x {d.columns}: not {products} "
            f"product{'' if products == 1 else 's'}"
        )
    grids = joined(operand.html() for operand in (operands[1], operands[0], operands[2]))
    line = '<p class="wt-ptx"><code>{}</code> <code class="wt-element"></code></p>\n'
    called = Markup(line).format(cuda) if cuda else ""
    picture = Markup(
        '<div class="wt-triple" data-wt="triple" data-products="{}"><div class="wt-triple-head">\n'
        '<p class="wt-ptx"><code>{}</code></p>\n{}'
        '<p class="wt-controls" hidden><label><span>Lane <output>0</output></span>'
        '<input type="range" min="0" max="{}" value="0"></label></p>\n'
        '<p class="wt-readout" aria-live="polite"></p></div>\n{}</div>'
    ).format(products, _statement(opcode, operands, rest), called, LANES - 1, grids)
    return Figure(name, title, picture, _lanes(operands), notes, "Registers of each lane: row, column")


def _statement(opcode: str, operands: Sequence[OperandGrid], rest: tuple[str, ...]) -> Markup:
    """The PTX statement: D, A, B and C in braces. C has registers of its own, in D's layout."""
    a, b, d = operands
    groups = [(d.letter, d.layout), (a.letter, a.layout), (b.letter, b.layout), ("c", d.layout)]
    braces = [
        Markup("{{{}}}").format(
            joined((Markup("<span>{}{}</span>").format(letter, register) for register in range(layout.registers)), ", ")
        )
        for letter, layout in groups
    ]
    return Markup("{} {};").format(opcode, joined([*braces, *rest], ", "))


def _lanes(operands: Sequence[OperandGrid]) -> DataTable:
    header = ["lane"]
    cells: list[list[str]] = [[f"T{lane}"] for lane in range(LANES)]
    for operand in operands:
        header += [f"{operand.letter}{register}" for register in operand.layout.distinct]
        for lane, _, row, column in operand.corners():
            cells[lane].append(f"{operand.spoken(row, 0)}, {operand.spoken(column, 1)}")
    return DataTable(tuple(header), tuple(map(tuple, cells)), left=len(header))
