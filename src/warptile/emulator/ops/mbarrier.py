"""`mbarrier.*` (PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier")."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.builders import Assembler, Destination, Modifiers, Operation, Source, builder, unknown
from warptile.emulator.lanes import Active
from warptile.emulator.machine import Machine
from warptile.emulator.memory.spaces import Offsets
from warptile.emulator.ops.load_store import address_source, take_space
from warptile.emulator.sync.mbarriers import BYTES, ParkedThreads, split_state
from warptile.errors import MbarrierMisuse
from warptile.ptx.instruction import Immediate, Instruction, Operand, Sink


@dataclass(frozen=True)
class MbarrierAddress:
    """The mbarrier operand of an instruction: from active lanes to offsets into shared memory."""

    machine: Machine
    instruction: Instruction
    address: Source
    space: str

    def offsets(self, active: Active) -> Offsets:
        """One offset per active lane; addresses outside shared memory are refused."""
        memory = self.machine.memory
        where, offsets = memory.resolve(self.instruction, active, self.space, self.address(active), BYTES)
        if where is not memory.shared_space:
            raise MbarrierMisuse(
                f"{self.instruction.text}: {memory.thread(active.lanes[0])}: an mbarrier lies in shared memory, and "
                f"this address in {where.name} memory",
                kernel=memory.kernel,
                location=self.instruction.location,
            )
        return offsets

    def each(self, active: Active) -> Iterator[tuple[int, NDArray[np.intp]]]:
        """Each mbarrier's offset, with the positions among the active lanes of those that mean it."""
        yield from by_offset(self.offsets(active))


def by_offset(offsets: Offsets) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Distinct offsets, each with the positions that hold it, in order."""
    first = int(offsets[0])
    if (offsets == first).all():
        yield first, np.arange(len(offsets))
        return
    order = np.argsort(offsets, kind="stable")
    starts = np.flatnonzero(np.diff(offsets[order])) + 1
    for chosen in np.split(order, starts):
        yield int(offsets[chosen[0]]), chosen


def take_place(
    assembler: Assembler, instruction: Instruction, modifiers: Modifiers, operand: Operand, *, own: bool = False
) -> MbarrierAddress:
    """The mbarrier operand of an instruction, its space taken from the modifiers.

    Of the instructions for which it is the CTA's ``own``, none takes `.shared::cluster`.
    """
    if own and "shared::cluster" in modifiers.rest:
        raise unknown(instruction, "means an mbarrier of the own CTA: .shared::cta")
    space = take_space(modifiers)
    if space not in ("shared", "generic", "shared::cluster"):
        raise unknown(instruction, f"an mbarrier lies in shared memory, not in .{space}")
    address, space = address_source(assembler, operand, space)
    return MbarrierAddress(assembler.machine, instruction, address, space)


@builder("mbarrier")
def build_mbarrier(instruction: Instruction, assembler: Assembler) -> Operation:
    """Every `mbarrier` instruction, by its first modifier."""
    modifiers = Modifiers(instruction)
    name = modifiers.need(*_KINDS)
    modifiers.need("b64")
    return _KINDS[name](name, instruction, assembler, modifiers)


def _build_init(name: str, instruction: Instruction, assembler: Assembler, modifiers: Modifiers) -> Operation:
    """`mbarrier.init [addr], count` and `mbarrier.inval [addr]`."""
    place = take_place(assembler, instruction, modifiers, instruction.operands[0], own=True)
    modifiers.done()
    count = assembler.source(instruction.operands[1], np.uint32) if name == "init" else None
    machine = assembler.machine

    def run(active: Active) -> None:
        machine.last_effect = machine.steps
        offsets = place.offsets(active)
        if machine.memory.races is not None:
            machine.memory.races.mbarrier(instruction, active, offsets, plain=True)
        counts = _column(count, active) if count is not None else None
        for number, (lane, offset) in enumerate(zip(active.lanes.tolist(), offsets.tolist(), strict=True)):
            if counts is None:
                machine.mbarriers.inval(instruction, lane, offset)
            else:
                machine.mbarriers.init(instruction, lane, offset, int(counts[number]))

    return Operation(run)


def _build_arrive(name: str, instruction: Instruction, assembler: Assembler, modifiers: Modifiers) -> Operation:
    """`mbarrier.arrive` and `mbarrier.arrive_drop`, with `.noComplete` or `.expect_tx`."""
    completes, expects = not modifiers.flag("noComplete"), modifiers.flag("expect_tx")
    relaxed = modifiers.take("release", "relaxed") == "relaxed"
    modifiers.take("cta", "cluster")
    target, *rest = instruction.operands
    if "shared::cluster" in modifiers.rest and not isinstance(target, Sink):
        raise unknown(instruction, "returns no state of an mbarrier that may be another CTA's: it takes _")
    place = take_place(assembler, instruction, modifiers, rest[0])
    modifiers.done()
    if len(rest) < 2 and (expects or not completes):
        raise unknown(instruction, "needs a count")
    number = assembler.source(rest[1] if len(rest) > 1 else Immediate(1), np.uint32)
    state = assembler.destination(target, np.uint64)
    machine = assembler.machine

    def run(active: Active) -> None:
        machine.last_effect = machine.steps
        offsets = place.offsets(active)
        if machine.memory.races is not None:
            machine.memory.races.mbarrier(instruction, active, offsets)
        given = _column(number, active)
        states = np.empty(active.count, dtype=np.uint64)
        for offset, chosen in by_offset(offsets):
            states[chosen] = machine.mbarriers.arrive(
                instruction,
                active.lanes[chosen],
                offset,
                np.ones(len(chosen), dtype=np.int64) if expects else given[chosen],
                expect=given[chosen] if expects else None,
                drop=name == "arrive_drop",
                completes=completes,
                releases=not relaxed,
            )
        state(active, states)

    return Operation(run)


def _build_transaction(name: str, instruction: Instruction, assembler: Assembler, modifiers: Modifiers) -> Operation:
    """`mbarrier.expect_tx [addr], size` and `mbarrier.complete_tx [addr], size`: no arrival, no order."""
    modifiers.flag("relaxed")
    modifiers.take("cta", "cluster")
    place = take_place(assembler, instruction, modifiers, instruction.operands[0])
    modifiers.done()
    size = assembler.source(instruction.operands[1], np.uint32)
    machine = assembler.machine

    def run(active: Active) -> None:
        machine.last_effect = machine.steps
        offsets = place.offsets(active)
        if machine.memory.races is not None:
            machine.memory.races.mbarrier(instruction, active, offsets)
        act = machine.mbarriers.expect_tx if name == "expect_tx" else machine.mbarriers.complete_tx
        for lane, offset, value in zip(active.lanes, offsets.tolist(), _column(size, active).tolist(), strict=True):
            act(instruction, lane, offset, value)

    return Operation(run)


def _build_pending_count(name: str, instruction: Instruction, assembler: Assembler, modifiers: Modifiers) -> Operation:
    """`mbarrier.pending_count count, state`."""
    modifiers.done()
    target = assembler.destination(instruction.operands[0], np.uint32)
    state = assembler.source(instruction.operands[1], np.uint64)
    return Operation(lambda active: target(active, split_state(state(active))[1].astype(np.uint32)))


def _column(source: Source, active: Active) -> NDArray[np.int64]:
    return np.broadcast_to(source(active), active.count).astype(np.int64)


@dataclass(frozen=True)
class MbarrierWait:
    """A `test_wait` or `try_wait`, as the scheduler runs it.

    Attributes:
        wanted: reads the state of a phase, or its parity.
        parity: which of the two.
        result: the predicate that tells whether the phase is complete.
        acquires: not `.relaxed`.
    """

    place: MbarrierAddress
    wanted: Source
    parity: bool
    result: Destination
    acquires: bool

    def run(self, active: Active, position: int) -> NDArray[np.bool_]:
        """Which of the lanes go on; the others are parked, until their phase is complete."""
        machine, instruction = self.place.machine, self.place.instruction
        mbarriers = machine.mbarriers
        offsets = self.place.offsets(active)
        if machine.memory.races is not None:
            machine.memory.races.mbarrier(instruction, active, offsets)
        values = np.broadcast_to(self.wanted(active), active.count)
        asked = (values & 1).astype(np.int64) if self.parity else split_state(values)[0]
        going = np.ones(active.count, dtype=np.bool_)
        done = np.ones(active.count, dtype=np.bool_)
        for offset, chosen in by_offset(offsets):
            barrier = mbarriers.find(instruction, active.lanes[chosen[0]], offset)
            phase = barrier.phase
            current = asked[chosen] == (phase % 2 if self.parity else phase)
            if not self.parity and (~current & (asked[chosen] != phase - 1)).any():
                mbarriers.refuse_phase(instruction, active.lanes[chosen[0]], offset, int(asked[chosen].min()))
            behind, blocked = chosen[~current], chosen[current]
            if len(behind) and self.acquires:
                mbarriers.acquire(barrier, active.lanes[behind])
            done[blocked] = False
            if len(blocked) and not mbarriers.refuses():
                going[blocked] = False
                lanes = active.lanes[blocked]
                parked = ParkedThreads(instruction, position, lanes, phase, self.result, self.acquires)
                mbarriers.park(offset, parked, machine.steps)
        if going.all():
            self.result(active, done)
        elif going.any():
            self.result(active.where(going), done[going])
        return going


def _build_wait(name: str, instruction: Instruction, assembler: Assembler, modifiers: Modifiers) -> Operation:
    """`mbarrier.{test_wait,try_wait}{.parity}`: the scheduler runs it."""
    parity = modifiers.flag("parity")
    relaxed = modifiers.take("acquire", "relaxed") == "relaxed"
    modifiers.take("cta", "cluster")
    target, address, wanted, *hint = instruction.operands
    place = take_place(assembler, instruction, modifiers, address, own=True)
    modifiers.done()
    if len(hint) > (name == "try_wait"):
        raise unknown(instruction, "has too many operands")
    if hint:
        assembler.source(hint[0], np.uint32)
    read = assembler.source(wanted, np.uint32 if parity else np.uint64)
    result = assembler.destination(target, np.bool_)
    return Operation(_never, wait=MbarrierWait(place, read, parity, result, not relaxed))


def _never(active: Active) -> None:
    raise AssertionError("the scheduler runs waits")


_KINDS: dict[str, Callable[[str, Instruction, Assembler, Modifiers], Operation]] = {
    "init": _build_init, "inval": _build_init, "arrive": _build_arrive, "arrive_drop": _build_arrive,
    "expect_tx": _build_transaction, "complete_tx": _build_transaction, "test_wait": _build_wait,
    "try_wait": _build_wait, "pending_count": _build_pending_count,
}  # fmt: skip
