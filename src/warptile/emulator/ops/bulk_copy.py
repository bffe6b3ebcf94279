"""`cp.async.bulk`, `cp.async.bulk.tensor`, `cp.reduce.async.bulk` and their groups (PTX ISA, "Data Movement and
Conversion Instructions: Bulk copies" and "Tensor copies")."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.arithmetic.memory_updates import MemoryUpdate
from warptile.emulator.async_ops.bulk_copies import BulkTransfer
from warptile.emulator.async_ops.tensor_boxes import TILE_ALIGNMENT_BYTES, box_at, box_bytes, decode, row_chunks, slots
from warptile.emulator.builders import Assembler, Modifiers, Operation, Source, unknown
from warptile.emulator.counters import piece_sectors
from warptile.emulator.lanes import WARP, Active
from warptile.emulator.machine import Machine
from warptile.emulator.memory.accesses import GLOBAL_BASE, Memory
from warptile.emulator.memory.cluster_memory import OWN_BYTES, RANK_SHIFT
from warptile.emulator.memory.spaces import WRITTEN, Offsets, Space
from warptile.emulator.ops.load_store import address_source
from warptile.emulator.sync.mbarriers import BYTES as MBARRIER_BYTES
from warptile.errors import (
    DataRace,
    EmulationError,
    IllegalInstruction,
    LayoutError,
    MisalignedAccess,
)
from warptile.isa.swizzle import CHUNK_BYTES
from warptile.launch.tensor_map import TENSOR_MAP_BYTES, TensorMap
from warptile.ptx.instruction import Immediate, Instruction, Operand, TensorAddress

_REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
_BITWISE = ("and", "or", "xor")
_BITWISE_TYPES = ("u32", "s32", "u64")
"""Types of maps that these take; an s64 is an illegal instruction on an H200."""

_BARRIER = "mbarrier::complete_tx::bytes"
_TENSOR_MAP_ALIGNMENT_BYTES = 64

_TYPES_OF = {
    "add": ("u32", "s32", "u64", "f32", "f64", "f16", "bf16"),
    "min": ("u32", "s32", "u64", "s64", "f16", "bf16"), "max": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "inc": ("u32",), "dec": ("u32",), "and": ("b32", "b64"), "or": ("b32", "b64"), "xor": ("b32", "b64"),
}  # fmt: skip
"""Element types that each reduction takes in global memory."""


def build(instruction: Instruction, assembler: Assembler, modifiers: Modifiers) -> Operation:
    """Everything behind `cp.async.bulk` and `cp.reduce.async.bulk`; ``modifiers`` still has all of them."""
    reduces = modifiers.flag("reduce")
    modifiers.need("async")
    modifiers.need("bulk")
    if modifiers.flag("commit_group"):
        modifiers.done()
        return Operation(assembler.machine.bulk.commit)
    if modifiers.flag("wait_group"):
        return _build_wait(instruction, assembler, modifiers)
    if modifiers.flag("prefetch"):
        return _build_prefetch(instruction, assembler, modifiers)
    return _Copy(instruction, assembler, modifiers, reduces=reduces).operation()


def _build_wait(instruction: Instruction, assembler: Assembler, modifiers: Modifiers) -> Operation:
    read = modifiers.flag("read")
    modifiers.done()
    operand = instruction.operands[0]
    if not isinstance(operand, Immediate):
        raise unknown(instruction, "the number of groups must be a constant")
    keep, machine = int(operand.value), assembler.machine
    return Operation(lambda active: machine.bulk.wait(active, keep, read=read))


def _build_prefetch(instruction: Instruction, assembler: Assembler, modifiers: Modifiers) -> Operation:
    """Into L2: changes no value. The operands are read, and a tensor map must be one."""
    tensor = modifiers.flag("tensor")
    dimensions = _dimensions(modifiers) if tensor else 0
    modifiers.flag("tile")
    for name in ("L2", "global"):
        modifiers.need(name)
    modifiers.flag("L2::cache_hint")
    modifiers.done()
    if not tensor:
        address_source(assembler, instruction.operands[0], "global")
        assembler.source(instruction.operands[1], np.uint32)
        return Operation(lambda active: None)
    place = _TensorPlace(instruction, assembler, instruction.operands[0], dimensions)
    return Operation(lambda active: place.check(active))


def _dimensions(modifiers: Modifiers) -> int:
    return int(modifiers.need("1d", "2d", "3d", "4d", "5d")[0])


class _TensorPlace:
    """`[map, {x, y}]`: a tensor map in memory and coordinates."""

    def __init__(self, instruction: Instruction, assembler: Assembler, operand: Operand, dimensions: int) -> None:
        if not isinstance(operand, TensorAddress):
            raise unknown(instruction, "takes [tensor map, {coordinates}]")
        self._instruction = instruction
        self._machine = assembler.machine
        self._address, _ = address_source(assembler, operand.base, "generic")
        self._coordinates = assembler.sources(operand.coordinates, np.int32)
        if len(self._coordinates) != dimensions:
            raise unknown(instruction, f"takes {dimensions} coordinates and got {len(self._coordinates)}")
        self.operands = (self._address, *self._coordinates)
        self._known: dict[bytes, tuple[TensorMap, int]] = {}
        self._parameters: dict[int, tuple[TensorMap, int]] = {}

    def check(self, active: Active) -> None:
        """Every lane's operand must be a tensor map."""
        for _ in self.each(active):
            pass

    def each(self, active: Active) -> Iterator[tuple[int, TensorMap, int, NDArray[np.int64]]]:
        """Every lane with its map, where its tensor starts in global memory, and its coordinates (1, rank)."""
        addresses, *columns = (_column(read, active) for read in self.operands)
        for row, lane in enumerate(active.lanes.tolist()):
            tensor, start = self._map(lane, addresses[row : row + 1])
            yield lane, tensor, start, np.array([[column[row] for column in columns]], dtype=np.int64)

    def _map(self, lane: int, address: NDArray[np.int64]) -> tuple[TensorMap, int]:
        found = self._parameters.get(int(address[0]))
        if found is not None:
            return found
        memory, instruction = self._machine.memory, self._instruction
        one = Active.of(np.array([lane], dtype=np.intp))
        pieces = address[:, None] + np.arange(0, TENSOR_MAP_BYTES, CHUNK_BYTES)
        space, offsets = memory.resolve(instruction, one, "generic", pieces, CHUNK_BYTES)
        if int(address[0]) % _TENSOR_MAP_ALIGNMENT_BYTES:
            raise MisalignedAccess(
                f"{instruction.text}: {memory.thread(lane)}: the tensor map lies at {int(address[0]):#x}, which is no "
                f"multiple of {_TENSOR_MAP_ALIGNMENT_BYTES}",
                **_where(memory, instruction),
            )
        memory.check_read(instruction, one, space, offsets, CHUNK_BYTES)
        self._check_fenced(lane, space, offsets)
        raw = space.gather(offsets.reshape(-1), CHUNK_BYTES).tobytes()
        found = self._known.get(raw)
        if found is None:
            found = self._known[raw] = self._decoded(lane, raw)
        home = memory.global_space.around(int(offsets.flat[0]))
        if home is not None and not home.writable:  # a parameter of the launch: it stays what it is
            self._parameters[int(address[0])] = found
        return found

    def _check_fenced(self, lane: int, space: Space, offsets: Offsets) -> None:
        """A map that this launch wrote is seen through the tensormap proxy behind a fence alone."""
        memory, instruction = self._machine.memory, self._instruction
        if space is not memory.global_space:
            raise IllegalInstruction(
                f"{instruction.text}: {memory.thread(lane)}: the tensor map lies in {space.name} memory; it takes one "
                "in a parameter or in global memory",
                **_where(memory, instruction),
            )
        written = not space.lacks(offsets, CHUNK_BYTES, WRITTEN).all()
        if memory.races is not None and written and int(offsets.flat[0]) not in self._machine.fenced_maps:
            raise DataRace(
                f"{instruction.text}: {memory.thread(lane)} uses a tensor map that this kernel wrote, and no "
                "fence.proxy.tensormap::generic.acquire of its address stands behind the write",
                **_where(memory, instruction),
            )

    def _decoded(self, lane: int, raw: bytes) -> tuple[TensorMap, int]:
        memory, instruction = self._machine.memory, self._instruction
        try:
            read = decode(raw, "the kernel")
        except LayoutError as error:
            raise IllegalInstruction(
                f"{instruction.text}: {memory.thread(lane)}: {error}", **_where(memory, instruction)
            ) from error
        if read is None:
            raise IllegalInstruction(
                f"{instruction.text}: {memory.thread(lane)}: there is no tensor map at its address; it takes the "
                "address of a TensorMap argument of the launch (a __grid_constant__ parameter), or of a copy of it",
                **_where(memory, instruction),
            )
        tensor, address = read
        if len(tensor.dims) != len(self._coordinates):
            raise IllegalInstruction(
                f"{instruction.text}: {memory.thread(lane)}: the tensor map has {len(tensor.dims)} dimensions and the "
                f"copy takes {len(self._coordinates)}: give the map as many dims and extents of its box",
                **_where(memory, instruction),
            )
        home = memory.global_space.around(address - GLOBAL_BASE)
        named, _ = decode(raw, home.name if home is not None else "the kernel") or read
        return named, address - GLOBAL_BASE


class _Copy:
    """One copy or reduction instruction: what it takes from its modifiers, and what it does."""

    def __init__(self, instruction: Instruction, assembler: Assembler, modifiers: Modifiers, *, reduces: bool) -> None:
        self._instruction = instruction
        self._machine: Machine = assembler.machine
        self._dimensions = _dimensions(modifiers) if modifiers.flag("tensor") else 0
        to = modifiers.need("shared::cluster", "shared::cta", "global")
        self._loads = to != "global"
        came_from = modifiers.need("global", "shared::cta")
        if not self._loads and came_from == "global":
            raise unknown(instruction, "copies between global and shared memory")
        self._from_global = came_from == "global"
        self._spaces = ("shared" if came_from == "shared::cta" else "global", "shared" if self._loads else "global")
        modifiers.need(_BARRIER if self._loads else "bulk_group")
        modifiers.flag("tile")
        multicast = modifiers.flag("multicast::cluster")
        hinted = modifiers.flag("L2::cache_hint")
        name = modifiers.need(*_REDUCTIONS) if reduces else None
        modifiers.flag("noftz")
        self._once = not self._loads and not reduces
        self._reduction: Callable[[str], MemoryUpdate] | None = None
        self._reduction_type = modifiers.last() if reduces and not self._dimensions else None
        modifiers.done()
        if name is not None:
            self._reduction = lambda type_name: _reduction(instruction, name, type_name)
            if self._reduction_type is not None:
                self._reduction(self._reduction_type)
        operands = list(instruction.operands)
        if hinted:
            assembler.source(operands.pop(), np.uint64)
        self._mask = assembler.source(operands.pop(), np.uint16) if multicast else None
        self._barrier: Source | None = None
        if self._loads:
            self._barrier, _ = address_source(assembler, operands.pop(), "shared")
        self._size = None if self._dimensions else assembler.source(operands.pop(), np.uint32)
        if len(operands) != 2:
            raise unknown(instruction, "has operands that the emulator does not know")
        self._tensor: _TensorPlace | None = None
        self._plain: list[Source | None] = [None, None]
        for number, operand in enumerate(reversed(operands)):  # source, destination
            if self._dimensions and self._spaces[number] == "global":
                self._tensor = _TensorPlace(instruction, assembler, operand, self._dimensions)
            else:
                self._plain[number], _ = address_source(assembler, operand, self._spaces[number])

    def operation(self) -> Operation:
        """The instruction as a function over lanes."""
        return Operation(self._tensor_run if self._tensor is not None else self._plain_run)

    def _plain_run(self, active: Active) -> None:
        machine = self._machine
        machine.last_effect = machine.steps
        assert self._size is not None
        if self._once:
            active = _one_each(active, [self._size, *(each for each in self._plain if each is not None)])
        sizes = np.broadcast_to(self._size(active), active.count)
        read, write = (np.broadcast_to(each(active), active.count) for each in self._plain if each is not None)
        for row, lane in enumerate(active.lanes.tolist()):
            size = int(sizes[row])
            if size % CHUNK_BYTES:
                raise self._illegal(lane, f"copies {size} bytes, which is no multiple of {CHUNK_BYTES}")
            steps = np.arange(0, size, CHUNK_BYTES)
            source = self._resolve(lane, self._spaces[0], int(read[row]) + steps)
            reduction = self._reduction(self._reduction_type or "") if self._reduction is not None else None
            targets = list(self._targets(active, row, lane))
            if self._spaces[0] == "global":
                sectors = piece_sectors(int(read[row]) + steps, len(steps))
                machine.count.bulk_load(self._instruction, size, sectors, len(targets))
            elif self._spaces[1] == "global":
                sectors = piece_sectors(int(write[row]) + steps, len(steps))
                machine.count.bulk_store(self._instruction, size, sectors, reduces=reduction is not None)
            for target, barrier in targets:
                place = int(write[row]) if target is None else target(int(write[row]))
                machine.bulk.issue(BulkTransfer(
                    self._instruction, lane, source, self._resolve(lane, self._spaces[1], place + steps),
                    reduction=reduction, barrier=barrier, counted_bytes=size,
                ))  # fmt: skip

    def _tensor_run(self, active: Active) -> None:
        machine = self._machine
        machine.last_effect = machine.steps
        assert self._tensor is not None
        shared = self._plain[1] if self._loads else self._plain[0]
        assert shared is not None
        if self._once:
            active = _one_each(active, [shared, *self._tensor.operands])
        addresses = np.broadcast_to(shared(active), active.count)
        for row, (lane, tensor, start, coordinates) in enumerate(self._tensor.each(active)):
            self._check_tensor(lane, tensor, coordinates, int(addresses[row]))
            offsets, inside = box_at(tensor, tuple(coordinates[0].tolist()))
            if not self._loads:
                self._store(lane, tensor, start, offsets, inside > 0, int(addresses[row]))
                continue
            places = start + offsets
            source = (machine.global_space, np.where(inside > 0, places, 0))
            targets = list(self._targets(active, row, lane))
            sectors = piece_sectors(places, row_chunks(tensor))
            size, counted = int(inside.sum()), box_bytes(tensor)
            machine.count.bulk_load(self._instruction, size, sectors, len(targets), zeros=counted - size)
            for target, barrier in targets:
                place = int(addresses[row]) if target is None else target(int(addresses[row]))
                where = self._resolve(lane, "shared", slots(tensor, np.array([place]))[0])
                machine.bulk.issue(BulkTransfer(
                    self._instruction, lane, source, where, fill=(tensor, inside), barrier=barrier,
                    counted_bytes=counted,
                ))  # fmt: skip

    def _store(
        self, lane: int, tensor: TensorMap, start: int, places: Offsets, inside: NDArray[np.bool_], address: int
    ) -> None:
        """What lies inside the tensor is written, in whole chunks, as the hardware does."""
        space, offsets = self._resolve(lane, "shared", slots(tensor, np.array([address]))[0])
        size = CHUNK_BYTES * int(np.count_nonzero(inside))
        sectors = piece_sectors(start + places, row_chunks(tensor), inside)
        self._machine.count.bulk_store(self._instruction, size, sectors, reduces=self._reduction is not None)
        reduction = None
        if self._reduction is not None:
            name = "f32" if tensor.dtype == "tf32" else tensor.dtype
            if name in _BITWISE_TYPES and any(each in self._instruction.modifiers for each in _BITWISE):
                name = f"b{8 * tensor.element_bytes}"
            reduction = self._reduction(name)
        self._machine.bulk.issue(BulkTransfer(
            self._instruction, lane, (space, offsets[inside]),
            (self._machine.global_space, start + places[inside]), reduction=reduction,
        ))  # fmt: skip

    def _check_tensor(self, lane: int, tensor: TensorMap, coordinates: NDArray[np.int64], address: int) -> None:
        inner = int(coordinates[0, 0])
        if inner * tensor.element_bytes % CHUNK_BYTES:
            raise self._illegal(
                lane,
                f"its innermost coordinate {inner} is {inner * tensor.element_bytes} bytes into a row of "
                f"{tensor.operand}; it takes multiples of {CHUNK_BYTES} bytes",
            )
        if not self._loads and (coordinates < 0).any():
            raise self._illegal(
                lane, f"a store to {tensor.operand} at coordinates {coordinates[0].tolist()}: none may be negative"
            )
        if address % TILE_ALIGNMENT_BYTES:
            raise MisalignedAccess(
                f"{self._instruction.text}: {self._machine.memory.thread(lane)}: a tensor copy at byte "
                f"{address % OWN_BYTES} of shared memory; it takes multiples of {TILE_ALIGNMENT_BYTES}",
                **_where(self._machine.memory, self._instruction),
            )

    def _targets(self, active: Active, row: int, lane: int) -> Iterator[tuple[Callable[[int], int] | None, int | None]]:
        """Where a lane's copy goes: how to get each destination from the address given, and its mbarrier."""
        if self._barrier is None:
            yield None, None
            return
        barrier = int(np.broadcast_to(self._barrier(active), active.count)[row])
        if self._mask is None:
            yield None, self._mbarrier(lane, barrier)
            return
        mask = int(np.broadcast_to(self._mask(active), active.count)[row])
        ctas = self._machine.geometry.cluster_ctas
        if mask == 0 or mask >> ctas:
            raise self._illegal(lane, f"multicast mask {mask:#x} in a cluster of {ctas} CTAs")
        for rank in range(ctas):
            if mask >> rank & 1:

                def at(address: int, rank: int = rank) -> int:
                    return (address & (OWN_BYTES - 1)) | rank << RANK_SHIFT

                yield at, self._mbarrier(lane, at(barrier))

    def _mbarrier(self, lane: int, address: int) -> int:
        one = Active.of(np.array([lane], dtype=np.intp))
        place = np.array([address], dtype=np.int64)
        _, offsets = self._machine.memory.resolve(self._instruction, one, "shared", place, MBARRIER_BYTES)
        return int(offsets[0])

    def _resolve(self, lane: int, space: str, addresses: Offsets) -> tuple[Space, Offsets]:
        one = Active.of(np.array([lane], dtype=np.intp))
        where, offsets = self._machine.memory.resolve(
            self._instruction, one, space, addresses[None, :], CHUNK_BYTES
        ) if len(addresses) else (self._machine.memory.shared_space, addresses[None, :])  # fmt: skip
        return where, offsets[0]

    def _illegal(self, lane: int, what: str) -> EmulationError:
        memory = self._machine.memory
        return IllegalInstruction(
            f"{self._instruction.text}: {memory.thread(lane)}: {what}", **_where(memory, self._instruction)
        )


def _column(read: Source, active: Active) -> NDArray[np.int64]:
    return np.broadcast_to(read(active), active.count).astype(np.int64)


def _one_each(active: Active, operands: Sequence[Source]) -> Active:
    """Of each warp, one lane for each distinct set of operands.

    The operands of a store are uniform registers: ptxas 13.0 makes one store of a warp whose lanes agree, and where it
    cannot tell, a loop over their distinct values. Loads and reductions, which are not idempotent, it repeats by lane.
    """
    table = np.stack([active.lanes // WARP, *(_column(read, active) for read in operands)])
    _, first = np.unique(table, axis=1, return_index=True)
    return active.where(np.isin(np.arange(active.count), first))


def _reduction(instruction: Instruction, name: str, type_name: str) -> MemoryUpdate:
    """What it makes of old and given elements."""
    shared = "shared::cluster" in instruction.modifiers
    allowed = tuple(each for each in _TYPES_OF[name] if not shared or each[0] in "us" or each == "b32")
    if type_name not in allowed:
        raise unknown(instruction, f"cannot {name} .{type_name}; it takes {', '.join(allowed)}")
    return MemoryUpdate(name, type_name)


def _where(memory: Memory, instruction: Instruction) -> dict[str, Any]:
    return {"kernel": memory.kernel, "location": instruction.location}
