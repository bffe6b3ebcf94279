"""What atomics and reductions make of a word in memory and a given one, bit for bit.

Sums of f32 flush subnormals where the caller says so (atomics in global memory); sums of f16 and bf16 never do. A sum
that is NaN is the usual one of its type; of f64 it is the given NaN, else the old one, as it is, else a new one. For
``min`` and ``max`` -0 is less than +0, and a NaN counts only where both are NaN. PTX ISA, "Parallel Synchronization and
Communication Instructions: atom"; NaN and zeros are those of an H100's atomics and an H200's bulk reductions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from warptile.emulator.arithmetic.float_bits import (
    bits_of,
    float_of,
    flushed,
    narrowed_bf16,
    narrowed_f16,
    widened_bf16,
    widened_f16,
)
from warptile.emulator.lanes import Array

ADD, MIN, MAX, INC, DEC, AND, OR, XOR, EXCH, CAS = range(10)
OPERATIONS = {
    "add": ADD, "min": MIN, "max": MAX, "inc": INC, "dec": DEC, "and": AND, "or": OR, "xor": XOR, "exch": EXCH,
    "cas": CAS,
}  # fmt: skip
"""Number of each operation."""

UNSIGNED, SIGNED, F16, BF16, F32, F32_FLUSHED, F64 = range(7)
_ELEMENTS = {
    "b16": (UNSIGNED, 2), "u32": (UNSIGNED, 4), "s32": (SIGNED, 4), "b32": (UNSIGNED, 4), "u64": (UNSIGNED, 8),
    "s64": (SIGNED, 8), "b64": (UNSIGNED, 8), "b128": (UNSIGNED, 8), "f16": (F16, 2), "f16x2": (F16, 2),
    "bf16": (BF16, 2), "bf16x2": (BF16, 2), "f32": (F32, 4), "f64": (F64, 8),
}  # fmt: skip
"""Kind of number and bytes of the elements of each type: a packed type has two, and b128 two halves."""


@dataclass(frozen=True)
class MemoryUpdate:
    """One operation on words of one type.

    Attributes:
        operation: one of `OPERATIONS`.
        type: as PTX calls it.
        flushes: sums of f32 flush subnormal operands and results to zeros of their sign.
    """

    operation: str
    type: str
    flushes: bool = False

    @property
    def element(self) -> np.dtype[Any]:
        """The unsigned type of an element's bits."""
        return np.dtype(f"u{_ELEMENTS[self.type][1]}")

    def apply(
        self, words: Array, first: NDArray[np.int64], given: Array, replacement: Array | None = None
    ) -> NDArray[Any]:
        """Update words of memory in place, one row of ``given`` after the other.

        Args:
            words: all memory, as `element`.
            first: for each row the place of its first element; the others follow it.
            given: (rows, elements), as `element`.
            replacement: of a compare-and-swap, what is stored where all elements of a row are as given.

        Returns:
            What each element was before its own row, shaped as ``given``.
        """
        kind, _ = _ELEMENTS[self.type]
        kind = F32_FLUSHED if self.flushes and kind == F32 else kind
        old = np.empty_like(given)
        swapped = given if replacement is None else replacement
        _apply(OPERATIONS[self.operation], kind, words, first, given, swapped, old)
        return old

    def combine(self, old: Array, given: Array) -> Array:
        """New words from old and given ones, each an element or several of them side by side."""
        words = np.array(old).reshape(-1).view(self.element)
        values = np.ascontiguousarray(given).reshape(-1).view(self.element)[:, None]
        self.apply(words, np.arange(len(words)), values)
        return words.view(old.dtype).reshape(old.shape)


@numba.njit(cache=True)
def _apply(
    operation: int, kind: int, words: Any, first: Any, given: Any, replacement: Any, old: Any
) -> None:  # fmt: skip
    bits = 8 * words.itemsize
    for row in range(len(first)):
        place = first[row]
        if operation == CAS:
            same = True
            for element in range(given.shape[1]):
                old[row, element] = words[place + element]
                same &= words[place + element] == given[row, element]
            if same:
                for element in range(given.shape[1]):
                    words[place + element] = replacement[row, element]
            continue
        for element in range(given.shape[1]):
            before, value = np.uint64(words[place + element]), np.uint64(given[row, element])
            old[row, element] = before
            words[place + element] = _updated(operation, kind, bits, before, value)


@numba.njit
def _updated(operation: int, kind: int, bits: int, old: Any, given: Any) -> Any:
    """The new bits of one element."""
    if operation == EXCH:
        return given
    if operation == AND:
        return old & given
    if operation == OR:
        return old | given
    if operation == XOR:
        return old ^ given
    if operation == INC:
        return np.uint64(0) if old >= given else old + np.uint64(1)
    if operation == DEC:
        return given if old == 0 or old > given else old - np.uint64(1)
    if operation == ADD:
        return _sum(kind, old, given)
    if kind >= F16:
        return _extreme_half(operation, kind, old, given)
    # the order of signed numbers is that of unsigned ones with the sign bit inverted
    sign = np.uint64(1) << np.uint64(bits - 1) if kind == SIGNED else np.uint64(0)
    less = (old ^ sign) < (given ^ sign)
    return old if less == (operation == MIN) else given


@numba.njit
def _sum(kind: int, old: Any, given: Any) -> Any:
    if kind == F64:
        first, second = float_of(old), float_of(given)
        if second != second:
            return given
        if first != first:
            return old
        total = first + second
        return np.uint64(bits_of(total)) if total == total else np.uint64(0xFFF8 << 48)
    if kind in (F32, F32_FLUSHED):
        a, b = float_of(np.uint32(old)), float_of(np.uint32(given))
        single = flushed(flushed(a) + flushed(b)) if kind == F32_FLUSHED else a + b
        return np.uint64(bits_of(single)) if single == single else np.uint64(0x7FFFFFFF)
    if kind == F16:  # f32 holds more than twice the bits of f16: rounding once more does no harm; so with bf16
        return np.uint64(narrowed_f16(widened_f16(old) + widened_f16(given)))
    if kind == BF16:
        return np.uint64(narrowed_bf16(widened_bf16(old) + widened_bf16(given)))
    return old + given


@numba.njit
def _extreme_half(operation: int, kind: int, old: Any, given: Any) -> Any:
    """The smaller or larger one of two f16 or bf16 numbers."""
    infinity = np.uint64(0x7C00) if kind == F16 else np.uint64(0x7F80)
    magnitude = np.uint64(0x7FFF)
    if (old & magnitude) > infinity:
        return magnitude if (given & magnitude) > infinity else given
    if (given & magnitude) > infinity:
        return old
    # in the order of the numbers, -0 before +0
    first = old ^ np.uint64(0xFFFF) if old >> np.uint64(15) else old | np.uint64(0x8000)
    second = given ^ np.uint64(0xFFFF) if given >> np.uint64(15) else given | np.uint64(0x8000)
    return old if (first < second) == (operation == MIN) else given
