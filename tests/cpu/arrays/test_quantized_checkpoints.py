"""GPTQ and AWQ checkpoints: packed here by the documented layouts, word by word, and read back."""

import numpy as np
import pytest

import warptile as wt


def random_layer(n, k, bits, group_size, seed=0):
    """Codes (N, K), zero points (N, groups) and scales (N, groups)."""
    rng = np.random.default_rng(seed)
    groups = k // group_size
    codes = rng.integers(0, 2**bits, (n, k))
    zeros = rng.integers(1, 2**bits, (n, groups))
    return codes, zeros, rng.uniform(0.5, 2, (n, groups)).astype(np.float16)


def words_along(values, axis, bits, order=None):
    """Neighbours along an axis in 32-bit words, the lowest bits first; place i of a word holds number ``order[i]``."""
    per_word = 32 // bits
    order = range(per_word) if order is None else order
    moved = np.moveaxis(values, axis, -1).astype(np.uint64)
    found = np.zeros((*moved.shape[:-1], moved.shape[-1] // per_word), np.uint64)
    for word in range(found.shape[-1]):
        for place, number in enumerate(order):
            found[..., word] |= moved[..., word * per_word + number] << np.uint64(bits * place)
    return np.moveaxis(found.astype(np.uint32).view(np.int32), -1, axis)


def gptq(codes, zeros, scales, bits, *, minus_one):
    return words_along(codes.T, 0, bits), scales.T, words_along((zeros - minus_one).T, 1, bits)


def awq(codes, zeros, scales):
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    return words_along(codes.T, 1, 4, order), scales.T, words_along(zeros.T, 1, 4, order)


def expected(codes, zeros, scales, group_size):
    wide = np.repeat(scales.astype(np.float32), group_size, 1)
    return ((codes - np.repeat(zeros, group_size, 1)) * wide).astype(np.float16)


@pytest.mark.parametrize(("bits", "group_size"), [(4, 128), (4, 32), (8, 64)])
@pytest.mark.parametrize("format", ["gptq", "gptq_v2"])
def test_gptq(format, bits, group_size):
    codes, zeros, scales = random_layer(72, 256, bits, group_size)
    found = wt.quantized_from_checkpoint(
        format, *gptq(codes, zeros, scales, bits, minus_one=format == "gptq"), bits=bits,
        g_idx=np.arange(256) // group_size,
    )  # fmt: skip
    assert (found.shape, found.dtype, found.bits, found.group_size) == ((72, 256), "float16", bits, group_size)
    assert np.array_equal(found.dequantize(), expected(codes, zeros, scales, group_size))


def test_awq():
    codes, zeros, scales = random_layer(72, 384, 4, 128)
    found = wt.quantized_from_checkpoint("awq", *awq(codes, zeros, scales))
    assert found.zero_point
    assert np.array_equal(found.dequantize(), expected(codes, zeros, scales, 128))


def test_zero_points_in_the_middle_are_left_out():
    codes, zeros, scales = random_layer(64, 128, 4, 128)
    zeros[:] = 8
    found = wt.quantized_from_checkpoint("gptq", *gptq(codes, zeros, scales, 4, minus_one=True), dtype="bfloat16")
    assert not found.zero_point
    wide = scales.astype("bfloat16").astype(np.float32)
    assert np.array_equal(found.dequantize(), ((codes - 8) * wide).astype("bfloat16"))


def test_a_zero_point_of_gptq_may_be_one_past_the_largest_code():
    codes, zeros, scales = random_layer(64, 128, 4, 128)
    zeros[:] = 16
    found = wt.quantized_from_checkpoint("gptq", *gptq(codes, zeros, scales, 4, minus_one=True))
    assert np.array_equal(found.dequantize(), expected(codes, zeros, scales, 128))


def test_one_group_for_all_of_k():
    codes, zeros, scales = random_layer(64, 200, 4, 200)
    found = wt.quantized_from_checkpoint("awq", *awq(codes, zeros, scales))
    assert found.group_size == 256
    assert np.array_equal(found.dequantize(), expected(codes, zeros, scales, 200))


def test_it_is_multiplied():
    codes, zeros, scales = random_layer(40, 256, 4, 64)
    w = wt.quantized_from_checkpoint("gptq", *gptq(codes, zeros, scales, 4, minus_one=True))
    x = np.random.default_rng(1).standard_normal((6, 256)).astype(np.float16)
    wide = x.astype(np.float64), expected(codes, zeros, scales, 64).astype(np.float64).T
    d = wt.matmul(x, w, out_dtype="float32", backend="emulator")
    assert np.all(np.abs(d - wide[0] @ wide[1]) <= 1e-5 * np.abs(wide[0]) @ np.abs(wide[1]))


def layer(**changes):
    codes, zeros, scales = random_layer(64, 256, 4, 128)
    qweight, scales, qzeros = gptq(codes, zeros, scales, 4, minus_one=True)
    given = {"format": "gptq", "qweight": qweight, "scales": scales, "qzeros": qzeros} | changes
    return lambda: wt.quantized_from_checkpoint(**given)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (layer(format="ggml"), wt.ArgumentError, "gptq, gptq_v2, awq"),
        (layer(format="awq", bits=8), wt.ArgumentError, "awq has 4"),
        (layer(qweight=np.zeros((32, 64))), wt.DTypeError, "qweight: got float64"),
        (layer(scales=np.ones((2, 60), np.float16)), wt.ShapeError, "do not belong together"),
        (layer(scales=np.ones((3, 64), np.float16), qzeros=np.zeros((3, 8), np.int32)), wt.ShapeError, "groups"),
        (layer(g_idx=np.arange(256)[::-1] // 128), wt.UnsupportedError, "desc_act"),
        (layer(g_idx=np.arange(8)), wt.ShapeError, "g_idx"),
        (layer(scales=None), wt.ShapeError, "scales: got NoneType; they are an array of shape"),
        (layer(scales=np.ones(64, np.float16)), wt.ShapeError, r"scales: got \(64,\); they are an array of shape"),
        (layer(qzeros=None), wt.DTypeError, r"qzeros: got NoneType; .* numpy.asarray\(qzeros, dtype='int32'\)"),
        (layer(qzeros=np.zeros((2, 8), "u4")), wt.DTypeError, r"qzeros: got uint32; .* qzeros.astype\('int32'\)"),
        (
            layer(scales=np.ones((16, 64), np.float16), qzeros=np.zeros((16, 8), np.int32)),
            wt.UnsupportedError,
            "16 elements each",
        ),
    ],
)
def test_what_cannot_be_read_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
