"""Integer arithmetic, logic and bit fields against Python's integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covering import examples
from one_instruction import execute
from warptile.errors import UnknownInstruction

SCALARS = ["u16", "u32", "u64", "s16", "s32", "s64"]
M32 = 0xFFFFFFFF


def width(name: str) -> int:
    return int(name[1:])


def signed(name: str) -> bool:
    return name[0] == "s"


def wrap(value: int, name: str) -> int:
    bits = width(name)
    value %= 1 << bits
    return value - (1 << bits) if signed(name) and value >> (bits - 1) else value


def numbers(name: str):
    bits = width(name)
    low = -(1 << (bits - 1)) if signed(name) else 0
    return st.one_of(
        st.integers(low, low + (1 << bits) - 1),
        st.integers(-4, 4).map(lambda v: wrap(v, name)),
        st.sampled_from([low, low + (1 << bits) - 1]),
    )


def array(values, name: str) -> np.ndarray:
    return np.array(values, dtype=f"{'i' if signed(name) else 'u'}{width(name) // 8}")


def rows(*names: str):
    return st.lists(st.tuples(*[numbers(name) for name in names]), min_size=1, max_size=16)


def run(text: str, result: str, names: tuple[str, ...], columns) -> list[int]:
    letters = "abce"
    values = {
        letter: array(column, name)
        for letter, name, column in zip(letters, names, zip(*columns, strict=True), strict=False)
    }
    declarations = ", ".join(
        [f"{result} d"] + [f"{name} {letter}" for letter, name in zip(letters, names, strict=False)]
    )
    return execute(text, declarations, **values).tolist()


def check(text: str, result: str, names: tuple[str, ...], columns, oracle) -> None:
    expected = [wrap(oracle(*row), result) for row in columns]
    assert run(text, result, names, columns) == expected, (text, columns)


def toward_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@pytest.mark.parametrize("name", SCALARS)
@settings(max_examples=examples(12), deadline=None)
@given(data=st.data())
def test_arithmetic(name, data) -> None:
    columns = data.draw(rows(name, name, name))
    three, two, bits = (name,) * 3, [row[:2] for row in columns], width(name)
    check(f"add.{name} d, a, b;", name, three, two, lambda a, b: a + b)
    check(f"sub.{name} d, a, b;", name, three, two, lambda a, b: a - b)
    check(f"mul.lo.{name} d, a, b;", name, three, two, lambda a, b: a * b)
    check(f"mul.hi.{name} d, a, b;", name, three, two, lambda a, b: a * b >> bits)
    check(f"mad.lo.{name} d, a, b, c;", name, three, columns, lambda a, b, c: a * b + c)
    check(f"mad.hi.{name} d, a, b, c;", name, three, columns, lambda a, b, c: (a * b >> bits) + c)
    check(f"sad.{name} d, a, b, c;", name, three, columns, lambda a, b, c: c + abs(a - b))
    check(f"min.{name} d, a, b;", name, three, two, min)
    check(f"max.{name} d, a, b;", name, three, two, max)
    check(f"div.{name} d, a, b;", name, three, two, lambda a, b: toward_zero(a, b) if b else -1)
    check(f"rem.{name} d, a, b;", name, three, two, lambda a, b: a - b * toward_zero(a, b) if b else a)
    if signed(name):
        one = [row[:1] for row in columns]
        check(f"neg.{name} d, a;", name, three, one, lambda a: -a)
        check(f"abs.{name} d, a;", name, three, one, abs)


@pytest.mark.parametrize("name", ["u16", "u32", "s16", "s32"])
@settings(max_examples=examples(12), deadline=None)
@given(data=st.data())
def test_wide_products(name, data) -> None:
    wide = f"{name[0]}{2 * width(name)}"
    columns = data.draw(rows(name, name, wide))
    check(f"mul.wide.{name} d, a, b;", wide, (name, name), [row[:2] for row in columns], lambda a, b: a * b)
    check(f"mad.wide.{name} d, a, b, c;", wide, (name, name, wide), columns, lambda a, b, c: a * b + c)


@settings(max_examples=examples(30), deadline=None)
@given(columns=rows("s32", "s32", "s32"))
def test_saturating_forms(columns) -> None:
    def clip(value: int) -> int:
        return min(max(value, -(1 << 31)), (1 << 31) - 1)

    names, two = ("s32",) * 3, [row[:2] for row in columns]
    check("add.sat.s32 d, a, b;", "s32", names, two, lambda a, b: clip(a + b))
    check("sub.sat.s32 d, a, b;", "s32", names, two, lambda a, b: clip(a - b))
    check("mad.hi.sat.s32 d, a, b, c;", "s32", names, columns, lambda a, b, c: clip((a * b >> 32) + c))
    check("max.relu.s32 d, a, b;", "s32", names, two, lambda a, b: max(a, b, 0))

    def low24(value: int) -> int:
        return (value & 0xFFFFFF) - (1 << 24) * (value >> 23 & 1)

    check("mul24.lo.s32 d, a, b;", "s32", names, two, lambda a, b: low24(a) * low24(b))
    check("mul24.hi.s32 d, a, b;", "s32", names, two, lambda a, b: low24(a) * low24(b) >> 16)
    check("mad24.hi.sat.s32 d, a, b, c;", "s32", names, columns, lambda a, b, c: clip((low24(a) * low24(b) >> 16) + c))
    unsigned = [tuple(v & M32 for v in row) for row in columns]
    check(
        "mad24.lo.u32 d, a, b, c;", "u32", ("u32",) * 3, unsigned, lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c
    )


@settings(max_examples=examples(30), deadline=None)
@given(columns=rows("u32", "u32"))
def test_pairs_do_not_carry_into_each_other(columns) -> None:
    def halves(value: int, sign: bool) -> list[int]:
        parts = [value & 0xFFFF, value >> 16]
        return [part - (part >> 15 << 16) if sign else part for part in parts]

    def on_halves(function, sign: bool):
        def packed(a: int, b: int) -> int:
            low, high = (function(x, y) & 0xFFFF for x, y in zip(halves(a, sign), halves(b, sign), strict=True))
            return low | high << 16

        return packed

    names = ("u32", "u32")
    check("add.u16x2 d, a, b;", "u32", names, columns, on_halves(lambda x, y: x + y, False))
    check("min.s16x2 d, a, b;", "u32", names, columns, on_halves(min, True))
    check("max.u16x2 d, a, b;", "u32", names, columns, on_halves(max, False))
    check("min.relu.s16x2 d, a, b;", "u32", names, columns, on_halves(lambda x, y: max(min(x, y), 0), True))


@settings(max_examples=examples(30), deadline=None)
@given(columns=rows("u64", "u64", "u64", "u64"))
def test_carries_make_128_bit_sums_and_products(columns) -> None:
    a0, a1, b0, b1 = (array(column, "u64") for column in zip(*columns, strict=True))
    low, high, rest = execute(
        "add.cc.u64 d, a, b; addc.cc.u64 e, f, g; addc.u64 h, 0, 0;",
        "b64 +d +e +h a b f g", a=a0, f=a1, b=b0, g=b1)  # fmt: skip
    for row, got in zip(columns, zip(low, high, rest, strict=True), strict=True):
        total = (row[0] | row[1] << 64) + (row[2] | row[3] << 64)
        assert int(got[0]) | int(got[1]) << 64 | int(got[2]) << 128 == total
    low, high, rest = execute(
        "sub.cc.u64 d, a, b; subc.cc.u64 e, f, g; subc.u64 h, 0, 0;",
        "b64 +d +e +h a b f g", a=a0, f=a1, b=b0, g=b1)  # fmt: skip
    for row, got in zip(columns, zip(low, high, rest, strict=True), strict=True):
        difference = (row[0] | row[1] << 64) - (row[2] | row[3] << 64)
        assert int(got[0]) | int(got[1]) << 64 | int(got[2]) << 128 == difference % (1 << 192)


@settings(max_examples=examples(30), deadline=None)
@given(columns=rows("u32", "u32"))
def test_sums_and_differences_share_one_flag_which_is_an_adders_carry(columns) -> None:
    """Division of 128-bit integers, as NVVM writes it, asks by ``addc`` whether ``subc.cc`` has borrowed."""
    a, b = (array(column, "u32") for column in zip(*columns, strict=True))
    difference, kept, total, less = execute(
        "sub.cc.u32 d, a, b; addc.u32 e, 0, 0; add.cc.u32 h, a, b; subc.u32 i, 10, 0;", "b32 +d +e +h +i a b", a=a, b=b
    )
    for (x, y), got in zip(columns, zip(difference, kept, total, less, strict=True), strict=True):
        assert got == ((x - y) & M32, x >= y, (x + y) & M32, 9 + (x + y > M32))


@settings(max_examples=examples(30), deadline=None)
@given(columns=rows("u64", "u64"))
def test_carries_make_the_schoolbook_product(columns) -> None:
    parts = [array([value >> shift & M32 for value in column], "u32")
             for column in zip(*columns, strict=True) for shift in (0, 32)]  # fmt: skip
    low, middle, high, top = execute(
        "mul.lo.u32 d, a, b; mul.hi.u32 e, a, b; mad.lo.cc.u32 e, a, g, e; madc.hi.u32 h, a, g, 0;"
        "mad.lo.cc.u32 e, f, b, e; madc.hi.cc.u32 h, f, b, h; madc.hi.u32 i, f, g, 0;"
        "mad.lo.cc.u32 h, f, g, h; addc.u32 i, i, 0;",
        "b32 +d +e +h +i a b f g", a=parts[0], f=parts[1], b=parts[2], g=parts[3])  # fmt: skip
    for (a, b), words in zip(columns, zip(low, middle, high, top, strict=True), strict=True):
        assert sum(int(word) << (32 * i) for i, word in enumerate(words)) == a * b


@settings(max_examples=examples(30), deadline=None)
@given(columns=rows("u32", "u32", "u32"))
def test_dot_products(columns) -> None:
    def parts(value: int, size: int, sign: bool) -> list[int]:
        bits = 8 * size
        found = [value >> (bits * i) & ((1 << bits) - 1) for i in range(4 // size)]
        return [part - (part >> (bits - 1) << bits) if sign else part for part in found]

    names = ("u32",) * 3
    for left in ("u32", "s32"):
        for right in ("u32", "s32"):
            signs = left == "s32", right == "s32"

            def four(a, b, c, signs=signs) -> int:
                return c + sum(x * y for x, y in zip(parts(a, 1, signs[0]), parts(b, 1, signs[1]), strict=True))

            check(f"dp4a.{left}.{right} d, a, b, c;", "u32", names, columns, four)
            for half, start in (("lo", 0), ("hi", 2)):

                def two(a, b, c, signs=signs, start=start) -> int:
                    bytes_ = parts(b, 1, signs[1])[start : start + 2]
                    return c + sum(x * y for x, y in zip(parts(a, 2, signs[0]), bytes_, strict=True))

                check(f"dp2a.{half}.{left}.{right} d, a, b, c;", "u32", names, columns, two)


# -- bits --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["u16", "u32", "u64"])
@settings(max_examples=examples(12), deadline=None)
@given(data=st.data())
def test_logic(name, data) -> None:
    columns, bits = data.draw(rows(name, name)), width(name)
    names, one = (name, name), [row[:1] for row in columns]
    check(f"and.b{bits} d, a, b;", name, names, columns, lambda a, b: a & b)
    check(f"or.b{bits} d, a, b;", name, names, columns, lambda a, b: a | b)
    check(f"xor.b{bits} d, a, b;", name, names, columns, lambda a, b: a ^ b)
    check(f"not.b{bits} d, a;", name, names, one, lambda a: ~a)
    check(f"cnot.b{bits} d, a;", name, names, one, lambda a: int(a == 0))
    if bits > 16:
        check(f"popc.b{bits} d, a;", "u32", names, one, lambda a: a.bit_count())
        check(f"clz.b{bits} d, a;", "u32", names, one, lambda a: bits - a.bit_length())
        check(f"brev.b{bits} d, a;", name, names, one, lambda a: int(f"{a:0{bits}b}"[::-1], 2))
        check(f"bfind.u{bits} d, a;", "u32", names, one, lambda a: a.bit_length() - 1)
        check(f"bfind.shiftamt.u{bits} d, a;", "u32", names, one, lambda a: bits - a.bit_length() if a else -1)
        in_signed = [(wrap(a, f"s{bits}"),) for (a,) in one]
        check(f"bfind.s{bits} d, a;", "u32", (f"s{bits}",), in_signed, lambda a: (a if a >= 0 else ~a).bit_length() - 1)


@pytest.mark.parametrize("table", range(0, 256, 1))
def test_lop3_of_every_table(table) -> None:
    a, b, c = (np.array([pattern], dtype=np.uint32) for pattern in (0xF0, 0xCC, 0xAA))
    assert execute(f"lop3.b32 d, a, b, c, {table};", "b32 d a b c", a=a, b=b, c=c)[0] & 0xFF == table


def test_lop3_with_a_predicate() -> None:
    a = np.array([0, 1, 2, 3], dtype=np.uint32)
    q = np.array([True, False, True, False])
    value, p = execute("lop3.or.b32 d|p, a, a, a, 0x80, q;", "b32 +d a, pred +p q", a=a, q=q)
    assert (value.tolist(), p.tolist()) == ([0, 1, 2, 3], [True, True, True, True])
    p = execute("lop3.and.b32 _|p, a, a, a, 0x80, !q;", "pred p q, b32 a", a=a, q=q)
    assert p.tolist() == [False, True, False, True]


@pytest.mark.parametrize("name", ["u16", "u32", "u64", "s16", "s32", "s64"])
@settings(max_examples=examples(15), deadline=None)
@given(data=st.data())
def test_shifts_beyond_the_width_clamp(name, data) -> None:
    bits = width(name)
    amounts = st.one_of(st.integers(0, bits + 2), st.integers(0, M32))
    columns = data.draw(st.lists(st.tuples(numbers(name), amounts), min_size=1, max_size=16))
    check(f"shr.{name} d, a, b;", name, (name, "u32"), columns, lambda a, n: a >> min(n, bits))
    constant = columns[0][1]
    check(
        f"shr.{name} d, a, {constant};", name, (name,), [row[:1] for row in columns], lambda a: a >> min(constant, bits)
    )
    if not signed(name):
        check(f"shl.b{bits} d, a, b;", name, (name, "u32"), columns, lambda a, n: a << min(n, bits))
        check(f"shl.b{bits} d, a, {constant};", name, (name,), [row[:1] for row in columns],
              lambda a: a << min(constant, bits))  # fmt: skip


@settings(max_examples=examples(40), deadline=None)
@given(columns=st.lists(st.tuples(*[st.integers(0, M32)] * 2, st.one_of(st.integers(0, 40), st.integers(0, M32))),
                        min_size=1, max_size=16))  # fmt: skip
def test_funnel_shift_and_byte_permutation(columns) -> None:
    names = ("u32",) * 3

    def funnel(a: int, b: int, n: int, left: bool) -> int:
        both = b << 32 | a
        return both << n >> 32 if left else both >> n

    check("shf.l.clamp.b32 d, a, b, c;", "u32", names, columns, lambda a, b, c: funnel(a, b, min(c, 32), True))
    check("shf.l.wrap.b32 d, a, b, c;", "u32", names, columns, lambda a, b, c: funnel(a, b, c & 31, True))
    check("shf.r.clamp.b32 d, a, b, c;", "u32", names, columns, lambda a, b, c: funnel(a, b, min(c, 32), False))
    check("shf.r.wrap.b32 d, a, b, c;", "u32", names, columns, lambda a, b, c: funnel(a, b, c & 31, False))

    def permute(a: int, b: int, c: int) -> int:
        source = (b << 32 | a).to_bytes(8, "little")
        picked = []
        for i in range(4):
            pick = c >> 4 * i & 15
            byte = source[pick & 7]
            picked.append((255 if byte & 128 else 0) if pick & 8 else byte)
        return int.from_bytes(bytes(picked), "little")

    check("prmt.b32 d, a, b, c;", "u32", names, columns, permute)
    control = columns[0][2]
    two = [row[:2] for row in columns]
    check(f"prmt.b32 d, a, b, {control};", "u32", names, two, lambda a, b: permute(a, b, control))


PERMUTE_MODES = {
    "f4e": ["3210", "4321", "5432", "6543"], "b4e": ["5670", "6701", "7012", "0123"],
    "rc8": ["0000", "1111", "2222", "3333"], "ecl": ["3210", "3211", "3222", "3333"],
    "ecr": ["0000", "1110", "2210", "3210"], "rc16": ["1010", "3232", "1010", "3232"],
}  # fmt: skip
"""Bytes picked, highest first, for the selectors 0 to 3: the table of PTX ISA."""


@pytest.mark.parametrize("mode", PERMUTE_MODES)
def test_permutation_modes(mode) -> None:
    a, b = np.full(4, 0x33221100, dtype=np.uint32), np.full(4, 0x77665544, dtype=np.uint32)
    expected = [int("".join(2 * byte for byte in picks), 16) for picks in PERMUTE_MODES[mode]]
    got = execute(f"prmt.b32.{mode} d, a, b, c;", "b32 d a b c", a=a, b=b, c=np.arange(4, dtype=np.uint32))
    assert got.tolist() == expected
    for selector in range(4):
        got = execute(f"prmt.b32.{mode} d, a, b, {selector};", "b32 d a b", a=a, b=b)
        assert got[0] == expected[selector]


@pytest.mark.parametrize("name", ["u32", "s32", "u64", "s64"])
@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_bit_fields(name, data) -> None:
    bits = width(name)
    place = st.one_of(st.integers(0, bits + 1), st.integers(0, 600), st.integers(0, M32))
    byte = 255 if bits == 32 else M32  # what the machine code of the width looks at
    columns = data.draw(st.lists(st.tuples(numbers(name), place, place), min_size=1, max_size=16))

    def extract(a: int, position: int, length: int) -> int:
        position, length = position & byte, min(length & byte, bits)
        raw = a % (1 << bits)
        sign = raw >> min(position + length - 1, bits - 1) & 1 if signed(name) and length else 0
        result = 0
        for i in range(bits):
            bit = raw >> (position + i) & 1 if i < length and position + i < bits else sign
            result |= bit << i
        return result

    check(f"bfe.{name} d, a, b, c;", name, (name, "u32", "u32"), columns, extract)
    if not signed(name):
        both = [(*row[:1], data.draw(numbers(name)), *row[1:]) for row in columns]

        def insert(a: int, b: int, position: int, length: int) -> int:
            position, length = position & byte, min(length & byte, bits)
            for i in range(length):
                if position + i < bits:
                    b = b & ~(1 << (position + i)) | (a >> i & 1) << (position + i)
            return b

        check(f"bfi.b{bits} d, a, b, c, e;", name, (name, name, "u32", "u32"), both, insert)


def test_bit_fields_above_255_by_the_machine_code() -> None:
    """A position of 256: 32-bit fields take its lowest byte, 64-bit ones shift everything out."""
    a32, a64 = np.full(1, 0x87654321, "u4"), np.full(1, 0x8765432187654321, "u8")
    at, eight = np.full(1, 256, "u4"), np.full(1, 8, "u4")
    assert execute("bfe.u32 d, a, p, n;", "u32 d a p n", a=a32, p=at, n=eight).tolist() == [0x21]
    assert execute("bfe.u64 d, a, p, n;", "u64 d a, u32 p n", a=a64, p=at, n=eight).tolist() == [0]
    assert execute("bfe.s64 d, a, p, n;", "s64 d a, u32 p n", a=a64.view("i8"), p=at, n=eight).tolist() == [-1]
    assert execute("bfe.u64 d, a, n, p;", "u64 d a, u32 p n", a=a64, p=at, n=eight).tolist() == [0x87654321876543]
    found = execute("bfi.b64 d, a, b, p, n;", "u64 d a b, u32 p n", a=a64, b=~a64, p=at, n=eight)
    assert found.tolist() == (~a64).tolist()


@pytest.mark.parametrize("text", ["bfe.u32 d, a, 256, 8;", "bfe.s32 d, a, 0, 300;", "bfi.b32 d, a, a, 8, 256;"])
def test_constant_bit_fields_above_255_are_refused(text) -> None:
    with pytest.raises(UnknownInstruction, match="0 to 255"):
        execute(text, "b32 d a")


@settings(max_examples=examples(40), deadline=None)
@given(
    columns=st.lists(st.tuples(st.integers(0, M32), st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=16)
)
def test_masks_and_extension(columns) -> None:
    positions = [row[1:] for row in columns]
    names = ("u32", "u32")
    check("bmsk.clamp.b32 d, a, b;", "u32", names, positions, lambda a, b: ((1 << min(b, 32)) - 1) << min(a, 32))
    check("bmsk.wrap.b32 d, a, b;", "u32", names, positions, lambda a, b: ((1 << (b & 31)) - 1) << (a & 31))
    two = [row[:2] for row in columns]
    check("szext.clamp.u32 d, a, b;", "u32", names, two, lambda a, n: a & ((1 << min(n, 32)) - 1))
    check("szext.wrap.u32 d, a, b;", "u32", names, two, lambda a, n: a & ((1 << (n & 31)) - 1))

    def extend(a: int, n: int) -> int:
        low = a & ((1 << n) - 1)
        return low - (1 << n) if n and low >> (n - 1) else low

    check("szext.clamp.s32 d, a, b;", "s32", names, two, lambda a, n: extend(a, min(n, 32)))
    check("szext.wrap.s32 d, a, b;", "s32", names, two, lambda a, n: extend(a, n & 31))


@settings(max_examples=examples(40), deadline=None)
@given(
    columns=st.lists(st.tuples(st.integers(0, M32), st.integers(0, 31), st.integers(-34, 34)), min_size=1, max_size=16)
)
def test_find_nth_set_bit(columns) -> None:
    def find(mask: int, base: int, offset: int) -> int:
        if offset == 0:
            return base if mask >> base & 1 else -1
        places = range(base, 32) if offset > 0 else range(base, -1, -1)
        found = [place for place in places if mask >> place & 1]
        return found[abs(offset) - 1] if len(found) >= abs(offset) else -1

    check("fns.b32 d, a, b, c;", "u32", ("u32", "u32", "s32"), columns, find)


def test_fns_examples_of_the_isa() -> None:
    for base, offset, expected in ((3, 1, 3), (3, -1, 3), (2, 1, 3), (2, -1, 1)):
        assert execute(f"fns.b32 d, 0xaaaaaaaa, {base}, {offset};", "b32 d", lanes=1)[0] == expected


@pytest.mark.parametrize(
    "text",
    ["add.sat.u32 d, a, a;", "mul.s32 d, a, a;", "mul.wide.s64 d, a, a;", "min.relu.u32 d, a, a;", "neg.u32 d, a;",
     "shl.u32 d, a, a;", "lop3.b32 d, a, a, a, a;", "lop3.b32 d, a, a, a, 256;", "shf.l.b32 d, a, a, a;",
     "prmt.b32.f8e d, a, a, a;", "popc.b16 d, a;", "bmsk.b32 d, a, a;", "mad.wide.cc.u32 d, a, a, a;",
     "addc.u16 d, a, a;", "add.u32.u32 d, a, a;", "add d, a, a;"],
)  # fmt: skip
def test_what_ptx_does_not_have_is_refused(text) -> None:
    with pytest.raises(UnknownInstruction):
        execute(text, "b64 d a")


def test_video_instructions_work_part_by_part() -> None:
    a, b = np.array([0x01FF80_7F], dtype=np.uint32), np.array([0x02017F_01], dtype=np.uint32)
    c = np.array([1000], dtype=np.uint32)
    for text, expected in (
        ("vadd4.u32.u32.u32 d, a, b, c;", 0x0300FF80),
        ("vadd4.s32.s32.s32.sat d, a, b, c;", 0x0300FF7F),
        ("vadd4.u32.u32.u32.sat d, a, b, c;", 0x03FFFF80),
        ("vsub4.s32.s32.s32.sat d, a, b, c;", 0xFFFE807E),
        ("vabsdiff4.u32.u32.u32 d, a, b, c;", 0x01FE017E),
        ("vabsdiff4.u32.u32.u32.add d, a, b, c;", 1000 + 0x01 + 0xFE + 0x01 + 0x7E),
        ("vmax4.u32.u32.u32 d, a, b, c;", 0x02FF807F),
        ("vmin4.s32.s32.s32 d, a, b, c;", 0x01FF8001),
        ("vset4.u32.u32.gt d, a, b, c;", 0x00010101),
        ("vset4.s32.s32.gt.add d, a, b, c;", 1001),
        ("vavrg4.u32.u32.u32 d, a, b, c;", 0x02808040),
        ("vavrg4.s32.s32.s32 d, a, b, c;", 0x0200FF40),
        ("vavrg4.u32.u32.u32.add d, a, b, c;", 1000 + 0x02 + 0x80 + 0x80 + 0x40),
        ("vavrg2.s32.s32.s32 d, a, b, c;", 0x0200FFC0),
        ("vabsdiff2.s32.s32.s32 d, a, b, c;", ((0x0201 - 0x01FF) << 16) | ((0x7F01 + 0x7F81) & 0xFFFF)),
    ):
        assert execute(text, "b32 d a b c", a=a, b=b, c=c)[0] == expected, text


PARTS = {"": (0, 32), **{f".b{i}": (8 * i, 8) for i in range(4)}, ".h0": (0, 16), ".h1": (16, 16)}


def scalar_video(
    name: str, types: tuple[str, str, str], parts: tuple[str, str], row: tuple[int, int], mode: str
) -> int:
    """What a scalar video instruction computes before saturation."""
    x, y = (
        wrap(value >> PARTS[part][0], f"{kind[0]}{PARTS[part][1]}")
        for value, part, kind in zip(row, parts, types[1:], strict=True)
    )
    by = min(y, 32) if mode == "clamp" else y & 31
    return {
        "vadd": lambda: x + y, "vsub": lambda: x - y, "vabsdiff": lambda: abs(x - y), "vmin": lambda: min(x, y),
        "vmax": lambda: max(x, y), "vshl": lambda: x << by, "vshr": lambda: x >> by,
    }[name]()  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("name", ["vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr"])
def test_scalar_video_instructions(name, data) -> None:
    shifts = name in ("vshl", "vshr")
    types = tuple(data.draw(st.sampled_from(["u32", "s32"])) for _ in range(3))
    types = (*types[:2], "u32") if shifts else types
    mode = data.draw(st.sampled_from(["clamp", "wrap"])) if shifts else ""
    sides = tuple(data.draw(st.sampled_from(list(PARTS))) for _ in range(2))
    saturate, second = data.draw(st.booleans()), data.draw(st.sampled_from(["", "add", "min", "max"]))
    into = "" if second else data.draw(st.sampled_from(list(PARTS)))
    columns = data.draw(rows("u32", "u32", "u32"))
    words = [name, *types, "sat" if saturate else "", mode, second]
    third = ", c" if second or into else ""
    text = f"{'.'.join(word for word in words if word)} d{into}, a{sides[0]}, b{sides[1]}{third};"
    low, bits = PARTS[into]
    expected = []
    for *row, c in columns:
        made = scalar_video(name, types, sides, tuple(row), mode)
        if saturate:
            least = -(1 << bits - 1) if types[0] == "s32" else 0
            made = max(least, min(made, least + (1 << bits) - 1))
        if second:
            made = {"add": int.__add__, "min": min, "max": max}[second](made, wrap(c, types[0]))
        elif into:
            made = (made & (1 << bits) - 1) << low | c & ~((1 << bits) - 1 << low)
        expected.append(made & M32)
    values = {letter: array(column, "u32") for letter, column in zip("abc", zip(*columns, strict=True), strict=True)}
    assert execute(text, "b32 d a b c", **values).tolist() == expected, text


def test_vmad_and_vset() -> None:
    a, b, c = (np.array([value], dtype=np.uint32) for value in (0x80FF7F02, 0x00FE8003, 5))
    for text, expected in (
        ("vmad.u32.u32.u32 d, a, b, c;", (0x80FF7F02 * 0x00FE8003 + 5) & M32),
        ("vmad.s32.s32.u32 d, a.b3, b.b2, c;", (-128 * 254 + 5) & M32),
        ("vmad.u32.u32.u32.po d, a.h0, b.h0, c;", 0x7F02 * 0x8003 + 6),
        ("vmad.s32.s32.s32.shr7 d, a.h0, b.h0, c;", (0x7F02 * (0x8003 - 65536) + 5 >> 7) & M32),
        ("vmad.u32.u32.u32.sat.shr15 d, a, b, c;", M32),
        ("vmad.s32.s32.s32.sat d, a, b, c;", 0x80000000),
        ("vset.u32.u32.lt d, a.b0, b.b0;", 1),
        ("vset.s32.u32.lt.add d, a.b2, b.b2, c;", 6),
        ("vset.u32.u32.lt d.h1, a.b2, b.b2, c;", 5),
        ("vset.s32.s32.ne d.b1, a, b, c;", 0x105),
    ):
        assert execute(text, "b32 d a b c", a=a, b=b, c=c)[0] == expected, text


@pytest.mark.parametrize(
    "text",
    ["vadd.u32.u32.u32 d, a, a, a;", "vadd.u32.u32.u32.add d.b0, a, a, a;", "vadd.u32.u32.u32.add d, a, a;",
     "vshl.u32.u32.s32.clamp d, a, a;", "vshl.u32.u32.u32 d, a, a;", "add.u32 d, a.b0, a;"],
)  # fmt: skip
def test_video_forms_that_ptx_does_not_have_are_refused(text) -> None:
    with pytest.raises(UnknownInstruction):
        execute(text, "b32 d a")


def test_relu_may_follow_the_type() -> None:
    a = np.array([-5, 3], dtype=np.int32)
    assert execute("max.s32.relu d, a, -7;", "s32 d a", a=a).tolist() == [0, 3]
