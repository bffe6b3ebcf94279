"""The launches of a call that is not bound, and what it returns."""

from __future__ import annotations

from typing import Any

from warptile.arrays import array_view
from warptile.arrays.array_view import ArrayView
from warptile.arrays.batches import launch_indices
from warptile.arrays.epilogue_operands import EpilogueOperands
from warptile.arrays.operands import Product
from warptile.arrays.reductions import reduced
from warptile.calls.call_options import CallOptions
from warptile.calls.chosen_kernel import Chosen
from warptile.planning.addend import Nothing


def run(chosen: Chosen, product: Product, call: CallOptions) -> Any:
    """Launch ``chosen`` for each matrix of the batch, or for all, and hand back what the caller expects."""
    out = product.out
    direct = product.target is not None and out is not None
    result = out if direct else array_view.empty(product.like, product.result_shape, product.problem.d.dtype)
    assert result is not None
    fused = product.epilogue
    further: tuple[ArrayView, ...] = ()
    if fused is not None:
        further = fused.given or _made_outputs(chosen, product, fused)
    if not isinstance(chosen, Nothing):
        operands = {"D": product.target or product.as_matrices(result)}
        if fused is not None:
            operands |= fused.named(
                further
                if fused.given
                else tuple(
                    product.as_matrices(each) if how is None else each
                    for each, how in zip(further, fused.reductions, strict=True)
                )
            )
        if product.reads_operands:
            operands |= {"A": product.a, "B": product.b}
        if product.c is not None:
            operands["C"] = product.c
        if product.metadata is not None:
            operands["E"] = product.metadata
        indices, numbers = launch_indices(product, chosen.problem), fused.numbers if fused else {}
        call.backend.run(chosen, operands, indices, call.alpha, call.beta, numbers)
    if out is None:
        first = array_view.returned(result, product.like)
    else:
        if not direct:
            array_view.assign(out, result)
        first = out.given
    if fused is None or not further:
        return first
    if fused.given:
        return (first, *(each.given for each in further))
    made = [array_view.returned(each, product.like) for each in further]
    hows = fused.reductions
    return (first, *(each if how is None else reduced(each, how) for each, how in zip(made, hows, strict=True)))


def _made_outputs(chosen: Chosen, product: Product, fused: EpilogueOperands) -> tuple[ArrayView, ...]:
    """Memory for the outputs of an epilogue after D; of reductions for their partials."""
    seen = None if isinstance(chosen, Nothing) else chosen.kernel.view.problem.epilogue
    shapes = fused.shapes(product.result_shape, product.batch, product.problem.m, product.problem.n, seen)
    return tuple(array_view.empty(product.like, shape, dtype) for shape, dtype in zip(shapes, fused.types, strict=True))
