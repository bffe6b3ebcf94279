"""Bound calls of `warptile.matmul_grouped` on torch tensors in GPU memory: what C is to `matmul`, offsets are here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warptile.arrays.array_view import ArrayView
from warptile.epilogue.fused_epilogue import OPERAND
from warptile.planning.grouped_plan import GroupedPlan
from warptile.rungs.wgmma.grouped import ENDS
from warptile.runtime.bound_call import BoundCall, launches_of, reach_of
from warptile.runtime.call_cache import NOT_BOUND, Arrays
from warptile.runtime.execute import GpuBackend
from warptile.runtime.fused_calls import FusedCall
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
        operands: Mapping[str, ArrayView],
        factor: float,
        scales: Mapping[str, Any],
    ) -> None:
        """Bind a call that was planned, if its arrays are read and written as they lie, so that `repeat` finds it, or
        `repeat_fused` where there are scales in arrays.

        Args:
            arrays: A, B, offsets and ``out`` as given.
            options: what else it says.
            plan: the kernel.
            backend: the GPU.
            operands: what the kernel is given.
            factor: scales that are numbers.
            scales: those in arrays, by their names in an epilogue.
        """
        a, b, offsets, out = arrays
        d = operands["D"].array if out is None else out
        given = (a, b, offsets, d, *scales.values())
        if any(type(each) not in self._types or each.get_device() < 0 for each in given) or not self.may_bind(options):
            return
        names = (*OPERANDS, *(f"{OPERAND} {name}" for name in scales))
        views = [operands[name] for name in names]
        if any(each.data_ptr() != view.pointer for each, view in zip(given, views, strict=True)):
            return  # a copy of it
        found = launches_of(plan, backend, factor, 0, operands, names=names)
        if found is None:
            return
        ordinal, reaches, gradients = backend.info.ordinal, tuple(map(reach_of, views)), self.wants_gradients(given)
        try:
            if scales:
                self.keep(
                    self.fused_key(arrays, options, None, scales),
                    FusedCall(
                        *found, (tuple(d.shape),), (d.dtype,), (None,), d.device, ordinal, reaches,
                        (False,) * (1 + len(scales)), (), gradients,
                    ),
                    backend.info.name,
                )  # fmt: skip
                return
            key = self.key(*arrays, options)
        except NOT_BOUND:
            return
        bound = BoundCall(
            *found, tuple(d.shape), d.dtype, d.device, ordinal, reaches, False, gradients, False
        )  # fmt: skip
        with self._learning:
            self._add(key, bound)

    def _recorded(self, found: BoundCall, a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> Any:
        """None: an operator of torch records the gradient."""
        return None
