"""`st.async` and `red.async` (PTX ISA, "Data Movement": st.async; "Parallel Synchronization": red.async)."""

from __future__ import annotations

import numpy as np

from warptile.emulator.arithmetic.memory_updates import MemoryUpdate
from warptile.emulator.async_ops.remote_stores import RemoteStore
from warptile.emulator.builders import Assembler, Modifiers, Operation, builder, unknown
from warptile.emulator.lanes import Active
from warptile.emulator.ops.load_store import VECTOR, address_source, vector_source
from warptile.emulator.ops.mbarrier import by_offset, take_place
from warptile.errors import MbarrierMisuse
from warptile.ptx.instruction import Instruction
from warptile.ptx.variable import TYPE_BYTES

_STORED = ("b32", "b64", "u32", "u64", "s32", "s64", "f32", "f64")
_REDUCED = {"inc": "u32", "dec": "u32", "min": "u32 s32", "max": "u32 s32", "add": "u32 s32 u64 s64", "and": "b32",
            "or": "b32", "xor": "b32"}  # fmt: skip


@builder("st.async", "red.async")
def build_remote_store(instruction: Instruction, assembler: Assembler) -> Operation:
    """`st.async{.weak}{.shared::cluster}.mbarrier::complete_tx::bytes{.vec}.type [a], b, [mbar]`, `red.async` alike."""
    modifiers = Modifiers(instruction)
    type_name = modifiers.last()
    modifiers.need("async")
    modifiers.need("mbarrier::complete_tx::bytes")
    if instruction.opcode == "red":
        name = modifiers.need(*_REDUCED)
        modifiers.need("relaxed")
        modifiers.need("cluster")
        if type_name not in _REDUCED[name].split():
            raise unknown(instruction, f".{name} has no type .{type_name}")
        count, reduction = 1, MemoryUpdate(name, type_name)
    else:
        modifiers.flag("weak")
        count, reduction = VECTOR.get(modifiers.take("v2", "v4") or "", 1), None
        if type_name not in _STORED:
            raise unknown(instruction, f"cannot store .{type_name}")
    size = TYPE_BYTES[type_name] * count
    if size > 16:
        raise unknown(instruction, f"{count} elements of .{type_name} are more than 16 bytes")
    to, value, barrier = instruction.operands
    space = "shared" if "shared::cluster" in modifiers.rest else "generic"
    place = take_place(assembler, instruction, modifiers, barrier)
    modifiers.done()
    address, space = address_source(assembler, to, space)
    pack = vector_source(assembler, value, TYPE_BYTES[type_name], count)
    machine = assembler.machine

    def run(active: Active) -> None:
        memory = machine.memory
        machine.last_effect = machine.steps
        where, offsets = memory.resolve(instruction, active, space, address(active), size)
        barriers = place.offsets(active)
        apart = offsets // memory.shared_stride != barriers // memory.shared_stride
        if where is not memory.shared_space or apart.any():
            thread = memory.thread(active.lanes[int(np.argmax(apart))])
            raise MbarrierMisuse(
                f"{instruction.text}: {thread} names a place and an mbarrier that are not in the shared memory of one "
                "CTA",
                kernel=memory.kernel,
                location=instruction.location,
            )
        (words,) = pack(active)
        for offset, chosen in by_offset(barriers):
            lanes = active.lanes[chosen]
            machine.remote_stores.issue(
                RemoteStore(instruction, lanes, offsets[chosen], np.array(words[chosen]), size, offset, reduction)
            )

    return Operation(run)
