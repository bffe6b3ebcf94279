"""JAX arrays that lie on one GPU, seen where they are.

Their addresses may be given to a kernel only by XLA, inside a program of its own: outside one nothing says when the
array's producer has finished, and XLA gives memory to its next computation as soon as the last reference is gone. So
views from here are for planning; `warptile.runtime.jax_calls` launches through XLA's foreign function interface.
"""

from __future__ import annotations

import os
from typing import Any

from warptile.arrays.array_view import ArrayView, element_type, is_tracer, row_major


def is_jax_array(array: Any) -> bool:
    """Whether ``array`` is JAX's; no tracer of ``jax.jit``, which has no memory."""
    if type(array).__module__.partition(".")[0] not in ("jax", "jaxlib"):
        return False
    return not is_tracer(array) and hasattr(array, "unsafe_buffer_pointer")


def gpu_views(a: Any, b: Any, c: Any, backend: str | None) -> tuple[ArrayView, ArrayView, ArrayView | None] | None:
    """Views of JAX operands in the memory of one GPU; None where they are not all there, or are for the emulator.

    Args:
        a, b, c: operands, ``c`` may be None.
        backend: as of `warptile.matmul`.

    Raises:
        DTypeError: an element type that no kernel takes.
    """
    if not is_jax_array(a) or (backend or os.environ.get("WARPTILE_BACKEND")) == "emulator":
        return None
    given = [each for each in (a, b, c) if each is not None]
    ordinals = {ordinal_of(each) if is_jax_array(each) else None for each in given}
    if len(ordinals) > 1 or None in ordinals:
        return None
    (ordinal,) = ordinals
    assert ordinal is not None
    views = [_view(each, name, ordinal) for each, name in zip(given, "abc", strict=False)]
    return views[0], views[1], views[2] if c is not None else None


def ordinal_of(array: Any) -> int | None:
    """CUDA ordinal of the GPU that all of an array lies on, row-major; None where there is no such GPU."""
    place = array.sharding
    if len(place.device_set) != 1 or place.memory_kind not in (None, "device"):
        return None
    (device,) = place.device_set
    if device.platform != "gpu" or "cuda" not in device.client.platform_version.lower():
        return None
    layout = getattr(getattr(array, "format", None), "layout", None)
    order = getattr(layout, "major_to_minor", None)
    if order is not None and tuple(order) != tuple(range(array.ndim)):
        return None  # memory in another order, as jax.device_put with a layout makes it
    return int(device.local_hardware_id)


def _view(array: Any, name: str, ordinal: int) -> ArrayView:
    shape = tuple(array.shape)
    dtype = element_type(str(array.dtype), name)
    pointer = int(array.unsafe_buffer_pointer())
    return ArrayView(name, array, "jax", pointer, shape, row_major(shape), dtype, ordinal, read_only=True)
