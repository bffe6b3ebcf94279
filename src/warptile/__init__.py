"""warptile: NVIDIA tensor-core matrix multiplication, a ladder of real kernels, with and without a GPU.

Importing it loads no NumPy, no CUDA library and no framework; each public name is loaded when first used.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warptile.errors import (
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
    from warptile.matmul import MatmulPlan, matmul, plan
    from warptile.sparse import SparseMatrix, sparsify

__version__ = "0.1.0"

__all__ = [
    "CompileError",
    "DTypeError",
    "DeviceError",
    "EmulationError",
    "EpilogueError",
    "LayoutError",
    "MatmulPlan",
    "NoDeviceError",
    "ShapeError",
    "SparseMatrix",
    "UnsupportedError",
    "WarptileError",
    "__version__",
    "matmul",
    "plan",
    "sparsify",
]

_HOME = {name: "warptile.errors" for name in __all__ if name.endswith("Error")}
_HOME |= dict.fromkeys(("MatmulPlan", "matmul", "plan"), "warptile.matmul")
_HOME |= dict.fromkeys(("SparseMatrix", "sparsify"), "warptile.sparse")


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'warptile' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Keeps a public function visible when a module of the same name (``matmul``, ``plan``) is imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
