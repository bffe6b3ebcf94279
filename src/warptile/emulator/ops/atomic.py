"""`atom` and `red`: one lane after the other where several hit the same place, in lane order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.assembler import Assembler, Modifiers, Operation, builder, unknown
from warptile.emulator.lanes import Active, Array
from warptile.emulator.ops.memory import TYPE_BYTES, address_source, take_access_hints, take_space
from warptile.emulator.spaces import INITIALISED, MAPPED, WRITTEN
from warptile.ptx.instruction import Instruction, Sink

Combine = Callable[[Array, Array], Array]

_DTYPES: dict[str, Any] = {
    "u32": np.uint32, "s32": np.int32, "b32": np.uint32, "u64": np.uint64, "s64": np.int64, "b64": np.uint64,
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "f16x2": np.float16, "b16": np.uint16,
    "bf16": np.uint16, "bf16x2": np.uint16,
}  # fmt: skip


def _increment(old: Array, limit: Array) -> Array:
    return np.where(old >= limit, 0, old + 1).astype(old.dtype)


def _decrement(old: Array, limit: Array) -> Array:
    return np.where((old == 0) | (old > limit), limit, old - 1).astype(old.dtype)


def _bfloat(combine: Combine) -> Combine:
    """Combine bf16 values held as raw bits: through float32, whose sum of two bf16 rounds once more without harm."""

    def through_float(old: Array, value: Array) -> Array:
        wide = combine((old.astype(np.uint32) << 16).view(np.float32), (value.astype(np.uint32) << 16).view(np.float32))
        bits = wide.view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return np.where(np.isnan(wide), 0x7FFF, rounded).astype(np.uint16)

    return through_float


_COMBINE: dict[str, Combine] = {
    "add": lambda old, value: old + value, "min": np.fmin, "max": np.fmax, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "exch": lambda old, value: value, "inc": _increment, "dec": _decrement,
}  # fmt: skip


@builder("atom", "red")
def build_atomic(instruction: Instruction, assembler: Assembler) -> Operation:
    """All operations and types on global, shared and generic addresses, vectors of red.global included."""
    modifiers = Modifiers(instruction)
    type_name = modifiers.last()
    space = take_space(modifiers)
    name = modifiers.need(*_COMBINE, "cas")
    count = {"v2": 2, "v4": 4, "v8": 8}.get(modifiers.take("v2", "v4", "v8") or "", 1)
    modifiers.flag("noftz")
    hinted = take_access_hints(modifiers)
    modifiers.done()
    if type_name not in _DTYPES:
        raise unknown(instruction, f"no atomic on .{type_name}")
    operands = list(instruction.operands)
    if hinted:
        operands.pop()
    bytes_each = TYPE_BYTES[type_name]
    raw = np.dtype(f"u{bytes_each}")
    result = operands.pop(0) if instruction.opcode == "atom" else Sink()
    address, space = address_source(assembler, operands[0], space)
    targets = assembler.destinations(result, raw) if count > 1 and not isinstance(result, Sink) else [
        assembler.destination(result, raw)
    ] * count  # fmt: skip
    values = assembler.sources(operands[1], raw)
    replacement = assembler.source(operands[2], raw) if name == "cas" else None
    combine = combination(name, type_name)
    returns = not isinstance(result, Sink)

    def run(active: Active) -> None:
        machine = assembler.machine
        machine.last_effect = machine.steps
        base = address(active)
        for element in range(count):
            where = base + element * bytes_each
            value = np.broadcast_to(values[element](active), active.count)
            new = np.broadcast_to(replacement(active), active.count) if replacement is not None else None
            old = _apply(assembler, instruction, active, space, where, value, new, combine, raw)
            if returns:
                targets[element](active, old)
        if machine.memory.space_of(base[:1])[0] == 0 and space != "shared":
            machine.count.access_global(instruction, active, base, bytes_each * count, write=True)

    return Operation(run)


def combination(name: str, type_name: str) -> Combine | None:
    """How old values and given ones combine, both as raw bits; None for a compare-and-swap."""
    if name == "cas":
        return None
    combine = _COMBINE[name]
    dtype = np.dtype(_DTYPES[type_name])
    if type_name.startswith("bf16"):
        combine = _bfloat(combine)

    def on_bits(old: Array, value: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            first = np.ascontiguousarray(old).view(dtype)
            second = np.ascontiguousarray(value).view(dtype)
            return np.ascontiguousarray(combine(first, second)).view(old.dtype)

    return on_bits


def _apply(
    assembler: Assembler,
    instruction: Instruction,
    active: Active,
    space: str,
    addresses: Array,
    value: Array,
    new: Array | None,
    combine: Combine | None,
    raw: np.dtype[Any],
) -> Array:
    """Old values; done in rounds, each with the first remaining lane of every distinct address."""
    memory = assembler.machine.memory
    parts = memory.split(active, addresses) if space == "generic" else None
    if parts is not None:
        result = np.empty(active.count, dtype=raw)
        for mask in parts:
            sub_new = new[mask] if new is not None else None
            result[mask] = _apply(
                assembler, instruction, active.where(mask), space, addresses[mask], value[mask], sub_new, combine, raw
            )
        return result
    size = raw.itemsize
    where, offsets = memory.resolve(instruction, active, space, addresses, size)
    memory.check_read(instruction, active, where, offsets, size)
    memory.check_write(instruction, active, where, offsets, size, None)
    if memory.races is not None:
        memory.races.atomic(instruction, active, where, offsets, size)
    old = np.empty(active.count, dtype=raw)
    rest: NDArray[np.intp] = np.arange(active.count)
    while len(rest):
        _, first = np.unique(offsets[rest], return_index=True)
        chosen = rest[first]
        before = where.gather(offsets[chosen], size)
        old[chosen] = before
        if combine is not None:
            after = combine(before, value[chosen])
        else:
            assert new is not None
            after = np.where(before == value[chosen], new[chosen], before)
        where.scatter(offsets[chosen], size, after)
        rest = np.delete(rest, first)
    where.mark(offsets, size, MAPPED | INITIALISED | WRITTEN)
    return old
