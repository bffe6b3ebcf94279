"""convert: a model whose linear layers are computed by warptile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from warptile.errors import ArgumentTypeError
from warptile.torch.linear_layer import Linear

TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Weights that are multiplied and have gradients."""


@dataclass(frozen=True)
class Conversion:
    """What `convert` did.

    Attributes:
        converted: names of the modules that are `Linear` now, as ``named_modules`` says them; ``""`` is the model.
        left: names of the other linear layers, and why each was left.
    """

    converted: tuple[str, ...]
    left: dict[str, str]

    def __str__(self) -> str:
        lines = [f"converted {len(self.converted)} linear layers, left {len(self.left)}"]
        lines += [f"  left {name or 'the model itself'}: {reason}" for name, reason in self.left.items()]
        return "\n".join(lines)


def convert(model: torch.nn.Module, *, filter: Callable[[str, torch.nn.Linear], bool] | None = None) -> Conversion:
    """Have warptile compute a model's linear layers, in place.

    A layer stays the same object with the same parameters, hooks and name; its class becomes `Linear`. So optimizers,
    tied weights and checkpoints are not affected. Only layers whose class is ``torch.nn.Linear`` itself are converted:
    a subclass may compute something else.

    Args:
        model: any module; its layers may be anywhere in it.
        filter: called with the name and the module of each layer that can be converted; those for which it is false
            are left.

    Returns:
        What was converted, and what was left and why.

    Raises:
        ArgumentTypeError: ``model`` is no module.
    """
    if not isinstance(model, torch.nn.Module):
        raise ArgumentTypeError(
            f"model: got {type(model).__name__}; it takes a torch.nn.Module, such as convert(torch.nn.Linear(8, 4))"
        )
    converted, left = [], {}
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear) or isinstance(module, Linear):
            continue
        reason = _reason_to_leave(module)
        if reason is None and filter is not None and not filter(name, module):
            reason = "the filter says no"
        if reason is None:
            module.__class__ = Linear
            converted.append(name)
        else:
            left[name] = reason
    return Conversion(tuple(converted), left)


def _reason_to_leave(module: torch.nn.Linear) -> str | None:
    """Why a layer cannot be converted, or None."""
    kind = type(module)
    if kind is not torch.nn.Linear:
        return f"it is a {kind.__name__}, a subclass that may compute something else"
    if "forward" in vars(module):
        return "its forward was replaced"
    if "weight" not in module._parameters:
        return "its weight is no parameter of its own"
    if type(module.weight) is not torch.nn.Parameter or type(module.weight.data) is not torch.Tensor:
        return f"its weight is a {type(module.weight.data).__name__}, not a plain tensor"
    if module.weight.dtype not in TYPES:
        names = ", ".join(str(each).removeprefix("torch.") for each in TYPES)
        return f"its weight is {str(module.weight.dtype).removeprefix('torch.')}; layers of {names} are converted"
    return None
