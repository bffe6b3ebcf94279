"""Finds the loads and atomics by whose results a thread decides whether, or when, it comes to an instruction.

A thread that has waited for a flag, or has drawn the last ticket, lies behind the write that it has read, and behind
the strong ones before that (observation order, PTX ISA). Any atomic on a word lies behind those that came before it in
a run, but where nobody looks at its result that is chance: the next run may have another order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from warptile.emulator.checks.control_flow import named_registers, targets
from warptile.ptx.instruction import Instruction, PtxFunction, Symbol, parts_of

_OWN_SPACES = ("shared", "shared::cta", "shared::cluster", "local", "param")
"""Memory by which a thread tells itself or others of its block what it has read."""

_MEMORY = ""
"""Stands for all of it among the names of registers."""


class DecidingReads:
    """What decides about each instruction of some functions. Calls are not looked into."""

    def __init__(self, functions: Iterable[PtxFunction]) -> None:
        self._functions = [each for each in functions if each.body]
        self._places: dict[int, tuple[_Flow, int]] = {}
        self._found: dict[int, frozenset[int]] = {}

    def of(self, instruction: Instruction) -> frozenset[int]:
        """The ``id`` of each load and atomic that decides whether, or when, a thread executes ``instruction``."""
        found = self._found.get(id(instruction))
        if found is None:
            if not self._places:
                for function in self._functions:
                    flow = _flow(function)
                    self._places.update((id(each), (flow, place)) for place, each in enumerate(function.body or ()))
            place = self._places.get(id(instruction))
            found = self._found[id(instruction)] = frozenset() if place is None else place[0].deciding(place[1])
        return found


@dataclass
class _Flow:
    """Control and data flow of a function.

    Attributes:
        body: its instructions.
        leaders: where blocks start.
        following: the blocks behind each block; -1 is the function's end. Those that only trap have none.
        sources: of each register, those that its values are computed from.
    """

    body: tuple[Instruction, ...]
    leaders: list[int]
    following: list[list[int]]
    sources: dict[str, set[str]]
    before: list[list[int]] = field(init=False)
    ends: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.before = [[] for _ in self.leaders]
        for block, behind in enumerate(self.following):
            for each in behind:
                if each >= 0:
                    self.before[each].append(block)
        ends = [block for block, behind in enumerate(self.following) if -1 in behind]
        self.ends = {-1}.union(self._reaching(ends, -1))

    def _reaching(self, blocks: Iterable[int], without: int) -> set[int]:
        """Blocks from which a path leads to the start of one of some ``blocks``, and does not pass another one."""
        found, pending = set(blocks), list(blocks)
        while pending:
            for each in self.before[pending.pop()]:
                if each != without and each not in found:
                    found.add(each)
                    pending.append(each)
        return found

    def deciding(self, place: int) -> frozenset[int]:
        """Loads and atomics that decide about the instruction at ``place``."""
        home = max(block for block, leader in enumerate(self.leaders) if leader <= place)
        guard = self.body[place].predicate
        names = set() if guard is None else {guard.name}
        for block, behind in enumerate(self.following):
            if len(behind) < 2:
                continue
            reaching = self._reaching([home], block)
            leads = [each in reaching for each in behind if each in self.ends]
            if any(leads) and not all(leads):
                names |= _decides(self.body[self._last(block)])
        pending = set(names)
        while pending:
            pending = set[str]().union(*(self.sources.get(name, ()) for name in pending)) - names
            names |= pending
        reads = (each for each in self.body if each.opcode in ("ld", "atom"))
        return frozenset(id(each) for each in reads if not names.isdisjoint(named_registers(each, 0, 1)))

    def _last(self, block: int) -> int:
        return (self.leaders[block + 1] if block + 1 < len(self.leaders) else len(self.body)) - 1


def _flow(function: PtxFunction) -> _Flow:
    body = function.body or ()
    starts = {0, *function.labels.values()}
    starts.update(place + 1 for place, each in enumerate(body) if each.opcode in ("bra", "brx", "ret", "exit", "trap"))
    leaders = sorted(place for place in starts if place < len(body))
    number = {leader: block for block, leader in enumerate(leaders)}
    following = []
    for block in range(len(leaders)):
        behind = leaders[block + 1] if block + 1 < len(leaders) else len(body)
        last = body[behind - 1]
        places = targets(function, last)
        if last.opcode not in ("bra", "brx", "ret", "exit", "trap") or last.predicate is not None:
            places = [*places, behind]
        if any(_fails(each) for each in body[leaders[block] : behind]):
            places = []
        following.append(sorted({number.get(place, -1) for place in places}))
    sources: dict[str, set[str]] = {}
    for each in body:
        own = any(word in _OWN_SPACES for word in each.modifiers)
        if each.opcode == "st":
            if own:
                sources.setdefault(_MEMORY, set()).update(named_registers(each, 1, None))
        elif each.opcode not in ("red", "atom") and (each.opcode != "ld" or own):
            read = {_MEMORY} if each.opcode == "ld" else named_registers(each, 1, None)
            for name in named_registers(each, 0, 1):
                sources.setdefault(name, set()).update(read)
    return _Flow(body, leaders, following, sources)


def _fails(instruction: Instruction) -> bool:
    """Whether the launch ends here with an error."""
    if instruction.opcode == "trap":
        return instruction.predicate is None
    return instruction.opcode == "call" and any(
        isinstance(each, Symbol) and each.name == "__assertfail" for each in parts_of(*instruction.operands)
    )


def _decides(branch: Instruction) -> set[str]:
    """Registers by which a branch chooses."""
    if branch.predicate is not None:
        return {branch.predicate.name}
    return {each.name for each in branch.registers}
