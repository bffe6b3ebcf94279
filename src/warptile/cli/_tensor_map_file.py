"""Tensor maps as files: what ``--arg tensormap:PATH.json`` of `warptile emulate` names."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from warptile.errors import DTypeError, LayoutError
from warptile.launch import TensorMap


class Fields(msgspec.Struct, forbid_unknown_fields=True):
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
        given = msgspec.json.decode(path.read_bytes(), type=Fields)
        tensor = TensorMap(
            given.base, given.dtype, given.dims, given.strides_bytes, given.box, given.element_strides, given.swizzle,
            given.interleave, given.oob_fill, given.offset_bytes, given.l2_promotion,
        )  # fmt: skip
    except (OSError, msgspec.DecodeError) as error:
        raise click.BadParameter(
            f'{path}: no readable tensor map ({error}); it is JSON such as {{"base": "a.npy", "dtype": "bf16", '
            f'"dims": [64, 32], "strides_bytes": [128], "box": [64, 8], "swizzle": "128B"}}'
        ) from None
    except (DTypeError, LayoutError) as error:
        raise click.BadParameter(f"{path}: {error}") from None
    base = Path(given.base)
    if not base.exists() and (path.parent / base).exists():
        base = path.parent / base
    return tensor, base, given.inout
