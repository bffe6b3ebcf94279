"""``cvt`` against exact fractions, Python's integers and ml_dtypes."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import exact_rounding as exact
import warptile as wt
from covering import examples
from one_instruction import execute
from warptile.errors import UnknownInstruction

WIDTH = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "tf32": 32}
INTEGERS = [f"{kind}{bits}" for kind in "us" for bits in (8, 16, 32, 64)]


def limits(name: str) -> tuple[int, int]:
    bits = int(name[1:])
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if name[0] == "s" else (0, (1 << bits) - 1)


def wrapped(value: int, name: str) -> int:
    low, _ = limits(name)
    return (value - low) % (1 << int(name[1:])) + low


def integers(name: str):
    low, high = limits(name)
    bits = int(name[1:])
    powers = st.integers(0, bits - 1).flatmap(lambda k: st.integers(-3, 3).map(lambda d: wrapped((1 << k) + d, name)))
    return st.lists(st.one_of(st.integers(low, high), powers, st.sampled_from([low, high, 0])), min_size=1, max_size=24)


def values_of(array: np.ndarray, name: str) -> list[int]:
    return array.view(np.dtype(f"{'i' if name[0] == 's' else 'u'}{array.dtype.itemsize}")).tolist()


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", INTEGERS)
@settings(max_examples=examples(6), deadline=None)
@given(data=st.data())
def test_integer_to_integer(source, target, data) -> None:
    given_values = data.draw(integers(source))
    a = np.array(given_values, dtype=f"{'i' if source[0] == 's' else 'u'}{int(source[1:]) // 8}")
    registers = f"b{target[1:]} d, b{source[1:]} a"
    got = execute(f"cvt.{target}.{source} d, a;", registers, a=a)
    assert values_of(got, target) == [wrapped(value, target) for value in given_values]
    low, high = limits(target)
    got = execute(f"cvt.sat.{target}.{source} d, a;", registers, a=a)
    assert values_of(got, target) == [min(max(value, low), high) for value in given_values]


def test_a_narrow_source_is_the_low_part_and_a_narrow_result_is_extended() -> None:
    a = np.array([0x12345680, 0x7F], dtype=np.uint32)
    assert execute("cvt.s32.s8 d, a;", "s32 d, b32 a", a=a).tolist() == [-128, 127]
    assert execute("cvt.u16.u32 d, a;", "b64 d, b32 a", a=a).tolist() == [0x5680, 0x7F]
    assert execute("cvt.s8.s32 d, a;", "s32 d, b32 a", a=a).tolist() == [-128, 127]


def to_whole(value: Fraction, mode: str) -> int:
    floor = value.numerator // value.denominator
    rest = value - floor
    if mode == "rmi":
        return floor
    if mode == "rpi":
        return floor + (rest > 0)
    if mode == "rzi":
        return floor + (rest > 0 and value < 0)
    return floor + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and floor % 2 == 1))


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64"])
@settings(max_examples=examples(8), deadline=None)
@given(data=st.data())
def test_float_to_integer_clamps(source, target, data) -> None:
    mode = data.draw(st.sampled_from(["rni", "rzi", "rmi", "rpi"]))
    exponent_bits, fraction_bits = exact.FORMATS[source]
    bias = (1 << (exponent_bits - 1)) - 1
    reachable = st.tuples(
        st.integers(bias - 2, min(bias + int(target[1:]) + 1, 2 * bias)),
        st.integers(0, (1 << fraction_bits) - 1),
        st.booleans(),
    ).map(lambda t: t[0] << fraction_bits | t[1] | t[2] << (exponent_bits + fraction_bits))
    codes = data.draw(st.lists(st.one_of(exact.bits_of(source), reachable), min_size=1, max_size=24))
    a = np.array(codes, dtype=f"u{WIDTH[source] // 8}")
    got = values_of(execute(f"cvt.{mode}.{target}.{source} d, a;", f"b{target[1:]} d, b{WIDTH[source]} a", a=a), target)
    low, high = limits(target)
    for code, result in zip(codes, got, strict=True):
        value = exact.decode(code, source)
        if math.isnan(value):
            # PTX ISA: zero, but the top bit alone from .f64 or to 64 bits
            top = wrapped(1 << (int(target[1:]) - 1), target)
            expected = top if source == "f64" or target in ("s64", "u64") else 0
        elif math.isinf(value):
            expected = high if value > 0 else low
        else:
            expected = min(max(to_whole(Fraction(value), mode), low), high)
        assert result == expected, (mode, target, source, hex(code), value)


@pytest.mark.parametrize("target", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("source", INTEGERS)
@settings(max_examples=examples(6), deadline=None)
@given(data=st.data())
def test_integer_to_float_in_every_direction(source, target, data) -> None:
    given_values = data.draw(integers(source))
    a = np.array(given_values, dtype=f"{'i' if source[0] == 's' else 'u'}{int(source[1:]) // 8}")
    for mode in ("rn", "rz", "rm", "rp"):
        got = execute(f"cvt.{mode}.{target}.{source} d, a;", f"b{WIDTH[target]} d, b{source[1:]} a", a=a)
        assert got.tolist() == [exact.rounded(Fraction(value), target, mode) for value in given_values], mode


@pytest.mark.parametrize("target", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("source", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@settings(max_examples=examples(12), deadline=None)
@given(data=st.data())
def test_float_to_narrower_float(mode, source, target, data) -> None:
    codes = data.draw(st.lists(exact.bits_of(source), min_size=1, max_size=24))
    a = np.array(codes, dtype=f"u{WIDTH[source] // 8}")
    exact_pair = (target == "f32" and source != "f64") or source == target
    text = f"cvt.{'' if exact_pair else mode + '.'}{target}.{source} d, a;"
    got = execute(text, f"b{WIDTH[target]} d, b{WIDTH[source]} a", a=a)
    for code, result in zip(codes, got.tolist(), strict=True):
        value = exact.decode(code, source)
        wanted = kept_nan(code, source, target) if math.isnan(value) else None
        assert result == (wanted or expected_float(value, target, mode)), (text, hex(code), hex(result))


def kept_nan(code: int, source: str, target: str) -> int | None:
    """NaN that keeps its sign and upper bits: made quiet on its way from f64, as it is from bf16 to f32."""
    if (source, target) == ("bf16", "f32"):
        return code << 16
    if source != "f64":
        return None
    exponent_bits, fraction_bits = exact.FORMATS[target]
    quiet = ((2 << exponent_bits) - 1) << (fraction_bits - 1)
    payload = (code & ((1 << 52) - 1)) >> (52 - fraction_bits)
    return (code >> 63) << (exponent_bits + fraction_bits) | quiet | payload


def expected_float(value: float, target: str, mode: str) -> int | None:
    if not math.isfinite(value):
        return exact.encode_special(value, target)
    return exact.rounded(Fraction(value), target, mode, negative_zero=exact.negative(value))


@pytest.mark.parametrize("mode", ["rna", "rn", "rz"])
@settings(max_examples=examples(30), deadline=None)
@given(codes=st.lists(exact.bits_of("f32"), min_size=1, max_size=24))
def test_tf32(mode, codes) -> None:
    got = execute(f"cvt.{mode}.tf32.f32 d, a;", "b32 d a", a=np.array(codes, dtype=np.uint32))
    for code, result in zip(codes, got.tolist(), strict=True):
        value = exact.decode(code, "f32")
        missing = (code if mode == "rna" else 0x7FFFFFFF) & 0xFFFFE000  # cut, or the usual one
        expected = missing if math.isnan(value) else expected_float(value, "tf32", mode) << 13
        assert result == expected, (hex(code), hex(result), hex(expected))


def test_satfinite_keeps_the_largest_number() -> None:
    a = np.array([1e30, -1e30, np.inf, np.nan, 1.0], dtype=np.float32)
    assert execute("cvt.rn.satfinite.f16.f32 d, a;", "b16 d, f32 a", a=a).tolist() == [
        0x7BFF, 0xFBFF, 0x7BFF, 0x7FFF, 0x3C00]  # fmt: skip
    assert execute("cvt.rna.satfinite.tf32.f32 d, a;", "b32 d, f32 a", a=a).tolist()[2:4] == [0x7F7FE000, 0x7FBFE000]


@settings(max_examples=examples(20), deadline=None)
@given(codes=st.lists(st.tuples(exact.bits_of("f32"), exact.bits_of("f32")), min_size=1, max_size=24))
def test_pairs_put_the_first_source_into_the_upper_half(codes) -> None:
    a, b = (np.array(column, dtype=np.uint32) for column in zip(*codes, strict=True))
    for target in ("f16", "bf16"):
        for mode in ("rn", "rz"):
            got = execute(f"cvt.{mode}.{target}x2.f32 d, a, b;", "b32 d a b", a=a, b=b)
            for (high, low), result in zip(codes, got.tolist(), strict=True):
                assert result >> 16 == expected_float(exact.decode(high, "f32"), target, mode)
                assert result & 0xFFFF == expected_float(exact.decode(low, "f32"), target, mode)
        relu = execute(f"cvt.rn.relu.{target}x2.f32 d, a, a;", "b32 d a", a=a)
        for (high, _), result in zip(codes, relu.tolist(), strict=True):
            value = exact.decode(high, "f32")
            expected = 0 if value <= 0 else expected_float(value, target, "rn")
            assert result == expected << 16 | expected


FLOAT8 = {"e4m3": (ml_dtypes.float8_e4m3fn, 448.0), "e5m2": (ml_dtypes.float8_e5m2, 57344.0)}


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_float8_in_both_directions(name) -> None:
    dtype, maximum = FLOAT8[name]
    codes = np.arange(256, dtype=np.uint16)
    values = codes.astype(np.uint8).view(dtype).astype(np.float32)
    packed = execute(f"cvt.rn.f16x2.{name}x2 d, a;", "b32 d, b16 a", a=codes | codes[::-1] << np.uint16(8))
    halves = packed.view(np.uint16).reshape(-1, 2)
    back = halves.view(np.float16).astype(np.float32)
    np.testing.assert_array_equal(back[:, 0], values)
    np.testing.assert_array_equal(back[:, 1], values[::-1])
    again = execute(f"cvt.rn.satfinite.{name}x2.f16x2 d, a;", "b16 d, b32 a", a=packed)
    low = again & 0xFF
    finite = np.isfinite(values)
    np.testing.assert_array_equal(low[finite], codes[finite])
    assert set(low[np.isnan(values)].tolist()) == {0x7F}
    # every float16 there is, against ml_dtypes on what does not overflow
    every = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    got = execute(f"cvt.rn.satfinite.{name}x2.f32 d, a, a;", "b16 d, f32 a", a=every)
    assert np.array_equal(got & 0xFF, got >> 8)
    inside = np.abs(every) <= maximum
    np.testing.assert_array_equal((got & 0xFF)[inside], every[inside].astype(dtype).view(np.uint8))
    largest = int(np.array(maximum, dtype=dtype).view(np.uint8))
    assert set((got & 0xFF)[every > maximum].tolist()) == {largest}
    assert set((got & 0xFF)[every < -maximum].tolist()) == {largest | 0x80}
    assert set((got & 0xFF)[np.isnan(every)].tolist()) == {0x7F}


@pytest.mark.parametrize(
    ("name", "dtype", "bits"),
    [("e2m1", ml_dtypes.float4_e2m1fn, 4), ("e2m3", ml_dtypes.float6_e2m3fn, 6), ("e3m2", ml_dtypes.float6_e3m2fn, 6)],
)
def test_narrower_floats(name, dtype, bits) -> None:
    codes = np.arange(1 << bits, dtype=np.uint8)
    values = codes.view(dtype).astype(np.float32)
    register, kind = ("b8", np.uint8) if bits == 4 else ("b16", np.uint16)
    shift = 4 if bits == 4 else 8
    packed = codes.astype(kind) | codes[::-1].astype(kind) << kind(shift)
    decoded = execute(f"cvt.rn.f16x2.{name}x2 d, a;", f"b32 d, {register} a", a=packed)
    halves = decoded.view(np.float16).astype(np.float32).reshape(-1, 2)
    np.testing.assert_array_equal(halves, np.stack([values, values[::-1]], axis=1))
    tries = np.linspace(-8, 8, 1025, dtype=np.float32) * np.float32(4 if name == "e3m2" else 1)
    inside = np.abs(tries) <= values.max()
    got = execute(f"cvt.rn.satfinite.{name}x2.f32 d, a, a;", f"{register} d, f32 a", a=tries) & kind((1 << bits) - 1)
    np.testing.assert_array_equal(got[inside].astype(np.uint8), tries[inside].astype(dtype).view(np.uint8))
    nan = execute(f"cvt.rn.satfinite.{name}x2.f32 d, a, a;", f"{register} d, f32 a", a=np.full(1, np.nan, "f4"))
    assert int(nan[0]) & ((1 << bits) - 1) == (1 << (bits - 1)) - 1


def test_rounding_to_integral_floats() -> None:
    a = np.array([0.5, 1.5, -0.5, -1.5, 2.7, np.inf, -0.0], dtype=np.float32)
    expected = {
        "rni": [0, 2, -0.0, -2, 3, np.inf, -0.0],
        "rzi": [0, 1, -0.0, -1, 2, np.inf, -0.0],
        "rmi": [0, 1, -1, -2, 2, np.inf, -0.0],
        "rpi": [1, 2, -0.0, -1, 3, np.inf, -0.0],
    }
    for mode, values in expected.items():
        got = execute(f"cvt.{mode}.f32.f32 d, a;", "f32 d a", a=a)
        assert got.view(np.uint32).tolist() == np.array(values, dtype=np.float32).view(np.uint32).tolist()


def test_sat_and_ftz() -> None:
    a = np.array([1e-40, -1e-40, 2.0, -1.0, np.nan, 0.25], dtype=np.float32)
    assert execute("cvt.sat.f32.f32 d, a;", "f32 d a", a=a)[2:].tolist() == [1, 0, 0, 0.25]
    assert execute("cvt.ftz.f32.f32 d, a;", "f32 d a", a=a).view(np.uint32)[:2].tolist() == [0, 0x80000000]
    assert execute("cvt.ftz.f64.f32 d, a;", "f64 d, f32 a", a=a)[:2].tolist() == [0, 0]
    assert execute("cvt.f64.f32 d, a;", "f64 d, f32 a", a=a)[0] == float(a[0])
    assert execute("cvt.rpi.ftz.s32.f32 d, a;", "s32 d, f32 a", a=a)[0] == 0
    assert execute("cvt.rpi.s32.f32 d, a;", "s32 d, f32 a", a=a)[0] == 1
    tiny = np.array([1e-310, 1.0])
    assert execute("cvt.rp.ftz.f32.f64 d, a;", "f32 d, f64 a", a=tiny).tolist() == [0, 1]


def test_pack_clamps_and_appends() -> None:
    a, b = np.array([300, -5, 7], dtype=np.int32), np.array([-300, 40000, 9], dtype=np.int32)
    c = np.array([0x11223344] * 3, dtype=np.uint32)
    got = execute("cvt.pack.sat.u8.s32.b32 d, a, b, c;", "b32 d a b c", a=a, b=b, c=c)
    assert got.tolist() == [0x3344FF00, 0x334400FF, 0x33440709]
    got = execute("cvt.pack.sat.s16.s32 d, a, b;", "b32 d a b", a=a, b=b)
    assert got.tolist() == [300 << 16 | (-300 & 0xFFFF), 0xFFFB << 16 | 32767, 7 << 16 | 9]
    got = execute("cvt.pack.sat.s4.s32.b32 d, a, b, c;", "b32 d a b c", a=a, b=b, c=c)
    assert got.tolist() == [0x22334478, 0x223344B7, 0x22334477]


@pytest.mark.parametrize(
    "text",
    ["cvt.s32.f32 d, a;", "cvt.f32.s32 d, a;", "cvt.f16.f32 d, a;", "cvt.rs.f16x2.f32 d, a, a, a;", "cvt.f32.f64 d, a;",
     "cvt.rn.e4m3x2.f32 d, a, a;", "cvt.rz.satfinite.e5m2x2.f32 d, a, a;", "cvt.rn.f16x2.s32 d, a;",
     "cvt.rni.f16.f32 d, a;", "cvt.ftz.s32.s16 d, a;", "cvt.rn.satfinite.ue8m0x2.f32 d, a, a;"],
)  # fmt: skip
def test_what_ptx_does_not_have_is_refused(text) -> None:
    with pytest.raises(UnknownInstruction):
        execute(text, "b64 d a")


SCALE_FACTORS = """
#include <cuda_fp8.h>
#include <cuda_bf16.h>
__global__ void k(unsigned char* out, unsigned short* back, const float* in, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    auto limit = i % 2 ? __NV_SATFINITE : __NV_NOSAT;
    auto halves = __float22bfloat162_rn(make_float2(in[i], in[n - 1 - i]));
    __nv_bfloat162_raw raw = halves;
    *(short*)&out[8 * i + 0] = __nv_cvt_float2_to_e8m0x2(make_float2(in[i], in[n - 1 - i]), limit, cudaRoundZero);
    *(short*)&out[8 * i + 2] = __nv_cvt_float2_to_e8m0x2(make_float2(in[i], in[n - 1 - i]), limit, cudaRoundPosInf);
    *(short*)&out[8 * i + 4] = __nv_cvt_bfloat162raw_to_e8m0x2(raw, limit, cudaRoundZero);
    *(short*)&out[8 * i + 6] = __nv_cvt_bfloat162raw_to_e8m0x2(raw, limit, cudaRoundPosInf);
    __nv_bfloat162_raw decoded = __nv_cvt_e8m0x2_to_bf162raw(i | (255 - i) << 8);
    back[2 * i] = decoded.x; back[2 * i + 1] = decoded.y;
  }
}
"""


def test_scale_factors_are_what_cudas_header_makes_without_the_instruction():
    """On sm_90 the functions are arithmetic on bits; from sm_100 on they are ``cvt`` to and from ``.ue8m0x2``."""
    special = [0, 1, 2**-126, 2**-127, 2**-127 * (1 + 2**-20), 2**-128, 2**-149, 2.0**127, 3.4e38, np.inf, np.nan, 1.5]
    values = np.array([*special, *(-each for each in special)], np.float32)
    random = np.random.default_rng(1).integers(0, 2**32, 256 - len(values), dtype=np.uint32).view(np.float32)
    values = np.concatenate([values, random])
    found = []
    for arch in ("sm_90a", "sm_100a"):
        out, back = np.zeros(8 * 256, np.uint8), np.zeros(512, np.uint16)
        report = wt.kernel(SCALE_FACTORS, "k", backend="emulator", arch=arch)[1, 32](out, back, values, 256)
        assert report.ok
        found.append((out.tolist(), back.tolist()))
    assert found[0] == found[1]
    assert found[0][0][8 * 4 + 2] == 1, "just above the smallest power of two"
