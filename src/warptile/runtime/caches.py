"""The cache of bound calls for arrays of each framework."""

from __future__ import annotations

import sys

from warptile.arrays.array_view import ArrayView
from warptile.runtime.call_cache import CallCache


def new_cache(like: ArrayView, *, of_plan: bool) -> CallCache | None:
    """A cache for calls on arrays of the framework, and in the kind of memory, of ``like``; None where calls cannot be
    bound: torch's and JAX's arrays in host memory.

    Args:
        like: the caller's ``a``.
        of_plan: all calls are of one plan, which does not change.
    """
    may_change = not of_plan
    if like.framework == "numpy":
        from warptile.runtime.numpy_calls import NumpyCalls

        return NumpyCalls(may_change=may_change)
    if like.device is None:
        return None
    if like.framework == "torch":
        from warptile.runtime.torch_calls import PlanCalls, TorchCalls

        torch = sys.modules["torch"]
        return PlanCalls(torch) if of_plan else TorchCalls(torch)
    if like.framework == "cupy":
        from warptile.runtime.cupy_calls import CupyCalls

        return CupyCalls(sys.modules["cupy"], may_change=may_change)
    if like.framework == "jax":
        from warptile.runtime.jax_calls import JaxCalls

        return JaxCalls(may_change=may_change)
    if like.framework == "xla":
        from warptile.runtime.xla_calls import XlaCalls

        return XlaCalls(may_change=may_change)
    from warptile.runtime.interface_calls import InterfaceCalls

    return InterfaceCalls(may_change=may_change)
