"""`atom` and `red`: lanes that update the same address do so one after the other, in lane order.

Sums of f32 in global memory flush subnormals, those in shared memory do not; sums of f16 and bf16 never do (PTX ISA,
"Parallel Synchronization and Communication Instructions: atom", and an H100).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.arithmetic.formats import flush_subnormals
from warptile.emulator.builders import Assembler, Modifiers, Operation, builder, unknown
from warptile.emulator.lanes import Active, Array
from warptile.emulator.memory.spaces import INITIALISED, MAPPED, WRITTEN
from warptile.emulator.ops.load_store import VECTOR, address_source, take_access_hints, take_space
from warptile.isa.numerics import NAN_BITS
from warptile.ptx.instruction import Instruction, Sink
from warptile.ptx.variable import TYPE_BYTES

Combine = Callable[[Array, Array], Array]

_DTYPES: dict[str, Any] = {
    "u32": np.uint32, "s32": np.int32, "b32": np.uint32, "u64": np.uint64, "s64": np.int64, "b64": np.uint64,
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "f16x2": np.float16, "b16": np.uint16,
    "bf16": np.uint16, "bf16x2": np.uint16,
}  # fmt: skip

_VECTORS = {"f32": ("v2", "v4"), "f16": ("v2", "v4", "v8"), "bf16": ("v2", "v4", "v8"), "f16x2": ("v2", "v4"),
            "bf16x2": ("v2", "v4")}  # fmt: skip
"""Vectors of global memory that one instruction may update, by element type (sm_90)."""

_HALVES = ("f16", "bf16", "f16x2", "bf16x2")

_INFINITY = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF << 52}


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


@dataclass(frozen=True)
class AtomicUpdate:
    """How an atomic combines memory and operand.

    Attributes:
        raw: unsigned type of one element.
        count: elements of one lane, side by side.
        combine: of old elements and given ones, as raw bits; None for a compare-and-swap.
        combine_global: the same in global memory, where sums of f32 flush subnormals.
    """

    raw: np.dtype[Any]
    count: int
    combine: Combine | None
    combine_global: Combine | None

    @property
    def bytes_together(self) -> int:
        """Bytes of one lane; the address is a multiple of it."""
        return self.raw.itemsize * self.count


@builder("atom", "red")
def build_atomic(instruction: Instruction, assembler: Assembler) -> Operation:
    """All operations and types on global, shared and generic addresses; vectors on global and generic ones.

    ptxas takes the modifiers in any order: ``atom.global.add.v2.f32`` is also ``atom.global.v2.f32.add``.
    """
    modifiers = Modifiers(instruction)
    type_name = modifiers.take(*_DTYPES)
    if type_name is None:
        raise unknown(instruction, f"has none of the types .{', .'.join(_DTYPES)}")
    space = take_space(modifiers)
    name = modifiers.need(*_COMBINE, "cas")
    vector = modifiers.take(*VECTOR)
    noftz = modifiers.flag("noftz")
    modifiers.take("acq_rel")
    hinted = take_access_hints(modifiers)
    modifiers.done()
    if noftz != (type_name in _HALVES):
        raise unknown(instruction, f".noftz goes with .{', .'.join(_HALVES)}, and with no other type")
    if vector is not None:
        space = _vector_space(instruction, name, type_name, vector, space)
    operands = list(instruction.operands)
    if hinted:
        operands.pop()
    raw = np.dtype(f"u{TYPE_BYTES[type_name]}")
    update = AtomicUpdate(
        raw, VECTOR.get(vector or "", 1), combination(name, type_name), combination(name, type_name, in_global=True)
    )
    result = operands.pop(0) if instruction.opcode == "atom" else Sink()
    address, space = address_source(assembler, operands[0], space)
    returns = not isinstance(result, Sink)
    targets = assembler.destinations(result, raw) if returns else []
    values = assembler.sources(operands[1], raw)
    replacement = assembler.source(operands[2], raw) if name == "cas" else None
    if len(values) != update.count or (returns and len(targets) != update.count):
        raise unknown(instruction, f"each of its vector operands has {update.count} elements")

    def run(active: Active) -> None:
        machine = assembler.machine
        machine.last_effect = machine.steps
        base = address(active)
        given = np.empty((active.count, update.count), dtype=raw)
        for element, read in enumerate(values):
            given[:, element] = read(active)
        new = np.broadcast_to(replacement(active), active.count)[:, None] if replacement is not None else None
        old = _apply(assembler, instruction, active, space, base, given, new, update)
        for element, write in enumerate(targets):
            write(active, old[:, element])
        if machine.memory.space_of(base[:1])[0] == 0 and space != "shared":
            machine.count.access_global(instruction, active, base, update.bytes_together, write=True)

    return Operation(run)


def _vector_space(instruction: Instruction, name: str, type_name: str, vector: str, space: str) -> str:
    """The space of a vector's addresses: global, also where the instruction names none."""
    if vector not in _VECTORS.get(type_name, ()) or name not in ("add", "min", "max") or space == "shared":
        raise unknown(instruction, "vectors are sums of .f32, or sums, .min and .max of f16 and bf16, in global memory")
    if type_name == "f32" and name != "add":
        raise unknown(instruction, f"vectors of .f32 have .add alone, no .{name}")
    return "global"


def combination(name: str, type_name: str, *, in_global: bool = False) -> Combine | None:
    """How old values and given ones combine, both as raw bits; None for a compare-and-swap.

    ``in_global`` is for `atom` and `red` on global memory, which flush subnormal operands and results of f32 sums to
    zeros of their sign.
    """
    if name == "cas":
        return None
    combine = _COMBINE[name]
    dtype = np.dtype(_DTYPES[type_name])
    if type_name.startswith("bf16"):
        combine = _bfloat(combine)
    if in_global and (name, type_name) == ("add", "f32"):
        combine = _flushed(combine)

    def on_bits(old: Array, value: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            first = np.ascontiguousarray(old).view(dtype)
            second = np.ascontiguousarray(value).view(dtype)
            return np.ascontiguousarray(combine(first, second)).view(old.dtype)

    plain = type_name.removesuffix("x2")
    if plain not in _INFINITY or name not in ("add", "min", "max"):
        return on_bits
    return _on_elements(np.dtype(f"u{TYPE_BYTES[plain]}"), _with_memory_nan(name, plain, on_bits))


def _flushed(combine: Combine) -> Combine:
    return lambda old, value: flush_subnormals(combine(flush_subnormals(old), flush_subnormals(value)))


def _on_elements(element: np.dtype[Any], combine: Combine) -> Combine:
    """``combine`` of elements, for words that hold one or two of them."""

    def on_words(old: Array, value: Array) -> Array:
        first, second = np.ascontiguousarray(old).view(element), np.ascontiguousarray(value).view(element)
        return np.ascontiguousarray(combine(first, second)).view(old.dtype)

    return on_words


def _with_memory_nan(name: str, type_name: str, combine: Combine) -> Combine:
    """With the NaN and zeros that memory gives (an H200's bulk reductions, an H100's atomics).

    NaN is the usual one, but of f64 the given one, else the old one, as it is, else a new one. -0 is less than +0.
    """
    infinity = _INFINITY[type_name]

    def is_nan(bits: Array) -> Array:
        return (bits << 1) > (infinity << 1)

    def with_nan(old: Array, value: Array) -> Array:
        found = combine(old, value)
        if type_name == "f64":
            found = np.where(is_nan(found), np.uint64(0xFFF8 << 48), found)
            return np.where(is_nan(value), value, np.where(is_nan(old), old, found))
        if name in ("min", "max"):
            zero = old | value if name == "min" else old & value
            found = np.where(((old | value) << 1) == 0, zero, found)
        usual = NAN_BITS["f32" if type_name == "f32" else "f16"]
        return np.where(is_nan(found), found.dtype.type(usual), found)

    return with_nan


def _apply(
    assembler: Assembler,
    instruction: Instruction,
    active: Active,
    space: str,
    addresses: Array,
    given: Array,
    new: Array | None,
    update: AtomicUpdate,
) -> Array:
    """Old values, (lanes, elements); done in rounds, each with the first remaining lane of every distinct address."""
    memory = assembler.machine.memory
    parts = memory.split(active, addresses) if space == "generic" else None
    if parts is not None:
        result = np.empty_like(given)
        for mask in parts:
            sub_new = new[mask] if new is not None else None
            result[mask] = _apply(
                assembler, instruction, active.where(mask), space, addresses[mask], given[mask], sub_new, update
            )
        return result
    together, size = update.bytes_together, update.raw.itemsize
    where, offsets = memory.resolve(instruction, active, space, addresses, together)
    memory.check_read(instruction, active, where, offsets, together)
    memory.check_write(instruction, active, where, offsets, together, None)
    elements = offsets[:, None] + np.arange(update.count) * size
    if memory.races is not None:
        for column in elements.T:
            memory.races.atomic(instruction, active, where, column, size)
    combine = update.combine_global if where is memory.global_space else update.combine
    old = np.empty_like(given)
    rest: NDArray[np.intp] = np.arange(active.count)
    while len(rest):
        _, first = np.unique(offsets[rest], return_index=True)
        chosen = rest[first]
        before = where.gather(elements[chosen], size)
        old[chosen] = before
        if combine is not None:
            after = combine(before, given[chosen])
        else:
            assert new is not None
            after = np.where(before == given[chosen], new[chosen], before)
        where.scatter(elements[chosen], size, after)
        rest = np.delete(rest, first)
    where.mark(offsets, together, MAPPED | INITIALISED | WRITTEN)
    return old
