"""The operands of an epilogue: a call's named arrays and numbers, broadcast to the result, and its further outputs."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from warptile.arrays import array_view
from warptile.arrays.array_view import ArrayView, Shape, row_major
from warptile.arrays.mixtures import refuse_mixture
from warptile.arrays.options import number, refuse_unknown
from warptile.arrays.reductions import partials_of
from warptile.dtypes import DTYPES, DType
from warptile.epilogue.epilogue_program import BLOCKS_OF_A, Program, Reduction
from warptile.epilogue.expressions import CAST_TYPES
from warptile.epilogue.fused_epilogue import OPERAND, OUTPUT, Fused, Layout
from warptile.epilogue.tracing import operand_names
from warptile.errors import DTypeError, EpilogueError, LayoutError, ShapeError
from warptile.problem import alignment_of

FRESH = 256
"""Alignment in bytes of memory that a framework allocates, or better."""


SCALE_OF_A, SCALE_OF_B, ADDEND, ADDEND_FACTOR = "scale_of_a", "scale_of_b", "scaled_call_c", "scaled_call_beta"
SCALE_OF_D = "scale_of_d"
"""Operands of the epilogue that a call with scales in arrays becomes (`warptile.calls.scaled_call`)."""

KEYWORD_OF = {SCALE_OF_A: "scale_a", SCALE_OF_B: "scale_b", SCALE_OF_D: "scale_d", ADDEND: "c", ADDEND_FACTOR: "beta"}
"""The keywords that they were given by, for messages."""


@dataclass(frozen=True)
class EpilogueOperands:
    """What an epilogue reads and writes in one call.

    Attributes:
        program: the traced epilogue.
        tensors: each operand in memory, (\\*batch, m, n) with stride 0 where it repeats, or one element for each block
            of the result; scales of blocks of A (of B) have one for each of these.
        numbers: operands that are numbers.
        types: element type of each output after the first.
        given: arrays for these outputs that the caller gave; empty where they are to be made.
        reductions: for each of these outputs its reduction, or None.
    """

    program: Program
    tensors: Mapping[str, ArrayView]
    numbers: Mapping[str, float]
    types: tuple[DType, ...]
    given: tuple[ArrayView, ...] = ()
    reductions: tuple[Reduction | None, ...] = ()

    def fused(self, batch: Shape, m: int, n: int) -> Fused:
        """The epilogue of one matrix of the batch."""
        return Fused(
            self.program,
            tuple((name, layout_of(each)) for name, each in self.tensors.items()),
            tuple(self.numbers),
            tuple(layout_of(each) for each in self.given)
            if self.given
            else tuple(
                _fresh_layout(batch, m, n, dtype) if how is None else partials_of(how, dtype)
                for dtype, how in zip(self.types, self.reductions, strict=True)
            ),
        )

    def shapes(self, whole: Shape, batch: Shape, m: int, n: int, seen: Fused | None) -> tuple[Shape, ...]:
        """Shapes of the outputs after the first, ``whole`` or, of reductions, those of their partials.

        Args:
            whole: shape of the result.
            batch, m, n: its matrices.
            seen: the epilogue as the kernel has it, which says how partials are blocked; None where there is no kernel.
        """
        block = 1 if seen is None else seen.block
        return tuple(
            whole if how is None else (*batch, *partials_of(how, dtype).shape(m, n, block))
            for dtype, how in zip(self.types, self.reductions, strict=True)
        )

    def named(self, outputs: tuple[ArrayView, ...]) -> dict[str, ArrayView]:
        """All of these operands by their names in a launch."""
        found = {f"{OPERAND} {name}": each for name, each in self.tensors.items()}
        return found | {f"{OUTPUT} {index}": each for index, each in enumerate(outputs, 1)}


def epilogue_operands(
    program: Program,
    given: Mapping[str, Any],
    like: ArrayView,
    batch: Shape,
    extents: tuple[int, int, int],
    vectors: tuple[bool, bool],
    output: DType,
    outs: tuple[Any, ...],
    *,
    accumulator: DType,
    copy: bool,
) -> EpilogueOperands:
    """The named operands of a call, checked against its result.

    Args:
        program: the traced epilogue.
        given: arrays, or numbers, by name.
        like: the caller's ``a``: all arrays are where it is.
        batch: leading axes of the result.
        extents: M, N and K.
        vectors: whether a and b are 1-D, so that the result lacks an axis.
        output: type of outputs whose type the epilogue leaves open.
        outs: arrays for the outputs after the first; empty where they are to be made.
        accumulator: type of the sums, which with float64 is that of reductions; else float32.
        copy: make copies of arrays that no kernel can read in place. Without, their layout is described alone.

    Raises:
        EpilogueError: an operand used both by elements and by blocks.
        ShapeError, DTypeError, LayoutError: an operand of another shape, type or place than it can have.
    """
    if program.seeds and batch:
        raise EpilogueError(
            "epilogue: random numbers are numbered by row and column of one matrix, and this is a batch of shape "
            f"{batch}; make it rows: matmul(a.reshape(-1, a.shape[-1]), b, ...)"
        )
    m, n, k = extents
    scaled = {
        name: ((m, k) if side == BLOCKS_OF_A else (k, n), block)
        for side, (name, *block) in program.block_scales.items()
    }
    blocks: dict[str, tuple[int, int]] = {}
    for name, rows, columns in program.tensors:
        if blocks.setdefault(name, (rows, columns)) != (rows, columns):
            raise EpilogueError(
                f"epilogue: it uses {name!r} in blocks of {blocks[name]} and of {(rows, columns)}; give it twice, by "
                f"two names"
            )
    tensors: dict[str, ArrayView] = {}
    found: dict[str, float] = {}
    for name, value in given.items():
        if name in program.seeds:
            found[name] = _seed(name, value)
        elif _is_number(value):
            if blocks[name] != (1, 1):
                raise ShapeError(f"{name}: got a number; per_block takes an array of one element for each block")
            found[name] = float(number(value, name))
        else:
            view = _readable(array_view.view(value, KEYWORD_OF.get(name, name)), like, copy)
            if name in scaled:
                extents_of, block = scaled[name]
                said = f"scales of blocks of {block[0]} x {block[1]} of a matrix"
                tensors[name] = _of_blocks(view, extents_of, block, batch, said)
            else:
                tensors[name] = _placed(view, blocks[name], batch, (m, n), vectors)
    reductions = program.output_reductions[1:]
    reduced = DTYPES["float64" if accumulator.name == "float64" else "float32"]
    types = tuple(
        (DTYPES[each] if each else output) if how is None else reduced
        for each, how in zip(program.types[1:], reductions, strict=True)
    )
    if any(reductions):
        check_matrices(vectors)
        if outs:
            raise EpilogueError(
                f"out: got {1 + len(outs)} arrays; where rows or columns are reduced, as for amax, further outputs are "
                f"made by the call: give the array of the result alone, as in out=d"
            )
    made = [
        _further(value, index, like, batch, (m, n), vectors, types[index - 1]) for index, value in enumerate(outs, 1)
    ]
    return EpilogueOperands(program, tensors, found, types, tuple(made), reductions)


def check_names(function: str, keywords: Sequence[str], epilogue: Callable[..., Any], given: Iterable[str]) -> None:
    """Raise where what is no keyword of a function is no operand of the epilogue either.

    Args:
        function: its name.
        keywords: those that it takes beside operands.
        epilogue: as the caller gave it.
        given: names of what the caller gives beside the keywords.

    Raises:
        EpilogueError: an operand with the name of a keyword.
        ArgumentTypeError: a name that neither has.
    """
    names = operand_names(epilogue)
    taken = [name for name in names if name in keywords]
    if taken:
        raise EpilogueError(
            f"epilogue: its operand {taken[0]!r} has the name of an argument of {function}; give it another one"
        )
    refuse_unknown(function, (*names, *keywords), {name: 0 for name in given if name not in names})


def check_matrices(vectors: tuple[bool, bool]) -> None:
    """Raise where an epilogue with reductions is given vectors.

    Args:
        vectors: whether a and b are 1-D.

    Raises:
        EpilogueError: one of them is.
    """
    if any(vectors):
        raise EpilogueError(
            "epilogue: its reductions go over rows and columns of the result, and one of a and b is 1-D; give "
            f"{'a.reshape(1, -1)' if vectors[0] else 'b.reshape(-1, 1)'}"
        )


def check_apart(
    given: Sequence[ArrayView], d: ArrayView | None, read: Sequence[ArrayView], by_elements: Sequence[ArrayView]
) -> None:
    """Raise unless outputs after the first can be written where they are while the operands are read.

    Args:
        given: the caller's arrays for these outputs.
        d: that for the first one, or None.
        read: operands whose elements are read for other elements of the result, too.
        by_elements: operands that are read for one element of the result, which may be where that is written.

    Raises:
        LayoutError: an output that shares memory with another array.
    """
    for index, output in enumerate(given):
        others = [*([] if d is None else [d]), *given[:index], *read]
        others += [each for each in by_elements if not each.is_same_memory(output)]
        shared = [each.name for each in others if each.overlaps(output)]
        if shared:
            copy = f"{output.name}.clone()" if output.framework == "torch" else f"{output.name}.copy()"
            raise LayoutError(
                f"{output.name}: it shares memory with {' and '.join(shared)}; the kernel writes it while these are "
                f"read or written: give memory of its own, such as {copy}"
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, (numbers.Real, np.number)) and not isinstance(value, bool)


def _seed(name: str, value: Any) -> int:
    try:
        seed = int(value) if isinstance(value, np.integer) else value
    except (TypeError, ValueError):
        seed = None
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**64:
        raise EpilogueError(f"{name}: got {value!r}; a seed is a whole number from 0 to 2**64 - 1, such as {name}=1234")
    return seed


def _readable(view: ArrayView, like: ArrayView, copy: bool) -> ArrayView:
    """An operand where a kernel can read it: at addresses from its first element on, in the place of ``a``."""
    if view.dtype.name not in CAST_TYPES:
        wanted = array_view.cast(view.name, view.framework, DTYPES["float32"])
        raise DTypeError(
            f"{view.name}: got {view.dtype.name}; operands of an epilogue are {', '.join(CAST_TYPES)}: give {wanted}"
        )
    refuse_mixture(like, view)
    if view.device != like.device:
        where = {True: "in host memory", False: f"on cuda:{view.device}"}[view.device is None]
        there = "in host memory" if like.device is None else f"on cuda:{like.device}"
        raise LayoutError(f"{view.name} is {where} and a is {there}; both must be in one place")
    if view.negated or any(stride < 0 for stride in view.strides):
        return array_view.contiguous(view) if copy else array_view.contiguous_layout(view)
    return view


def _placed(
    view: ArrayView, block: tuple[int, int], batch: Shape, extents: tuple[int, int], vectors: tuple[bool, bool]
) -> ArrayView:
    """An operand as (\\*batch, rows, columns) of D, or of its blocks."""
    if block != (1, 1):
        return _of_blocks(view, extents, block, batch, f"per_block({view.name}, {block[0]}, {block[1]}) and a result")
    a_was_vector, b_was_vector = vectors
    m, n = extents
    result = (*batch, *(() if a_was_vector else (m,)), *(() if b_was_vector else (n,)))
    if view.ndim == 1 and not b_was_vector and view.shape == (m,) != (n,) and m != 1 and not a_was_vector:
        raise ShapeError(
            f"{view.name}: got shape {view.shape}, which would go along rows of the result {result}; one element for "
            f"each row is {view.name}.reshape({m}, 1)"
        )
    return _with_axes(view.broadcast(result), vectors)


def _of_blocks(view: ArrayView, extents: tuple[int, int], block: Sequence[int], batch: Shape, said: str) -> ArrayView:
    """An operand with one element for each block of a matrix, which ``said`` names in a message."""
    shape = tuple(-(-extent // size) for extent, size in zip(extents, block, strict=True))
    if view.shape[-2:] != shape:
        raise ShapeError(
            f"{view.name}: got shape {view.shape}; with {said} of {extents[0]} x {extents[1]} it needs {shape}"
        )
    return view.broadcast((*batch, *shape))


def _with_axes(view: ArrayView, vectors: tuple[bool, bool]) -> ArrayView:
    """The axes of extent 1 that a result of 1-D operands lacks."""
    shape, strides = list(view.shape), list(view.strides)
    if vectors[1]:
        shape.append(1)
        strides.append(1)
    if vectors[0]:
        shape.insert(len(shape) - 1, 1)
        strides.insert(len(strides) - 1, 0)
    return view.relaid(tuple(shape), tuple(strides))


def _further(
    value: Any,
    index: int,
    like: ArrayView,
    batch: Shape,
    extents: tuple[int, int],
    vectors: tuple[bool, bool],
    dtype: DType,
) -> ArrayView:
    """An array that the caller gives for an output after the first."""
    name = f"out[{index}]"
    view = _readable(array_view.view(value, name), like, copy=False)
    m, n = extents
    shape = (*batch, *(() if vectors[0] else (m,)), *(() if vectors[1] else (n,)))
    if view.shape != shape:
        raise ShapeError(f"{name}: got shape {view.shape}; the result has shape {shape}")
    if view.dtype != dtype:
        raise DTypeError(
            f"{name} is {view.dtype.name} and that output is {dtype.name}; write cast(x, '{view.dtype.name}')"
        )
    if view.read_only or view.overlaps_itself() or view.pointer != array_view.view(value, name).pointer:
        raise LayoutError(f"{name}: it cannot be written in place; leave out= away, or give a contiguous array")
    return _with_axes(view, vectors)


def layout_of(view: ArrayView) -> Layout:
    """The layout of a matrix of a batch. Along an axis of extent 1 it repeats."""
    (rows, columns), (row_stride, column_stride) = view.shape[-2:], view.strides[-2:]
    row_stride, column_stride = row_stride * (rows > 1), column_stride * (columns > 1)
    size = view.element_bytes
    distances = [stride for extent, stride in zip(view.shape[:-2], view.strides[:-2], strict=True) if extent > 1]
    distances += [stride for stride in (row_stride, column_stride) if stride != 1]
    if row_stride == column_stride == 1:  # each row begins an element further on
        distances.append(1)
    return Layout(
        view.dtype, row_stride, column_stride, alignment_of(view.pointer, *(distance * size for distance in distances))
    )


def _fresh_layout(batch: Shape, m: int, n: int, dtype: DType) -> Layout:
    """An output that is yet to be allocated: row-major without gaps."""
    shape = (*batch, m, n)
    view = ArrayView("out", None, "numpy", FRESH, shape, row_major(shape), dtype)
    return layout_of(view)
