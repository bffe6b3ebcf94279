"""Every operation, type, vector, space, scope and memory order of `atom` and `red`: which exist, and what they do."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from one_instruction import Bench
from warptile.emulator import emulate
from warptile.emulator.builders import BUILDERS, Assembler
from warptile.errors import UnknownInstruction
from warptile.launch.access import Access
from warptile.launch.params import Pointer
from warptile.launch.spec import LaunchSpec
from warptile.ptx import parse

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
OPERATIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas")
TYPES = ("b8", "b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64", "b128", "f16", "f16x2", "bf16", "bf16x2",
         "f32", "f64")  # fmt: skip
WIDTHS = {"b8": 8, "b128": 128, "f16x2": 32, "bf16x2": 32, "bf16": 16}
SPACES = ("", "global", "shared", "shared::cta", "shared::cluster")

SCALARS = {
    "add": "u32 s32 u64 f32 f64 f16 f16x2 bf16 bf16x2", "min": "u32 s32 u64 s64", "max": "u32 s32 u64 s64",
    "inc": "u32", "dec": "u32", "and": "b32 b64", "or": "b32 b64", "xor": "b32 b64", "exch": "b32 b64 b128",
    "cas": "b16 b32 b64 b128",
}  # fmt: skip
VECTORS = {"v2": "f16 f16x2 bf16 bf16x2", "v4": "f16 f16x2 bf16 bf16x2", "v8": "f16 bf16"}
"""What ptxas 13.0 takes for sm_90a, of everything that the next test tries."""


def exists(opcode: str, name: str, kind: str, vector: str, noftz: bool, space: str) -> bool:
    """Whether ptxas takes an atomic; vectors are those of add, min and max, and sums of f32."""
    if noftz != ("f16" in kind) or (opcode == "red" and name in ("exch", "cas")):
        return False
    if not vector:
        return kind in SCALARS[name].split()
    halves = kind in VECTORS[vector].split() and name in ("add", "min", "max")
    return not space.startswith("shared") and (halves or (name, kind, vector != "v8") == ("add", "f32", True))


def width(kind: str) -> int:
    return WIDTHS.get(kind) or int(kind[1:])


def text_of(opcode: str, name: str, kind: str, vector: str, noftz: bool, space: str, order: str = "") -> str:
    count = int(vector[1:] or 1) if vector else 1
    register = f"{{{', '.join(['a'] * count)}}}" if vector else "a"
    words = [opcode, order, space, name, "noftz" * noftz, vector, kind]
    result = f"{register.replace('a', 'd')}, " if opcode == "atom" else ""
    swapped = f", {register}" if name == "cas" else ""
    return f"{'.'.join(word for word in words if word)} {result}[p], {register}{swapped};"


def build(text: str, kind: str) -> None:
    bits = max(width(kind), 16)
    module = parse(f"{HEAD}.entry k()\n{{\n.reg .b{bits} d, a;\n.reg .b64 p;\n{text}\n}}")
    (instruction,) = module.functions["k"].body or ()
    BUILDERS[instruction.opcode](instruction, Assembler(Bench(4)))  # type: ignore[arg-type]


@pytest.mark.parametrize("opcode", ["atom", "red"])
def test_the_atomics_of_the_emulator_are_those_of_ptxas(opcode: str) -> None:
    for given in itertools.product(OPERATIONS, TYPES, ("", "v2", "v4", "v8"), (False, True), SPACES):
        text = text_of(opcode, *given)
        if exists(opcode, *given):
            build(text, given[1])
        else:
            with pytest.raises(UnknownInstruction):
                build(text, given[1])


@pytest.mark.parametrize(
    ("opcode", "orders"), [("atom", "relaxed acquire release acq_rel"), ("red", "relaxed release")]
)
def test_memory_orders_and_scopes(opcode: str, orders: str) -> None:
    plain = (opcode, "add", "u32", "", False, "global")
    for order, scope in itertools.product(["", *orders.split()], ["", ".cta", ".cluster", ".gpu", ".sys"]):
        build(text_of(*plain, order=f"{order}{scope}".lstrip(".")), "u32")
    for order in {"acquire", "acq_rel", "volatile", "weak", "mmio"} - set(orders.split()):
        with pytest.raises(UnknownInstruction, match=f"unknown modifier .{order}"):
            build(text_of(*plain, order=order), "u32")


# -- what they do ------------------------------------------------------------------------------------------------------


def wrapped(value: int, kind: str) -> int:
    bits = value & ((1 << width(kind)) - 1)
    return bits - (1 << width(kind)) if kind[0] == "s" and bits >> (width(kind) - 1) else bits


def updated(name: str, old: int, given: int, new: int, kind: str) -> int:
    """An integer after one atomic, by the definitions of the PTX ISA."""
    found = {
        "add": old + given, "min": min(old, given), "max": max(old, given), "and": old & given, "or": old | given,
        "xor": old ^ given, "exch": given, "inc": 0 if old >= given else old + 1,
        "dec": given if old == 0 or old > given else old - 1, "cas": new if old == given else old,
    }[name]  # fmt: skip
    return wrapped(found, kind)


def run(name: str, kind: str, space: str, rows: list[tuple[int, int, int]], old: list[int]) -> tuple[list[int], ...]:
    """Lane i updates word ``rows[i][0]`` of ``old`` by the two values behind it; the words afterwards and what
    each lane found. ``space`` is that of the words, generic addresses for ``generic`` and ``generic shared``."""
    size = width(kind) // 8
    bits = width(kind)
    swapped = ", %new" if name == "cas" else ""
    modifier = "" if space.startswith("generic") else f".{space}"
    inside = "shared" in space
    convert = "mov.u64 %at, words;\n" if inside else "ld.param.u64 %at, [words_in];\n"
    convert += "cvta.shared.u64 %at, %at;\n" if space == "generic shared" else ""
    move = f"ld.global.b{bits} %a, [%g];\nst.shared.b{bits} [%s], %a;\n"
    back = f"ld.shared.b{bits} %a, [%s];\nst.global.b{bits} [%g], %a;\n"
    each = f"@%p mad.lo.u64 %g, %i, {size}, %in;\n@%p mad.lo.u64 %s, %i, {size}, %shared;\n"
    copy = each + "".join(f"@%p {line}\n" for line in move.splitlines())
    copy_back = each + "".join(f"@%p {line}\n" for line in back.splitlines())
    text = f"""{HEAD}.shared .align 16 .b8 words[{size * len(old)}];
    .entry k(.param .u64 words_in, .param .u64 rows, .param .u64 found)
    {{
      .reg .b{bits} %a, %given, %new, %d; .reg .b64 %at, %in, %rows, %found, %i, %g, %s, %shared; .reg .b32 %t;
      .reg .pred %p;
      ld.param.u64 %in, [words_in];
      ld.param.u64 %rows, [rows];
      ld.param.u64 %found, [found];
      mov.u64 %shared, words;
      mov.u32 %t, %tid.x;
      cvt.u64.u32 %i, %t;
      setp.lt.u32 %p, %t, {len(old)};
      {copy if inside else ""}
      bar.sync 0;
      {convert}
      mad.lo.u64 %rows, %i, 48, %rows;
      mad.lo.u64 %found, %i, {size}, %found;
      ld.global.u64 %g, [%rows];
      mad.lo.u64 %at, %g, {size}, %at;
      ld.global.b{bits} %given, [%rows+16];
      ld.global.b{bits} %new, [%rows+32];
      atom{modifier}.{name}.{kind} %d, [%at], %given{swapped};
      st.global.b{bits} [%found], %d;
      bar.sync 0;
      {copy_back if inside else ""}
      ret;
    }}"""
    table = b"".join((value & ((1 << 128) - 1)).to_bytes(16, "little") for row in rows for value in row)
    operands: dict[str, Any] = {
        "words": np.frombuffer(
            b"".join((v & ((1 << bits) - 1)).to_bytes(size, "little") for v in old), np.uint8
        ).copy(),
        "rows": np.frombuffer(table, np.uint8).copy(),
        "found": np.zeros(size * len(rows), np.uint8),
    }
    spec = LaunchSpec("k", (1, 1, 1), (len(rows), 1, 1), tuple(Pointer(each) for each in operands))
    accesses = {each: Access(writes=True) for each in ("words", "found")}
    emulate(parse(text), spec, operands, accesses=accesses, arch="sm_90a")
    return tuple(
        [wrapped(int.from_bytes(operands[each][i : i + size].tobytes(), "little"), kind)
         for i in range(0, operands[each].size, size)]
        for each in ("words", "found")
    )  # fmt: skip


INTEGERS = [
    (name, kind) for name, kinds in SCALARS.items() for kind in kinds.split() if "f" not in kind
]  # fmt: skip


@pytest.mark.parametrize("space", ["global", "shared", "generic", "generic shared"])
@pytest.mark.parametrize(("name", "kind"), INTEGERS)
def test_lanes_update_one_word_after_the_other(name: str, kind: str, space: str) -> None:
    """40 lanes on five words, most of them on one, with values around all limits."""
    random = np.random.default_rng(len(name) * 7 + width(kind))
    bits, least = width(kind), wrapped(1 << (width(kind) - 1), kind)
    limits = [0, 1, 2, 3, wrapped(-1, kind), wrapped(-2, kind), least, wrapped(least - 1, kind)]
    words = [limits[int(i)] for i in random.integers(len(limits), size=5)]
    rows = []
    for _ in range(40):
        word = int(random.choice(5, p=[0.6, 0.1, 0.1, 0.1, 0.1]))
        given = limits[int(random.integers(len(limits)))] if random.random() < 0.8 else words[word]
        rows.append((word, given, int(random.integers(1 << min(bits - 1, 60)))))
    expected, found = list(words), []
    for word, given, new in rows:
        found.append(expected[word])
        expected[word] = updated(name, expected[word], given, new, kind)
    assert run(name, kind, space, rows, words) == (expected, found)


@pytest.mark.parametrize(("kind", "ulp"), [("f16", 2.0**-10), ("bf16", 2.0**-7)])
def test_halves_that_share_a_word_add_one_after_the_other(kind: str, ulp: float) -> None:
    """64 lanes add half a unit in the last place of 1: each sum is rounded, so all of them are lost, to even."""
    one = {"f16": 0x3C00, "bf16": 0x3F80}[kind]
    half = {"f16": 0x1000, "bf16": 0x3B80}[kind]  # ulp / 2
    text = f"""{HEAD}.entry k(.param .u64 o)
    {{
      .reg .b64 %o; .reg .b16 %h;
      ld.param.u64 %o, [o];
      mov.b16 %h, {half};
      red.global.add.noftz.{kind} [%o+2], %h;
      red.global.add.noftz.{kind} [%o], %h;
    }}"""
    out = np.array([0, one], np.uint16)
    spec = LaunchSpec("k", (2, 1, 1), (32, 1, 1), (Pointer("o"),))
    emulate(parse(text), spec, {"o": out}, accesses={"o": Access(writes=True)}, arch="sm_90a")
    sums = {"f16": np.float16(32 * ulp).view(np.uint16), "bf16": 0x3E80}[kind]  # 64 halves of an ulp; 32 * 2**-7 = 0.25
    assert out.tolist() == [int(sums), one]
