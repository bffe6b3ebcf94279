"""Empty tensors of torch on a GPU, as cheaply as torch makes them.

``torch.empty`` parses its arguments and goes through the dispatcher, which together cost more than the allocation.
Code that torch compiles allocates by a function without either. It is no public one, so where this torch has none
``torch.empty`` takes its place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from warptile.arrays.array_view import Shape, row_major

_strides = lru_cache(maxsize=4096)(row_major)


def allocator(torch: Any) -> Callable[[Shape, Any, Any, int], Any]:
    """What makes a row-major tensor without values, from its shape, ``torch.dtype``, ``torch.device``, and the CUDA
    ordinal of that."""
    empty = torch.empty
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    make: Callable[..., Any] | None = getattr(guards, "_empty_strided_cuda", None)
    current: Callable[[], int] | None = getattr(torch._C, "_cuda_getDevice", None)
    if make is None or current is None:
        return lambda shape, dtype, device, ordinal: empty(shape, dtype=dtype, device=device)

    def on_current_device(shape: Shape, dtype: Any, device: Any, ordinal: int) -> Any:
        if current() == ordinal:
            return make(shape, _strides(shape), dtype)
        return empty(shape, dtype=dtype, device=device)

    if torch.cuda.device_count() > 1:
        return on_current_device
    return lambda shape, dtype, device, ordinal: make(shape, _strides(shape), dtype)
