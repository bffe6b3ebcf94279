"""Pages of ``wgmma``: A in registers, D, and operands in shared memory."""

from __future__ import annotations

from warptile.bench.instruction_pages.described import Described, Section, architecture, sentence
from warptile.figures.descriptor_editor import CHUNKS, OperandInMemory, descriptor_editor
from warptile.figures.figure import Figure
from warptile.figures.fragment_map import fragment_map
from warptile.isa import machine_code, wgmma
from warptile.isa.operand_drawings import note_of_group, of_group
from warptile.isa.swizzle import CHUNK_BYTES


def described(name: str, shape: wgmma.GroupShape, types: tuple[str, str, str]) -> Described:
    """One instruction."""
    result, left, right = types
    family = shape.family
    operands = f"A and B of {left}" if left == right else f"A of {left}, B of {right}"
    summary = f"D = A B + D by the four warps of a warpgroup: {operands}, D of {result}"
    if shape.sparse:
        summary += "; half of A is left out, and metadata says which half"
    facts = [
        ("architecture", architecture(wgmma.CAPABILITY, wgmma.ARCH)),
        ("types of D, A, B", ", ".join(types)),
        (
            "A",
            f"{wgmma.ROWS} x {shape.stored}, in registers ({shape.fragment().registers} of each lane) or shared memory",
        ),
        ("B", f"{shape.k} x {shape.n}, in shared memory"),
        ("D", f"{wgmma.ROWS} x {shape.n}: {shape.registers(result)} registers of each lane"),
        ("n of these types", _spoken_columns(family.columns)),
        ("MN-major operands in shared memory", "yes" if family.transposable else "no: K-major alone"),
        ("negation of A and B", "yes" if family.negatable else "no"),
        ("saturation", ".satfinite" if family.saturates else "no"),
        ("multiplications and additions", f"{wgmma.WARPS * shape.flops}"),
    ]
    drawings = of_group(shape, types)
    note = sentence(note_of_group(shape, types))
    sections = [
        Section("Who holds what", (note, *(fragment_map(f"operand-{key}", each) for key, each in drawings.items()))),
    ]
    sections.append(Section("Operands in shared memory: the matrix descriptor", (descriptor_figure(shape),)))
    outcome = machine_code.table().of_group(wgmma.ARCH, name)
    return Described(
        name, "wgmma.sp" if shape.sparse else "wgmma", summary, architecture(wgmma.CAPABILITY, wgmma.ARCH),
        shape.opcode(types), tuple(facts), ((wgmma.ARCH, outcome.status, outcome.in_full),),
        machine_code.table().compiler, tuple(sections),
    )  # fmt: skip


def descriptor_figure(shape: wgmma.GroupShape) -> Figure:
    """Of a dense `wgmma` the descriptor of A; of a sparse one that of B, whose rows are twice as long."""
    bits, transposable = shape.family.bits, shape.family.transposable
    if shape.sparse:
        rows = min(shape.n, wgmma.ROWS)
        operand = OperandInMemory(f"B: {rows} of {shape.n} columns", rows, shape.k, bits, transposable)
        note = "Columns of B are called rows here, as they lie in memory. A has half as many bytes along K."
    else:
        operand = OperandInMemory(f"A: {wgmma.ROWS} rows", wgmma.ROWS, shape.k, bits, transposable)
        note = f"The descriptor of B is the same with its {shape.n} columns as rows."
    row_bytes = max(wgmma.SWIZZLES)
    stride = CHUNKS * row_bytes
    first = wgmma.Descriptor(stride, CHUNK_BYTES, stride, swizzle=row_bytes)
    return descriptor_editor("descriptor", f"Descriptor of {operand.matrix}", operand, first, (note,))


def _spoken_columns(columns: tuple[int, ...]) -> str:
    if columns == wgmma.EVERY_EIGHT:
        return f"multiples of 8 from {columns[0]} to {columns[-1]}"
    return ", ".join(map(str, columns))
