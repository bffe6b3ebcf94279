"""Single and double precision against exact fractions, in every rounding direction."""

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

UNSIGNED = {"f32": np.uint32, "f64": np.uint64}
DIRECTIONS = ["rn", "rz", "rm", "rp"]
ORACLE = {"add": exact.added, "mul": exact.multiplied, "fma": exact.fused, "div": exact.divided}
TINY = 2.0**-126


def subtracted(a: float, b: float, name: str, mode: str = "rn") -> int | None:
    return exact.added(a, -b, name, mode)


def flush(value: float) -> float:
    return math.copysign(0.0, value) if abs(value) < TINY else value


def run(text: str, name: str, columns: list[tuple[int, ...]]) -> list[int]:
    arrays = {
        letter: np.array(column, dtype=UNSIGNED[name])
        for letter, column in zip("abc", zip(*columns, strict=True), strict=False)
    }
    result = execute(text, f"{name} d {' '.join(arrays)}", **arrays)
    return [int(bits) for bits in result.view(UNSIGNED[name])]


def check(text: str, name: str, columns: list[tuple[int, ...]], oracle) -> None:
    for inputs, got in zip(columns, run(text, name, columns), strict=True):
        values = [exact.decode(bits, name) for bits in inputs]
        expected = oracle(*values)
        assert exact.matches(got, expected, name), (text, [hex(i) for i in inputs], values, hex(got), expected)


def rows(name: str, count: int):
    return st.lists(st.tuples(*[exact.bits_of(name)] * count), min_size=1, max_size=24)


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("opcode", ["add", "sub", "mul", "fma", "div"])
@settings(max_examples=examples(15), deadline=None)
@given(data=st.data())
def test_arithmetic_is_correctly_rounded(opcode, direction, name, data) -> None:
    count = 3 if opcode == "fma" else 2
    oracle = subtracted if opcode == "sub" else ORACLE[opcode]
    check(
        f"{opcode}.{direction}.{name} d, {'a, b, c'[: 3 * count - 2]};",
        name,
        data.draw(rows(name, count)),
        lambda *values: oracle(*values, name, direction),
    )


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@settings(max_examples=examples(15), deadline=None)
@given(data=st.data())
def test_root_and_reciprocal_are_correctly_rounded(direction, name, data) -> None:
    columns = data.draw(rows(name, 1))
    check(f"sqrt.{direction}.{name} d, a;", name, columns, lambda a: exact.root(a, name, direction))
    check(f"rcp.{direction}.{name} d, a;", name, columns, lambda a: exact.divided(1.0, a, name, direction))


def test_fused_differs_from_two_roundings() -> None:
    a = np.array([1 + 2.0**-12], dtype=np.float32)
    c = np.array([-(1 + 2.0**-11)], dtype=np.float32)
    assert execute("fma.rn.f32 d, a, a, c;", "f32 d a c", a=a, c=c)[0] == 2.0**-24
    assert execute("mul.f32 d, a, a; add.f32 d, d, c;", "f32 d a c", a=a, c=c)[0] == 0
    assert execute("mad.rn.f32 d, a, a, c;", "f32 d a c", a=a, c=c)[0] == 2.0**-24


@pytest.mark.parametrize("opcode", ["add", "mul", "fma", "div"])
@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_ftz_flushes_sources_and_result(opcode, data) -> None:
    count = 3 if opcode == "fma" else 2
    direction = ".rn" if opcode in ("fma", "div") else ""

    def oracle(*values: float) -> int | None:
        bits = ORACLE[opcode](*[flush(v) for v in values], "f32")
        result = exact.decode(bits, "f32")
        return bits if math.isnan(result) else exact.f32_bits(flush(result))

    text = f"{opcode}{direction}.ftz.f32 d, {'a, b, c'[: 3 * count - 2]};"
    check(text, "f32", data.draw(rows("f32", count)), oracle)


@settings(max_examples=examples(20), deadline=None)
@given(columns=rows("f32", 3))
def test_sat_clamps_to_the_unit_interval_and_makes_a_nan_zero(columns) -> None:
    def oracle(a: float, b: float, c: float) -> int:
        result = exact.decode(exact.fused(a, b, c, "f32"), "f32")
        return exact.f32_bits(1.0 if result >= 1 else result if result > 0 else 0.0)

    check("fma.rn.sat.f32 d, a, b, c;", "f32", columns, oracle)


@settings(max_examples=examples(15), deadline=None)
@given(columns=st.lists(st.tuples(*[exact.bits_of("f32")] * 6), min_size=1, max_size=16))
def test_f32x2_is_two_single_operations(columns) -> None:
    low = [np.array(column, dtype=np.uint64) for column in zip(*columns, strict=True)]
    packed = [low[i] | low[i + 3] << np.uint64(32) for i in range(3)]
    got = execute("fma.rn.f32x2 d, a, b, c;", "b64 d a b c", a=packed[0], b=packed[1], c=packed[2])
    for row, value in zip(columns, got, strict=True):
        values = [exact.decode(bits, "f32") for bits in row]
        assert int(value) & 0xFFFFFFFF == exact.fused(*values[:3], "f32")
        assert int(value) >> 32 == exact.fused(*values[3:], "f32")


def order_key(value: float) -> tuple[float, float]:
    return value, math.copysign(1.0, value)


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("opcode", ["min", "max"])
@settings(max_examples=examples(25), deadline=None)
@given(data=st.data())
def test_minimum_prefers_numbers_and_orders_zeros(opcode, name, data) -> None:
    choose = min if opcode == "min" else max

    def oracle(a: float, b: float) -> int | None:
        numbers = [v for v in (a, b) if not math.isnan(v)]
        if not numbers:
            return exact.encode_special(math.nan, name)
        found = choose(numbers, key=order_key)
        if math.isinf(found):
            return exact.encode_special(found, name)
        return exact.rounded(exact.Fraction(found), name, "rn", negative_zero=exact.negative(found))

    columns = data.draw(rows(name, 2))
    check(f"{opcode}.{name} d, a, b;", name, columns, oracle)
    if name == "f32":
        check(
            f"{opcode}.NaN.f32 d, a, b;",
            name,
            columns,
            lambda a, b: 0x7FFFFFFF if math.isnan(a) or math.isnan(b) else oracle(a, b),
        )


def test_minimum_of_magnitudes_takes_the_product_of_the_signs() -> None:
    a, b = np.array([-3, 3, -3, -0.0], dtype="f4"), np.array([2, -5, -1, 4], dtype="f4")
    assert execute("min.xorsign.abs.f32 d, a, b;", "f32 d a b", a=a, b=b).tolist() == [-2, -3, 1, -0.0]
    assert execute("max.xorsign.abs.f32 d, a, b;", "f32 d a b", a=a, b=b).tolist() == [-3, -5, 3, -4]
    assert execute("max.f32 d, a, b, 7.0;", "f32 d a b", a=a, b=b).tolist() == [7] * 4


def test_results_that_are_not_numbers_are_the_canonical_nan() -> None:
    a = np.array([0x7F800001, 0xFFC12345, 0x7F800000], dtype=np.uint32)
    b = np.array([0x3F800000, 0x3F800000, 0xFF800000], dtype=np.uint32)
    for text in ("add.f32 d, a, b;", "fma.rn.f32 d, a, b, b;", "add.rp.f32 d, a, b;", "min.NaN.f32 d, a, a;"):
        got = execute(text, "f32 d a b", a=a, b=b).view(np.uint32)
        assert got[:2].tolist() == [0x7FFFFFFF] * 2, text
    assert execute("add.f32 d, a, b;", "f32 d a b", a=a, b=b).view(np.uint32)[2] == 0x7FFFFFFF


@settings(max_examples=examples(20), deadline=None)
@given(columns=rows("f32", 2))
def test_sign_operations_touch_the_sign_of_numbers_only(columns) -> None:
    top = 0x80000000
    for (a, b), neg, absolute, copied in zip(
        columns,
        run("neg.f32 d, a;", "f32", columns),
        run("abs.f32 d, a;", "f32", columns),
        run("copysign.f32 d, a, b;", "f32", columns),
        strict=True,
    ):
        changed = (0x7FFFFFFF, 0x7FFFFFFF) if exact.is_nan(a, "f32") else (a ^ top, a & ~top)
        assert (neg, absolute, copied) == (*changed, (b & ~top) | (a & top))


def test_nan_of_double_precision() -> None:
    """Of b, else of c, else of a, made quiet, sign and payload kept; a new one is negative."""
    a, b, c = (np.array([code] * 4, np.uint64) for code in (0x7FF0000000000001, 0xFFF8000000000002, 0x7FFC000000000003))
    one, endless = np.full(4, 1.0), np.full(4, np.inf)
    for text, first, second, third, wanted in (
        ("fma.rn.f64 d, a, b, c;", a, b, c, 0xFFF8000000000002),
        ("fma.rn.f64 d, a, b, c;", a, one, c, 0x7FFC000000000003),
        ("fma.rz.f64 d, a, b, c;", a, one, one, 0x7FF8000000000001),
        ("sub.rn.f64 d, a, b;", a, b, c, 0xFFF8000000000002),
        ("sub.rn.f64 d, a, b;", endless, endless, c, 0xFFF8000000000000),
        ("max.f64 d, a, b;", b, a, c, 0x7FF8000000000001),
        ("neg.f64 d, a;", b, a, c, 0xFFF8000000000002),
        ("abs.f64 d, a;", a, b, c, 0x7FF8000000000001),
    ):
        got = execute(text, "f64 d a b c", a=first, b=second, c=third)
        assert got.view(np.uint64).tolist() == [wanted] * 4, text


def test_testp_classes() -> None:
    a = np.array([0.0, -0.0, 1e-40, 1.0, np.inf, np.nan], dtype=np.float32)
    expected = {
        "finite": [1, 1, 1, 1, 0, 0], "infinite": [0, 0, 0, 0, 1, 0], "number": [1, 1, 1, 1, 1, 0],
        "notanumber": [0, 0, 0, 0, 0, 1], "normal": [1, 1, 0, 1, 0, 0], "subnormal": [0, 0, 1, 0, 0, 0],
    }  # fmt: skip
    for name, truth in expected.items():
        assert execute(f"testp.{name}.f32 p, a;", "pred p, f32 a", a=a).tolist() == [bool(t) for t in truth], name


def test_only_active_lanes_are_written() -> None:
    a = np.arange(8, dtype=np.float32)
    got = execute("add.f32 a, a, 0f3F800000;", "f32 a", a=a, index=np.array([1, 4, 6]))
    assert got.tolist() == [0, 2, 2, 3, 5, 5, 7, 7]
    got = execute("mul.f32 a, a, a;", "f32 a", a=a, index=slice(2, 5))
    assert got.tolist() == [0, 1, 4, 9, 16, 5, 6, 7]


@pytest.mark.parametrize(
    "text",
    ["add.sat.f64 d, a, a;", "add.ftz.f64 d, a, a;", "fma.f64 d, a, a, a;", "add.rn.rz.f64 d, a, a;",
     "add.bf8 d, a, a;", "div.f64 d, a, a;", "min.sat.f64 d, a, a;", "sqrt.approx.f64 d, a;", "add.f64 d, a;",
     "min.ftz.f64 d, a, a;"],
)  # fmt: skip
def test_what_ptx_does_not_have_is_refused(text) -> None:
    with pytest.raises(UnknownInstruction):
        execute(text, "f64 d a")


def test_the_processor_rounds_to_nearest_again_after_an_error() -> None:
    from warptile.emulator.arithmetic.rounding import rounded

    def fail() -> np.ndarray:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        rounded(fail, "rp")()
    assert float((np.ones(1, "f4") / np.full(1, 3, "f4"))[0]) == float.fromhex("0x1.555556p-2")
