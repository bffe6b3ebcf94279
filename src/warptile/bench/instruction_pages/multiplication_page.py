"""Pages of ``mma``, ``mma.sp`` and ``wmma``: operands beside each other, types, limits and machine code."""

from __future__ import annotations

from functools import cache

from warptile.bench.instruction_pages.described import Described, Section, architecture, listed, size
from warptile.figures.figure import Figure
from warptile.figures.fragment_map import fragment_map
from warptile.figures.mma_triple import OperandGrid, mma_triple
from warptile.isa import machine_code
from warptile.isa.catalogue import Multiplication
from warptile.isa.drawing import draw_metadata
from warptile.isa.fragments import FragmentLayout
from warptile.isa.mma import MmaShape
from warptile.isa.mma_sp import SparseShape
from warptile.isa.wmma import WmmaShape, alignment_bytes
from warptile.isa.wrappers.mma import wrappers

AXES = {"a": ("m", "k"), "b": ("k", "n"), "d": ("m", "n")}


def described(instruction: Multiplication) -> Described:
    """One instruction."""
    shape = instruction.shape
    result, left, right, addend = instruction.types
    operands = f"A and B of {left}" if left == right else f"A of {left}, B of {right}"
    results = f"C and D of {result}" if result == addend else f"C of {addend}, D of {result}"
    stacked = f"{_products(instruction)} products, each " if _products(instruction) > 1 else ""
    summary = f"{stacked}D = A B + C: {operands}, {results}"
    if isinstance(shape, SparseShape):
        summary += "; half of A is left out, and metadata says which half"
    return Described(
        instruction.name, instruction.family, summary, architecture(instruction.capability), instruction.opcode,
        _facts(instruction), machine_rows(instruction.name), machine_code.table().compiler, _sections(instruction),
    )  # fmt: skip


def machine_rows(name: str) -> tuple[tuple[str, str, str], ...]:
    """Architecture, status and SASS."""
    outcomes = ((arch, machine_code.table().of(arch, name)) for arch in machine_code.ARCHITECTURES)
    return tuple((arch, outcome.status, outcome.in_full) for arch, outcome in outcomes)


def _products(instruction: Multiplication) -> int:
    return instruction.shape.matrices if isinstance(instruction.shape, MmaShape) else 1


def _facts(instruction: Multiplication) -> tuple[tuple[str, str], ...]:
    shape, types = instruction.shape, instruction.types
    facts = [
        ("first architecture", architecture(instruction.capability)),
        ("types of D, A, B, C", ", ".join(types)),
        ("layouts of A, B", ", ".join(instruction.layouts)),
    ]
    for matrix, element in zip("dabc", types, strict=True):
        layout = instruction.fragment(matrix)
        copies = f", {len(layout.distinct)} of them distinct" if len(layout.distinct) < layout.registers else ""
        held = f"{layout.registers} of {layout.register_bits} bits in each lane{copies}"
        extents = size((layout.rows, layout.columns))
        facts.append((f"{matrix.upper()} in registers", f"{extents} of {element}: {held}"))
    facts.append(("multiplications and additions", f"{shape.flops}"))
    if isinstance(shape, MmaShape):
        facts += [("saturation", "D may be clamped to s32 (.satfinite)")] if shape.saturates else []
        facts += [("rounding", listed(f".{each}" for each in shape.roundings))] if shape.roundings else []
    if isinstance(shape, SparseShape):
        kept = f"{shape.group // 2} of every {shape.group} elements along k are stored"
        facts.append(("sparsity", kept))
        facts.append(("metadata selectors", f"0 to {shape.selectors - 1}" if shape.selectors > 1 else "0"))
        facts += [("saturation", "D may be clamped to s32 (.satfinite)")] if shape.saturates else []
    if isinstance(shape, WmmaShape):
        alignment = listed(f"{m.upper()} {alignment_bytes(instruction.fragment(m))} bytes" for m in "abc")
        facts.append(("alignment of rows in memory", alignment))
    if instruction.scaled:
        facts.append(("block scales", "of A and B, in a register of their own"))
    return tuple(facts)


def _sections(instruction: Multiplication) -> tuple[Section, ...]:
    newest = layouts_of(instruction, 90)
    triple = triple_figure("operands", "A, B and D of a warp", instruction, newest)
    parts: list[Figure | str] = [triple]
    oldest = layouts_of(instruction, instruction.capability)
    if oldest != newest:
        title = f"The same on sm_{instruction.capability}, whose fragments differ"
        parts.append(triple_figure("operands-before", title, instruction, oldest))
    found = [Section("Who holds what", tuple(parts))]
    if isinstance(instruction.shape, SparseShape):
        drawing = draw_metadata(instruction.shape)
        found.append(Section("Metadata of A", (fragment_map("metadata", drawing),)))
    return tuple(found)


def layouts_of(instruction: Multiplication, capability: int) -> dict[str, FragmentLayout]:
    """The fragments of A, B and D on a compute capability (times ten)."""
    return {matrix: instruction.fragment(matrix, capability) for matrix in "abd"}


def triple_figure(name: str, title: str, instruction: Multiplication, layouts: dict[str, FragmentLayout]) -> Figure:
    """A, B and D of a multiplication beside each other."""
    compressed = isinstance(instruction.shape, SparseShape)
    grids = []
    for matrix, layout in layouts.items():
        element = instruction.types["dab".index(matrix)]
        axes = ("m", "stored k") if compressed and matrix == "a" else AXES[matrix]
        shown = f"{matrix.upper()}: {size((layout.rows, layout.columns))} of {element}"
        grids.append(OperandGrid(matrix, shown, axes, layout))
    notes = ["T is the lane, below it the register; C has D's layout."]
    elements = max(layout.elements for layout in layouts.values())
    if elements > 1:
        notes.append(f"A register has up to {elements} elements, the first in its lowest bits.")
    if compressed:
        notes.append(
            "A is drawn as it is stored: metadata says which k an element has, and so which row of B it meets."
        )
    if _products(instruction) > 1:
        notes.append("The products are stacked in A and D and side by side in B.")
    copies = [matrix.upper() for matrix, layout in layouts.items() if len(layout.distinct) < layout.registers]
    if copies:
        notes.append(f"Registers of {listed(copies)} that are copies of those shown are left out.")
    a, b, d = grids
    rest = ("metadata", "selector") if compressed else ()
    if instruction.scaled:
        rest = (*rest, "scale-a", "{byte-id-a, thread-id-a}", "scale-b", "{byte-id-b, thread-id-b}")
    cuda = _wrapper_calls().get(instruction.opcode, "")
    if cuda:
        notes.append("The CUDA line calls the wrapper of kernels/ptx/mma.cuh; its c is both C and D.")
    return mma_triple(name, title, (a, b, d), instruction.opcode, _products(instruction), rest, cuda, tuple(notes))


@cache
def _wrapper_calls() -> dict[str, str]:
    """By opcode, the call of its C++ wrapper."""
    return {
        each.opcode: f"{each.name}{', SELECTOR' * each.is_sparse}>::mma_sync(c, a, b{', metadata' * each.is_sparse});"
        for each in wrappers()
    }
