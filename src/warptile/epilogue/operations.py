"""The operations of an epilogue: what each takes, what it is in CUDA C++, and what it is in NumPy.

This table is the single place that knows an operation. The C++ functions are in ``kernels/epilogue/functions.cuh``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from warptile.dtypes import DType
from warptile.epilogue.philox import uniform

NUMBER, FLAG, SAME = "number", "flag", "same"
"""Kinds of values: numbers of the type that the epilogue computes in, truth values, and the kind of the arguments."""


@dataclass(frozen=True)
class EpilogueOperation:
    """One operation on values.

    Attributes:
        takes: kind of each argument.
        gives: kind of the result.
        cuda: C++ expression, with ``{0}``, ``{1}``, ... for the arguments.
        reference: the same on NumPy arrays, elementwise.
    """

    takes: tuple[str, ...]
    gives: str
    cuda: str
    reference: Callable[..., Any]


_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _sigmoid(x: Any) -> Any:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def _weighted(x: Any, factor: Any) -> Any:
    """``x * factor``, and 0 where the factor is, even if x is infinite: the limit of gelu and silu at -infinity."""
    with np.errstate(invalid="ignore"):
        return np.where(factor == 0, 0.0, x * factor)


def _gelu(x: Any) -> Any:
    return _weighted(x, 0.5 * _erfc(-x / math.sqrt(2)))


def _gelu_tanh(x: Any) -> Any:
    with np.errstate(over="ignore"):
        return _weighted(x, _sigmoid(2 * math.sqrt(2 / math.pi) * x * (1 + 0.044715 * x * x)))


def _one(cuda: str, reference: Callable[..., Any]) -> EpilogueOperation:
    return EpilogueOperation((NUMBER,), NUMBER, f"{cuda}({{0}})", reference)


def _two(cuda: str, reference: Callable[..., Any], gives: str = NUMBER) -> EpilogueOperation:
    return EpilogueOperation((NUMBER, NUMBER), gives, cuda, reference)


OPERATIONS: dict[str, EpilogueOperation] = {
    "add": _two("{0} + {1}", np.add),
    "subtract": _two("{0} - {1}", np.subtract),
    "multiply": _two("{0} * {1}", np.multiply),
    "divide": _two("{0} / {1}", np.divide),
    "negative": EpilogueOperation((NUMBER,), NUMBER, "-{0}", np.negative),
    "less": _two("{0} < {1}", np.less, FLAG),
    "less_equal": _two("{0} <= {1}", np.less_equal, FLAG),
    "equal": _two("{0} == {1}", np.equal, FLAG),
    "not_equal": _two("{0} != {1}", np.not_equal, FLAG),
    "logical_and": EpilogueOperation((FLAG, FLAG), FLAG, "{0} && {1}", np.logical_and),
    "logical_or": EpilogueOperation((FLAG, FLAG), FLAG, "{0} || {1}", np.logical_or),
    "logical_not": EpilogueOperation((FLAG,), FLAG, "!{0}", np.logical_not),
    "where": EpilogueOperation((FLAG, NUMBER, NUMBER), NUMBER, "{0} ? {1} : {2}", np.where),
    "minimum": _two("smaller({0}, {1})", np.minimum),
    "maximum": _two("larger({0}, {1})", np.maximum),
    "absolute": _one("absolute", np.abs),
    "sqrt": _one("square_root", np.sqrt),
    "exp": _one("exponential", np.exp),
    "log": _one("logarithm", np.log),
    "tanh": _one("hyperbolic_tangent", np.tanh),
    "erf": _one("error_function", _erf),
    "sigmoid": _one("sigmoid", _sigmoid),
    "relu": _one("relu", lambda x: np.where(x < 0, 0.0, x)),
    "silu": _one("silu", lambda x: _weighted(x, _sigmoid(x))),
    "gelu": _one("gelu", _gelu),
    "gelu_tanh": _one("gelu_tanh", _gelu_tanh),
}
"""Operations on values, by name. `warptile.epilogue.epilogue_program` has those that read operands."""


def rounded(values: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """Numbers in an element type. Beyond the ends of 8-bit floats and of integers they are these ends."""
    if dtype.is_float8:
        values = np.clip(values, -dtype.largest, dtype.largest)
    elif dtype.kind != "float":
        values = np.clip(np.nan_to_num(values.astype(np.float64)), *integer_range(dtype))  # float32 lacks 2**31 - 1
    return values.astype(dtype.numpy)


def integer_range(dtype: DType) -> tuple[int, int]:
    """The smallest and the largest number of an integer type."""
    return (-(2 ** (dtype.bits - 1)) if dtype.kind == "int" else 0), int(dtype.largest)


def philox(seed: int, rows: int, columns: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The uniform numbers in [0, 1) that ``philox_uniform`` gives the elements of a matrix."""
    return uniform(seed, rows, columns)
