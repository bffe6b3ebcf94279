"""What is special about calls of `warptile.matmul` with quantized weights."""

from __future__ import annotations

from typing import Any

from warptile.errors import UnsupportedError
from warptile.torch_route import requires_gradient


def refuse_gradients(a: Any, c: Any, out: Any) -> None:
    """Raise where torch would record a gradient of this call.

    Raises:
        UnsupportedError: it would.
    """
    if out is None and requires_gradient(a, None, c):
        raise UnsupportedError(
            "a: it requires a gradient, which is not recorded for quantized weights; call under torch.no_grad(), or "
            "multiply by dequantized ones: matmul(x, w.dequantize().T)"
        )


def joins_rows(a: Any, c: Any, out: Any) -> bool:
    """Whether the rows of all matrices of ``a`` can be those of one: there are several, and no other operand has
    them."""
    return out is None and len(getattr(a, "shape", ())) > 2 and (c is None or len(getattr(c, "shape", ())) <= 1)
