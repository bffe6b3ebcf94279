"""Activation functions by name: as torch's own operations, and fused into the linear layer before them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from warptile.epilogue import expressions
from warptile.errors import ArgumentError
from warptile.linear_call import linear
from warptile.torch.linear_layer import is_plain

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
    "silu": functional.silu,
}
"""The functions, elementwise."""


def check_activation(name: str) -> None:
    """Raise unless an activation has this name.

    Raises:
        ArgumentError: none has.
    """
    if name not in ACTIVATIONS:
        raise ArgumentError(f"activation: got {name!r}; it takes {', '.join(map(repr, ACTIVATIONS))}, such as 'gelu'")


def _gelu_tanh(acc: Any) -> Any:
    return expressions.gelu(acc, "tanh")


EPILOGUES: dict[str, Callable[[Any], Any]] = {
    "gelu": expressions.gelu,
    "gelu_tanh": _gelu_tanh,
    "relu": expressions.relu,
    "silu": expressions.silu,
}
"""The same as epilogues."""


def _gated_by(name: str) -> Callable[..., Any]:
    function = EPILOGUES[name]
    return lambda acc, up: function(acc) * up


_GATES = {name: _gated_by(name) for name in EPILOGUES}


def can_fuse(x: torch.Tensor, layer: torch.nn.Linear, *others: torch.Tensor) -> bool:
    """Whether an activation behind ``layer`` is best part of its GEMM: the layer is a plain linear one, and no gradient
    is recorded step by step. (Where one is, blocks of 16-bit values are one operation: `warptile.torch.feed_forward`.)
    """
    if not is_plain(layer) or x.element_size() == 1:
        return False
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return True
    recorded = [x, layer.weight, *others] if layer.bias is None else [x, layer.weight, layer.bias, *others]
    return not any(each.requires_grad for each in recorded)


def activated_linear(name: str, layer: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
    """``activation(layer(x))``, in one kernel where that is best."""
    if not can_fuse(x, layer):
        return activated(name, layer(x))
    found: torch.Tensor = linear(x, layer.weight, layer.bias, epilogue=EPILOGUES[name])
    return found


def gated_linear(name: str, layer: torch.nn.Linear, x: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``activation(layer(x)) * up``, in one kernel where that is best."""
    if not can_fuse(x, layer, up):
        return gated(name, layer(x), up)
    found: torch.Tensor = linear(x, layer.weight, layer.bias, epilogue=_GATES[name], up=up)
    return found


def activated(name: str, values: torch.Tensor) -> torch.Tensor:
    """``activation(values)``."""
    found: torch.Tensor = ACTIVATIONS[name](values)
    return found


def gated(name: str, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``activation(gate) * up``: with ``silu`` SwiGLU, with ``gelu`` GEGLU."""
    return activated(name, gate) * up
