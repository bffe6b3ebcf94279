"""What users of NumPy, torch, CuPy and the array API expect of ``matmul``, as data: operands by shape and by how they
are stored, destinations, and calls that are refused.

Written from the text of the array API standard (2024.12, "matmul") and the documentation of ``numpy.matmul``,
``torch.matmul`` and ``cupy.matmul``. The same cases run on the emulator (`tests/cpu/conformance/`) and on a GPU
(`tests/gpu/test_conformance_gpu.py`).

Elements are whole numbers from -3 to 3 and K is at most 16: every sum is exact in every type, so that results are
compared for equality.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

import warptile as wt
from warptile.arrays.operands import OUTPUTS
from warptile.dtypes import DTYPES

TYPES = tuple(name for name in OUTPUTS if name != "tfloat32")
"""Element types of operands, by warptile's names."""


def drawn(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Whole numbers as elements of a type; no zeros, so that nothing goes unseen."""
    magnitude = np.random.default_rng(seed).integers(1, 4, shape)
    sign = 1 if dtype == "uint8" else np.random.default_rng(seed + 1).choice((-1, 1), shape)
    return np.asarray(magnitude * sign).astype(DTYPES[dtype].numpy)


class NumpyArrays:
    """NumPy's words for what cases are made of."""

    name = "numpy"
    negative_strides = True

    def array(self, values: np.ndarray) -> Any:
        return values.copy()

    def numpy(self, array: Any) -> np.ndarray:
        return np.asarray(array)

    def strided(self, array: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Any:
        """A view of a contiguous array; strides and offset in elements."""
        size = array.itemsize
        words = np.lib.stride_tricks.as_strided(
            array.reshape(-1).view(f"u{size}")[offset:], shape, [stride * size for stride in strides]
        )
        return words.view(array.dtype)

    def is_own(self, array: Any) -> bool:
        return isinstance(array, (np.ndarray, np.generic))


class TorchArrays:
    """torch's, on one of its devices."""

    name = "torch"
    negative_strides = False

    def __init__(self, torch: Any, device: str = "cpu") -> None:
        self.torch, self.device = torch, device

    def array(self, values: np.ndarray) -> Any:
        words = self.torch.from_numpy(values.copy().view(f"i{values.itemsize}")).to(self.device)
        return words.view(getattr(self.torch, values.dtype.name))

    def numpy(self, array: Any) -> np.ndarray:
        words = array.resolve_neg().cpu().contiguous()
        integers = getattr(self.torch, f"int{8 * words.element_size()}")
        dtype = str(words.dtype).removeprefix("torch.")
        return words.view(integers).numpy().view(DTYPES[_NAMES.get(dtype, dtype)].numpy)

    def strided(self, array: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Any:
        return self.torch.as_strided(array, shape, strides, offset)

    def is_own(self, array: Any) -> bool:
        return isinstance(array, self.torch.Tensor) and array.device.type == self.torch.device(self.device).type


class CupyArrays:
    """CuPy's, on the current device."""

    name = "cupy"
    negative_strides = True

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy

    def array(self, values: np.ndarray) -> Any:
        return self.cupy.asarray(values)

    def numpy(self, array: Any) -> np.ndarray:
        return self.cupy.asnumpy(array)

    def strided(self, array: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Any:
        return self.cupy.lib.stride_tricks.as_strided(
            array.reshape(-1)[offset:], shape, [stride * array.itemsize for stride in strides]
        )

    def is_own(self, array: Any) -> bool:
        return isinstance(array, self.cupy.ndarray)


_NAMES = {DTYPES[name].torch: name for name in (*TYPES, "int32") if DTYPES[name].torch}


@dataclass(frozen=True)
class Stored:
    """An array: extents, and how it is stored.

    Attributes:
        shape: extents.
        layout: ``"rows"``, ``"columns"`` (Fortran order of each matrix), ``"gaps"`` (in the middle of longer rows),
            ``"steps"`` (every second element of every second row), ``"reversed"`` (negative strides), ``"repeated"``
            (one row, stride 0), ``"overlapping"`` (each row begins one element behind the last one), ``"swapped"``
            (axes of the whole array in reverse order), ``"offset"`` (one element past an aligned address).
    """

    shape: tuple[int, ...]
    layout: str = "rows"

    def __str__(self) -> str:
        return f"{'x'.join(map(str, self.shape)) or 'scalar'} {self.layout}"

    def of(self, arrays: Any, dtype: str, seed: int = 0) -> Any:
        """The array in a framework, with drawn elements."""
        size, shape = math.prod(self.shape), self.shape
        dense = contiguous_strides(shape)

        def memory(elements: int) -> Any:
            return arrays.array(drawn((max(elements, 1),), dtype, seed))

        match self.layout:
            case "rows":
                return arrays.array(drawn(shape, dtype, seed))
            case "columns":
                *batch, rows, columns = shape
                strides = (*contiguous_strides((*batch, columns, rows))[: len(batch)], 1, max(rows, 1))
                return arrays.strided(memory(size), shape, strides)
            case "gaps":
                *others, columns = shape
                wide = contiguous_strides((*others, columns + 3))
                return arrays.strided(memory(math.prod(others) * (columns + 3)), shape, wide, 1)
            case "steps":
                strides = (*(4 * stride for stride in dense[:-1]), 2)
                return arrays.strided(memory(4 * size + 2), shape, strides)
            case "reversed":
                return arrays.array(drawn(shape, dtype, seed))[(slice(None, None, -1),) * len(shape)]
            case "repeated":
                return arrays.strided(memory(shape[-1]), shape, (*(0 for _ in shape[:-1]), 1))
            case "overlapping":
                return arrays.strided(memory(sum(shape)), shape, tuple(1 for _ in shape))
            case "swapped":
                return arrays.strided(memory(size), shape, tuple(reversed(contiguous_strides(shape[::-1]))))
            case "offset":
                return arrays.strided(memory(size + 1), shape, dense, 1)
        raise AssertionError(self.layout)


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


LAYOUTS = ("rows", "columns", "gaps", "steps", "reversed", "repeated", "overlapping", "swapped", "offset")

SHAPES = [
    # vector-vector, vector-matrix, matrix-vector, matrix-matrix
    ((5,), (5,)), ((5,), (5, 3)), ((4, 5), (5,)), ((4, 5), (5, 3)),
    # a stack on either side, and the same one on both
    ((2, 4, 5), (5, 3)), ((4, 5), (2, 5, 3)), ((2, 4, 5), (2, 5, 3)), ((5,), (2, 5, 3)), ((2, 4, 5), (5,)),
    # leading axes that broadcast
    ((1, 4, 5), (2, 5, 3)), ((2, 1, 4, 5), (3, 5, 3)), ((2, 1, 4, 5), (1, 3, 5, 3)), ((1, 1, 1, 5), (2, 1, 5, 1)),
    # extents of one
    ((1,), (1,)), ((1, 1), (1, 1)), ((4, 1), (1, 3)), ((1, 5), (5, 1)),
    # no elements: in M, N, K, in a stack
    ((0,), (0,)), ((0,), (0, 3)), ((4, 0), (0,)), ((0, 5), (5, 3)), ((4, 5), (5, 0)), ((4, 0), (0, 3)),
    ((0, 4, 5), (5, 3)), ((0, 4, 5), (1, 5, 3)), ((2, 0, 5), (5, 3)), ((2, 4, 0), (0, 3)), ((0, 0), (0, 0)),
]  # fmt: skip
"""Shapes of A and B that multiply."""

MISMATCHED = [
    ((), ()), ((), (3,)), ((5,), ()), ((), (4, 5)), ((4, 5), ()),
    ((5,), (4,)), ((5,), (4, 3)), ((4, 5), (4,)), ((4, 5), (4, 5)), ((4, 5), (1, 3)), ((4, 1), (5, 3)), ((1,), (5,)),
    ((2, 4, 5), (3, 5, 3)), ((2, 4, 5), (2, 4, 3)), ((2, 3, 4, 5), (4, 5, 3)), ((0, 4, 5), (2, 5, 3)),
    ((4, 0), (5, 3)), ((4, 5), (0, 3)),
]  # fmt: skip
"""Shapes that do not: a scalar on a side, different K, leading axes that do not broadcast."""


def exact(arrays: Any, a: Any, b: Any) -> np.ndarray:
    """The product as float64, which holds it."""
    return np.matmul(arrays.numpy(a).astype(np.float64), arrays.numpy(b).astype(np.float64))


def check(arrays: Any, d: Any, expected: np.ndarray, dtype: str) -> None:
    """A result of operands of ``dtype``: the framework's, with its type, shape and values."""
    assert arrays.is_own(d)
    found = arrays.numpy(d)
    assert found.shape == tuple(d.shape) == expected.shape
    assert found.dtype == np.dtype(DTYPES[OUTPUTS[dtype][0]].numpy)
    assert np.array_equal(found.astype(np.float64), expected)


def multiply(arrays: Any, a: Stored, b: Stored, dtype: str, **options: Any) -> None:
    """Multiply two arrays and check the result; the operands stay as they are."""
    left, right = a.of(arrays, dtype), b.of(arrays, dtype, seed=7)
    before = [arrays.numpy(each).copy() for each in (left, right)]
    check(arrays, wt.matmul(left, right, **options), exact(arrays, left, right), dtype)
    for array, values in zip((left, right), before, strict=True):
        assert np.array_equal(arrays.numpy(array), values)


def multiply_into(arrays: Any, layout: str, dtype: str, **options: Any) -> None:
    """Write the result to an ``out`` of a layout; the memory around it stays as it is."""
    a, b = Stored((2, 4, 5)).of(arrays, dtype), Stored((5, 3)).of(arrays, dtype, seed=7)
    output = OUTPUTS[dtype][0]
    expected = exact(arrays, a, b)
    if layout == "reversed":
        memory = arrays.array(drawn((2, 4, 3), output, 3))
        out, untouched = memory[::-1, ::-1, ::-1], np.zeros(24, bool)
    else:
        strides, offset = {
            "rows": ((12, 3, 1), 0), "columns": ((12, 1, 4), 0), "gaps": ((28, 7, 1), 2), "steps": ((48, 12, 2), 1),
            "swapped": ((1, 2, 8), 0),
        }[layout]  # fmt: skip
        memory = arrays.array(drawn((100,), output, 3))
        out = arrays.strided(memory, (2, 4, 3), strides, offset)
        places = sum(
            np.arange(extent).reshape([-1 if axis == own else 1 for own in range(3)]) * stride
            for axis, (extent, stride) in enumerate(zip((2, 4, 3), strides, strict=True))
        )
        untouched = np.ones(100, bool)
        untouched[np.asarray(places).reshape(-1) + offset] = False
    before = arrays.numpy(memory).reshape(-1).copy()
    assert wt.matmul(a, b, out=out, **options) is out
    check(arrays, out, expected, dtype)
    after = arrays.numpy(memory).reshape(-1)
    assert np.array_equal(after[untouched], before[untouched])


def multiply_in_place(arrays: Any, shared: str, **options: Any) -> None:
    """An ``out`` that shares memory with operands: they are read as if it had memory of its own."""
    memory = arrays.array(drawn((64,), "float32", 0))
    square = arrays.strided(memory, (4, 4), (4, 1))
    other = Stored((4, 4)).of(arrays, "float32", seed=7)
    a, b, out = {
        "a": (square, other, square),
        "b": (other, square, square),
        "both": (square, square, square),
        "transposed": (square, other, arrays.strided(memory, (4, 4), (1, 4))),
        "shifted": (square, other, arrays.strided(memory, (4, 4), (4, 1), 6)),
    }[shared]
    expected = exact(arrays, a, b)
    assert wt.matmul(a, b, out=out, **options) is out
    check(arrays, out, expected, "float32")


def installed_torch() -> Any:
    """torch, if it has been imported already or can be."""
    import pytest

    return sys.modules.get("torch") or pytest.importorskip("torch", reason="torch is not installed")
