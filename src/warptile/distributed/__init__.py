"""Tensor-parallel GEMMs over torch.distributed. Import it to have them; it imports torch.

`all_gather_matmul`, `matmul_reduce_scatter` and `matmul_all_reduce` are operators of ``torch.ops.warptile`` with
gradients, on GPUs over NCCL and on CPUs over gloo, where the emulator multiplies. `ColwiseParallel` and
`RowwiseParallel` divide linear layers by them, for ``torch.distributed.tensor.parallel.parallelize_module``; DTensors
are imported when one of them is first used. Launch, rendezvous and transport are torch.distributed's.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from warptile.distributed.collective_calls import all_gather_matmul, matmul_all_reduce, matmul_reduce_scatter

if TYPE_CHECKING:
    from warptile.distributed.parallel_styles import ColwiseParallel, RowwiseParallel

__all__ = ["ColwiseParallel", "RowwiseParallel", "all_gather_matmul", "matmul_all_reduce", "matmul_reduce_scatter"]


def __getattr__(name: str) -> Any:
    if name not in ("ColwiseParallel", "RowwiseParallel"):
        raise AttributeError(f"module 'warptile.distributed' has no attribute {name!r}")
    return getattr(importlib.import_module("warptile.distributed.parallel_styles"), name)
