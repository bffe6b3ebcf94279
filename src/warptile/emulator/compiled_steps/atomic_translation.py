"""`atom` and `red` as records of `atomics`."""

from __future__ import annotations

from warptile.emulator.arithmetic.memory_updates import OPERATIONS
from warptile.emulator.builders import Modifiers
from warptile.emulator.compiled_steps import atomics as c
from warptile.emulator.compiled_steps import memory_access as a
from warptile.emulator.compiled_steps.access_translation import SPACES, address
from warptile.emulator.compiled_steps.loop_builder import LoopBuilder, LoopSource, Untranslated, address_of
from warptile.emulator.machine import Machine
from warptile.emulator.ops.load_store import SCOPES, take_space
from warptile.ptx.instruction import Instruction, Register, Sink

OPCODES = frozenset({"atom", "red"})

_SIZES = {"u32": 4, "s32": 4, "b32": 4, "f32": 4, "u64": 8, "s64": 8, "b64": 8}
_ORDERS = {"u32": 0, "b32": 0, "f32": 0, "s32": 1 << 31, "u64": 1 << 63, "b64": 0, "s64": 0}
"""By type, what makes a word read as unsigned, or one of 64 bits, a signed number in the same order."""


def atomic(instruction: Instruction, machine: Machine) -> tuple[int, ...]:
    """The operands of an atomic for `atomics`, as words.

    Args:
        instruction: `atom` or `red`, which the interpreter knows.
        machine: with the registers and the frame of its function.

    Raises:
        Untranslated: it is the interpreter's.
    """
    modifiers, operands = Modifiers(instruction), list(instruction.operands)
    type_name = modifiers.take(*_SIZES)
    space = take_space(modifiers)
    name = modifiers.take(*OPERATIONS)
    modifiers.take("relaxed")
    modifiers.take(*SCOPES)
    if type_name is None or name is None or modifiers.rest or space not in ("generic", "global", "shared"):
        raise Untranslated
    memory = machine.memory
    if memory.clustered or memory.previous is not None or memory.streams is not None:
        raise Untranslated
    words, t, size = [0] * c.ATOMIC_OPERANDS, LoopBuilder(machine, {}), _SIZES[type_name]
    target = operands.pop(0) if instruction.opcode == "atom" else Sink()
    register, words[a.ADDRESS_BYTES], words[a.OFFSET], space = address(operands[0], machine, space)
    words[a.ADDRESS], words[a.SPACE], words[a.SIZE] = register, SPACES[space], size
    words[a.COUNTERS] = address_of(machine.count.row(instruction))
    kind = f"i{8 * size}"
    if isinstance(target, Register):
        words[c.TARGET] = t.target(target, kind)
    elif not isinstance(target, Sink):
        raise Untranslated
    words[c.OPERATION], words[c.FLOATING], words[c.ORDER] = OPERATIONS[name], type_name == "f32", _ORDERS[type_name]
    given = [_words(t.source(each, "float" if type_name == "f32" else kind)) for each in operands[1:]]
    words[c.GIVEN], words[c.GIVEN_WORD] = given[0]
    if len(given) > 1:
        words[c.SWAPPED], words[c.SWAPPED_WORD] = given[1]
    if memory.races is not None:
        words[a.TAG] = memory.races.tag_of(instruction)
        if words[a.TAG] & 3 != c.ANYWHERE and space != "shared":
            raise Untranslated  # others than those of its scope race with it
    return tuple(words)


def _words(source: LoopSource) -> tuple[int, int]:
    """Whether a source is a register, and its address or its bits."""
    return int(source.letter == "r"), source.word
