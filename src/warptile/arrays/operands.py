"""What a caller's arrays mean: a batch of D = alpha * A @ B + beta * C, with the layout that the kernels take.

Shapes follow the array API's ``matmul``: a 1-D operand is promoted, leading axes broadcast, transposes are strides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from warptile.arrays import array_view
from warptile.arrays.array_view import ArrayView, Shape
from warptile.arrays.epilogue_operands import EpilogueOperands, check_apart, epilogue_operands
from warptile.arrays.mixtures import refuse_mixture
from warptile.arrays.options import element_named, precision_named
from warptile.arrays.packed_operands import (
    blocks,
    check_split,
    quantized_operand,
    right_stored,
    sliced,
    stored,
    weights,
)
from warptile.arrays.quantized_weights import QuantizedWeights
from warptile.arrays.sparse import SparseMatrix
from warptile.arrays.split_matrix import SplitMatrix
from warptile.dtypes import DTYPES, DType
from warptile.epilogue.epilogue_program import Program
from warptile.epilogue.expressions import QUANTIZED_TYPES
from warptile.errors import DTypeError, LayoutError, ShapeError, UnsupportedError
from warptile.problem import MAX_ALIGNMENT_BYTES, Operand, Problem, alignment_of

OUTPUTS = {
    "float16": ("float16", "bfloat16", "float32", *QUANTIZED_TYPES),
    "bfloat16": ("bfloat16", "float16", "float32", *QUANTIZED_TYPES),
    "float32": ("float32",),
    "tfloat32": ("float32",),
    "float64": ("float64",),
    "float8_e4m3": ("bfloat16", "float16", "float32", *QUANTIZED_TYPES),
    "float8_e5m2": ("bfloat16", "float16", "float32", *QUANTIZED_TYPES),
    "int8": ("int32",),
    "uint8": ("int32",),
}
"""Result types of each operand type, the default first."""

OUTPUTS_OF_INTEGERS = ("float32", "bfloat16", "float16", "int32")
"""Those of an epilogue of integer sums."""


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
        b: (\\*batch, k, n), matrices of ``problem.b.major``; of a quantized ``b`` its packed blocks. Of a split
            ``a`` or ``b`` its packed bytes.
        c: (\\*batch, m, n), or None when beta is zero.
        target: where the caller wants the result, when the kernel can write there; else None.
        out: the caller's ``out``, or None.
        copies: what had to be copied first and why, one sentence each.
        metadata: (\\*batch, steps, words), packed, of a sparse ``a``, whose matrices are then (m, k / 2); else None.
        reads_operands: A and B are read. They are not where K or alpha is zero, or the result has no element: then
            ``a``, ``b`` and their part of the problem stand for nothing in memory.
        epilogue: what the epilogue reads and writes, or None.
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
    reads_operands: bool = True
    epilogue: EpilogueOperands | None = None

    @property
    def empty(self) -> bool:
        """Whether the result has no element, so that there is nothing to launch."""
        return 0 in self.result_shape

    def as_matrices(self, result: ArrayView) -> ArrayView:
        """``result`` (of `result_shape`) as (\\*batch, m, n)."""
        return _with_matrix_axes(result, self.vectors)

    def with_row_major_a(self, *, copy: bool = True) -> Product:
        """The same product for a kernel that reads A by rows: where A is column-major, it is copied.

        Args:
            copy: make the copy. Without, A is described with the layout of the copy: for planning alone.
        """
        if self.problem.a.major == "row":
            return self
        # A batch that shares A has one copy.
        once = tuple(1 if stride == 0 else extent for extent, stride in zip(self.a.shape, self.a.strides, strict=True))
        shared = self.a.relaid((*once[:-2], *self.a.shape[-2:]), self.a.strides)
        copies = list(self.copies)
        a = _in_layout(shared, ("row",), copies, copy)
        return replace(
            self,
            problem=replace(self.problem, a=_factor(a, self.problem.a.dtype)),
            a=a.broadcast(self.a.shape),
            copies=tuple(copies),
        )


def arrange(
    a: Any,
    b: Any,
    c: Any = None,
    out: Any = None,
    *,
    alpha: float = 1,
    beta: float = 0,
    out_dtype: Any = None,
    accumulate: Any = None,
    precision: str | None = None,
    copy: bool = True,
    program: Program | None = None,
    operands: Mapping[str, Any] | None = None,
) -> Product:
    """Check the operands against each other and bring each into a layout that the kernels take.

    A and B are used in place where their rows or their columns are contiguous (a sparse A, and C, where rows are; those
    of C may all be one, as of a bias); anything else is copied once. For a kernel that reads A by rows alone there is
    `Product.with_row_major_a`.

    Args:
        a, b, c, out: as in `warptile.matmul`.
        alpha: factor of the product; at zero A and B are not read.
        beta: factor of C; at zero C is not looked at.
        out_dtype: name or framework dtype of the result, or None for the default of the operands' type.
        accumulate: the same of the accumulator.
        precision: as in `warptile.matmul`.
        copy: make the copies. Without, the operands are described with the layout of the copies: for planning alone.
        program: the epilogue; ``out`` may then be a tuple, with an array for each of its outputs.
        operands: the epilogue's, by name.

    Returns:
        The operands and the problem that they make.

    Raises:
        ShapeError: shapes that do not multiply or broadcast, or C missing although beta is not zero.
        DTypeError: element types that do not go together.
        LayoutError: operands on different devices, or an ``out`` that cannot be written.
    """
    sparse = isinstance(a, SparseMatrix)
    outs: tuple[Any, ...] = ()
    if program is not None and isinstance(out, (tuple, list)):
        if len(out) != len(program.outputs):
            raise ShapeError(
                f"out: got {len(out)} arrays; the epilogue has {len(program.outputs)} outputs, and out is a tuple with "
                "an array for each"
            )
        out, *further = out
        outs = tuple(further)
    precision_named(precision)
    _check_sides(a, b, precision)
    quantized = b if isinstance(b, QuantizedWeights) else None
    left, right = stored(a), right_stored(b) if quantized is None else weights(quantized, a)
    fixed, movable = (right, left) if isinstance(b, QuantizedWeights | SplitMatrix) else (left, right)
    require_same_place(fixed, movable)  # the advice is to convert what is no packed operand
    check_split(a, b, (left, right), precision)
    element = _operand_type(left, right, precision)
    accumulator = _accumulator(element, element_named(accumulate, "accumulate"))
    output = output_type(element, element_named(out_dtype, "out_dtype"), out, program)
    if output.is_float8 and not accumulator.name.startswith("float32"):
        raise DTypeError(
            f"accumulate: got {accumulator.name} with a result of {output.name}, which is made of float32 sums: leave "
            "accumulate out, or say accumulate='float32_fast' for float8 operands"
        )

    whole = replace(left, shape=a.shape) if sparse else left
    a_shape, b_shape = _promoted_shapes(whole, right)
    batch = _batch_shape(whole, right)
    (m, k), n = a_shape[-2:], b_shape[-1]
    vectors = (left.ndim == 1, right.ndim == 1)
    result_shape = batch + ((m,) if left.ndim > 1 else ()) + ((n,) if right.ndim > 1 else ())
    reads_operands = alpha != 0 and k > 0 and 0 not in result_shape

    copies: list[str] = []
    laid_out = partial(_in_layout, copies=copies, copy=copy)
    if reads_operands:
        if isinstance(a, SplitMatrix):
            a_matrices, a_operand = sliced(a, "a", copies)
        else:
            a_matrices = laid_out(_promoted(left, a_shape, column=False), ("row",) if sparse else ("row", "col"))
            a_operand = replace(_factor(a_matrices, element), sparse=sparse)
        if isinstance(b, SplitMatrix):
            b_matrices, b_operand = sliced(b, "b", copies)
        elif quantized is None:
            b_matrices = laid_out(_promoted(right, b_shape, column=True), ("row", "col"))
            b_operand = _factor(b_matrices, element)
        else:
            b_matrices, b_operand = blocks(quantized, copies), quantized_operand(quantized)
    else:
        a_matrices, b_matrices = _unread(left, (m, k)), _unread(right, (k, n))
        a_operand, b_operand = Operand(element, "row", max(k, 1)), Operand(element, "row", max(n, 1))
    c_matrices = None
    if beta != 0:
        c_matrices = _addend(c, left, output, result_shape, beta)
        c_matrices = laid_out(_with_matrix_axes(c_matrices, vectors), ("row",))
    destination = destination_of(out, left, output, result_shape)
    read = [left, right] if reads_operands else []
    fused = None
    if program is not None:
        fused = epilogue_operands(
            program, operands or {}, left, batch, (m, n, k), vectors, output, outs, accumulator=accumulator, copy=copy
        )  # fmt: skip
    by_elements = [] if c_matrices is None else [c_matrices]
    if fused is not None:
        by_elements += fused.tensors.values()
        check_apart(fused.given, destination, read, by_elements)
    target = _writable_in_place(destination, read, by_elements, vectors, copies)

    problem = Problem(
        m,
        n,
        k,
        a=a_operand,
        b=b_operand,
        c=_operand(c_matrices, output) if c_matrices else None,
        d=_operand(target, output) if target else _fresh_operand(batch, m, n, output),
        accumulator=accumulator,
        epilogue=None if fused is None else fused.fused(batch, m, n),
        ieee=precision == "ieee" and element.name == "float32",
    )
    return Product(
        problem,
        left,
        batch,
        vectors,
        result_shape,
        a_matrices.broadcast((*batch, *a_matrices.shape[-2:])),
        b_matrices.broadcast((*batch, *b_matrices.shape[-2:])),
        c_matrices,
        target,
        destination,
        tuple(copies),
        _metadata(a, batch) if sparse and reads_operands and copy else None,
        reads_operands,
        fused,
    )


def _unread(operand: ArrayView, shape: Shape) -> ArrayView:
    """One matrix of an operand that is never read."""
    return operand.relaid(shape, (0, 0))


def _metadata(a: SparseMatrix, batch: Shape) -> ArrayView:
    words = array_view.view(a.packed(), "a's metadata")
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


# --- element types -----------------------------------------------------------------------------------------------


def _operand_type(a: ArrayView, b: ArrayView, precision: str | None) -> DType:
    if a.dtype != b.dtype:
        wider = _holds_both(a.dtype, b.dtype)
        given = [array_view.cast(x.name, x.framework, wider) if x.dtype != wider else x.name for x in (a, b)]
        raise DTypeError(
            f"a is {a.dtype.name} and b is {b.dtype.name}; both operands need one type, such as {wider.name}, which "
            f"holds all values of both: matmul({', '.join(given)})"
        )
    if a.dtype.name not in OUTPUTS:
        wider = _holds_both(a.dtype, b.dtype)
        raise DTypeError(
            f"a, b: got {a.dtype.name}; matmul multiplies {', '.join(n for n in OUTPUTS if n != 'tfloat32')}; "
            f"{wider.name} holds all values of {a.dtype.name}: {array_view.cast('a', a.framework, wider)}"
        )
    if precision == "tf32":
        if a.dtype.name != "float32":
            raise DTypeError(f"precision='tf32' is for float32 operands; a is {a.dtype.name}: leave precision out")
        return DTYPES["tfloat32"]
    return a.dtype


def _holds_both(one: DType, other: DType) -> DType:
    """The first type of operands, from narrow to wide, that has every value of two others."""
    for name in ("float16", "bfloat16", "float32", "float64"):
        if _holds(DTYPES[name], one) and _holds(DTYPES[name], other):
            return DTYPES[name]
    raise AssertionError(f"float64 does not hold {one.name} and {other.name}")


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of ``narrow`` is one of ``wide``, a float."""
    if narrow.kind != "float":
        return bool(narrow.largest < 2 ** (wide.mantissa_bits + 1))
    return (
        narrow.mantissa_bits <= wide.mantissa_bits
        and narrow.largest <= wide.largest
        and narrow.min_exponent - narrow.mantissa_bits >= wide.min_exponent - wide.mantissa_bits
    )


def _accumulator(element: DType, accumulate: DType | None) -> DType:
    name = accumulate.name if accumulate else element.accumulators[0]
    if name not in element.accumulators:
        raise DTypeError(
            f"accumulate: got {name!r}; {element.name} operands accumulate in {' or '.join(element.accumulators)}"
        )
    return DTYPES[name]


def output_type(element: DType, out_dtype: DType | None, out: Any, program: Program | None) -> DType:
    """Element type of the result, as of `arrange`.

    Raises:
        DTypeError: ``out_dtype``, or the type of ``out``, is none that these operands give.
    """
    legal = OUTPUTS[element.name]
    if program is not None:
        legal = OUTPUTS_OF_INTEGERS if legal == ("int32",) else legal
        if out_dtype is None and out is None and program.types[0] is not None:
            out_dtype = DTYPES[program.types[0]]
    name = out_dtype.name if out_dtype else (array_view.view(out, "out").dtype.name if out is not None else legal[0])
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


def require_same_place(first: ArrayView, other: ArrayView) -> None:
    """Raise `LayoutError` unless both arrays are of one framework and in one memory."""
    if first.device == other.device or "jax" in (first.framework, other.framework):
        refuse_mixture(first, other)
    if first.device == other.device:
        return

    def where(operand: ArrayView) -> str:
        return "in host memory" if operand.device is None else f"on cuda:{operand.device}"

    raise LayoutError(
        f"{first.name} is {where(first)} and {other.name} is {where(other)}; both must be in one place, "
        f"such as {_brought(other, first)}"
    )


def _brought(other: ArrayView, first: ArrayView) -> str:
    """The call that brings one array to where another is."""
    if first.device is None:
        return {"cupy": f"{other.name}.get()", "cuda": f"torch.as_tensor({other.name}).cpu()"}.get(
            other.framework, f"{other.name}.cpu()"
        )
    if first.framework == "cupy":
        return f"cupy.asarray({other.name})"
    return f"torch.as_tensor({other.name}, device='cuda:{first.device}')"


def lies_by_rows(matrices: ArrayView) -> bool:
    """Whether each matrix in the last two axes has contiguous rows that do not overlap; all rows of C may be one."""
    (rows, columns), (row_stride, column_stride) = matrices.shape[-2:], matrices.strides[-2:]
    apart = rows == 1 or row_stride >= columns or (row_stride == 0 and matrices.name == "c")
    return matrices.size == 0 or ((columns == 1 or column_stride == 1) and apart)


def lies_by_columns(matrices: ArrayView) -> bool:
    """Whether each matrix in the last two axes has contiguous columns that do not overlap."""
    return lies_by_rows(
        matrices.relaid(
            (*matrices.shape[:-2], *matrices.shape[:-3:-1]), (*matrices.strides[:-2], *matrices.strides[:-3:-1])
        )
    )


def _in_layout(matrices: ArrayView, layouts: tuple[str, ...], copies: list[str], copy: bool) -> ArrayView:
    """``matrices`` where the kernels can read them as they lie, else a copy; without ``copy`` its layout alone."""
    if not matrices.negated and (lies_by_rows(matrices) or ("col" in layouts and lies_by_columns(matrices))):
        return matrices
    rows, columns = matrices.shape[-2:]
    if matrices.negated:
        stored = "negated (torch's negative bit)"
    elif lies_by_columns(matrices):
        stored = "stored by columns"
    else:
        stored = f"laid out with strides {matrices.strides[-2:]}"
    copies.append(
        f"{matrices.name} ({rows} x {columns}) is {stored}; the kernels read it by rows"
        f"{' or by columns' if 'col' in layouts else ''}: "
        f"copied once, {matrices.size * matrices.element_bytes} bytes"
    )
    return array_view.contiguous(matrices) if copy else array_view.contiguous_layout(matrices)


def _major(matrices: ArrayView) -> str:
    """By rows where it can be read so; but a B of a single column as that column, so that its loads can be wide."""
    single_column = matrices.name == "b" and matrices.shape[-1] == 1 and lies_by_columns(matrices)
    return "col" if single_column or not lies_by_rows(matrices) else "row"


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


def _factor(matrices: ArrayView, element: DType) -> Operand:
    """A or B. Of a single row (column) the leading dimension is free: it becomes a whole number of 16 bytes.

    Kernels copy whole tiles, and of rows (columns) past the last one zero bytes. A ``cp.async`` that reads nothing
    still needs an aligned address (PTX ISA, "cp.async"), which is the leading dimension away from the last one.
    """
    operand = _operand(matrices, element)
    lines = matrices.shape[-2] if operand.major == "row" else matrices.shape[-1]
    if lines > 1:
        return operand
    elements = MAX_ALIGNMENT_BYTES // matrices.element_bytes
    return replace(operand, leading_dimension=-(-operand.leading_dimension // elements) * elements)


def _fresh_operand(batch: Shape, m: int, n: int, output: DType) -> Operand:
    """A result that is yet to be allocated: row-major without gaps, at an address of 16 bytes or better."""
    row_bytes = n * output.bits // 8
    distances = ([row_bytes] if m > 1 else []) + ([m * row_bytes] if batch else [])
    return Operand(output, "row", max(n, 1), alignment_of(*distances))


# --- C and D -------------------------------------------------------------------------------------------------------


def _addend(c: Any, a: ArrayView, output: DType, shape: Shape, beta: float) -> ArrayView:
    if c is None:
        raise ShapeError(f"c: got None with beta={beta}; give c of shape {shape}, or leave beta at 0")
    addend = array_view.view(c, "c")
    require_same_place(a, addend)
    if addend.dtype != output:
        wanted = array_view.cast("c", addend.framework, output)
        raise DTypeError(
            f"c is {addend.dtype.name} and the result is {output.name}; they need one type: "
            f"{'with scale_d=1 it is added in its own' if output.is_float8 else wanted}"
        )
    return addend.broadcast(shape)


def destination_of(out: Any, a: ArrayView, output: DType, shape: Shape) -> ArrayView | None:
    """The caller's ``out``, checked to be a writable place for a result of that type and shape; None without one.

    Raises:
        ShapeError: another shape.
        DTypeError: another type.
        LayoutError: another place, read-only memory, or elements that share memory.
    """
    if out is None:
        return None
    destination = array_view.view(out, "out")
    require_same_place(a, destination)
    if destination.shape != shape:
        raise ShapeError(
            f"out: got shape {destination.shape}; the result has shape {shape}, such as "
            f"out={array_view.empty_call(a, shape, output)}"
        )
    if destination.dtype != output:
        raise DTypeError(f"out is {destination.dtype.name} and out_dtype is {output.name}; leave one of them out")
    if destination.read_only:
        remedy = "leave it out" if destination.framework == "jax" else "give a writable array, such as out=out.copy()"
        raise LayoutError(f"out: its memory is read-only; {remedy}")
    if destination.overlaps_itself():
        raise LayoutError(
            f"out: with shape {shape} and strides {destination.strides} some of its elements share memory; each "
            f"needs its own, such as out={'out.clone()' if destination.framework == 'torch' else 'out.copy()'}"
        )
    return destination


def _writable_in_place(
    destination: ArrayView | None,
    operands: list[ArrayView],
    by_elements: list[ArrayView],
    vectors: tuple[bool, bool],
    copies: list[str],
) -> ArrayView | None:
    """``destination`` as matrices when a kernel may write straight into it, else None.

    What is read for an element of D alone, ``by_elements``, may be where that element is.
    """
    if destination is None:
        return None
    matrices = _with_matrix_axes(destination, vectors)
    read = operands + [each for each in by_elements if not each.is_same_memory(matrices)]
    shared = [operand.name for operand in read if operand.overlaps(matrices)]
    if lies_by_rows(matrices) and not shared and not matrices.negated:
        return matrices
    if shared:
        reason = f"shares memory with {' and '.join(shared)}"
    else:
        reason = "is negated (torch's negative bit)" if matrices.negated else f"has strides {matrices.strides[-2:]}"
    copies.append(f"out {reason}: the result is made apart and copied into it")
    return None
