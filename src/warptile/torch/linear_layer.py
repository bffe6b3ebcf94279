"""`Linear`, a drop-in for ``torch.nn.Linear``."""

from __future__ import annotations

import torch

from warptile.linear_call import linear


class Linear(torch.nn.Linear):
    """``x @ weight.T + bias`` by warptile's kernels.

    Arguments, initialization, parameters and state dict are those of ``torch.nn.Linear``, of which it is a subclass:
    what looks for linear layers (initializers, optimizers' parameter groups) finds it.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The layer's result.

        Args:
            input: (..., in_features), of the weight's type.

        Returns:
            (..., out_features).
        """
        found: torch.Tensor = linear(input, self.weight, self.bias)
        return found


def is_plain(layer: torch.nn.Module) -> bool:
    """Whether a layer does what a linear layer does and nothing else, and nobody looks at its calls."""
    hooked = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    hooked = hooked or torch.nn.modules.module._has_any_global_hook()
    return type(layer).forward in (Linear.forward, torch.nn.Linear.forward) and not hooked
