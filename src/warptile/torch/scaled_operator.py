"""``torch.ops.warptile.scaled_mm``: 8-bit floats with scales, called like ``torch._scaled_mm``.

It is `warptile.matmul` with ``scale_a`` and ``scale_b``, of the shapes that torch's operator takes.
"""

from __future__ import annotations

from typing import Any

import torch

from warptile.api import matmul
from warptile.calls.scaled_call import FACTOR, is_number, scaled_call
from warptile.errors import DTypeError, LayoutError, ShapeError, UnsupportedError
from warptile.torch.gradients import below_autograd, is_recorded
from warptile.torch.library import LIBRARY, implement, overload, plain

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
"""Operand types."""

_RESULTS = (torch.bfloat16, torch.float16, torch.float32, *FLOAT8)
_EXAMPLE = "scaled_mm(a, b, torch.tensor(0.5), torch.tensor(2.0), out_dtype=torch.bfloat16)"


def _scaled_mm(
    a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None, scale_result: Any = None, out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Any:  # fmt: skip
    out_dtype = _checked(a, b, scale_a, scale_b, bias, scale_result, out_dtype)
    a, b, scale_a, scale_b, bias, scale_result = map(plain, (a, b, scale_a, scale_b, bias, scale_result))
    accumulate = None
    if use_fast_accum:  # scales of blocks are applied as sums are promoted, which is more accurate than what is allowed
        scaled = scaled_call(a, b, None, None, (scale_a, scale_b), {})
        accumulate = "float32_fast" if scaled is None or max(scaled.kinds.a, scaled.kinds.b) <= FACTOR else None
    if out_dtype in FLOAT8 and scale_result is None and bias is not None:
        scale_result = 1.0  # the bias keeps its type
    if bias is not None and is_number(scale_a) and is_number(scale_b) and scale_result is None:
        bias = bias.to(out_dtype)
    return matmul(
        a, b, bias, scale_a=scale_a, scale_b=scale_b, scale_d=scale_result, out_dtype=out_dtype, accumulate=accumulate
    )


def _scaled_mm_fake(
    a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None, scale_result: Any = None, out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Any:  # fmt: skip
    dtype = _checked(a, b, scale_a, scale_b, bias, scale_result, out_dtype)
    scaled_call(a, b, None, None, (scale_a, scale_b), {})  # raises where shapes do not fit, as matmul does
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
    if out_dtype is not None and out_dtype not in _RESULTS:
        raise UnsupportedError(
            f"out_dtype: got {out_dtype}; results are torch.bfloat16, torch.float16, torch.float32 or 8-bit floats, "
            f"such as {_EXAMPLE}"
        )
    if scale_result is not None:
        if out_dtype not in FLOAT8:
            raise UnsupportedError(
                f"scale_result: it is for results of 8 bits, and this one is {out_dtype or torch.bfloat16}; leave it "
                "out, or say out_dtype=torch.float8_e4m3fn"
            )
        if scale_result.numel() != 1:
            raise ShapeError(
                f"scale_result: got shape {tuple(scale_result.shape)}; it has one element, such as torch.tensor(2.0)"
            )
        _check_scale("scale_result", scale_result, a)
    n = b.shape[1]
    _check_scale("scale_a", scale_a, a)
    _check_scale("scale_b", scale_b, a)
    if bias is not None and tuple(bias.shape) != (n,):
        raise ShapeError(f"bias: got shape {tuple(bias.shape)}; it has one number for each column, shape ({n},)")
    return torch.bfloat16 if out_dtype is None else out_dtype


def _check_scale(name: str, scale: Any, a: Any) -> None:
    if scale.dtype != torch.float32:
        raise DTypeError(f"{name}: got {scale.dtype}; scales are torch.float32: {name}.float()")
    if scale.numel() == 1 and scale.device.type == "cpu":
        return
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
