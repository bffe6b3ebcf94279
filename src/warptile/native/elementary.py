"""Logarithms and powers of two of vectors: LLVM's own are a call for each element.

Of finite float64, within 3e-13 of NumPy's, as far as they are normal numbers. The polynomials are the series of atanh
and exp.
"""

from __future__ import annotations

import math
from typing import Any

_MANTISSA_BITS, _BIAS = 52, 1023
_WHOLE = 0x433 << _MANTISSA_BITS
"""Bits of 2^52: with a whole number below that in its mantissa, a float64 is 2^52 more than the number."""

_ATANH = tuple(2 / math.log(2) / power for power in range(1, 22, 2))
_EXP = tuple(math.log(2) ** power / math.factorial(power) for power in range(15))
_SMALLEST, _LARGEST = -1022.0, 1023.0
"""Exponents of normal numbers."""


class Elementary:
    """Elementary functions in the code that a builder makes.

    Args:
        ir: llvmlite's module of that name.
        builder: where the code goes.
        width: elements of a vector.
    """

    def __init__(self, ir: Any, builder: Any, width: int) -> None:
        self._builder, self._width = builder, width
        self._double, self._bits = (ir.VectorType(of, width) for of in (ir.DoubleType(), ir.IntType(64)))
        self._constant, self._function = ir.Constant, ir.FunctionType
        self._splats: dict[tuple[Any, float], Any] = {}

    def call(self, name: str, *of: Any) -> Any:
        """The result of one of LLVM's own functions of float64."""
        kind = self._function(self._double, [self._double] * len(of))
        return self._builder.call(self._builder.module.declare_intrinsic(f"{name}.v{self._width}f64", (), kind), of)

    def log2(self, x: Any) -> Any:
        """The logarithm of x to base 2; of 0 and below as NumPy has it, of subnormal numbers that of the least normal
        one or less."""
        build = self._builder
        bits = build.bitcast(x, self._bits)
        exponent = build.lshr(bits, self._whole(_MANTISSA_BITS))
        mantissa = build.and_(bits, self._whole((1 << _MANTISSA_BITS) - 1))
        fraction = build.bitcast(build.or_(mantissa, self._whole(_BIAS << _MANTISSA_BITS)), self._double)
        large = build.fcmp_ordered(">", fraction, self._number(math.sqrt(2)))
        fraction = build.select(large, build.fmul(fraction, self._number(0.5)), fraction)
        power = build.fsub(
            build.bitcast(build.or_(exponent, self._whole(_WHOLE)), self._double), self._number(2.0**_MANTISSA_BITS)
        )
        power = build.fsub(power, build.select(large, self._number(_BIAS - 1.0), self._number(float(_BIAS))))
        one = self._number(1.0)
        ratio = build.fdiv(build.fsub(fraction, one), build.fadd(fraction, one))
        series = self._polynomial(_ATANH, build.fmul(ratio, ratio))
        found = build.fadd(power, build.fmul(ratio, series))
        of_zero = build.fcmp_ordered("==", x, self._number(0.0))
        undefined = build.select(of_zero, self._number(-math.inf), self._number(math.nan))
        return build.select(build.fcmp_ordered(">", x, self._number(0.0)), found, undefined)

    def exp2(self, x: Any) -> Any:
        """2 to the power of x; the least or the largest power of two beyond normal numbers."""
        build = self._builder
        within = self.call("llvm.maxnum", x, self._number(_SMALLEST))
        within = self.call("llvm.minnum", within, self._number(_LARGEST))
        whole = self.call("llvm.floor", build.fadd(within, self._number(0.5)))
        series = self._polynomial(_EXP, build.fsub(within, whole))
        biased = build.bitcast(build.fadd(whole, self._number(2.0**_MANTISSA_BITS + _BIAS)), self._bits)
        scale = build.bitcast(build.shl(biased, self._whole(_MANTISSA_BITS)), self._double)
        found = build.fmul(series, scale)
        return build.select(build.fcmp_ordered("==", x, x), found, x)

    def log(self, x: Any) -> Any:
        """The natural logarithm."""
        return self._builder.fmul(self.log2(x), self._number(math.log(2)))

    def exp(self, x: Any) -> Any:
        """e to the power of x."""
        return self.exp2(self._builder.fmul(x, self._number(1 / math.log(2))))

    def power(self, x: Any, y: Any) -> Any:
        """x to the power of y, of positive x, and of 0 with positive y."""
        return self.exp2(self._builder.fmul(self.log2(x), y))

    def _polynomial(self, coefficients: tuple[float, ...], x: Any) -> Any:
        """By Estrin's scheme, in which few operations wait for each other."""
        terms = [self._number(each) for each in coefficients]
        while len(terms) > 1:
            pairs = [self.call("llvm.fmuladd", terms[i + 1], x, terms[i]) for i in range(0, len(terms) - 1, 2)]
            terms = pairs + terms[2 * len(pairs) :]
            x = self._builder.fmul(x, x)
        return terms[0]

    def _number(self, of: float) -> Any:
        return self._splat(self._double, of)

    def _whole(self, of: int) -> Any:
        return self._splat(self._bits, of)

    def _splat(self, kind: Any, number: float) -> Any:
        """A vector of equal numbers, one object for each: llvmlite writes out each object that it meets."""
        if (kind, number) not in self._splats:
            self._splats[kind, number] = self._constant(kind, [number] * self._width)
        return self._splats[kind, number]
