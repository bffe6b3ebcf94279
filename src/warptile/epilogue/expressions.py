"""The functions of epilogues: symbolic values become operations of the kernel, numbers and NumPy arrays are computed.

In an epilogue of `warptile.matmul` their arguments are symbolic. The same function, called with NumPy arrays, computes
in NumPy what the kernel computes, as a reference.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np

from warptile.dtypes import dtype as dtype_named
from warptile.epilogue import column_pairs, tracing
from warptile.epilogue.operations import OPERATIONS, rounded
from warptile.epilogue.philox import uniform
from warptile.epilogue.tracing import RefusedError, Traced
from warptile.errors import ArgumentError, ArgumentTypeError, DTypeError

CAST_TYPES = ("float16", "bfloat16", "float32", "float64", "int32", "int8", "uint8")
"""Element types that operands have, and that values are rounded to."""

QUANTIZED_TYPES = ("float8_e4m3", "float8_e5m2")
"""Further types that values are rounded to, and outputs have."""


def _applied(name: str, *arguments: Any) -> Any:
    if any(isinstance(each, Traced) for each in arguments):
        return tracing.apply(name, *arguments)
    return OPERATIONS[name].reference(*(_numbers(name, each) for each in arguments))


def _numbers(name: str, value: Any) -> np.ndarray[Any, Any]:
    """An argument outside of epilogues: numbers in NumPy."""
    array = np.asarray(value)
    if array.dtype.kind not in "biufV" or array.dtype.fields is not None:  # V: bfloat16 and floats of 8 bits
        raise ArgumentTypeError(
            f"{name}: got {f'elements of type {array.dtype}' if array.ndim else repr(value)}; outside of epilogues it "
            f"takes real numbers and NumPy arrays of them, such as {name}(numpy.ones(4, 'float32'))"
        )
    return array


def exp(x: Any) -> Any:
    """e to the power of ``x``."""
    return _applied("exp", x)


def log(x: Any) -> Any:
    """The natural logarithm of ``x``."""
    return _applied("log", x)


def sqrt(x: Any) -> Any:
    """The square root of ``x``."""
    return _applied("sqrt", x)


def tanh(x: Any) -> Any:
    """The hyperbolic tangent of ``x``."""
    return _applied("tanh", x)


def erf(x: Any) -> Any:
    """The error function of ``x``."""
    return _applied("erf", x)


def absolute(x: Any) -> Any:
    """The absolute value of ``x``; ``abs(x)`` is the same."""
    return _applied("absolute", x)


abs = absolute


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return _applied("sigmoid", x)


def relu(x: Any) -> Any:
    """``x`` where it is positive, else 0; NaN stays."""
    return _applied("relu", x)


def silu(x: Any) -> Any:
    """x * sigmoid(x), also called swish."""
    return _applied("silu", x)


def gelu(x: Any, approximate: str = "none") -> Any:
    """The Gaussian error linear unit, as ``torch.nn.functional.gelu``.

    Args:
        x: the argument.
        approximate: ``"none"`` for x times the normal distribution's cumulative distribution function, ``"tanh"`` for
            0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x**3))).

    Raises:
        ArgumentError: another ``approximate``.
    """
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f"approximate: got {approximate!r}; it is 'none' or 'tanh', such as gelu(x, 'tanh')")
    return _applied("gelu" if approximate == "none" else "gelu_tanh", x)


def minimum(x: Any, y: Any) -> Any:
    """The smaller one of ``x`` and ``y``; NaN where one of them is NaN."""
    return _applied("minimum", x, y)


def maximum(x: Any, y: Any) -> Any:
    """The larger one of ``x`` and ``y``; NaN where one of them is NaN."""
    return _applied("maximum", x, y)


def clamp(x: Any, low: Any = None, high: Any = None) -> Any:
    """``x``, but at least ``low`` and at most ``high``, where they are given."""
    least = x if low is None else maximum(x, low)
    return least if high is None else minimum(least, high)


def where(condition: Any, x: Any, y: Any) -> Any:
    """``x`` where ``condition`` holds, else ``y``."""
    return _applied("where", condition, x, y)


def cast(x: Any, dtype: Any) -> Any:
    """``x`` rounded to an element type. As an output of an epilogue, that output has the type.

    Integers are rounded towards zero, as NumPy and torch do. They and floats of 8 bits (compute capability 8.9) stop at
    the ends of their range, as quantization does.

    Args:
        x: a number.
        dtype: its name, such as ``"float16"``, or a framework's dtype.

    Raises:
        DTypeError: no such type.
    """
    name = dtype if isinstance(dtype, str) else str(dtype).removeprefix("torch.")
    if not isinstance(dtype, str) and not name.isidentifier():
        name = np.dtype(dtype).name
    types = CAST_TYPES + QUANTIZED_TYPES
    try:
        element = dtype_named(name)
    except DTypeError:
        element = None
    if element is None or element.name not in types:
        raise DTypeError(f"dtype: got {name!r}; it is one of {', '.join(types)}, such as cast(x, 'float16')")
    if isinstance(x, Traced):
        return tracing.cast(x, element.name)
    return rounded(_numbers("cast", x), element)


def per_block(x: Any, rows: int, columns: int) -> Any:
    """An operand of an epilogue with one element for each block of ``rows`` x ``columns`` elements of D.

    Its shape is (ceil(M / rows), ceil(N / columns)), behind the axes of a batch. Scales of blocks of 128 x 128, say:
    ``epilogue=lambda acc, scale: acc * warptile.per_block(scale, 128, 128), scale=scale``.

    Raises:
        ArgumentError: rows or columns that are no whole numbers from 1 on.
    """
    for name, extent in (("rows", rows), ("columns", columns)):
        if not isinstance(extent, int) or isinstance(extent, bool) or extent < 1:
            raise ArgumentError(f"{name}: got {extent!r}; it is a whole number from 1 on, such as {name}=128")
    return tracing.per_block(x, rows, columns)


def halves(x: Any) -> tuple[Any, Any]:
    """Columns j and j + N / 2 of ``x``, for column j of a result of N / 2 columns: a gate and what it gates.

    SwiGLU, with the weights of the gate in the first half of the columns of ``b``::

        def swiglu(acc):
            gate, up = warptile.halves(acc)
            return warptile.silu(gate) * up

    All that has N columns, such as a bias, is used before: ``warptile.halves(acc + bias)``. What is behind has N / 2.

    Args:
        x: a value of an epilogue with N columns, N even; or a NumPy array.

    Returns:
        The two values.
    """
    return column_pairs.two_columns(x, column_pairs.HALVES)


def pairs(x: Any) -> tuple[Any, Any]:
    """Columns 2 j and 2 j + 1 of ``x``, for column j of a result of N / 2 columns; else as `halves`.

    Args:
        x: a value of an epilogue with N columns, N even; or a NumPy array.

    Returns:
        The two values.
    """
    return column_pairs.two_columns(x, column_pairs.PAIRS)


def dropout(x: Any, p: float, seed: Any) -> Any:
    """``x / (1 - p)``, but 0 with probability ``p``, by random numbers that depend on the seed, row and column alone.

    Args:
        x: a value of an epilogue.
        p: the probability, from 0 to less than 1.
        seed: an operand of the epilogue, given as a whole number of 64 bits.

    `dropout_mask` gives the elements that are kept.

    Raises:
        ArgumentError: a ``p`` that is no such probability.
    """
    keep = _kept_share(p)
    if not isinstance(x, Traced):
        raise RefusedError("dropout takes a value of an epilogue; outside, write x * dropout_mask(seed, shape, p)")
    return where(tracing.uniform(seed) < float(np.float32(p)), 0.0, x * (1 / keep))


def dropout_mask(seed: int, shape: tuple[int, int], p: float) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """The elements that `dropout` keeps.

    Args:
        seed: as given to the matmul.
        shape: (M, N) of the result.
        p: as given to `dropout`.

    Returns:
        A NumPy array of that shape: True where an element is kept.

    Raises:
        ArgumentError: a ``p`` that is no probability below 1, or a seed or a shape that a result cannot have.
    """
    _kept_share(p)
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or not 0 <= seed < 2**64:
        raise ArgumentError(f"seed: got {seed!r}; a seed is a whole number from 0 to 2**64 - 1, such as seed=1234")
    extents = tuple(shape) if isinstance(shape, Iterable) else ()
    if len(extents) != 2 or not all(isinstance(each, int | np.integer) and each >= 0 for each in extents):
        raise ArgumentError(f"shape: got {shape!r}; it is (M, N), the shape of the result, such as y.shape")
    found: np.ndarray[Any, np.dtype[np.bool_]] = uniform(seed, *shape) >= np.float32(p)
    return found


def _kept_share(p: float) -> float:
    if not isinstance(p, numbers.Real) or not 0 <= p < 1:
        raise ArgumentError(f"p: got {p!r}; it is a number from 0 to less than 1, such as p=0.1")
    return 1 - p
