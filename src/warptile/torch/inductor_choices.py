"""warptile as a candidate of Inductor's max-autotune."""

from __future__ import annotations

from typing import Any

import torch

from warptile.api import matmul


def warptile_mm(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> None:
    """``out = a @ b``, in the form that generated code calls: Inductor knows it by this name."""
    with torch.no_grad():
        matmul(a, b, out=out)


_KERNEL: Any = warptile_mm
"""Inductor passes ``out`` by name, which the type of its list does not say."""


def register_inductor() -> None:
    """Let ``torch.compile(mode="max-autotune")`` choose warptile for matrix products where it is fastest.

    Inductor times its candidates on the shapes of the program and keeps the fastest: warptile is timed beside them.
    It is a candidate for ``mm`` of two matrices (what ``linear`` without bias becomes), by
    ``torch._inductor.config.external_matmul``. Registering again does nothing. A process that loads programs from
    Inductor's cache has to register too.
    """
    from torch._inductor import config
    from torch._inductor.kernel.mm import lazy_register_extern_choice

    lazy_register_extern_choice(_KERNEL)  # programs that another process compiled and kept call it by name
    if _KERNEL not in config.external_matmul:
        config.external_matmul = [*config.external_matmul, _KERNEL]


def unregister_inductor() -> None:
    """Take warptile out of Inductor's candidates; what is compiled stays compiled."""
    from torch._inductor import config

    config.external_matmul = [each for each in config.external_matmul if each is not _KERNEL]
