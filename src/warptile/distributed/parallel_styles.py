"""`ColwiseParallel` and `RowwiseParallel`: the styles of ``torch.distributed.tensor.parallel``, by warptile's GEMMs."""

# torch may be missing where types are checked.
# mypy: allow-subclassing-any, allow-untyped-calls

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import DeviceMesh, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle

from warptile.distributed.parallel_linear import ColumnParallelLinear, Layouts, RowParallelLinear, replicated
from warptile.distributed.process_groups import name_of
from warptile.errors import ArgumentError, UnsupportedError
from warptile.torch.linear_layer import Linear

_LAYERS = (torch.nn.Linear, Linear)


class ColwiseParallel(ParallelStyle):
    """Divides the outputs of a linear layer between ranks: the first layer of a block.

    As ``torch.distributed.tensor.parallel.ColwiseParallel``, with one operator for the all-gather and the GEMM where
    ``input_layouts`` is a ``Shard``.

    Args:
        input_layouts: placement of the input: ``Replicate()`` by default, or ``Shard(dim)`` of rows (sequence
            parallelism), which are gathered.
        output_layouts: placement of the output: ``Shard(-1)`` by default, which is what the layer computes.
        use_local_output: return this rank's part as a plain tensor, not as a DTensor.

    Raises:
        UnsupportedError: when it is applied, to a module that is no linear layer, or with another input placement.
    """

    def __init__(
        self, *, input_layouts: Any = None, output_layouts: Any = None, use_local_output: bool = True
    ) -> None:  # fmt: skip
        super().__init__()
        self.input_layouts = Replicate() if input_layouts is None else input_layouts
        self.output_layouts = Shard(-1) if output_layouts is None else output_layouts
        self.use_local_output = use_local_output

    def _apply(self, module: torch.nn.Module, device_mesh: DeviceMesh) -> torch.nn.Module:
        given = self.input_layouts
        if not (replicated(given) or isinstance(given, Shard)):
            raise UnsupportedError(
                f"input_layouts: got {given}; it is Replicate(), or Shard(dim) of rows, such as "
                f"ColwiseParallel(input_layouts=Shard(1))"
            )
        of_k = isinstance(given, Shard) and given.dim == -1  # a GEMM that needs all of K: gathered first
        return _divided(
            self, module, device_mesh, {"weight": Shard(0), "bias": Shard(0)}, ColumnParallelLinear,
            input=Replicate() if of_k else given, computed=Shard(-1),
        )  # fmt: skip


class RowwiseParallel(ParallelStyle):
    """Divides the K of a linear layer between ranks: the last layer of a block.

    As ``torch.distributed.tensor.parallel.RowwiseParallel``, with one operator for the GEMM and the sum over ranks.

    Args:
        input_layouts: placement of the input: ``Shard(-1)`` by default, what a `ColwiseParallel` layer returns.
        output_layouts: placement of the output: ``Replicate()`` by default, the sum on every rank; or ``Shard(dim)``,
            each rank's part of the sum (sequence parallelism).
        use_local_output: return this rank's part as a plain tensor, not as a DTensor.

    Raises:
        UnsupportedError: when it is applied, to a module that is no linear layer.
    """

    def __init__(
        self, *, input_layouts: Any = None, output_layouts: Any = None, use_local_output: bool = True
    ) -> None:  # fmt: skip
        super().__init__()
        self.input_layouts = Shard(-1) if input_layouts is None else input_layouts
        self.output_layouts = Replicate() if output_layouts is None else output_layouts
        self.use_local_output = use_local_output

    def _apply(self, module: torch.nn.Module, device_mesh: DeviceMesh) -> torch.nn.Module:
        computed = self.output_layouts
        if not (replicated(computed) or isinstance(computed, Shard)):
            raise UnsupportedError(
                f"output_layouts: got {computed}; it is Replicate(), or Shard(dim), such as "
                f"RowwiseParallel(output_layouts=Shard(1))"
            )
        return _divided(
            self, module, device_mesh, {"weight": Shard(1), "bias": Replicate()}, RowParallelLinear, input=Shard(-1),
            computed=computed,
        )  # fmt: skip


def _divided(
    style: Any, module: torch.nn.Module, mesh: DeviceMesh, placements: dict[str, Any], kind: type, *, input: Any,
    computed: Any,
) -> torch.nn.Module:  # fmt: skip
    """The layer, with its parameters divided and another class; it stays the same object."""
    name = type(style).__name__
    if type(module) not in _LAYERS:
        raise UnsupportedError(
            f"{name}: got a {type(module).__name__}; it divides torch.nn.Linear and warptile.torch.Linear: for other "
            f"modules there is torch.distributed.tensor.parallel.{name}()"
        )
    if mesh.ndim != 1:
        raise ArgumentError(
            f"{name}: the mesh has {mesh.ndim} dimensions; a layer is divided along one, such as "
            f"parallelize_module(model, mesh['tp'], plan)"
        )

    def divide(_: str, layer: Any, of: DeviceMesh) -> None:
        for parameter, tensor in list(layer.named_parameters(recurse=False)):
            whole = distribute_tensor(tensor, of, [placements[parameter]], src_data_rank=style.src_data_rank)
            layer.register_parameter(parameter, torch.nn.Parameter(whole, requires_grad=tensor.requires_grad))

    distribute_module(module, mesh, divide)
    module.__class__ = kind
    module.layouts = Layouts(
        mesh, name_of(mesh), style.input_layouts, input, computed, style.output_layouts, style.use_local_output
    )
    return module
