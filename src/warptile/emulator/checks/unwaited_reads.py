"""Finds loads from shared memory that may still be under way when their thread gives the memory free.

A bulk copy that overwrites bytes which an ordinary load has read goes through another proxy than the load: a barrier
alone does not order the two (PTX ISA, "Memory Consistency Model: Proxies"). An H200 keeps their order where the thread
has waited for what it loaded before it arrives at the barrier. Where it has not, ptxas issues the arrival next to the
load, and the copy may be faster: of 150 launches of a GEMM that stored much and released each stage behind its last
loads, up to 106 had wrong elements, and none with a `fence.proxy.async` before the arrival (2026-11-30, no record).

So a load counts as waited for if on every way from it to an arrival there is a fence, a barrier or another instruction
that waits, or one with an effect that takes the loaded value, or a value computed from it. Arithmetic, MMAs included,
has no effect: ptxas may move it behind the arrival.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from warptile.emulator.checks.control_flow import named_registers, targets
from warptile.ptx.instruction import Instruction, PtxFunction

_EFFECTS = ("st", "stmatrix", "red", "atom", "cp", "wgmma", "shfl", "vote", "match", "redux", "call")
"""Opcodes of instructions that cannot move behind an arrival."""


class UnwaitedReads:
    """Which loads of some functions are not waited for. Calls are not looked into."""

    def __init__(self, functions: Iterable[PtxFunction]) -> None:
        self._functions = [each for each in functions if each.body]
        self._places: dict[int, tuple[_Ways, int]] = {}

    def reaches_arrival(self, load: Instruction) -> bool:
        """Whether a thread may arrive at a barrier, or release a flag, without having waited for this load."""
        if not self._places:
            for function in self._functions:
                ways: _Ways | None = function.analyses.get(_Ways)
                if ways is None:
                    ways = function.analyses[_Ways] = _Ways(function)
                self._places.update((id(each), (ways, place)) for place, each in enumerate(function.body or ()))
        place = self._places.get(id(load))
        return place is not None and place[0].reach_arrival(place[1])


@dataclass(frozen=True)
class _Step:
    """What an instruction means for a load before it.

    Attributes:
        releases: others may go on behind it, while its thread waits for nothing.
        waits: its thread waits here, for others or for its own accesses.
        needs: registers whose values it waits for.
        sources: registers that it computes from.
        results: registers that it computes.
        targets: where it may lead instead of to the next instruction.
        goes_on: it may lead to the next instruction.
    """

    releases: bool
    waits: bool
    needs: frozenset[str]
    sources: frozenset[str]
    results: frozenset[str]
    targets: tuple[int, ...]
    goes_on: bool


class _Ways:
    """The ways through a function from its loads on."""

    def __init__(self, function: PtxFunction) -> None:
        self._steps = [_step(function, each) for each in function.body or ()]
        self._found: dict[int, bool] = {}

    def reach_arrival(self, load: int) -> bool:
        """Whether one of them reaches an arrival without having waited for the load at this place."""
        found = self._found.get(load)
        if found is None:
            found = self._found[load] = self._reach_arrival(load)
        return found

    def _reach_arrival(self, load: int) -> bool:
        steps = self._steps
        pending, seen = [(load + 1, steps[load].results)], set[int]()
        while pending:
            place, loaded = pending.pop()
            while place < len(steps) and place not in seen:
                seen.add(place)
                step = steps[place]
                if step.releases:
                    return True
                if step.waits or not loaded.isdisjoint(step.needs):
                    break
                if not loaded.isdisjoint(step.sources):
                    loaded |= step.results
                pending += [(target, loaded) for target in step.targets]
                if not step.goes_on:
                    break
                place += 1
        return False


def _step(function: PtxFunction, instruction: Instruction) -> _Step:
    guard = set() if instruction.predicate is None else {instruction.predicate.name}
    leads = instruction.opcode in ("bra", "brx", "ret", "exit", "trap")
    return _Step(
        releases=_releases(instruction),
        waits=_waits(instruction),
        needs=frozenset(guard | named_registers(instruction, 0, None) if instruction.opcode in _EFFECTS else guard),
        sources=frozenset(named_registers(instruction, 1, None)),
        results=frozenset(named_registers(instruction, 0, 1)),
        targets=tuple(targets(function, instruction)) if leads else (),
        goes_on=not leads or instruction.predicate is not None,
    )


def _releases(instruction: Instruction) -> bool:
    """Whether others may go on behind this instruction, while its thread waits for nothing."""
    words = instruction.modifiers
    if instruction.opcode == "mbarrier":  # a producer's arrival announces bytes, and lets nothing go
        return any(word.startswith("arrive") for word in words) and "expect_tx" not in words
    if instruction.opcode in ("bar", "barrier"):
        return "arrive" in words
    return instruction.opcode in ("st", "red", "atom") and ("release" in words or "acq_rel" in words)


def _waits(instruction: Instruction) -> bool:
    """Whether a thread waits here, for others or for its own accesses."""
    words = instruction.modifiers
    if instruction.opcode in ("fence", "membar"):
        return True
    if instruction.opcode in ("bar", "barrier"):
        return "warp" not in words and "arrive" not in words
    if instruction.opcode == "mbarrier":
        return "try_wait" in words or "test_wait" in words
    return instruction.opcode in ("cp", "wgmma", "griddepcontrol") and any("wait" in word for word in words)
