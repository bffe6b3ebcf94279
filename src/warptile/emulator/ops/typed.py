"""Builders that differ by the type of the instruction, and the shapes that most of them share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from warptile.emulator.builders import Assembler, B, Builder, Operation, builder, unknown
from warptile.emulator.lanes import Active, Array
from warptile.ptx.instruction import Instruction

INTEGERS: dict[str, np.dtype[Any]] = {
    f"{kind}{bits}": np.dtype(f"{'i' if kind == 's' else 'u'}{bits // 8}") for kind in "usb" for bits in (8, 16, 32, 64)
}
"""NumPy's type of every integer and untyped scalar of PTX."""

FLOATS: dict[str, np.dtype[Any]] = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}
"""NumPy's type of the floats that it computes in itself."""

_BY_TYPE: dict[str, dict[str, Builder]] = {}


def typed(opcodes: str, types: str) -> Callable[[B], B]:
    """Register a builder for the given opcodes when the last type among their modifiers is one of those given.

    >>> @typed("add sub", "u32 s32")
    ... def integer_sum(instruction, assembler): ...
    """

    def register(function: B) -> B:
        for opcode in opcodes.split():
            if opcode not in _BY_TYPE:
                _BY_TYPE[opcode] = {}
                builder(opcode)(_dispatch)
            for kind in types.split():
                assert kind not in _BY_TYPE[opcode], (opcode, kind)
                _BY_TYPE[opcode][kind] = function
        return function

    return register


def _dispatch(instruction: Instruction, assembler: Assembler) -> Operation:
    table = _BY_TYPE[instruction.opcode]
    for kind in reversed(instruction.modifiers):  # the type is the last, but for ``max.s32.relu``
        found = table.get(kind)
        if found is not None:
            return found(instruction, assembler)
    raise unknown(instruction, f"{instruction.opcode} takes one of the types .{', .'.join(table)}")


def elementwise(
    instruction: Instruction,
    assembler: Assembler,
    function: Callable[..., Array],
    result: Any,
    *sources: Any,
    quiet: bool = False,
) -> Operation:
    """``operands[0] = function(operands[1], ...)``, with the NumPy type of the result and of each source.

    ``quiet`` is for floating point: overflow and NaN are results, not warnings.
    """
    operands = instruction.operands
    if len(operands) != len(sources) + 1:
        raise unknown(instruction, f"takes {len(sources) + 1} operands, got {len(operands)}")
    write = assembler.destination(operands[0], result)
    reads = [assembler.source(operand, kind) for operand, kind in zip(operands[1:], sources, strict=True)]
    if len(reads) == 1:
        (a,) = reads

        def run(active: Active) -> None:
            write(active, function(a(active)))

    elif len(reads) == 2:
        a, b = reads

        def run(active: Active) -> None:
            write(active, function(a(active), b(active)))

    elif len(reads) == 3:
        a, b, c = reads

        def run(active: Active) -> None:
            write(active, function(a(active), b(active), c(active)))

    else:

        def run(active: Active) -> None:
            write(active, function(*[read(active) for read in reads]))

    return Operation(silently(run) if quiet else run)


def silently(run: Callable[[Active], None]) -> Callable[[Active], None]:
    """``run`` without NumPy's warnings about floating point."""

    def quiet_run(active: Active) -> None:
        with np.errstate(all="ignore"):
            run(active)

    return quiet_run


def pieces(packed: Array, part: Any) -> Array:
    """The parts of packed registers, lowest first, as an array (lanes, parts)."""
    kind = np.dtype(part)
    answer: Array = np.ascontiguousarray(packed).view(kind).reshape(-1, packed.dtype.itemsize // kind.itemsize)
    return answer


def joined(parts: Array, whole: Any) -> Array:
    """Back from (lanes, parts) to one packed value a lane."""
    answer: Array = np.ascontiguousarray(parts).view(whole).reshape(-1)
    return answer
