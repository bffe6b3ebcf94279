"""PTX as data classes: what the parser returns and the emulator executes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from warptile.errors import SourceLocation


@dataclass(frozen=True)
class Register:
    """A register by name, with its declared type (``"pred"``, ``"b32"``, ``"f32"``, ``"u64"``, ``"b128"`` ...)."""

    name: str
    type: str


@dataclass(frozen=True)
class SpecialRegister:
    """``%tid.x``, ``%laneid``, ``%clock64`` and the like, name with its component, without the percent sign."""

    name: str


@dataclass(frozen=True)
class Immediate:
    """A literal. ``bits`` is set for ``0f``/``0d`` literals: raw bits of ``width`` 32 or 64; ``value`` always is."""

    value: int | float
    bits: int | None = None
    width: int | None = None


@dataclass(frozen=True)
class Symbol:
    """The address of a variable, parameter or function, plus a constant number of bytes."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Address:
    """``[base + offset]``: base is a register, a variable, or None for an absolute address."""

    base: Register | Symbol | None
    offset: int = 0


@dataclass(frozen=True)
class TensorAddress:
    """``[base, {x, y}]``: a tensor map (or a texture) and the coordinates in it, innermost first."""

    base: Address
    coordinates: Vector


@dataclass(frozen=True)
class Vector:
    """``{a, b, c, d}``; an element ``_`` (a sink) is None."""

    elements: tuple[Operand | None, ...]


@dataclass(frozen=True)
class Negated:
    """``!%p``, as an operand of setp, selp and the like."""

    register: Register


@dataclass(frozen=True)
class Selected:
    """A byte or half of a 32-bit register, ``%r1.b2`` or ``%r1.h0``, in video instructions."""

    register: Register
    part: str


@dataclass(frozen=True)
class Paired:
    """``%p|%q``: the two destinations of setp, shfl, vote and the like; a sink is None."""

    first: Register | None
    second: Register | None


@dataclass(frozen=True)
class Sink:
    """``_`` as a whole destination."""


@dataclass(frozen=True)
class Label:
    """A branch target."""

    name: str


@dataclass(frozen=True)
class CallArguments:
    """``(a, b)`` in a call."""

    elements: tuple[Operand, ...]


Operand = (
    Register
    | SpecialRegister
    | Immediate
    | Symbol
    | Address
    | TensorAddress
    | Vector
    | Negated
    | Selected
    | Paired
    | Sink
    | Label
    | CallArguments
)


def parts_of(*operands: Operand | None) -> Iterator[Operand]:
    """Operands without those that hold others (vectors, pairs, addresses, lists of arguments), in order."""
    for operand in operands:
        if isinstance(operand, Vector | CallArguments):
            yield from parts_of(*operand.elements)
        elif isinstance(operand, Address):
            yield from parts_of(operand.base)
        elif isinstance(operand, TensorAddress):
            yield from parts_of(operand.base, operand.coordinates)
        elif isinstance(operand, Negated | Selected):
            yield operand.register
        elif isinstance(operand, Paired):
            yield from parts_of(operand.first, operand.second)
        elif operand is not None:
            yield operand


@dataclass(frozen=True)
class Inlined:
    """One step of the inline chain of a ``.loc``: the function and where it was called."""

    function: str
    file: str
    line: int


@dataclass(frozen=True)
class Instruction:
    """One PTX instruction, whole.

    ``ld.global.nc.v4.f32 {...}, [%rd1+16];`` has opcode ``"ld"`` and modifiers ``("global", "nc", "v4", "f32")``;
    sub-qualifiers keep their colons: ``("L1::no_allocate",)``.

    Attributes:
        opcode: text before the first dot.
        modifiers: the dotted rest, in order.
        operands: destination first, as written.
        predicate: guard register, or None.
        predicate_negated: the guard is ``@!p``.
        location: PTX line and CUDA line; of an inlined function, the line of its body.
        inlined: where that body was inlined, innermost first.
        text: the statement as written, without the semicolon, for messages.
    """

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    location: SourceLocation
    text: str
    predicate: Register | None = None
    predicate_negated: bool = False
    inlined: tuple[Inlined, ...] = ()

    def __str__(self) -> str:
        return self.text

    @cached_property
    def registers(self) -> tuple[Register, ...]:
        """The registers that its operands name, in order; the guard is none of them."""
        return tuple(each for each in parts_of(*self.operands) if isinstance(each, Register))


@dataclass(frozen=True)
class Variable:
    """A variable in a state space.

    Attributes:
        name: its symbol; unique in the module (local names are as the compiler mangled them).
        space: ``"shared"``, ``"global"``, ``"const"``, ``"local"`` or ``"param"``.
        type: element type, such as ``"b8"`` or ``"f32"``.
        alignment_bytes: from ``.align``, else the element's size.
        size_bytes: of the whole variable; 0 for an unsized ``extern`` array (dynamic shared memory).
        extern: declared ``.extern``.
        initializer: bytes it starts with, or None. Addresses of other symbols in it stand in ``relocations``.
        relocations: ``(byte offset, symbol, addend)``.
    """

    name: str
    space: str
    type: str
    alignment_bytes: int
    size_bytes: int
    extern: bool = False
    initializer: bytes | None = None
    relocations: tuple[tuple[int, str, int], ...] = ()


@dataclass(frozen=True)
class PtxFunction:
    """An ``.entry`` or a ``.func``.

    Attributes:
        name: symbol.
        entry: it is a kernel.
        parameters: in order, each a Variable in space ``"param"`` (of a .func possibly a Register instead).
        returns: of a .func.
        registers: every declared register by name.
        variables: shared, local and param variables declared in the body.
        body: instructions in order; None for a mere declaration (``.extern .func vprintf``).
        labels: name -> index into body (one past the end is legal).
        branch_targets: name of a ``.branchtargets``/``.calltargets`` list -> its labels.
        directives: performance directives such as ``{"maxntid": (256, 1, 1), "reqntid": ...}``.
        analyses: what was found out about it once, by whoever analyses it, for the launches that follow.
    """

    name: str
    entry: bool
    parameters: tuple[Variable | Register, ...]
    returns: tuple[Variable | Register, ...] = ()
    registers: dict[str, Register] = field(default_factory=dict)
    variables: tuple[Variable, ...] = ()
    body: tuple[Instruction, ...] | None = None
    labels: dict[str, int] = field(default_factory=dict)
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    analyses: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def symbols(self) -> dict[str, None]:
        """Variables and functions that its instructions name, in order."""
        operands = (each for instruction in self.body or () for each in instruction.operands)
        return dict.fromkeys(each.name for each in parts_of(*operands) if isinstance(each, Symbol))


@dataclass(frozen=True)
class PtxModule:
    """One PTX file.

    Attributes:
        version: such as ``(9, 0)``.
        target: such as ``"sm_90a"``.
        address_size: 64 (32-bit modules are refused).
        files: number of each ``.file`` -> its name.
        variables: module-scope variables.
        functions: by symbol, entries and others.
    """

    version: tuple[int, int]
    target: str
    address_size: int
    files: dict[int, str]
    variables: tuple[Variable, ...]
    functions: dict[str, PtxFunction]

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the kernels, in file order."""
        return tuple(name for name, function in self.functions.items() if function.entry)
