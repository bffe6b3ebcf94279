"""Approximations stay inside the bounds of PTX ISA, and their special values are exact."""

from __future__ import annotations

import math

import numpy as np
import pytest

from one_instruction import execute
from warptile.errors import UnknownInstruction

RNG = np.random.default_rng(7)


def spread(count: int = 2000, low: float = -120, high: float = 120) -> np.ndarray:
    """Positive float32 values of every magnitude."""
    return (RNG.uniform(1, 2, count) * 2.0 ** RNG.integers(low, high, count)).astype(np.float32)


def ulp_errors(got: np.ndarray, exact: list[float]) -> np.ndarray:
    wanted = np.array(exact)
    spacing = np.spacing(np.abs(wanted).astype(np.float32)).astype(np.float64)
    return np.abs(got.astype(np.float64) - wanted) / spacing


@pytest.mark.parametrize(
    ("opcode", "function", "bound"),
    [("rcp", lambda x: 1 / x, 1), ("sqrt", math.sqrt, 1), ("rsqrt", lambda x: 1 / math.sqrt(x), 1.52)],
)
def test_functions_of_positive_numbers(opcode, function, bound) -> None:
    a = spread()
    got = execute(f"{opcode}.approx.f32 d, a;", "f32 d a", a=a)
    assert ulp_errors(got, [function(float(x)) for x in a]).max() <= bound


def test_logarithms() -> None:
    a = spread()
    got, exact = execute("lg2.approx.f32 d, a;", "f32 d a", a=a), np.log2(a.astype(np.float64))
    assert (np.abs(got - exact) <= 2.0**-22 * np.maximum(1, np.abs(exact))).all()


@pytest.mark.parametrize(
    ("opcode", "function", "limit"),
    [("sin", math.sin, 3.14), ("cos", math.cos, 3.14), ("ex2", lambda x: 2.0**x, 126), ("tanh", math.tanh, 9)],
)
def test_functions_of_any_sign(opcode, function, limit) -> None:
    a = RNG.uniform(-limit, limit, 2000).astype(np.float32)
    got = execute(f"{opcode}.approx.f32 d, a;", "f32 d a", a=a)
    exact = [function(float(x)) for x in a]
    if opcode == "ex2":
        assert ulp_errors(got, exact).max() <= 2
    elif opcode == "tanh":
        assert np.abs(got / np.array(exact) - 1).max() <= 2.0**-11
    else:
        assert np.abs(got - np.array(exact)).max() <= 2.0**-20.5


def test_sine_and_cosine_of_multiples_of_a_quarter_turn() -> None:
    """Large operands become multiples of a quarter turn; a tiny one is cut to zero."""
    a = np.array([2.0**24, 3 * 2.0**23, 1e-8, -1e-8, 1e-38, np.inf], dtype=np.float32)
    sine, cosine = (execute(f"{name}.approx.f32 d, a;", "f32 d a", a=a) for name in ("sin", "cos"))
    assert np.hypot(sine[:2], cosine[:2]).tolist() == [1, 1]
    assert set(np.abs(sine[:2]).tolist()) <= {0, 1, float(np.float32(math.sqrt(0.5)))}
    assert sine[2:].view(np.uint32).tolist() == [0, 0x80000000, 0, 0x7FFFFFFF]
    assert cosine[2:5].tolist() == [1, 1, 1]


def test_tanh_sees_seventeen_bits() -> None:
    """From 2**-8 on, whatever it is interpolated from; smaller operands come back as they are."""
    a = np.array([0x3B7FFFFF, 0x3B80003F, 0x3B800040, 0x40FFFFFF, 0x41000000], dtype=np.uint32).view(np.float32)
    found = execute("tanh.approx.f32 d, a;", "b32 d a", a=a)
    assert found.tolist()[:3] == [0x3B7FFFFF, 0x3B800000, 0x3B800040]
    assert 0x3F7FFFF0 < found[3] <= found[4] == 0x3F800000


def test_special_values() -> None:
    a = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0], dtype=np.float32)
    inf, nan = math.inf, math.nan
    expected = {
        "rcp": [inf, -inf, 0.0, -0.0, nan, -1.0],
        "sqrt": [0.0, -0.0, inf, nan, nan, nan],
        "rsqrt": [inf, -inf, 0.0, nan, nan, nan],
        "lg2": [-inf, -inf, inf, nan, nan, nan],
        "ex2": [1, 1, inf, 0, nan, 0.5],
        "sin": [0.0, -0.0, nan, nan, nan],
        "cos": [1, 1, nan, nan, nan],
        "tanh": [0.0, -0.0, 1, -1, nan],
    }
    for opcode, values in expected.items():
        got = execute(f"{opcode}.approx.f32 d, a;", "f32 d a", a=a).view(np.uint32)[: len(values)]
        wanted = np.array(values, dtype=np.float32).view(np.uint32)
        wanted[np.isnan(values)] = 0x7FFFFFFF
        assert got.tolist() == wanted.tolist(), opcode


def test_ftz_flushes_source_and_result() -> None:
    a = np.array([1e-40, -130.0, 127.5], dtype=np.float32)
    assert execute("ex2.approx.ftz.f32 d, a;", "f32 d a", a=a).tolist()[:2] == [1.0, 0.0]
    assert execute("ex2.approx.f32 d, a;", "f32 d a", a=a)[1] == 2.0**-130
    assert execute("rcp.approx.ftz.f32 d, a;", "f32 d a", a=a)[0] == math.inf
    assert execute("lg2.approx.ftz.f32 d, a;", "f32 d a", a=a)[0] == -math.inf
    assert execute("lg2.approx.f32 d, a;", "f32 d a", a=a)[0] == pytest.approx(math.log2(1e-40), rel=1e-4)


def test_quotients() -> None:
    a, b = spread(), spread(low=-100, high=100)
    for kind in ("approx", "full", "approx.ftz", "full.ftz"):
        got = execute(f"div.{kind}.f32 d, a, b;", "f32 d a b", a=a, b=b)
        exact = [float(x) / float(y) for x, y in zip(a, b, strict=True)]
        inside = np.array([2.0**-125 < abs(x) < 2.0**127 for x in exact])
        assert ulp_errors(got[inside], [x for x, keep in zip(exact, inside, strict=True) if keep]).max() <= 2
    huge = np.full(3, 1.5 * 2.0**126, dtype=np.float32)
    a = np.array([2.0**126, -(2.0**120), np.inf], dtype=np.float32)
    got = execute("div.approx.f32 d, a, b;", "f32 d a b", a=a, b=huge)
    assert got[:2].tolist() == [0, 0]
    assert math.isnan(got[2])
    got = execute("div.full.f32 d, a, b;", "f32 d a b", a=a, b=huge)
    assert got[0] == np.float32(1 / 1.5)


def test_double_precision_approximations_have_a_zero_lower_half() -> None:
    a = np.array([3.0, 7.25, 1e300, 1e-300, 0.0, -0.0, np.inf, 5e-310, np.nan])
    got = execute("rsqrt.approx.f64 d, a;", "f64 d a", a=a)
    assert got[:4] == pytest.approx([1 / math.sqrt(x) for x in a[:4]], rel=2.0**-51)
    for opcode, function in (("rcp", lambda x: 1 / x), ("rsqrt", lambda x: 1 / math.sqrt(x))):
        got = execute(f"{opcode}.approx.ftz.f64 d, a;", "f64 d a", a=a)
        assert not (got.view(np.uint64) & np.uint64(0xFFFFFFFF)).any()
        assert got[:4] == pytest.approx([function(x) for x in a[:4]], rel=2.0**-19)
        assert got[4:8].tolist() == [math.inf, -math.inf, 0.0, math.inf]
        assert math.isnan(got[8])


@pytest.mark.parametrize(
    ("text", "function", "bound"),
    [("tanh.approx.f16 d, a;", math.tanh, 2.0**-10.987), ("tanh.approx.bf16 d, a;", math.tanh, 2.0**-8),
     ("ex2.approx.f16 d, a;", lambda x: 2.0**x, 2.0**-9.9), ("ex2.approx.ftz.bf16 d, a;", lambda x: 2.0**x, 2.0**-7)],
)  # fmt: skip
def test_half_precision(text, function, bound) -> None:
    values = RNG.uniform(-3, 3, 500).astype(np.float32)
    small = "bf16" in text
    codes = (values.view(np.uint32) >> 16).astype(np.uint16) if small else values.astype(np.float16).view(np.uint16)

    def widen(bits: np.ndarray) -> np.ndarray:
        return (bits.astype(np.uint32) << 16).view(np.float32) if small else bits.view(np.float16).astype(np.float32)

    exact = np.array([function(float(x)) for x in widen(codes)])
    got = widen(execute(text, "b16 d a", a=codes)).astype(np.float64)
    scale = 1.0 if text.startswith("tanh") else exact
    assert (np.abs(got - exact) / scale).max() <= bound
    pairs = codes.astype(np.uint32) | codes[::-1].astype(np.uint32) << np.uint32(16)
    packed = execute(text.replace("f16 d", "f16x2 d"), "b32 d a", a=pairs)
    assert widen((packed & 0xFFFF).astype(np.uint16)).tolist() == got.tolist()


@pytest.mark.parametrize(
    "text",
    ["sin.f32 d, a;", "ex2.approx.bf16 d, a;", "tanh.approx.ftz.f32 d, a;", "div.f32 d, a, a;", "rsqrt.rn.f32 d, a;",
     "lg2.approx.f64 d, a;", "ex2.approx.ftz.f16 d, a;"],
)  # fmt: skip
def test_what_ptx_does_not_have_is_refused(text) -> None:
    with pytest.raises(UnknownInstruction):
        execute(text, "b32 d a")
