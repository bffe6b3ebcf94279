"""Which registers share their memory: those that hold something at different places of the program only.

A register of PTX mostly lives within one basic block, between the instruction that writes it and the last one that
reads it, and a kernel has hundreds of them. Over all lanes of a wave each is an array of its own, whose memory takes
longer to get and to move through than most instructions take to execute. So arrays are handed on within a block.
"""

from __future__ import annotations

from collections.abc import Mapping

from warptile.emulator.lanes import register_bytes
from warptile.ptx.instruction import Instruction, PtxFunction, Register, Vector, parts_of

_PLAIN = frozenset({
    "abs", "add", "addc", "and", "bfe", "bfi", "bfind", "brev", "clz", "cnot", "copysign", "cos", "cvt", "cvta", "div",
    "dp2a", "dp4a", "ex2", "fma", "ld", "ldu", "lg2", "lop3", "mad", "madc", "max", "min", "mov", "mul", "mul24", "neg",
    "not", "or", "popc", "prmt", "rcp", "rem", "rsqrt", "sad", "selp", "set", "setp", "shf", "shfl", "shl", "shr",
    "sin", "sqrt", "sub", "subc", "tanh", "testp", "vote", "xor",
})  # fmt: skip
"""Instructions that write all of their first operand, and nothing else, in every lane that executes them."""

_ENDS = frozenset({"bra", "brx", "exit", "ret", "call", "trap"})
_ASYNCHRONOUS = frozenset({"wgmma"})
"""Instructions that read or write registers later on."""


def register_slots(function: PtxFunction) -> Mapping[str, int]:
    """For registers that share memory, the number of what they share; those of one number are equally wide.

    They are written before they are read, by an instruction without a guard, and named in one basic block only. Within
    an instruction no two registers share anything.
    """
    found: dict[str, int] | None = function.analyses.get(register_slots)
    if found is None:
        found = function.analyses[register_slots] = _slots(function)
    return found


def _slots(function: PtxFunction) -> dict[str, int]:
    body = function.body or ()
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    kept = {each.name for each in (*function.parameters, *function.returns) if isinstance(each, Register)}
    blocks = _blocks(function)
    for position, instruction in enumerate(body):
        guard = instruction.predicate
        for register in instruction.registers if guard is None else (*instruction.registers, guard):
            name = register.name
            if name not in first:
                first[name] = position
                if not _begins(instruction, register):
                    kept.add(name)
            elif blocks[first[name]] != blocks[position]:
                kept.add(name)
            last[name] = position
            if instruction.opcode in _ASYNCHRONOUS:
                kept.add(name)
    return _assigned(function, {name: first[name] for name in first if name not in kept}, last)


def _blocks(function: PtxFunction) -> list[int]:
    """The number of the basic block of each instruction."""
    targets, number, numbers = set(function.labels.values()), 0, []
    for position, instruction in enumerate(function.body or ()):
        number += position in targets
        numbers.append(number)
        number += instruction.opcode in _ENDS
    return numbers


def _begins(instruction: Instruction, register: Register) -> bool:
    """Whether an instruction gives a register a value that owes nothing to the one before."""
    if instruction.predicate is not None or instruction.opcode not in _PLAIN:
        return False
    if any(each == register for each in parts_of(*instruction.operands[1:])):
        return False
    target = instruction.operands[0]
    # of the low and the high part of a value the first may be moved before the second is read
    return not isinstance(target, Vector) or sum(each == register for each in parts_of(target)) == 1


def _assigned(function: PtxFunction, first: Mapping[str, int], last: Mapping[str, int]) -> dict[str, int]:
    """A number for each of some registers, in the order in which they are written; ``last`` says until when they are
    read."""
    free: dict[int, list[int]] = {}
    ends: dict[int, list[tuple[int, int]]] = {}
    slots: dict[str, int] = {}
    names: dict[int, list[str]] = {}
    for name, position in first.items():
        names.setdefault(position, []).append(name)
    count = 0
    for position in range(len(function.body or ())):
        for name in names.get(position, ()):
            size = register_bytes(function.registers[name].type)
            numbers = free.setdefault(size, [])
            if not numbers:
                numbers.append(count)
                count += 1
            slots[name] = numbers.pop()
            ends.setdefault(last[name], []).append((size, slots[name]))
        for size, number in ends.pop(position, ()):
            free[size].append(number)
    return slots
