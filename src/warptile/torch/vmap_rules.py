"""``torch.vmap`` over the operators: the axis that is mapped over becomes a leading axis of one batched GEMM."""

from __future__ import annotations

from typing import Any

import torch

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
