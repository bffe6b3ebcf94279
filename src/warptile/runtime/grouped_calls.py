"""Bound calls of `warptile.matmul_grouped` on torch tensors in GPU memory: what C is to `matmul`, offsets are here."""

from __future__ import annotations

from typing import Any

from warptile.arrays.array_view import ArrayView
from warptile.planning.grouped_plan import GroupedPlan
from warptile.rungs.wgmma.grouped import ENDS
from warptile.runtime.bound_call import BoundCall, launches_of, reach_of
from warptile.runtime.call_cache import MOST_CALLS, NOT_BOUND, Arrays
from warptile.runtime.execute import GpuBackend
from warptile.runtime.torch_calls import TorchCalls

OPERANDS = ("A", "B", ENDS, "D")
"""The operands whose addresses a bound launch is given, in that order."""


class GroupedCalls(TorchCalls):
    """Bound calls of `warptile.matmul_grouped`: A, B, offsets and ``out``."""

    def learn_grouped(
        self,
        arrays: Arrays,
        options: tuple[Any, ...],
        plan: GroupedPlan,
        backend: GpuBackend,
        operands: dict[str, ArrayView],
    ) -> None:
        """Bind a call that was planned, if its arrays are read and written as they lie.

        Args:
            arrays: A, B, offsets and ``out`` as given.
            options: what else it says.
            plan: the kernel.
            backend: the GPU.
            operands: what the kernel is given.
        """
        a, b, offsets, out = arrays
        given = (a, b, offsets, operands["D"].array if out is None else out)
        if any(type(each) not in self._types or each.get_device() < 0 for each in given) or not self.may_bind(options):
            return
        views = [operands[name] for name in OPERANDS]
        if any(each.data_ptr() != view.pointer for each, view in zip(given, views, strict=True)):
            return  # a copy of it
        found = launches_of(plan, backend, 1, 0, operands, names=OPERANDS)
        if found is None:
            return
        d, gradients = given[3], a.requires_grad or b.requires_grad
        bound = BoundCall(
            *found, tuple(d.shape), d.dtype, d.device, backend.info.ordinal, tuple(map(reach_of, views)), False,
            gradients, False,
        )  # fmt: skip
        try:
            key = self.key(*arrays, options)
        except NOT_BOUND:
            return
        with self._learning:
            if len(self._bound) >= MOST_CALLS:
                del self._bound[next(iter(self._bound))]
            self._bound[key] = bound

    def _recorded(self, found: BoundCall, a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> Any:
        """None: an operator of torch records the gradient."""
        return None
