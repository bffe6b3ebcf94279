"""Bound calls on arrays of which only ``__cuda_array_interface__`` is known, such as Numba's.

They have to be given ``out``: the interface says where memory is and not how to make more.
"""

from __future__ import annotations

import time
from typing import Any

from warptile.arrays import array_view
from warptile.arrays.operands import Product
from warptile.gpu import driver
from warptile.runtime.call_cache import AUTOTUNE, BACKEND, FOLDER, NOT_BOUND, Arrays, CallCache, environment
from warptile.runtime.execute import GpuBackend


class InterfaceCalls(CallCache):
    """Bound calls with ``out``, by what the interfaces and options say. An interface is read once a call, as making it
    is most of what the call costs."""

    def repeat(self, a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> Any:
        """The result of a call that is bound, or None where it has to take the long way."""
        if out is None:
            return None
        try:
            read = [(each, each.__cuda_array_interface__) for each in (a, b, c, out) if each is not None]
            found = self._bound[_key(read, c is None, options)]
        except NOT_BOUND:
            return None
        addresses = [interface["data"][0] for _, interface in read]
        if c is None:
            addresses.insert(2, 0)
        at_a, at_b, at_c, at_d = addresses
        stream = read[-1][1].get("stream") or array_view.STREAM_LEGACY
        if found.overlaps(at_a, at_b, at_c, at_d) or (found.stands_in and driver.is_capturing(stream)):
            return None
        if time.monotonic() >= self._next_look and self.is_stale():
            return None
        status = found.launch(stream, at_a, at_b, at_c, at_d)
        if status:
            raise found.refuse(status)
        return out

    def key(self, a: Any, b: Any, c: Any, out: Any, options: tuple[Any, ...]) -> Any:
        """As of `CallCache`."""
        read = [(each, each.__cuda_array_interface__) for each in (a, b, c, out) if each is not None]
        return _key(read, c is None, options)

    def takes(self, arrays: Arrays, product: Product, backend: GpuBackend) -> bool:
        """Arrays that are all described by the interface alone."""
        given = [each for each in arrays if each is not None]
        return arrays[3] is not None and all(array_view.is_interface_alone(each) for each in given)


def _key(read: list[tuple[Any, Any]], without_c: bool, options: tuple[Any, ...]) -> Any:
    get = environment.get
    said = tuple(_said(array, interface) for array, interface in read)
    return said, without_c, options, get(BACKEND), get(AUTOTUNE), get(FOLDER)


def _said(array: Any, interface: Any) -> tuple[Any, ...]:
    pointer, read_only = interface["data"]
    strides = interface.get("strides")
    return (
        array.__class__, tuple(interface["shape"]), strides and tuple(strides), interface["typestr"], pointer & 15,
        bool(read_only), str(getattr(array, "dtype", "")), getattr(getattr(array, "device", None), "id", 0),
    )  # fmt: skip
