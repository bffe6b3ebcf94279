"""Finds plain reads of atomic words whose value an atomic operation checks again.

One is the first read of a compare-and-swap loop: ``old = *p; do { ... atomicCAS(p, assumed, ...) } while``. The other
is a test whether an atomic pays: ``if (*p == FREE && atomicCAS(p, FREE, mine) == FREE)``, or
``if (*p > x) atomicMin(p, x)``.

A word that others change atomically may only be read atomically, says the PTX memory model. Common code reads it
plainly all the same, the CUDA C++ Programming Guide's own ``atomicAdd`` for doubles among it: a wrong first guess costs
one iteration of the loop, and an old value an atomic that changes nothing or comes a little later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from warptile.ptx.instruction import (
    Address,
    Instruction,
    Label,
    Operand,
    PtxFunction,
    Register,
    Symbol,
    Vector,
    parts_of,
)

_COPIES = frozenset({"mov", "cvt", "selp"})
"""Opcodes whose result is one of their operands, in another register."""

_CHECKING = frozenset({"cas", "min", "max", "and", "or"})
"""Atomics that change nothing where an older value has led to them in vain."""

_CONDITIONS = frozenset({"setp", "and", "or", "xor", "not", "mov"})
"""Opcodes by which a value becomes a condition."""


def first_reads(functions: Iterable[PtxFunction]) -> frozenset[int]:
    """The ``id`` of each weak load whose value becomes, by copies alone, what an ``atom.cas`` compares with, or does
    nothing but decide whether an atomic on the same word is executed that checks the value again."""
    found: set[int] = set()
    for function in functions:
        body = function.body or ()
        guesses = {name for each in body if _compares(each) for name in _names(each.operands[2])}
        while guesses:
            sources = {
                name
                for each in body
                if each.opcode in _COPIES and guesses & _names(each.operands[0])
                for operand in each.operands[1:]
                for name in _names(operand)
            }
            if sources <= guesses:
                break
            guesses |= sources
        found.update(id(each) for each in body if each.opcode == "ld" and guesses & _names(each.operands[0]))
        found.update(id(each) for each in _tests(function))
    return frozenset(found)


def _tests(function: PtxFunction) -> Iterator[Instruction]:
    """Loads that are tests before an atomic on their word."""
    body = function.body or ()
    words = {word for each in body if _checks(each) and (word := _word(each)) is not None}
    if not words:
        return
    writers: dict[str, int] = {}
    users: dict[str, list[int]] = {}
    for place, each in enumerate(body):
        written = _written(each)
        for name in written:
            writers[name] = writers.get(name, 0) + 1
        for name in {part.name for part in parts_of(*each.operands) if isinstance(part, Register)} - written:
            users.setdefault(name, []).append(place)
        if each.predicate is not None:
            users.setdefault(each.predicate.name, []).append(place)
    for place, each in enumerate(body):
        word = _word(each) if each.opcode == "ld" else None
        if word in words and writers.get(word[0], 0) <= 1 and _only_decides(function, body, place, users, writers):
            yield each


def _only_decides(
    function: PtxFunction,
    body: tuple[Instruction, ...],
    place: int,
    users: dict[str, list[int]],
    writers: dict[str, int],
) -> bool:
    """Whether nothing of a load is used but for branches that skip something behind it."""
    pending, seen = sorted(_names(body[place].operands[0])), set[str]()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        if writers.get(name, 0) != 1:
            return False
        for at in users.get(name, ()):
            user = body[at]
            if user.opcode == "bra":
                target = next((each.name for each in user.operands if isinstance(each, Label | Symbol)), "")
                if function.labels.get(target, 0) <= at:
                    return False
            elif user.predicate is not None and user.predicate.name == name:
                if not _checks(user):
                    return False
            elif user.opcode in _CONDITIONS and (user.opcode == "setp" or "pred" in user.modifiers):
                pending += _written(user)
            else:
                return False
    return bool(seen)


def _checks(instruction: Instruction) -> bool:
    return instruction.opcode in ("atom", "red") and not _CHECKING.isdisjoint(instruction.modifiers)


def _word(instruction: Instruction) -> tuple[str, int] | None:
    """The register and the offset of the address of an access."""
    place = instruction.operands[0] if instruction.opcode == "red" else instruction.operands[1]
    if not isinstance(place, Address) or not isinstance(place.base, Register):
        return None
    return place.base.name, int(place.offset)


def _compares(instruction: Instruction) -> bool:
    return instruction.opcode == "atom" and "cas" in instruction.modifiers


def _written(instruction: Instruction) -> set[str]:
    """Registers that a load or a comparison writes."""
    if instruction.opcode in ("st", "red", "bra", "bar", "barrier", "call") or not instruction.operands:
        return set()
    return {part.name for part in parts_of(instruction.operands[0]) if isinstance(part, Register)}


def _names(operand: Operand | None) -> set[str]:
    elements = operand.elements if isinstance(operand, Vector) else (operand,)
    return {each.name for each in elements if isinstance(each, Register)}
