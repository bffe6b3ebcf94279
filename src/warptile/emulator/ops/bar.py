"""`bar` and `barrier` (PTX ISA, "bar, barrier"); `sync.cta_barriers` keeps the arrivals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warptile.emulator.builders import Assembler, Destination, Modifiers, Source, unknown
from warptile.ptx.instruction import Immediate, Instruction


@dataclass(frozen=True)
class BarInstruction:
    """One barrier instruction.

    Attributes:
        mode: ``"sync"`` (wait), ``"arrive"`` (go on), or ``"popc"``, ``"and"``, ``"or"`` (wait and reduce).
        aligned: all threads of a warp must execute it together.
        identifier: reads the barrier's number, 0 to 15.
        threads: reads how many threads take part; None for all of the CTA.
        predicate: what a reduction reduces.
        result: where its result goes.
        warp_mask: for `bar.warp.sync`, reads the member mask; nothing else is then set.
    """

    mode: str
    aligned: bool
    identifier: Source
    threads: Source | None = None
    predicate: Source | None = None
    result: Destination | None = None
    warp_mask: Source | None = None


def parse(instruction: Instruction, assembler: Assembler) -> BarInstruction:
    """Read a `bar.*` or `barrier.*` instruction; `barrier.cluster` is another (`ops.cluster`)."""
    modifiers = Modifiers(instruction)
    operands = list(instruction.operands)
    zero = assembler.source(Immediate(0), np.uint32)
    if modifiers.flag("warp"):
        modifiers.need("sync")
        modifiers.done()
        return BarInstruction("warp", False, zero, warp_mask=assembler.source(operands[0], np.uint32))
    modifiers.flag("cta")
    mode = modifiers.need("sync", "arrive", "red")
    aligned = instruction.opcode == "bar"
    if modifiers.flag("aligned"):
        aligned = True
    result = predicate = None
    if mode == "red":
        mode = modifiers.need("popc", "and", "or")
        kind = modifiers.need("u32", "pred")
        result = assembler.destination(operands.pop(0), np.uint32 if kind == "u32" else np.bool_)
        predicate = assembler.source(operands.pop(), np.bool_)
    modifiers.done()
    if not 1 <= len(operands) <= 2:
        raise unknown(instruction, "takes a barrier number and, at most, a thread count")
    threads = assembler.source(operands[1], np.uint32) if len(operands) == 2 else None
    return BarInstruction(mode, aligned, assembler.source(operands[0], np.uint32), threads, predicate, result)
