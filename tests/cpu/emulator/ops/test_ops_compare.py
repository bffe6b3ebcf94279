"""Comparison, selection and moves."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import exact_rounding as exact
from covering import examples
from one_instruction import execute
from warptile.errors import UnknownInstruction

ORDER = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
COMBINE = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


def float_truth(name: str, a: float, b: float) -> bool:
    unordered = math.isnan(a) or math.isnan(b)
    if name in ("num", "nan"):
        return unordered == (name == "nan")
    if name.endswith("u"):
        return unordered or ORDER[name[:-1]](a, b)
    return not unordered and ORDER[name](a, b)


FLOAT_COMPARISONS = [*ORDER, *(f"{name}u" for name in ORDER), "num", "nan"]


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
@settings(max_examples=examples(12), deadline=None)
@given(data=st.data())
def test_float_comparisons_and_unordered_ones(name, data) -> None:
    codes = data.draw(st.lists(st.tuples(exact.bits_of(name), exact.bits_of(name)), min_size=1, max_size=16))
    codes += [(a, a) for a, _ in codes[:4]]
    width = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}[name]
    a, b = (np.array(column, dtype=f"u{width // 8}") for column in zip(*codes, strict=True))
    for comparison in FLOAT_COMPARISONS:
        got = execute(f"setp.{comparison}.{name} p, a, b;", f"pred p, b{width} a b", a=a, b=b)
        expected = [float_truth(comparison, *(exact.decode(code, name) for code in row)) for row in codes]
        assert got.tolist() == expected, comparison


@pytest.mark.parametrize("name", ["u16", "s16", "u32", "s32", "u64", "s64"])
@settings(max_examples=examples(12), deadline=None)
@given(data=st.data())
def test_integer_comparisons(name, data) -> None:
    bits = int(name[1:])
    low = -(1 << (bits - 1)) if name[0] == "s" else 0
    value = st.one_of(st.integers(low, low + (1 << bits) - 1), st.sampled_from([low, low + 1, low + (1 << bits) - 1]))
    rows = data.draw(st.lists(st.tuples(value, value), min_size=1, max_size=16))
    dtype = f"{'i' if name[0] == 's' else 'u'}{bits // 8}"
    a, b = (np.array(column, dtype=dtype) for column in zip(*rows, strict=True))
    names = dict(ORDER)
    if name[0] == "u":
        names |= {"lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge}
    for comparison, function in names.items():
        got = execute(f"setp.{comparison}.{name} p, a, b;", f"pred p, {name} a b", a=a, b=b)
        assert got.tolist() == [function(*row) for row in rows], comparison
    got = execute(f"setp.ne.b{bits} p, a, b;", f"pred p, {name} a b", a=a, b=b)
    assert got.tolist() == [x != y for x, y in rows]


@pytest.mark.parametrize("combine", COMBINE)
@pytest.mark.parametrize("negate", [False, True])
def test_predicates_combine_and_the_second_is_of_the_opposite(combine, negate) -> None:
    a = np.array([1, 1, 5, 5], dtype=np.int32)
    c = np.array([True, False, True, False])
    p, q = execute(f"setp.lt.{combine}.s32 p|q, a, 3, {'!' * negate}c;", "pred +p +q c, s32 a", a=a, c=c)
    for i in range(4):
        other = bool(c[i]) != negate
        assert p[i] == COMBINE[combine](bool(a[i] < 3), other)
        assert q[i] == COMBINE[combine](not a[i] < 3, other)
    p, q = execute("setp.lt.s32 p|q, a, 3;", "pred +p +q, s32 a", a=a)
    assert (p.tolist(), q.tolist()) == ([True, True, False, False], [False, False, True, True])
    assert execute("setp.lt.s32 _|q, a, 3;", "pred q, s32 a", a=a).tolist() == [False, False, True, True]


def test_pairs_give_the_low_half_first() -> None:
    a = np.array([0x3C00_4000, 0x7E00_3C00], dtype=np.uint32)  # (2, 1), (1, nan)
    b = np.array([0x4000_3C00, 0x3C00_3C00], dtype=np.uint32)  # (1, 2), (1, 1)
    p, q = execute("setp.gt.f16x2 p|q, a, b;", "pred +p +q, b32 a b", a=a, b=b)
    assert (p.tolist(), q.tolist()) == ([True, False], [False, False])
    got = execute("set.le.f16x2.f16x2 d, a, b;", "b32 d a b", a=a, b=b)
    assert got.tolist() == [0x3C00_0000, 0x0000_3C00]
    assert execute("set.gt.u32.f16x2 d, a, b;", "b32 d a b", a=a, b=b).tolist() == [0x0000_FFFF, 0]
    got = execute("set.eq.bf16x2.bf16x2 d, a, a;", "b32 d a", a=np.array([0x3F80_7FC0], dtype=np.uint32))
    assert got.tolist() == [0x3F80_0000]


def test_ftz_compares_subnormals_as_zero() -> None:
    a = np.array([1e-40, -1e-40, 1e-38], dtype=np.float32)
    assert execute("setp.ne.ftz.f32 p, a, 0f00000000;", "pred p, f32 a", a=a).tolist() == [False, False, False]
    assert execute("setp.ne.f32 p, a, 0f00000000;", "pred p, f32 a", a=a).tolist() == [True, True, True]
    h = np.array([0x0001, 0x0400], dtype=np.uint16)
    assert execute("setp.gt.ftz.f16 p, a, b;", "pred p, b16 a b", a=h, b=h * 0).tolist() == [False, True]


def test_set_writes_all_ones_or_one() -> None:
    a, b = np.array([1, 2], dtype=np.int32), np.array([2, 2], dtype=np.int32)
    assert execute("set.lt.u32.s32 d, a, b;", "u32 d, s32 a b", a=a, b=b).tolist() == [0xFFFFFFFF, 0]
    assert execute("set.lt.f32.s32 d, a, b;", "f32 d, s32 a b", a=a, b=b).tolist() == [1.0, 0.0]
    c = np.array([True, True])
    assert execute("set.eq.xor.s32.s32 d, a, b, c;", "s32 d a b, pred c", a=a, b=b, c=c).tolist() == [-1, 0]
    h = np.array([0x3C00, 0x7E00], dtype=np.uint16)
    assert execute("set.eq.u16.f16 d, a, a;", "b16 d a", a=h).tolist() == [0xFFFF, 0]
    assert execute("set.neu.bf16.f16 d, a, a;", "b16 d a", a=h).tolist() == [0, 0x3F80]


def test_selection() -> None:
    p = np.array([True, False])
    assert execute("selp.b32 d, 7, -1, p;", "s32 d, pred p", p=p).tolist() == [7, -1]
    assert execute("selp.b32 d, 7, -1, !p;", "s32 d, pred p", p=p).tolist() == [-1, 7]
    assert execute("selp.f32 d, 0f3F800000, 2.5, p;", "f32 d, pred p", p=p).tolist() == [1, 2.5]
    assert execute("selp.u16 d, a, 9, p;", "u16 d a, pred p", a=np.array([3, 4], dtype="u2"), p=p).tolist() == [3, 9]
    c = np.array([0, -1, 5], dtype=np.int32)
    assert execute("slct.u32.s32 d, 1, 2, c;", "u32 d, s32 c", c=c).tolist() == [1, 2, 1]
    f = np.array([-0.0, np.nan, -1e-40, 3], dtype=np.float32)
    assert execute("slct.u32.f32 d, 1, 2, c;", "u32 d, f32 c", c=f).tolist() == [1, 2, 2, 1]
    assert execute("slct.ftz.u64.f32 d, 1, 2, c;", "u64 d, f32 c", c=f).tolist() == [1, 2, 1, 1]


def test_predicate_logic() -> None:
    p, q = np.array([True, True, False, False]), np.array([True, False, True, False])
    for opcode, function in COMBINE.items():
        got = execute(f"{opcode}.pred r, p, q;", "pred r p q", p=p, q=q)
        assert got.tolist() == [function(bool(x), bool(y)) for x, y in zip(p, q, strict=True)]
    assert execute("not.pred r, p;", "pred r p", p=p).tolist() == (~p).tolist()
    assert execute("mov.pred r, p;", "pred r p", p=p).tolist() == p.tolist()
    assert execute("mov.pred r, 1;", "pred r").tolist() == [True] * 4


# -- mov ---------------------------------------------------------------------------------------------------------------


def test_moves_of_literals_addresses_and_special_registers() -> None:
    assert execute("mov.u32 d, -1;", "u32 d").tolist() == [0xFFFFFFFF] * 4
    assert execute("mov.f32 d, 0f40490FDB;", "f32 d")[0] == np.float32(math.pi)
    assert execute("mov.f64 d, 0d400921FB54442D18;", "f64 d")[0] == math.pi
    assert execute("mov.b32 d, 0f40490FDB;", "b32 d")[0] == 0x40490FDB
    assert execute("mov.u64 d, table+8;", "u64 d")[0] == 0x4008
    assert execute("mov.u32 d, table2;", "u32 d")[0] == 0x5000
    assert execute("mov.u32 d, %laneid;", "u32 d").tolist() == [0, 1, 2, 3]
    assert execute("mov.u64 d, %clock64;", "u64 d").tolist() == [12345] * 4
    assert execute("mov.u32 d, WARP_SZ;", "u32 d").tolist() == [32] * 4


def test_a_signalling_nan_is_moved_as_it_is() -> None:
    a = np.array([0x7F800001, 0xFFA00000], dtype=np.uint32)
    assert execute("mov.f32 d, a;", "f32 d a", a=a).view(np.uint32).tolist() == a.tolist()


@pytest.mark.parametrize(
    ("whole", "part", "count"),
    [("b32", "b16", 2), ("b64", "b32", 2), ("b64", "b16", 4), ("b32", "b8", 4), ("b16", "b8", 2)],
)
def test_packing_and_unpacking_is_little_endian(whole, part, count) -> None:
    names = "efgh"[:count]
    size, dtype = int(part[1:]) // 8, f"u{int(whole[1:]) // 8}"
    raw = np.arange(1, 1 + 3 * size * count, dtype=np.uint8)
    a = raw.view(dtype)
    parts = execute(
        f"mov.{whole} {{{', '.join(names)}}}, a;", f"{part} {' '.join('+' + n for n in names)}, {whole} a", a=a
    )
    expected = raw.view(f"u{size}").reshape(3, count)
    for i, values in enumerate(parts):
        assert values.tolist() == expected[:, i].tolist()
    again = execute(
        f"mov.{whole} {{{', '.join(names)}}}, a; mov.{whole} d, {{{', '.join(names)}}};",
        f"{whole} d a, {part} {' '.join(names)}", a=a, index=np.array([0, 2]))  # fmt: skip
    assert again[[0, 2]].tolist() == a[[0, 2]].tolist()
    assert again[1] == np.iinfo(dtype).max  # poison: not written


def test_unpacking_into_a_sink_and_its_own_source() -> None:
    a = np.array([0x1111222233334444], dtype=np.uint64)
    assert execute("mov.b64 {_, d}, a;", "b32 d, b64 a", a=a)[0] == 0x11112222
    b = np.array([0xAAAABBBB], dtype=np.uint32)
    assert execute("mov.b32 {e, f}, a; mov.b32 a, {f, e};", "b32 a, b16 e f", a=b)[0] == 0xBBBBAAAA


def test_128_bits() -> None:
    a, b = np.array([1, 2], dtype=np.uint64), np.array([3, 4], dtype=np.uint64)
    low, high = execute("mov.b128 q, {a, b}; mov.b128 r, q; mov.b128 {c, d}, r;", "b64 +c +d a b, b128 q r", a=a, b=b)
    assert (low.tolist(), high.tolist()) == ([1, 2], [3, 4])
    words = execute("mov.b128 q, {a, b}; mov.b128 {e, f, g, h}, q;", "b32 +e +f +g +h, b64 a b, b128 q", a=a, b=b)
    assert [int(word[1]) for word in words] == [2, 0, 4, 0]


@pytest.mark.parametrize(
    ("text", "registers"),
    [("setp.lt.b32 p, a, a;", "pred p, b32 a"), ("setp.lo.s32 p, a, a;", "pred p, s32 a"),
     ("setp.lo.f32 p, a, a;", "pred p, f32 a"), ("setp.ltu.u32 p, a, a;", "pred p, u32 a"),
     ("setp.lt.and.s32 p, a, a;", "pred p, s32 a"), ("setp.lt.s32 p, a, a, p;", "pred p, s32 a"),
     ("setp.lt.ftz.s32 p, a, a;", "pred p, s32 a"), ("setp.lt.e4m3 p, a, a;", "pred p, b32 a"),
     ("selp.b8 a, a, a, p;", "b32 a, pred p"), ("mov.b32 {a, b, c}, a;", "b32 a b c"), ("mov.b128 a, a;", "b32 a"),
     ("mov.b32 {a, b}, {b, a};", "b16 a b"), ("mov.b32 a, b, b;", "b32 a b"), ("mov.f16 a, a;", "b16 a"),
     ("mov.u32 a, b;", "b32 a, b16 b"), ("mov.u32 b, a;", "b32 a, b16 b"), ("set.lt.f16x2.f32 a, a, a;", "b32 a"),
     ("slct.u32.u32 a, a, a, a;", "b32 a")],
)  # fmt: skip
def test_what_ptx_does_not_have_is_refused(text, registers) -> None:
    with pytest.raises(UnknownInstruction):
        execute(text, registers)
