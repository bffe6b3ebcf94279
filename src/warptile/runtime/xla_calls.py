"""Bound calls on buffers of XLA programs, in a GPU's memory."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping
from typing import Any

from warptile.arrays.array_view import ArrayView
from warptile.arrays.operands import Product
from warptile.gpu import driver
from warptile.planning.addend import Addend
from warptile.planning.plan import Plan
from warptile.runtime.call_cache import AUTOTUNE, BACKEND, FOLDER, NOT_BOUND, Arrays, CallCache, environment
from warptile.runtime.execute import GpuBackend
from warptile.runtime.fused_calls import bind_fused


class XlaCalls(CallCache):
    """Bound calls on views of XLA's buffers in a GPU's memory, whose ``array`` is their
    `warptile.arrays.xla_buffers.ProgramCall`. The program has allocated ``out``, too."""

    def repeat(self, a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> Any:
        """The result of a call that is bound, or None where it has to take the long way."""
        try:
            found = self._bound[self.key(a, b, c, out, options)]
        except NOT_BOUND:
            return None
        if found.stands_in and driver.is_capturing(out.stream):
            return None  # a graph would keep the kernel for good
        if time.monotonic() >= self._next_look and self.is_stale():
            return None
        status = found.launch(out.stream, a.pointer, b.pointer, 0 if c is None else c.pointer, out.pointer)
        if status:
            raise found.refuse(status)
        return out

    def repeat_fused(
        self, arrays: Arrays, options: tuple[Any, ...], epilogue: Hashable, operands: Mapping[str, Any]
    ) -> Any:
        """As of `CallCache`."""
        try:
            found = self._fused[_fused_key(arrays, operands)]
            numbers = found.words([each for each in operands.values() if not isinstance(each, ArrayView)])
        except NOT_BOUND:
            return None
        if time.monotonic() >= self._next_look and self.is_stale():
            return None
        a, b, c, out = arrays
        first, *further = out if isinstance(out, tuple) else (out,)
        tensors = [each.pointer for each in operands.values() if isinstance(each, ArrayView)]
        status = found.launch(
            first.stream, a.pointer, b.pointer, 0 if c is None else c.pointer, first.pointer, *tensors, *numbers,
            *(each.pointer for each in further),
        )  # fmt: skip
        if status:
            raise found.refuse(status)
        return out

    def learn_fused(
        self,
        arrays: Arrays,
        options: tuple[Any, ...],
        epilogue: Hashable,
        operands: Mapping[str, Any],
        product: Product,
        chosen: Plan | Addend,
        backend: GpuBackend,
        alpha: float,
        beta: float,
    ) -> None:
        """As of `CallCache`."""
        if product.like.device is None or arrays[3] is None:
            return
        addresses = {name: each.pointer if isinstance(each, ArrayView) else 0 for name, each in operands.items()}
        found = bind_fused(product, addresses, chosen, backend, alpha, beta)
        if found is not None:
            self.keep(_fused_key(arrays, operands), found, backend.info.name)

    def key(self, a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> Any:
        """As of `CallCache`. The options are a part of the program's call."""
        get = environment.get
        return (
            a.array, a.device, a.pointer & 15, b.pointer & 15, 0 if c is None else c.pointer & 15, out.pointer & 15,
            get(BACKEND), get(AUTOTUNE), get(FOLDER),
        )  # fmt: skip

    def takes(self, arrays: Arrays, product: Product, backend: GpuBackend) -> bool:
        """Views of buffers in GPU memory."""
        return product.like.device is not None and arrays[3] is not None


def _fused_key(arrays: Arrays, operands: Mapping[str, Any]) -> Hashable:
    """Addresses as far as they decide alignment; all else is the program's call."""
    a, b, c, out = arrays
    views = (a, b, *(() if c is None else (c,)), *(out if isinstance(out, tuple) else (out,)), *operands.values())
    get = environment.get
    aligned = tuple(each.pointer & 15 for each in views if isinstance(each, ArrayView))
    return a.array, a.device, aligned, get(BACKEND), get(AUTOTUNE), get(FOLDER)
