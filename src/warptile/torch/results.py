"""Shapes and types of results, computed for tensors without memory: extents may be symbols."""

from __future__ import annotations

from typing import Any

import torch

from warptile.arrays.epilogue_operands import check_matrices
from warptile.arrays.operands import OUTPUTS, output_type
from warptile.arrays.options import element_named
from warptile.dtypes import DTYPES
from warptile.epilogue.epilogue_program import Program
from warptile.errors import DTypeError, LayoutError, ShapeError

TORCH_TYPES: dict[str, Any] = {
    name: getattr(torch, dtype.torch)
    for name, dtype in DTYPES.items()
    if dtype.torch is not None and hasattr(torch, dtype.torch)
}
"""torch's element types, by warptile's names."""

_NAMES = {found: name for name, found in reversed(TORCH_TYPES.items())}
"""The first name of each, which is the type's own; others stand for ways to accumulate in it."""

_DEFAULTS = {TORCH_TYPES[name]: TORCH_TYPES[found[0]] for name, found in OUTPUTS.items() if name in TORCH_TYPES}


def torch_type(out_dtype: Any) -> Any:
    """The ``torch.dtype`` that a name or a framework's dtype stands for; None for None.

    Raises:
        DTypeError: it stands for none.
    """
    if out_dtype is None or isinstance(out_dtype, torch.dtype):
        return out_dtype
    found = element_named(out_dtype, "out_dtype")
    assert found is not None
    return TORCH_TYPES[found.name]


def result_type(a: torch.Tensor, b: torch.Tensor, out_dtype: Any) -> Any:
    """Type of a product.

    Raises:
        DTypeError: operands of two types, or of one that is not multiplied.
    """
    if a.dtype != b.dtype:
        raise DTypeError(
            f"a is {_name(a)} and b is {_name(b)}; both operands need one type: warptile.matmul(a, b.to(a.dtype))"
        )
    if a.dtype not in _DEFAULTS:
        raise DTypeError(f"a: got element type {_name(a)}; it takes one of {', '.join(map(str, _DEFAULTS))}")
    return _DEFAULTS[a.dtype] if out_dtype is None else out_dtype


def fused_types(a: torch.Tensor, b: torch.Tensor, out_dtype: Any, program: Program) -> list[Any]:
    """Types of a product's outputs with an epilogue.

    Raises:
        DTypeError: as `result_type`, or a type that these operands do not give.
    """
    result_type(a, b, None)
    asked = None if out_dtype is None else DTYPES[_NAMES[out_dtype]]
    first = output_type(DTYPES[_NAMES[a.dtype]], asked, None, program).name
    reduced = torch.float64 if a.dtype == torch.float64 else torch.float32
    return [
        TORCH_TYPES[name or first] if how is None else reduced
        for name, how in zip((first, *program.types[1:]), program.output_reductions, strict=True)
    ]


def fused_shapes(a: torch.Tensor, b: torch.Tensor, shape: list[Any], program: Program) -> list[list[Any]]:
    """Shapes of a product's outputs with an epilogue, given the shape of the product.

    Raises:
        EpilogueError: reductions, and an operand that is 1-D.
    """
    if any(program.reductions):
        check_matrices((a.dim() == 1, b.dim() == 1))
    *batch, m, n = [1, 1, *shape][-max(len(shape), 2) :]
    return [shape if how is None else list(how.shape(tuple(batch), m, n)) for how in program.output_reductions]


def matmul_shape(a: torch.Tensor, b: torch.Tensor) -> list[Any]:
    """Shape of ``a @ b``.

    Raises:
        ShapeError: they do not multiply.
        LayoutError: they are in different places.
    """
    if a.device != b.device:
        raise LayoutError(
            f"a is on {a.device} and b is on {b.device}; it takes strided tensors on cpu or cuda, both in one place: "
            f"matmul(a, b.to(a.device))"
        )
    for name, operand in (("a", a), ("b", b)):
        if operand.dim() == 0:
            raise ShapeError(f"{name}: got a scalar; it needs at least one axis: {name}.reshape(1)")
    inner = b.shape[-1] if b.dim() == 1 else b.shape[-2]
    if a.shape[-1] != inner:
        raise ShapeError(
            f"a has shape {tuple(a.shape)} and b has shape {tuple(b.shape)}: the last axis of a ({a.shape[-1]}) must "
            f"equal the {'only' if b.dim() == 1 else 'second last'} axis of b ({inner}), such as "
            f"matmul(a, b) with b of shape ({a.shape[-1]}, {b.shape[-1]})"
        )
    try:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except RuntimeError:
        raise ShapeError(
            f"a has leading axes {tuple(a.shape[:-2])} and b has {tuple(b.shape[:-2])}, which do not broadcast; "
            f"each pair must be equal or have a 1"
        ) from None
    rows = [a.shape[-2]] if a.dim() > 1 else []
    columns = [b.shape[-1]] if b.dim() > 1 else []
    return [*batch, *rows, *columns]


def check_broadcasts(name: str, tensor: torch.Tensor | None, shape: list[Any]) -> None:
    """Raise unless a tensor (or None) broadcasts to the shape of a result.

    Raises:
        ShapeError: it does not.
    """
    if tensor is None:
        return
    try:
        fits = list(torch.broadcast_shapes(tensor.shape, shape)) == list(shape)
    except RuntimeError:
        fits = False
    if not fits:
        raise ShapeError(
            f"{name}: shape {tuple(tensor.shape)} does not broadcast to {tuple(shape)}; give it that shape, or extents "
            f"of 1 where it repeats"
        )


def linear_shape(x: torch.Tensor, w: torch.Tensor) -> list[Any]:
    """Shape of ``x @ w.T`` for a ``w`` of shape (N, K) or (K,)."""
    return [*x.shape[:-1], *w.shape[:-1]]


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
