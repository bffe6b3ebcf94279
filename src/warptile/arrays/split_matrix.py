"""float32 matrices that are kept with their float16 slices, so that GEMMs on tensor cores do not split them again.

A line is a row or a column of the matrix, along the axis that is summed over. Slices and exponents are bit for bit
those of the splitting pass (kernels/repack/splitting_pass.cuh), whose formulas stand here in a framework's words: with
a power of two 2^s that brings the largest magnitude of a line into [2^12, 2^13), an element x becomes
``high = RN16(2^s x)`` and ``low = RN16(2^11 (2^s x - high))``. A line whose elements span too wide a range has no
exponent; what it touches is multiplied in float32, from the matrix itself, which is kept as well. How all of that lies
in memory: `warptile.slicing`.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from warptile.arrays import array_view
from warptile.arrays.array_view import ArrayView
from warptile.arrays.frameworks import Framework, framework_of
from warptile.arrays.no_operator import NoOperator
from warptile.arrays.options import plain
from warptile.dtypes import DTYPES
from warptile.errors import ArgumentError, DTypeError, LayoutError, ShapeError, UnsupportedError
from warptile.slicing import EXPONENT_BYTES, FLOAT_BYTES, SLICE_BYTES, SlicedLines

ELEMENT = DTYPES["float32"]

CANNOT_SPLIT, MOST_SPLIT_EXPONENT, LARGEST_AT = -(2**31), 126, 12
"""In place of an exponent; the largest one; the exponent that the largest magnitude of a line gets. As in
kernels/tile/split_scale.cuh and the splitting pass."""

LOW_SCALE, LEAST_SCALED = 2.0**11, 2.0**-9
"""Scale of a low slice; K times the scaled smallest magnitude of a line that can be split is at least this."""

ONE = 0x3F800000
"""The bits of 1.0."""

LINES_AT_A_TIME = 4096
"""Lines that are split at a time, so that what is needed beside the result stays small."""


@dataclass(frozen=True, eq=False)
class SplitMatrix(NoOperator):
    """A float32 matrix with its slices: what `split` makes, and `warptile.matmul` and `linear` take in its place.

    The fields are plain data: ``SplitMatrix(**matrix.state())`` is a copy, and ``numpy.savez(file, **matrix.state())``
    saves it.

    Attributes:
        packed: the matrix, its slices and exponents, flat uint8; NumPy or torch.
        shape: of the matrix.
        axis: the one that is summed over: 0 of a ``b``, 1 of an ``a`` and of weights (N, K) of `warptile.linear`.
    """

    packed: Any
    shape: tuple[int, int]
    axis: int
    product: ClassVar[str] = "warptile.matmul(a, split), or warptile.matmul(split, b) if its axis is 1"

    def __post_init__(self) -> None:
        try:
            rows, columns = (int(each) for each in self.shape)
        except (TypeError, ValueError):
            raise ShapeError(f"shape: got {self.shape!r}; it is that of the matrix, such as (4096, 4096)") from None
        object.__setattr__(self, "shape", (rows, columns))  # plain values, also where a file gave arrays of one element
        object.__setattr__(self, "axis", _checked_axis(self.axis))
        seen, needed = array_view.view_of(self.packed, "packed", ("uint8",), "split(w).packed"), self.format.bytes
        if seen.shape != (needed,):
            raise ShapeError(
                f"packed: got {seen.dtype.name} of shape {seen.shape}; a {self.shape} matrix with slices along axis "
                f"{self.axis} is uint8 of shape {(needed,)}: split(w) makes it"
            )
        if needed > 1 and seen.strides != (1,):
            raise LayoutError(f"packed: got strides {seen.strides}; it is contiguous: packed.copy()")

    @cached_property
    def format(self) -> SlicedLines:
        """Where everything is."""
        return SlicedLines(self.shape[1 - self.axis], self.shape[self.axis])

    @cached_property
    def key(self) -> Hashable:
        """All but what is in memory: what a bound call depends on."""
        return self.shape, self.axis

    @property
    def dtype(self) -> Any:
        """float32, as the framework of ``packed`` calls it."""
        return self._lines().dtype

    @property
    def T(self) -> SplitMatrix:
        """The transpose, of the same memory."""
        return SplitMatrix(self.packed, self.shape[::-1], 1 - self.axis)

    @property
    def nbytes(self) -> int:
        """Bytes in memory: twice those of the matrix, and four for each line, with padding."""
        return int(self.packed.nbytes)

    @property
    def matrix(self) -> Any:
        """The float32 matrix itself, of the framework and on the device of ``packed``; it shares its memory."""
        lines = self._lines()[:, : self.format.k]
        return lines if self.axis else lines.T

    def _lines(self) -> Any:
        how, framework = self.format, framework_of(self.packed)
        whole = self.packed[: how.lines * how.source_stride * FLOAT_BYTES]
        return framework.of_type(whole, ELEMENT).reshape(how.lines, how.source_stride)

    def unsplit_lines(self) -> int:
        """How many lines have no slices, because they span too wide a range or hold an infinity or NaN. What they touch
        is multiplied on CUDA cores: right, but slow where they are many. Waits for the GPU, if they are there."""
        how = self.format
        octets = self.packed[how.exponents_offset_bytes :]
        exponents = framework_of(self.packed).integers(octets, EXPONENT_BYTES)
        return int((exponents == CANNOT_SPLIT).sum())

    def state(self) -> dict[str, Any]:
        """All fields by name: arguments of a `SplitMatrix` that is the same."""
        return {name: getattr(self, name) for name in ("packed", "shape", "axis")}

    def to(self, *where: Any, **options: Any) -> SplitMatrix:
        """The same on another device, as ``torch.Tensor.to``: ``weights.to("cuda")``.

        Raises:
            LayoutError: the matrix is not torch's.
        """
        if not hasattr(self.packed, "to") or framework_of(self.packed).name != "torch":
            raise LayoutError("to() moves matrices of torch; split(torch.from_numpy(w)) makes one")
        return replace(self, packed=self.packed.to(*where, **options))

    def __repr__(self) -> str:
        return f"SplitMatrix(shape={self.shape}, dtype={self.dtype}, axis={self.axis}, nbytes={self.nbytes})"


def split(w: Any, axis: int = 0) -> SplitMatrix:
    """A float32 matrix with its float16 slices, for ``matmul(x, split(w))`` and ``linear(x, split(w, axis=1))``.

    Hopper's tensor cores multiply float32 as slices (docs/precision.md). `warptile.matmul` makes those of both operands
    in each call; a matrix that many calls have in common, such as weights, is split once by this function. Results have
    the bits that the same kernel gives for ``w`` itself.

    Args:
        w: float32, a matrix of any strides: NumPy, torch on the CPU or a GPU, or JAX (brought to the host). It is
            copied; later changes of ``w`` are not seen.
        axis: the one that is summed over: 0 for the second operand (K, N) of `warptile.matmul`, 1 for weights (N, K)
            of `warptile.linear` and for a first operand (M, K). It may be counted from the end.

    Returns:
        The matrix, of the framework and on the device of ``w``: 8 bytes for each element, 4 for each line, and padding.

    Raises:
        ShapeError: not a matrix.
        DTypeError: another element type than float32.
        ArgumentError: another axis.
        UnsupportedError: an array of another framework.
    """
    source = array_view.view(w, "w")
    if source.framework not in ("numpy", "torch", "jax"):
        raise UnsupportedError(
            f"w: got a {source.framework} array; split takes NumPy and torch, such as split(torch.from_dlpack(w))"
        )
    if source.dtype != ELEMENT:
        raise DTypeError(
            f"w: got {source.dtype.name}; split takes float32, which tensor cores multiply as slices: "
            + (
                f"split({array_view.cast('w', source.framework, ELEMENT)})"
                if source.dtype.name == "float64"
                else "give w itself to matmul"
            )
        )
    if source.ndim != 2:
        raise ShapeError(f"w: got shape {source.shape}; split takes one matrix, such as w.reshape(-1, {_last(source)})")
    axis = _checked_axis(axis)
    w = np.asarray(w) if source.framework == "jax" else w
    framework, lines = framework_of(w), w if axis else w.T
    how = SlicedLines(*(int(each) for each in lines.shape))
    packed = framework.full(w, (how.bytes,), 0)
    for first in range(0, how.lines if how.k else 0, LINES_AT_A_TIME):
        _split_lines(framework, how, packed, first, lines[first : first + LINES_AT_A_TIME])
    return SplitMatrix(packed, (source.shape[0], source.shape[1]), axis)


def _last(source: ArrayView) -> int:
    return source.shape[-1] if source.ndim else 1


def _checked_axis(axis: Any) -> int:
    axis = plain(axis)
    if not isinstance(axis, int) or isinstance(axis, bool) or axis not in range(-2, 2):
        raise ArgumentError(
            f"axis: got {axis!r}; it is the one that is summed over: 0 for matmul(x, split(w, axis=0)), 1 for "
            "linear(x, split(w, axis=1))"
        )
    return axis % 2


def _split_lines(framework: Framework, how: SlicedLines, packed: Any, first: int, lines: Any) -> None:
    """Write lines from number ``first`` on, their slices and exponents."""
    count, k = int(lines.shape[0]), how.k

    def rows(offset_bytes: int, stride: int, element: str) -> Any:
        """The part of ``packed`` for these lines, of which ``k`` elements are theirs."""
        size = stride * DTYPES[element].bits // 8
        octets = packed[offset_bytes + first * size : offset_bytes + (first + count) * size]
        return framework.of_type(octets, DTYPES[element]).reshape(count, stride)[:, :k]

    values = rows(0, how.source_stride, "float32")
    values[...] = lines
    bits = framework.words(values) & 0x7FFFFFFF
    _, largest = framework.extremes(bits)
    smallest, _ = framework.extremes(framework.where(bits == 0, 0x7FFFFFFF, bits))
    biased = largest >> 23
    exponents = framework.integer(framework.where(largest == 0, 0, LARGEST_AT + 127 - biased))
    within = (biased < 255) & (exponents <= MOST_SPLIT_EXPONENT)
    scales = framework.of_type(framework.integer(framework.where(within, exponents + 127, 127)) << 23, ELEMENT)
    smallest = framework.integer(framework.where(within & (largest != 0), smallest, ONE))  # of others it is not used
    scaled = framework.of_type(smallest, ELEMENT) * scales
    splits = within & ((scaled * np.float32(k).item() >= LEAST_SCALED) | (largest == 0))
    whole = framework.where(splits[:, None], values * scales[:, None], framework.zeros(values, (count, 1)))
    high = framework.cast(whole, DTYPES["float16"])
    rows(how.slices_offset_bytes, how.slice_stride, "float16")[...] = high
    low = framework.cast((whole - framework.float32(high)) * LOW_SCALE, DTYPES["float16"])
    of_low = how.slices_offset_bytes + how.lines * how.slice_stride * SLICE_BYTES
    rows(of_low, how.slice_stride, "float16")[...] = low
    start = how.exponents_offset_bytes + first * EXPONENT_BYTES
    octets = packed[start : start + count * EXPONENT_BYTES]
    found = framework.where(splits, exponents, CANNOT_SPLIT)
    framework.integers(octets, EXPONENT_BYTES)[...] = framework.integer(found)
