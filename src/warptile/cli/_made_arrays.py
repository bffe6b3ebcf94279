"""Arrays for kernels that are tried without a file of their own: ``--arg zeros:f32:1024`` and ``random:f32:64x64``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    import numpy as np

FILLS = ("zeros", "random")

_SEED = 0
_LARGEST_INTEGER = 100
_MOST_BYTES = 1 << 32


def made_array(fill: str, text: str, types: dict[str, str]) -> np.ndarray[Any, Any]:
    """The array of ``TYPE:EXTENTS``: zeros, or random numbers that are the same in every run: floats from -1 to 1,
    integers from 0 to 99.

    Args:
        fill: one of `FILLS`.
        text: such as ``f32:1024`` or ``bf16:64x128``.
        types: spelling of each type -> its type in a `LaunchSpec`.

    Raises:
        click.BadParameter: a type or extents that there are not.
    """
    import ml_dtypes
    import numpy as np

    name, _, extents = text.partition(":")
    try:
        shape = tuple(int(each) for each in extents.split("x"))
    except ValueError:
        shape = ()
    if name not in types or not shape or min(shape) < 1:
        raise click.BadParameter(
            f"got {fill}:{text}; it takes a type ({', '.join(types)}) and extents, such as {fill}:f32:1024 or "
            f"{fill}:f16:64x128"
        )
    kind = types[name]
    dtype = np.dtype(
        {"bf16": ml_dtypes.bfloat16, "bool": np.bool_}.get(kind) or kind.replace("s", "i")[0] + str(int(kind[1:]) // 8)
    )
    if math.prod(shape) * dtype.itemsize > _MOST_BYTES:
        raise click.BadParameter(f"{fill}:{text} has more than {_MOST_BYTES >> 30} GiB; give fewer elements")
    if fill == "zeros":
        return np.zeros(shape, dtype)
    random = np.random.default_rng(_SEED)
    if kind == "bool":
        return random.integers(0, 2, shape).astype(dtype)
    if "f" in kind:
        return random.uniform(-1, 1, shape).astype(dtype)
    return random.integers(0, _LARGEST_INTEGER, shape).astype(dtype)
