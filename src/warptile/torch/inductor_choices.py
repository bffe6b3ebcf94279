"""warptile as a candidate of Inductor's max-autotune."""

from __future__ import annotations

import torch

from warptile.api import matmul


def warptile_mm(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> None:
    """``out = a @ b``, in the form that generated code calls: Inductor knows it by this name."""
    with torch.no_grad():
        matmul(a, b, out=out)


def register_inductor() -> None:
    """Let ``torch.compile(mode="max-autotune")`` choose warptile for matrix products where it is fastest.

    Inductor times its candidates on the shapes of the program and keeps the fastest: warptile is timed beside them.
    It is a candidate for ``mm`` of two matrices (what ``linear`` without bias becomes), by
    ``torch._inductor.config.external_matmul``. Registering again does nothing.
    """
    from torch._inductor import config

    if warptile_mm not in config.external_matmul:
        config.external_matmul.append(warptile_mm)


def unregister_inductor() -> None:
    """Take warptile out of Inductor's candidates; what is compiled stays compiled."""
    from torch._inductor import config

    if warptile_mm in config.external_matmul:
        config.external_matmul.remove(warptile_mm)
