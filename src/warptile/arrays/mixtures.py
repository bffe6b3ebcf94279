"""Arrays of different frameworks in one call: refused, with the call that brings one over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from warptile.arrays.array_view import ArrayView
from warptile.errors import LayoutError

_NAMES = {"numpy": "a NumPy array", "torch": "a torch tensor", "cupy": "a CuPy array", "jax": "a JAX array"}


def refuse_mixture(first: ArrayView, other: ArrayView) -> None:
    """Raise where two arrays are of different frameworks. Arrays of which only ``__cuda_array_interface__`` or DLPack
    is known go with those of any framework.

    Args:
        first: the array whose framework makes the result.
        other: another operand, C or ``out``.

    Raises:
        LayoutError: they are; the message names both frameworks and a conversion.
    """
    frameworks = first.framework, other.framework
    if frameworks[0] == frameworks[1] or not all(each in _NAMES for each in frameworks):
        return
    if first.lender is not None or other.lender is not None:
        return
    raise LayoutError(
        f"{first.name} is {_NAMES[frameworks[0]]} and {other.name} is {_NAMES[frameworks[1]]}; both must be of one "
        f"framework, such as {_converted(other, first.framework)}"
    )


def refuse_beside_tracers(arrays: tuple[Any, ...], out: object, operands: Mapping[str, Any]) -> None:
    """As `refuse_mixture`, for arrays that go into a program of JAX.

    Args:
        arrays: A, B and C.
        out: as given.
        operands: of an epilogue, by name.

    Raises:
        LayoutError: there is a NumPy array too, or an ``out``.
    """
    if out is not None:
        raise LayoutError("out: JAX arrays cannot be written; leave it out and use what matmul(a, b) returns")
    for name, each in (*zip("abc", arrays, strict=True), *operands.items()):
        if isinstance(each, np.ndarray):
            raise LayoutError(
                f"{name} is a NumPy array beside a JAX array that is being traced; both must be of one framework, such "
                f"as jax.numpy.asarray({name})"
            )


def _converted(array: ArrayView, framework: str) -> str:
    """The call that makes an array one of ``framework``, without a copy where there can be one without."""
    name, dtype, size = array.name, array.dtype, array.element_bytes
    # Neither torch nor NumPy's protocols know the 8-bit floats and bfloat16 of NumPy: they go as integers.
    unknown = dtype.numpy not in ("float16", "float32", "float64", "int8", "uint8", "int32")
    if framework == "jax":
        return f"jax.numpy.asarray({name})" if array.framework == "numpy" else f"jax.dlpack.from_dlpack({name})"
    if framework == "numpy":
        if array.framework == "torch":
            words = f"{name}.view(torch.int{8 * size}).numpy().view('{dtype.numpy}')"
            return words if unknown else f"{name}.numpy()"
        return f"{name}.get()" if array.framework == "cupy" else f"numpy.asarray({name})"
    if framework == "torch" and array.framework == "numpy":
        words = f"torch.from_numpy({name}.view('int{8 * size}')).view(torch.{dtype.torch})"
        return words if unknown else f"torch.from_numpy({name})"
    return f"{framework}.from_dlpack({name})"
