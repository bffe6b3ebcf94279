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

from warptile.emulator.checks.control_flow import named_registers, targets
from warptile.ptx.instruction import Instruction, PtxFunction

_EFFECTS = ("st", "stmatrix", "red", "atom", "cp", "wgmma", "shfl", "vote", "match", "redux", "call")
"""Opcodes of instructions that cannot move behind an arrival."""


class UnwaitedReads:
    """Which loads of some functions are not waited for. Calls are not looked into."""

    def __init__(self, functions: Iterable[PtxFunction]) -> None:
        self._functions = [each for each in functions if each.body]
        self._places: dict[int, tuple[PtxFunction, int]] = {}
        self._found: dict[int, bool] = {}

    def reaches_arrival(self, load: Instruction) -> bool:
        """Whether a thread may arrive at a barrier, or release a flag, without having waited for this load."""
        if not self._places:
            for function in self._functions:
                self._places.update((id(each), (function, place)) for place, each in enumerate(function.body or ()))
        found = self._found.get(id(load))
        if found is None:
            place = self._places.get(id(load))
            found = self._found[id(load)] = place is not None and _reaches_arrival(*place)
        return found


def _reaches_arrival(function: PtxFunction, load: int) -> bool:
    body = function.body or ()
    pending, seen = [(load + 1, frozenset(named_registers(body[load], 0, 1)))], set[int]()
    while pending:
        place, loaded = pending.pop()
        while place < len(body) and place not in seen:
            seen.add(place)
            each = body[place]
            guard = set() if each.predicate is None else {each.predicate.name}
            if _releases(each):
                return True
            taken = guard | named_registers(each, 0, None) if each.opcode in _EFFECTS else guard
            if _waits(each) or not loaded.isdisjoint(taken):
                break
            if not loaded.isdisjoint(named_registers(each, 1, None)):
                loaded |= named_registers(each, 0, 1)
            if each.opcode in ("bra", "brx", "ret", "exit", "trap"):
                pending += [(target, loaded) for target in targets(function, each)]
                if each.predicate is None:
                    break
            place += 1
    return False


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
