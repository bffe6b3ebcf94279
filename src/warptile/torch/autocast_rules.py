"""Autocast: under ``torch.autocast`` the operators take their operands in its type, as ``torch.matmul`` does.

Only calls with a float32 operand are cast. 16-bit floats stay what they are, also where autocast's type is the other
16-bit float; float64 and integers stay too, as in torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from warptile.torch.library import LIBRARY, overload
from warptile.torch_route import is_cast

_KEYS = {"cuda": "AutocastCUDA", "cpu": "AutocastCPU"}
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def _cast(tensor: Any, dtype: Any) -> Any:
    return tensor.to(dtype) if tensor is not None and tensor.dtype in _FLOATS else tensor


def _cast_call(name: str, device: str) -> Callable[..., Any]:
    """The function that casts the two factors and the addend behind them, and calls the operator without autocast."""
    operator = overload(name)
    disabled = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _KEYS[device]))

    def call(a: Any, b: Any, *others: Any, **options: Any) -> Any:
        if is_cast(torch, [a, b]):
            dtype = torch.get_autocast_dtype(device)
            a, b = _cast(a, dtype), _cast(b, dtype)
            if name != "grouped_mm" and others:
                others = (_cast(others[0], options.get("out_dtype") or dtype), *others[1:])
        with torch._C._ExcludeDispatchKeyGuard(disabled):
            return operator(a, b, *others, **options)

    return call


for _device, _key in _KEYS.items():
    for _name in ("matmul", "fused_matmul", "linear", "grouped_mm"):
        LIBRARY.impl(_name, _cast_call(_name, _device), _key)
