"""Activation functions by name, in one place: what a fused epilogue can replace."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from warptile.errors import ArgumentError

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


def activated(name: str, values: torch.Tensor) -> torch.Tensor:
    """``activation(values)``."""
    found: torch.Tensor = ACTIVATIONS[name](values)
    return found


def gated(name: str, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``activation(gate) * up``: with ``silu`` SwiGLU, with ``gelu`` GEGLU."""
    return activated(name, gate) * up
