"""``ldmatrix``, ``stmatrix`` and ``movmatrix``: 8x8 matrices of 16-bit elements between shared memory and fragments.

Of a matrix in registers, lane L holds row L / 4, columns 2 (L % 4) and the next, in one 32-bit register. In memory
each of its rows is 16 bytes long at an address of its own: lane 8 m + i of the warp gives that of row i of matrix m.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from warptile.emulator.builders import Assembler, Modifiers, Operation, builder, unknown
from warptile.emulator.lanes import WARP, Active, Array
from warptile.emulator.memory.accesses import SHARED_WINDOW, WINDOW_BYTES
from warptile.emulator.ops.load_store import address_source
from warptile.errors import IllegalAddress
from warptile.isa.matrix_move import ROW_BYTES, find
from warptile.ptx.instruction import Instruction

MATRIX_ROWS = 8
_COUNTS = {"x1": 1, "x2": 2, "x4": 4}


def _transposed(words: Array) -> Array:
    """Matrices in registers, (..., 32) words of two 16-bit elements, transposed."""
    elements = np.ascontiguousarray(words).view(np.uint16).reshape(*words.shape[:-1], MATRIX_ROWS, MATRIX_ROWS)
    return np.ascontiguousarray(elements.swapaxes(-1, -2)).view(np.uint32).reshape(words.shape)


def _begin(instruction: Instruction, assembler: Assembler) -> Modifiers:
    """Take what all three have in common, and check the architecture."""
    modifiers = Modifiers(instruction)
    modifiers.need("sync")
    modifiers.need("aligned")
    modifiers.need("m8n8")
    modifiers.need("b16")
    form, capability = find(instruction.opcode), assembler.machine.arch_capability
    assert form is not None
    if capability < form.capability:
        raise unknown(instruction, f"{instruction.opcode} needs sm_{form.capability}, this machine is sm_{capability}")
    return modifiers


class _Rows:
    """The rows in shared memory that one ``ldmatrix`` or ``stmatrix`` addresses."""

    def __init__(self, instruction: Instruction, assembler: Assembler, operand: Any, space: str, matrices: int) -> None:
        self.instruction = instruction
        self.machine = assembler.machine
        self.matrices = matrices
        self.generic = space == "generic"
        self.address, _ = address_source(assembler, operand, space)

    def of(self, active: Active) -> tuple[Active, Array]:
        """The lanes that give an address, and their offsets into shared memory."""
        addresses = self.address(active)
        if self.matrices * MATRIX_ROWS < WARP:
            addressing = np.arange(active.count) % WARP < self.matrices * MATRIX_ROWS
            active, addresses = active.where(addressing), addresses[addressing]
        if self.generic:
            outside = (addresses < SHARED_WINDOW) | (addresses >= SHARED_WINDOW + WINDOW_BYTES)
            if outside.any():
                first = int(np.argmax(outside))
                thread = self.machine.memory.thread(active.lanes[first])
                raise IllegalAddress(
                    f"{self.instruction.text}: {thread} accesses {int(addresses[first]):#x}, "
                    "which is not in shared memory",
                    kernel=self.machine.kernel,
                    location=self.instruction.location,
                    fix="give it an address of shared memory, such as __cvta_generic_to_shared(&tile[row][column])",
                )
            addresses = addresses - SHARED_WINDOW
        return active, addresses

    def count(self, lanes: Active, addresses: Array, *, write: bool) -> None:
        """One request a warp, a pass for each matrix."""
        self.machine.count.access_shared(
            self.instruction, lanes, addresses, ROW_BYTES, write=write, pass_lanes=MATRIX_ROWS
        )


def _rows(instruction: Instruction, assembler: Assembler, operand: Any, registers: Any) -> tuple[_Rows, bool]:
    """What is addressed, and whether the matrices are transposed on the way."""
    modifiers = _begin(instruction, assembler)
    matrices = _COUNTS[modifiers.need(*_COUNTS)]
    transposes = modifiers.flag("trans")
    space = "shared" if modifiers.take("shared", "shared::cta") else "generic"
    modifiers.done()
    given = len(getattr(registers, "elements", (registers,)))
    if given != matrices:
        raise unknown(instruction, f"moves {matrices} registers of each lane where {given} are given")
    return _Rows(instruction, assembler, operand, space, matrices), transposes


@builder("ldmatrix")
def build_load_matrix(instruction: Instruction, assembler: Assembler) -> Operation:
    """`ldmatrix.sync.aligned.m8n8.{x1,x2,x4}{.trans}{.shared}.b16 r, [p]`."""
    registers, operand = instruction.operands
    rows, transposes = _rows(instruction, assembler, operand, registers)
    targets = assembler.destinations(registers, np.uint32)
    memory = assembler.machine.memory

    def load(active: Active) -> None:
        lanes, addresses = rows.of(active)
        raw = memory.load(instruction, lanes, "shared", addresses, ROW_BYTES)
        rows.count(lanes, addresses, write=False)
        words = np.ascontiguousarray(raw).view(np.uint32).reshape(-1, rows.matrices, WARP)
        if transposes:
            words = _transposed(words)
        for matrix, target in enumerate(targets):
            target(active, words[:, matrix].ravel())

    return Operation(load, "warp")


@builder("stmatrix")
def build_store_matrix(instruction: Instruction, assembler: Assembler) -> Operation:
    """`stmatrix.sync.aligned.m8n8.{x1,x2,x4}{.trans}{.shared}.b16 [p], r`."""
    operand, registers = instruction.operands
    rows, transposes = _rows(instruction, assembler, operand, registers)
    sources = assembler.sources(registers, np.uint32)
    machine = assembler.machine

    def store(active: Active) -> None:
        lanes, addresses = rows.of(active)
        words = np.empty((active.count // WARP, rows.matrices, WARP), dtype=np.uint32)
        for matrix, source in enumerate(sources):
            words[:, matrix] = np.broadcast_to(source(active), active.count).reshape(-1, WARP)
        if transposes:
            words = _transposed(words)
        machine.last_effect = machine.steps
        machine.memory.store(instruction, lanes, "shared", addresses, words.view(np.complex128).reshape(-1), ROW_BYTES)
        rows.count(lanes, addresses, write=True)

    return Operation(store, "warp")


@builder("movmatrix")
def build_move_matrix(instruction: Instruction, assembler: Assembler) -> Operation:
    """`movmatrix.sync.aligned.m8n8.trans.b16 d, a`: the matrix of a register, transposed."""
    modifiers = _begin(instruction, assembler)
    modifiers.need("trans")
    modifiers.done()
    target = assembler.destination(instruction.operands[0], np.uint32)
    source = assembler.source(instruction.operands[1], np.uint32)

    def move(active: Active) -> None:
        words = np.broadcast_to(source(active), active.count).reshape(-1, WARP)
        target(active, _transposed(words).ravel())

    return Operation(move, "warp")
