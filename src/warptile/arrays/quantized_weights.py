"""Quantized weights: codes of 4 or 8 bits, a scale for each group of neighbours along K, and maybe a zero point.

**The quantizer.** A group is ``group_size`` neighbours of a row. Its scale s has the type T of the activations.

* Symmetric: ``s = T(max|w| / (2^(bits - 1) - 1))``, ``q = clip(round(w / s), -2^(bits - 1), 2^(bits - 1) - 1)``.
* With zero points, lo = min(w, 0) and hi = max(w, 0): ``s = T((hi - lo) / (2^bits - 1))``,
  ``z = clip(round(-lo / s), 0, 2^bits - 1)``, ``q = clip(round(w / s) + z, 0, 2^bits - 1)``.

Quotients are float32 and ``round`` goes to the nearest integer, halves to even. A weight is then ``T(s * (q - z))``,
rounded once, with z = 0 where there are no zero points: what `QuantizedWeights.dequantize` gives, and bit for bit what
the kernel multiplies. A zero is stored as a zero.

**Packed**, a block (`warptile.quantization`) holds 128 x 16 bytes for each 64 elements along K (with 8 bits, 32).
Thread 4 g + t of warp w has, for each 16 of them, register i = h + 2 c, element j of its fragment of operand A of
``wgmma``: row 16 w + 8 h + g, column 8 c + 2 t + j (PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16"). Its
codes are at bits 4 i + 16 j of a word, those of 8 bits at bits 8 h + 16 j of word c. Codes of 4 bits are q + 8, or q
with zero points; those of 8 bits are q, or q - 128, in two's complement. Scales, and behind them zero points, follow as
words of two rows that are eight apart.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from warptile.arrays import array_view
from warptile.arrays.frameworks import Framework, framework_of
from warptile.arrays.no_operator import NoOperator
from warptile.arrays.options import element_named, flag, plain
from warptile.dtypes import DTYPES, DType
from warptile.errors import ArgumentError, DTypeError, LayoutError, ShapeError, UnsupportedError
from warptile.quantization import BITS, BLOCK_K, BLOCK_ROWS, Quantization, k_blocks, row_blocks

ACTIVATIONS = ("bfloat16", "float16")
"""Types of the activations that quantized weights are multiplied with."""

SOURCES = (*ACTIVATIONS, "float32")
"""Types that weights are quantized from."""

_PACKED = {4: (4, 0, 5, 1, 3, 8, 6, 9, 7, 2), 8: (4, 0, 5, 1, 3, 8, 6, 7, 9, 2)}
"""Axes of packed codes, of those of (row block, w, h, g, k block, vector, k16, c, t, j)."""

_PACKED_SCALES = (4, 0, 5, 1, 3, 2)
"""The same of scales: (row block, w, h, g, k block, group)."""


@dataclass(frozen=True, eq=False)
class QuantizedWeights(NoOperator):
    """Weights (N, K) as packed codes and scales: what `quantize` makes and `warptile.matmul` and `linear` take.

    ``matmul(x, weights)`` and ``linear(x, weights)`` both are ``x @ weights.dequantize().T``: groups lie along K, so
    that is the axis that is summed over. The fields are plain data: ``QuantizedWeights(**weights.state())`` is a copy,
    and ``numpy.savez(file, **weights.state())`` saves it.

    Attributes:
        packed: the blocks, uint8 of shape (k-blocks, bytes of all blocks of this part of K); NumPy or torch.
        shape: (N, K).
        dtype: type of the scales, of dequantized weights and so of activations: ``"bfloat16"`` or ``"float16"``.
        bits: of a code, 4 or 8.
        group_size: neighbours along K that share a scale.
        zero_point: each group has a zero point.
    """

    packed: Any
    shape: tuple[int, int]
    dtype: str
    bits: int
    group_size: int
    zero_point: bool
    product: ClassVar[str] = "warptile.matmul(x, weights), which is x @ weights.dequantize().T"

    def __post_init__(self) -> None:
        try:
            n, k = (int(each) for each in self.shape)
        except (TypeError, ValueError):
            raise ShapeError(f"shape: got {self.shape!r}; it is (N, K) of the weights, such as (4096, 4096)") from None
        numbers = {"bits": plain(self.bits), "group_size": plain(self.group_size)}
        numbers["zero_point"] = bool(self.zero_point)
        for name, value in {"shape": (n, k), "dtype": str(self.dtype), **numbers}.items():
            object.__setattr__(self, name, value)  # plain values, also where a file gave arrays of one element
        _check_format(self.bits, self.group_size)
        object.__setattr__(self, "dtype", _activations(self.dtype).name)
        needed = k_blocks(k), row_blocks(n) * self.format.block_bytes
        seen = array_view.view_of(self.packed, "packed", ("uint8",), "quantize(w).packed")
        if seen.shape != needed:
            raise ShapeError(
                f"packed: got {seen.dtype.name} of shape {seen.shape}; {self.format} of weights {self.shape} is uint8 "
                f"of shape {needed}: quantize(w) makes it"
            )
        if 0 not in needed and seen.strides != (needed[1], 1):
            raise LayoutError(f"packed: got strides {seen.strides}; blocks follow each other: packed.copy()")

    @cached_property
    def element(self) -> DType:
        """Type of the activations, as warptile calls it."""
        return DTYPES[self.dtype]

    @cached_property
    def format(self) -> Quantization:
        """What a kernel has to know of the blocks."""
        return Quantization(self.bits, self.group_size, self.zero_point)

    @cached_property
    def key(self) -> Hashable:
        """All but the blocks: what a bound call depends on."""
        return self.shape, self.dtype, self.format

    @property
    def T(self) -> QuantizedWeights:
        """The same weights: ``matmul(x, weights.T)`` is ``matmul(x, weights)``, for K is always what is summed over."""
        return self

    @property
    def nbytes(self) -> int:
        """Bytes in memory: of codes, scales and zero points, with padding to whole blocks."""
        return int(self.packed.nbytes)

    def state(self) -> dict[str, Any]:
        """All fields by name: arguments of a `QuantizedWeights` that is the same."""
        names = ("packed", "shape", "dtype", "bits", "group_size", "zero_point")
        return {name: getattr(self, name) for name in names}

    def to(self, *where: Any, **options: Any) -> QuantizedWeights:
        """The same on another device, as ``torch.Tensor.to``: ``weights.to("cuda")``.

        Raises:
            LayoutError: the weights are not torch's.
        """
        if not hasattr(self.packed, "to") or framework_of(self.packed).name != "torch":
            raise LayoutError("to() moves weights of torch; quantize(torch.from_numpy(w)) makes them")
        return QuantizedWeights(**{**self.state(), "packed": self.packed.to(*where, **options)})

    def __repr__(self) -> str:
        return f"QuantizedWeights(shape={self.shape}, {self.format}, for {self.dtype}, nbytes={self.nbytes})"

    def unpacked(self) -> tuple[Any, Any, Any | None]:
        """Codes, scales and zero points in rows.

        Returns:
            q of (N, K) as int32, without zero points from -2^(bits - 1) on, else from 0 on; s of (N, groups), of the
            activations' type; z of (N, groups) as int32, or None.
        """
        framework, (n, k), how = framework_of(self.packed), self.shape, self.format
        down, along = row_blocks(n), k_blocks(k)
        blocks = self.packed.reshape(along, down, how.block_bytes)
        octets = blocks[:, :, : how.code_bytes]
        if how.bits == 4:
            shape = _codes_shape(4, down, along)
            halves = octets.reshape(*(shape[axis] for axis in _PACKED[4][:-1]))
            codes = framework.zeros(self.packed, (*halves.shape, 2))
            codes[..., 0], codes[..., 1] = halves & 15, halves >> 4
            offset = 0 if how.zero_point else 8
        else:
            shape = _codes_shape(8, down, along)
            codes = octets.reshape(*(shape[axis] for axis in _PACKED[8]))
            codes = codes ^ 128  # q + 128, or q
            offset = 0 if how.zero_point else 128
        rows = framework.permuted(codes, _inverse(_PACKED[how.bits])).reshape(down * BLOCK_ROWS, along * BLOCK_K)
        found = framework.integer(rows[:n, :k]) - offset
        scales = self._of_rows(framework, blocks, how.code_bytes)
        if not how.zero_point:
            return found, scales, None
        zeros = self._of_rows(framework, blocks, how.code_bytes + how.scale_bytes)
        return found, scales, framework.integer(framework.float32(zeros)) - _zero_offset(self.element, how.bits)

    def _of_rows(self, framework: Framework, blocks: Any, start: int) -> Any:
        """Scales, or what is stored of zero points: (N, groups)."""
        how, (n, k) = self.format, self.shape
        shape = _scales_shape(len(blocks), blocks.shape[1], how)
        octets = blocks[:, :, start : start + how.scale_bytes]
        words = framework.integers(framework.octets(octets), 2).reshape(*(shape[axis] for axis in _PACKED_SCALES))
        rows = framework.permuted(words, _inverse(_PACKED_SCALES)).reshape(shape[0] * BLOCK_ROWS, shape[4] * shape[5])
        each = max(self.group_size // BLOCK_K, 1)  # blocks that repeat a scale
        found = framework.permuted(rows[:n, : _groups(k, how.group_in_block) : each], (0, 1))
        return framework.of_type(found, self.element)

    def dequantize(self) -> Any:
        """The weights that are multiplied.

        Returns:
            (N, K) of the activations' type, of the framework and on the device of ``packed``.
        """
        framework = framework_of(self.packed)
        codes, scales, zeros = self.unpacked()
        by_element = [i // self.group_size for i in range(self.shape[1])]
        if zeros is not None:
            codes = codes - zeros[:, by_element]
        return framework.cast(framework.float32(codes) * framework.float32(scales[:, by_element]), self.element)

    @staticmethod
    def from_codes(
        codes: Any, scales: Any, zeros: Any = None, *, bits: int = 4, group_size: int = 128, dtype: Any = None
    ) -> QuantizedWeights:
        """Weights that were quantized elsewhere: ``scales * (codes - zeros)``.

        Args:
            codes: (N, K) integers: without ``zeros`` from -2^(bits - 1) to 2^(bits - 1) - 1, else from 0 to
                2^bits - 1.
            scales: (N, groups) floats, a group for every ``group_size`` columns, the last one maybe shorter.
            zeros: (N, groups) integers from 0 to 2^bits, or None.
            bits: of a code, 4 or 8.
            group_size: neighbours along K that share a scale: 32, 64 or a multiple of 128.
            dtype: type of the activations; by default that of the scales (bfloat16 where they are float32).

        Returns:
            The weights, of the framework and on the device of ``codes``.

        Raises:
            ShapeError, ArgumentError, DTypeError: what does not fit together, or is out of range; a weight that is not
                finite in the type of the activations.
        """
        _check_format(bits, group_size)
        _check_integers("codes", codes)
        if zeros is not None:
            _check_integers("zeros", zeros)
        if len(codes.shape) != 2:
            raise ShapeError(f"codes: got shape {tuple(codes.shape)}; they are one matrix (N, K)")
        n, k = (int(each) for each in codes.shape)
        for name, each in (("scales", scales), ("zeros", zeros)):
            if each is not None and tuple(each.shape) != (n, _groups(k, group_size)):
                raise ShapeError(
                    f"{name}: got shape {tuple(each.shape)}; codes of {(n, k)} in groups of {group_size} need "
                    f"{(n, _groups(k, group_size))}"
                )
        half = 2 ** (bits - 1)
        low = 0 if zeros is not None else -half
        _check_range("codes", codes, low, low + 2 * half - 1)
        if zeros is not None:
            _check_range("zeros", zeros, 0, 2 * half)
        element = _type_for(scales, dtype)
        framework = framework_of(codes)
        scales = framework.cast(scales, element)
        if not framework.finite(scales):
            raise ArgumentError(
                f"scales: some are not finite in {element.name}; give finite ones"
                + (", or dtype='bfloat16', which has float32's range" if element.name == "float16" else "")
            )
        how = Quantization(bits, group_size, zeros is not None)
        packed = _packed(framework.integer(codes), scales, zeros, how, element)
        largest = float(framework.magnitude(scales).max()) * 2 * half if 0 not in tuple(scales.shape) else 0
        if largest > element.largest and not framework.finite(packed.dequantize()):
            raise ArgumentError(
                f"scales: some weights, codes times scales, are not finite in {element.name}; give smaller ones, or "
                "dtype='bfloat16', which has float32's range"
            )
        return packed


def quantize(
    w: Any, bits: int = 4, group_size: int | None = 128, zero_point: bool = False, *, dtype: Any = None
) -> QuantizedWeights:
    """Weights as a `QuantizedWeights`, for ``warptile.matmul(x, quantize(w))`` and ``linear(x, quantize(w))``.

    The module's text has the formula.

    Args:
        w: (N, K), as ``torch.nn.Linear`` stores weights, K being the reduction: NumPy, torch on the CPU or a GPU, or
            JAX (brought to the host); bfloat16, float16 or float32. All finite.
        bits: of a code: 4 or 8.
        group_size: neighbours along K that share a scale: 32, 64 or a multiple of 128; None for all of K.
        zero_point: asymmetric: each group has a zero point, too.
        dtype: type of the activations, ``"bfloat16"`` or ``"float16"``: by default that of ``w``, for float32
            bfloat16.

    Returns:
        The packed weights, of the framework and on the device of ``w``.

    Raises:
        ShapeError: not a matrix.
        DTypeError: an element type that is not quantized, or that activations cannot have.
        ArgumentError: other bits or group sizes, or a weight that is not finite, or not when it is quantized.
        ArgumentTypeError: a ``zero_point`` that is not True or False.
        UnsupportedError: an array of another framework.
    """
    source = array_view.view_of(w, "w", SOURCES)
    flag(zero_point, "zero_point")
    if source.framework not in ("numpy", "torch", "jax"):
        raise UnsupportedError(
            f"w: got a {source.framework} array; quantize takes NumPy and torch, such as quantize(torch.from_dlpack(w))"
        )
    if source.ndim != 2:
        raise ShapeError(f"w: got shape {source.shape}; quantize takes one matrix (N, K), such as w.reshape(-1, K)")
    w = np.asarray(w) if source.framework == "jax" else w
    element = _type_for(w, dtype)
    framework, (n, k) = framework_of(w), source.shape
    if group_size is None:
        group_size = max(-(-k // BLOCK_K), 1) * BLOCK_K
    _check_format(bits, group_size)
    groups = _groups(k, group_size)
    values = framework.float32(w)
    if not framework.finite(values):
        raise ArgumentError("w: infinite elements or NaN; quantize takes finite weights, such as numpy.nan_to_num(w)")
    whole = framework.zeros(values, (n, groups * group_size))
    whole[:, :k] = values
    whole = whole.reshape(n, groups, group_size)
    low, high = framework.extremes(whole) if groups and n else (whole[:, :, 0],) * 2
    half = 2 ** (bits - 1)
    if zero_point:
        low, high = low.clip(None, 0), high.clip(0, None)
        span, steps = high - low, 2 * half - 1
    else:
        span, steps = framework.larger(-low, high), half - 1
    # Divided by an array: by a number, torch on a GPU multiplies with its reciprocal, which rounds otherwise.
    scales = framework.cast(span / (span * 0 + steps), element)
    divisors = framework.float32(scales)
    divisors = framework.where(divisors == 0, divisors + 1, divisors)
    codes = framework.rounded(whole / divisors[:, :, None])
    zeros = None
    if zero_point:
        middle = framework.rounded(-low / divisors).clip(0, 2 * half - 1)
        codes = (codes + middle[:, :, None]).clip(0, 2 * half - 1)
        zeros = framework.integer(middle)
    else:
        codes = codes.clip(-half, half - 1)
    codes = framework.integer(codes).reshape(n, groups * group_size)[:, :k]
    return QuantizedWeights.from_codes(codes, scales, zeros, bits=bits, group_size=group_size, dtype=element.name)


# --- checks ----------------------------------------------------------------------------------------------------------


def _check_format(bits: int, group_size: int) -> None:
    if not isinstance(bits, int | np.integer) or bits not in BITS:
        raise ArgumentError(f"bits: got {bits!r}; codes have 4 or 8 bits, such as quantize(w, bits=4)")
    whole = isinstance(group_size, int | np.integer) and group_size > 0
    if not whole or (group_size not in (32, 64) and group_size % BLOCK_K):
        raise ArgumentError(
            f"group_size: got {group_size!r}; groups have 32, 64 or a multiple of 128 elements, such as "
            "quantize(w, group_size=128)"
        )


def _activations(dtype: Any) -> DType:
    element = element_named(dtype, "dtype")
    if element is None or element.name not in ACTIVATIONS:
        raise DTypeError(
            f"dtype: got {dtype!r}; activations are bfloat16 or float16, such as quantize(w, dtype='bfloat16')"
        )
    return element


def _type_for(values: Any, dtype: Any) -> DType:
    """The type of activations that was asked for, or that goes with floats."""
    if dtype is not None:
        return _activations(dtype)
    given = array_view.view(values, "scales").dtype.name
    return DTYPES[given if given in ACTIVATIONS else "bfloat16"]


def _check_integers(name: str, values: Any) -> None:
    given = str(getattr(values, "dtype", type(values).__name__))
    if not hasattr(values, "shape") or not given.removeprefix("torch.").startswith(("int", "uint")):
        cast = f"{name}.to(torch.int32)" if given.startswith("torch.") else f"numpy.asarray({name}, 'int32')"
        raise DTypeError(f"{name}: got {given}; they are an array of integers, such as {cast}")


def _check_range(name: str, values: Any, low: int, high: int) -> None:
    if 0 not in tuple(values.shape) and (int(values.min()) < low or int(values.max()) > high):
        raise ArgumentError(f"{name}: from {int(values.min())} to {int(values.max())}; they are from {low} to {high}")


# --- packing ---------------------------------------------------------------------------------------------------------


def _groups(k: int, group_size: int) -> int:
    return -(-k // group_size)


def _inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argsort(axes))


def _codes_shape(bits: int, down: int, along: int) -> tuple[int, ...]:
    """Extents of codes in rows, cut as threads hold them: (row block, w, h, g, k block, vector, k16, c, t, j)."""
    return down, 4, 2, 8, along, bits // 2, 16 // bits, 2, 4, 2


def _scales_shape(along: int, down: int, how: Quantization) -> tuple[int, ...]:
    """The same of scales: (row block, w, h, g, k block, group)."""
    return down, 4, 2, 8, along, how.groups_of_block


def _zero_offset(element: DType, bits: int) -> int:
    """What is stored of a zero point is larger by this: the number that the kernel makes of the code 0. With it, the
    difference of both is exact."""
    if bits == 8 and element.name == "bfloat16":
        return -128
    return 128 if element.name == "bfloat16" else 1024


def _packed(codes: Any, scales: Any, zeros: Any, how: Quantization, element: DType) -> QuantizedWeights:
    """Codes, scales and zero points in rows, packed."""
    framework, n, k = framework_of(codes), int(codes.shape[0]), int(codes.shape[1])
    down, along, half = row_blocks(n), k_blocks(k), 2 ** (how.bits - 1)
    stored = codes if how.zero_point else codes + half
    whole = framework.full(codes, (down * BLOCK_ROWS, along * BLOCK_K), half)
    whole[:n, :k] = framework.byte(stored)
    if how.bits == 8:
        whole = whole ^ 128
    octets = framework.permuted(whole.reshape(*_codes_shape(how.bits, down, along)), _PACKED[how.bits])
    if how.bits == 4:
        octets = octets[..., 0] | (octets[..., 1] << 4)
    packed = framework.full(codes, (along, down, how.block_bytes), 0)
    packed[:, :, : how.code_bytes] = octets.reshape(along, down, how.code_bytes)
    blocks_of_group, per_block = max(how.group_size // BLOCK_K, 1), how.groups_of_block
    which = [min(i // blocks_of_group, max(scales.shape[1] - 1, 0)) for i in range(along * per_block)]
    # What stands past the end of K does not matter as long as it is finite: activations are zeros there.
    each = [("scales", scales, how.code_bytes)]
    if zeros is not None:
        numbers = framework.cast(framework.integer(zeros) + _zero_offset(element, how.bits), element)
        each.append(("zeros", numbers, how.code_bytes + how.scale_bytes))
    for _, values, start in each:
        words = framework.words(values)
        padded = framework.zeros(words, (down * BLOCK_ROWS, along * per_block))
        if n and k:
            padded[:n] = words[:, which]
        ordered = framework.permuted(padded.reshape(*_scales_shape(along, down, how)), _PACKED_SCALES)
        packed[:, :, start : start + how.scale_bytes] = framework.octets(ordered).reshape(along, down, how.scale_bytes)
    flat = packed.reshape(along, down * how.block_bytes)
    return QuantizedWeights(flat, (n, k), element.name, how.bits, how.group_size, how.zero_point)
