"""Pages of ``wgmma``: A in registers, D, and operands in shared memory."""

from __future__ import annotations

from warptile.bench.instruction_pages.described import Described, Section, architecture, sentence
from warptile.figures.fragment_map import fragment_map
from warptile.isa import machine_code, wgmma
from warptile.isa.operand_drawings import note_of_group, of_group


def described(name: str, shape: wgmma.GroupShape, types: tuple[str, str, str]) -> Described:
    """One instruction."""
    result, left, right = types
    family = shape.family
    operands = left if left == right else f"{left} and {right}"
    summary = f"D = A B + D of {operands}, accumulated in {result}, by the four warps of a warpgroup"
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
    outcome = machine_code.table().of_group(wgmma.ARCH, name)
    return Described(
        name, "wgmma.sp" if shape.sparse else "wgmma", summary, architecture(wgmma.CAPABILITY, wgmma.ARCH),
        shape.opcode(types), tuple(facts), ((wgmma.ARCH, outcome.status, outcome.in_full),),
        machine_code.table().compiler, tuple(sections),
    )  # fmt: skip


def _spoken_columns(columns: tuple[int, ...]) -> str:
    if columns == wgmma.EVERY_EIGHT:
        return f"multiples of 8 from {columns[0]} to {columns[-1]}"
    return ", ".join(map(str, columns))
