"""Weights that GPTQ and AWQ tools have quantized, as `QuantizedWeights`.

Such checkpoints hold each linear layer as ``qweight`` and ``qzeros`` of 32-bit words, and ``scales`` of (groups, N).
The lowest bits of a word come first:

* ``"gptq"`` (AutoGPTQ): ``qweight`` is (K bits / 32, N), neighbours along K in a word; ``qzeros`` is (groups, N bits /
  32), neighbours along N in a word, each zero point minus one. A weight is scale * (code - (zero + 1)).
* ``"gptq_v2"``: the same, with zero points as they are.
* ``"awq"`` (AutoAWQ's GEMM layout, 4 bits): ``qweight`` is (K, N / 8) and ``qzeros`` (groups, N / 8). A word holds
  columns 0, 2, 4, 6, 1, 3, 5 and 7 of its eight, in this order; zero points are as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from warptile.arrays import array_view
from warptile.arrays.frameworks import Framework, framework_of
from warptile.arrays.quantized_weights import QuantizedWeights
from warptile.errors import ArgumentError, ShapeError, UnsupportedError
from warptile.quantization import BITS, BLOCK_K

FORMATS = ("gptq", "gptq_v2", "awq")

WORD_BITS = 32
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def quantized_from_checkpoint(
    format: str, qweight: Any, scales: Any, qzeros: Any, *, bits: int = 4, g_idx: Any = None, dtype: Any = None
) -> QuantizedWeights:
    """A linear layer of a GPTQ or AWQ checkpoint, repacked for warptile; nothing is rounded again.

    The module's text has the layouts.

    Args:
        format: ``"gptq"``, ``"gptq_v2"`` or ``"awq"``.
        qweight: packed codes, 32-bit integers of NumPy or torch.
        scales: (groups, N) floats. K is divided into as many groups of one size.
        qzeros: packed zero points, 32-bit integers.
        bits: of a code: 4, or with GPTQ 8.
        g_idx: GPTQ's group of each of K, where the checkpoint has it; only groups in order are taken.
        dtype: type of the activations; by default that of ``scales``.

    Returns:
        Weights (N, K), of the framework and on the device of ``qweight``. Zero points that are all in the middle, as
        symmetric quantizers write them, are left out.

    Raises:
        ArgumentError: a format that there is not, or other bits.
        ShapeError: arrays that do not belong together.
        UnsupportedError: groups out of order (``desc_act``), or of a size that `quantize` does not have.
    """
    if format not in FORMATS:
        raise ArgumentError(f"format: got {format!r}; it is one of {', '.join(FORMATS)}")
    if bits not in BITS or (format == "awq" and bits != 4):
        raise ArgumentError(f"bits: got {bits!r}; {format} has {'4' if format == 'awq' else '4 or 8'}")
    per_word = WORD_BITS // bits
    for name, words in (("qweight", qweight), ("qzeros", qzeros)):
        seen = array_view.view_of(words, name, ("int32",))
        if seen.ndim != 2:
            raise ShapeError(f"{name}: got shape {seen.shape}; it is a matrix of words of {per_word} codes")
    if len(getattr(scales, "shape", ())) != 2:
        shown = tuple(scales.shape) if hasattr(scales, "shape") else type(scales).__name__
        raise ShapeError(f"scales: got {shown}; they are an array of shape (groups, N)")
    framework = framework_of(qweight)
    groups, n = (int(each) for each in scales.shape)
    order = AWQ_ORDER if format == "awq" else tuple(range(per_word))
    if format == "awq":
        codes = framework.permuted(_along_n(framework, qweight, bits, order), (1, 0))
    else:
        unpacked = _unpacked(framework, qweight, bits, order)  # (words, N, codes of a word)
        codes = framework.permuted(unpacked, (1, 0, 2)).reshape(int(qweight.shape[1]), -1)
    zeros = framework.permuted(_along_n(framework, qzeros, bits, order), (1, 0)) + (format == "gptq")
    if tuple(zeros.shape) != (n, groups) or codes.shape[0] != n:
        raise ShapeError(
            f"qweight {tuple(qweight.shape)}, qzeros {tuple(qzeros.shape)} and scales {tuple(scales.shape)} do not "
            f"belong together: scales are (groups, N), and {format} packs {per_word} codes of {bits} bits in a word"
        )
    k = int(codes.shape[1])
    group_size = _group_size(k, groups)
    if g_idx is not None:
        _check_order(g_idx, k, group_size)
    half = 2 ** (bits - 1)
    rows = framework.permuted(scales, (1, 0))
    if bool((zeros == half).all()):
        return QuantizedWeights.from_codes(codes - half, rows, bits=bits, group_size=group_size, dtype=dtype)
    return QuantizedWeights.from_codes(codes, rows, zeros, bits=bits, group_size=group_size, dtype=dtype)


def _unpacked(framework: Framework, words: Any, bits: int, order: tuple[int, ...]) -> Any:
    """The codes of each word, along a further axis."""
    found = framework.zeros(words, (*words.shape, len(order)))
    for place, column in enumerate(order):
        found[..., column] = (words >> (bits * place)) & (2**bits - 1)
    return found


def _along_n(framework: Framework, words: Any, bits: int, order: tuple[int, ...]) -> Any:
    """Codes of words that hold neighbours of a row."""
    return _unpacked(framework, words, bits, order).reshape(words.shape[0], -1)


def _group_size(k: int, groups: int) -> int:
    if groups == 1:
        return -(-k // BLOCK_K) * BLOCK_K
    if groups == 0 or k % groups:
        raise ShapeError(f"scales: {groups} groups for K = {k}; groups are of one size")
    size = k // groups
    if size not in (32, 64) and size % BLOCK_K:
        raise UnsupportedError(
            f"scales: {groups} groups for K = {k}, {size} elements each; groups have 32, 64 or a multiple of "
            f"{BLOCK_K}: dequantize these weights and call quantize(w)"
        )
    return size


def _check_order(g_idx: Any, k: int, group_size: int) -> None:
    given = np.asarray(g_idx.cpu() if hasattr(g_idx, "cpu") else g_idx)
    if given.shape != (k,):
        raise ShapeError(f"g_idx: got shape {given.shape}; it names the group of each of K = {k} columns")
    if not np.array_equal(given, np.arange(k) // group_size):
        raise UnsupportedError(
            "g_idx: groups are out of order (desc_act=True), and kernels read a group from neighbours along K; take a "
            "checkpoint with desc_act=False, or dequantize it and call quantize(w)"
        )
