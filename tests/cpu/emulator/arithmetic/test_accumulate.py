"""Tensor-core arithmetic against a second, slow implementation in exact fractions, and against plain float64."""

import math
from fractions import Fraction

import numpy as np
import pytest

import wmma_cases
from exact_adder import bits_of, dot
from warptile.emulator.arithmetic import accumulate, adder
from warptile.isa import wmma
from warptile.isa.numerics import accumulation

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


def expected(values, element, accumulator, model):
    a, b, c = values
    out = np.empty(c.shape)
    depth = a.shape[2]
    steps = [range(start, min(start + model.terms, depth)) for start in range(0, depth, model.terms)]
    types = (element, element, accumulator)
    with np.errstate(all="ignore"):
        for n, i, j in np.ndindex(c.shape):
            out[n, i, j] = dot(a[n, i], b[n, j], float(c[n, i, j]), types, steps, model.fraction_bits)
    return bits_of(out, accumulator)


@pytest.mark.parametrize("kind", wmma_cases.FLOAT_KINDS)
@pytest.mark.parametrize(("element", "accumulator"), [("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("tf32", "f32")])
@pytest.mark.parametrize("capability", [80, 90])
def test_every_bit_is_that_of_exact_arithmetic(element, accumulator, kind, capability):
    model = accumulation(element, capability)
    raw, values = stacks(element, accumulator, kind)
    got = accumulate.multiply_float(*raw, element, accumulator, model)
    np.testing.assert_array_equal(got, expected(values, element, accumulator, model))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("terms", "kept"), [(4, 23), (8, 24), (16, 25), (32, 13), (16, 13)])
def test_float32_and_int32_hold_what_float64_does(terms, kept, seed):
    """Values as large and as small as `adder.multiply` takes for in range, beside zeros and sums that cancel."""
    generator = np.random.default_rng(seed)
    rows, columns, depth = 3, 16, terms

    def values(shape, bits, powers):
        kept_bits = generator.integers(1 << bits - 1, 1 << bits, shape) * 2.0 ** (1 - bits)
        found = kept_bits * 2.0 ** generator.integers(*powers, shape) * generator.choice([-1, 1], shape)
        return np.where(generator.random(shape) < 0.2, 0.0, found)

    span = 40 if seed % 2 else 4
    a, b = values((rows, depth), 11, (-span, span + 1)), values((depth, columns), 11, (-span, span + 1))
    a[1, depth // 2 :], b[depth // 2 :] = -a[1, : depth // 2], b[: depth // 2]
    a[2], b[:, 3] = 2.0**span * 1.9990234375, 2.0**span * 1.9990234375  # the largest there is, in every term
    c = values((rows, columns), 24, (-100, 81) if seed % 3 else (-2, 3))
    c[2, 3] = 2.0**81 - 2.0**57
    if seed == 0:
        a[:] = 0
    powers = [np.where(each == 0, 0.0, 2.0 ** np.floor(np.log2(np.abs(each) + (each == 0)))) for each in (a, b, c)]
    starts = np.arange(depth).reshape(1, depth) * columns
    wide, narrow = np.empty((rows, columns)), np.empty((rows, columns))
    last = (c, powers[2], starts, 0, depth, kept, -133)
    assert adder._fits(terms, kept)
    for each, power, limits in zip((a, b, c), powers, (adder._OPERANDS, adder._OPERANDS, adder._ADDENDS), strict=True):
        assert adder._in_range(each, power, *limits)
    adder._add(a, powers[0], b, powers[1], *last, wide)
    of_a, of_b = (
        (each.astype(np.float32), power.astype(np.float32)) for each, power in zip((a, b), powers, strict=False)
    )
    adder._add_in_range(*of_a, *of_b, *last, narrow)
    np.testing.assert_array_equal(narrow, wide)


def test_what_float32_does_not_hold_is_out_of_range():
    least, most = adder._OPERANDS
    powers = np.array([0.0, 1.0, 0.0, least / 2, most * 2])
    for number, value in enumerate((0.0, -1.5, math.inf, least / 2, most * 2)):
        found = adder._in_range(np.array([1.0, value]), np.array([1.0, powers[number]]), least, most)
        assert found == (number < 2)
    assert not adder._in_range(np.array([math.nan]), np.array([0.0]), least, most)
    assert not adder._fits(32, 25)


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
