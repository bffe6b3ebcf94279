"""The drawings of all operands of an instruction, by its name: what ``warptile isa NAME`` prints."""

from __future__ import annotations

from warptile.isa import wgmma
from warptile.isa.catalogue import Multiplication, by_name
from warptile.isa.drawing import Drawing, draw, draw_metadata
from warptile.isa.fragments import FragmentLayout
from warptile.isa.matrix_move import MatrixMove, moves
from warptile.isa.mma import ELEMENT_BITS, accumulator
from warptile.isa.mma_sp import SparseShape


def drawings_of(name: str) -> dict[str, Drawing]:
    """Operands of an instruction in registers, each with its drawing; none for an unknown name.

    Their names: ``a``, ``b``, ``c`` (which D is like) and ``metadata`` of a multiplication, ``r`` of a move of
    matrices, ``a`` and ``d`` of the first warp of a `wgmma`.
    """
    if name in by_name():
        instruction = by_name()[name]
        return of_multiplication(instruction, multiplication_layouts(instruction))
    if name in moves():
        return {"r": of_move(*moves()[name])}
    if name in wgmma.by_name():
        return of_group(*wgmma.by_name()[name])
    return {}


def multiplication_layouts(instruction: Multiplication, capability: int | None = None) -> dict[str, FragmentLayout]:
    """The fragments of A, B and C; those of WMMA depend on the compute capability (times ten)."""
    at = capability if capability is not None else max(90, instruction.capability)
    return {matrix: instruction.fragment(matrix, at) for matrix in "abc"}


def of_multiplication(instruction: Multiplication, layouts: dict[str, FragmentLayout]) -> dict[str, Drawing]:
    """A, B and C, and the metadata of a sparse A."""
    compressed = isinstance(instruction.shape, SparseShape)
    stacked = getattr(instruction.shape, "matrices", 1) > 1
    axes = {"a": ("m", "stored" if compressed else "k"), "b": ("k", "n"), "c": ("m", "n")}
    found = {}
    for matrix, layout in layouts.items():
        element = instruction.types["dabc".index(matrix)]
        title = f"{'C and D' if matrix == 'c' else matrix.upper()}: {layout.rows} x {layout.columns} of {element}"
        title += ", the stored half" if matrix == "a" and compressed else ""
        title += ", four products side by side" if stacked else ""
        found[matrix] = draw(title, matrix, layout, axes[matrix])
        if matrix == "a" and isinstance(instruction.shape, SparseShape):
            found["metadata"] = draw_metadata(instruction.shape)
    return found


def of_move(move: MatrixMove, count: int, transposed: bool) -> Drawing:
    """The matrices of one ldmatrix, stmatrix or movmatrix."""
    if move.instruction == "movmatrix":
        title = "the source, 8 x 8 16-bit elements, where the result has them"
    else:
        title = f"{count} matri{'x' if count == 1 else 'ces'} of 8 x 8 16-bit elements, rows as they lie in memory"
    return draw(title, "r", move.fragment(count, transposed=transposed), ("row", "column"))


def note_of_move(move: MatrixMove) -> str:
    """What the drawing of a move does not show."""
    if move.instruction == "movmatrix":
        return "the source's lanes hold rows"
    return "row i lies at the address that lane i gives"


def of_group(shape: wgmma.GroupShape, types: tuple[str, str, str]) -> dict[str, Drawing]:
    """A in registers, and the first columns of D, of the first warp of a warpgroup."""
    held, columns = group_layouts(shape, types)
    stored = "stored" if shape.sparse else "k"
    return {
        "a": draw(f"A in registers: {held.rows} x {held.columns} of {types[1]}", "a", held, ("m", stored)),
        "d": draw(f"D: the first 8 of {shape.n} columns of {types[0]}", "d", columns, ("m", "n")),
    }


def group_layouts(shape: wgmma.GroupShape, types: tuple[str, str, str]) -> tuple[FragmentLayout, FragmentLayout]:
    """A of one warp, and its part of eight columns of D."""
    return shape.fragment(), accumulator(wgmma.ROWS // wgmma.WARPS, 8, ELEMENT_BITS[types[0]])


def note_of_group(shape: wgmma.GroupShape, types: tuple[str, str, str]) -> str:
    """What the drawings of a `wgmma` do not show."""
    each = group_layouts(shape, types)[1].registers
    return (
        f"the first warp's rows; each warp has the next 16. Every 8 columns of D take {each} registers, "
        f"{shape.registers(types[0])} in all"
    )
