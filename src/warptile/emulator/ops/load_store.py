"""Loads, stores, address conversion and prefetches."""

from __future__ import annotations

from typing import Any

import numpy as np

from warptile.emulator.builders import Assembler, Destination, Modifiers, Operation, Run, Source, builder, unknown
from warptile.emulator.lanes import POISON_BYTE, Active, Array
from warptile.emulator.machine import window_base
from warptile.emulator.memory.accesses import GLOBAL_BASE, SHARED_WINDOW
from warptile.emulator.memory.spaces import MAPPED
from warptile.errors import KernelTrap, MisalignedAccess, UnknownInstruction
from warptile.ptx.instruction import Address, Immediate, Instruction, Operand, Register, Symbol, Vector
from warptile.ptx.variable import TYPE_BYTES

DISCARDED_BYTES = 128
"""What a `discard` is for: a line of L2."""

VECTOR = {"v2": 2, "v4": 4, "v8": 8}

_SPACES = (
    "global",
    "shared",
    "shared::cta",
    "shared::cluster",
    "local",
    "const",
    "param",
    "param::entry",
    "param::func",
)
_SEMANTICS = ("relaxed", "acquire", "release", "weak", "volatile")
_STRONG = frozenset(("relaxed", "acquire", "volatile"))
SCOPES = ("cta", "cluster", "gpu", "sys")
_CACHE = ("ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc")


def storage_type(type_name: str) -> np.dtype[Any]:
    """NumPy type of a memory type: signed where loading extends the sign; raw bits otherwise."""
    size = TYPE_BYTES[type_name]
    return np.dtype(f"{'i' if type_name.startswith('s') else 'u'}{size}")


def take_space(modifiers: Modifiers) -> str:
    """The state space of an access, generic if none is named; constants and kernel parameters lie in global."""
    named = modifiers.take(*_SPACES)
    if named is None:
        return "generic"
    if named.startswith("shared"):
        return "shared"
    return {"const": "global"}.get(named, named.partition("::")[0])


def take_access_hints(modifiers: Modifiers) -> bool:
    """Remove ordering, scope, cache and eviction modifiers, which change no value; whether a cache policy follows."""
    if modifiers.flag("mmio"):
        modifiers.need("relaxed")
    modifiers.take(*_SEMANTICS)
    modifiers.take(*SCOPES)
    hinted = False
    for modifier in list(modifiers.rest):
        if modifier in _CACHE or modifier.startswith(("L1::", "L2::")):
            modifiers.rest.remove(modifier)
            hinted |= modifier == "L2::cache_hint"
    return hinted


def address_source(assembler: Assembler, operand: Operand, space: str) -> tuple[Source, str]:
    """An address operand as a source of int64 addresses, and the space it really lies in.

    Parameters of calls and local variables lie in the lane's own frame; a kernel's parameters in global space.
    """
    if not isinstance(operand, Address):
        raise unknown_operand(operand)
    base, offset = operand.base, np.int64(operand.offset)
    if isinstance(base, Register):
        wide = (assembler.width(base) or 8) == 8
        read = assembler.source(base, np.int64 if wide else np.uint32)
        if space == "param":
            space = "global"
        if wide:
            return (read if not offset else lambda active: read(active) + offset), space
        # LLVM's short pointers: an address in constant or parameter space has the lower 32 bits of the generic one.
        offset += GLOBAL_BASE if space == "global" else 0
        return lambda active: read(active).astype(np.int64) + offset, space
    if isinstance(base, Symbol):
        shift = assembler.machine.shifts.get(base.name)
        if shift is not None:
            start = assembler.machine.address_of(base.name) + base.offset + int(offset)
            return lambda active: shift[active.index] + start, space
        position = assembler.machine.addresses_of(base.name, base.offset + int(offset))
        if space == "param":
            space = "local" if base.name in assembler.machine.frame else "global"
    else:
        position = np.array([int(offset)], dtype=np.int64)
    if len(position) > 1:
        return lambda active: position[active.index], space
    return lambda active: np.broadcast_to(position, active.count), space


def unknown_operand(operand: Operand) -> Exception:
    """The error for an operand that is no address."""
    return UnknownInstruction(f"{operand} is not an address")


def count_access(
    assembler: Assembler,
    instruction: Instruction,
    active: Active,
    space: str,
    addresses: Array,
    size: int,
    *,
    write: bool,
) -> None:
    """Count one request a warp in the space that the addresses fall into (generic ones are looked at)."""
    machine = assembler.machine
    if space == "generic":
        parts = machine.memory.split(active, addresses)
        if parts is not None:
            for mask in parts:
                count_access(assembler, instruction, active.where(mask), space, addresses[mask], size, write=write)
            return
        space = ("global", "shared", "local")[int(machine.memory.space_of(addresses[:1])[0])]
    if space == "shared":
        machine.count.access_shared(instruction, active, addresses, size, write=write)
    elif space == "global":
        machine.count.access_global(instruction, active, addresses, size, write=write)


@builder("ld", "ldu")
def build_load(instruction: Instruction, assembler: Assembler) -> Operation:
    """`ld`: any space, width, vector and cache modifier."""
    modifiers = Modifiers(instruction)
    type_name = modifiers.last()
    space = take_space(modifiers)
    count = VECTOR.get(modifiers.take(*VECTOR) or "", 1)
    take_access_hints(modifiers)
    modifiers.done()
    if type_name not in TYPE_BYTES:
        raise unknown(instruction, f"cannot load .{type_name}")
    element = storage_type(type_name) if type_name != "b128" else np.dtype(np.complex128)
    targets = _vector_destinations(assembler, instruction.operands[0], element)
    address, space = address_source(assembler, instruction.operands[1], space)
    operand = instruction.operands[1]
    constant = _kernel_parameter(assembler, operand, instruction, element, count, space)
    if constant is not None:
        return Operation(_broadcast(targets, constant))
    machine = assembler.machine
    total = element.itemsize * count
    size = min(total, 16)
    counted = space != "local" and not reads_constants(instruction)
    polls = not _STRONG.isdisjoint(instruction.modifiers)

    def load(active: Active) -> None:
        if polls:
            machine.last_poll = machine.steps
        addresses = address(active)
        columns: list[Array] = []
        for piece in range(0, total, size):
            where = addresses + piece if piece else addresses
            words = machine.memory.load(instruction, active, space, where, size)
            if counted:
                count_access(assembler, instruction, active, space, where, size, write=False)
            if count == 1:
                columns.append(words.view(element))
            else:
                parts = np.ascontiguousarray(words).view(element).reshape(active.count, -1)
                columns.extend(parts[:, i] for i in range(parts.shape[1]))
        for target, column in zip(targets, columns, strict=True):
            target(active, column)

    return Operation(load)


def reads_constants(instruction: Instruction) -> bool:
    """Constant and parameter loads go through the constant cache: no global request."""
    return any(m == "const" or m.startswith("param") for m in instruction.modifiers)


def _vector_destinations(assembler: Assembler, operand: Operand, element: np.dtype[Any]) -> list[Destination]:
    if element.itemsize == 16:
        pair = assembler.wide(operand, written=True)

        def write_pair(active: Active, values: Array) -> None:
            pair[active.index] = np.ascontiguousarray(values).view(np.uint64).reshape(-1, 2)

        return [write_pair]
    return assembler.destinations(operand, element)


def _kernel_parameter(
    assembler: Assembler, operand: Operand, instruction: Instruction, element: np.dtype[Any], count: int, space: str
) -> list[Array] | None:
    """The value of a kernel parameter at a fixed place: the same for every lane, so read once."""
    if not (isinstance(operand, Address) and isinstance(operand.base, Symbol) and space == "global"):
        return None
    if not any(m.startswith("param") for m in instruction.modifiers):
        return None
    machine = assembler.machine
    start = machine.address_of(operand.base.name) + operand.base.offset + operand.offset - GLOBAL_BASE
    raw = machine.global_space.data[start : start + element.itemsize * count].copy()
    return [raw.view(element)[i : i + 1] for i in range(count)]


def _broadcast(targets: list[Destination], values: list[Array]) -> Run:
    def write(active: Active) -> None:
        for target, value in zip(targets, values, strict=True):
            target(active, value)

    return write


@builder("st")
def build_store(instruction: Instruction, assembler: Assembler) -> Operation:
    """`st`: any space, width, vector and cache modifier."""
    modifiers = Modifiers(instruction)
    type_name = modifiers.last()
    space = take_space(modifiers)
    count = VECTOR.get(modifiers.take(*VECTOR) or "", 1)
    take_access_hints(modifiers)
    modifiers.done()
    if type_name not in TYPE_BYTES:
        raise unknown(instruction, f"cannot store .{type_name}")
    bytes_each = TYPE_BYTES[type_name]
    address, space = address_source(assembler, instruction.operands[0], space)
    pack = vector_source(assembler, instruction.operands[1], bytes_each, count)
    machine = assembler.machine
    size = min(bytes_each * count, 16)

    def store(active: Active) -> None:
        addresses = address(active)
        machine.last_effect = machine.steps
        for piece, words in enumerate(pack(active)):
            where = addresses + piece * size if piece else addresses
            machine.memory.store(instruction, active, space, where, words, size)
            count_access(assembler, instruction, active, space, where, size, write=True)

    return Operation(store)


def vector_source(assembler: Assembler, operand: Operand, bytes_each: int, count: int) -> Any:
    """The elements to store, packed into words of at most 16 bytes per lane: a function to a list of such columns."""
    if bytes_each == 16:
        pair = assembler.wide(operand)
        return lambda active: [np.ascontiguousarray(pair[active.index]).view(np.complex128).reshape(-1)]
    raw = np.dtype(f"u{bytes_each}")
    if count == 1:
        single = operand.elements[0] if isinstance(operand, Vector) else operand
        assert single is not None
        read = assembler.source(single, raw)
        return lambda active: [np.broadcast_to(read(active), active.count)]
    reads = assembler.sources(operand, raw)
    if len(reads) != count:
        raise unknown_operand(operand)
    size = min(bytes_each * count, 16)
    word = np.dtype({2: "u2", 4: "u4", 8: "u8", 16: "c16"}[size])
    per_word = size // bytes_each

    def pack(active: Active) -> list[Array]:
        table = np.empty((active.count, count), dtype=raw)
        for column, read in enumerate(reads):
            table[:, column] = read(active)
        return [
            np.ascontiguousarray(table[:, i : i + per_word]).view(word).reshape(-1) for i in range(0, count, per_word)
        ]

    return pack


@builder("cvta")
def build_address_conversion(instruction: Instruction, assembler: Assembler) -> Operation:
    """`cvta{.to}.space`: add or subtract the start of the space's window."""
    modifiers = Modifiers(instruction)
    type_name = modifiers.last()
    to_space = modifiers.flag("to")
    space = take_space(modifiers)
    modifiers.done()
    if type_name not in ("u64", "u32"):
        raise unknown(instruction, f"cannot convert .{type_name} addresses")
    dtype = np.dtype(f"u{TYPE_BYTES[type_name]}")
    target = assembler.destination(instruction.operands[0], dtype)
    read = assembler.source(instruction.operands[1], dtype)
    operand = instruction.operands[1]
    local = isinstance(operand, Symbol) and operand.name in assembler.machine.frame
    base = dtype.type(window_base("local" if local else space))

    short = reads_constants(instruction) and not to_space and type_name == "u64"

    def convert(active: Active) -> None:
        value = read(active)
        if short:  # of the lower 32 bits too
            target(active, value | np.uint64(GLOBAL_BASE))
        else:
            target(active, value - base if to_space else value + base)

    return Operation(convert)


@builder("isspacep")
def build_is_space(instruction: Instruction, assembler: Assembler) -> Operation:
    """`isspacep.space`: whether a generic address lies in a space."""
    modifiers = Modifiers(instruction)
    whole_cluster = "shared::cluster" in modifiers.rest
    if "const" in modifiers.rest:
        raise unknown(instruction, "cannot test for .const")
    space = take_space(modifiers)
    modifiers.done()
    kind = {"global": 0, "shared": 1, "local": 2}.get(space)
    if kind is None:
        raise unknown(instruction, f"cannot test for .{space}")
    target = assembler.destination(instruction.operands[0], np.bool_)
    read = assembler.source(instruction.operands[1], np.uint64)
    memory = assembler.machine.memory

    def test(active: Active) -> None:
        addresses = np.broadcast_to(read(active), active.count)
        inside = memory.space_of(addresses) == kind
        if kind == 1 and not whole_cluster:  # .shared is .shared::cta
            inside &= memory.peers.own(active.lanes, addresses.astype(np.int64) - SHARED_WINDOW)
        target(active, inside)

    return Operation(test)


def _no_effect(active: Active) -> None:
    """Nothing that a value depends on."""


@builder("prefetch", "prefetchu", "applypriority", "nanosleep", "pmevent")
def build_no_effect(instruction: Instruction, assembler: Assembler) -> Operation:
    """Prefetches and pauses, which change no value."""
    if instruction.opcode == "nanosleep":
        assembler.source(instruction.operands[0] if instruction.operands else Immediate(0), np.uint32)
    return Operation(_no_effect)


@builder("discard")
def build_discard(instruction: Instruction, assembler: Assembler) -> Operation:
    """`discard{.global}.L2 [a], 128`: a write of 128 bytes that hold nothing afterwards."""
    modifiers = Modifiers(instruction)
    space = take_space(modifiers)
    modifiers.need("L2")
    modifiers.done()
    size = instruction.operands[1]
    if not isinstance(size, Immediate) or size.value != DISCARDED_BYTES:
        raise unknown(instruction, f"discards {DISCARDED_BYTES} bytes")
    address, space = address_source(assembler, instruction.operands[0], space)
    machine = assembler.machine
    poison = np.frombuffer(bytes([POISON_BYTE]) * 16, dtype=np.complex128)

    def discard(active: Active) -> None:
        addresses, memory = address(active), machine.memory
        if (addresses % DISCARDED_BYTES).any():
            lane = active.lanes[int(np.argmax(addresses % DISCARDED_BYTES != 0))]
            raise MisalignedAccess(
                f"{instruction.text}: {memory.thread(lane)} discards what does not begin at a multiple of "
                f"{DISCARDED_BYTES} bytes",
                kernel=memory.kernel,
                location=instruction.location,
            )
        for piece in range(0, DISCARDED_BYTES, 16):
            memory.store(instruction, active, space, addresses + piece, np.repeat(poison, active.count), 16)
            where, offsets = memory.resolve(instruction, active, space, addresses + piece, 16)
            where.mark(offsets, 16, MAPPED)
            where.forget((offsets[:, None] + np.arange(16)).ravel())

    return Operation(discard)


@builder("trap", "brkpt")
def build_trap(instruction: Instruction, assembler: Assembler) -> Operation:
    """`trap` ends the launch with an error; so does a breakpoint."""
    machine = assembler.machine

    def trap(active: Active) -> None:
        thread = machine.memory.thread(active.lanes[0])
        raise KernelTrap(
            f"{instruction.text}: executed by {active.count} threads, first by {thread}{machine.why_trapped}",
            kernel=machine.kernel,
            location=instruction.location,
        )

    return Operation(trap)
