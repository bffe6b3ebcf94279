"""Pictures of fragments, and of shared-memory banks before and after the swizzle."""

from __future__ import annotations

from warptile.bench.html_report.page_data import PageData
from warptile.bench.html_report.views import PageView, filled
from warptile.figures.bank_map import MATRIX_ROWS, SharedTile, bank_map
from warptile.figures.figure import Figure
from warptile.figures.fragment_map import fragment_map
from warptile.isa import wgmma
from warptile.isa.catalogue import by_name
from warptile.isa.matrix_move import moves
from warptile.isa.operand_drawings import drawings_of, note_of_group, note_of_move
from warptile.isa.swizzle import CHUNK_BYTES, ROW_BYTES

SHOWN = (
    "ldmatrix.x4", "ldmatrix.x4.trans", "stmatrix.x4", "wmma.m16n16k16.f32.f16", "mma.m16n8k16.f32.f16",
    "mma.m16n8k8.f32.tf32", "mma.m16n8k32.s32.s8", "mma.m8n8k4.f64.f64", "mma.sp.m16n8k32.f32.f16",
    "wgmma.m64n128k16.f32.f16", "wgmma.m64n128k32.f16.e4m3",
)  # fmt: skip
"""Instructions whose operands are drawn: one of each kind that the rungs use. `warptile isa` draws all of them."""


def views(data: PageData) -> tuple[PageView, ...]:
    """Fragments and bank maps."""
    fragments = filled("instructions.html", instructions=[_instruction(name) for name in SHOWN])
    banks = filled("banks.html", figures=[swizzle_figure(row) for row in reversed(ROW_BYTES)])
    return (
        PageView("instructions", "Fragments: which lane holds what", fragments, label="Fragments"),
        PageView("banks", "Shared-memory banks before and after the swizzle", banks, label="Bank maps"),
    )


def instruction_view(name: str) -> str:
    """The name of an instruction's place on the page."""
    return f"isa-{name.replace('.', '-')}"


def _instruction(name: str) -> dict[str, object]:
    place = instruction_view(name)
    note, opcode = "", ""
    if name in moves():
        move, count, transposed = moves()[name]
        note, opcode = note_of_move(move), move.opcode(count, transposed=transposed)
    elif name in wgmma.by_name():
        shape, types = wgmma.by_name()[name]
        note, opcode = note_of_group(shape, types), shape.opcode(types)
    else:
        opcode = by_name()[name].opcode
    figures = [fragment_map(f"{place}-{operand}", drawing) for operand, drawing in drawings_of(name).items()]
    return {"name": name, "place": place, "opcode": opcode, "note": note, "figures": figures}


def swizzle_figure(row_bytes: int) -> Figure:
    """Eight rows of a tile as they lie without padding, padded, and swizzled."""
    tiles = (
        SharedTile("rows one after the other", MATRIX_ROWS, row_bytes, row_bytes),
        SharedTile(f"padded by {CHUNK_BYTES} bytes", MATRIX_ROWS, row_bytes, row_bytes + CHUNK_BYTES),
        SharedTile(f"{row_bytes}-byte swizzle", MATRIX_ROWS, row_bytes, row_bytes, row_bytes),
    )
    return bank_map(f"banks-{row_bytes}", f"Rows of {row_bytes} bytes", tiles)
