"""Loops over the lanes of one routine's registers and of constants: what translations of instructions are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from warptile.emulator.builders import immediate_array
from warptile.emulator.compiled_steps.elementwise import OPERATIONS
from warptile.emulator.lanes import Array
from warptile.emulator.machine import CLOCK_NAMES, Machine
from warptile.ptx.instruction import (
    Immediate,
    Negated,
    Operand,
    Register,
    SpecialRegister,
    Symbol,
)

_DTYPES: dict[str, np.dtype[Any]] = {
    "i1": np.dtype(np.bool_), "i16": np.dtype(np.uint16), "i32": np.dtype(np.uint32), "i64": np.dtype(np.uint64),
    "float": np.dtype(np.float32), "double": np.dtype(np.float64),
}  # fmt: skip


_FORMS = {name: frozenset(operation.forms()) for name, operation in OPERATIONS.items()}


class Untranslated(Exception):
    """An instruction that is left to the interpreter."""


@dataclass(frozen=True)
class Loop:
    """One loop of `elementwise` and the words of its operands, the written register first."""

    name: str
    operands: tuple[int, ...]


@dataclass(frozen=True)
class LoopSource:
    """A source: the address of a register, or the bits of a constant."""

    letter: str
    word: int


def address_of(array: Array) -> int:
    """Where the elements of an array start."""
    start: int = array.__array_interface__["data"][0]
    return start


class LoopBuilder:
    """Makes the loops of one instruction of the routine whose registers ``machine`` has.

    Attributes:
        loops: in order.
        machine: what is emulated.

    Args:
        machine: with the registers and the frame of the routine.
        scratch: registers for values within an instruction, by type.
    """

    def __init__(self, machine: Machine, scratch: dict[str, Array]) -> None:
        self.machine = machine
        self._scratch = scratch
        self.loops: list[Loop] = []

    # -- operands ----------------------------------------------------------------------------------------------------

    def source(self, operand: Operand | None, kind: str) -> LoopSource:
        """A source of LLVM's type ``kind``."""
        dtype = _DTYPES[kind]
        if isinstance(operand, Immediate):
            raw = immediate_array(operand, dtype).view(np.uint8).tobytes()
            return LoopSource("c", int.from_bytes(raw, "little"))
        if isinstance(operand, Symbol) and kind in ("i32", "i64"):
            found = self.machine.addresses_of(operand.name, operand.offset)
            if len(found) == 1:
                return LoopSource("c", int(found[0]) & ((1 << 8 * dtype.itemsize) - 1))
        if isinstance(operand, Negated) and kind == "i1":
            plain = self.machine.registers.array(operand.register)
            temporary = self._temporary(f"not {operand.register.name}", kind)
            self.loops.append(Loop("not.i1:r", (temporary, address_of(plain))))
            return LoopSource("r", temporary)
        array = None
        if isinstance(operand, Register):
            array = self.machine.registers.array(operand)
        elif isinstance(operand, SpecialRegister) and operand.name not in CLOCK_NAMES:
            array = self.machine.special(operand.name)
        return LoopSource("r", self._register(array, kind))

    def target(self, operand: Operand | None, kind: str) -> int:
        """The address of a written register of exactly the bytes of ``kind``."""
        return self._register(self.machine.registers.array(operand) if isinstance(operand, Register) else None, kind)

    def _register(self, array: Array | None, kind: str) -> int:
        if array is None or array.ndim != 1 or array.dtype.itemsize != _DTYPES[kind].itemsize:
            raise Untranslated
        if (array.dtype == np.bool_) != (kind == "i1"):
            raise Untranslated
        return address_of(array)

    def _temporary(self, name: str, kind: str) -> int:
        array = self._scratch.get(f"{name} {kind}")
        if array is None:
            dtype = _DTYPES[kind]
            array = self._scratch[f"{name} {kind}"] = np.zeros(self.machine.geometry.lanes, dtype)
        return address_of(array)

    # -- loops -------------------------------------------------------------------------------------------------------

    def put(self, name: str, target: int, *sources: LoopSource) -> None:
        """Add a loop."""
        form = "".join(source.letter for source in sources)
        if form not in _FORMS[name]:
            raise Untranslated
        self.loops.append(Loop(f"{name}:{form}", (target, *(source.word for source in sources))))

    def put_commuting(self, name: str, target: int, first: LoopSource, second: LoopSource, *rest: LoopSource) -> None:
        """Add a loop whose first two sources commute: constants come second."""
        if first.letter == "c":
            first, second = second, first
        self.put(name, target, first, second, *rest)

    def put_at(self, name: str, target: Operand | None, kind: str, *sources: LoopSource) -> None:
        """Add a loop that writes an operand."""
        self.put(name, self.target(target, kind), *sources)

    def step(self, name: str, place: str, kind: str, *sources: LoopSource) -> LoopSource:
        """Add a loop that writes a temporary register."""
        target = self._temporary(place, kind)
        self.put(name, target, *sources)
        return LoopSource("r", target)

    def constant(self, value: int) -> LoopSource:
        """A constant source."""
        return LoopSource("c", value & (1 << 64) - 1)
