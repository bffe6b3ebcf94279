"""The catalogue in few rows: instructions that differ only in the types of A and B and compile to the same machine code
share a row."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from warptile.isa.catalogue import Multiplication, Shape
from warptile.isa.machine_code import ARCHITECTURES, MachineCodeTable, Outcome
from warptile.isa.wgmma import GroupShape
from warptile.isa.wmma import WmmaShape

REFUSED = "–"


@dataclass(frozen=True)
class Row:
    """Instructions of one shape that compile to the same machine code.

    Attributes:
        instruction: family, shape, kind, and modifiers; of wgmma, N stands for every n.
        operands: types that A and B have, in any combination.
        accumulators: type of D, and of C where it differs.
        cells: their machine code, in the order of `ARCHITECTURES`.
        names: of the instructions.
    """

    instruction: str
    operands: str
    accumulators: str
    cells: tuple[str, ...]
    names: tuple[str, ...]


def cell(outcome: Outcome) -> str:
    """An outcome in a few characters: ``2 IMMA*``, the star for other instructions that take part."""
    if outcome.status == "refused":
        return REFUSED
    count = sum(outcome.tensor.values())
    made = "/".join(sorted({re.split(r"\W", name)[0] for name in outcome.tensor})) or "none"
    return (f"{count} {made}" if count > 1 else made) + ("*" if outcome.status == "emulated" else "")


def rows(table: MachineCodeTable, instructions: Iterable[Multiplication]) -> tuple[Row, ...]:
    """The summary of ``instructions``, in their order."""
    found: dict[tuple[Shape, tuple[str, ...], str, tuple[str, ...]], list[Multiplication]] = {}
    for each in instructions:
        result, _, _, addend = each.types
        accumulators = result if result == addend else f"{result}, C {addend}"
        cells = tuple(cell(table.of(arch, each.name)) for arch in ARCHITECTURES)
        found.setdefault((each.shape, each.tags, accumulators, cells), []).append(each)
    summary = []
    for (shape, tags, accumulators, cells), same in found.items():
        used = {element for each in same for element in each.types[1:3]}
        if isinstance(shape, GroupShape):
            order, name = shape.family.types, shape.name.replace(f"n{shape.n}", "nN")
        else:
            order, name = (shape.type,) if isinstance(shape, WmmaShape) else shape.types, shape.name
        operands = ", ".join(element for element in order if element in used)
        instruction = ".".join((same[0].family, name, *tags))
        summary.append(Row(instruction, operands, accumulators, cells, tuple(each.name for each in same)))
    return tuple(summary)
