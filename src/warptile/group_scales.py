"""Scales of the operands of a grouped GEMM, as an epilogue of it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any

from warptile.arrays import array_view
from warptile.arrays.array_view import ArrayView
from warptile.arrays.epilogue_operands import SCALE_OF_A, SCALE_OF_B
from warptile.arrays.operands import require_same_place
from warptile.arrays.options import number
from warptile.calls.scaled_call import WIDE, is_number
from warptile.dtypes import DTYPES
from warptile.epilogue.epilogue_program import BLOCKS_OF_A, BLOCKS_OF_B, SCALE_K, Program
from warptile.epilogue.fused_epilogue import OPERAND, Fused, Layout
from warptile.epilogue.tracing import scaled_by_blocks, trace
from warptile.errors import DTypeError, ShapeError
from warptile.problem import alignment_of

TYPES = ("float32", "float16", "bfloat16")
"""Element types of scales in arrays."""


@dataclass(frozen=True)
class GroupScales:
    """Scales of both operands.

    Attributes:
        factor: the product of those that are numbers.
        fused: the epilogue that multiplies by the others, or None.
        operands: these, by their names in a launch.
    """

    factor: float = 1.0
    fused: Fused | None = None
    operands: Mapping[str, ArrayView] = field(default_factory=dict)


NO_SCALES = GroupScales()


Extents = tuple[int, int, int, int]
"""Rows of ``a``, columns of each group's ``b``, groups, and K."""


def group_scales(a: ArrayView, scales: tuple[Any, Any], extents: Extents) -> GroupScales:
    """The scales of a call of `warptile.matmul_grouped`.

    Args:
        a: the operand.
        scales: ``scale_a`` and ``scale_b``, None for none.
        extents: of the operands.

    Raises:
        DTypeError: operands of more than 8 bits, or scales that are no floats.
        ShapeError: a shape that scales do not have.
        LayoutError: scales in another place than ``a``.
    """
    factor = 1.0
    tensors: dict[str, tuple[ArrayView, Layout, int]] = {}
    for name, operand, scale in (("scale_a", SCALE_OF_A, scales[0]), ("scale_b", SCALE_OF_B, scales[1])):
        if scale is None:
            continue
        if not a.dtype.is_float8:
            raise DTypeError(
                f"{name}: it is for operands of 8-bit floats; a is {a.dtype.name}: leave it out, and scale the result"
            )
        if is_number(scale):
            factor *= number(scale, name)
        else:
            tensors[operand] = _placed(_readable(scale, name, a), extents)
    if not tensors:
        return GroupScales(factor) if factor != 1 else NO_SCALES
    kinds = tuple((name, lines) for name, (_, _, lines) in tensors.items())
    fused = Fused(_program(kinds), tuple((name, layout) for name, (_, layout, _) in tensors.items()))
    return GroupScales(factor, fused, {f"{OPERAND} {name}": view for name, (view, _, _) in tensors.items()})


def _readable(scale: Any, name: str, a: ArrayView) -> ArrayView:
    view = array_view.view(scale, name)
    if view.dtype.name not in TYPES:
        raise DTypeError(
            f"{name}: got {view.dtype.name}; scales are {', '.join(TYPES)}: give "
            f"{array_view.cast(name, view.framework, DTYPES['float32'])}"
        )
    require_same_place(a, view)
    return array_view.contiguous(view) if view.negated or any(each < 0 for each in view.strides) else view


def _placed(view: ArrayView, extents: Extents) -> tuple[ArrayView, Layout, int]:
    """Scales; how far those of the next row, column and group are, 0 where they are the same, or those of the next
    block of these; and rows of A, or columns of B, of a block along K, 0 where there are none."""
    rows, columns, groups, k = extents
    shape, strides, blocks = view.shape, view.strides, -(-k // SCALE_K)
    row, column, group, lines = 0, 0, 0, 0
    if prod(shape) == 1 and (view.ndim < 2 or blocks > 1):
        pass
    elif view.name == "scale_a" and shape in ((rows,), (rows, 1)):
        row = strides[0]
    elif view.name == "scale_a" and shape == (rows, blocks):
        row, column, lines = strides[0], strides[1], 1
    elif view.name == "scale_b" and shape == (groups,):
        group = strides[0]
    elif view.name == "scale_b" and shape in ((groups, columns), (groups, 1, columns)):
        group, column = strides[0], strides[-1] * (columns > 1)
    elif view.name == "scale_b" and shape in ((groups, blocks, columns), (groups, blocks, -(-columns // WIDE))):
        group, row, column = strides
        lines = 1 if shape[2] == columns else WIDE
    elif prod(shape) != 1:
        raise ShapeError(_shape_text(view, extents))
    distances = [each for each in (row, column, group) if each != 1]
    aligned = alignment_of(view.pointer, *(each * view.element_bytes for each in distances))
    if 1 in (row, group):  # each begins an element further on
        aligned = alignment_of(aligned, view.element_bytes)
    return view, Layout(view.dtype, row, column, aligned, batch_stride=group), lines


def _shape_text(view: ArrayView, extents: Extents) -> str:
    rows, columns, groups, k = extents
    blocks = -(-k // SCALE_K)
    if view.name == "scale_a":
        return (
            f"scale_a: got shape {view.shape}; for {rows} rows it has one element, one for each row, ({rows},) or "
            f"({rows}, 1), or one for each {SCALE_K} along K of a row ({rows}, {blocks}), such as "
            f"scale_a=numpy.ones({rows}, 'float32')"
        )
    return (
        f"scale_b: got shape {view.shape}; for {groups} groups of {columns} columns it has one element, one for each "
        f"group ({groups},), for each column of each group ({groups}, {columns}), for each {SCALE_K} along K of a "
        f"column ({groups}, {blocks}, {columns}), or for each block of {SCALE_K} x {WIDE} "
        f"({groups}, {blocks}, {-(-columns // WIDE)}), such as scale_b=numpy.ones({groups}, 'float32')"
    )


@lru_cache(maxsize=64)
def _program(kinds: tuple[tuple[str, int], ...]) -> Program:
    """The epilogue that multiplies by operands of these names, or whose mainloop does where they are of blocks of so
    many rows of A, or columns of B."""

    def scaled(acc: Any, **given: Any) -> Any:
        for name, lines in kinds:
            if lines and name == SCALE_OF_A:
                acc = scaled_by_blocks(acc, given[name], BLOCKS_OF_A, lines, SCALE_K)
            elif lines:
                acc = scaled_by_blocks(acc, given[name], BLOCKS_OF_B, SCALE_K, lines)
        for name, lines in kinds:
            acc = acc if lines else acc * given[name]
        return acc

    parameter = inspect.Parameter
    parameters = [parameter("acc", parameter.POSITIONAL_ONLY)]
    parameters += [parameter(name, parameter.KEYWORD_ONLY) for name, _ in kinds]
    scaled.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return trace(scaled, {name: 0 for name, _ in kinds})
