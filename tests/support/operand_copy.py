"""Repacked operands as tests on both executors make them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from warptile.codegen.translation_unit import Source
from warptile.launch.params import Pointer
from warptile.launch.spec import LaunchSpec
from warptile.problem import alignment_of, padded_stride
from warptile.rungs.repack import FILE, Repack, name_expression, repacked_name

UNITS = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def copy(
    lines: int, units: int, stride: int, unit_bytes: int, transposed: bool, offset_units: int = 0, name: str = "A"
) -> Repack:
    """Repacking of a source that starts ``offset_units`` units after a multiple of 16 bytes."""
    target_stride = padded_stride(lines if transposed else units, unit_bytes)
    alignment_bytes = alignment_of(stride * unit_bytes, offset_units * unit_bytes)
    return Repack(
        name, repacked_name(name), lines, units, stride, unit_bytes, alignment_bytes, transposed, target_stride
    )


def source_text(*repacks: Repack) -> Source:
    """The translation unit of a launch that repacks one or two operands."""
    return Source(f'#include "{FILE}"\n', name_expression(repacks))


def moved(spec: LaunchSpec, **offsets_bytes: int) -> LaunchSpec:
    """The launch with the first lines of sources at these offsets."""
    arguments = (
        replace(each, offset_bytes=offsets_bytes.get(each.operand or "", 0)) if isinstance(each, Pointer) else each
        for each in spec.arguments
    )
    return replace(spec, arguments=tuple(arguments))


def numbers(count: int, unit_bytes: int, seed: int = 0) -> np.ndarray:
    """Random units, so that an error in any byte shows."""
    return np.random.default_rng(seed).integers(0, 2 ** (8 * unit_bytes), count, dtype=UNITS[unit_bytes])


def expected(what: Repack, source: np.ndarray) -> np.ndarray:
    """The expected lines of the target; ``source`` starts with the first line."""
    strides = (what.source_stride * what.unit_bytes, what.unit_bytes)
    lines = np.lib.stride_tricks.as_strided(source, (what.lines, what.units), strides)
    return lines.T if what.transposed else lines
