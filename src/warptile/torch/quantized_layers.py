"""`QuantizedLinear`: a linear layer with weights of 4 or 8 bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

import torch

from warptile.api import matmul
from warptile.arrays.quantized_weights import QuantizedWeights, quantize
from warptile.errors import ArgumentTypeError, ShapeError
from warptile.linear_call import linear

FIELDS = ("shape", "dtype", "bits", "group_size", "zero_point")
"""What is known of weights beside their packed blocks."""


class QuantizedLinear(torch.nn.Module):
    """``x @ weights.dequantize().T + bias`` with weights that stay packed.

    Weights are a buffer, and so part of the state dict and moved with the module. They have no gradient; the input and
    a bias that is a parameter do, so that adapters can be trained around the layer.

    Args:
        weights: (out_features, in_features), of torch.
        bias: (out_features,), of the activations' type, or None. A parameter stays one.
    """

    packed: torch.Tensor

    _outside_of_programs: ClassVar[Callable[..., Any]]

    def __init__(self, weights: QuantizedWeights, bias: torch.Tensor | None = None) -> None:
        super().__init__()
        if not isinstance(weights, QuantizedWeights):
            raise ArgumentTypeError(
                f"weights: got {type(weights).__name__}; it takes what quantize makes, such as "
                f"QuantizedLinear(warptile.quantize(linear.weight.detach())), or QuantizedLinear.from_linear(linear)"
            )
        self.out_features, self.in_features = weights.shape
        if bias is not None and tuple(bias.shape) != (self.out_features,):
            raise ShapeError(f"bias: got shape {tuple(bias.shape)}; it has the shape {(self.out_features,)}")
        self.register_buffer("packed", weights.packed)
        self._fields = {name: getattr(weights, name) for name in FIELDS}
        self._made = weights
        _break_graphs()
        if isinstance(bias, torch.nn.Parameter):
            self.bias: torch.Tensor | None = bias
        else:
            self.register_buffer("bias", bias)

    @classmethod
    def from_linear(
        cls,
        module: torch.nn.Linear,
        bits: int = 4,
        group_size: int | None = 128,
        zero_point: bool = False,
        *,
        dtype: Any = None,
    ) -> QuantizedLinear:
        """A layer with the quantized weights of another one.

        Args:
            module: its weights are read once.
            bits, group_size, zero_point, dtype: as of `warptile.quantize`.

        Returns:
            The layer, on the device of ``module``; its bias is a buffer of the activations' type.
        """
        weights = quantize(module.weight.detach(), bits, group_size, zero_point, dtype=dtype)
        bias = None if module.bias is None else module.bias.detach().to(getattr(torch, weights.dtype))
        return cls(weights, bias)

    @property
    def weights(self) -> QuantizedWeights:
        """The weights, wherever the module has been moved."""
        if self._made.packed is not self.packed:
            self._made = QuantizedWeights(packed=self.packed, **self._fields)
        return self._made

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """(..., in_features) to (..., out_features), both of the activations' type."""
        found: torch.Tensor = self._outside_of_programs(input, self.bias, self.weights)
        return found

    def get_extra_state(self) -> dict[str, Any]:
        """What the state dict holds beside buffers: the format of the weights."""
        return dict(self._fields)

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Takes what a state dict held; its weights may have another format."""
        self._fields = {name: state[name] for name in FIELDS}
        self.out_features, self.in_features = self._fields["shape"]
        self._made = QuantizedWeights(packed=self.packed, **self._fields)

    def extra_repr(self) -> str:
        """What printing the module says."""
        bias = self.bias is not None
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={bias}, {self.weights.format}"


class _Product(torch.autograd.Function):
    """The linear function of input and bias."""

    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, bias: torch.Tensor | None, weights: QuantizedWeights) -> torch.Tensor:
        ctx.weights = weights
        found: torch.Tensor = linear(input.detach(), weights, None if bias is None else bias.detach())
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
        of_input, of_bias, _ = ctx.needs_input_grad
        rows = gradient.reshape(-1, gradient.shape[-1])
        back = matmul(rows, ctx.weights.dequantize()).reshape(*gradient.shape[:-1], -1) if of_input else None
        return back, rows.sum(0) if of_bias else None, None


def _product(input: torch.Tensor, bias: torch.Tensor | None, weights: QuantizedWeights) -> Any:
    """The linear function, its gradient recorded where one is asked for; a graph break in compiled programs."""
    wanted = input.requires_grad or (bias is not None and bias.requires_grad)
    if torch.is_grad_enabled() and wanted:
        return _Product.apply(input, bias, weights)
    return linear(input, weights, bias)


@cache
def _break_graphs() -> None:
    """Let compiled programs break at the product. It loads Dynamo: done for the first layer, not by an import."""
    QuantizedLinear._outside_of_programs = staticmethod(torch.compiler.disable(_product))


QuantizedLinear._outside_of_programs = staticmethod(_product)
