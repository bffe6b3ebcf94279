"""``torch.ops.warptile.scaled_mm``: 8-bit floats with scales, called like ``torch._scaled_mm``.

Scales of whole operands that are in host memory become a part of alpha. All others are operands of an epilogue, which
the kernel reads from memory when it has its accumulators: nothing waits for them, and the result is rounded once.
"""

from __future__ import annotations

from typing import Any

import torch

from warptile.api import matmul
from warptile.errors import DTypeError, LayoutError, ShapeError, UnsupportedError
from warptile.torch.gradients import below_autograd, is_recorded
from warptile.torch.library import LIBRARY, implement, overload, plain

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
"""Operand types."""

_RESULTS = (torch.bfloat16, torch.float16, torch.float32)
_EXAMPLE = "scaled_mm(a, b, torch.tensor(0.5), torch.tensor(2.0), out_dtype=torch.bfloat16)"


def _scaled_mm(
    a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None, scale_result: Any = None, out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Any:  # fmt: skip
    out_dtype = _checked(a, b, scale_a, scale_b, bias, scale_result, out_dtype)
    a, b, scale_a, scale_b, bias = map(plain, (a, b, scale_a, scale_b, bias))
    accumulate = "float32_fast" if use_fast_accum else None
    if scale_a.numel() == scale_b.numel() == 1 and scale_a.device.type == scale_b.device.type == "cpu":
        addend = None if bias is None else bias.to(out_dtype)
        return matmul(
            a, b, addend, scale_a=scale_a.item(), scale_b=scale_b.item(), out_dtype=out_dtype, accumulate=accumulate
        )
    operands = {"rows": _operand(scale_a, a), "columns": _operand(scale_b, a)}
    options = {"out_dtype": out_dtype, "accumulate": accumulate}
    if bias is None:
        return matmul(a, b, **options, epilogue=_scaled, **operands)
    return matmul(a, b, **options, epilogue=_scaled_with_bias, **operands, bias=bias)


def _scaled(acc: Any, rows: Any, columns: Any) -> Any:
    return acc * rows * columns


def _scaled_with_bias(acc: Any, rows: Any, columns: Any, bias: Any) -> Any:
    return acc * rows * columns + bias


def _operand(scale: Any, a: Any) -> Any:
    """A scale as an operand of an epilogue; one in host memory as a number."""
    if scale.numel() > 1:
        return scale
    return scale.reshape(()) if scale.device == a.device else scale.item()


def _scaled_mm_fake(
    a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None, scale_result: Any = None, out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Any:  # fmt: skip
    dtype = _checked(a, b, scale_a, scale_b, bias, scale_result, out_dtype)
    return a.new_empty((a.shape[0], b.shape[1]), dtype=dtype)


def _checked(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, scale_result: Any, out_dtype: Any) -> Any:
    """The type of the result; raises where the arguments do not fit each other."""
    for name, operand in (("a", a), ("b", b)):
        if operand.dtype not in FLOAT8:
            raise DTypeError(
                f"{name}: got {operand.dtype}; scaled_mm multiplies torch.float8_e4m3fn or torch.float8_e5m2: for "
                f"other types there is matmul(a, b, alpha=scale_a * scale_b)"
            )
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ShapeError(
            f"a has shape {tuple(a.shape)} and b has shape {tuple(b.shape)}; scaled_mm multiplies (M, K) by (K, N), "
            f"such as {_EXAMPLE}"
        )
    if scale_result is not None:
        raise UnsupportedError(
            "scale_result: it is for results of 8 bits, which no kernel writes; leave it out and quantize the result"
        )
    if out_dtype is not None and out_dtype not in _RESULTS:
        raise UnsupportedError(
            f"out_dtype: got {out_dtype}; results are torch.bfloat16, torch.float16 or torch.float32, such as "
            f"{_EXAMPLE}"
        )
    (m, _), n = a.shape, b.shape[1]
    _check_scale("scale_a", scale_a, (m, 1), a)
    _check_scale("scale_b", scale_b, (1, n), a)
    if bias is not None and tuple(bias.shape) != (n,):
        raise ShapeError(f"bias: got shape {tuple(bias.shape)}; it has one number for each column, shape ({n},)")
    return torch.bfloat16 if out_dtype is None else out_dtype


def _check_scale(name: str, scale: Any, rows_or_columns: tuple[Any, Any], a: Any) -> None:
    if scale.dtype != torch.float32:
        raise DTypeError(f"{name}: got {scale.dtype}; scales are torch.float32: {name}.float()")
    if scale.numel() == 1 and scale.device.type == "cpu":
        return
    if scale.numel() != 1 and tuple(scale.shape) != rows_or_columns:
        raise UnsupportedError(
            f"{name}: got shape {tuple(scale.shape)}; it takes one number or shape {rows_or_columns}. Scales of blocks "
            f"are not available: multiply block by block with matmul, or {_EXAMPLE}"
        )
    if scale.device != a.device:
        raise LayoutError(f"{name}: it is on {scale.device} and a is on {a.device}: {name}.to(a.device)")


def _scaled_mm_autograd(keyset: Any, a: Any, *others: Any, **options: Any) -> Any:
    if is_recorded(a, *(each for each in others if isinstance(each, torch.Tensor))):
        raise UnsupportedError(
            "scaled_mm: an argument requires a gradient, and 8-bit floats have none, as in torch._scaled_mm; call it "
            "on detached tensors, inside a torch.autograd.Function that says what the gradients are"
        )
    return below_autograd(SCALED_MM, keyset, a, *others, **options)


SCALED_MM = overload("scaled_mm")
implement("scaled_mm", _scaled_mm, _scaled_mm_fake)
LIBRARY.impl("scaled_mm", _scaled_mm_autograd, "Autograd", with_keyset=True)
