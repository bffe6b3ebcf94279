"""`warptile.jax.matmul`: matrix multiplication that JAX's transformations take (``jit``, ``vmap``, ``grad``, ...).

`warptile.matmul` calls it for arrays that are being traced. This room imports JAX; nothing else of warptile does before
it is given an array of JAX's.
"""

from __future__ import annotations

from warptile.jax import fused_transformations, transformations  # noqa: F401  (importing these registers rules)
from warptile.jax.handlers import register_handlers
from warptile.jax.traced_matmul import matmul

__all__ = ["matmul", "register_handlers"]
