"""Vectors of eight float64 for Numba, kept in CPU registers instead of arrays.

LLVM makes vector instructions of a loop over arrays only if it can prove that the arrays do not overlap. It need not
prove anything of these values. They live within one compiled function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model

WIDTH = 8
_VECTOR = ir.VectorType(ir.DoubleType(), WIDTH)
_LANES = ir.VectorType(ir.IntType(32), WIDTH)

Emit = Callable[..., Any]
"""Writes LLVM instructions: from a builder and operands to a result."""


class Octet(types.Type):
    """The type of eight float64, as Numba knows it."""

    def __init__(self) -> None:
        super().__init__(name="Octet")


@register_model(Octet)
class _OctetModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)  # type: ignore[no-untyped-call]


_OCTET: Any = Octet()


def _of_one(source: Any, result: Any, emit: Emit) -> Any:
    @intrinsic
    def operation(typing_context: Any, a: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return emit(builder, *arguments)

        return result(source), generate

    return operation


def _of_two(emit: Emit) -> Any:
    @intrinsic
    def operation(typing_context: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return emit(builder, *arguments)

        return _OCTET(_OCTET, _OCTET), generate

    return operation


def _emit_spread(builder: Any, value: Any) -> Any:
    first = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, ir.IntType(32)(0))
    return builder.shuffle_vector(first, first, ir.Constant(_LANES, [0] * WIDTH))


def _emit_trunc(builder: Any, value: Any) -> Any:
    name, kind = f"llvm.trunc.v{WIDTH}f64", ir.FunctionType(_VECTOR, [_VECTOR])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [value])  # type: ignore[no-untyped-call]


spread = _of_one(types.float64, _OCTET, _emit_spread)
"""Eight times the same number."""

trunc = _of_one(_OCTET, _OCTET, _emit_trunc)
"""Without their fractions; infinities and NaN stay."""

add = _of_two(lambda builder, a, b: builder.fadd(a, b))
multiply = _of_two(lambda builder, a, b: builder.fmul(a, b))
divide = _of_two(lambda builder, a, b: builder.fdiv(a, b))
larger = _of_two(lambda builder, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))


def _pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), _VECTOR.as_pointer())


@intrinsic
def _load(typing_context: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_pointer(context, builder, signature.args[0], *arguments), align=8)

    return _OCTET(array, types.intp), generate


@intrinsic
def _store(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _pointer(context, builder, signature.args[0], *arguments[:2]), align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, _OCTET), generate


load: Any = _load
"""``load(array, i)``: elements i to i + 7 of a float64 array."""

store: Any = _store
"""``store(array, i, octet)``: the other way round."""


def _emit_single_bits(builder: Any, value: Any) -> Any:
    return builder.zext(builder.bitcast(value, ir.IntType(32)), ir.IntType(64))


def _emit_trunc_one(builder: Any, value: Any) -> Any:
    return builder.call(builder.module.declare_intrinsic("llvm.trunc", [ir.DoubleType()]), [value])


bits = _of_one(types.float64, types.int64, lambda builder, value: builder.bitcast(value, ir.IntType(64)))
"""The bits of one float64, as an int64."""

from_bits = _of_one(types.int64, types.float64, lambda builder, value: builder.bitcast(value, ir.DoubleType()))
"""The float64 of such bits."""

bits_of_single = _of_one(types.float32, types.int64, _emit_single_bits)
"""The bits of one float32, as an int64."""

trunc_one = _of_one(types.float64, types.float64, _emit_trunc_one)
"""`trunc` of one number."""
