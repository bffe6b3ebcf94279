"""Finds the plain first read of a compare-and-swap loop: ``old = *p; do { ... atomicCAS(p, assumed, ...) } while``.

A word that others change atomically may only be read atomically, says the PTX memory model. Common code reads it
plainly all the same, the CUDA C++ Programming Guide's own ``atomicAdd`` for doubles among it: a wrong first guess costs
one iteration of the loop, and no more.
"""

from __future__ import annotations

from collections.abc import Iterable

from warptile.ptx.instruction import Instruction, Operand, PtxFunction, Register, Vector

_COPIES = frozenset({"mov", "cvt", "selp"})
"""Opcodes whose result is one of their operands, in another register."""


def first_reads(functions: Iterable[PtxFunction]) -> frozenset[int]:
    """The ``id`` of each weak load whose value becomes, by copies alone, what an ``atom.cas`` compares with."""
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
    return frozenset(found)


def _compares(instruction: Instruction) -> bool:
    return instruction.opcode == "atom" and "cas" in instruction.modifiers


def _names(operand: Operand | None) -> set[str]:
    elements = operand.elements if isinstance(operand, Vector) else (operand,)
    return {each.name for each in elements if isinstance(each, Register)}
