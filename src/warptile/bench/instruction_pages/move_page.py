"""Pages of ``ldmatrix``, ``stmatrix`` and ``movmatrix``."""

from __future__ import annotations

from warptile.bench.instruction_pages.described import Described, Section, architecture, sentence, size
from warptile.figures.figure import Figure
from warptile.figures.fragment_map import fragment_map
from warptile.figures.swizzle_explorer import swizzle_explorer
from warptile.isa.matrix_move import ROW_BYTES, MatrixMove
from warptile.isa.operand_drawings import note_of_move, of_move

_DOES = {
    "ldmatrix": "loads 8 x 8 matrices of 16-bit elements from shared memory into fragments",
    "stmatrix": "stores 8 x 8 matrices of 16-bit elements from fragments to shared memory",
    "movmatrix": "transposes an 8 x 8 matrix of 16-bit elements that a warp holds",
}


def described(name: str, move: MatrixMove, count: int, transposed: bool) -> Described:
    """One form with 16-bit elements."""
    layout = move.fragment(count, transposed=transposed)
    facts = [
        ("first architecture", architecture(move.capability)),
        ("matrices", f"{count}"),
        ("in registers", f"{size((layout.rows, layout.columns))}: {layout.registers} of 32 bits in each lane"),
    ]
    in_memory = move.instruction != "movmatrix"
    if in_memory:
        facts.append(("in shared memory", f"rows of {ROW_BYTES} bytes, each at an address of its own"))
        facts.append(("alignment", f"{ROW_BYTES} bytes, of every row"))
        facts.append(("addresses", f"lanes 0 to {8 * count - 1}: lane 8 i + j gives that of row j of matrix i"))
    drawing = fragment_map("fragment", of_move(move, count, transposed), (sentence(note_of_move(move)),))
    sections = [Section("Who holds what", (drawing,))]
    if in_memory:
        sections.append(Section("Shared memory: pitch, swizzle and banks", (_banks(move, count),)))
    summary = _DOES[move.instruction] + (", transposed on the way" if transposed and in_memory else "")
    return Described(
        name, "matrix move", summary, architecture(move.capability), move.opcode(count, transposed=transposed),
        tuple(facts), (), "", tuple(sections),
    )  # fmt: skip


def _banks(move: MatrixMove, count: int) -> Figure:
    phases = f"{count} phase{'' if count == 1 else 's'}, one for each matrix"
    note = f"This {move.instruction} takes {phases}; their rows and chunks depend on the addresses that lanes give."
    return swizzle_explorer("swizzle", "Banks of eight rows", notes=(note,))
