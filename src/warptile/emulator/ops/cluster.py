"""Cluster instructions: `mapa`, `getctarank` and `barrier.cluster`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from warptile.emulator.builders import Assembler, Modifiers, Operation, Source, builder, unknown
from warptile.emulator.lanes import Active
from warptile.emulator.memory.accesses import SHARED_WINDOW, WINDOW_BYTES
from warptile.emulator.memory.cluster_memory import Numbers
from warptile.errors import IllegalAddress
from warptile.ptx.instruction import Instruction, Operand
from warptile.ptx.variable import TYPE_BYTES


@dataclass(frozen=True)
class ClusterBarrierInstruction:
    """One `barrier.cluster` instruction.

    Attributes:
        waits: whether it waits for the others, or only arrives.
        aligned: all threads of a warp must execute it together.
        orders: whether an arrival releases what its thread has done (all but `.relaxed`). A wait always acquires.
    """

    waits: bool
    aligned: bool
    orders: bool = True


def parse_barrier(instruction: Instruction) -> ClusterBarrierInstruction:
    """Read `barrier.cluster.arrive{.release, .relaxed}{.aligned}` or `barrier.cluster.wait{.acquire}{.aligned}`."""
    modifiers = Modifiers(instruction)
    modifiers.need("cluster")
    waits = modifiers.need("arrive", "wait") == "wait"
    relaxed = modifiers.take("acquire") if waits else modifiers.take("release", "relaxed")
    aligned = modifiers.flag("aligned")
    modifiers.done()
    return ClusterBarrierInstruction(waits, aligned, relaxed != "relaxed")


@builder("mapa")
def build_map_address(instruction: Instruction, assembler: Assembler) -> Operation:
    """`mapa{.shared::cluster}.type d, a, rank`: where ``a`` lies in the CTA of that rank; generic without a space."""
    kind, generic = _form(instruction)
    target = assembler.destination(instruction.operands[0], kind)
    read = _shared_source(instruction, assembler, instruction.operands[1], kind, generic=generic)
    rank = assembler.source(instruction.operands[2], np.uint32)
    peers = assembler.machine.memory.peers
    base = SHARED_WINDOW if generic else 0

    def run(active: Active) -> None:
        target(active, (peers.map(instruction, active, read(active), rank(active)) + base).astype(kind))

    return Operation(run)


@builder("getctarank")
def build_rank(instruction: Instruction, assembler: Assembler) -> Operation:
    """`getctarank{.shared::cluster}.type d, a`: the rank of the CTA in whose shared memory ``a`` lies."""
    kind, generic = _form(instruction)
    target = assembler.destination(instruction.operands[0], np.uint32)
    read = _shared_source(instruction, assembler, instruction.operands[1], kind, generic=generic)
    peers = assembler.machine.memory.peers
    return Operation(lambda active: target(active, peers.ranks(instruction, active, read(active)).astype(np.uint32)))


def _form(instruction: Instruction) -> tuple[np.dtype[Any], bool]:
    """The type of the address, and whether it is generic."""
    modifiers = Modifiers(instruction)
    kind = np.dtype(f"u{TYPE_BYTES[modifiers.need('u32', 'u64')]}")
    generic = not modifiers.flag("shared::cluster")
    modifiers.done()
    if generic and kind.itemsize != 8:
        raise unknown(instruction, "a generic address has 64 bits: .u64, or .shared::cluster")
    return kind, generic


def _shared_source(
    instruction: Instruction,
    assembler: Assembler,
    operand: Operand,
    kind: np.dtype[Any],
    *,
    generic: bool,
) -> Source:
    """Addresses in the shared window, one per active lane, from such addresses or from generic ones."""
    read = assembler.source(operand, kind)
    memory = assembler.machine.memory

    def shared(active: Active) -> Numbers:
        addresses = np.broadcast_to(read(active), active.count).astype(np.int64)
        if not generic:
            return addresses
        outside = (addresses < SHARED_WINDOW) | (addresses >= SHARED_WINDOW + WINDOW_BYTES)
        if outside.any():
            first = int(np.argmax(outside))
            raise IllegalAddress(
                f"{instruction.text}: {memory.thread(active.lanes[first])} gives {addresses[first]:#x}, which is no "
                "generic address of shared memory",
                kernel=memory.kernel,
                location=instruction.location,
                fix="give it the address of a __shared__ variable",
            )
        return addresses - SHARED_WINDOW

    return shared
