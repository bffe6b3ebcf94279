"""Tensor maps of the wgmma family: of A and B, whose boxes fill a stage, and of D."""

from __future__ import annotations

from warptile.launch import Argument, TensorMap
from warptile.problem import MAX_ALIGNMENT_BYTES, Operand, Problem
from warptile.rungs.rung import Config, View
from warptile.rungs.tensor_tiles import round_up
from warptile.rungs.wgmma_classes import CLASSES, by_tma, in_classes
from warptile.rungs.wgmma_tiles import ROW_BYTES, Output, Panels, panels, stored_k

MAP_TYPES = {16: {"f16": "f16", "bf16": "bf16"}, 32: {"tf32": "tf32", "f32": "f32", "s32": "s32"}}
"""Type of a tensor map's elements by bits and PTX's name; units of a byte, whatever they hold, are ``u8``.
``tf32`` operands are rounded to 11 significant bits, to nearest, on their way."""


def _map_type(operand: Operand) -> str:
    return MAP_TYPES.get(operand.dtype.bits, {}).get(operand.dtype.ptx, "u8")


def operand_map(
    name: str, operand: Operand, extents: tuple[int, int], part: Panels, shares: int, batch: int = 1
) -> TensorMap:
    """The tensor map of A or B.

    Args:
        name: whose memory.
        operand: how it lies.
        extents: elements of a line, and lines.
        part: what a stage holds of it.
        shares: blocks that load a part of the lines each.
        batch: matrices of the batch; with more than one a third dimension counts them.
    """
    packed = max(1, 8 // operand.dtype.bits)
    line, lines = extents
    matrices, strides, one = _batch_dimension(operand, batch)
    return TensorMap(
        name,
        _map_type(operand),
        dims=(max(-(-line // packed), 1), max(lines, 1), *matrices),
        strides_bytes=strides,
        box=(part.row, part.lines // shares, *one),
        swizzle=f"{ROW_BYTES}B",
        l2_promotion="128B",
    )


def _batch_dimension(operand: Operand, batch: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Matrices, bytes from line to line and from matrix to matrix, and matrices of a box. What is the only one of its
    kind, a line or a matrix that all products share, may be at any distance from the next."""
    line_bytes = round_up(operand.leading_dimension * operand.dtype.bits // 8, MAX_ALIGNMENT_BYTES)
    if batch == 1:
        return (), (line_bytes,), ()
    if operand.batch_stride == 0:
        return (1,), (line_bytes, line_bytes), (1,)
    return (batch,), (line_bytes, operand.batch_stride * operand.dtype.bits // 8), (1,)


def operand_maps(found: View, config: Config) -> tuple[Argument, ...]:
    """The tensor maps of A and B, and of D; where TMA cannot store D, A's stands in for it and is not used."""
    seen = found.problem
    part_a, part_b = panels(seen, config)
    lines_a = (stored_k(seen), seen.m) if part_a.k_major else (seen.m, seen.k)
    lines_b = (seen.k, seen.n) if part_b.k_major else (seen.n, seen.k)
    if part_a.any_start:
        a = class_map(found.a, seen, part_a, 0)
    else:
        a = operand_map(found.a, seen.a, lines_a, part_a, config.get("CN", 1), seen.batch)
    b = operand_map(found.b, seen.b, lines_b, part_b, config.get("CM", 1), seen.batch)
    return a, b, output_map(seen, config) if by_tma(seen, config) else a


def class_map(name: str, seen: Problem, part: Panels, number: int) -> TensorMap:
    """The tensor map of the rows of A whose remainder by `CLASSES` is ``number``; of other rows, which nothing uses, if
    there are none."""
    first = number % seen.m
    pitch_bytes = seen.a.leading_dimension * part.unit
    return TensorMap(
        name,
        _map_type(seen.a),
        dims=(seen.k, -(-(seen.m - first) // CLASSES)),
        strides_bytes=(CLASSES * pitch_bytes,),
        box=(part.row, part.lines // CLASSES),
        l2_promotion="128B",
        offset_bytes=first * pitch_bytes,
        any_start=True,
    )


def other_class_maps(found: View, config: Config) -> tuple[TensorMap, ...]:
    """Those of all classes but the first, where rows of A begin at any element."""
    part = panels(found.problem, config)[0]
    if not part.any_start:
        return ()
    return tuple(class_map(found.a, found.problem, part, number) for number in range(1, CLASSES))


def output_map(seen: Problem, config: Config) -> TensorMap:
    """The tensor map of D. Of one in classes a row is a row of each class, one behind the other."""
    row_major = seen.d.major == "row"
    output = Output.of(seen, config)
    line, lines = (seen.n, seen.m) if row_major else (seen.m, seen.n)
    matrices, strides, one = _batch_dimension(seen.d, seen.batch)
    classes = in_classes(seen, config)
    if classes:
        line, matrices, strides, one = (
            seen.d.leading_dimension,
            (),
            (seen.d.leading_dimension * output.element_bytes,),
            (),
        )
    return TensorMap(
        "D",
        _map_type(seen.d),
        dims=(line, lines, *matrices),
        strides_bytes=strides,
        box=(*output.box, *one),
        swizzle=output.swizzle,
        any_start=classes,
    )
