"""Tensor maps of the wgmma family: of A and B, whose boxes fill a pipeline stage, and of D."""

from __future__ import annotations

from dataclasses import replace

from warptile.epilogue.fused_epilogue import OPERAND, OUTPUT
from warptile.launch.tensor_map import TensorMap
from warptile.problem import MAX_ALIGNMENT_BYTES, Problem
from warptile.rungs.kernel_spec import Config, View, stored_d
from warptile.rungs.tensor_tiles import round_up
from warptile.rungs.tma import batch_dimension, map_type, operand_map
from warptile.rungs.wgmma.residue_classes import RESIDUE_CLASSES, by_residue_class, stores_by_tma
from warptile.rungs.wgmma.tiles import (
    ROW_BYTES,
    EpilogueSubtiles,
    SmemTile,
    smem_tiles,
    stages_epilogue,
    stored_k,
)

SWIZZLE = f"{ROW_BYTES}B"
"""Of operands in shared memory."""


def operand_maps(found: View, config: Config, subtile: EpilogueSubtiles) -> tuple[TensorMap, TensorMap, TensorMap]:
    """The tensor maps of A and B, and of D; where TMA cannot store D, A's stands in for it and is not used."""
    seen = found.problem
    part_a, part_b = smem_tiles(seen, config)
    lines_a = (stored_k(seen), seen.m) if part_a.k_major else (seen.m, seen.k)
    lines_b = (seen.k, seen.n) if part_b.k_major else (seen.n, seen.k)
    at_once_a = part_a.lines_loaded_at_once(config.get("CN", 1))
    at_once_b = part_b.lines_loaded_at_once(config.get("CM", 1))
    if part_a.unaligned:
        a = residue_class_map(found.a, seen, part_a, 0)
    else:
        a = operand_map(found.a, seen.a, lines_a, (part_a.row_units, at_once_a), SWIZZLE, seen.batch)
    b = operand_map(found.b, seen.b, lines_b, (part_b.row_units, at_once_b), SWIZZLE, seen.batch)
    return a, b, output_map(seen, config, subtile) if stores_by_tma(seen, config) else a


def last_panel_map(whole: TensorMap, part: SmemTile) -> TensorMap | None:
    """The tensor map of the last panel of an operand, where that is narrower than the others, whose map is given."""
    return whole.with_smaller_box((part.last_row_units, *whole.box[1:])) if part.has_narrow_panel else None


def rest_map(whole: TensorMap, part: SmemTile, extent: int) -> TensorMap:
    """The tensor map of what is inside of the box that lies across the end of an operand with ``extent`` rows of A or
    columns of B; that of ``whole`` boxes where none does. In a cluster boxes are what one CTA loads."""
    inside = extent % part.extent
    if inside == 0:
        return whole
    row, lines, *one = whole.box
    if part.k_major:
        box = (row, inside % lines or lines, *one)
    else:
        sixteen_bytes = MAX_ALIGNMENT_BYTES // part.unit_bytes
        box = (round_up(inside % row, sixteen_bytes) or row, lines, *one)
    return whole.with_smaller_box(box)


def residue_class_map(name: str, seen: Problem, part: SmemTile, number: int) -> TensorMap:
    """The tensor map of the lines of A whose index is ``number`` modulo `RESIDUE_CLASSES`; if no rows have it, one of
    others, which is not used."""
    along, lines = (seen.k, seen.m) if part.k_major else (seen.m, seen.k)
    first = number % lines
    pitch_bytes = seen.a.leading_dimension * part.unit_bytes
    return TensorMap(
        name,
        map_type(seen.a),
        dims=(along, -(-(lines - first) // RESIDUE_CLASSES)),
        strides_bytes=(RESIDUE_CLASSES * pitch_bytes,),
        box=(part.row_units, part.lines // RESIDUE_CLASSES),
        l2_promotion="128B",
        offset_bytes=first * pitch_bytes,
        any_start=True,
    )


def other_residue_class_maps(found: View, config: Config) -> tuple[TensorMap, ...]:
    """The tensor maps of all residue classes of rows but the first, for an unaligned A."""
    part = smem_tiles(found.problem, config)[0]
    if not part.unaligned:
        return ()
    return tuple(residue_class_map(found.a, found.problem, part, number) for number in range(1, RESIDUE_CLASSES))


def epilogue_maps(seen: Problem, config: Config, subtile: EpilogueSubtiles) -> tuple[tuple[str, TensorMap], ...]:
    """Members of ``EpilogueMaps``: maps of matrices of the epilogue that are laid out as D is, in boxes as D's; none if
    the kernel does not stage them."""
    fused = seen.epilogue
    if fused is None or not stages_epilogue(seen, config):
        return ()
    like, d = output_map(seen, config, subtile), stored_d(seen)
    layouts = [(f"{OPERAND} {name}", fused.layouts[name]) for name in fused.staged(d)]
    kept = fused.kept(d)
    if kept is not None:
        number, layout = kept
        layouts.append((f"{OUTPUT} {number}", layout))
    found = []
    for index, (name, layout) in enumerate(layouts):
        size, lines = layout.dtype.bits // 8, layout.row_stride if seen.d.major == "row" else layout.column_stride
        matrices: tuple[int, ...] = ()
        strides: tuple[int, ...] = (size * lines,)
        if seen.batch > 1:
            matrices = (seen.batch if layout.batch_stride else 1,)
            strides = (size * lines, size * (layout.batch_stride or lines))
        map_of_matrix = replace(like, operand=name, dims=(*like.dims[:2], *matrices), strides_bytes=strides)
        found.append((f"of_epilogue[{index}]", map_of_matrix))
    return tuple(found)


def output_map(seen: Problem, config: Config, subtile: EpilogueSubtiles) -> TensorMap:
    """The tensor map of D. By residue class, a line of the map is one row of each class, one after the other."""
    row_major = seen.d.major == "row"
    line, lines = (seen.n, seen.m) if row_major else (seen.m, seen.n)
    matrices, strides, one = batch_dimension(seen.d, seen.batch)
    split = by_residue_class(seen, config)
    if split:
        line, matrices, strides, one = (
            seen.d.leading_dimension,
            (),
            (seen.d.leading_dimension * subtile.element_bytes,),
            (),
        )
    return TensorMap(
        "D",
        map_type(seen.d),
        dims=(line, lines, *matrices),
        strides_bytes=strides,
        box=(*subtile.box, *one),
        swizzle=subtile.swizzle,
        any_start=split,
    )
