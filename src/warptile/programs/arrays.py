"""CUDA arrays: memory of textures, which copies name by a handle. Here it lies row by row."""

from __future__ import annotations

from warptile.launch.texture import Texture
from warptile.programs.library_calls import INVALID_VALUE, Call, CallError, signed, unsigned

_HOST_TO_HOST, _HOST_TO_DEVICE, _DEVICE_TO_HOST, _DEVICE_TO_DEVICE, _DEFAULT = range(5)


def array_of(call: Call, handle: int) -> Texture:
    """The array of a handle, as a texture of all of it."""
    if handle not in call.gpu.arrays:
        raise CallError(INVALID_VALUE, f"{signed(handle, 64):#x} is no array (cudaArray_t)")
    return call.gpu.arrays[handle]


def kind_with_arrays(kind: int, *, from_array: bool, onto_array: bool) -> int:
    """The ``cudaMemcpyKind`` of a copy: arrays are on the device, whatever it says."""
    kind = unsigned(kind)
    if kind == _DEFAULT:
        return kind
    from_device = from_array or kind in (_DEVICE_TO_HOST, _DEVICE_TO_DEVICE)
    onto_device = onto_array or kind in (_HOST_TO_DEVICE, _DEVICE_TO_DEVICE)
    return (2 if from_device else 0) + (1 if onto_device else 0)
