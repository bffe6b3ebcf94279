"""Modules: `Linear`, a drop-in for ``torch.nn.Linear``, and the two feed-forward blocks of transformers."""

from __future__ import annotations

import torch

from warptile.torch.activations import activated_linear, check_activation, gated_linear
from warptile.torch.feed_forward import feed_forward, gated_feed_forward, operands_of_block
from warptile.torch.linear_layer import Linear


class MLP(torch.nn.Module):
    """``down(activation(up(x)))``: the feed-forward block of GPT-2 and of most encoders.

    The activation is part of the first GEMM, and its derivative of the one that makes the hidden layer's gradient. That
    does not hold of layers with hooks, nor, where gradients are recorded step by step, of float32.

    Args:
        features: extent of the last axis of input and result.
        hidden: extent between the two layers; four times ``features`` by default.
        activation: ``"gelu"``, ``"gelu_tanh"``, ``"relu"`` or ``"silu"``.
        bias: whether the layers add one.
        device, dtype: of the parameters.

    Raises:
        ArgumentError: an activation that there is not.
    """

    def __init__(
        self,
        features: int,
        hidden: int | None = None,
        activation: str = "gelu",
        bias: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_activation(activation)
        hidden = 4 * features if hidden is None else hidden
        self.activation = activation
        self.up = Linear(features, hidden, bias=bias, device=device, dtype=dtype)
        self.down = Linear(hidden, features, bias=bias, device=device, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., features) to (..., features)."""
        operands = operands_of_block(x, self.up, self.down)
        if operands is not None:
            return feed_forward(self.activation, operands)
        found: torch.Tensor = self.down(activated_linear(self.activation, self.up, x))
        return found

    def extra_repr(self) -> str:
        """What printing the module says beside its layers."""
        return f"activation={self.activation!r}"


class GatedMLP(torch.nn.Module):
    """``down(activation(gate(x)) * up(x))``: the feed-forward block of Llama (SwiGLU), or with ``gelu`` GEGLU.

    The activation and the product with ``up(x)`` are part of the gate's GEMM, and their derivatives of the GEMM that
    makes the hidden layer's gradient. That does not hold of layers with hooks, nor, where gradients are recorded step
    by step, of float32.

    Args:
        features: extent of the last axis of input and result.
        hidden: extent between the layers.
        activation: ``"silu"``, ``"gelu"``, ``"gelu_tanh"`` or ``"relu"``.
        bias: whether the layers add one.
        device, dtype: of the parameters.

    Raises:
        ArgumentError: an activation that there is not.
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        activation: str = "silu",
        bias: bool = False,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_activation(activation)
        self.activation = activation
        self.gate = Linear(features, hidden, bias=bias, device=device, dtype=dtype)
        self.up = Linear(features, hidden, bias=bias, device=device, dtype=dtype)
        self.down = Linear(hidden, features, bias=bias, device=device, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., features) to (..., features)."""
        operands = operands_of_block(x, self.gate, self.up, self.down)
        if operands is not None:
            return gated_feed_forward(self.activation, operands)
        found: torch.Tensor = self.down(gated_linear(self.activation, self.gate, x, self.up(x)))
        return found

    def extra_repr(self) -> str:
        """What printing the module says beside its layers."""
        return f"activation={self.activation!r}"
