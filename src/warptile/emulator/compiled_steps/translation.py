"""Plain instructions as loops over lanes: which loops, and on which registers and constants.

A translation exists for the common forms only; modifiers that are not named here leave an instruction to the
interpreter.
"""

from __future__ import annotations

from collections.abc import Callable

from warptile.emulator.arithmetic.mufu import exponential_tables
from warptile.emulator.builders import Modifiers
from warptile.emulator.compiled_steps.elementwise import OPERATIONS
from warptile.emulator.compiled_steps.loop_builder import Loop, LoopBuilder, Untranslated, address_of
from warptile.emulator.lanes import Array
from warptile.emulator.machine import Machine, window_base
from warptile.emulator.ops.load_store import reads_constants, take_space
from warptile.ptx.instruction import Immediate, Instruction, Operand, Paired, Register, Vector

_INTEGERS = {f"{letter}{bits}": f"i{bits}" for letter in "usb" for bits in (16, 32, 64)}
_FLOATS = {"f32": "float", "f64": "double"}
_ORDERED = {"eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "equ": "ueq", "neu": "une",
            "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge", "num": "ord", "nan": "uno"}  # fmt: skip
_UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


_Translation = Callable[[LoopBuilder, Instruction], None]
_TRANSLATIONS: dict[str, _Translation] = {}


def loops(instruction: Instruction, machine: Machine, scratch: dict[str, Array]) -> list[Loop]:
    """The loops that execute an instruction for lanes whose guard holds.

    Args:
        instruction: of the routine whose registers and frame ``machine`` has.
        machine: what is emulated.
        scratch: registers for values within an instruction, by type; missing ones are added. They have to live as long
            as the loops.

    Raises:
        Untranslated: there are none.
    """
    translate = _TRANSLATIONS.get(instruction.opcode)
    if translate is None:
        raise Untranslated
    builder = LoopBuilder(machine, scratch)
    translate(builder, instruction)
    return builder.loops


def _translation(*opcodes: str) -> Callable[[_Translation], _Translation]:
    def register(function: _Translation) -> _Translation:
        for opcode in opcodes:
            _TRANSLATIONS[opcode] = function
        return function

    return register


def _kind(words: tuple[str, ...], kinds: dict[str, str]) -> str:
    """LLVM's type of the only modifier."""
    if len(words) != 1 or words[0] not in kinds:
        raise Untranslated
    return kinds[words[0]]


def _float_kind(words: tuple[str, ...]) -> str:
    """The type of ``.rn.f32`` and the like."""
    return _kind(words[1:] if words[:1] == ("rn",) else words, _FLOATS)


@_translation("add", "sub")
def _sum(t: LoopBuilder, instruction: Instruction) -> None:
    opcode, words, operands = instruction.opcode, instruction.modifiers, instruction.operands
    kind = _kind(words, _INTEGERS) if words[-1] in _INTEGERS else _float_kind(words)
    left, right = t.source(operands[1], kind), t.source(operands[2], kind)
    put = t.put_commuting if opcode == "add" and kind in ("i16", "i32", "i64") else t.put
    put(f"{opcode}.{kind}", t.target(operands[0], kind), left, right)


@_translation("mul")
def _product(t: LoopBuilder, instruction: Instruction) -> None:
    words, operands = instruction.modifiers, instruction.operands
    if words[-1] in _FLOATS:
        kind = _float_kind(words)
        t.put_at(f"mul.{kind}", operands[0], kind, t.source(operands[1], kind), t.source(operands[2], kind))
        return
    name, kind, result = _part(words, "mul")
    left, right = t.source(operands[1], kind), t.source(operands[2], kind)
    t.put_commuting(name, t.target(operands[0], result), left, right)


def _part(words: tuple[str, ...], opcode: str) -> tuple[str, str, str]:
    """Loop, type of the factors and of the result of an integer product."""
    if len(words) != 2 or words[1] not in _INTEGERS or words[0] not in ("lo", "hi", "wide"):
        raise Untranslated
    part, kind, letter = words[0], _INTEGERS[words[1]], words[1][0]
    if part == "lo":
        return (f"mul.{kind}" if opcode == "mul" else f"mad.lo.{kind}"), kind, kind
    if kind == "i64" or (part, opcode) == ("hi", "mad"):
        raise Untranslated
    return f"{opcode}.{part}.{letter}.{kind}", kind, {"i16": "i32", "i32": "i64"}[kind] if part == "wide" else kind


@_translation("mad", "fma")
def _product_sum(t: LoopBuilder, instruction: Instruction) -> None:
    words, operands = instruction.modifiers, instruction.operands
    if words[-1] in _FLOATS:
        kind = _float_kind(words)
        t.put_at(f"fma.{kind}", operands[0], kind, *[t.source(each, kind) for each in operands[1:4]])
        return
    name, kind, result = _part(words, "mad")
    left, right, addend = t.source(operands[1], kind), t.source(operands[2], kind), t.source(operands[3], result)
    t.put_commuting(name, t.target(operands[0], result), left, right, addend)


@_translation("and", "or", "xor")
def _logic(t: LoopBuilder, instruction: Instruction) -> None:
    kind = _kind(instruction.modifiers, {**_INTEGERS, "pred": "i1"})
    target, *sources = instruction.operands
    left, right = (t.source(each, kind) for each in sources)
    t.put_commuting(f"{instruction.opcode}.{kind}", t.target(target, kind), left, right)


@_translation("not")
def _complement(t: LoopBuilder, instruction: Instruction) -> None:
    kind = _kind(instruction.modifiers, {**_INTEGERS, "pred": "i1"})
    t.put_at(f"not.{kind}", instruction.operands[0], kind, t.source(instruction.operands[1], kind))


@_translation("shl", "shr")
def _shift(t: LoopBuilder, instruction: Instruction) -> None:
    words, operands = instruction.modifiers, instruction.operands
    kind = _kind(words, _INTEGERS)
    name = "shl" if instruction.opcode == "shl" else "shr.s" if words[0][0] == "s" else "shr.u"
    amount = t.source(operands[2], "i32")
    t.put_at(f"{name}.{kind}", operands[0], kind, t.source(operands[1], kind), amount)


@_translation("min", "max")
def _extremum(t: LoopBuilder, instruction: Instruction) -> None:
    words, operands = instruction.modifiers, instruction.operands
    if len(operands) != 3:
        raise Untranslated
    if words == ("f32",):
        kind, name = "float", f"{instruction.opcode}.float"
        # of two NaN or two zeros the order matters to nothing: the result is the same
    else:
        kind = _kind(words, _INTEGERS)
        name = f"{instruction.opcode}.{'s' if words[0][0] == 's' else 'u'}.{kind}"
    left, right = t.source(operands[1], kind), t.source(operands[2], kind)
    t.put_commuting(name, t.target(operands[0], kind), left, right)


@_translation("div")
def _quotient(t: LoopBuilder, instruction: Instruction) -> None:
    words, operands = instruction.modifiers, instruction.operands
    if words != ("rn", "f32"):
        raise Untranslated
    t.put_at("div.float", operands[0], "float", t.source(operands[1], "float"), t.source(operands[2], "float"))


@_translation("ex2")
def _power(t: LoopBuilder, instruction: Instruction) -> None:
    name = {("approx", "f32"): "ex2.float", ("approx", "ftz", "f32"): "ex2.ftz.float"}.get(instruction.modifiers)
    if name is None:
        raise Untranslated
    target, source = instruction.operands
    table, squares = (t.constant(address_of(array)) for array in exponential_tables())
    t.put_at(name, target, "float", t.source(source, "float"), table, squares)


@_translation("neg", "abs")
def _sign(t: LoopBuilder, instruction: Instruction) -> None:
    words, operands = instruction.modifiers, instruction.operands
    if words != ("f32",) and instruction.opcode == "abs":
        raise Untranslated
    kind = _kind(words, {"f32": "float", "s16": "i16", "s32": "i32", "s64": "i64"})
    t.put_at(f"{instruction.opcode}.{kind}", operands[0], kind, t.source(operands[1], kind))


@_translation("setp")
def _comparison(t: LoopBuilder, instruction: Instruction) -> None:
    words, operands = instruction.modifiers, instruction.operands
    combine = next((word for word in words if word in ("and", "or", "xor")), None)
    words = tuple(word for word in words if word != combine)
    if len(words) != 2:
        raise Untranslated
    compare, type_name = words
    if type_name in _FLOATS:
        kind, condition = _FLOATS[type_name], _ORDERED.get(compare)
    else:
        kind = _kind(words[1:], _INTEGERS)
        plain = _UNSIGNED_NAMES.get(compare, compare)
        condition = plain if plain in ("eq", "ne") else f"{'s' if type_name[0] == 's' else 'u'}{plain}"
    if f"setp.{condition}.{kind}" not in OPERATIONS:
        raise Untranslated
    left, right = t.source(operands[1], kind), t.source(operands[2], kind)
    target = operands[0]
    first, second = (target.first, target.second) if isinstance(target, Paired) else (target, None)
    if combine is None and second is None:
        t.put_at(f"setp.{condition}.{kind}", first, "i1", left, right)
        return
    truth = t.step(f"setp.{condition}.{kind}", "truth", "i1", left, right)
    parts = [(first, truth)]
    if second is not None:
        parts.append((second, t.step("not.i1", "falsehood", "i1", truth)))
    third = t.source(operands[3], "i1") if combine is not None else None
    if third is not None and len(parts) > 1 and third.letter == "r":
        third = t.step("move.i1", "third", "i1", third)  # the first destination may be the register
    for written, value in parts:
        if written is None:
            continue
        if third is None:
            t.put_at("move.i1", written, "i1", value)
        else:
            t.put_at(f"{combine}.i1", written, "i1", value, third)


@_translation("selp")
def _selection(t: LoopBuilder, instruction: Instruction) -> None:
    name = instruction.modifiers[0] if len(instruction.modifiers) == 1 else ""
    kind = _INTEGERS.get(name) or {"f32": "i32", "f64": "i64"}.get(name)
    target, one, other, condition = instruction.operands
    if kind is None:
        raise Untranslated
    floating = _FLOATS.get(name, kind)  # literals keep their meaning
    values = [t.source(each, floating if isinstance(each, Immediate) else kind) for each in (one, other)]
    t.put_at(f"select.{kind}", target, kind, *values, t.source(condition, "i1"))


@_translation("mov")
def _move(t: LoopBuilder, instruction: Instruction) -> None:
    name = instruction.modifiers[0] if len(instruction.modifiers) == 1 else ""
    target, source = instruction.operands
    kind = {**_INTEGERS, "pred": "i1", "f32": "i32", "f64": "i64"}.get(name)
    if kind is None:
        raise Untranslated
    if isinstance(source, Vector):
        _pack(t, target, source, kind)
        return
    if isinstance(target, Vector):
        _unpack(t, target, source, kind)
        return
    value = t.source(source, _FLOATS.get(name, kind) if isinstance(source, Immediate) else kind)
    t.put_at(f"{'fill' if value.letter == 'c' else 'move'}.{kind}", target, kind, value)


_HALF = {"i64": "i32", "i32": "i16"}


def _pack(t: LoopBuilder, target: Operand, source: Vector, kind: str) -> None:
    half = _HALF.get(kind)
    if half is None or len(source.elements) != 2:
        raise Untranslated
    low, high = (t.source(each, half) for each in source.elements)
    if "c" in (low.letter, high.letter):
        raise Untranslated
    bottom = t.step(f"zext.{half}.{kind}", "low", kind, low)
    top = t.step(f"zext.{half}.{kind}", "high", kind, high)
    top = t.step(f"shl.{kind}", "high", kind, top, t.constant(int(half[1:])))
    t.put_at(f"or.{kind}", target, kind, bottom, top)


def _unpack(t: LoopBuilder, target: Vector, source: Operand, kind: str) -> None:
    half = _HALF.get(kind)
    if half is None or len(target.elements) != 2:
        raise Untranslated
    whole = t.source(source, kind)
    if whole.letter == "c":
        raise Untranslated
    low, high = target.elements
    shifted = t.step(f"shr.u.{kind}", "high", kind, whole, t.constant(int(half[1:])))
    if low is not None:
        t.put_at(f"trunc.{kind}.{half}", low, half, whole)
    if high is not None:
        t.put_at(f"trunc.{kind}.{half}", high, half, shifted)


@_translation("cvt")
def _conversion(t: LoopBuilder, instruction: Instruction) -> None:
    words = instruction.modifiers
    if len(instruction.operands) != 2:
        raise Untranslated
    target, source = instruction.operands
    if len(words) == 3 and words[0] == "rn" and words[1] in _FLOATS and words[2] in ("s32", "u32", "s64", "u64"):
        name = "sitofp" if words[2][0] == "s" else "uitofp"
        kind, result = _INTEGERS[words[2]], _FLOATS[words[1]]
        t.put_at(f"{name}.{kind}.{result}", target, result, t.source(source, kind))
        return
    if len(words) != 2 or words[0] not in _INTEGERS or words[1] not in _INTEGERS:
        raise Untranslated
    kind, result = _INTEGERS[words[1]], _INTEGERS[words[0]]
    value = t.source(source, kind)
    if value.letter == "c":
        raise Untranslated
    if kind == result:
        name = f"move.{kind}"
    elif int(kind[1:]) > int(result[1:]):
        name = f"trunc.{kind}.{result}"
    else:
        name = f"{'sext' if words[1][0] == 's' else 'zext'}.{kind}.{result}"
    t.put_at(name, target, result, value)


@_translation("cvta")
def _address_conversion(t: LoopBuilder, instruction: Instruction) -> None:
    modifiers = Modifiers(instruction)
    kind = _INTEGERS.get(modifiers.last(), "")
    to_space = modifiers.flag("to")
    space = take_space(modifiers)
    target, source = instruction.operands
    if kind not in ("i32", "i64") or modifiers.rest or not isinstance(source, Register) or reads_constants(instruction):
        raise Untranslated
    base = window_base(space)
    value = t.source(source, kind)
    if base == 0:
        t.put_at(f"move.{kind}", target, kind, value)
    else:
        t.put_at(f"add.{kind}", target, kind, value, t.constant(-base if to_space else base))
