"""Loops over lanes: bit for bit what the interpreter computes, for special values too."""

import ctypes

import numpy as np
import pytest

from one_instruction import Bench
from random_words import stream
from warptile.emulator import ops as _registered
from warptile.emulator.builders import BUILDERS, Assembler
from warptile.emulator.compiled_steps.step_library import library
from warptile.emulator.compiled_steps.step_records import OPERANDS
from warptile.emulator.compiled_steps.translation import loops
from warptile.emulator.lanes import Active
from warptile.ptx import parse
from warptile.ptx.instruction import Register

assert _registered is not None

LANES = 1000

DECLARED = {
    "p": "pred", "q": "pred", "r": "pred", "h": "b16", "i": "b16", "j": "b16", "k": "b16",
    "a": "b32", "b": "b32", "c": "b32", "d": "b32", "x": "b64", "y": "b64", "z": "b64", "w": "b64",
    "e": "f32", "f": "f32", "g": "f32", "l": "f32", "s": "f64", "t": "f64", "u": "f64", "v": "f64",
}  # fmt: skip
TYPES = {"16": "h, i, j, k", "32": "d, a, b, c", "64": "w, x, y, z"}


def texts() -> list[str]:
    """Instructions that are translated, with registers and constants as sources."""
    found = []
    for bits, names in TYPES.items():
        o, m, n, t = names.split(", ")
        constants = ("0", "-3", "32767")
        for sign in "us":
            for name in ("add", "sub", "mul.lo", "min", "max"):
                found += [f"{name}.{sign}{bits} {o}, {m}, {source};" for source in (n, *constants)]
            found += [f"sub.{sign}{bits} {o}, 5, {m};"]
            found += [f"mad.lo.{sign}{bits} {o}, {m}, {n}, {t};", f"mad.lo.{sign}{bits} {o}, {m}, 12, {t};",
                      f"mad.lo.{sign}{bits} {o}, {m}, {n}, 7;", f"mad.lo.{sign}{bits} {o}, {m}, 9, 7;"]  # fmt: skip
            found += [f"shr.{sign}{bits} {o}, {m}, {amount};" for amount in ("a", "0", "3", "16", "63", "64", "200")]
            for compare in ("eq", "ne", "lt", "le", "gt", "ge"):
                found += [f"setp.{compare}.{sign}{bits} p, {m}, {source};" for source in (n, "-1", "100")]
            found += [f"setp.lt.and.{sign}{bits} p, {m}, {n}, q;", f"setp.lt.or.{sign}{bits} p|q, {m}, {n}, q;",
                      f"setp.ge.xor.{sign}{bits} p, {m}, {n}, !q;", f"setp.gt.{sign}{bits} p|q, {m}, {n};"]  # fmt: skip
            if bits != "64":
                wide, addend = ("w", "x") if bits == "32" else ("d", "a")
                found += [f"mul.wide.{sign}{bits} {wide}, {m}, {n};", f"mul.wide.{sign}{bits} {wide}, {m}, -4;",
                          f"mul.hi.{sign}{bits} {o}, {m}, {n};", f"mul.hi.{sign}{bits} {o}, {m}, -77;",
                          f"mad.wide.{sign}{bits} {wide}, {m}, {n}, {addend};",
                          f"mad.wide.{sign}{bits} {wide}, {m}, 4, {addend};"]  # fmt: skip
        for name in ("and", "or", "xor"):
            found += [f"{name}.b{bits} {o}, {m}, {source};" for source in (n, "255")]
        found += [f"shl.b{bits} {o}, {m}, {amount};" for amount in ("a", "0", "5", "31", "64")]
        found += [f"not.b{bits} {o}, {m};", f"neg.s{bits} {o}, {m};", f"mov.b{bits} {o}, {m};", f"mov.u{bits} {o}, 77;",
                  f"selp.b{bits} {o}, {m}, {n}, p;",
                  f"selp.s{bits} {o}, {m}, -1, p;", f"selp.u{bits} {o}, 1, {n}, p;"]  # fmt: skip
    for name in ("and", "or", "xor"):
        found += [f"{name}.pred p, q, r;"]
    found += ["not.pred p, q;", "mov.pred p, q;", "mov.u32 d, %laneid;", "mov.u32 d, table;", "mov.u64 w, table+8;"]
    for bits, (o, m, n, t) in {"32": "efgl", "64": "stuv"}.items():
        for name in ("add", "sub", "mul"):
            found += [f"{name}.rn.f{bits} {o}, {m}, {source};" for source in (n, "0d3FF8000000000000")]
        found += [f"add.f{bits} {o}, {m}, {n};", f"fma.rn.f{bits} {o}, {m}, {n}, {t};",
                  f"fma.rn.f{bits} {o}, {m}, 0d4000000000000000, {t};",
                  f"fma.rn.f{bits} {o}, {m}, {n}, 0d0000000000000000;",
                  f"fma.rn.f{bits} {o}, {o}, {m}, {n};",
                  f"mov.f{bits} {o}, {m};", f"mov.f{bits} {o}, 0d3FF0000000000000;",
                  f"selp.f{bits} {o}, {m}, 0d0000000000000000, p;"]  # fmt: skip
        for compare in ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"):
            found += [f"setp.{compare}.f{bits} p, {m}, {n};"]
        found += [f"setp.ltu.f{bits} p, {m}, 0d3FF0000000000000;"]
        for sign in "su":
            found += [f"cvt.rn.f{bits}.{sign}32 {o}, a;", f"cvt.rn.f{bits}.{sign}64 {o}, x;"]
    found += [
        "div.rn.f32 e, f, g;",
        "div.rn.f32 e, f, 0f40400000;",
        "div.rn.f32 e, 0f3F800000, f;",
    ]
    found += ["ex2.approx.f32 e, f;", "ex2.approx.ftz.f32 e, f;"]
    found += ["min.f32 e, f, g;", "max.f32 e, f, g;", "max.f32 e, f, 0f00000000;", "neg.f32 e, f;", "abs.f32 e, f;"]
    for sign in "su":
        found += [f"cvt.{sign}64.{sign}32 w, a;", f"cvt.{sign}32.{sign}16 d, i;", f"cvt.{sign}64.{sign}16 w, i;",
                  f"cvt.{sign}32.{sign}64 d, x;", f"cvt.{sign}16.{sign}32 h, a;", f"cvt.{sign}16.{sign}64 h, x;",
                  f"cvt.u32.{sign}32 d, a;"]  # fmt: skip
    found += [
        "mov.b64 w, {a, b};",
        "mov.b64 {c, d}, x;",
        "mov.b32 {h, i}, a;",
        "mov.b32 d, {i, j};",
        "mov.b64 {_, d}, x;",
    ]
    found += ["cvta.to.global.u64 w, x;", "cvta.shared.u64 w, x;", "cvta.to.shared.u64 w, x;", "cvta.local.u64 w, x;"]
    return found


SPECIAL_32 = np.array(
    [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001,
     0x7F800001, 0x00800000, 0x807FFFFF, 0x7F7FFFFF, 31, 32, 33, 63, 64, 65, 255],
    dtype=np.uint32,
)  # fmt: skip
SPECIAL_64 = np.array(
    [0, 1, 1 << 63, (1 << 63) - 1, (1 << 64) - 1, 0x3FF0000000000000, 0xBFF0000000000000, 0x7FF0000000000000,
     0xFFF0000000000000, 0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001, 1 << 52, 0x800FFFFFFFFFFFFF,
     0x7FEFFFFFFFFFFFFF],
    dtype=np.uint64,
)  # fmt: skip


def filled(module_text: str) -> Bench:
    """Registers that hold special and random values in changing combinations."""
    bench = Bench(LANES)
    for number, (name, kind) in enumerate(DECLARED.items()):
        words = stream(1, module_text, name, shape=LANES)
        array = bench.registers.array(Register(name, kind))
        if kind == "pred":
            array[:] = words & np.uint64(1)
            continue
        special = SPECIAL_64 if array.itemsize == 8 else SPECIAL_32
        chosen = special[(words >> np.uint64(8)) % np.uint64(len(special))]
        array[:] = np.where(words % np.uint64(3) == number % 3, words, chosen).astype(array.dtype)
    return bench


def parsed(lines: list[str]) -> list:
    registers = "\n".join(f".reg .{kind} {name};" for name, kind in DECLARED.items())
    module = parse(
        ".version 8.7\n.target sm_90a\n.address_size 64\n.global .b32 table[4];\n"
        f".entry k()\n{{\n{registers}\n{chr(10).join(lines)}\n}}"
    )
    return list(module.functions["k"].body)


INSTRUCTIONS = parsed(texts())


def run_loops(bench: Bench, instruction, first: int, count: int) -> None:
    """Execute the loops of an instruction."""
    loaded, scratch = library(wait=True), {}
    for loop in loops(instruction, bench, scratch):
        record = (ctypes.c_int64 * (OPERANDS + len(loop.operands)))()
        for number, word in enumerate(loop.operands):
            record[OPERANDS + number] = ctypes.c_int64(word).value
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(loaded.functions[loop.name])
        function(ctypes.addressof(record), first, count)


class Geometry:
    """What a translator asks of a machine's extents."""

    lanes = LANES


@pytest.mark.parametrize("opcode", sorted({each.opcode for each in INSTRUCTIONS}))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_bit_is_the_interpreters(opcode):
    Bench.geometry = Geometry
    for instruction in (each for each in INSTRUCTIONS if each.opcode == opcode):
        expected, found = filled(instruction.text), filled(instruction.text)
        first, count = 3, LANES - 10
        with np.errstate(all="ignore"):
            BUILDERS[instruction.opcode](instruction, Assembler(expected)).run(Active(slice(3, LANES - 7), count))
        run_loops(found, instruction, first, count)
        for name, kind in DECLARED.items():
            register = Register(name, kind)
            one, other = (bench.registers.array(register).view(np.uint8) for bench in (expected, found))
            assert (one == other).all(), f"{instruction.text}: {name} differs"
