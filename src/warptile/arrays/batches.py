"""A batch as one problem: where the matrices of each operand have one stride, one launch computes all of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product as every_combination
from math import prod

from warptile.arrays.array_view import ArrayView, Shape
from warptile.arrays.operands import Product
from warptile.epilogue.fused_epilogue import Layout
from warptile.problem import Operand, Problem


def batched(product: Product) -> tuple[Problem, str | None]:
    """What a launch computes, and why that is not the whole batch, or None where it is: the problem of as many of the
    last axes of the batch as make one, of one matrix where none do."""
    said = _never(product)
    if said is not None:
        return product.problem, said
    for first in range(len(product.batch)):
        whole = _of_last_axes(product, first)
        if not isinstance(whole, str):
            return whole, said
        said = said or whole
    return product.problem, said


def launch_indices(product: Product, problem: Problem) -> list[Shape]:
    """Where in the leading axes each launch begins: ``problem`` is what one computes, as `batched` has it."""
    axes, count = len(product.batch), 1
    while count < problem.batch:
        axes -= 1
        count *= product.batch[axes]
    return list(every_combination(*map(range, product.batch[:axes])))


def _never(product: Product) -> str | None:
    """Why the batch is no problem, whatever its strides, or None."""
    if product.problem.a.sparse:
        return "a is sparse, and only dense matrices come in batches"
    if product.problem.b.quantized is not None:
        return "b is quantized, and only dense matrices come in batches"
    count = prod(product.batch)
    if count < 2 or product.empty:
        return f"there {'is one product' if count == 1 else 'are no products'}"
    return None


def _of_last_axes(product: Product, first: int) -> Problem | str:
    """The leading axes of ``product`` from one on as one problem, or a sentence that says why they are not one."""
    count = prod(product.batch[first:])
    if count < 2:
        return "there is one product"

    def stride_of(matrices: ArrayView) -> int | None:
        return batch_stride(matrices, product.batch, first)

    problem = product.problem
    fresh = problem.m * problem.n
    strides = {"a": stride_of(product.a), "b": stride_of(product.b)}
    strides["c"] = 0 if product.c is None else stride_of(product.c)
    strides["d"] = fresh if product.target is None else stride_of(product.target)
    fused = problem.epilogue
    of_tensors: dict[str, int] = {}
    of_outputs: list[int] = []
    if product.epilogue is not None:
        tensors = {name: stride_of(each) for name, each in product.epilogue.tensors.items()}
        strides |= {name: stride for name, stride in tensors.items() if stride is None}
        of_tensors = {name: stride or 0 for name, stride in tensors.items()}
        made = [stride_of(each) for each in product.epilogue.given]
        if None in made:
            return "the matrices of out have no single batch stride"
        of_outputs = [stride or 0 for stride in made] or [fresh] * len(product.epilogue.types)
    found = {name: stride for name, stride in strides.items() if stride is not None}
    uneven = [name for name in strides if name not in found]
    if uneven:
        named = " and ".join("out" if name == "d" else name for name in uneven)
        return f"the matrices of {named} have no single batch stride"
    if found["d"] == 0:
        return "the matrices of out share memory"

    def apart(name: str, operand: Operand) -> Operand:
        return replace(operand, batch_stride=found[name])

    if fused is not None:
        fused = replace(
            fused,
            tensors=tuple((name, replace(each, batch_stride=of_tensors[name])) for name, each in fused.tensors),
            outputs=tuple(
                replace(each, batch_stride=stride) if isinstance(each, Layout) else each
                for each, stride in zip(fused.outputs, of_outputs, strict=True)
            ),
        )
    return replace(
        problem,
        epilogue=fused,
        a=apart("a", problem.a),
        b=apart("b", problem.b),
        c=None if problem.c is None else apart("c", problem.c),
        d=apart("d", problem.d),
        batch=count,
    )


def batch_stride(matrices: ArrayView, batch: Shape, first: int = 0) -> int | None:
    """Elements from each matrix to the next in row-major order of the leading axes ``batch`` from one on: 0 where all
    share one, None where the stride varies or is negative."""
    if matrices.size == 0:
        return 0
    leading = list(zip(batch, matrices.strides, strict=False))[first:]
    axes = [(extent, stride) for extent, stride in leading if extent > 1]
    stride = axes[-1][1] if axes else 0
    expected = stride
    for extent, found in reversed(axes):
        if found != expected:
            return None
        expected = found * extent
    return stride if stride >= 0 else None
