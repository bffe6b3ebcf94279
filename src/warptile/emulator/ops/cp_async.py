"""`cp.async` and its groups (PTX ISA, "Data Movement and Conversion Instructions: cp.async")."""

from __future__ import annotations

import numpy as np

from warptile.emulator.builders import Assembler, Modifiers, Operation, builder, unknown
from warptile.emulator.lanes import Active
from warptile.emulator.ops import bulk_copy
from warptile.emulator.ops.load_store import address_source, take_access_hints
from warptile.emulator.ops.mbarrier import take_place
from warptile.ptx.instruction import Immediate, Instruction, Register


@builder("cp")
def build_copy(instruction: Instruction, assembler: Assembler) -> Operation:
    """`cp.async.{ca,cg}.shared.global`, `.commit_group`, `.wait_group` and `.wait_all`."""
    modifiers = Modifiers(instruction)
    if "bulk" in modifiers.rest:
        return bulk_copy.build(instruction, assembler, modifiers)
    modifiers.need("async")
    if modifiers.flag("mbarrier"):
        return _build_arrive(instruction, assembler, modifiers)
    copies = assembler.machine.copies
    if modifiers.flag("commit_group"):
        modifiers.done()
        return Operation(copies.commit)
    if modifiers.flag("wait_all"):
        modifiers.done()
        return Operation(lambda active: copies.wait(active, None))
    if modifiers.flag("wait_group"):
        modifiers.done()
        operand = instruction.operands[0]
        if not isinstance(operand, Immediate):
            raise unknown(instruction, "the number of groups must be a constant")
        keep = int(operand.value)
        return Operation(lambda active: copies.wait(active, keep))
    return _build_issue(instruction, assembler, modifiers)


def _build_arrive(instruction: Instruction, assembler: Assembler, modifiers: Modifiers) -> Operation:
    """`cp.async.mbarrier.arrive{.noinc} [addr]`."""
    modifiers.need("arrive")
    increment = not modifiers.flag("noinc")
    modifiers.need("b64")
    place = take_place(assembler, instruction, modifiers, instruction.operands[0], own=True)
    modifiers.done()
    machine = assembler.machine

    def arrive(active: Active) -> None:
        machine.last_effect = machine.steps
        offsets = place.offsets(active)
        if machine.memory.races is not None:
            machine.memory.races.mbarrier(instruction, active, offsets)
        machine.copies.arrive(instruction, active, offsets, increment=increment)

    return Operation(arrive)


def _build_issue(instruction: Instruction, assembler: Assembler, modifiers: Modifiers) -> Operation:
    cache = modifiers.need("ca", "cg")
    modifiers.need("shared", "shared::cta")
    modifiers.need("global")
    hinted = take_access_hints(modifiers)
    modifiers.done()
    target, _ = address_source(assembler, instruction.operands[0], "shared")
    source, _ = address_source(assembler, instruction.operands[1], "global")
    size_operand = instruction.operands[2]
    if not isinstance(size_operand, Immediate) or int(size_operand.value) not in (
        (4, 8, 16) if cache == "ca" else (16,)
    ):
        raise unknown(instruction, "copies 4, 8 or 16 bytes (.ca) or 16 (.cg)")
    size = int(size_operand.value)
    rest = list(instruction.operands[3:])
    if hinted:
        rest.pop()  # the cache policy
    machine = assembler.machine
    whole = np.array([size], dtype=np.int64)
    read_size = None
    ignore = None
    if rest:
        operand = rest[0]
        if isinstance(operand, Register) and operand.type == "pred":
            ignore = assembler.source(operand, np.bool_)
        else:
            read_size = assembler.source(operand, np.uint32)

    def issue(active: Active) -> None:
        given = whole
        if read_size is not None:
            given = read_size(active).astype(np.int64)
            if int(given.max()) > size:
                raise unknown(instruction, f"source size {int(given.max())} is larger than the copy of {size} bytes")
        elif ignore is not None:
            given = np.where(ignore(active), 0, size)
        source_bytes = np.broadcast_to(given, active.count)
        sources = source(active)
        targets = target(active)
        machine.copies.issue(instruction, active, targets, sources, source_bytes, size)
        machine.count.copy_async(
            instruction, active, sources, targets, size, reads=source_bytes > 0, bypasses_l1=cache == "cg"
        )

    return Operation(issue)
