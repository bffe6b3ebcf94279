"""``torch.vmap`` over the operators: the axis that is mapped over becomes a leading axis of one batched GEMM."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from warptile.arrays.epilogue_operands import check_matrices
from warptile.epilogue.epilogue_program import Program, Reduction
from warptile.epilogue.program_text import program_of, text_of
from warptile.torch.fused_gradients import blocked
from warptile.torch.library import overload


def matmul_rule(info: Any, in_dims: Any, a: Any, b: Any, c: Any = None, **options: Any) -> Any:
    """``matmul`` with an axis more, in the form that ``torch.library.register_vmap`` asks for.

    Args:
        info: has ``batch_size``.
        in_dims: of a, b and c, the axis that is mapped over, or None.
        a, b, c: tensors with that axis.
        options: passed on.

    Returns:
        The result and the axis of the batch in it.
    """
    a_dim, b_dim, c_dim = (*in_dims, None)[:3]
    a_axes, b_axes = a.dim() - (a_dim is not None), b.dim() - (b_dim is not None)
    axes = max(a_axes, b_axes, 2)
    left = _matrices(a, a_dim, axes, new_axis=-2)
    right = _matrices(b, b_dim, axes, new_axis=-1)
    addend = None
    if c is not None:
        addend = _first(c, c_dim, axes - (a_axes == 1) - (b_axes == 1))
        if b_axes == 1:
            addend = addend.unsqueeze(-1)
        if a_axes == 1:
            addend = addend.unsqueeze(-2)
        if a_dim is None and b_dim is None:  # else the addend would have an axis that the product lacks
            left = left.expand(info.batch_size, *(1,) * (axes - left.dim()), *left.shape)
    d = overload("matmul")(left, right, addend, **options)
    if b_axes == 1:
        d = d.squeeze(-1)
    if a_axes == 1:
        d = d.squeeze(-1 if b_axes == 1 else -2)
    return d, 0


def linear_rule(info: Any, in_dims: Any, x: Any, w: Any, bias: Any = None, **options: Any) -> Any:
    """``linear`` with an axis more; a batch of weights makes it a batched GEMM."""
    x_dim, w_dim, bias_dim = (*in_dims, None)[:3]
    if w_dim is None and bias_dim is None:
        return overload("linear")(x.movedim(x_dim, 0), w, bias, **options), 0
    w_axes = w.dim() - (w_dim is not None)
    w = w if w_dim is None else w.movedim(w_dim, 0)
    transposed = w.mT if w_axes == 2 else w
    return matmul_rule(info, (x_dim, None if w_dim is None else 0, bias_dim), x, transposed, bias, **options)


def fused_rule(
    info: Any, in_dims: Any, a: Any, b: Any, c: Any, tensors: Any, *, program: str, names: Any, **options: Any
) -> Any:
    """``fused_matmul`` with an axis more; epilogue operands get it too, or are shared by all examples."""
    a_dim, b_dim, c_dim, dims = in_dims[:4]
    dims = dims if isinstance(dims, (list, tuple)) else [dims] * len(tensors)
    a_axes, b_axes = a.dim() - (a_dim is not None), b.dim() - (b_dim is not None)
    axes = max(a_axes, b_axes, 2)
    removed = (a_axes == 1) + (b_axes == 1)
    asked = program_of(program)
    if any(asked.reductions):
        check_matrices((a_axes == 1, b_axes == 1))

    def of_result(tensor: torch.Tensor, dim: int | None) -> torch.Tensor:
        """What broadcasts to the result, as it broadcasts to a result with all axes."""
        found = _first(tensor, dim, axes - removed)
        if b_axes == 1 and found.dim():
            found = found.unsqueeze(-1)
        return found.unsqueeze(-2) if a_axes == 1 and found.dim() else found

    left = _matrices(a, a_dim, axes, new_axis=-2)
    right = _matrices(b, b_dim, axes, new_axis=-1)
    if a_dim is None and b_dim is None:  # else the operands would have an axis that the product lacks
        left = left.expand(info.batch_size, *(1,) * (axes - left.dim()), *left.shape)
    addend = None if c is None else of_result(c, c_dim)
    of_blocks = blocked(asked)
    operands = [
        _first(each, dim, axes) if name in of_blocks else of_result(each, dim)
        for name, each, dim in zip(names, tensors, dims, strict=False)
    ]
    outputs = overload("fused_matmul")(
        left, right, addend, operands, program=text_of(_of_matrices(asked)), names=names, **options
    )
    outputs = [_of_example(each, how, axes) for each, how in zip(outputs, asked.output_reductions, strict=True)]
    if b_axes == 1:
        outputs = [each.squeeze(-1) for each in outputs]
    if a_axes == 1:
        outputs = [each.squeeze(-1 if b_axes == 1 else -2) for each in outputs]
    return outputs, [0] * len(outputs)


def _of_matrices(program: Program) -> Program:
    """The program with one number for each matrix, where it has one of all: each example has its own."""
    hows = tuple(Reduction(how.operation, "matrix") if how and how.over == "all" else how for how in program.reductions)
    return replace(program, reductions=hows)


def _of_example(output: torch.Tensor, how: Reduction | None, axes: int) -> torch.Tensor:
    """Of the numbers of all matrices of an example, (examples, ...), one: (examples,) and axes that are kept."""
    if how is None or how.over != "all":
        return output
    if output.dim() > 1:
        function = {"add": torch.sum, "maximum": torch.amax, "minimum": torch.amin}[how.operation]
        output = function(output, tuple(range(1, output.dim())))
    return output.reshape(-1, *(1,) * axes) if how.keeps_axes else output


def _first(tensor: torch.Tensor, dim: int | None, axes: int) -> torch.Tensor:
    """The mapped axis first, then ``axes`` others: extents of 1 where there are fewer."""
    if dim is None:
        return tensor
    tensor = tensor.movedim(dim, 0)
    return tensor.reshape(tensor.shape[0], *(1,) * (axes - tensor.dim() + 1), *tensor.shape[1:])


def _matrices(tensor: torch.Tensor, dim: int | None, axes: int, new_axis: int) -> torch.Tensor:
    """As `_first`, a vector as a matrix with ``new_axis``."""
    if tensor.dim() - (dim is not None) == 1:
        first = tensor if dim is None else tensor.movedim(dim, 0)
        return _first(first.unsqueeze(new_axis), None if dim is None else 0, axes)
    return _first(tensor, dim, axes)
