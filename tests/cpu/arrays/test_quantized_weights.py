"""Quantized weights: the quantizer's formula, packing, what is refused, and weights of other tools."""

import io

import numpy as np
import pytest

import warptile as wt

from_codes = wt.QuantizedWeights.from_codes

FORMATS = [
    (bits, group_size, zero_point, dtype)
    for bits in (4, 8)
    for group_size in (32, 64, 128, 256, None)
    for zero_point in (False, True)
    for dtype in ("bfloat16", "float16")
]


def drawn(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def by_the_formula(w, bits, group_size, zero_point, dtype):
    """Dequantized weights, group by group as the documented formula has it."""
    half, found = 2 ** (bits - 1), np.zeros_like(w)
    for start in range(0, w.shape[1], group_size):
        group = w[:, start : start + group_size]
        low, high = np.minimum(group.min(1), 0), np.maximum(group.max(1), 0)
        span = (high - low) / np.float32(2 * half - 1) if zero_point else np.maximum(-low, high) / np.float32(half - 1)
        scale = span.astype(dtype).astype(np.float32)
        divisor = np.where(scale == 0, np.float32(1), scale)
        zero = np.clip(np.rint(-low / divisor), 0, 2 * half - 1)[:, None] if zero_point else 0
        lowest = 0 if zero_point else -half
        q = np.clip(np.rint(group / divisor[:, None]) + zero, lowest, lowest + 2 * half - 1) - zero
        found[:, start : start + group_size] = (q * scale[:, None]).astype(dtype).astype(np.float32)
    return found


@pytest.mark.parametrize(("bits", "group_size", "zero_point", "dtype"), FORMATS)
def test_weights_are_those_of_the_formula(bits, group_size, zero_point, dtype):
    for n, k in ((1, 1), (70, 200), (129, 513)):
        w = drawn(n, k)
        w[0, : k // 2] = 0
        packed = wt.quantize(w, bits, group_size, zero_point, dtype=dtype)
        expected = by_the_formula(w, bits, packed.group_size, zero_point, dtype)
        found = packed.dequantize()
        assert found.dtype == np.dtype(dtype)
        assert np.array_equal(found.astype(np.float32), expected)


def test_an_error_is_at_most_half_a_step():
    w = drawn(64, 256)
    for bits, zero_point in ((4, False), (4, True), (8, False), (8, True)):
        packed = wt.quantize(w, bits, 64, zero_point)
        _, scales, _ = packed.unpacked()
        steps = np.repeat(scales.astype(np.float32), 64, axis=1)
        found = packed.dequantize().astype(np.float32)
        rounding = np.abs(found) * 2.0**-7 + steps * 2.0**-4  # of the product, and of the scale
        assert np.all(np.abs(found - w) <= steps * 0.51 + rounding)


@pytest.mark.parametrize(("bits", "group_size", "zero_point", "dtype"), FORMATS[::3])
def test_packing_and_unpacking_are_inverse(bits, group_size, zero_point, dtype):
    packed = wt.quantize(drawn(75, 300), bits, group_size, zero_point, dtype=dtype)
    again = wt.QuantizedWeights.from_codes(*packed.unpacked(), bits=bits, group_size=packed.group_size)
    assert np.array_equal(again.packed, packed.packed)
    assert (again.shape, again.dtype, again.zero_point) == (packed.shape, packed.dtype, packed.zero_point)


def test_bytes_of_codes_and_scales():
    assert wt.quantize(drawn(256, 1024)).nbytes == 256 * 1024 // 2 + 2 * 256 * 1024 // 128
    assert wt.quantize(drawn(256, 1024), 8, 32, True).nbytes == 256 * 1024 + 2 * 2 * 256 * 1024 // 32
    assert wt.quantize(drawn(256, 1024), 4, None).nbytes == wt.quantize(drawn(256, 1024)).nbytes
    assert wt.quantize(drawn(1, 1)).nbytes == 128 * 64 + 2 * 128  # of whole blocks


def test_saved_and_loaded():
    packed = wt.quantize(drawn(70, 200), 8, 64, True, dtype="float16")
    file = io.BytesIO()
    np.savez(file, **packed.state())
    file.seek(0)
    loaded = wt.QuantizedWeights(**np.load(file))
    assert loaded.key == packed.key
    assert isinstance(loaded.bits, int)
    assert np.array_equal(loaded.dequantize(), packed.dequantize())
    assert repr(loaded) == (
        f"QuantizedWeights(shape=(70, 200), int8 in groups of 64 with zero points, for float16, nbytes={packed.nbytes})"
    )


def test_types_of_weights_and_activations():
    w = drawn(8, 32)
    assert wt.quantize(w).dtype == "bfloat16"
    assert wt.quantize(w.astype(np.float16)).dtype == "float16"
    assert wt.quantize(w.astype(np.float16), dtype="bfloat16").dtype == "bfloat16"


def test_a_scale_of_zero_is_of_zeros():
    found = wt.quantize(np.zeros((3, 40), np.float32), 4, 32, True).dequantize()
    assert not found.astype(np.float32).any()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: wt.quantize(drawn(4, 4), bits=3), wt.ArgumentError, "bits: got 3"),
        (lambda: wt.quantize(drawn(4, 4), group_size=100), wt.ArgumentError, "group_size: got 100"),
        (lambda: wt.quantize(drawn(4)), wt.ShapeError, "takes one matrix"),
        (lambda: wt.quantize(np.zeros((4, 4), np.int8)), wt.DTypeError, r"w: got int8; .* w.astype\('float32'\)"),
        (
            lambda: wt.quantize(np.zeros((4, 4), int)),
            wt.DTypeError,
            r"w: got int64; .* w.astype\('float32'\)",
        ),
        (lambda: wt.quantize([[1.0]]), wt.DTypeError, r"w: got list; .* such as numpy.asarray\(w, dtype='float32'\)"),
        (lambda: wt.quantize(drawn(4, 4).astype(">f4")), wt.DTypeError, r"byte order '>f4'.* w.astype\('float32'\)"),
        (lambda: from_codes(np.zeros((2, 32), int), np.full((2, 1), np.nan)), wt.ArgumentError, "; give finite ones$"),
        (lambda: wt.quantize(drawn(4, 4), dtype="float32"), wt.DTypeError, "activations are bfloat16 or float16"),
        (lambda: wt.quantize(np.full((4, 4), np.nan, np.float32)), wt.ArgumentError, "infinite elements or NaN"),
        (lambda: wt.quantize(np.full((4, 4), 1e9, np.float32), 4, 32, dtype="float16"), wt.ArgumentError, "not finite"),
        (lambda: from_codes(np.full((2, 32), 8), np.ones((2, 1))), wt.ArgumentError, "from -8 to 7"),
        (lambda: from_codes(np.zeros((2, 200), int), np.ones((2, 1))), wt.ShapeError, r"\(2, 2\)"),
        (lambda: from_codes(np.full((2, 32), 0.5), np.ones((2, 1))), wt.DTypeError, "codes: got float64; .* integers"),
        (lambda: from_codes([[1]], np.ones((1, 1))), wt.DTypeError, r"codes: got list; .* numpy.asarray\("),
        (
            lambda: from_codes(np.ones((2, 32), int), np.ones((2, 1)), np.full((2, 1), 8.5)),
            wt.DTypeError,
            "zeros: got float64",
        ),
        (lambda: wt.quantize(drawn(4, 4), bits=4.0), wt.ArgumentError, "bits: got 4.0"),
        (lambda: wt.quantize(drawn(4, 4), zero_point="no"), wt.ArgumentTypeError, "zero_point: got 'no'"),
        (lambda: wt.quantize(wt.quantize(drawn(4, 4))), wt.DTypeError, r"such as w.dequantize\(\)"),
        (lambda: wt.QuantizedWeights(np.zeros((1, 5), "u1"), 5, "float16", 4, 128, False), wt.ShapeError, "got 5; "),
        (
            lambda: wt.QuantizedWeights(np.zeros((1, 5), np.uint8), (8, 8), "float16", 4, 128, False),
            wt.ShapeError,
            "packed: got uint8",
        ),
        *(
            (lambda given=given: wt.QuantizedWeights(**wt.quantize(drawn(4, 4)).state() | given), error, words)
            for given, error, words in (
                ({"bits": "x"}, wt.ArgumentError, "bits: got 'x'"),
                ({"bits": 4.7}, wt.ArgumentError, "bits: got 4.7"),
                ({"group_size": "x"}, wt.ArgumentError, "group_size: got 'x'"),
                ({"packed": "x"}, wt.DTypeError, r"packed: got str; it takes an array of uint8, .*quantize\(w\)"),
            )
        ),
        (lambda: wt.quantize(drawn(4, 4)).to("cpu"), wt.LayoutError, "torch"),
        (
            lambda: wt.matmul(drawn(2, 4).astype(np.float16), wt.quantize(drawn(3, 4)), backend="emulator"),
            wt.DTypeError,
            r"for bfloat16: matmul\(a.astype\('bfloat16'\), b\)",
        ),
    ],
)
def test_what_cannot_be_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("shape", [(0, 200), (0, 0), (5, 0)], ids=str)
@pytest.mark.parametrize("zero_point", [False, True])
def test_weights_without_elements(shape, zero_point):
    weights = wt.quantize(np.zeros(shape, np.float32), zero_point=zero_point)
    assert weights.dequantize().shape == shape
    x = np.ones((3, shape[1]), weights.dequantize().dtype)
    assert wt.matmul(x, weights, backend="emulator").shape == (3, shape[0])


@pytest.mark.parametrize(("bits", "zero_point"), [(4, False), (8, False), (4, True), (8, True)])
def test_finite_weights_stay_finite_or_are_refused(bits, zero_point):
    """A scale is rounded, so that the largest weights may pass float16's range when they are dequantized."""
    refused = 0
    for largest in np.arange(64000, 65520, 16, dtype=np.float16):
        w = np.full((2, 32), largest)
        w[1, ::2] = -1000
        try:
            found = wt.quantize(w, bits, 32, zero_point)
        except wt.ArgumentError:
            refused += 1
        else:
            assert np.isfinite(found.dequantize()).all()
    assert refused < 40
    assert np.isfinite(wt.quantize(w, bits, 32, zero_point, dtype="bfloat16").dequantize().astype(np.float32)).all()


def test_scales_near_the_largest_number_warn_of_nothing():
    """That they may overflow is looked at in Python's floats: pytest makes an error of a warning."""
    w = from_codes(np.array([[-1, 0, 1] * 16]), np.full((1, 2), 3e38, np.float32), bits=4, group_size=32)
    assert np.array_equal(np.sign(w.dequantize().astype(np.float32)), [[-1, 0, 1] * 16])
