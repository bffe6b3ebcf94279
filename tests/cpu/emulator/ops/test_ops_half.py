"""f16 and bf16, alone and in pairs, against exact fractions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import exact_rounding as exact
from covering import examples
from one_instruction import execute
from warptile.errors import UnknownInstruction

ORACLE = {"add": exact.added, "mul": exact.multiplied, "fma": exact.fused}


def rows(name: str, count: int):
    return st.lists(st.tuples(*[exact.bits_of(name)] * count), min_size=1, max_size=24)


def run(text: str, columns: list[tuple[int, ...]], *, pair: bool = False) -> list[int]:
    """The results for each row; in pairs, the row is the low half and its mirror image the high half."""
    arrays = {}
    for letter, column in zip("abc", zip(*columns, strict=True), strict=False):
        low = np.array(column, dtype=np.uint16)
        arrays[letter] = low.astype(np.uint32) | low[::-1].astype(np.uint32) << np.uint32(16) if pair else low
    kind = "b32" if pair else "b16"
    got = execute(text, f"{kind} d {' '.join(arrays)}", **arrays)
    if not pair:
        return got.tolist()
    halves = [int(value) & 0xFFFF for value in got]
    assert [int(value) >> 16 for value in got] == halves[::-1]
    return halves


@pytest.mark.parametrize("name", ["f16", "f16x2", "bf16", "bf16x2"])
@pytest.mark.parametrize("opcode", ["add", "sub", "mul", "fma"])
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_arithmetic_rounds_once_to_the_nearest(opcode, name, data) -> None:
    plain = name.removesuffix("x2")
    count = 3 if opcode == "fma" else 2
    columns = data.draw(rows(plain, count))
    text = f"{opcode}.rn.{name} d, {'a, b, c'[: 3 * count - 2]};"
    for row, got in zip(columns, run(text, columns, pair=name != plain), strict=True):
        values = [exact.decode(bits, plain) for bits in row]
        if opcode == "sub":
            values[1] = -values[1]
        expected = ORACLE["add" if opcode == "sub" else opcode](*values, plain)
        assert got == expected, (text, [hex(bits) for bits in row], hex(got), expected)


def test_bf16_products_below_the_normal_range_round_once() -> None:
    # 2**-70 * 1.1111111b * 2**-64 * 1.0000001b: halfway in bf16 but for bits that float32 would drop
    for a in range(0x1C80, 0x1D00):
        b = np.arange(0x1F80, 0x2000, dtype=np.uint16)
        got = execute("mul.rn.bf16 d, a, b;", "b16 d a b", a=np.full(len(b), a, dtype=np.uint16), b=b)
        expected = [exact.multiplied(exact.decode(a, "bf16"), exact.decode(int(x), "bf16"), "bf16") for x in b[::16]]
        assert got[::16].tolist() == expected


def test_bf16_fused_sees_an_addend_far_below_a_tie() -> None:
    # 1.0000001b * 1.0000001b lies halfway plus a bit; with a product exactly halfway only the addend decides
    a, b = 0x3FC0, 0x3F83  # 1.5 * 1.0234375 = 1.53515625: halfway between two bf16
    rows_ = [(a, b, c) for c in (0x0001, 0x8001, 0x0000)]
    got = run("fma.rn.bf16 d, a, b, c;", rows_)
    expected = [exact.fused(*[exact.decode(bits, "bf16") for bits in row], "bf16") for row in rows_]
    assert got == expected
    assert got[0] != got[1]


@settings(max_examples=examples(30), deadline=None)
@given(columns=rows("f16", 3))
def test_clamps_of_fused(columns) -> None:
    plain = run("fma.rn.f16 d, a, b, c;", columns)
    for value, sat, relu in zip(
        (exact.decode(bits, "f16") for bits in plain),
        run("fma.rn.sat.f16x2 d, a, b, c;", columns, pair=True),
        run("fma.rn.relu.f16 d, a, b, c;", columns),
        strict=True,
    ):
        clamped = exact.decode(sat, "f16")
        assert clamped == (1 if value >= 1 else value if value > 0 else 0)
        if math.isnan(value):
            assert relu == 0x7FFF
        else:
            assert exact.decode(relu, "f16") == max(value, 0)
            assert relu < 0x8000


@pytest.mark.parametrize("clamp", ["", ".relu", ".sat"])
@pytest.mark.parametrize("name", ["f16", "bf16", "f16x2", "bf16x2"])
def test_fused_sums_out_of_bounds_are_zero(name, clamp) -> None:
    """0x7ff7, with which tensor copies fill, and its negative as a or b give +0, whatever c is; other NaN do not."""
    if clamp == ".sat" and name.startswith("bf16"):
        with pytest.raises(UnknownInstruction, match="sat"):
            execute("fma.rn.oob.sat.bf16 d, a, b, c;", "b16 d a b c")
        return
    words = np.arange(1 << 16, dtype=np.uint16)
    one = np.full(1 << 16, 0x3C00 if name.startswith("f16") else 0x3F80, dtype=np.uint16)
    outside = np.isin(words, (0x7FF7, 0xFFF7))
    pair = name.endswith("x2")

    def fused(oob: str, *columns) -> np.ndarray:
        text = f"fma.rn{oob}{clamp}.{name} d, a, b, c;"
        registers = {"abc"[i]: column.view(np.uint32) if pair else column for i, column in enumerate(columns)}
        return execute(text, f"{'b32' if pair else 'b16'} d a b c", **registers).view(np.uint16)

    for columns in ((words, one, one), (one, words, words)):
        plain, found = fused("", *columns), fused(".oob", *columns)
        np.testing.assert_array_equal(found[outside], 0)
        np.testing.assert_array_equal(found[~outside], plain[~outside])
    np.testing.assert_array_equal(fused(".oob", one, one, words), fused("", one, one, words))
    infinity = np.full(1 << 16, 0x7C00 if name.startswith("f16") else 0x7F80, dtype=np.uint16)
    np.testing.assert_array_equal(fused(".oob", np.full_like(one, 0xFFF7), infinity, words), 0)


def test_ftz_flushes_f16() -> None:
    a = np.array([0x0001, 0x8001, 0x0400, 0x03FF], dtype=np.uint16)
    zero = np.zeros(4, dtype=np.uint16)
    got = execute("add.ftz.f16 d, a, b;", "b16 d a b", a=a, b=zero)
    assert got.tolist() == [0, 0, 0x0400, 0]
    got = execute("sub.f16 d, a, b;", "b16 d a b", a=np.full(1, 0x0401, "u2"), b=np.full(1, 0x0400, "u2"))
    assert got.tolist() == [1]
    got = execute("sub.ftz.f16 d, a, b;", "b16 d a b", a=np.full(1, 0x0401, "u2"), b=np.full(1, 0x0400, "u2"))
    assert got.tolist() == [0]


@pytest.mark.parametrize("name", ["f16", "bf16", "f16x2", "bf16x2"])
@settings(max_examples=examples(30), deadline=None)
@given(data=st.data())
def test_minimum_and_signs(name, data) -> None:
    plain = name.removesuffix("x2")
    columns = data.draw(rows(plain, 2))
    pair = name != plain
    low, high = run(f"min.{name} d, a, b;", columns, pair=pair), run(f"max.NaN.{name} d, a, b;", columns, pair=pair)
    for (a, b), least, most, neg, absolute in zip(
        columns,
        low,
        high,
        run(f"neg.{name} d, a;", columns, pair=pair),
        run(f"abs.{name} d, a;", columns, pair=pair),
        strict=True,
    ):
        assert (neg, absolute) == ((0x7FFF, 0x7FFF) if exact.is_nan(a, plain) else (a ^ 0x8000, a & 0x7FFF))
        codes = [code for code in (a, b) if not exact.is_nan(code, plain)]

        def key(code: int) -> tuple[float, float]:
            value = exact.decode(code, plain)
            return value, math.copysign(1, value)

        assert least == (min(codes, key=key) if codes else 0x7FFF)
        assert most == (max(codes, key=key) if len(codes) == 2 else 0x7FFF)


@pytest.mark.parametrize("text", ["add.ftz.bf16 d, a, a;", "fma.bf16 d, a, a, a;", "mul.sat.bf16 d, a, a;",
                                  "fma.rz.f16 d, a, a, a;", "fma.rn.oob.ftz.f16 d, a, a, a;",
                                  "mul.oob.f16 d, a, a;", "neg.ftz.bf16 d, a;", "add.relu.f16 d, a, a;"])  # fmt: skip
def test_what_ptx_does_not_have_is_refused(text) -> None:
    with pytest.raises(UnknownInstruction):
        execute(text, "b16 d a")
