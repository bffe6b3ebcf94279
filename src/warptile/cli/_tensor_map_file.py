"""Tensor maps as files: what ``--arg tensormap:PATH.json`` of `warptile emulate` names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from warptile.errors import DTypeError, LayoutError
from warptile.launch.tensor_map import TENSOR_MAP_TYPES, TensorMap


class TensorMapFields(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON document: the fields of `TensorMap`, with the array file ``base`` in the place of the operand."""

    base: str
    dtype: str
    dims: tuple[int, ...]
    box: tuple[int, ...]
    strides_bytes: tuple[int, ...] = ()
    element_strides: tuple[int, ...] = ()
    inout: bool = False
    swizzle: str = "none"
    interleave: str = "none"
    oob_fill: str = "zero"
    offset_bytes: int = 0
    l2_promotion: str = "none"


def read(path: Path) -> tuple[TensorMap, Path, bool]:
    """The map in a file, the file of the tensor's array, and whether the kernel may write it.

    The array's path is taken from the current directory, or from the map's own where there is none.

    Raises:
        click.BadParameter: the file cannot be read, or holds no legal map.
        UnsupportedError: a map of a kind that is not supported.
    """
    try:
        given = msgspec.json.decode(path.read_bytes(), type=TensorMapFields)
    except (OSError, msgspec.DecodeError) as error:
        raise click.BadParameter(
            f'{path}: no readable tensor map ({error}); it is JSON such as {{"base": "a.npy", "dtype": "bf16", '
            f'"dims": [64, 32], "strides_bytes": [128], "box": [64, 8], "swizzle": "128B"}}'
        ) from None
    base = Path(given.base)
    if not base.exists() and (path.parent / base).exists():
        base = path.parent / base
    try:
        tensor = TensorMap(
            given.base, given.dtype, given.dims, given.strides_bytes, given.box, given.element_strides, given.swizzle,
            given.interleave, given.oob_fill, given.offset_bytes, given.l2_promotion,
        )  # fmt: skip
    except (DTypeError, LayoutError) as error:
        raise click.BadParameter(f"{path}: {error}{_instead(given.base, base)}") from None
    _check_extent(path, tensor, base)
    return tensor, base, given.inout


def _header(base: Path) -> np.ndarray[Any, Any] | None:
    """The array in a file, not read yet; None where there is none."""
    try:
        found = np.load(base, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return found if isinstance(found, np.ndarray) else None


def _check_extent(path: Path, tensor: TensorMap, base: Path) -> None:
    """The tensor must lie inside its array."""
    array = _header(base)
    if array is None:
        return  # whoever reads it says so
    outer = zip(tensor.dims[1:], tensor.strides_bytes, strict=True)
    last = sum((size - 1) * stride for size, stride in outer) + tensor.dims[0] * tensor.element_bytes
    if tensor.offset_bytes + last > array.nbytes:
        raise click.BadParameter(
            f"{path}: dims {tensor.dims} of {tensor.dtype} with strides_bytes {tensor.strides_bytes} from byte "
            f"{tensor.offset_bytes} take {tensor.offset_bytes + last} bytes, and {tensor.operand} has {array.nbytes}"
            f"{_instead(tensor.operand, base)}"
        )


_TYPES = {"V1": "u8", "V2": "bf16", "i1": "u8", "i2": "u16"}
"""Map types of array types that have none of their own (NumPy keeps ml_dtypes' types as raw bytes in files)."""


def _instead(name: str, base: Path) -> str:
    """What to say of a map that would work: one of the whole array."""
    array = _header(base)
    if array is None or not 1 <= array.ndim <= 5 or not array.size:
        return ""
    kind = f"{array.dtype.kind}{array.dtype.itemsize}"
    known = f"{array.dtype.kind}{8 * array.dtype.itemsize}".replace("i", "s")
    dtype = _TYPES.get(kind, known)
    rows = array.shape[-1] * array.dtype.itemsize
    if dtype not in TENSOR_MAP_TYPES:
        return ""
    if rows % 16:
        if array.ndim == 1 or -(-rows // 16) * 16 % array.dtype.itemsize:
            return ""
        return (
            f"; {name} has rows of {rows} bytes: pad them to {-(-rows // 16) * 16}, a multiple of 16, and give the "
            "dims without the padding"
        )
    inner = min(array.shape[-1], 128 // array.dtype.itemsize)
    box = [inner - inner % max(16 // array.dtype.itemsize, 1), *(min(size, 8) for size in array.shape[-2::-1])]
    whole = {
        "base": name, "dtype": dtype, "dims": array.shape[::-1], "strides_bytes": array.strides[-2::-1], "box": box
    }  # fmt: skip
    return f"; all of {name} is {json.dumps(whole)}"
