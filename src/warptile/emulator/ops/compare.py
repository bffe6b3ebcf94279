"""Comparison and selection (PTX ISA, "Comparison and Selection Instructions" and the half-precision ones)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from warptile.emulator.arithmetic.formats import SMALL_FLOATS, flush_subnormals
from warptile.emulator.builders import Assembler, Destination, Modifiers, Operation, Source, builder, unknown
from warptile.emulator.lanes import Active, Array
from warptile.emulator.ops.typed import FLOATS, INTEGERS, elementwise, joined, silently
from warptile.ptx.instruction import Instruction, Paired

_ORDERED: dict[str, Callable[..., Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_COMBINE: dict[str, Callable[..., Array]] = {
    "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor,
}  # fmt: skip
_COMPARISONS = (*_ORDERED, *_UNSIGNED_NAMES, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")


def _float_comparison(name: str) -> Callable[..., Array]:
    if name == "num":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    if name == "nan":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    if name == "neu":
        return np.not_equal
    if name == "ne":  # ordered: false with a NaN
        return lambda a, b: np.less(a, b) | np.greater(a, b)
    if name.endswith("u"):
        opposite = _ORDERED[{"equ": "ne", "ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt"}[name]]
        if name == "equ":
            return lambda a, b: ~(np.less(a, b) | np.greater(a, b))
        return lambda a, b: ~opposite(a, b)
    return _ORDERED[name]


class _Comparison:
    """The common part of `set` and `setp`: both sources, compared.

    Attributes:
        pair: the sources hold two values each, and so does the truth: an array (lanes, 2).
        silent: it compares floats.
    """

    def __init__(self, instruction: Instruction, assembler: Assembler, modifiers: Modifiers, kind: str) -> None:
        name = modifiers.need(*_COMPARISONS)
        ftz = modifiers.flag("ftz")
        small = SMALL_FLOATS.get(kind)
        self.pair = small is not None and small.pair
        self.silent = small is not None or kind in FLOATS
        dtype: Any
        if small is not None:
            dtype = small.storage
        elif kind in FLOATS or kind in INTEGERS:
            dtype = FLOATS.get(kind) or INTEGERS[kind]
        else:
            raise unknown(instruction, f"type .{kind}")
        if not self.silent:
            if ftz:
                raise unknown(instruction, ".ftz is for floats")
            name = self._integer_name(instruction, name, kind)
        elif name in _UNSIGNED_NAMES:
            raise unknown(instruction, f".{name} compares unsigned integers")
        compare = _float_comparison(name) if self.silent else _ORDERED[name]
        a, b = (assembler.source(operand, dtype) for operand in instruction.operands[1:3])
        prepare: Callable[[Array], Array] | None = None
        if small is not None:
            widen = small.widen
            prepare = (lambda value: flush_subnormals(widen(value), small.tiny)) if ftz else widen
        elif ftz:
            prepare = flush_subnormals
        self.truth: Source
        if prepare is None:
            self.truth = lambda active: compare(a(active), b(active))
        else:
            ready = prepare
            self.truth = lambda active: compare(ready(a(active)), ready(b(active)))

    @staticmethod
    def _integer_name(instruction: Instruction, name: str, kind: str) -> str:
        if name in _UNSIGNED_NAMES:
            if kind[0] == "s":
                raise unknown(instruction, f".{name} compares unsigned integers")
            return _UNSIGNED_NAMES[name]
        if name not in _ORDERED or (kind[0] == "b" and name not in ("eq", "ne")):
            raise unknown(instruction, f"no comparison .{name} of .{kind}")
        return name


@builder("setp")
def set_predicate(instruction: Instruction, assembler: Assembler) -> Operation:
    """``setp.cmp{.bool}.type p{|q}, a, b{, {!}c}``: p = t op c, q = !t op c; of pairs, p is the low half."""
    modifiers = Modifiers(instruction)
    kind = modifiers.last()
    combine = modifiers.take(*_COMBINE)
    comparison = _Comparison(instruction, assembler, modifiers, kind)
    modifiers.done()
    operands = instruction.operands
    if len(operands) != (3 if combine is None else 4):
        raise unknown(instruction, f"takes {3 if combine is None else 4} operands, got {len(operands)}")
    truth = comparison.truth
    target = operands[0]
    first, second = (target.first, target.second) if isinstance(target, Paired) else (target, None)
    write_first = assembler.destination(first, np.bool_) if first is not None else None
    write_second = assembler.destination(second, np.bool_) if second is not None else None
    if combine is None and write_second is None and not comparison.pair and write_first is not None:
        write = write_first

        def run(active: Active) -> None:
            write(active, truth(active))

        return Operation(run)
    incoming = assembler.source(operands[3], np.bool_) if combine else None
    operator = _COMBINE[combine] if combine else None

    def run_general(active: Active) -> None:
        t = truth(active)
        low, high = (t[:, 0], t[:, 1]) if comparison.pair else (t, ~t)
        if operator is not None and incoming is not None:
            c = incoming(active)
            low, high = operator(low, c), operator(high, c)
        if write_first is not None:
            write_first(active, low)
        if write_second is not None:
            write_second(active, high)

    return Operation(run_general)


@builder("set")
def set_value(instruction: Instruction, assembler: Assembler) -> Operation:
    """``set.cmp{.bool}.dtype.stype d, a, b{, {!}c}``: all ones (1.0 in a float) or zero."""
    modifiers = Modifiers(instruction)
    kind, result = modifiers.last(), modifiers.last()
    combine = modifiers.take(*_COMBINE)
    comparison = _Comparison(instruction, assembler, modifiers, kind)
    modifiers.done()
    operands = instruction.operands
    if len(operands) != (3 if combine is None else 4):
        raise unknown(instruction, f"takes {3 if combine is None else 4} operands, got {len(operands)}")
    incoming = assembler.source(operands[3], np.bool_) if combine else None
    operator = _COMBINE[combine] if combine else None
    small = SMALL_FLOATS.get(result)
    masks = comparison.pair and result in ("u32", "s32")
    if comparison.pair != (masks or (small is not None and small.pair)):
        raise unknown(instruction, f"a comparison of .{kind} does not give .{result}")
    true: np.generic
    if small is not None:
        part = np.dtype(np.uint16)
        true = np.uint16(small.one)
        storage = np.dtype(small.storage)
    elif masks:  # all ones in each half
        part, storage = np.dtype(np.uint16), np.dtype(np.uint32)
        true = np.uint16(0xFFFF)
    elif result == "f32":
        part = storage = FLOATS["f32"]
        true = np.float32(1)
    elif result in ("u16", "s16", "u32", "s32"):
        part = storage = np.dtype(f"u{INTEGERS[result].itemsize}")
        true = part.type(np.iinfo(part).max)
    else:
        raise unknown(instruction, f"result of type .{result}")
    write: Destination = assembler.destination(operands[0], storage)
    false = part.type(0)

    def run(active: Active) -> None:
        t = comparison.truth(active)
        if operator is not None and incoming is not None:
            c = incoming(active)
            t = operator(t, c[:, None] if comparison.pair else c)
        value = np.where(t, true, false)
        write(active, joined(value, storage) if comparison.pair else value)

    return Operation(run)


@builder("selp")
def select(instruction: Instruction, assembler: Assembler) -> Operation:
    """``selp d, a, b, p``: a where p holds."""
    modifiers = Modifiers(instruction)
    kind = _bits(instruction, modifiers.last())
    modifiers.done()
    return elementwise(instruction, assembler, _where, kind, kind, kind, np.bool_)


def _where(a: Array, b: Array, p: Array) -> Array:
    return np.where(p, a, b)


@builder("slct")
def select_by_sign(instruction: Instruction, assembler: Assembler) -> Operation:
    """``slct d, a, b, c``: a where c >= 0 (a NaN is not), else b."""
    modifiers = Modifiers(instruction)
    control, name = modifiers.last(), modifiers.last()
    ftz = modifiers.flag("ftz")
    modifiers.done()
    kind = _bits(instruction, name)
    if control not in ("s32", "f32") or (ftz and control == "s32"):
        raise unknown(instruction, "the control has type .s32 or .f32")
    dtype = FLOATS.get(control) or INTEGERS[control]
    # a subnormal c that .ftz makes -0 is >= 0; without it, it is negative

    def choose(a: Array, b: Array, c: Array) -> Array:
        return np.where((flush_subnormals(c) if ftz else c) >= 0, a, b)

    operation = elementwise(instruction, assembler, choose, kind, kind, kind, dtype)
    return Operation(silently(operation.run)) if control == "f32" else operation


def _bits(instruction: Instruction, name: str) -> np.dtype[Any]:
    """The type whose bits are moved: a float as itself, so that literals keep their meaning."""
    found = FLOATS.get(name) or INTEGERS.get(name)
    if found is None or found.itemsize == 1:
        raise unknown(instruction, f"type .{name}")
    return found
