"""Tensor-core arithmetic against a second, slow implementation in exact fractions, and against plain float64."""

import math
from fractions import Fraction

import numpy as np
import pytest

import wmma_cases
from warptile.emulator import accumulate
from warptile.isa import wmma
from warptile.isa.numerics import FORMATS, NAN_BITS, accumulation

RAW = {"f16": np.uint16, "bf16": np.uint16, "tf32": np.uint32, "f32": np.uint32}


def stacks(element, accumulator, kind, count=2, rows=4, columns=4, seed=3):
    """Raw bits of A (n, M, K), B transposed (n, N, K) and C."""
    shape = wmma.find("m16n16k8" if element == "tf32" else "m16n16k16", element)
    case = wmma_cases.Case(shape, accumulator, accumulator, "row", "col", "row", False)
    values = wmma_cases.inputs(case, kind, count, seed)
    with np.errstate(all="ignore"):
        a = values["a"][:, :rows].astype(wmma_cases.STORAGE[element])
        b = values["b"].swapaxes(1, 2)[:, :columns].astype(wmma_cases.STORAGE[element])
        c = values["c"][:, :rows, :columns].astype(wmma_cases.STORAGE[accumulator])
    raw = [np.ascontiguousarray(x).view(RAW[e]) for x, e in ((a, element), (b, element), (c, accumulator))]
    return raw, (a.astype(float), b.astype(float), c.astype(float))


def exponent_of(value, element):
    """The exponent that the adder uses: the operand's own, of subnormals the smallest one, of zeros none."""
    if value == 0:
        return None
    lowest = 2 - (1 << (FORMATS[element].exponent_bits - 1))
    return max(math.frexp(value)[1] - 1, lowest)


def cut(value, unit):
    """A multiple of ``unit``, toward zero."""
    return Fraction(math.trunc(value / unit)) * unit


def to_f32(total):
    """Toward zero."""
    if total == 0:
        return 0.0
    exponent = max(math.floor(math.log2(abs(total))) + 1, -126)
    while abs(total) < Fraction(2) ** exponent and exponent > -126:
        exponent -= 1
    if exponent > 127:
        return math.copysign(math.inf, total)
    return math.copysign(float(cut(total, Fraction(2) ** (exponent - 23))), total)


def to_f16(total):
    """To nearest even; zero is positive."""
    with np.errstate(over="ignore"):
        return float(np.float16(float(total))) + 0.0  # exact in float64: the sum has few bits


def one_step(a, b, c, element, accumulator, model):
    products = [float(x) * float(y) if np.isfinite(x) and np.isfinite(y) else x * y for x, y in zip(a, b, strict=True)]
    if not all(map(math.isfinite, (*products, c))):
        with np.errstate(invalid="ignore"):
            return float(np.sum(np.array([p for p in (*products, c) if not math.isfinite(p)])))
    terms = [
        (Fraction(float(x)) * Fraction(float(y)), exponent_of(x, element) + exponent_of(y, element))
        for x, y in zip(a, b, strict=True)
        if x != 0 and y != 0
    ]
    if c != 0:
        terms.append((Fraction(c), exponent_of(c, accumulator)))
    largest = max([exponent for _, exponent in terms] + [model.smallest_exponent])
    unit = Fraction(2) ** (largest - model.fraction_bits)
    total = sum((cut(value, unit) for value, _ in terms), Fraction(0))
    return to_f32(total) if accumulator == "f32" else to_f16(total)


def expected(values, element, accumulator, model):
    a, b, c = values
    out = np.empty(c.shape, np.float32 if accumulator == "f32" else np.float16)
    with np.errstate(all="ignore"):
        for n, i, j in np.ndindex(c.shape):
            total = float(c[n, i, j])
            for start in range(0, a.shape[2], model.terms):
                step = slice(start, start + model.terms)
                total = one_step(a[n, i, step], b[n, j, step], total, element, accumulator, model)
            out[n, i, j] = total
    bits = out.view(RAW[accumulator])
    return np.where(np.isnan(out), RAW[accumulator](NAN_BITS[accumulator]), bits)


@pytest.mark.parametrize("kind", wmma_cases.FLOAT_KINDS)
@pytest.mark.parametrize(("element", "accumulator"), [("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("tf32", "f32")])
@pytest.mark.parametrize("capability", [80, 90])
def test_every_bit_is_that_of_exact_arithmetic(element, accumulator, kind, capability):
    model = accumulation(element, capability)
    raw, values = stacks(element, accumulator, kind)
    got = accumulate.multiply_float(*raw, element, accumulator, model)
    np.testing.assert_array_equal(got, expected(values, element, accumulator, model))


def test_architectures_differ_in_their_last_bits():
    raw, _ = stacks("f16", "f32", "normal", count=8)
    ampere, hopper = (accumulate.multiply_float(*raw, "f16", "f32", accumulation("f16", c)) for c in (80, 90))
    assert (ampere != hopper).any()


def test_results_are_close_to_the_true_product():
    raw, (a, b, c) = stacks("f16", "f32", "normal", count=50, rows=16, columns=16)
    got = accumulate.multiply_float(*raw, "f16", "f32", accumulation("f16", 90)).view(np.float32)
    true = np.einsum("imk,ink->imn", a, b) + c
    bound = (np.einsum("imk,ink->imn", abs(a), abs(b)) + abs(c)) * 18 * 2.0**-24
    assert (abs(got - true) <= bound).all()


def test_ignored_bits_of_tf32_do_not_count():
    raw, _ = stacks("tf32", "f32", "normal")
    noisy = [raw[0] | np.uint32(0x1FFF), raw[1] | np.uint32(0x0FFF), raw[2]]
    model = accumulation("tf32", 90)
    np.testing.assert_array_equal(
        accumulate.multiply_float(*noisy, "tf32", "f32", model), accumulate.multiply_float(*raw, "tf32", "f32", model)
    )


def test_terms_below_the_cut_are_lost_and_those_above_stay():
    # 1 + 2**-25 keeps the small term inside the sum (25 fraction bits on sm_90), but f32 cannot hold it; twice it can.
    one, tiny, zero = np.float16(1.0), np.float16(2.0**-13), np.float16(0)
    a = np.array([one, tiny, tiny, zero], np.float16).reshape(1, 1, 4).view(np.uint16)
    b = np.array([one, np.float16(2.0**-12), zero, zero], np.float16).reshape(1, 1, 4).view(np.uint16)
    c = np.zeros((1, 1, 1), np.uint32)
    model = accumulation("f16", 90)
    single = accumulate.multiply_float(a, b, c, "f16", "f32", model).view(np.float32)
    assert single.item() == 1.0
    four = np.repeat(tiny, 4)
    a = np.array([one, *four], np.float16).reshape(1, 1, 5).view(np.uint16)
    b = np.array([one, *np.repeat(np.float16(2.0**-12), 4)], np.float16).reshape(1, 1, 5).view(np.uint16)
    assert accumulate.multiply_float(a, b, c, "f16", "f32", model).view(np.float32).item() == 1.0 + 2.0**-23
    assert accumulate.multiply_float(a, b, c, "f16", "f32", accumulation("f16", 80)).view(np.float32).item() == 1.0


def test_integers_wrap_or_saturate():
    a = np.full((1, 2, 16), 127, np.int8)
    b = np.stack([np.full(16, 127), np.full(16, -128)]).astype(np.int8)[None]
    c = np.array([[[2**31 - 1, -(2**31)], [5, 7]]], np.int32)
    up, down = 16 * 127 * 127, -16 * 127 * 128
    wrapped = accumulate.multiply_integer(a, b, c, saturate=False)
    held = accumulate.multiply_integer(a, b, c, saturate=True)
    assert wrapped.tolist() == [[[2**31 - 1 + up - 2**32, -(2**31) + down + 2**32], [5 + up, 7 + down]]]
    assert held.tolist() == [[[2**31 - 1, -(2**31)], [5 + up, 7 + down]]]


def test_bits_are_counted():
    random = np.random.default_rng(5)
    a, b = (random.integers(0, 2**32, (3, 8, 4), dtype=np.uint32) for _ in range(2))
    c = random.integers(-100, 100, (3, 8, 8)).astype(np.int32)
    for exclusive, combine in ((True, np.bitwise_xor), (False, np.bitwise_and)):
        words = combine(a[:, :, None], b[:, None])
        ones = np.vectorize(lambda word: int(word).bit_count())(words).sum(axis=-1)
        np.testing.assert_array_equal(accumulate.multiply_bits(a, b, c, exclusive=exclusive), ones + c)


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
def test_doubles_are_a_chain_of_fused_multiply_adds(rounding):
    random = np.random.default_rng(11)
    a, b = (random.standard_normal((2, 8, 4)) * 2.0 ** random.integers(-40, 40, (2, 8, 4)) for _ in range(2))
    c = random.standard_normal((2, 8, 8))
    got = accumulate.multiply_double(a, b, c, rounding)
    for n, i, j in np.ndindex(c.shape):
        total = float(c[n, i, j])
        for k in range(4):
            exact = Fraction(float(a[n, i, k])) * Fraction(float(b[n, j, k])) + Fraction(total)
            total = float(exact)
            if rounding == "rz" and abs(Fraction(total)) > abs(exact):
                total = math.nextafter(total, 0.0)
            elif rounding == "rm" and Fraction(total) > exact:
                total = math.nextafter(total, -math.inf)
            elif rounding == "rp" and Fraction(total) < exact:
                total = math.nextafter(total, math.inf)
        assert got[n, i, j] == total


def test_directed_rounding_at_the_edges():
    largest = float(np.finfo(np.float64).max)

    def once(x, y, z, rounding):
        one = np.array([[[x]]]), np.array([[[y]]]), np.array([[[z]]])
        return accumulate.multiply_double(*one, rounding).item()

    assert once(largest, 2.0, 0.0, "rz") == largest
    assert once(largest, 2.0, 0.0, "rm") == largest
    assert once(largest, 2.0, 0.0, "rp") == math.inf
    assert once(-largest, 2.0, 0.0, "rm") == -math.inf
    assert once(math.inf, 2.0, 0.0, "rz") == math.inf
    assert math.isnan(once(math.inf, 0.0, 0.0, "rz"))
    assert math.copysign(1, once(1.0, 1.0, -1.0, "rm")) == -1
    assert math.copysign(1, once(1.0, 1.0, -1.0, "rz")) == 1
    smallest = 5e-324
    assert once(smallest, 0.25, 0.0, "rp") == smallest
    assert once(smallest, 0.25, 0.0, "rz") == 0.0
