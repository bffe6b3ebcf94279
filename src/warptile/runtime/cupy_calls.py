"""Bound calls on CuPy arrays: results come from CuPy's memory pool, launches go to CuPy's current stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from warptile.arrays.array_view import numpy_dtype
from warptile.arrays.operands import Product
from warptile.gpu import driver
from warptile.planning.addend import Addend
from warptile.planning.plan import Plan
from warptile.runtime.call_cache import (
    AUTOTUNE,
    BACKEND,
    FOLDER,
    NOT_BOUND,
    Arrays,
    CallCache,
    environment,
    outputs_of,
)
from warptile.runtime.execute import GpuBackend
from warptile.runtime.fused_calls import NUMBERS, bind_fused


class CupyCalls(CallCache):
    """Bound calls on CuPy arrays, by what the arrays and options say.

    Args:
        cupy: the module.
        may_change: as of `CallCache`.
    """

    def __init__(self, cupy: Any, *, may_change: bool = True) -> None:
        super().__init__(may_change=may_change)
        self._array = cupy.ndarray
        self._stream: Callable[[], Any] = cupy.cuda.get_current_stream
        self._device: Callable[[], int] = cupy.cuda.runtime.getDevice

    def repeat(self, a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> Any:
        """The result of a call that is bound, or None where it has to take the long way."""
        try:
            at_a, at_b = a.data, b.data
            found = self._bound[self._key(a, at_a, b, at_b, c, out, options)]
        except NOT_BOUND:
            return None
        # CuPy allocates on the current device, and its current stream is that device's.
        if self._device() != found.ordinal:
            return None
        stream: int = self._stream().ptr
        if found.stands_in and driver.is_capturing(stream):
            return None  # a graph would keep the kernel for good
        if time.monotonic() >= self._next_look and self.is_stale():
            return None
        at_c = 0 if c is None else c.data.ptr
        if out is None:
            out = self._array(found.shape, found.dtype)
            at_d = out.data.ptr
        else:
            at_d = out.data.ptr
            if found.overlaps(at_a.ptr, at_b.ptr, at_c, at_d):
                return None
        status = found.launch(stream, at_a.ptr, at_b.ptr, at_c, at_d)
        if status:
            raise found.refuse(status)
        return out

    def repeat_fused(
        self, arrays: Arrays, options: tuple[Any, ...], epilogue: Hashable, operands: Mapping[str, Any]
    ) -> Any:
        """As of `CallCache`."""
        a, b, c, out = arrays
        given = outputs_of(out)
        try:
            found = self._fused[self.fused_key(arrays, options, epilogue, operands)]
            values = operands.values()
            tensors = [each.data.ptr for each in values if each.__class__ is self._array]
            numbers = found.words([each for each in values if each.__class__ is not self._array])
        except NOT_BOUND:
            return None
        if self._device() != found.ordinal or (time.monotonic() >= self._next_look and self.is_stale()):
            return None
        at_a, at_b, at_c = a.data.ptr, b.data.ptr, 0 if c is None else c.data.ptr
        if given:
            at_d, *at_others = [each.data.ptr for each in given]
            if found.overlaps(at_a, at_b, at_c, at_d, tensors, at_others):
                return None
        pairs = zip(found.shapes[len(given) :], found.dtypes[len(given) :], strict=True)
        outputs = [*given, *(self._array(shape, dtype) for shape, dtype in pairs)]
        d, *further = [each.data.ptr for each in outputs]
        status = found.launch(self._stream().ptr, at_a, at_b, at_c, d, *tensors, *numbers, *further)
        if status:
            raise found.refuse(status)
        return found.returned(outputs)

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
        a, b, c, out = arrays
        given = outputs_of(out)
        own = all(type(each) is self._array for each in given)
        if not own or not self.takes((a, b, c, None), product, backend) or not self.may_bind(options):
            return
        further = () if product.epilogue is None else product.epilogue.types
        dtypes = tuple(map(numpy_dtype, (product.problem.d.dtype, *further)))
        addresses = {name: each.data.ptr if each.__class__ is self._array else 0 for name, each in operands.items()}
        found = bind_fused(product, addresses, chosen, backend, alpha, beta, dtypes=dtypes)
        try:
            key = self.fused_key(arrays, options, epilogue, operands)
        except NOT_BOUND:
            return
        if found is not None:
            self.keep(key, found, backend.info.name)

    def is_same(self, one: Any, other: Any) -> bool:
        """As of `CallCache`."""
        if one.__class__ is self._array and other.__class__ is self._array:
            return bool(one.data.ptr == other.data.ptr)
        return super().is_same(one, other)

    def fused_key(
        self, arrays: Arrays, options: tuple[Any, ...], epilogue: Hashable, operands: Mapping[str, Any]
    ) -> Hashable:
        """As of `CallCache`."""
        a, b, c, out = arrays
        outs = outputs_of(out)
        said = tuple(
            (name, _said(each) if each.__class__ is self._array else NUMBERS[each.__class__])
            for name, each in operands.items()
        )
        key = self.key(a, b, c, outs[0] if outs else None, options), epilogue, said
        return key if len(outs) < 2 else (*key, *map(_said, outs[1:]))

    def key(self, a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> Any:
        """As of `CallCache`."""
        return self._key(a, a.data, b, b.data, c, out, options)

    @staticmethod
    def _key(a: Any, at_a: Any, b: Any, at_b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> Any:
        get = environment.get
        said = (
            a.__class__, a.shape, a.strides, a.dtype, at_a.device_id, at_a.ptr & 15,
            b.__class__, b.shape, b.strides, b.dtype, at_b.device_id, at_b.ptr & 15,
            options, get(BACKEND), get(AUTOTUNE), get(FOLDER),
        )  # fmt: skip
        if c is None and out is None:
            return said
        return (*said, c is None, *(_said(each) for each in (c, out) if each is not None))

    def takes(self, arrays: Arrays, product: Product, backend: GpuBackend) -> bool:
        """CuPy's own arrays, no subclass, where the arrays' device is the current one."""
        own = all(type(each) is self._array for each in arrays if each is not None)
        return own and self._device() == backend.info.ordinal

    def result_of(self, product: Product) -> tuple[Any, Any]:
        """NumPy's type; CuPy allocates on the current device."""
        return numpy_dtype(product.problem.d.dtype), None


def _said(x: Any) -> tuple[Any, ...]:
    at = x.data
    return x.__class__, x.shape, x.strides, x.dtype, at.device_id, at.ptr & 15
