"""Builds the Python function over lanes that executes a PTX instruction.

Each opcode has one builder, registered with `builder`. A builder looks at the instruction once, takes every modifier
it understands from a `Modifiers` (what is left over raises), asks the `Assembler` for its operands as functions,
and returns an `Operation`. Executing is then only array arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.lanes import REGISTER_BYTES, Active, Array
from warptile.errors import UnknownInstruction
from warptile.ptx.instruction import (
    Immediate,
    Instruction,
    Negated,
    Operand,
    Register,
    Sink,
    SpecialRegister,
    Symbol,
    Vector,
)

if TYPE_CHECKING:
    from warptile.emulator.machine import Machine

_UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}

Source = Callable[[Active], Array]
"""Reads an operand for the active lanes: an array of ``active.count`` elements, or of one (an immediate: broadcast it).

It may be a view of the register itself: compute from it before writing any destination, and never write into it."""

Destination = Callable[[Active, Array], None]
"""Writes one value per active lane (or one value for all) to an operand."""

Run = Callable[[Active], None]


class Operation(NamedTuple):
    """An instruction that is ready to run: what a builder returns.

    Attributes:
        run: executes the instruction for the active lanes. Never called with none.
        collective: None for an ordinary instruction; ``"warp"`` when all 32 lanes of each warp must be here
            together (``.aligned``): `run` is then only called with whole warps; ``"mask"`` when each lane waits for
            the lanes that its `mask` names.
        mask: for ``"mask"``, reads the 32-bit member mask.
        wait: of an instruction that may block, what is run in the place of `run` (a `Blocking`).
    """

    run: Run
    collective: str | None = None
    mask: Source | None = None
    wait: Blocking | None = None


class Blocking(Protocol):
    """An instruction at which lanes may block, as the scheduler runs it."""

    def run(self, active: Active, position: int) -> NDArray[np.bool_]:
        """Execute it at ``position``; which lanes go on. The others are woken by whom they wait for."""


Builder = Callable[[Instruction, "Assembler"], Operation]
B = TypeVar("B", bound=Builder)

BUILDERS: dict[str, Builder] = {}
"""Every opcode that the emulator knows."""


def builder(*opcodes: str) -> Callable[[B], B]:
    """Register a builder for the given opcodes."""

    def register(function: B) -> B:
        for opcode in opcodes:
            assert opcode not in BUILDERS, opcode
            BUILDERS[opcode] = function
        return function

    return register


def unknown(instruction: Instruction, why: str) -> UnknownInstruction:
    """The error for an instruction that the emulator does not know."""
    return UnknownInstruction(f"{instruction.text}: {why}", location=instruction.location)


def built_when_executed(machine: Machine, build: Callable[[], Run]) -> Run:
    """What ``build`` returns, which is called when that is first executed, with the function's registers and variables
    of now: in many launches most of a kernel is not executed."""
    of_function = machine.registers, machine.frame, machine.shifts
    built: Run | None = None

    def run(active: Active) -> None:
        nonlocal built
        if built is None:
            before = machine.registers, machine.frame, machine.shifts
            machine.registers, machine.frame, machine.shifts = of_function
            try:
                built = build()
            finally:
                machine.registers, machine.frame, machine.shifts = before
        built(active)

    return run


class Modifiers:
    """The modifiers of one instruction, taken one by one; `done` raises if any is left.

    >>> m = Modifiers(instruction)          # add.rn.ftz.f32
    >>> m.take("rn", "rz", "rm", "rp")      # "rn"; None when there is none of them
    >>> m.flag("ftz")                       # True
    >>> m.last()                            # "f32"
    >>> m.done()
    """

    def __init__(self, instruction: Instruction) -> None:
        self.instruction = instruction
        self.rest = list(instruction.modifiers)

    def take(self, *choices: str) -> str | None:
        """Remove and return the first of the remaining modifiers that is one of ``choices``."""
        for modifier in self.rest:
            if modifier in choices:
                self.rest.remove(modifier)
                return modifier
        return None

    def need(self, *choices: str) -> str:
        """Like `take`, but one of them must be there."""
        found = self.take(*choices)
        if found is None:
            raise unknown(self.instruction, f"needs one of .{', .'.join(choices)}")
        return found

    def flag(self, name: str) -> bool:
        """Remove ``name`` if it is there, and say whether it was."""
        return self.take(name) is not None

    def last(self) -> str:
        """Remove and return the last remaining modifier: usually the type."""
        if not self.rest:
            raise unknown(self.instruction, "has no type")
        return self.rest.pop()

    def done(self) -> None:
        """Raise UnknownInstruction if any modifier was not taken."""
        if self.rest:
            raise unknown(self.instruction, f"unknown modifier .{'.'.join(self.rest)}")


class Assembler:
    """Gives a builder the machine, and an instruction's operands as functions of the active lanes.

    ``reads`` and ``writes`` are the names of the registers that were asked for: what the instruction does to them.

    Attributes:
        moves_undefined_bits: operands and results are not values, but which of their bits are undefined.
    """

    moves_undefined_bits = False

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.reads: list[str] = []
        self.writes: list[str] = []

    def source(self, operand: Operand, dtype: Any) -> Source:
        """Read ``operand`` as ``dtype``. A register wider than the type gives its low bits; bool reads a predicate.

        Immediates are arrays of one element, and so are most addresses of symbols. A narrower register is an error of
        the PTX.
        """
        wanted = np.dtype(dtype)
        if isinstance(operand, Register):
            self.reads.append(operand.name)
            registers = self.machine.registers
            reader = registers.readers.get((operand.name, wanted))
            if reader is None:
                reader = _low_reader(operand, registers.array(operand), wanted)
                registers.readers[operand.name, wanted] = reader
            return reader
        if isinstance(operand, Negated):
            self.reads.append(operand.register.name)
            plain = self.machine.registers.array(operand.register)
            return lambda active: ~plain[active.index]
        if isinstance(operand, SpecialRegister):
            return _low_reader(operand, self.machine.special(operand.name), wanted)
        if isinstance(operand, Immediate):
            constant = immediate_array(operand, wanted)
        elif isinstance(operand, Symbol):
            shift = self.machine.shifts.get(operand.name)
            if shift is not None:
                start = self.machine.address_of(operand.name) + operand.offset
                return lambda active: (shift[active.index] + start).astype(wanted)
            constant = self.machine.addresses_of(operand.name, operand.offset).astype(wanted)
            if len(constant) > 1:
                return _reader(constant)
        else:
            raise UnknownInstruction(f"operand {operand} cannot be read as a value")
        return lambda active: constant

    def destination(self, operand: Operand, dtype: Any) -> Destination:
        """Write ``dtype`` values to ``operand``; in a wider register they are sign- or zero-extended by their type."""
        written = np.dtype(dtype)
        if isinstance(operand, Sink):
            return lambda active, values: None
        if not isinstance(operand, Register):
            raise UnknownInstruction(f"operand {operand} cannot be written")
        self.writes.append(operand.name)
        known = self.machine.registers.writers
        writer = known.get((operand.name, written))
        if writer is None:
            writer = known[operand.name, written] = self._writer(operand, written)
        return writer

    def _writer(self, operand: Register, written: np.dtype[Any]) -> Destination:
        array = self.machine.registers.array(operand)
        if array.dtype == np.bool_:
            if written != np.bool_:
                raise UnknownInstruction(f"predicate {operand.name} cannot hold {written.name}")
        elif array.dtype.itemsize > written.itemsize:
            wide = np.dtype(f"{'i' if written.kind == 'i' else 'u'}{array.dtype.itemsize}")
            target = array.view(wide)
            if written.kind == "f":
                bits = np.dtype(f"u{written.itemsize}")

                def write_float(active: Active, values: Array) -> None:
                    target[active.index] = np.asarray(values, dtype=written).view(bits)

                return write_float

            def write_wide(active: Active, values: Array) -> None:
                target[active.index] = values

            return write_wide
        elif array.dtype.itemsize < written.itemsize:
            raise UnknownInstruction(f"register {operand.name} is narrower than {written.name}")
        view = array.view(written)

        def write(active: Active, values: Array) -> None:
            view[active.index] = values

        return write

    def wide(self, operand: Operand, *, written: bool = False) -> Array:
        """The storage of a .b128 register that is read, or ``written``: (lanes, 2) uint64."""
        if not isinstance(operand, Register) or operand.type != "b128":
            raise UnknownInstruction(f"operand {operand}: 128 bits live in a .b128 register")
        (self.writes if written else self.reads).append(operand.name)
        return self.machine.registers.array(operand)

    def sources(self, operand: Operand, dtype: Any) -> list[Source]:
        """The elements of a vector operand (or the one operand)."""
        elements: Iterable[Operand | None] = operand.elements if isinstance(operand, Vector) else (operand,)
        return [self.source(element, dtype) for element in elements if element is not None]

    def destinations(self, operand: Operand, dtype: Any) -> list[Destination]:
        """The elements of a vector destination (or the one); a sink element takes anything."""
        elements: Iterable[Operand | None] = operand.elements if isinstance(operand, Vector) else (operand,)
        return [self.destination(Sink() if element is None else element, dtype) for element in elements]

    def width(self, operand: Operand) -> int | None:
        """Bytes of a register operand; None for anything else."""
        return REGISTER_BYTES.get(operand.type) if isinstance(operand, Register) else None


def _reader(view: Array) -> Source:
    """Reads the active lanes of a register: a view of it for a run of lanes, else a copy."""

    def read(active: Active) -> Array:
        index = active.index
        return view[index] if isinstance(index, slice) else view.take(index)  # take: a third of the time of view[index]

    return read


def _low_reader(operand: Register | SpecialRegister, array: Array, wanted: np.dtype[Any]) -> Source:
    """Reads a register as ``wanted``, its low part where it is wider."""
    view = _low_part(array, wanted)
    if view is None:
        raise UnknownInstruction(f"operand {operand.name} is narrower than {wanted.name}")
    return _reader(view)


def _low_part(array: Array, wanted: np.dtype[Any]) -> Array | None:
    """``array`` reinterpreted as ``wanted``: its low part where it is wider (lanes stay the first axis)."""
    if array.dtype == wanted:
        return array
    if array.dtype == np.bool_ or wanted == np.bool_ or array.dtype.itemsize < wanted.itemsize:
        return None
    ratio = array.dtype.itemsize // wanted.itemsize
    return array.view(wanted)[::ratio]


def immediate_array(operand: Immediate, wanted: np.dtype[Any]) -> Array:
    """A literal as an array of one element of type ``wanted``: 0f/0d literals by their bits or by their value."""
    if operand.bits is not None and operand.width is not None:
        raw = np.array([operand.bits], dtype=f"u{operand.width // 8}")
        if wanted.itemsize * 8 == operand.width:
            return raw.view(wanted)
        value = raw.view(f"f{operand.width // 8}")
        return value.astype(wanted)
    if wanted == np.bool_:
        return np.array([bool(operand.value)])
    if wanted.kind == "f":
        return np.array([operand.value], dtype=wanted)
    mask = (1 << (8 * wanted.itemsize)) - 1
    return np.array([int(operand.value) & mask], dtype=_UNSIGNED[wanted.itemsize]).view(wanted)
