"""Detects f16 accumulators that overflow: an infinite tensor-core result of finite operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.lanes import WARP, Active, Array
from warptile.errors import AccumulatorOverflow
from warptile.isa.fragments import FragmentLayout, scatter_index
from warptile.isa.numerics import FORMATS
from warptile.ptx.instruction import Instruction

if TYPE_CHECKING:
    from warptile.emulator.machine import Machine

Check = Callable[[Active, Array, Array, Array, Array], None]
"""Given the active lanes, (n, M, K) A, (n, N, K) B, (n, M, N) C and D as raw bits: reports `AccumulatorOverflow`."""

_INFINITY, _MAGNITUDE = 0x7C00, 0x7FFF


def overflow_check(
    instruction: Instruction,
    machine: Machine,
    fragment: FragmentLayout,
    types: tuple[str, str, str, str],
) -> Check | None:
    """The check of one instruction with ``types`` of D, A, B and C whose D lies as ``fragment``.

    None if its result is not f16, or the check is off.
    """
    result, left, right, addend = types
    if result != "f16" or "overflow" not in machine.checks:
        return None
    lane_of = np.empty(fragment.rows * fragment.columns, dtype=np.intp)
    places = scatter_index(fragment).reshape(WARP, -1)
    lane_of[places] = np.arange(WARP)[:, None]

    def check(active: Active, a: Array, b: Array, c: Array, d: Array) -> None:
        infinite = (d.reshape(-1, fragment.rows, fragment.columns) & _MAGNITUDE) == _INFINITY
        if not infinite.any():
            return
        rows: Array = np.asarray(finite(a, left).all(axis=2))
        columns = np.asarray(finite(b, right).all(axis=2)).reshape(len(b), -1, fragment.columns)
        columns = np.repeat(columns, fragment.rows // columns.shape[1], axis=1)  # of several products, each its own
        made = infinite & rows[:, :, None] & columns & finite(c, addend).reshape(infinite.shape)
        if not made.any():
            return
        warp, row, column = (int(x) for x in np.unravel_index(int(np.argmax(made)), made.shape))
        lane = active.lanes[warp * WARP + lane_of[row * fragment.columns + column]]
        thread = machine.memory.thread(lane)
        error = AccumulatorOverflow(
            f"{instruction.text}: row {row}, column {column} of the result is infinite, in {thread}, "
            "although the operands are finite; f16 ends at 65504: accumulate in f32, or scale the operands",
            kernel=machine.kernel,
            location=instruction.location,
        )
        machine.memory.findings.report(error)

    return check


def finite(raw: Array, element: str) -> NDArray[np.bool_]:
    """Which values, given by their bits, are neither infinite nor NaN."""
    form = FORMATS[element]
    if element == "e4m3":  # has no infinity, and one NaN of each sign
        return np.asarray((raw & 0x7F) != 0x7F)
    exponent = (1 << form.exponent_bits) - 1 << form.fraction_bits + form.ignored_bits
    bits: Any = raw.view(f"u{raw.dtype.itemsize}")
    return np.asarray((bits & exponent) != exponent)
