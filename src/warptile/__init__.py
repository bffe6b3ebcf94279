"""warptile: NVIDIA tensor-core matrix multiplication, a ladder of real kernels, with and without a GPU.

Importing it loads no NumPy, no CUDA library and no framework; each public name is loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warptile.api import matmul, plan
    from warptile.arrays.quantized_checkpoints import quantized_from_checkpoint
    from warptile.arrays.quantized_weights import QuantizedWeights, quantize
    from warptile.arrays.sparse import SparseMatrix, sparsify
    from warptile.arrays.split_matrix import SplitMatrix, split
    from warptile.calls.matmul_plan import MatmulPlan
    from warptile.epilogue.expressions import (
        abs,
        absolute,
        cast,
        clamp,
        dropout,
        dropout_mask,
        erf,
        exp,
        gelu,
        halves,
        log,
        maximum,
        minimum,
        pairs,
        per_block,
        relu,
        sigmoid,
        silu,
        sqrt,
        tanh,
        where,
    )
    from warptile.errors import (
        ArgumentError,
        ArgumentTypeError,
        CommunicationError,
        CompileError,
        DeviceError,
        DTypeError,
        EmulationError,
        EpilogueError,
        LayoutError,
        NoDeviceError,
        ShapeError,
        UnsupportedError,
        WarptileError,
    )
    from warptile.grouped_call import matmul_grouped
    from warptile.linear_call import linear
    from warptile.runtime.compile_ahead import WarmKernel, WarmReport
    from warptile.user_kernels.emulated_launches import emulated
    from warptile.user_kernels.kernel_report import KernelReport
    from warptile.user_kernels.parameter_values import struct, tensor_map
    from warptile.user_kernels.triton_kernels import emulate_triton
    from warptile.user_kernels.user_kernel import UserKernel, kernel
    from warptile.warming import warm

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "CommunicationError",
    "CompileError",
    "DTypeError",
    "DeviceError",
    "EmulationError",
    "EpilogueError",
    "KernelReport",
    "LayoutError",
    "MatmulPlan",
    "NoDeviceError",
    "QuantizedWeights",
    "ShapeError",
    "SparseMatrix",
    "SplitMatrix",
    "UnsupportedError",
    "UserKernel",
    "WarmKernel",
    "WarmReport",
    "WarptileError",
    "__version__",
    "abs",
    "absolute",
    "cast",
    "clamp",
    "dropout",
    "dropout_mask",
    "emulate_triton",
    "emulated",
    "erf",
    "exp",
    "gelu",
    "halves",
    "kernel",
    "linear",
    "log",
    "matmul",
    "matmul_grouped",
    "maximum",
    "minimum",
    "pairs",
    "per_block",
    "plan",
    "quantize",
    "quantized_from_checkpoint",
    "relu",
    "sigmoid",
    "silu",
    "sparsify",
    "split",
    "sqrt",
    "struct",
    "tanh",
    "tensor_map",
    "warm",
    "where",
]

_HOME = {name: "warptile.errors" for name in __all__ if name.endswith("Error")}
_HOME |= dict.fromkeys(
    (
        "abs", "absolute", "cast", "clamp", "dropout", "dropout_mask", "erf", "exp", "gelu", "halves", "log", "maximum",
        "minimum", "pairs", "per_block", "relu", "sigmoid", "silu", "sqrt", "tanh", "where",
    ),
    "warptile.epilogue.expressions",
)  # fmt: skip
_HOME |= {"MatmulPlan": "warptile.calls.matmul_plan", "matmul": "warptile.api", "plan": "warptile.api"}
_HOME |= dict.fromkeys(("SparseMatrix", "sparsify"), "warptile.arrays.sparse") | {"linear": "warptile.linear_call"}
_HOME |= {"matmul_grouped": "warptile.grouped_call"}
_HOME |= dict.fromkeys(("WarmKernel", "WarmReport"), "warptile.runtime.compile_ahead") | {"warm": "warptile.warming"}
_HOME |= dict.fromkeys(("QuantizedWeights", "quantize"), "warptile.arrays.quantized_weights")
_HOME |= dict.fromkeys(("SplitMatrix", "split"), "warptile.arrays.split_matrix")
_HOME |= {"quantized_from_checkpoint": "warptile.arrays.quantized_checkpoints"}
_HOME |= {"UserKernel": "warptile.user_kernels.user_kernel", "kernel": "warptile.user_kernels.user_kernel"}
_HOME |= dict.fromkeys(("struct", "tensor_map"), "warptile.user_kernels.parameter_values")
_HOME |= {"emulate_triton": "warptile.user_kernels.triton_kernels"}
_HOME |= {"emulated": "warptile.user_kernels.emulated_launches", "KernelReport": "warptile.user_kernels.kernel_report"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'warptile' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
