"""Video instructions (PTX ISA): scalar ones, and SIMD ones on four bytes or two half-words.

SIMD ones have all parts in their own places: the parser refuses selectors (``%r1.b3210``) and masks, which no compiler
writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from warptile.emulator.builders import Assembler, Modifiers, Operation, Source, builder, unknown
from warptile.emulator.lanes import Active, Array
from warptile.emulator.ops.typed import elementwise, joined, pieces
from warptile.ptx.instruction import Instruction, Operand, Selected

_OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
}
_COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_SIGNS = ("u32", "s32")


def _average(a: Array, b: Array) -> Array:
    """Of integers, with halves rounded away from zero."""
    total = a + b
    return total + (total >= 0) >> 1


_PARALLEL = {**_OPERATIONS, "vavrg": _average}
"""What has a form for bytes and half-words."""


@builder(*[f"{name}{count}" for name in (*_PARALLEL, "vset") for count in (2, 4)])
def parallel(instruction: Instruction, assembler: Assembler) -> Operation:
    """``vadd4``, ``vabsdiff2`` and the like: part by part; ``.sat`` clamps each, ``.add`` adds all of them to c."""
    name, count = instruction.opcode[:-1], int(instruction.opcode[-1])
    modifiers = Modifiers(instruction)
    accumulate, saturate = modifiers.flag("add"), modifiers.flag("sat")
    comparison = modifiers.need(*_COMPARISONS) if name == "vset" else None
    result = "u32" if comparison else modifiers.need(*_SIGNS)
    left, right = modifiers.need(*_SIGNS), modifiers.need(*_SIGNS)
    modifiers.done()
    if saturate and comparison:
        raise unknown(instruction, "vset does not saturate")
    function = _COMPARISONS[comparison] if comparison else _PARALLEL[name]
    size = 4 // count
    kinds = [np.dtype(f"{'i' if sign == 's32' else 'u'}{size}") for sign in (result, left, right)]
    limits = np.iinfo(kinds[0])

    def run(a: Array, b: Array, c: Array) -> Array:
        parts = function(pieces(a, kinds[1]).astype(np.int64), pieces(b, kinds[2]).astype(np.int64)).astype(np.int64)
        if saturate:
            parts = np.clip(parts, limits.min, limits.max)
        if accumulate:
            total: Array = (parts.sum(axis=1) + c).astype(np.uint32)
            return total
        return joined(parts.astype(kinds[0]), np.uint32)

    return elementwise(instruction, assembler, run, *[np.uint32] * 4)


_SECOND: dict[str, Callable[[Array, Array], Array]] = {"add": np.add, "min": np.minimum, "max": np.maximum}


@builder(*_OPERATIONS)
def scalar(instruction: Instruction, assembler: Assembler) -> Operation:
    """``vadd``, ``vabsdiff`` and the like, of whole registers or parts of them."""
    return _scalar(instruction, assembler, _OPERATIONS[instruction.opcode])


@builder("vshl", "vshr")
def shift(instruction: Instruction, assembler: Assembler) -> Operation:
    """``vshl.clamp|.wrap`` and ``vshr``: the shift is unsigned, and clamped to 32 or taken modulo 32."""
    modifiers = Modifiers(instruction)
    clamps = modifiers.need("clamp", "wrap") == "clamp"
    left = instruction.opcode == "vshl"

    def function(a: Array, b: Array) -> Array:
        by = np.minimum(b, 32) if clamps else b & 31
        return np.where(by == 32, _beyond(a), a << np.minimum(by, 31)) if left else a >> by

    return _scalar(instruction, assembler, function, "clamp", "wrap")


def _beyond(a: Array) -> Array:
    """A number shifted left by 32, as far as 64 bits can say: its low half is 0, and it is out of range unless 0."""
    return np.sign(a) << 62


@builder("vset")
def comparison(instruction: Instruction, assembler: Assembler) -> Operation:
    """``vset.lt``: 1 where it holds, else 0."""
    name = Modifiers(instruction).need(*_COMPARISONS)
    return _scalar(instruction, assembler, _COMPARISONS[name], name)


def _scalar(
    instruction: Instruction, assembler: Assembler, function: Callable[[Array, Array], Array], *known: str
) -> Operation:
    """A function of two operands; ``.sat``; then a second operation with c, or c with one of its parts replaced."""
    modifiers = Modifiers(instruction)
    modifiers.take(*known)
    result = "u32" if instruction.opcode == "vset" else modifiers.need(*_SIGNS)
    left, right = modifiers.need(*_SIGNS), modifiers.need(*_SIGNS)
    saturate, second = modifiers.flag("sat"), modifiers.take(*_SECOND)
    modifiers.done()
    target, part = _part(instruction.operands[0])
    if len(instruction.operands) != (4 if second or part else 3) or (second and part):
        raise unknown(instruction, "takes c with a second operation or with a part of d, and not otherwise")
    if instruction.opcode.startswith("vsh") and right != "u32":
        raise unknown(instruction, "shifts by .u32")
    a, b = (
        _extended(assembler, each, sign) for each, sign in zip(instruction.operands[1:3], (left, right), strict=True)
    )
    c = assembler.source(instruction.operands[3], _KINDS[result]) if second or part else None
    write = assembler.destination(target, np.uint32)
    shift, bits = _PLACES[part]
    limits = np.iinfo(f"{'i' if result == 's32' else 'u'}{bits // 8}")
    mask = (1 << bits) - 1

    def run(active: Active) -> None:
        made = function(a(active), b(active)).astype(np.int64)
        if saturate:
            made = np.clip(made, limits.min, limits.max)
        if second and c is not None:
            made = _SECOND[second](made, c(active).astype(np.int64))
        elif c is not None:
            made = (made & mask) << shift | c(active).astype(np.int64) & ~(mask << shift)
        write(active, made.astype(np.uint32))

    return Operation(run)


@builder("vmad")
def multiply_add(instruction: Instruction, assembler: Assembler) -> Operation:
    """``vmad{.sat}{.shr7|.shr15}``: the product of two parts plus c, exactly; ``.po`` adds 1."""
    modifiers = Modifiers(instruction)
    _, left, right = (modifiers.need(*_SIGNS) for _ in range(3))
    plus_one, saturate = modifiers.flag("po"), modifiers.flag("sat")
    scale = {None: 0, "shr7": 7, "shr15": 15}[modifiers.take("shr7", "shr15")]
    modifiers.done()
    if len(instruction.operands) != 4:
        raise unknown(instruction, "takes 4 operands")
    is_signed = "s32" in (left, right)
    a, b = (
        _extended(assembler, each, sign) for each, sign in zip(instruction.operands[1:3], (left, right), strict=True)
    )
    c = assembler.source(instruction.operands[3], _KINDS["s32" if is_signed else "u32"])
    write = assembler.destination(instruction.operands[0], np.uint32)
    limits = np.iinfo(_KINDS["s32" if is_signed else "u32"])

    def run(active: Active) -> None:
        made = a(active).astype(object) * b(active) + c(active).astype(object) + int(plus_one) >> scale
        made = np.clip(made, int(limits.min), int(limits.max)) if saturate else made & 0xFFFFFFFF
        write(active, (made & 0xFFFFFFFF).astype(np.uint32))

    return Operation(run)


_KINDS: dict[str, np.dtype[Any]] = {"u32": np.dtype(np.uint32), "s32": np.dtype(np.int32)}
_PLACES: dict[str | None, tuple[int, int]] = {
    None: (0, 32), "b0": (0, 8), "b1": (8, 8), "b2": (16, 8), "b3": (24, 8), "h0": (0, 16), "h1": (16, 16),
}  # fmt: skip
"""Of each part of a register: its lowest bit, and how many there are."""


def _part(operand: Operand) -> tuple[Operand, str | None]:
    return (operand.register, operand.part) if isinstance(operand, Selected) else (operand, None)


def _extended(assembler: Assembler, operand: Operand, sign: str) -> Source:
    """Reads a part of a register, or the whole, as a 64-bit integer."""
    register, part = _part(operand)
    read, (shift, bits) = assembler.source(register, np.uint32), _PLACES[part]
    half = 1 << (bits - 1) if sign == "s32" else 0

    def extended(active: Active) -> Array:
        value: Array = read(active).astype(np.int64) >> shift & (1 << bits) - 1
        whole: Array = (value ^ half) - half
        return whole

    return extended
