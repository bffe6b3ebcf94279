"""Linear layers whose weights are divided between ranks: what `ColwiseParallel` and `RowwiseParallel` make of a layer.

Parameters are DTensors, as torch's own styles make them, so that optimizers, checkpoints and gradient clipping find
what they know; the GEMMs run on this rank's parts.
"""

# torch may be missing where types are checked.
# mypy: allow-subclassing-any, allow-untyped-calls

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard

from warptile.api import matmul
from warptile.distributed.collective_operators import ALL_GATHER_MATMUL, MATMUL_ALL_REDUCE, MATMUL_REDUCE_SCATTER
from warptile.errors import UnsupportedError


@dataclass(frozen=True)
class Layouts:
    """How a layer's input and output are divided between the ranks of a mesh.

    Attributes:
        mesh: a ``DeviceMesh`` with one dimension.
        group_name: name of its process group.
        given: placement of an input that is a plain tensor.
        input: placement that the layer computes from.
        computed: placement of what the layer computes.
        output: placement of what it returns.
        use_local_output: whether it returns this rank's part as a plain tensor, or a DTensor.
    """

    mesh: Any
    group_name: str
    given: Any
    input: Any
    computed: Any
    output: Any
    use_local_output: bool

    def local_input(self, x: Any) -> torch.Tensor:
        """This rank's part of an input."""
        if not isinstance(x, DTensor):
            if self.given == self.input:
                return x
            x = DTensor.from_local(x, self.mesh, [self.given], run_check=False)
        if list(x.placements) != [self.input]:
            x = x.redistribute(self.mesh, [self.input])
        found: torch.Tensor = x.to_local()
        return found

    def returned(self, y: torch.Tensor) -> Any:
        """The layer's result, computed as this rank's part ``y``."""
        if self.use_local_output and self.output == self.computed:
            return y
        whole = DTensor.from_local(y, self.mesh, [self.computed], run_check=False)
        if self.output != self.computed:
            whole = whole.redistribute(self.mesh, [self.output])
        return whole.to_local() if self.use_local_output else whole


def axis(placement: Any, x: torch.Tensor) -> int:
    """The axis along which a tensor of as many axes as ``x`` is divided."""
    dim: int = placement.dim
    return dim + x.dim() if dim < 0 else dim


class ColumnParallelLinear(torch.nn.Linear):
    """``x @ weight.T + bias`` with some of the outputs on each rank; made by `ColwiseParallel`."""

    layouts: Layouts

    def forward(self, input: Any) -> Any:
        """This rank's outputs for the rows of all ranks.

        Args:
            input: (..., in_features), or this rank's part of it, as the style's ``input_layouts`` say.

        Returns:
            (..., out_features / ranks), or what ``output_layouts`` say.
        """
        said = self.layouts
        x, w = said.local_input(input), self.weight.to_local().mT
        if isinstance(said.input, Shard):
            y = ALL_GATHER_MATMUL(x, [w], axis(said.input, x), said.group_name, return_a=False)[1][0]
        else:
            y = ReplicatedInputFunction.apply(x, w, said.group_name)
        return said.returned(y if self.bias is None else y + self.bias.to_local())


class RowParallelLinear(torch.nn.Linear):
    """``x @ weight.T + bias`` with a part of K on each rank; made by `RowwiseParallel`."""

    layouts: Layouts

    def forward(self, input: Any) -> Any:
        """The sum over the ranks' parts of K.

        Args:
            input: (..., in_features / ranks), or what the style's ``input_layouts`` say.

        Returns:
            (..., out_features), or this rank's part of it, as ``output_layouts`` say.
        """
        said = self.layouts
        x, w = said.local_input(input), self.weight.to_local().mT
        if isinstance(said.computed, Shard):
            dim = axis(said.computed, x)
            if dim == x.dim() - 1:
                raise UnsupportedError(
                    f"output_layouts: got {said.computed} of a result with {x.dim()} axes, which is its columns; give "
                    f"the axis of rows that ranks divide, such as RowwiseParallel(output_layouts=Shard({dim - 1}))"
                )
            y = MATMUL_REDUCE_SCATTER(x, w, "sum", dim, said.group_name)
            if self.bias is not None:
                y = AddendOfRowsFunction.apply(y, self.bias.to_local(), said.group_name)
        else:
            y = MATMUL_ALL_REDUCE(x, w, "sum", said.group_name)
            if self.bias is not None:
                y = y + self.bias.to_local()
        return said.returned(y)


class ReplicatedInputFunction(torch.autograd.Function):
    """``x @ w`` where every rank has the same x and columns of its own of w: the gradient of x is a sum over ranks."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any, group_name: str) -> Any:
        """``x @ w``: all of x, this rank's columns."""
        ctx.save_for_backward(x, w)
        ctx.group_name = group_name
        return matmul(x.detach().flatten(0, -2), w.detach()).view(*x.shape[:-1], w.shape[1])

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """Gradients of x, which all ranks add to, and of w."""
        x, w = ctx.saved_tensors
        grad_x = MATMUL_ALL_REDUCE(grad, w.mT, "sum", ctx.group_name) if ctx.needs_input_grad[0] else None
        grad_w = matmul(x.flatten(0, -2).mT, grad.flatten(0, -2)) if ctx.needs_input_grad[1] else None
        return grad_x, grad_w, None


class AddendOfRowsFunction(torch.autograd.Function):
    """``y + bias`` where ranks have rows of their own of y and the same bias: its gradient is a sum over ranks."""

    @staticmethod
    def forward(ctx: Any, y: Any, bias: Any, group_name: str) -> Any:
        """``y + bias``."""
        ctx.group_name = group_name
        return y + bias

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """Gradients of y and of bias. The sum over rows is a row of ones times them."""
        grad_bias = None
        if ctx.needs_input_grad[1]:
            rows = grad.flatten(0, -2)
            ones = rows.new_ones((1, rows.shape[0]))
            grad_bias = MATMUL_ALL_REDUCE(ones, rows, "sum", ctx.group_name).view(-1)
        return grad, grad_bias, None


def replicated(placement: Any) -> bool:
    """Whether every rank has all of it."""
    return isinstance(placement, Replicate)
