"""What a caller's arrays mean: a batch of D = alpha * A @ B + beta * C, with the layout that the kernels take.

Shapes follow the array API's ``matmul``: a 1-D operand is promoted, leading axes broadcast, transposes are strides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from warptile import arrays
from warptile.arrays import ArrayView, Shape
from warptile.dtypes import DTYPES, DType
from warptile.errors import DTypeError, LayoutError, ShapeError, UnsupportedError
from warptile.problem import Operand, Problem, alignment_of
from warptile.sparse import SparseMatrix

OUTPUTS = {
    "float16": ("float16", "bfloat16", "float32"),
    "bfloat16": ("bfloat16", "float16", "float32"),
    "float32": ("float32",),
    "tfloat32": ("float32",),
    "float64": ("float64",),
    "float8_e4m3": ("bfloat16", "float16", "float32"),
    "float8_e5m2": ("bfloat16", "float16", "float32"),
    "int8": ("int32",),
    "uint8": ("int32",),
}
"""Result types of each operand type, the default first."""

MajorsOf = Callable[[DType, DType, DType], tuple[str, ...]]
"""From operand, accumulator and output types to the majors in which A may be given."""


@dataclass(frozen=True)
class Product:
    """Operands ready to be multiplied.

    Attributes:
        problem: one matrix of the batch.
        like: the caller's ``a``, whose framework makes the result.
        batch: extents of the leading axes of the result; empty for a single matrix.
        vectors: whether a and b came as 1-D arrays, whose axis the result lacks.
        result_shape: shape of the result as the caller sees it.
        a: (\\*batch, m, k), matrices of ``problem.a.major``.
        b: (\\*batch, k, n), matrices of ``problem.b.major``.
        c: (\\*batch, m, n), or None when beta is zero.
        target: where the caller wants the result, when the kernel can write there; else None.
        out: the caller's ``out``, or None.
        copies: what had to be copied first and why, one sentence each.
        metadata: (\\*batch, steps, words), packed, of a sparse ``a``, whose matrices are then (m, k / 2); else None.
    """

    problem: Problem
    like: ArrayView
    batch: Shape
    vectors: tuple[bool, bool]
    result_shape: Shape
    a: ArrayView
    b: ArrayView
    c: ArrayView | None
    target: ArrayView | None
    out: ArrayView | None
    copies: tuple[str, ...]
    metadata: ArrayView | None = None

    @property
    def empty(self) -> bool:
        """Whether the result has no element, so that there is nothing to launch."""
        return 0 in self.result_shape

    def as_matrices(self, result: ArrayView) -> ArrayView:
        """``result`` (of `result_shape`) as (\\*batch, m, n)."""
        return _with_matrix_axes(result, self.vectors)

    def indices(self) -> Iterator[Shape]:
        """Every index of the batch, in row-major order; one empty index for a single matrix."""
        return product(*map(range, self.batch))


def arrange(
    a: Any,
    b: Any,
    c: Any = None,
    out: Any = None,
    *,
    beta: float = 0,
    out_dtype: str | None = None,
    accumulate: str | None = None,
    precision: str | None = None,
    a_majors: MajorsOf = lambda element, accumulator, output: ("row",),
) -> Product:
    """Check the operands against each other and bring each into a layout that the kernels take.

    B is used in place where its rows or its columns are contiguous, A where it lies in one of ``a_majors`` of the
    operand, accumulator and output types, C by rows; anything else is copied once.

    Raises:
        ShapeError: shapes that do not multiply or broadcast, or C missing although beta is not zero.
        DTypeError: element types that do not go together.
        LayoutError: operands on different devices, or an ``out`` that cannot be written.
    """
    sparse = isinstance(a, SparseMatrix)
    _check_sides(a, b, precision)
    left, right = stored(a), arrays.view(b, "b")
    _same_place(left, right)
    element = _operand_type(left, right, precision)
    accumulator = _accumulator(element, accumulate)
    output = _output_type(element, out_dtype, out)

    whole = replace(left, shape=a.shape) if sparse else left
    a_shape, b_shape = _promoted_shapes(whole, right)
    batch = _batch_shape(whole, right)
    (m, k), n = a_shape[-2:], b_shape[-1]
    vectors = (left.ndim == 1, right.ndim == 1)
    result_shape = batch + ((m,) if left.ndim > 1 else ()) + ((n,) if right.ndim > 1 else ())

    copies: list[str] = []
    a_promoted = _promoted(left, a_shape, column=False)
    majors = ("row",) if sparse or _by_rows(a_promoted) else a_majors(element, accumulator, output)
    a_matrices = _in_layout(a_promoted, majors, copies)
    b_matrices = _in_layout(_promoted(right, b_shape, column=True), ("row", "col"), copies)
    c_matrices = None
    if beta != 0:
        c_matrices = _addend(c, left, output, result_shape, beta)
        c_matrices = _in_layout(_with_matrix_axes(c_matrices, vectors), ("row",), copies)
    destination = _destination(out, left, output, result_shape)
    target = _writable_in_place(destination, (left, right, c_matrices), vectors, copies)

    problem = Problem(
        m,
        n,
        k,
        a=replace(_operand(a_matrices, element), sparse=sparse),
        b=_operand(b_matrices, element),
        c=_operand(c_matrices, output) if c_matrices else None,
        d=_operand(target, output) if target else _fresh_operand(batch, m, n, output),
        accumulator=accumulator,
    )
    return Product(
        problem,
        left,
        batch,
        vectors,
        result_shape,
        a_matrices.broadcast((*batch, *a_matrices.shape[-2:])),
        b_matrices.broadcast((*batch, k, n)),
        c_matrices,
        target,
        destination,
        tuple(copies),
        _metadata(a, batch) if sparse else None,
    )


def stored(a: Any) -> ArrayView:
    """What is in memory of ``a``: the kept values of a `SparseMatrix`, any other array itself."""
    return arrays.view(a.values if isinstance(a, SparseMatrix) else a, "a")


def _metadata(a: SparseMatrix, batch: Shape) -> ArrayView:
    words = arrays.view(a.packed(), "a's metadata")
    return words.broadcast((*batch, *words.shape))


def _check_sides(a: Any, b: Any, precision: str | None) -> None:
    """Raise where a sparse matrix stands on a side, or is to be multiplied in a precision, that no instruction has."""
    if isinstance(b, SparseMatrix):
        raise UnsupportedError(
            f"b: got a SparseMatrix of shape {b.shape}; the tensor core takes the sparse operand on the left: with "
            "weights w (N, K) and x (M, K), matmul(w, x.T).T is x @ w.T"
        )
    if isinstance(a, SparseMatrix) and a.element.name == "float32" and precision != "tf32":
        raise UnsupportedError(
            "a: a SparseMatrix of float32 is multiplied as TF32 only; say precision='tf32', or give a.to_dense()"
        )


def scale_factor(value: Any, name: str, a: ArrayView) -> float:
    """One scale of a float8 operand, which the kernels apply as a part of alpha.

    Args:
        value: a number, an array with one element in host memory, or None for 1.
        name: ``"scale_a"`` or ``"scale_b"``, for messages.
        a: the operand, whose type must be a float8.

    Raises:
        DTypeError: the operands are of another type.
        ShapeError: more than one scale.
        UnsupportedError: a scale in a GPU's memory, which could not be read without waiting for the GPU.
    """
    if value is None:
        return 1.0
    if not a.dtype.name.startswith("float8"):
        raise DTypeError(f"{name}: it is for float8 operands; a is {a.dtype.name}: give alpha={name} instead")
    if isinstance(value, (int, float, np.generic)):
        return float(value)
    scale = arrays.view(value, name)
    if scale.size != 1:
        raise ShapeError(
            f"{name}: got shape {scale.shape}; it is one factor for the whole operand, such as {name}=0.5 "
            f"(scale rows or columns of the result afterwards)"
        )
    if scale.device is not None:
        raise UnsupportedError(
            f"{name}: it is on cuda:{scale.device}; scales are read on the host when the product is queued: "
            f"give {name}=float({name}), once, where waiting for the GPU does no harm"
        )
    return float(scale.array.reshape(()))


# --- element types -----------------------------------------------------------------------------------------------


def _operand_type(a: ArrayView, b: ArrayView, precision: str | None) -> DType:
    if a.dtype != b.dtype:
        raise DTypeError(
            f"a is {a.dtype.name} and b is {b.dtype.name}; both operands need one type: b.astype('{a.dtype.numpy}')"
        )
    if a.dtype.name not in OUTPUTS:
        raise DTypeError(
            f"a, b: got {a.dtype.name}; matmul multiplies {', '.join(n for n in OUTPUTS if n != 'tfloat32')}, "
            f"such as a.astype('float32')"
        )
    if precision not in (None, "ieee", "tf32"):
        raise DTypeError(f"precision: got {precision!r}; it takes None, 'ieee' or, for float32 operands, 'tf32'")
    if precision == "tf32":
        if a.dtype.name != "float32":
            raise DTypeError(f"precision='tf32' is for float32 operands; a is {a.dtype.name}: leave precision out")
        return DTYPES["tfloat32"]
    return a.dtype


def _accumulator(element: DType, accumulate: str | None) -> DType:
    name = accumulate or element.accumulators[0]
    if name not in element.accumulators:
        raise DTypeError(
            f"accumulate: got {name!r}; {element.name} operands accumulate in {' or '.join(element.accumulators)}"
        )
    return DTYPES[name]


def _output_type(element: DType, out_dtype: str | None, out: Any) -> DType:
    legal = OUTPUTS[element.name]
    name = out_dtype or (arrays.view(out, "out").dtype.name if out is not None else legal[0])
    if name not in legal:
        operand = "out_dtype" if out_dtype else "out"
        raise DTypeError(f"{operand}: got {name!r}; {element.name} operands give {' or '.join(legal)}")
    return DTYPES[name]


# --- shapes --------------------------------------------------------------------------------------------------------


def _promoted_shapes(a: ArrayView, b: ArrayView) -> tuple[Shape, Shape]:
    for operand in (a, b):
        if operand.ndim == 0:
            raise ShapeError(f"{operand.name}: got a scalar; it needs at least one axis: {operand.name}.reshape(1)")
    a_shape = a.shape if a.ndim > 1 else (1, *a.shape)
    b_shape = b.shape if b.ndim > 1 else (*b.shape, 1)
    if a_shape[-1] != b_shape[-2]:
        hint = "b.T" if b.ndim == 2 and b.shape[-1] == a_shape[-1] else f"b of shape ({a_shape[-1]}, {b_shape[-1]})"
        raise ShapeError(
            f"a has shape {a.shape} and b has shape {b.shape}: the last axis of a ({a_shape[-1]}) must equal the "
            f"{'only' if b.ndim == 1 else 'second last'} axis of b ({b_shape[-2]}), such as matmul(a, {hint})"
        )
    return a_shape, b_shape


def _batch_shape(a: ArrayView, b: ArrayView) -> Shape:
    try:
        return np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ShapeError(
            f"a has leading axes {a.shape[:-2]} and b has {b.shape[:-2]}, which do not broadcast; "
            f"each pair must be equal or have a 1"
        ) from None


def _promoted(operand: ArrayView, shape: Shape, *, column: bool) -> ArrayView:
    if operand.ndim > 1:
        return operand
    (stride,) = operand.strides
    return operand.relaid(shape, (stride, 1) if column else (max(shape[1], 1), stride))


def _with_matrix_axes(result: ArrayView, vectors: tuple[bool, bool]) -> ArrayView:
    """Give back the axes, of extent 1, that the result lacks because an operand was 1-D."""
    shape, strides = list(result.shape), list(result.strides)
    a_was_vector, b_was_vector = vectors
    if b_was_vector:
        shape.append(1)
        strides.append(1)
    if a_was_vector:
        shape.insert(len(shape) - 1, 1)
        strides.insert(len(strides) - 1, max(shape[-1], 1))
    return result.relaid(tuple(shape), tuple(strides))


# --- layouts -------------------------------------------------------------------------------------------------------


def _same_place(first: ArrayView, other: ArrayView) -> None:
    if first.device == other.device:
        return

    def where(operand: ArrayView) -> str:
        return "in host memory" if operand.device is None else f"on cuda:{operand.device}"

    raise LayoutError(
        f"{first.name} is {where(first)} and {other.name} is {where(other)}; both must be in one place, "
        f"such as {other.name}.to({first.name}.device)"
    )


def _by_rows(matrices: ArrayView) -> bool:
    """Whether each matrix in the last two axes has contiguous rows that do not overlap."""
    (rows, columns), (row_stride, column_stride) = matrices.shape[-2:], matrices.strides[-2:]
    return matrices.size == 0 or ((columns == 1 or column_stride == 1) and (rows == 1 or row_stride >= columns))


def _by_columns(matrices: ArrayView) -> bool:
    """Whether each matrix in the last two axes has contiguous columns that do not overlap."""
    return _by_rows(
        matrices.relaid(
            (*matrices.shape[:-2], *matrices.shape[:-3:-1]), (*matrices.strides[:-2], *matrices.strides[:-3:-1])
        )
    )


def _in_layout(matrices: ArrayView, majors: tuple[str, ...], copies: list[str]) -> ArrayView:
    if _by_rows(matrices) or ("col" in majors and _by_columns(matrices)):
        return matrices
    rows, columns = matrices.shape[-2:]
    stored = "stored by columns" if _by_columns(matrices) else f"laid out with strides {matrices.strides[-2:]}"
    copies.append(
        f"{matrices.name} ({rows} x {columns}) is {stored}; the kernels read it by rows"
        f"{' or by columns' if 'col' in majors else ''}: "
        f"copied once, {matrices.size * matrices.element_bytes} bytes"
    )
    return arrays.contiguous(matrices)


def _major(matrices: ArrayView) -> str:
    """By rows where it can be read so; but a B of a single column as that column, so that its loads can be wide."""
    single_column = matrices.name == "b" and matrices.shape[-1] == 1 and _by_columns(matrices)
    return "col" if single_column or not _by_rows(matrices) else "row"


def _operand(matrices: ArrayView, element: DType) -> Operand:
    """The kernel's view of one matrix of the batch."""
    rows, columns = matrices.shape[-2:]
    row_stride, column_stride = matrices.strides[-2:]
    major = _major(matrices)
    inner, outer, outer_stride = (columns, rows, row_stride) if major == "row" else (rows, columns, column_stride)
    leading = outer_stride if outer > 1 and inner > 0 else max(inner, 1)
    distances = [
        stride for extent, stride in zip(matrices.shape[:-2], matrices.strides[:-2], strict=True) if extent > 1
    ]
    if outer > 1:
        distances.append(leading)
    size = matrices.element_bytes
    return Operand(
        element, major, leading, alignment_of(matrices.pointer, *(distance * size for distance in distances))
    )


def _fresh_operand(batch: Shape, m: int, n: int, output: DType) -> Operand:
    """A result that is yet to be allocated: row-major without gaps, at an address of 16 bytes or better."""
    row_bytes = n * output.bits // 8
    distances = ([row_bytes] if m > 1 else []) + ([m * row_bytes] if batch else [])
    return Operand(output, "row", max(n, 1), alignment_of(*distances))


# --- C and D -------------------------------------------------------------------------------------------------------


def _addend(c: Any, a: ArrayView, output: DType, shape: Shape, beta: float) -> ArrayView:
    if c is None:
        raise ShapeError(f"c: got None with beta={beta}; give c of shape {shape}, or leave beta at 0")
    addend = arrays.view(c, "c")
    _same_place(a, addend)
    if addend.dtype != output:
        raise DTypeError(
            f"c is {addend.dtype.name} and the result is {output.name}; they need one type: c.astype('{output.numpy}')"
        )
    return addend.broadcast(shape)


def _destination(out: Any, a: ArrayView, output: DType, shape: Shape) -> ArrayView | None:
    if out is None:
        return None
    destination = arrays.view(out, "out")
    _same_place(a, destination)
    if destination.shape != shape:
        raise ShapeError(
            f"out: got shape {destination.shape}; the result has shape {shape}, such as out=empty({shape})"
        )
    if destination.dtype != output:
        raise DTypeError(f"out is {destination.dtype.name} and out_dtype is {output.name}; leave one of them out")
    if destination.read_only:
        raise LayoutError("out: its memory is read-only; give a writable array, such as out=out.copy()")
    return destination


def _writable_in_place(
    destination: ArrayView | None,
    inputs: tuple[ArrayView | None, ...],
    vectors: tuple[bool, bool],
    copies: list[str],
) -> ArrayView | None:
    """``destination`` as matrices when a kernel may write straight into it, else None."""
    if destination is None:
        return None
    matrices = _with_matrix_axes(destination, vectors)
    *read, addend = inputs
    if addend is not None and (addend.pointer, addend.strides) != (matrices.pointer, matrices.strides):
        read.append(addend)
    shared = [operand.name for operand in read if operand is not None and operand.overlaps(matrices)]
    if _by_rows(matrices) and not shared:
        return matrices
    reason = f"shares memory with {' and '.join(shared)}" if shared else f"has strides {matrices.strides[-2:]}"
    copies.append(f"out {reason}: the result is made apart and copied into it")
    return None
