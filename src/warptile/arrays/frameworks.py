"""The few operations on whole arrays that `warptile.arrays.sparse`, `quantized_weights` and `split_matrix` need, in
NumPy and in torch.

Values are moved as integers of their size, so that no bit changes on the way and types that a framework cannot compute
with (8-bit floats) move like any other.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol

import numpy as np

from warptile.dtypes import DType


class Framework(Protocol):
    """One framework's words for the same things. Arrays stay on their device."""

    name: str

    def magnitude(self, values: Any) -> Any:
        """Absolute values as float32, NaN as infinity."""

    def words(self, values: Any) -> Any:
        """The same memory as integers of the element's size."""

    def like(self, words: Any, values: Any) -> Any:
        """Integers as elements of the type of ``values``."""

    def octets(self, array: Any) -> Any:
        """The bytes of a contiguous array, flat."""

    def integers(self, array: Any, size: int) -> Any:
        """A contiguous array as signed integers of ``size`` bytes."""

    def int32(self, octets: Any) -> Any:
        """A row of bytes as 32-bit words."""

    def byte(self, array: Any) -> Any:
        """As uint8."""

    def zeros(self, like: Any, shape: tuple[int, ...]) -> Any:
        """Zeros with the type and on the device of ``like``."""

    def full(self, like: Any, shape: tuple[int, ...], value: int) -> Any:
        """Bytes of one value on the device of ``like``."""

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        """Element by element, the one or the other."""

    def permuted(self, array: Any, axes: tuple[int, ...]) -> Any:
        """Axes in another order, contiguous."""

    def first(self, condition: Any) -> tuple[int, ...] | None:
        """Index of the first element that is true, or None."""

    def float32(self, values: Any) -> Any:
        """As float32."""

    def integer(self, values: Any) -> Any:
        """As int32."""

    def cast(self, values: Any, element: DType) -> Any:
        """As numbers of a 16-bit type, rounded to nearest."""

    def of_type(self, words: Any, element: DType) -> Any:
        """Contiguous integers, or bytes, as elements of a type."""

    def finite(self, values: Any) -> bool:
        """Whether all elements are finite."""

    def extremes(self, values: Any) -> tuple[Any, Any]:
        """Least and largest elements along the last axis."""

    def larger(self, one: Any, other: Any) -> Any:
        """Of each pair of elements the larger."""

    def rounded(self, values: Any) -> Any:
        """To the nearest integers, halves to even."""


class _Numpy:
    name = "numpy"

    def magnitude(self, values: Any) -> Any:
        size = np.abs(values.astype(np.float32))
        return np.where(np.isnan(size), np.float32(np.inf), size)

    def words(self, values: Any) -> Any:
        return np.ascontiguousarray(values).view(f"i{values.dtype.itemsize}")

    def like(self, words: Any, values: Any) -> Any:
        return words.view(values.dtype)

    def octets(self, array: Any) -> Any:
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def integers(self, array: Any, size: int) -> Any:
        return array.view(f"i{size}")

    def int32(self, octets: Any) -> Any:
        return octets.view(np.int32)

    def byte(self, array: Any) -> Any:
        return array.astype(np.uint8)

    def zeros(self, like: Any, shape: tuple[int, ...]) -> Any:
        return np.zeros(shape, like.dtype)

    def full(self, like: Any, shape: tuple[int, ...], value: int) -> Any:
        return np.full(shape, value, np.uint8)

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        return np.where(condition, yes, no)

    def permuted(self, array: Any, axes: tuple[int, ...]) -> Any:
        return np.ascontiguousarray(array.transpose(axes))

    def first(self, condition: Any) -> tuple[int, ...] | None:
        if not condition.any():
            return None
        return tuple(int(i) for i in np.unravel_index(int(np.argmax(condition)), condition.shape))

    def float32(self, values: Any) -> Any:
        return values.astype(np.float32)

    def integer(self, values: Any) -> Any:
        return values.astype(np.int32)

    def cast(self, values: Any, element: DType) -> Any:
        with np.errstate(over="ignore"):  # infinity is what the caller looks for
            return values.astype(element.numpy)

    def of_type(self, words: Any, element: DType) -> Any:
        return words.view(element.numpy)

    def finite(self, values: Any) -> bool:
        return bool(np.isfinite(values.astype(np.float32)).all())

    def extremes(self, values: Any) -> tuple[Any, Any]:
        return values.min(-1), values.max(-1)

    def larger(self, one: Any, other: Any) -> Any:
        return np.maximum(one, other)

    def rounded(self, values: Any) -> Any:
        return np.rint(values)


class _Torch:
    name = "torch"

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._integers = {1: torch.int8, 2: torch.int16, 4: torch.int32}

    def magnitude(self, values: Any) -> Any:
        size = values.to(self._torch.float32).abs()
        return self._torch.nan_to_num(size, nan=float("inf"), posinf=float("inf"))

    def words(self, values: Any) -> Any:
        return values.contiguous().view(self._integers[values.element_size()])

    def like(self, words: Any, values: Any) -> Any:
        return words.view(values.dtype)

    def octets(self, array: Any) -> Any:
        return array.contiguous().reshape(-1).view(self._torch.uint8)

    def integers(self, array: Any, size: int) -> Any:
        return array.view(self._integers[size])

    def int32(self, octets: Any) -> Any:
        return octets.view(self._torch.int32)

    def byte(self, array: Any) -> Any:
        return array.to(self._torch.uint8)

    def zeros(self, like: Any, shape: tuple[int, ...]) -> Any:
        return like.new_zeros(shape)

    def full(self, like: Any, shape: tuple[int, ...], value: int) -> Any:
        return self._torch.full(shape, value, dtype=self._torch.uint8, device=like.device)

    def where(self, condition: Any, yes: Any, no: Any) -> Any:
        return self._torch.where(condition, yes, no)

    def permuted(self, array: Any, axes: tuple[int, ...]) -> Any:
        return array.permute(axes).contiguous()

    def first(self, condition: Any) -> tuple[int, ...] | None:
        found = condition.nonzero()
        return tuple(int(i) for i in found[0]) if len(found) else None

    def float32(self, values: Any) -> Any:
        return values.to(self._torch.float32)

    def integer(self, values: Any) -> Any:
        return values.to(self._torch.int32)

    def cast(self, values: Any, element: DType) -> Any:
        return values.to(getattr(self._torch, str(element.torch)))

    def of_type(self, words: Any, element: DType) -> Any:
        return words.view(getattr(self._torch, str(element.torch)))

    def finite(self, values: Any) -> bool:
        return bool(values.isfinite().all())

    def extremes(self, values: Any) -> tuple[Any, Any]:
        return values.amin(-1), values.amax(-1)

    def larger(self, one: Any, other: Any) -> Any:
        return self._torch.maximum(one, other)

    def rounded(self, values: Any) -> Any:
        return values.round()


def framework_of(array: Any) -> Framework:
    """The framework that ``array`` belongs to: torch if it is a tensor, else NumPy."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _Torch(torch)
    return _Numpy()
