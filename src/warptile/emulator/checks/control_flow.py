"""Where a PTX instruction leads, and the registers that its operands name."""

from __future__ import annotations

from warptile.ptx.instruction import Instruction, Label, PtxFunction, Register, Symbol, parts_of


def targets(function: PtxFunction, last: Instruction) -> list[int]:
    """Where a branch leads; one past the end of the function for ``ret`` and ``exit``."""
    if last.opcode in ("ret", "exit"):
        return [len(function.body or ())]
    if last.opcode not in ("bra", "brx"):
        return []
    labels = [each.name for each in last.operands if isinstance(each, Label | Symbol)]
    if last.opcode == "brx":
        labels = [each for name in labels for each in function.branch_targets.get(name, ())]
    return [function.labels[name] for name in labels if name in function.labels]


def named_registers(instruction: Instruction, start: int, end: int | None) -> set[str]:
    """Registers in some of its operands."""
    return {each.name for each in parts_of(*instruction.operands[start:end]) if isinstance(each, Register)}
