"""Tensor maps on the GPU: the same fields that the emulator interprets, encoded by the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from warptile.errors import DeviceError, LayoutError
from warptile.gpu import driver
from warptile.launch.tensor_map import TENSOR_START_BYTES, TensorMap

TYPE_NAMES = {
    "u8": "UINT8", "u16": "UINT16", "u32": "UINT32", "s32": "INT32", "u64": "UINT64", "s64": "INT64",
    "f16": "FLOAT16", "bf16": "BFLOAT16", "f32": "FLOAT32", "f64": "FLOAT64", "tf32": "TFLOAT32",
}  # fmt: skip
"""Element type -> the end of the driver's name for it."""


def fields(tensor: TensorMap, pointers: Mapping[str, int]) -> dict[str, Any]:
    """What `driver.encode_tensor_map` takes for a map whose operand is at its device address in ``pointers``.

    Raises:
        LayoutError: the tensor would not start at a multiple of 16 bytes.
    """
    tensor, address = tensor.placed(pointers[tensor.operand] + tensor.offset_bytes)
    if address % TENSOR_START_BYTES:
        raise LayoutError(
            f"tensor map of {tensor.operand}: it starts at {address:#x}, which is not a multiple of "
            f"{TENSOR_START_BYTES} bytes; copy the operand to aligned memory"
        )
    promoted = tensor.l2_promotion
    return {
        "dtype": TYPE_NAMES[tensor.dtype],
        "address": address,
        "dims": tensor.dims,
        "strides_bytes": tensor.strides_bytes,
        "box": tensor.box,
        "element_strides": tensor.element_strides,
        "swizzle": tensor.swizzle.upper(),
        "l2_promotion": "NONE" if promoted == "none" else f"L2_{promoted}",
        "oob_fill": "NAN_REQUEST_ZERO_FMA" if tensor.oob_fill == "nan" else "NONE",
    }


_PROBES = 2**40, 3 * 2**40 + 2**20 + 16
"""Two addresses of which hardly a byte is the same, as a tensor may have them."""


def address_is_a_field(tensor: TensorMap) -> bool:
    """Whether the driver keeps a tensor's address in the first 8 bytes of such a map, and nowhere else: then a map for
    another address is the same map with other 8 bytes. The layout of a map is not documented, so it is asked for."""
    return _address_is_a_field(replace(tensor, operand="", offset_bytes=0))


@lru_cache(maxsize=256)
def _address_is_a_field(tensor: TensorMap) -> bool:
    try:
        made = [encode(tensor, {"": address}) for address in _PROBES]
    except DeviceError:  # a driver that takes no address but one that is mapped
        return False
    starts = [raw[:8] == address.to_bytes(8, "little") for raw, address in zip(made, _PROBES, strict=True)]
    return all(starts) and made[0][8:] == made[1][8:]


def encode(tensor: TensorMap, pointers: Mapping[str, int]) -> bytes:
    """The 128 bytes that a kernel takes for ``tensor``.

    Raises:
        LayoutError: see `fields`.
        DeviceError: the driver refuses it.
    """
    return driver.encode_tensor_map(**fields(tensor, pointers))
