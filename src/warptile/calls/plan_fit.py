"""Whether a held plan takes what it is called with: names of operands, and arrays like those that it was made for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from warptile.arrays.options import refuse_unknown
from warptile.calls.call_options import OPTIONS
from warptile.epilogue.fused_epilogue import Fused, Layout, Partials
from warptile.errors import ArgumentTypeError, EpilogueError, LayoutError, ShapeError
from warptile.problem import Operand, Problem

FIXED = (*OPTIONS, "scale_d", "amax")
"""Keywords of `warptile.plan` that its calls have not, unless the plan was made with one that is an array."""

SCALES = ("scale_a", "scale_b", "scale_d")


def check_operands(names: Sequence[str], given: Collection[str]) -> None:
    """Raise unless a plan is called with all that it takes beside A, B, C and ``out``, and nothing else.

    Args:
        names: its operands.
        given: names of the keywords of the call.

    Raises:
        ArgumentTypeError: one that the plan does not take.
        EpilogueError: an operand of the epilogue is missing.
        ShapeError: a scale is missing.
    """
    unknown = [name for name in given if name not in names]
    for name in unknown:
        if name in FIXED:
            raise ArgumentTypeError(f"{name}: it is fixed when a plan is made: warptile.plan(a, b, {name}=...)")
    refuse_unknown("plan", (*names, "out"), dict.fromkeys(unknown))
    missing = next((name for name in names if name not in given), None)
    if missing in SCALES:
        call = ", ".join(f"{name}={name}" for name in names)
        raise ShapeError(f"{missing}: this plan was made with one, which was not given: plan(a, b, {call})")
    if missing is not None:
        raise EpilogueError(f"epilogue: it takes {missing!r}, which was not given: give {missing}=...")


def check_addend(c: Any, beta: float, *, beta_given: bool) -> None:
    """Raise where a plan that was made without C is given one, or the other way round.

    Args:
        c: of the call, or None.
        beta: the plan's factor of C.
        beta_given: it was given; else it follows from whether there was a C.

    Raises:
        ShapeError: a C too many or too few.
    """
    if c is not None and beta == 0 and not beta_given:
        raise ShapeError("c: this plan was made without it and would not read it; make another: warptile.plan(a, b, c)")
    if c is None and beta != 0:
        raise ShapeError(f"c: got None, and this plan adds it with beta={beta}; give an array like that: plan(a, b, c)")


def check_fits(made_for: Problem, given: Problem) -> None:
    """Raise unless a kernel made for one problem can run the other: all equal, alignment equal or better."""
    if made_for.batch != given.batch:
        raise ShapeError(
            f"this plan is for a batch of {made_for.batch} and the arrays are one of {given.batch}; "
            f"make another with warptile.plan(a, b)"
        )
    if (made_for.m, made_for.n, made_for.k) != (given.m, given.n, given.k) or made_for.a.dtype != given.a.dtype:
        raise ShapeError(
            f"this plan is for m, n, k = {made_for.m}, {made_for.n}, {made_for.k} of {made_for.a.dtype.name}; "
            f"the arrays are {given.m}, {given.n}, {given.k} of {given.a.dtype.name}: "
            f"make another with warptile.plan(a, b)"
        )
    made = (made_for.a, made_for.b, made_for.c, made_for.d)
    pairs = zip(("a", "b", "c", "out"), made, (given.a, given.b, given.c, given.d), strict=True)
    for name, wanted, operand in pairs:
        if not _operand_fits(wanted, operand):
            raise LayoutError(
                f"{name}: this plan is for {wanted}, and it is {operand}; make another with warptile.plan(a, b)"
            )

    if not _epilogue_fits(made_for.epilogue, given.epilogue):
        raise LayoutError(
            "epilogue: operands of another type or layout than the plan's; make another with warptile.plan(a, b, ...)"
        )


def _epilogue_fits(planned: Fused | None, given: Fused | None) -> bool:
    if planned is None or given is None:
        return planned is given
    if planned.layouts.keys() != given.layouts.keys() or len(planned.outputs) != len(given.outputs):
        return False
    pairs = [(each, given.layouts[name]) for name, each in planned.tensors]
    return planned.program == given.program and all(
        _matrix_fits(one, other) for one, other in (*pairs, *zip(planned.outputs, given.outputs, strict=True))
    )


def _matrix_fits(planned: Layout | Partials, given: Layout | Partials) -> bool:
    if not isinstance(planned, Layout) or not isinstance(given, Layout):
        return planned == given
    alignment = planned.alignment_bytes
    return given.alignment_bytes >= alignment and replace(given, alignment_bytes=alignment) == planned


def _operand_fits(planned: Operand | None, operand: Operand | None) -> bool:
    if planned is None or operand is None:
        return planned is operand
    return (
        operand.alignment_bytes >= planned.alignment_bytes
        and replace(operand, alignment_bytes=planned.alignment_bytes) == planned
    )
