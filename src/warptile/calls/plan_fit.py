"""Whether a held plan may run on other arrays than those that it was made for."""

from __future__ import annotations

from dataclasses import replace

from warptile.epilogue.fused_epilogue import Fused, Layout, Partials
from warptile.errors import LayoutError, ShapeError
from warptile.problem import Operand, Problem


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
