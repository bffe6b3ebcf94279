"""What is in memory of operands that are no plain arrays: sparse and split matrices, and quantized weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from warptile.arrays import array_view
from warptile.arrays.array_view import ArrayView
from warptile.arrays.quantized_weights import QuantizedWeights
from warptile.arrays.sparse import SparseMatrix
from warptile.arrays.split_matrix import SplitMatrix
from warptile.dtypes import DTYPES
from warptile.errors import DTypeError, LayoutError, ShapeError, UnsupportedError
from warptile.problem import MAX_ALIGNMENT_BYTES, Operand


def stored(a: Any) -> ArrayView:
    """What is in memory of ``a``: the kept values of a `SparseMatrix`, any other array itself; of a `SplitMatrix` the
    matrix alone."""
    if isinstance(a, QuantizedWeights):
        raise UnsupportedError(
            f"a: got quantized weights of shape {a.shape}; they are the second operand: matmul(x, w) is "
            "x @ w.dequantize().T"
        )
    if isinstance(a, SplitMatrix):
        return _float32(a, "a")
    return array_view.view(a.values if isinstance(a, SparseMatrix) else a, "a")


def right_stored(b: Any) -> ArrayView:
    """The same of ``b``, which is not quantized."""
    return _float32(b, "b") if isinstance(b, SplitMatrix) else array_view.view(b, "b")


def _float32(matrix: SplitMatrix, name: str) -> ArrayView:
    """A split matrix as the float32 matrix that it stands for."""
    along, across = (1, matrix.format.source_stride)
    strides = (across, along) if matrix.axis else (along, across)
    return replace(array_view.view(matrix.packed, name), shape=matrix.shape, strides=strides, dtype=DTYPES["float32"])


def sliced(matrix: SplitMatrix, name: str, copies: list[str]) -> tuple[ArrayView, Operand]:
    """What is in memory of a split matrix, and the kernel's view of it."""
    packed = array_view.view(matrix.packed, name)
    if packed.pointer % MAX_ALIGNMENT_BYTES:
        copies.append(f"{name}'s slices begin at an address that is no multiple of {MAX_ALIGNMENT_BYTES}: copied once")
        packed = array_view.contiguous(packed)
    major = "row" if matrix.axis else "col"
    operand = Operand(DTYPES["float32"], major, matrix.format.source_stride, sliced=True)
    return packed.relaid((1, *packed.shape), (0, *packed.strides)), operand


def check_split(a: Any, b: Any, views: tuple[ArrayView, ArrayView], precision: str | None) -> None:
    """Raise where a split matrix stands on a side, beside a type, or in a precision that it was not split for."""
    for name, given, axis, other in (("a", a, 1, views[1]), ("b", b, 0, views[0])):
        if not isinstance(given, SplitMatrix):
            continue
        if other.dtype.name != "float32":
            wanted = array_view.cast(other.name, other.framework, DTYPES["float32"])
            raise DTypeError(
                f"{other.name} is {other.dtype.name} and {name} is a SplitMatrix, of float32; both operands need one "
                f"type: matmul({', '.join(each if each == name else wanted for each in 'ab')})"
            )
        if given.axis != axis:
            raise LayoutError(
                f"{name}: got a SplitMatrix of shape {given.shape} with slices along axis {given.axis}; of {name} axis "
                f"{axis} is summed over: matmul({'split(w, axis=1), b' if axis else 'a, split(w, axis=0)'})"
            )
        if precision is not None:
            raise UnsupportedError(
                f"precision={precision!r}: {name} is a SplitMatrix, whose slices stand for all of float32; leave "
                f"precision out, or give the matrix itself: matmul({'a.matrix, b' if axis else 'a, b.matrix'}, "
                f"precision={precision!r})"
            )


def weights(b: QuantizedWeights, a: Any) -> ArrayView:
    """Quantized weights (N, K) as the matrix (K, N) that they stand for; what is in memory are `blocks`."""
    n, k = b.shape
    shape = tuple(getattr(a, "shape", ()))
    if isinstance(a, SparseMatrix):
        raise UnsupportedError("a: got a SparseMatrix beside quantized weights; give a.to_dense()")
    if shape and shape[-1] != k:
        hint = "quantize(w.T) of weights w (K, N)" if shape[-1] == n else f"an x of shape (..., {k})"
        raise ShapeError(
            f"a has shape {shape} and b are quantized weights (N, K) of shape {b.shape}: the last axis of a "
            f"({shape[-1]}) must equal K ({k}), such as {hint}"
        )
    given = stored(a)
    if given.dtype != b.element:
        wanted = array_view.cast("a", given.framework, b.element)
        raise DTypeError(
            f"a is {given.dtype.name} and b are quantized weights for {b.element.name}: matmul({wanted}, b), or "
            "quantize for a's type"
        )
    return replace(array_view.view(b.packed, "b"), shape=(k, n), strides=(1, max(k, 1)), dtype=b.element)


def blocks(b: QuantizedWeights, copies: list[str]) -> ArrayView:
    """The packed blocks, which bulk copies read at multiples of 16 bytes."""
    packed = array_view.view(b.packed, "b")
    if packed.pointer % MAX_ALIGNMENT_BYTES == 0:
        return packed
    copies.append(f"b's blocks begin at an address that is no multiple of {MAX_ALIGNMENT_BYTES}: copied once")
    return array_view.contiguous(packed)


def quantized_operand(b: QuantizedWeights) -> Operand:
    """The kernel's view of quantized weights."""
    k = -(-b.shape[1] // MAX_ALIGNMENT_BYTES) * MAX_ALIGNMENT_BYTES
    return Operand(b.element, "col", max(k, 1), quantized=b.format)
