"""Bound calls on buffers of XLA programs, in a GPU's memory."""

from __future__ import annotations

import time
from typing import Any

from warptile.arrays.operands import Product
from warptile.gpu import driver
from warptile.runtime.call_cache import AUTOTUNE, BACKEND, FOLDER, NOT_BOUND, Arrays, CallCache, environment
from warptile.runtime.execute import GpuBackend


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
