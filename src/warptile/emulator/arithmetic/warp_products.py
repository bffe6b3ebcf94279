"""Computes a warp-wide tensor-core instruction, D = A B + C, from registers, for its types and architecture.

``wmma.mma``, ``mma`` and ``mma.sp`` differ in fragments and in what they allow; the arithmetic between is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from warptile.emulator.arithmetic import accumulate
from warptile.emulator.arithmetic.fragment_data import FragmentCodec
from warptile.emulator.lanes import WARP, Array
from warptile.isa.fragments import FragmentLayout
from warptile.isa.mma import k_operand
from warptile.isa.numerics import FLOAT8, accumulation, unpacks_float8

SIGNED = ("s8", "s4")
INTEGERS = ("s8", "u8", "s4", "u4")

Chosen = NDArray[np.int64] | None
Check = Callable[[Array, Array, Array, Array], None]
"""Looks at A, B, C and D as stacks of raw elements: (n, M, K), (n, N, K), (n, M, N)."""

Multiply = Callable[[Array, Array, Array, Chosen], Array]
"""Stacks (n, M, K), (n, N, K) and (n, M, N) of raw elements, and where a sparse A's stand along k, to D."""


@dataclass(frozen=True)
class Arithmetic:
    """The types of one instruction and how it computes.

    Attributes:
        left: element type of A.
        right: element type of B.
        addend: element type of C.
        result: element type of D.
        capability: compute capability (times ten) of the machine.
        most_terms: products that one step adds at most, where the machine's instruction is shorter than this one.
        operation: of single bits, ``xor`` or ``and``.
        saturate: integers are held at their limits.
        rounding: of f64.
        quads: f16 is multiplied by a routine of the compiler (see `warptile.isa.numerics.has_quad_pairs`).
    """

    left: str
    right: str
    addend: str
    result: str
    capability: int
    most_terms: int = 1 << 10
    operation: str | None = None
    saturate: bool = False
    rounding: str = "rn"
    quads: bool = False

    def multiply(self) -> Multiply:
        """What multiplies stacks of matrices of these types."""
        if self.left == "f64":
            return self._double
        if self.left == "b1":
            return self._bits
        if self.left in INTEGERS:
            return self._integer
        return self._float()

    def _double(self, a: Array, b: Array, c: Array, chosen: Chosen) -> Array:
        kind = np.float64
        return accumulate.multiply_double(a.view(kind), b.view(kind), c.view(kind), self.rounding).view(np.uint64)

    def _bits(self, a: Array, b: Array, c: Array, chosen: Chosen) -> Array:
        return accumulate.multiply_bits(a, b, c.view(np.int32), exclusive=self.operation == "xor").view(np.uint32)

    def _integer(self, a: Array, b: Array, c: Array, chosen: Chosen) -> Array:
        total = accumulate.multiply_integer(
            a.view(np.int32), b.view(np.int32), c.view(np.int32), saturate=self.saturate, chosen=chosen
        )
        return total.view(np.uint32)

    def _float(self) -> Multiply:
        model = accumulation(self.left, self.capability)
        model = replace(model, terms=min(model.terms, self.most_terms))
        # With one f16 and one f32 among C and D the machine computes in f32 and converts the other.
        inner = "f16" if self.result == self.addend == "f16" else "f32"
        multiply: Callable[..., Array] = accumulate.multiply_float
        if self.left in FLOAT8 and unpacks_float8(self.capability):
            multiply = accumulate.multiply_float8

        def product(a: Array, b: Array, c: Array, chosen: Chosen) -> Array:
            if self.addend != inner:
                c = c.astype(np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
            if self.quads:
                d = accumulate.multiply_quads(a, b, c, inner)
            else:
                d = multiply(a, b, c, self.left, inner, model, right=self.right, chosen=chosen)
            if self.result != inner:
                with np.errstate(over="ignore"):
                    d = d.view(np.float32).astype(np.float16).view(np.uint16)
            return d

        return product


class Operands:
    """The fragments of one instruction, and D's registers from those of A, B and C.

    ``matrices`` products are made of fragments that hold them one after the other: A and C downwards, B to the right.
    ``types`` are those of D, A, B and C.
    """

    def __init__(
        self, arithmetic: Arithmetic, a: FragmentLayout, b: FragmentLayout, c: FragmentLayout, d: FragmentLayout,
        *, matrices: int = 1,
    ) -> None:  # fmt: skip
        if arithmetic.left == "b1":  # as 32-bit words along k
            a, b = k_operand(a.rows, a.columns // 32, 32), k_operand(b.columns, b.rows // 32, 32).transposed()
        self.a = FragmentCodec(a, signed=arithmetic.left in SIGNED)
        self.b = FragmentCodec(b, signed=arithmetic.right in SIGNED)
        self.c = FragmentCodec(c)
        self.d = FragmentCodec(d)
        self.types = (arithmetic.result, arithmetic.left, arithmetic.right, arithmetic.addend)
        self._matrices = matrices
        self._multiply = arithmetic.multiply()

    def product(self, a: Array, b: Array, c: Array, chosen: Chosen = None, check: Check | None = None) -> Array:
        """Registers of whole warps (see `warptile.emulator.arithmetic.fragment_data`), to those of D."""
        left, right, addend = self.a.matrices(a), self.b.matrices(b).swapaxes(1, 2), self.c.matrices(c)
        result = self._multiply(self._each(left), self._each(right), self._each(addend), chosen)
        if check is not None:
            check(left, right, addend, result)
        return self.d.registers_of(result.reshape(len(left), -1))

    def undefined(self, a: Array, b: Array, c: Array, chosen: Chosen = None, check: Check | None = None) -> Array:
        """Which bits of D are undefined, given those of A, B and C: all of an element whose row of A, column of B or
        element of C is not defined."""
        left, right, addend = (
            self._each(each) != 0
            for each in (self.a.matrices(a), self.b.matrices(b).swapaxes(1, 2), self.c.matrices(c))
        )
        found = left.any(axis=2)[:, :, None] | right.any(axis=2)[:, None, :] | addend
        element = self.d.word.type((1 << self.d.layout.element_bits) - 1)
        return self.d.registers_of((found * element).reshape(a.shape[1] // WARP, -1))

    def _each(self, stack: Array) -> Array:
        """The single products' matrices."""
        return stack.reshape(len(stack) * self._matrices, -1, stack.shape[2])
