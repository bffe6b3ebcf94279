"""Bound calls on NumPy arrays: copied to a staging area of the GPU, multiplied there, and copied back."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from warptile.arrays.array_view import numpy_dtype
from warptile.arrays.operands import Product
from warptile.gpu import driver, staging
from warptile.runtime.bound_call import BoundCall
from warptile.runtime.call_cache import AUTOTUNE, BACKEND, FOLDER, NOT_BOUND, Arrays, CallCache, environment
from warptile.runtime.execute import GpuBackend


class NumpyCalls(CallCache):
    """Bound calls on NumPy arrays, by what the arrays and options say. The result is there on return."""

    def repeat(self, a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> Any:
        """The result of a call that is bound, or None where it has to take the long way."""
        try:
            at_a, at_b = _address(a), _address(b)
            at_c, at_d = 0 if c is None else _address(c), 0 if out is None else _address(out)
            found = self._bound[_key(a, at_a, b, at_b, c, at_c, out, at_d, options)]
        except NOT_BOUND:
            return None
        if time.monotonic() >= self._next_look and self.is_stale():
            return None
        result = np.empty(found.shape, found.dtype) if out is None else out
        _run(found, at_a, at_b, at_c, at_d or _address(result), fresh=out is None)
        return result[()] if out is None and result.ndim == 0 else result

    def key(self, a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> Any:
        """As of `CallCache`."""
        at_c, at_d = 0 if c is None else _address(c), 0 if out is None else _address(out)
        return _key(a, _address(a), b, _address(b), c, at_c, out, at_d, options)

    def takes(self, arrays: Arrays, product: Product, backend: GpuBackend) -> bool:
        """NumPy's own arrays: a subclass may mean something else by its shape."""
        return all(type(each) is np.ndarray for each in arrays if each is not None)

    def result_of(self, product: Product) -> tuple[Any, Any]:
        """NumPy's type, and a list for the layout in a staging area, which the first call makes."""
        return numpy_dtype(product.problem.d.dtype), []


def _run(found: BoundCall, at_a: int, at_b: int, at_c: int, at_d: int, *, fresh: bool) -> None:
    """Copy what is read, launch, wait, and copy the result to its address."""
    addresses = at_a, at_b, at_c, at_d
    if not found.device:
        # A key holds addresses modulo 16, so the layout is the same for all its calls. A new result is aligned.
        operands = [(address, *reach) for address, reach in zip(addresses, found.reaches, strict=True)]
        found.device.append(staging.layout([*operands[:3], (0, *operands[3][1:])] if fresh else operands))
    spans, size_bytes = found.device[0]
    sources = [address - span.before for address, span in zip(addresses, spans, strict=True)]
    # An ``out`` with gaps between its rows comes back with them: they must hold what they held.
    copied = 3 if fresh else 4
    with driver.on_device(found.ordinal), staging.area(found.ordinal) as area:
        device = area.copy_in(sources[:copied], spans[:copied], size_bytes)
        a, b, c, d = (device + each.start + each.before for each in spans)
        status = found.launch(area.stream, a, b, c, d)
        if status:
            raise found.refuse(status)
        area.copy_out(sources[3], spans[3], size_bytes)


def _address(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _key(a: Any, at_a: int, b: Any, at_b: int, c: Any, at_c: int, out: Any, at_d: int, options: tuple[Any, ...]) -> Any:
    get = environment.get
    said: tuple[Any, ...] = (
        a.__class__, a.shape, a.strides, a.dtype, at_a & 15, b.__class__, b.shape, b.strides, b.dtype, at_b & 15,
        options, get(BACKEND), get(AUTOTUNE), get(FOLDER),
    )  # fmt: skip
    if c is not None:
        said = (*said, "c", c.__class__, c.shape, c.strides, c.dtype, at_c & 15)
    if out is not None:
        said = (*said, "out", out.__class__, out.shape, out.strides, out.dtype, at_d & 15, out.flags.writeable)
    return said
