"""Instructions in which the lanes of a warp exchange values: shuffles, votes, matches, reductions, elections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.builders import Assembler, Modifiers, Operation, Source, builder, unknown
from warptile.emulator.lanes import POISON_BYTE, WARP, Active, Array
from warptile.ptx.instruction import Instruction, Paired, Sink

Masks = NDArray[np.uint64]

_UNDEFINED = POISON_BYTE * 0x01010101


class Warps:
    """The active lanes seen warp by warp.

    Attributes:
        lane: each active lane's number in its warp.
        row: which of the present warps it belongs to.
        count: present warps.
    """

    def __init__(self, active: Active) -> None:
        lanes = active.lanes
        self.lane = lanes % WARP
        warp = lanes // WARP
        starts = np.concatenate(([True], warp[1:] != warp[:-1]))
        self.row = np.cumsum(starts) - 1
        self.count = int(self.row[-1]) + 1
        self.bit: Masks = np.uint64(1) << self.lane.astype(np.uint64)

    def ballot(self, chosen: NDArray[np.bool_]) -> Masks:
        """For each active lane, the mask of its warp's lanes for which ``chosen`` holds."""
        table = np.zeros(self.count, dtype=np.uint64)
        np.bitwise_or.at(table, self.row[chosen], self.bit[chosen])
        masks: Masks = table[self.row]
        return masks

    def spread(self, values: Array, absent: int = 0) -> Array:
        """A table of warps by lanes with each lane's value, ``absent`` where there is none."""
        table = np.full((self.count, WARP), absent, dtype=values.dtype)
        table[self.row, self.lane] = values
        return table


def _full(values: Array, active: Active) -> Array:
    return np.broadcast_to(values, active.count)


def _mask_operand(assembler: Assembler, instruction: Instruction) -> Source:
    return assembler.source(instruction.operands[-1], np.uint32)


@builder("shfl")
def build_shuffle(instruction: Instruction, assembler: Assembler) -> Operation:
    """`shfl.sync.{up,down,bfly,idx}.b32 d|p, a, b, c, mask`: the ISA's pseudocode over all warps at once."""
    modifiers = Modifiers(instruction)
    modifiers.need("sync")
    mode = modifiers.need("up", "down", "bfly", "idx")
    modifiers.need("b32")
    modifiers.done()
    first = instruction.operands[0]
    value_target, predicate_target = (first.first, first.second) if isinstance(first, Paired) else (first, None)
    target = assembler.destination(value_target or Sink(), np.uint32)
    inside = assembler.destination(predicate_target or Sink(), np.bool_)
    read, lane_operand, clamp = (assembler.source(o, np.uint32) for o in instruction.operands[1:4])

    def sources(lane: Array, b: Array, c: Array) -> tuple[Array, NDArray[np.bool_]]:
        """For each lane the lane that it asks, itself where that one is out of range, and whether it is in range."""
        b, c = b.astype(np.int64) & 31, c.astype(np.int64)
        segment = (c >> 8) & 31
        lowest = lane & segment
        highest = lowest | (c & 31 & ~segment)
        if mode == "up":
            other = lane - b
            good = other >= highest
        elif mode == "down":
            other = lane + b
            good = other <= highest
        elif mode == "bfly":
            other = lane ^ b
            good = other <= highest
        else:
            other = lowest | (b & ~segment)
            good = other <= highest
        return np.where(good, other, lane), good

    memory = None if assembler.moves_undefined_bits else assembler.machine.memory

    def shuffle(active: Active) -> None:
        values, b, c = _full(read(active), active), lane_operand(active), clamp(active)
        if active.whole_warps and len(b) == len(c) == 1:
            other, good = sources(np.arange(WARP), b, c)
            target(active, values.reshape(-1, WARP)[:, other].ravel())
            inside(active, np.tile(good, active.count // WARP))
            return
        warps = Warps(active)
        other, good = sources(warps.lane.astype(np.int64), _full(b, active), _full(c, active))
        # The value of a lane that takes no part is undefined: poison, as of memory that nothing has written.
        result = warps.spread(values, absent=_UNDEFINED)[warps.row, other]
        if memory is not None and (result == _UNDEFINED).any():
            present = warps.spread(np.ones(active.count, np.bool_))
            if not present[warps.row, other].all():
                memory.meet_undefined("shared", follows="shared" in memory.follows_loads)
        target(active, result)
        inside(active, good)

    return Operation(shuffle, "mask", _mask_operand(assembler, instruction))


@builder("vote")
def build_vote(instruction: Instruction, assembler: Assembler) -> Operation:
    """`vote.sync.{all,any,uni}.pred` and `vote.sync.ballot.b32`."""
    modifiers = Modifiers(instruction)
    modifiers.need("sync")
    mode = modifiers.need("all", "any", "uni", "ballot")
    modifiers.need("pred", "b32")
    modifiers.done()
    target = assembler.destination(instruction.operands[0], np.uint32 if mode == "ballot" else np.bool_)
    read = assembler.source(instruction.operands[1], np.bool_)
    members = _mask_operand(assembler, instruction)

    def vote(active: Active) -> None:
        warps = Warps(active)
        chosen = _full(read(active), active)
        mask = _full(members(active), active).astype(np.uint64)
        present = warps.ballot(np.ones(active.count, dtype=np.bool_)) & mask
        yes = warps.ballot(chosen) & mask
        if mode == "ballot":
            target(active, yes.astype(np.uint32))
        elif mode == "all":
            target(active, yes == present)
        elif mode == "any":
            target(active, yes != 0)
        else:
            target(active, (yes == present) | (yes == 0))

    return Operation(vote, "mask", members)


@builder("activemask")
def build_active_mask(instruction: Instruction, assembler: Assembler) -> Operation:
    """`activemask.b32`: the lanes of the warp that happen to be together here."""
    modifiers = Modifiers(instruction)
    modifiers.need("b32")
    modifiers.done()
    target = assembler.destination(instruction.operands[0], np.uint32)

    def active_mask(active: Active) -> None:
        here = Warps(active).ballot(np.ones(active.count, dtype=np.bool_))
        target(active, here.astype(np.uint32))

    return Operation(active_mask)


@builder("match")
def build_match(instruction: Instruction, assembler: Assembler) -> Operation:
    """`match.any.sync` and `match.all.sync`, b32 and b64."""
    modifiers = Modifiers(instruction)
    mode = modifiers.need("any", "all")
    modifiers.need("sync")
    dtype = np.uint32 if modifiers.need("b32", "b64") == "b32" else np.uint64
    modifiers.done()
    first = instruction.operands[0]
    mask_target, predicate_target = (first.first, first.second) if isinstance(first, Paired) else (first, None)
    target = assembler.destination(mask_target or Sink(), np.uint32)
    all_equal = assembler.destination(predicate_target or Sink(), np.bool_)
    read = assembler.source(instruction.operands[1], dtype)
    members = _mask_operand(assembler, instruction)

    def match(active: Active) -> None:
        warps = Warps(active)
        values = _full(read(active), active)
        mask = _full(members(active), active).astype(np.uint64)
        present = warps.ballot(np.ones(active.count, dtype=np.bool_)) & mask
        table = warps.spread(values)[warps.row]
        weights = np.uint64(1) << np.arange(WARP, dtype=np.uint64)
        equal = ((table == values[:, None]) * weights).sum(axis=1, dtype=np.uint64) & present
        if mode == "any":
            target(active, equal.astype(np.uint32))
        else:
            same = equal == present
            target(active, np.where(same, present, np.uint64(0)).astype(np.uint32))
            all_equal(active, same)

    return Operation(match, "mask", members)


_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add.reduce, "min": np.minimum.reduce, "max": np.maximum.reduce,
    "and": np.bitwise_and.reduce, "or": np.bitwise_or.reduce, "xor": np.bitwise_xor.reduce,
}  # fmt: skip


@builder("redux")
def build_reduction(instruction: Instruction, assembler: Assembler) -> Operation:
    """`redux.sync`: integer add, min, max, and, or, xor; f32 min and max with .abs and .NaN."""
    modifiers = Modifiers(instruction)
    modifiers.need("sync")
    name = modifiers.need(*_REDUCTIONS)
    type_name = modifiers.last()
    absolute, keep_nan = modifiers.flag("abs"), modifiers.flag("NaN")
    modifiers.done()
    dtypes = {"u32": np.uint32, "s32": np.int32, "b32": np.uint32, "f32": np.float32}
    if type_name not in dtypes or (type_name == "f32") != (name in ("min", "max") and type_name == "f32"):
        raise unknown(instruction, f"cannot reduce .{type_name} with .{name}")
    dtype = dtypes[type_name]
    reduce = _REDUCTIONS[name]
    if type_name == "f32" and not keep_nan:
        reduce = {"min": np.fmin.reduce, "max": np.fmax.reduce}[name]
    target = assembler.destination(instruction.operands[0], dtype)
    read = assembler.source(instruction.operands[1], dtype)
    members = _mask_operand(assembler, instruction)

    def run(active: Active) -> None:
        warps = Warps(active)
        values = _full(read(active), active)
        if absolute:
            values = np.abs(values)
        masks = _full(members(active), active)
        result = np.empty(active.count, dtype=dtype)
        keys = warps.row.astype(np.uint64) << np.uint64(32) | masks.astype(np.uint64)
        for key in np.unique(keys):
            chosen = keys == key
            value = reduce(values[chosen], dtype=dtype) if name == "add" else reduce(values[chosen])
            if type_name == "f32" and np.isnan(value):
                value = np.uint32(0x7FFFFFFF).view(np.float32)
            result[chosen] = value
        target(active, result)

    return Operation(run, "mask", members)


@builder("elect")
def build_election(instruction: Instruction, assembler: Assembler) -> Operation:
    """`elect.sync d|p, mask`: the lowest member leads (the ISA leaves it open; hardware takes the lowest)."""
    modifiers = Modifiers(instruction)
    modifiers.need("sync")
    modifiers.done()
    first = instruction.operands[0]
    if not isinstance(first, Paired):
        raise unknown(instruction, "needs d|p")
    leader = assembler.destination(first.first or Sink(), np.uint32)
    elected = assembler.destination(first.second or Sink(), np.bool_)
    members = _mask_operand(assembler, instruction)

    def elect(active: Active) -> None:
        warps = Warps(active)
        mask = _full(members(active), active).astype(np.uint64)
        present = warps.ballot(np.ones(active.count, dtype=np.bool_)) & mask
        lowest = present & (~present + np.uint64(1))
        leader(active, np.log2(lowest.astype(np.float64)).astype(np.uint32))
        elected(active, lowest == warps.bit)

    return Operation(elect, "mask", members)
