"""Instructions of whole warps as records of `warp_collectives`."""

from __future__ import annotations

from warptile.emulator.compiled_steps import warp_collectives as c
from warptile.emulator.compiled_steps.loop_builder import LoopBuilder, LoopSource, Untranslated
from warptile.emulator.machine import Machine
from warptile.ptx.instruction import Instruction, Negated, Operand, Paired, Sink

OPCODES = frozenset({"shfl", "vote", "redux", "elect", "bar"})

_SHUFFLES = {"up": c.UP, "down": c.DOWN, "bfly": c.BUTTERFLY, "idx": c.INDEXED}
_VOTES = {("all", "pred"): c.ALL, ("any", "pred"): c.ANY, ("uni", "pred"): c.UNIFORM, ("ballot", "b32"): c.BALLOT}
_REDUCTIONS = {
    ("add", "u32"): c.ADD, ("add", "s32"): c.ADD, ("and", "b32"): c.AND, ("or", "b32"): c.OR, ("xor", "b32"): c.XOR,
    ("min", "u32"): c.MIN, ("max", "u32"): c.MAX, ("min", "s32"): c.MIN_SIGNED, ("max", "s32"): c.MAX_SIGNED,
}  # fmt: skip


def collective(instruction: Instruction, machine: Machine) -> tuple[int, ...]:
    """The operands of a collective for `warp_collectives`, as words.

    Args:
        instruction: with one of `OPCODES`.
        machine: with the registers and the frame of its function.

    Raises:
        Untranslated: it is the interpreter's.
    """
    opcode, modifiers, operands = instruction.opcode, instruction.modifiers, instruction.operands
    words, t = [0] * c.COLLECTIVE_OPERANDS, LoopBuilder(machine, {})
    races = machine.memory.races
    words[c.ORDERS] = races is not None and (races.collectives_order or opcode == "bar")
    words[c.MASK], words[c.MASK_WORD] = _words(t.source(operands[-1], "i32"))
    if opcode == "bar":
        if modifiers != ("warp", "sync"):
            raise Untranslated
        words[c.MODE] = c.BARRIER
    elif opcode == "shfl":
        if len(modifiers) != 3 or modifiers[0] != "sync" or modifiers[2] != "b32" or modifiers[1] not in _SHUFFLES:
            raise Untranslated
        words[c.MODE] = _SHUFFLES[modifiers[1]]
        words[c.TARGET], words[c.SECOND_TARGET] = _targets(t, operands[0])
        words[c.SOURCE], words[c.SOURCE_WORD] = _words(t.source(operands[1], "i32"))
        words[c.WHERE], words[c.WHERE_WORD] = _words(t.source(operands[2], "i32"))
        words[c.CLAMP], words[c.CLAMP_WORD] = _words(t.source(operands[3], "i32"))
    elif opcode == "vote":
        mode = _VOTES.get(modifiers[1:]) if len(modifiers) == 3 and modifiers[0] == "sync" else None
        if mode is None:
            raise Untranslated
        words[c.MODE] = mode
        words[c.TARGET] = t.target(operands[0], "i32" if mode == c.BALLOT else "i1")
        chosen = operands[1]
        words[c.SOURCE], words[c.SOURCE_WORD] = _words(
            t.source(chosen.register if isinstance(chosen, Negated) else chosen, "i1")
        )
        if isinstance(chosen, Negated):
            words[c.SOURCE] = 2
    elif opcode == "redux":
        mode = _REDUCTIONS.get(modifiers[1:]) if len(modifiers) == 3 and modifiers[0] == "sync" else None
        if mode is None:
            raise Untranslated
        words[c.MODE], words[c.TARGET] = mode, t.target(operands[0], "i32")
        words[c.SOURCE], words[c.SOURCE_WORD] = _words(t.source(operands[1], "i32"))
    else:
        if modifiers != ("sync",) or not isinstance(operands[0], Paired):
            raise Untranslated
        words[c.MODE] = c.ELECT
        words[c.TARGET], words[c.SECOND_TARGET] = _targets(t, operands[0])
    return tuple(words)


def _targets(t: LoopBuilder, operand: Operand) -> tuple[int, int]:
    """The registers of ``d|p``, 0 for one that is not written."""
    value, told = (operand.first, operand.second) if isinstance(operand, Paired) else (operand, None)
    return (
        0 if value is None or isinstance(value, Sink) else t.target(value, "i32"),
        0 if told is None or isinstance(told, Sink) else t.target(told, "i1"),
    )


def _words(source: LoopSource) -> tuple[int, int]:
    """Whether a source is a register, and its address or its value."""
    return int(source.letter == "r"), source.word
