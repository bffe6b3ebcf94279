r"""The reference result of a GEMM, the error bound of a kernel, and guard bands around its output.

The bound, element by element, in the manner of BLAS's own tests (xblat3 compares with ``|A| |B|``):

A kernel computes ``D = fl_out(alpha * acc + beta * C)`` with ``acc`` a sum of k products.

* Products of float16, bfloat16 and tfloat32 significands have at most 22 bits and are exact in a float32 accumulator;
  a float32 or float64 product goes into a fused multiply-add, whose one rounding is the addition's.
* With r the roundings that a product may go through, ``r = ceil(k / products_per_rounding)``:
  ``|acc - A B| <= g |A| |B|``.

  - An addition that rounds to nearest is off by at most ``u_acc`` of its result; then ``g = r u_acc`` for every r
    (Jeannerod and Rump, SIAM J. Matrix Anal. Appl. 34(2), 2013). float16 accumulators do that, on tensor cores too.
  - Tensor cores truncate in float32, which is off by up to ``u = 2 u_acc = 2**-23``. They also truncate the terms
    that they align, to F fraction bits of the largest: on sm_80 (F = 24; 8 products and the accumulator a step) that is
    ``9 * 2**-24 + 2**-23`` a step, 0.7 * 2**-23 a product, so ``u`` a product covers both; sm_90 (F = 25, 16 products)
    has more room. Then ``g = r u / (1 - r u)`` (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1).

* alpha and beta are applied with three more roundings, so r + 2 for the product and 2 for C.
* tfloat32 operands are float32 rounded to 11 significant bits (``u_in = 2**-11``, twice that if truncated):
  ``(2 u + u**2) |A| |B|`` with ``u = 2 u_in``.
* The output's rounding adds ``u_out`` of the computed value.
* Results below the normal range have an absolute error: one step of the accumulator's subnormals for each rounding, and
  one of the output's.

Integers must be equal, modulo 2**32 as CUDA's int32 wraps; with ``int32_saturating``, accumulators and D are clamped to
int32's range instead.

8-bit floats: `mma.sync` computes with them as float16 on sm_90, but `wgmma` adds 32 products a step with 13 bits of
fraction. With two-level accumulation (``float32``) such a partial sum has 128 products, and a float32 accumulator adds
them; ``float32_fast`` is a single one over all of K. A bound that
always holds would be 34 * 2**-13 for each step and say nothing. Instead errors of s steps are taken as independent, as
Higham and Mary do (SIAM J. Sci. Comput. 41(5), 2019): ``4 sqrt(s) 2**-13`` of |A| |B|, which would be wrong by chance
once in 10,000 elements if a step's error were as large as its bound; it is a small part of that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from warptile.arrays.array_view import numpy_dtype
from warptile.dtypes import DTYPES, DType
from warptile.errors import UnsupportedError
from warptile.problem import Operand, Problem

Array = np.ndarray[Any, np.dtype[Any]]

TRUNCATION = 2
"""An addition that truncates is off by up to twice the unit roundoff."""

SHORT_STEP = 32
"""Products of 8-bit floats that ``wgmma`` adds in a step. A kernel that is said to add fewer between two roundings, but
more than one, has another instruction, whose accumulators are float32."""

GUARD_ELEMENTS = 64
"""Elements of canary before and after a guarded matrix: more than the widest access that a kernel makes."""

_CANARY = 0xA5
_INT32 = np.iinfo(np.int32)


TENSOR_PRODUCTS_PER_ROUNDING = 8
"""Products that tensor cores add before they round once (`reference`): at least 8 since
sm_80."""


def products_per_rounding(family: str, element: DType) -> int:
    """How many products a rung of this family adds between two roundings, at least. float64 ones are fused
    multiply-adds on tensor cores too; of 8-bit floats ``wgmma`` adds a step of 32."""
    if family == "wgmma" and element.name.startswith("float8"):
        return SHORT_STEP
    return 1 if family == "simt" or element.name == "float64" else TENSOR_PRODUCTS_PER_ROUNDING


@dataclass(frozen=True)
class Reference:
    """The product in float64 (int64 for integers) and how far a kernel's result may be from it.

    Attributes:
        d: alpha * A @ B + beta * C.
        bound: largest permitted absolute error of each element.
        overflow: the output type's largest finite number: rounding may reach infinity just above it, and so may an
            overflow in a step before.
    """

    d: Array
    bound: Array
    overflow: float


def reference(
    problem: Problem,
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    alpha: float = 1,
    beta: float = 0,
    products_per_rounding: int = 1,
) -> Reference:
    """The product and its error bound.

    Args:
        problem: its types decide the bound; its extents are not used, so that some rows alone can be checked.
        a: (m, k), of the operands' type. For a batch this and the others may have leading axes, which broadcast.
        b: (k, n).
        c: (m, n), of D's type; not read when beta is 0.
        alpha: factor of the product.
        beta: factor of C.
        products_per_rounding: products that the kernel adds before it rounds once to the accumulator's type. 1 is right
            for any kernel; tensor cores add 8 or more (PTX ISA leaves it open; sm_80 and later were measured).
    """
    if problem.a.dtype.kind != "float":
        exact = int(alpha) * _integer_sum(problem.accumulator.name, a, b)
        if c is not None and beta != 0:
            exact = exact + int(beta) * c.astype(np.int64)
        held = np.clip(exact, _INT32.min, _INT32.max) if problem.accumulator.name == "int32_saturating" else exact
        return Reference(held.astype(np.int32).astype(np.int64), np.zeros(exact.shape), float("inf"))
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    product = alpha * (wide_a @ wide_b)
    magnitude = abs(alpha) * (np.abs(wide_a) @ np.abs(wide_b))
    addend = np.zeros(()) if c is None or beta == 0 else beta * c.astype(np.float64)
    exact = product + addend
    bound = error_bound(problem, a.shape[-1], exact, magnitude, np.abs(addend), alpha, products_per_rounding)
    return Reference(exact, bound, problem.d.dtype.largest)


def error_bound(
    problem: Problem, k: int, exact: Array, magnitude: Array, addend: Array, alpha: float, products_per_rounding: int
) -> Array:
    """The bound of the module's text.

    Args:
        problem: its types.
        k: products of one element.
        exact: the true D.
        magnitude: ``|alpha| |A| |B|``.
        addend: ``|beta C|``.
        alpha: factor of the product.
        products_per_rounding: as in `reference`.

    Raises:
        UnsupportedError: k is so large that truncated additions have no useful bound.
    """
    accumulator, out, element = problem.accumulator, problem.d.dtype, problem.a.dtype
    roundings = -(-k // products_per_rounding)
    additions = DTYPES["float32"] if accumulator.name == "float32_fast" else accumulator
    relative = _growth(roundings + 2, additions)
    short = products_per_rounding == 1 or products_per_rounding >= SHORT_STEP
    if short and element.name.startswith("float8") and accumulator.name.startswith("float32"):
        relative += _short_sums(accumulator, k)
    if element.name == "tfloat32":
        unit_in = TRUNCATION * element.unit_roundoff
        relative += 2 * unit_in + unit_in**2
    before_output = relative * magnitude + _growth(2, additions) * addend
    before_output = before_output + (abs(alpha) * roundings + 3) * _smallest_subnormal(accumulator)
    bound: Array = before_output + out.unit_roundoff * (np.abs(exact) + before_output) + _smallest_subnormal(out)
    return bound


def error_ratio(d: Array, expected: Reference) -> float:
    """Largest ``|error| / bound`` over all elements: at most 1 means correct.

    A NaN or infinity is right only where the reference has the same one, or where the output type overflows to the
    infinity of the right sign; anywhere else the ratio is infinite. An empty matrix has the ratio 0.
    """
    if d.shape != expected.d.shape:
        return float("inf")
    if d.size == 0:
        return 0.0
    if expected.d.dtype.kind == "i":
        return 0.0 if np.array_equal(d.astype(np.int64), expected.d) else float("inf")
    got = d.astype(np.float64)
    ratio = np.full(got.shape, np.inf)
    finite = np.isfinite(got) & np.isfinite(expected.d)
    error = np.abs(np.subtract(got, expected.d, where=finite, out=np.full(got.shape, np.inf)))
    exact = finite & (error == 0)
    ratio[exact] = 0.0
    inexact = finite & ~exact & (expected.bound > 0)
    ratio[inexact] = error[inexact] / expected.bound[inexact]
    same = (np.isnan(got) & np.isnan(expected.d)) | (np.isinf(got) & (got == expected.d))
    with np.errstate(invalid="ignore"):
        may_overflow = np.abs(expected.d) + expected.bound >= expected.overflow
    overflowed = np.isinf(got) & may_overflow & (np.sign(got) == np.sign(expected.d))
    ratio[same | overflowed] = 0.0
    return float(np.max(ratio))


def is_correct(ratio: float) -> bool:
    """Whether an `error_ratio` passes; written so that a NaN does not."""
    return ratio <= 1.0


def first_wrong(d: Array, expected: Reference) -> tuple[tuple[int, ...], float, float] | None:
    """Index, value and expected value of the first element that fails, or None."""
    for index in np.ndindex(d.shape):
        one = Reference(expected.d[index].reshape(1), expected.bound[index].reshape(1), expected.overflow)
        if not is_correct(error_ratio(d[index].reshape(1), one)):
            return index, float(d[index]), float(expected.d[index])
    return None


def _integer_sum(accumulator: str, a: Array, b: Array) -> Array:
    """What an integer accumulator holds. One that saturates does so after each of its additions, so that the clipped
    sum is right where sums do not leave int32's range and come back."""
    total = _integer_product(a, b)
    if accumulator == "int32_xor":  # ones of a XOR b: those of a and those of b, less twice those of both
        ones_a, ones_b = a.sum(axis=-1, dtype=np.int64), b.sum(axis=-2, dtype=np.int64)
        total = ones_a[..., :, None] + ones_b[..., None, :] - 2 * total
    if accumulator == "int32_saturating":
        total = np.clip(total, _INT32.min, _INT32.max)
    return total


def _integer_product(a: Array, b: Array) -> Array:
    """Exact integer product. float64 carries integers to 2**53; an 8-bit product needs 16 bits and k fewer than 37."""
    product: Array = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)
    return product


def _short_sums(accumulator: DType, k: int) -> float:
    """Error bound of ``wgmma`` on 8-bit floats, relative to |A| |B|."""
    steps = -(-k // SHORT_STEP)
    return 4 * math.sqrt(steps if accumulator.name == "float32_fast" else min(steps, 4)) * 2.0**-13


def _growth(roundings: int, accumulator: DType) -> float:
    """g of the module's text: the relative error that ``roundings`` roundings of an accumulator may leave."""
    if accumulator.name == "float16":
        return roundings * accumulator.unit_roundoff
    spread = roundings * TRUNCATION * accumulator.unit_roundoff
    if spread >= 0.5:
        raise UnsupportedError(
            f"{roundings} roundings in a {accumulator.name} accumulator: no bound holds beyond "
            f"{int(0.25 / accumulator.unit_roundoff)}; check with a smaller k"
        )
    return spread / (1 - spread)


def _smallest_subnormal(dtype: DType) -> float:
    return float(2.0 ** (dtype.min_exponent - dtype.mantissa_bits)) if dtype.kind == "float" else 0.0


# --- inputs and outputs of a check -----------------------------------------------------------------------------------


def random_operand(shape: tuple[int, ...], dtype: DType, generator: np.random.Generator) -> Array:
    """Normal data (integers: uniform over the type). Zeros, constants and small integers hide errors."""
    storage = numpy_dtype(dtype)
    if dtype.kind == "float":
        return generator.standard_normal(shape).astype(storage)
    low, high = value_range(dtype)
    # Narrower than a byte: one element in each byte; `warptile.arrays.array_view.packed` stores them.
    return generator.integers(low, high, shape, storage if dtype.bits >= 8 else np.int8, endpoint=True)


def value_range(dtype: DType) -> tuple[int, int]:
    """Smallest and largest value of an integer type."""
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0
    return low, int(dtype.largest)


def stored_shape(rows: int, columns: int, operand: Operand) -> tuple[int, int]:
    """Shape of a matrix in memory, in elements."""
    return (rows, columns) if operand.major == "row" else (columns, rows)


@dataclass(frozen=True)
class Guarded:
    """A poisoned row-major matrix with canaries before it, behind it and between its rows.

    Attributes:
        memory: all bytes: guard, rows with their gaps, guard.
        matrix: the matrix itself, a view into ``memory``.
    """

    memory: np.ndarray[Any, np.dtype[np.uint8]]
    matrix: Array

    @property
    def offset_bytes(self) -> int:
        """Where the matrix begins in ``memory``."""
        return GUARD_ELEMENTS * self.matrix.itemsize

    def damage(self) -> str | None:
        """Where a canary was overwritten, as text, or None."""
        outside = np.ones(self.memory.size, bool)
        rows, columns = self.matrix.shape
        for row in range(rows):
            start = self.offset_bytes + row * self.matrix.strides[0]
            outside[start : start + columns * self.matrix.itemsize] = False
        hit = np.flatnonzero(outside & (self.memory != _CANARY))
        if hit.size == 0:
            return None
        distance = int(hit[0]) - self.offset_bytes
        if distance < 0:
            return f"{-distance} bytes before the first element"
        row = min(distance // self.matrix.strides[0], rows - 1)
        behind = distance - row * self.matrix.strides[0] - columns * self.matrix.itemsize
        return f"row {row}, {behind} bytes behind its last element"


def guarded(rows: int, columns: int, dtype: DType, gap_elements: int = 0) -> Guarded:
    """A matrix of NaN (integers: a bit pattern) within canaries, for a kernel to write."""
    storage = numpy_dtype(dtype)
    size = storage.itemsize
    leading = columns + gap_elements
    memory = np.full((rows * leading + 2 * GUARD_ELEMENTS) * size, _CANARY, np.uint8)
    flat = memory.view(storage)[GUARD_ELEMENTS : GUARD_ELEMENTS + rows * leading]
    matrix = flat.reshape(rows, leading)[:, :columns]
    matrix[...] = np.nan if dtype.kind == "float" else np.frombuffer(bytes([_CANARY]) * size, storage)[0]
    return Guarded(memory, matrix)
